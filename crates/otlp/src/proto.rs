//! `opentelemetry.proto` v1: the messages and fields that are sent, with the field numbers of the
//! definitions.

use std::fmt::Debug;

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "any_value::Value", tags = "1, 2, 3, 4")]
    pub(crate) value: Option<any_value::Value>,
}

pub(crate) mod any_value {
    use super::Oneof;

    #[derive(Clone, PartialEq, Oneof)]
    pub(crate) enum Value {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(bool, tag = "2")]
        Flag(bool),
        #[prost(int64, tag = "3")]
        Whole(i64),
        #[prost(double, tag = "4")]
        Number(f64),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// What a request carries many of.
pub(crate) trait Item: Message + Default + Debug {}

impl Item for Span {}
impl Item for Metric {}

/// What an exporter sends for either signal: `T` is a [`Span`] or a [`Metric`]. The definitions
/// have the same three messages twice, under two names each.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request<T: Item> {
    #[prost(message, repeated, tag = "1")]
    pub(crate) of_resources: Vec<OfResource<T>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OfResource<T: Item> {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) of_scopes: Vec<OfScope<T>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OfScope<T: Item> {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) items: Vec<T>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
pub(crate) enum SpanKind {
    Unspecified = 0,
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub(crate) code: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
pub(crate) enum StatusCode {
    Unset = 0,
    Ok = 1,
    Error = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) description: String,
    #[prost(string, tag = "3")]
    pub(crate) unit: String,
    #[prost(oneof = "metric::Data", tags = "5, 7, 9, 10")]
    pub(crate) data: Option<metric::Data>,
}

pub(crate) mod metric {
    use super::{ExponentialHistogram, Gauge, Histogram, Oneof, Sum};

    #[derive(Clone, PartialEq, Oneof)]
    pub(crate) enum Data {
        #[prost(message, tag = "5")]
        Gauge(Gauge),
        #[prost(message, tag = "7")]
        Sum(Sum),
        #[prost(message, tag = "9")]
        Histogram(Histogram),
        #[prost(message, tag = "10")]
        ExponentialHistogram(ExponentialHistogram),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<NumberPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    pub(crate) aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub(crate) is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<HistogramPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    pub(crate) aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    pub(crate) data_points: Vec<ExponentialPoint>,
    #[prost(enumeration = "Temporality", tag = "2")]
    pub(crate) aggregation_temporality: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
pub(crate) enum Temporality {
    Unspecified = 0,
    Delta = 1,
    Cumulative = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    /// A member of a oneof: written also when it is zero.
    #[prost(double, optional, tag = "4")]
    pub(crate) as_double: Option<f64>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(crate) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub(crate) bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExponentialPoint {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(crate) sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub(crate) scale: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub(crate) positive: Option<Buckets>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(double, tag = "14")]
    pub(crate) zero_threshold: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Buckets {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Exemplar {
    #[prost(fixed64, tag = "2")]
    pub(crate) time_unix_nano: u64,
    #[prost(double, optional, tag = "3")]
    pub(crate) as_double: Option<f64>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) trace_id: Vec<u8>,
}

/// What a collector answers, of either signal.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Response {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}
