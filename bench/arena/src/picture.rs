//! The table as a picture: a field per scenario and contender, the greener the nearer to the ideal.

use std::fmt::Write as _;

const FIELD_W: usize = 84;
const FIELD_H: usize = 24;
const NAMES_W: usize = 170;
const HEAD_H: usize = 112;

/// As much as a title takes, however few the contenders are.
const TITLE_W: usize = 800;

/// What a field says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    /// Share of the ideal; colours the field. NaN for what cannot be trusted.
    pub(crate) share: f64,
    pub(crate) text: String,
}

/// The fields under the contenders' names, behind the scenarios'.
pub(crate) fn svg(title: &str, contenders: &[&str], rows: &[(&str, Vec<Field>)]) -> String {
    let width = (NAMES_W + contenders.len() * FIELD_W + 40).max(TITLE_W);
    let height = HEAD_H + rows.len() * FIELD_H + 12;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}</text>\n",
        escaped(title)
    );
    for (column, name) in contenders.iter().enumerate() {
        let (x, y) = (NAMES_W + column * FIELD_W + FIELD_W / 2, HEAD_H - 8);
        push(
            &mut svg,
            format_args!(
                "<text transform=\"translate({x} {y}) rotate(-32)\">{}</text>",
                escaped(name)
            ),
        );
    }
    for (row, (name, fields)) in rows.iter().enumerate() {
        let y = HEAD_H + row * FIELD_H;
        let baseline = y + 16;
        push(
            &mut svg,
            format_args!("<text x=\"12\" y=\"{baseline}\">{}</text>", escaped(name)),
        );
        for (column, field) in fields.iter().enumerate() {
            let x = NAMES_W + column * FIELD_W;
            push(
                &mut svg,
                format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\"/>\
                     <text x=\"{}\" y=\"{baseline}\" text-anchor=\"middle\">{}</text>",
                    FIELD_W - 2,
                    FIELD_H - 2,
                    colour(field.share),
                    x + FIELD_W / 2 - 1,
                    escaped(&field.text)
                ),
            );
        }
    }
    svg + "</svg>\n"
}

fn push(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(svg, "{line}");
}

/// From blue-green for the ideal over yellow to orange for less than half; dark text is legible on
/// all of them, and the order can be told without seeing red or green.
fn colour(share: f64) -> String {
    if !share.is_finite() {
        return "#e5e5e5".to_owned();
    }
    let steps = [
        (0.5, [244.0, 165.0, 130.0]),
        (0.85, [253.0, 230.0, 160.0]),
        (1.0, [127.0, 205.0, 187.0]),
    ];
    let share = share.clamp(0.5, 1.0);
    let (low, high) = if share < steps[1].0 {
        (steps[0], steps[1])
    } else {
        (steps[1], steps[2])
    };
    let part = (share - low.0) / (high.0 - low.0);
    let mixed = |index: usize| (low.1[index] + part * (high.1[index] - low.1[index])).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_drawn_with_its_text() {
        let field = |share, text: &str| Field {
            share,
            text: text.to_owned(),
        };
        let rows = [
            ("a<b", vec![field(1.0, "100"), field(f64::NAN, "too noisy")]),
            ("c", vec![field(0.2, "20*"), field(0.9, "90")]),
        ];
        let svg = svg("who & what", &["one", "two"], &rows);
        for part in [
            "who &amp; what",
            "a&lt;b",
            ">100<",
            ">too noisy<",
            ">20*<",
            "#7fcdbb",
        ] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 1 + 4);
    }

    #[test]
    fn colours_follow_the_share() {
        assert_eq!(colour(0.1), colour(0.5));
        assert_eq!(colour(1.2), colour(1.0));
        assert_ne!(colour(0.9), colour(1.0));
        assert_eq!(colour(f64::NAN), "#e5e5e5");
    }
}
