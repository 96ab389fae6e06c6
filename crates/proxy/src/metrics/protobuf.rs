//! Prometheus's messages `io.prometheus.client.MetricFamily`, each with its length before it: the
//! only format in which a scrape carries native histograms.
//!
//! Histograms are exported twice, as Prometheus allows: with the few edges of the text formats and
//! with all buckets. A scraper that knows native histograms takes the latter. The buckets are those
//! that were written ([`Snapshot::native`]): nothing is interpolated.
//!
//! The messages are written by hand, as those of Envoy are (decision 0180): fields that are never
//! sent are left out.

use std::time::UNIX_EPOCH;

use prost::Message;

use super::exemplar::Exemplar;
use super::family::{self, Value};
use super::histogram::{SCHEMA, Snapshot};

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Metric>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(message, optional, tag = "2")]
    exemplar: Option<ExemplarMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(super) sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub(super) positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<ExemplarMessage>,
}

/// Buckets one after the other, behind a gap.
#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    pub(super) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) length: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct ExemplarMessage {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
struct Time {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// A page in this format.
pub(super) fn write(families: &[family::Family]) -> Vec<u8> {
    let messages = families.iter().map(message);
    messages
        .flat_map(|it| it.encode_length_delimited_to_vec())
        .collect()
}

fn message(family: &family::Family) -> MetricFamily {
    let kind = match family.metric.kind {
        family::Kind::Counter => MetricType::Counter,
        family::Kind::Gauge => MetricType::Gauge,
        family::Kind::Histogram => MetricType::Histogram,
    };
    MetricFamily {
        name: Some(family.metric.name.to_owned()),
        help: Some(family.metric.help.to_owned()),
        kind: Some(kind as i32),
        metric: family.samples.iter().map(|it| metric(kind, it)).collect(),
    }
}

fn metric(kind: MetricType, sample: &family::Sample) -> Metric {
    let mut metric = Metric {
        label: sample
            .labels
            .iter()
            .map(|(name, value)| label(name, value))
            .collect(),
        ..Metric::default()
    };
    match &sample.value {
        Value::Number(value, exemplar) if kind == MetricType::Counter => {
            metric.counter = Some(Counter {
                value: Some(*value),
                exemplar: exemplar.as_ref().map(exemplar_message),
            });
        }
        Value::Number(value, _) => {
            metric.gauge = Some(Gauge {
                value: Some(*value),
            });
        }
        Value::Times(times, exemplars) => metric.histogram = Some(histogram(times, exemplars)),
    }
    metric
}

fn histogram(times: &Snapshot, exemplars: &[(usize, Exemplar)]) -> Histogram {
    let infinity = (f64::INFINITY, times.count());
    let buckets = times.cumulative().chain([infinity]).enumerate();
    let (positive_span, positive_delta) = sparse(times);
    Histogram {
        sample_count: Some(times.count()),
        sample_sum: Some(times.sum_seconds()),
        bucket: buckets
            .map(|(place, (edge, below))| {
                let found = exemplars.iter().find(|(at, _)| *at == place);
                Bucket {
                    cumulative_count: Some(below),
                    upper_bound: Some(edge),
                    exemplar: found.map(|(_, exemplar)| exemplar_message(exemplar)),
                }
            })
            .collect(),
        schema: Some(SCHEMA),
        zero_threshold: Some(Snapshot::zero_threshold()),
        zero_count: Some(times.zero_count()),
        positive_span,
        positive_delta,
    }
}

/// Native buckets as spans, and counts as differences to the one before. A histogram without values
/// has one empty span, which tells it from one that has no native buckets.
fn sparse(times: &Snapshot) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<BucketSpan>, _) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (number, count) in times.native() {
        match spans.last_mut() {
            Some(span) if number == next => {
                span.length = span.length.map(|length| length + 1);
            }
            _ => spans.push(BucketSpan {
                offset: Some(number - next),
                length: Some(1),
            }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (number + 1, count);
    }
    if spans.is_empty() {
        spans.push(BucketSpan {
            offset: Some(0),
            length: Some(0),
        });
    }
    (spans, deltas)
}

fn label(name: &str, value: &str) -> LabelPair {
    LabelPair {
        name: Some(name.to_owned()),
        value: Some(value.to_owned()),
    }
}

fn exemplar_message(exemplar: &Exemplar) -> ExemplarMessage {
    let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    ExemplarMessage {
        label: vec![
            label("trace_id", &exemplar.trace.to_string()),
            label("span_id", &exemplar.span.to_string()),
        ],
        value: Some(exemplar.value),
        timestamp: Some(Time {
            seconds: at.as_secs() as i64,
            nanos: at.subsec_nanos() as i32,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_sentry::ClassId;

    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::family::{Page, metrics};

    metrics! { ALL:
        COUNT = Counter "a_total", "A.", "";
        TIMES = Histogram "b_seconds", "B.", "";
    }

    #[test]
    fn families_are_read_back_with_native_buckets() {
        let metrics = Metrics::new(1);
        for millis in [1000, 1000, 1050, 2000, 2000, 2000] {
            metrics
                .core(0)
                .record_waiting(ClassId(0), Duration::from_millis(millis));
        }
        let totals = metrics.totals();
        let mut page = Page::default();
        page.begin(&COUNT).sample(&[], 3.0);
        page.begin(&TIMES).times(&[], &totals.classes[0].waiting);
        let bytes = write(&page.finish());
        let mut rest = &bytes[..];
        let one = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        let two = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!(one.name.as_deref(), Some(COUNT.name));
        assert_eq!(two.name.as_deref(), Some(ALL[1].name));
        let times = two.metric[0].histogram.as_ref().unwrap();
        assert_eq!(times.sample_count, Some(6));
        // 2^0 s twice, 2^(1/8) s once, then a gap of six, then 2^1 s three times.
        let spans: Vec<_> = times
            .positive_span
            .iter()
            .map(|it| (it.offset, it.length))
            .collect();
        assert_eq!(spans, [(Some(0), Some(2)), (Some(6), Some(1))]);
        assert_eq!(times.positive_delta, [2, -1, 2]);
    }
}
