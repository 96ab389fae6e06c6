//! The Prometheus text format, version 0.0.4.
//!
//! A family is written once: its help, its type, then its samples. The types below make the other
//! orders impossible to write.

use std::fmt::Write;

use super::histogram::Snapshot;

/// Content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Pairs of label name and value.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page of metrics that is being written. A family that is begun again, for another application,
/// goes on where it ended.
#[derive(Debug, Default)]
pub struct Text {
    families: Vec<(String, String)>,
    application: Option<String>,
}

/// One metric family, ready for its samples.
#[derive(Debug)]
pub struct Family<'a> {
    out: &'a mut String,
    name: &'a str,
    application: Option<&'a str>,
}

impl Text {
    /// Adds the label `application` to the samples that follow, or no longer.
    pub fn set_application(&mut self, name: Option<&str>) {
        self.application = name.map(str::to_owned);
    }

    /// Starts a family that only rises; `name` ends in `_total`.
    pub fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "counter", help)
    }

    /// Starts a family that goes up and down.
    pub fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "gauge", help)
    }

    /// Starts a family of histograms.
    pub fn histogram<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, "histogram", help)
    }

    fn family<'a>(&'a mut self, name: &'a str, kind: &str, help: &str) -> Family<'a> {
        let known = self.families.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
            self.families.push((name.to_owned(), head));
            self.families.len() - 1
        });
        Family {
            out: &mut self.families[at].1,
            name,
            application: self.application.as_deref(),
        }
    }

    /// The finished page.
    #[must_use]
    pub fn finish(self) -> String {
        self.families.into_iter().map(|(_, text)| text).collect()
    }
}

impl Family<'_> {
    /// Writes one sample.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    /// Writes one histogram: its buckets, sum and count.
    pub fn buckets(&mut self, labels: Labels<'_>, snapshot: &Snapshot) -> &mut Self {
        for (edge, below) in snapshot.cumulative() {
            self.line("_bucket", labels, Some(&edge.to_string()), below as f64);
        }
        let count = snapshot.count() as f64;
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, snapshot.sum_seconds());
        self.line("_count", labels, None, count);
        self
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>, value: f64) {
        push(self.out, format_args!("{}{suffix}", self.name));
        let le = le.map(|le| ("le", le));
        let mut separator = '{';
        let application = self.application.map(|name| ("application", name));
        let labels = application.into_iter().chain(labels.iter().copied());
        for (name, value) in labels.chain(le) {
            push(
                self.out,
                format_args!("{separator}{name}=\"{}\"", escaped(value)),
            );
            separator = ',';
        }
        let close = if separator == ',' { "}" } else { "" };
        push(self.out, format_args!("{close} {}\n", Number(value)));
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// A number as the format wants it: `NaN`, `+Inf`, `-Inf` or decimal.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value == f64::INFINITY => f.write_str("+Inf"),
            value if value == f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_as_the_format_asks() {
        let mut text = Text::default();
        text.gauge("limit", "Slots\nof a \\ replica.")
            .sample(&[("replica", "a\"b")], 2.5)
            .sample(&[], f64::INFINITY);
        assert_eq!(
            text.finish(),
            "# HELP limit Slots\\nof a \\\\ replica.\n# TYPE limit gauge\n\
             limit{replica=\"a\\\"b\"} 2.5\nlimit +Inf\n"
        );
    }
}
