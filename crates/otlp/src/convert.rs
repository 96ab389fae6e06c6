//! Spans and metrics of the proxy as OTLP has them.
//!
//! A request is one span of kind `SERVER`, and where a replica had it a second one of kind `CLIENT`
//! inside, the parent of what the replica records. Attributes have the names of OpenTelemetry's
//! semantic conventions for HTTP where there is one, else names that begin with `tidegate.`.
//!
//! Metrics keep their names of Prometheus. Their histograms have the buckets in which they were
//! written: all of them at scale 3 as exponential histograms, or the edges of the text formats.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_control::Timestamp;
use tidegate_proxy::metrics::family::{Sample, Value};
use tidegate_proxy::metrics::{self as source, Family, Kind, SCHEMA, Snapshot};
use tidegate_proxy::trace::Span as Recorded;
use tidegate_sentry::Ending;

use crate::proto::any_value::Value as Any;
use crate::proto::metric::Data;
use crate::proto::{
    AnyValue, Buckets, Exemplar, ExponentialHistogram, ExponentialPoint, Gauge, Histogram,
    HistogramPoint, Item, KeyValue, Metric, NumberPoint, OfResource, OfScope, Request, Resource,
    Scope, Span, SpanKind, Status, StatusCode, Sum, Temporality,
};

/// The sampled flag of a span's context.
const SAMPLED: u32 = 1;
/// It is known whether the parent is in another process.
const KNOWS_REMOTE: u32 = 0x100;
/// The parent is in another process.
const IS_REMOTE: u32 = 0x200;

/// A resource with these attributes.
pub(crate) fn resource(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter();
    Resource {
        attributes: attributes
            .map(|(key, value)| attribute(key, Any::Text(value.clone())))
            .collect(),
    }
}

