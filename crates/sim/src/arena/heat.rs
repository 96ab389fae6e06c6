//! A heat map: scenarios by name down the side, contenders across the top.

use std::fmt::Write as _;

const CELL: (usize, usize) = (78, 20);
/// Room for the names: about this much per character.
const CHARACTER: usize = 7;
const HEAD: usize = 28;

/// A row: its name, and of each cell a share (for the colour) and a text.
pub(super) type HeatRow = (String, Vec<(f64, String)>);

/// Draws one cell for each column of each row.
pub(super) fn svg(columns: &[&str], rows: &[HeatRow]) -> String {
    let longest = rows.iter().map(|(name, _)| name.chars().count()).max();
    let left = 12 + CHARACTER * longest.unwrap_or(0);
    let width = left + CELL.0 * columns.len() + 8;
    let height = HEAD + CELL.1 * rows.len() + 8;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (column, name) in columns.iter().enumerate() {
        let x = left + CELL.0 * column + CELL.0 / 2;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEAD - 9,
            escaped(name)
        );
    }
    for (row, (name, cells)) in rows.iter().enumerate() {
        let y = HEAD + CELL.1 * row;
        let baseline = y + CELL.1 - 6;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>",
            left - 6,
            escaped(name)
        );
        for (column, (share, shown)) in cells.iter().enumerate() {
            let x = left + CELL.0 * column;
            let (fill, ink) = colours(*share);
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{fill}\">\
                 <title>{}: {}, {}</title></rect>\n\
                 <text x=\"{}\" y=\"{baseline}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
                CELL.0 - 1,
                CELL.1 - 1,
                escaped(name),
                escaped(columns[column]),
                escaped(shown),
                x + CELL.0 / 2,
                escaped(shown)
            );
        }
    }
    text + "</svg>\n"
}

/// From dark red (nothing) over pale to dark blue (all), which every eye tells apart, and the ink
/// that is read on it.
fn colours(share: f64) -> (String, &'static str) {
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    // Most of what matters is between 0.8 and 1.
    let at = share.powi(3);
    let mix = |from: f64, to: f64, part: f64| (from + part * (to - from)).round() as u8;
    let (red, pale, blue) = (
        [178.0, 24.0, 43.0],
        [247.0, 247.0, 247.0],
        [33.0, 102.0, 172.0],
    );
    let rgb: [u8; 3] = std::array::from_fn(|part| {
        if at < 0.5 {
            mix(red[part], pale[part], at * 2.0)
        } else {
            mix(pale[part], blue[part], at * 2.0 - 1.0)
        }
    });
    let ink = if (0.2..0.85).contains(&at) {
        "#000"
    } else {
        "#fff"
    };
    (format!("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]), ink)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_every_cell_is_drawn() {
        let rows = vec![
            (
                "two-times".to_owned(),
                vec![(0.0, "0.0".to_owned()), (0.99, "99.0*".to_owned())],
            ),
            (
                "a<b".to_owned(),
                vec![(1.0, "100.0".to_owned()), (f64::NAN, "-".to_owned())],
            ),
        ];
        let svg = svg(&["none", "auto"], &rows);
        for text in [">two-times<", ">a&lt;b<", ">none<", ">auto<", ">99.0*<"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<rect x=").count(), 4);
        assert_ne!(colours(0.0), colours(1.0));
    }
}
