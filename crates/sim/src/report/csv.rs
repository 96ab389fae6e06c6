//! The data of a panel as CSV, one line per point: `layer,x,y,low,high`.

use crate::experiment::{Drawn, Panel};

pub(super) fn csv(panel: &Panel) -> String {
    let head = "layer,x,y,low,high\n".to_owned();
    panel
        .layers
        .iter()
        .fold(head, |text, layer| text + &lines(layer))
}

fn lines(layer: &Drawn) -> String {
    let label = quoted(&layer.label);
    let points = layer.points.iter();
    let lines = points.map(|at| format!("{label},{},{},{},{}\n", at.x, at.y, at.low, at.high));
    lines.collect()
}

/// RFC 4180: quotes where a separator, a quote or a line end stands in the text.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_commas_stay_one_field() {
        assert_eq!(quoted("{20, 2.8}"), "\"{20, 2.8}\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
