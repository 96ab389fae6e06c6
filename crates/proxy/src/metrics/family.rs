//! Metrics as data: what they are called and mean, and the values of all of them at a time. The
//! formats that scrapers and collectors read are made from it.

use std::fmt;

use super::exemplar::{Exemplar, Exemplars};
use super::histogram::Snapshot;

/// What a metric does over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only rises; its name ends in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts times by how long they were.
    Histogram,
}

impl Kind {
    /// The word in the text formats.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a metric is called and means. Declared by `metrics!` beside what it counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it does over time.
    pub kind: Kind,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// What an operator reads from it, or does about it.
    pub remedy: &'static str,
}

/// Declares metrics, and a list of them for the reference: `NAME = kind "name", "help", "remedy";`
macro_rules! metrics {
    ($list:ident: $($constant:ident = $kind:ident $name:literal, $help:literal, $remedy:literal;)*) => {
        $(pub(crate) static $constant: $crate::metrics::Metric = $crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            help: $help,
            remedy: $remedy,
        };)*

        /// All of them, for the reference.
        pub(crate) static $list: &[&$crate::metrics::Metric] = &[$(&$constant),*];
    };
}
pub(crate) use metrics;

/// Pairs of label name and value.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// All samples of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// What it is.
    pub metric: &'static Metric,
    /// Its samples, each with other labels.
    pub samples: Vec<Sample>,
}

/// One value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Names and values of its labels.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of a counter or gauge, with a request that stands for the others.
    Number(f64, Option<Exemplar>),
    /// Of a histogram, with requests that stand for others, by the place of their bucket.
    Times(Box<Snapshot>, Vec<(usize, Exemplar)>),
}

/// The values of all metrics at a time. A family that is begun again, for another application, goes
/// on where it ended.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<Family>,
    application: Option<String>,
}

/// One family, ready for its samples.
#[derive(Debug)]
pub struct Samples<'a> {
    family: &'a mut Family,
    application: Option<&'a str>,
}

impl Page {
    /// Adds the label `application` to the samples that follow, or no longer.
    pub fn set_application(&mut self, name: Option<&str>) {
        self.application = name.map(str::to_owned);
    }

    /// Begins a family, or goes on with it.
    pub fn begin<'a>(&'a mut self, metric: &'static Metric) -> Samples<'a> {
        let known = self
            .families
            .iter()
            .position(|family| family.metric.name == metric.name);
        let at = known.unwrap_or_else(|| {
            let samples = Vec::new();
            self.families.push(Family { metric, samples });
            self.families.len() - 1
        });
        Samples {
            family: &mut self.families[at],
            application: self.application.as_deref(),
        }
    }

    /// The families, in the order in which they were begun.
    #[must_use]
    pub fn finish(self) -> Vec<Family> {
        self.families
    }
}

impl Samples<'_> {
    /// Adds a value.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        self.add(labels, Value::Number(value, None))
    }

    /// Adds a value with a request that stands for the others.
    pub fn exemplified(
        &mut self,
        labels: Labels<'_>,
        value: f64,
        exemplar: Option<Exemplar>,
    ) -> &mut Self {
        self.add(labels, Value::Number(value, exemplar))
    }

    /// Adds a histogram.
    pub fn times(&mut self, labels: Labels<'_>, times: &Snapshot) -> &mut Self {
        self.add(labels, Value::Times(Box::new(times.clone()), Vec::new()))
    }

    /// Adds a histogram of response times with requests that stand for others.
    pub(crate) fn responses(
        &mut self,
        labels: Labels<'_>,
        times: &Snapshot,
        exemplars: &Exemplars,
    ) -> &mut Self {
        let exemplars = exemplars.of_response().to_vec();
        self.add(labels, Value::Times(Box::new(times.clone()), exemplars))
    }

    fn add(&mut self, labels: Labels<'_>, value: Value) -> &mut Self {
        let application = self.application.map(|name| ("application", name));
        let labels = application.into_iter().chain(labels.iter().copied());
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.family.samples.push(Sample {
            labels: labels.collect(),
            value,
        });
        self
    }
}

/// The format in which a scraper reads a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.0, with exemplars.
    OpenMetrics,
    /// Prometheus's protobuf messages, with exemplars and native histograms.
    Protobuf,
}

impl Format {
    /// The format that a scraper likes best, by its `Accept`; text for one that names none.
    #[must_use]
    pub fn of(accept: &str) -> Self {
        let mut best = (Self::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = parts.collect();
            let has = |name: &str, value: &str| {
                parameters.iter().any(|parameter| {
                    let pair = parameter.split_once('=');
                    pair.is_some_and(|(n, v)| {
                        n.trim() == name && v.trim().trim_matches('"') == value
                    })
                })
            };
            let format = match kind.as_str() {
                "application/vnd.google.protobuf"
                    if has("proto", "io.prometheus.client.MetricFamily")
                        && has("encoding", "delimited") =>
                {
                    Self::Protobuf
                }
                "application/openmetrics-text" if has("version", "1.0.0") => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" => Self::Text,
                _ => continue,
            };
            let weight = parameters.iter().find_map(|it| it.strip_prefix("q="));
            let weight: f64 = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            if weight > best.1 {
                best = (format, weight);
            }
        }
        best.0
    }

    /// Its content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Families in this format.
    #[must_use]
    pub fn write(self, families: &[Family]) -> Vec<u8> {
        match self {
            Self::Text => super::text::write(families).into_bytes(),
            Self::OpenMetrics => super::open_metrics::write(families).into_bytes(),
            Self::Protobuf => super::protobuf::write(families),
        }
    }
}

/// Text between quotes, in the text formats.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => fmt::Write::write_char(f, other)?,
            }
        }
        Ok(())
    }
}

/// The labels of a sample, in braces, if there are any.
pub(super) fn write_labels(
    out: &mut String,
    labels: &[(String, String)],
    more: Option<(&str, &str)>,
) {
    use fmt::Write as _;
    let labels = labels.iter().map(|(name, value)| (&**name, &**value));
    let mut separator = '{';
    for (name, value) in labels.chain(more) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{separator}{name}=\"{}\"", Escaped(value));
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
}

/// A number as the text formats want it: `NaN`, `+Inf`, `-Inf` or decimal.
pub(super) struct Number(pub(super) f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            value if value == f64::INFINITY => f.write_str("+Inf"),
            value if value == f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_the_one_that_the_scraper_likes_best() {
        assert_eq!(Format::of(""), Format::Text);
        assert_eq!(Format::of("*/*"), Format::Text);
        assert_eq!(Format::of("application/json"), Format::Text);
        // What Prometheus 2.42 sends, without and with native histograms.
        let usual = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                     version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::of(usual), Format::OpenMetrics);
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                      encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::of(native), Format::Protobuf);
        let refused = "application/openmetrics-text;version=1.0.0;q=0, text/plain;q=0.1";
        assert_eq!(Format::of(refused), Format::Text);
    }
}
