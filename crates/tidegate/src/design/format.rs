//! Numbers as people read them, and the rows of a table.

use serde::Serialize;
use tidegate_control::system::{Complex, Matrix};

/// The answer as a table, or as one JSON object.
pub(super) fn show<T: Serialize>(
    json: bool,
    answer: &T,
    table: impl FnOnce(&T) -> String,
) -> String {
    if !json {
        return table(answer);
    }
    // Only maps with keys that are not strings fail, and there are none.
    let mut text = serde_json::to_string_pretty(answer).unwrap_or_default();
    text.push('\n');
    text
}

/// A complex number in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Root {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl From<Complex<f64>> for Root {
    fn from(z: Complex<f64>) -> Self {
        Self { re: z.re, im: z.im }
    }
}

impl Root {
    pub(super) fn all(roots: &[Complex<f64>]) -> Vec<Self> {
        roots.iter().copied().map(Self::from).collect()
    }
}

/// Rows of a matrix in JSON.
pub(super) fn rows(m: &Matrix) -> Vec<Vec<f64>> {
    m.row_iter()
        .map(|row| row.iter().copied().collect())
        .collect()
}

/// Five significant digits, without trailing zeros.
pub(super) fn short(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return format!("{x}");
    }
    let magnitude = x.abs().log10().floor();
    if !(-4.0..7.0).contains(&magnitude) {
        return format!("{x:.4e}");
    }
    let decimals = (4.0 - magnitude).max(0.0) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// `0.745 ± 0.3422i` for a conjugate pair, listed once.
pub(super) fn root(z: &Root) -> String {
    if z.im == 0.0 {
        short(z.re)
    } else {
        format!("{} ± {}i", short(z.re), short(z.im.abs()))
    }
}

/// Roots without the lower half of each pair.
pub(super) fn upper(roots: &[Root]) -> impl Iterator<Item = &Root> {
    roots.iter().filter(|root| root.im >= 0.0)
}

/// `[[1, 2], [3, 4]]`.
pub(super) fn matrix(rows: &[Vec<f64>]) -> String {
    let row = |row: &Vec<f64>| {
        let cells: Vec<String> = row.iter().map(|&x| short(x)).collect();
        format!("[{}]", cells.join(", "))
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("[{}]", rows.join(", "))
}

/// Lines of "name   value", aligned, under a title.
#[derive(Debug, Default)]
pub(super) struct Table {
    text: String,
}

impl Table {
    /// Columns before the values: the longest name is a rule with its form.
    const NAME_WIDTH: usize = 21;

    pub(super) fn new(title: &str) -> Self {
        Self {
            text: format!("{title}\n"),
        }
    }

    pub(super) fn row(mut self, name: &str, value: impl AsRef<str>) -> Self {
        let width = Self::NAME_WIDTH;
        self.text += &format!("  {name:<width$}{}\n", value.as_ref());
        self
    }

    /// A row that is left out when there is nothing to say.
    pub(super) fn row_if(self, name: &str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.row(name, value),
            None => self,
        }
    }

    pub(super) fn warning(mut self, warning: Option<&str>) -> Self {
        if let Some(warning) = warning {
            self.text += &format!("\n{}\n", wrapped(&format!("warning: {warning}")));
        }
        self
    }

    pub(super) fn line(mut self, line: &str) -> Self {
        self.text += &format!("{line}\n");
        self
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Sentences in lines that fit a terminal.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 96;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("starts with one line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= WIDTH {
            *last += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_fit_a_terminal_and_lose_nothing() {
        let text = "a warning of many words ".repeat(20);
        let lines = wrapped(&text);
        assert!(lines.lines().all(|line| line.len() <= 96) && lines.lines().count() > 4);
        assert_eq!(lines.replace('\n', " "), text.trim());
    }

    #[test]
    fn five_digits_and_no_more() {
        assert_eq!(short(0.819_842_3), "0.81984");
        assert_eq!(short(20.0), "20");
        assert_eq!(short(1_140.2), "1140.2");
        assert_eq!(short(8.75e-6), "8.7500e-6");
        assert_eq!(short(-39.215_686), "-39.216");
        assert_eq!(short(1_234_567.0), "1234567");
        assert_eq!(short(0.0), "0");
    }

    #[test]
    fn a_pair_is_listed_once() {
        let roots = [Root { re: 0.5, im: 0.25 }, Root { re: 0.5, im: -0.25 }];
        let listed: Vec<String> = upper(&roots).map(root).collect();
        assert_eq!(listed, ["0.5 ± 0.25i"]);
    }
}