fn scope() -> Scope {
    Scope {
        name: "tidegate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Any::Text(value.into()))
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A message of spans.
pub(crate) fn traces(resource: &Resource, recorded: &[Recorded]) -> Request<Span> {
    request(resource, recorded.iter().flat_map(spans).collect())
}

/// A message of one resource and one scope.
fn request<T: Item>(resource: &Resource, items: Vec<T>) -> Request<T> {
    let of_scope = OfScope {
        scope: Some(scope()),
        items,
    };
    Request {
        of_resources: vec![OfResource {
            resource: Some(resource.clone()),
            of_scopes: vec![of_scope],
        }],
    }
}

/// One or two spans of a request.
fn spans(recorded: &Recorded) -> impl Iterator<Item = Span> + use<> {
    [Some(server(recorded)), client(recorded)]
        .into_iter()
        .flatten()
}

fn server(recorded: &Recorded) -> Span {
    let (start, end) = times(recorded, recorded.arrived, recorded.ended);
    let remote = if recorded.parent.is_some() {
        IS_REMOTE
    } else {
        0
    };
    Span {
        trace_id: recorded.trace.bytes().to_vec(),
        span_id: recorded.id.bytes().to_vec(),
        parent_span_id: recorded
            .parent
            .map_or_else(Vec::new, |id| id.bytes().to_vec()),
        name: recorded.method.to_string(),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        attributes: server_attributes(recorded),
        status: status(recorded),
        flags: SAMPLED | KNOWS_REMOTE | remote,
    }
}

fn server_attributes(recorded: &Recorded) -> Vec<KeyValue> {
    let scheme = if recorded.tls { "https" } else { "http" };
    let mut attributes = vec![
        text("http.request.method", recorded.method.as_str()),
        text("url.path", recorded.path.as_str()),
        text("url.scheme", scheme),
        text("network.protocol.version", version(recorded)),
        text("tidegate.application", recorded.application.name()),
        text("tidegate.class", recorded.class_name()),
        text("tidegate.request_id", recorded.request_id.to_string()),
    ];
    if recorded.status != 0 {
        let status = Any::Whole(recorded.status.into());
        attributes.push(attribute("http.response.status_code", status));
    }
    if let Some(admitted) = recorded.admitted {
        let waited = (admitted - recorded.arrived).as_secs_f64();
        attributes.push(attribute("tidegate.waiting_seconds", Any::Number(waited)));
    }
    if let Some(optional) = recorded.optional {
        attributes.push(attribute("tidegate.optional_content", Any::Flag(optional)));
    }
    if let Some(reason) = recorded.reason {
        attributes.push(text("tidegate.reason", reason));
    }
    if let Some(refusal) = &recorded.refusal {
        attributes.push(text("tidegate.shed.reason", refusal.reason.as_str()));
        attributes.push(text("tidegate.shed.unit", refusal.reason.unit()));
        for (key, value) in [
            ("tidegate.shed.measured", refusal.measured),
            ("tidegate.shed.limit", refusal.limit),
        ] {
            attributes.push(attribute(key, Any::Number(value)));
        }
    }
    if recorded.status >= 500 {
        let status = recorded.status.to_string();
        attributes.push(text("error.type", recorded.reason.unwrap_or(&status)));
    }
    attributes
}

/// The part of a request at its replica.
fn client(recorded: &Recorded) -> Option<Span> {
    let admitted = recorded.admitted?;
    let left = recorded.left.unwrap_or(recorded.ended);
    let (start, end) = times(recorded, admitted, left);
    let mut attributes = vec![text("http.request.method", recorded.method.as_str())];
    if let Some(url) = recorded.replica_url() {
        let authority = url.split("://").nth(1).unwrap_or(&url);
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        attributes.push(text("server.address", host.trim_matches(['[', ']'])));
        if let Ok(port) = port.parse::<i64>() {
            attributes.push(attribute("server.port", Any::Whole(port)));
        }
        attributes.push(text("tidegate.replica", url));
    }
    let failed = recorded.ending == Some(Ending::Dropped);
    if recorded.reason.is_none() && recorded.status != 0 {
        let status = Any::Whole(recorded.status.into());
        attributes.push(attribute("http.response.status_code", status));
    }
    if failed {
        let status = recorded.status.to_string();
        attributes.push(text("error.type", recorded.reason.unwrap_or(&status)));
    }
    Some(Span {
        trace_id: recorded.trace.bytes().to_vec(),
        span_id: recorded.upstream.bytes().to_vec(),
        parent_span_id: recorded.id.bytes().to_vec(),
        name: recorded.method.to_string(),
        kind: SpanKind::Client as i32,
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        attributes,
        status: failed.then(|| error(recorded)),
        flags: SAMPLED | KNOWS_REMOTE,
    })
}

/// Times of day with the difference that was measured: the clock may be set between two looks.
fn times(recorded: &Recorded, from: Timestamp, to: Timestamp) -> (u64, u64) {
    let start = nanos(recorded.time_of_day(recorded.arrived));
    let start = start + (from - recorded.arrived).as_nanos() as u64;
    (start, start + to.since(from).as_nanos() as u64)
}

fn version(recorded: &Recorded) -> &'static str {
    match recorded.version {
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

/// By the conventions, a server's span has an error where the answer is 5xx.
fn status(recorded: &Recorded) -> Option<Status> {
    (recorded.status >= 500).then(|| error(recorded))
}

fn error(recorded: &Recorded) -> Status {
    Status {
        message: recorded.reason.unwrap_or_default().to_owned(),
        code: StatusCode::Error as i32,
    }
}

/// How metrics are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// As what was added since the last message.
    pub(crate) delta: bool,
    /// With all buckets of histograms.
    pub(crate) exponential: bool,
}

/// When counting began, and now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
}

/// A message of metrics. `before` is what the last one was made of, where only what was added is
/// sent.
pub(crate) fn metrics(
    resource: &Resource,
    families: &[Family],
    before: &[Family],
    form: Form,
    period: Period,
) -> Request<Metric> {
    let metric = |family: &Family| {
        let known = before.iter().find(|it| it.metric == family.metric);
        let known = known.map_or(&[][..], |family| &family.samples);
        Metric {
            name: family.metric.name.to_owned(),
            description: family.metric.help.to_owned(),
            unit: unit(family.metric.name).to_owned(),
            data: Some(data(family, known, form, period)),
        }
    };
    request(resource, families.iter().map(metric).collect())
}

/// Data points of a message.
pub(crate) fn points(families: &[Family]) -> usize {
    families.iter().map(|family| family.samples.len()).sum()
}

/// In UCUM, as OTLP has it.
fn unit(name: &str) -> &'static str {
    let stem = name.strip_suffix("_total").unwrap_or(name);
    match stem {
        _ if stem.ends_with("_seconds") => "s",
        _ if stem.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn data(family: &Family, before: &[Sample], form: Form, period: Period) -> Data {
    let temporality = if form.delta {
        Temporality::Delta
    } else {
        Temporality::Cumulative
    } as i32;
    let earlier = |sample: &Sample| {
        let mut same = before.iter().filter(|it| it.labels == sample.labels);
        same.next().filter(|_| form.delta)
    };
    let samples = family.samples.iter();
    match (family.metric.kind, form.exponential) {
        (Kind::Gauge, _) => Data::Gauge(Gauge {
            data_points: samples.map(|it| number(it, None, period)).collect(),
        }),
        (Kind::Counter, _) => Data::Sum(Sum {
            data_points: samples.map(|it| number(it, earlier(it), period)).collect(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        (Kind::Histogram, false) => Data::Histogram(Histogram {
            data_points: samples
                .filter_map(|it| explicit(it, earlier(it), period))
                .collect(),
            aggregation_temporality: temporality,
        }),
        (Kind::Histogram, true) => Data::ExponentialHistogram(ExponentialHistogram {
            data_points: samples
                .filter_map(|it| exponential(it, earlier(it), period))
                .collect(),
            aggregation_temporality: temporality,
        }),
    }
}

fn labels(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.labels.iter();
    labels
        .map(|(name, value)| text(name, value.as_str()))
        .collect()
}

fn number(sample: &Sample, before: Option<&Sample>, period: Period) -> NumberPoint {
    let value = |sample: &Sample| match &sample.value {
        Value::Number(value, _) => *value,
        Value::Times(times, _) => times.count() as f64,
    };
    let exemplar = match &sample.value {
        Value::Number(_, exemplar) => exemplar.as_ref(),
        Value::Times(..) => None,
    };
    NumberPoint {
        start_time_unix_nano: nanos(period.from),
        time_unix_nano: nanos(period.to),
        as_double: Some(value(sample) - before.map_or(0.0, value)),
        exemplars: exemplar.into_iter().map(example).collect(),
        attributes: labels(sample),
    }
}

/// A histogram's counts, those of the last message taken off, and its exemplars.
fn counted(sample: &Sample, before: Option<&Sample>) -> Option<(Snapshot, Vec<Exemplar>)> {
    let Value::Times(times, exemplars) = &sample.value else {
        return None;
    };
    let times = match before.map(|it| &it.value) {
        Some(Value::Times(before, _)) => times.since(before),
        _ => Snapshot::clone(times),
    };
    let exemplars = exemplars.iter().map(|(_, it)| example(it));
    Some((times, exemplars.collect()))
}

fn explicit(sample: &Sample, before: Option<&Sample>, period: Period) -> Option<HistogramPoint> {
    let (times, exemplars) = counted(sample, before)?;
    let (explicit_bounds, cumulative): (Vec<_>, Vec<_>) = times.cumulative().unzip();
    let mut below = 0;
    let mut bucket_counts: Vec<u64> = Vec::with_capacity(cumulative.len() + 1);
    for count in cumulative.into_iter().chain([times.count()]) {
        bucket_counts.push(count.saturating_sub(below));
        below = count;
    }
    Some(HistogramPoint {
        start_time_unix_nano: nanos(period.from),
        time_unix_nano: nanos(period.to),
        count: times.count(),
        sum: Some(times.sum_seconds()),
        bucket_counts,
        explicit_bounds,
        exemplars,
        attributes: labels(sample),
    })
}

fn exponential(
    sample: &Sample,
    before: Option<&Sample>,
    period: Period,
) -> Option<ExponentialPoint> {
    let (times, exemplars) = counted(sample, before)?;
    let held: Vec<_> = times.native().collect();
    // A bucket of number `i` ends at 2^(i/8); here it is known by where it begins.
    let positive = held
        .first()
        .zip(held.last())
        .map(|((first, _), (last, _))| {
            let mut bucket_counts = vec![0; (last - first + 1) as usize];
            for (number, count) in &held {
                bucket_counts[(number - first) as usize] = *count;
            }
            Buckets {
                offset: first - 1,
                bucket_counts,
            }
        });
    Some(ExponentialPoint {
        attributes: labels(sample),
        start_time_unix_nano: nanos(period.from),
        time_unix_nano: nanos(period.to),
        count: times.count(),
        sum: Some(times.sum_seconds()),
        scale: SCHEMA,
        zero_count: times.zero_count(),
        positive,
        exemplars,
        zero_threshold: Snapshot::zero_threshold(),
    })
}

fn example(exemplar: &source::Exemplar) -> Exemplar {
    Exemplar {
        time_unix_nano: nanos(exemplar.at),
        as_double: Some(exemplar.value),
        span_id: exemplar.span.bytes().to_vec(),
        trace_id: exemplar.trace.bytes().to_vec(),
    }
}
