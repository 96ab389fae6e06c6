//! Load reports of replicas in the form of ORCA, the Open Request Cost Aggregation of xDS.
//!
//! A report is a message `xds.data.orca.v3.OrcaLoadReport`. It comes in the header
//! `endpoint-load-metrics-bin` (base64), or in `endpoint-load-metrics` behind `BIN `, `TEXT ` or
//! `JSON `; the first wins, and of a header its first value, as in Envoy's parser
//! (`source/common/orca/orca_parser.cc`). In `TEXT` one bad metric voids the report: not a number,
//! not finite, negative, unknown, without a name, or there twice. `TEXT` has no `rps` and no
//! `request_cost`.
//!
//! Decision: docs/decisions/0151-load-reports-and-problem-details.md.

use std::collections::HashSet;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderName, HeaderValue};

use crate::message::Fields;

pub(super) const ENDPOINT_LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");
const ENDPOINT_LOAD_BIN: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// gRPC leaves the padding out, others do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a replica says in a report.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct LoadReport {
    application: f64,
    cpu: f64,
    request_cost: Option<f64>,
    queue_ms: Option<f64>,
    in_service: Option<f64>,
}

/// Names of our own among `named_metrics`: what `tidegate-queue-ms` and `tidegate-in-service` say.
const QUEUE_MS: &str = "tidegate.queue_ms";
const IN_SERVICE: &str = "tidegate.in_service";

impl LoadReport {
    /// The application's own utilization if the report gives one, else the CPU's.
    pub(crate) fn utilization(self) -> Option<f64> {
        [self.application, self.cpu]
            .into_iter()
            .find(|&used| used > 0.0)
    }

    /// What the request cost, the sum over all that `request_cost` names.
    pub(super) fn request_cost(self) -> Option<f64> {
        self.request_cost
    }

    /// How long requests waited in the replica before they were started.
    pub(super) fn queue_seconds(self) -> Option<f64> {
        Some(self.queue_ms? / 1e3)
    }

    /// Requests in the replica.
    pub(super) fn in_service(self) -> Option<u32> {
        // `as` saturates.
        self.in_service.map(|requests| requests as u32)
    }

    fn set_named(&mut self, name: &str, value: f64) {
        match name {
            QUEUE_MS => self.queue_ms = Some(value),
            IN_SERVICE => self.in_service = Some(value),
            _ => {}
        }
    }

    fn add_cost(&mut self, cost: f64) {
        self.request_cost = Some(self.request_cost.unwrap_or(0.0) + cost);
    }
}

/// What a replica says about its load. A report that is malformed says nothing.
pub(super) fn read(headers: &Fields) -> Option<LoadReport> {
    if let Some(value) = headers.get(ENDPOINT_LOAD_BIN) {
        return binary(value.as_bytes());
    }
    let value = headers.get(ENDPOINT_LOAD)?.as_bytes();
    match value.split_at_checked(4)? {
        (b"BIN ", payload) => binary(payload),
        _ => match value.split_at_checked(5)? {
            (b"TEXT ", metrics) => text(std::str::from_utf8(metrics).ok()?),
            (b"JSON ", document) => json(document),
            _ => None,
        },
    }
}

/// Names that stand alone in `TEXT`.
const SCALARS: [&str; 5] = [
    "cpu_utilization",
    "mem_utilization",
    "application_utilization",
    "eps",
    "rps_fractional",
];
/// Maps, whose keys follow behind a dot.
const MAPS: [&str; 2] = [NAMED_METRICS, "utilization."];
const NAMED_METRICS: &str = "named_metrics.";

fn text(metrics: &str) -> Option<LoadReport> {
    let mut found = LoadReport::default();
    let mut names = HashSet::new();
    for metric in metrics.split(',') {
        let (name, value) = metric.split_once(['=', ':'])?;
        let (name, value) = (name.trim(), value.trim().parse().ok()?);
        if !is_known(name) || !is_load(value) || !names.insert(name) {
            return None;
        }
        match name {
            "application_utilization" => found.application = value,
            "cpu_utilization" => found.cpu = value,
            _ => {
                if let Some(name) = name.strip_prefix(NAMED_METRICS) {
                    found.set_named(name, value);
                }
            }
        }
    }
    Some(found)
}

fn is_known(name: &str) -> bool {
    let in_map = |map: &&str| name.strip_prefix(*map).is_some_and(|key| !key.is_empty());
    SCALARS.contains(&name) || MAPS.iter().any(in_map)
}

fn is_load(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// The JSON of protocol buffers: names in either spelling, numbers also as strings.
fn json(document: &[u8]) -> Option<LoadReport> {
    let document: serde_json::Value = serde_json::from_slice(document).ok()?;
    let document = document.as_object()?;
    let member = |names: [&str; 2]| names.into_iter().find_map(|name| document.get(name));
    let used = |names: [&str; 2]| match member(names) {
        None | Some(serde_json::Value::Null) => Some(0.0),
        Some(value) => load(value),
    };
    let mut found = LoadReport {
        application: used(["application_utilization", "applicationUtilization"])?,
        cpu: used(["cpu_utilization", "cpuUtilization"])?,
        ..LoadReport::default()
    };
    let costs = member(["request_cost", "requestCost"]).and_then(|costs| costs.as_object());
    for cost in costs.into_iter().flat_map(|costs| costs.values()) {
        found.add_cost(load(cost)?);
    }
    let named = member(["named_metrics", "namedMetrics"]).and_then(|named| named.as_object());
    for (name, value) in named.into_iter().flatten() {
        found.set_named(name, load(value)?);
    }
    Some(found)
}

fn load(value: &serde_json::Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number.filter(|&value| is_load(value))
}

const CPU_FIELD: u64 = 1;
const REQUEST_COST_FIELD: u64 = 4;
const NAMED_METRICS_FIELD: u64 = 8;
const APPLICATION_FIELD: u64 = 9;

fn binary(payload: &[u8]) -> Option<LoadReport> {
    decode(&BASE64.decode(payload.trim_ascii()).ok()?)
}

/// A message `OrcaLoadReport`.
pub(crate) fn decode(message: &[u8]) -> Option<LoadReport> {
    let mut rest = message;
    let mut found = LoadReport::default();
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        // Wire types of protocol buffers: varint, eight bytes, length-delimited, four bytes.
        match tag & 7 {
            0 => drop(varint(&mut rest)?),
            1 => {
                let value = f64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
                match tag >> 3 {
                    CPU_FIELD => found.cpu = value,
                    APPLICATION_FIELD => found.application = value,
                    _ => {}
                }
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let part = take(&mut rest, length)?;
                match tag >> 3 {
                    REQUEST_COST_FIELD => found.add_cost(map_entry(part)?.1),
                    NAMED_METRICS_FIELD => {
                        let (name, value) = map_entry(part)?;
                        found.set_named(name, value);
                    }
                    _ => {}
                }
            }
            5 => drop(take(&mut rest, 4)?),
            _ => return None,
        }
    }
    let optional = [found.request_cost, found.queue_ms, found.in_service];
    let given = optional.into_iter().flatten();
    let valid = [found.cpu, found.application]
        .into_iter()
        .chain(given)
        .all(is_load);
    valid.then_some(found)
}

/// An entry of a map from names to numbers; the number is 0 where it is left out.
fn map_entry(mut entry: &[u8]) -> Option<(&str, f64)> {
    const NAME: u64 = 1 << 3 | 2;
    const NUMBER: u64 = 2 << 3 | 1;
    let (mut name, mut value) = ("", 0.0);
    while !entry.is_empty() {
        match varint(&mut entry)? {
            NAME => {
                let length = usize::try_from(varint(&mut entry)?).ok()?;
                name = std::str::from_utf8(take(&mut entry, length)?).ok()?;
            }
            NUMBER => value = f64::from_le_bytes(take(&mut entry, 8)?.try_into().ok()?),
            _ => return None,
        }
    }
    Some((name, value))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, left) = rest.split_first()?;
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// In which form a caller wants to know how busy we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadFormat {
    Text,
    Json,
    Bin,
}

impl LoadFormat {
    /// The value of `endpoint-load-metrics-format`, the header that model servers read.
    pub(crate) fn of(value: &HeaderValue) -> Option<Self> {
        match value.as_bytes().to_ascii_lowercase().as_slice() {
            b"text" => Some(Self::Text),
            b"json" => Some(Self::Json),
            b"bin" => Some(Self::Bin),
            _ => None,
        }
    }

    /// A report with `pressure` as the application's utilization.
    pub(super) fn report(self, pressure: f64) -> Option<HeaderValue> {
        let report = match self {
            Self::Text => format!("TEXT application_utilization={pressure:.4}"),
            Self::Json => format!("JSON {{\"application_utilization\":{pressure:.4}}}"),
            Self::Bin => {
                let tag = [(APPLICATION_FIELD << 3 | 1) as u8];
                let message = [&tag[..], &pressure.to_le_bytes()].concat();
                format!("BIN {}", BASE64.encode(message))
            }
        };
        HeaderValue::try_from(report).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(value: &str) -> Option<LoadReport> {
        let value = HeaderValue::from_str(value).unwrap();
        super::read(&Fields::from_iter([(ENDPOINT_LOAD, value)]))
    }

    fn read(value: &str) -> Option<f64> {
        report(value)?.utilization()
    }

    #[test]
    fn text_report_is_read() {
        let all = "TEXT cpu_utilization=0.3,mem_utilization=0.8,rps_fractional=10,eps=1,\
                   application_utilization=0.7,named_metrics.queue_depth=4,utilization.db=0.5";
        assert_eq!(read(all), Some(0.7));
        assert_eq!(read("TEXT cpu_utilization:0.3"), Some(0.3));
        assert_eq!(
            read("TEXT application_utilization=0,cpu_utilization=1.5"),
            Some(1.5)
        );
    }

    #[test]
    fn text_report_is_void_by_one_bad_metric() {
        for bad in [
            "mem_utilization=nan",
            "mem_utilization=inf",
            "mem_utilization=-1",
            "mem_utilization=",
            "mem_utilization",
            "cpu_utilization=0.3",
            "rps=3",
            "request_cost.tokens=3",
            "named_metrics.=3",
            "load=1",
            "=1",
            "",
        ] {
            assert_eq!(
                read(&format!("TEXT cpu_utilization=0.3,{bad}")),
                None,
                "{bad}"
            );
        }
    }

    #[test]
    fn prefix_is_exact() {
        for value in [
            "text cpu_utilization=1",
            "TEXTcpu_utilization=1",
            "TEXT",
            "",
            "BIN",
        ] {
            assert_eq!(read(value), None, "{value}");
        }
    }

    #[test]
    fn json_report_is_read_in_both_spellings() {
        assert_eq!(read(r#"JSON {"cpu_utilization":0.3,"eps":1}"#), Some(0.3));
        assert_eq!(read(r#"JSON {"applicationUtilization":"0.5"}"#), Some(0.5));
        assert_eq!(read(r#"JSON {"cpu_utilization":-1}"#), None);
        assert_eq!(read(r#"JSON {"cpu_utilization":"NaN"}"#), None);
        assert_eq!(read("JSON [1]"), None);
    }

    /// Made by the Python package xds-protos:
    /// `OrcaLoadReport(cpu_utilization=.25, request_cost={"t": 87}, rps=7, mem_utilization=.5)`.
    const REPORT: &str = "CQAAAAAAANA/EQAAAAAAAOA/GAciDAoBdBEAAAAAAMBVQA==";

    #[test]
    fn binary_report_wins_over_text() {
        assert_eq!(read(&format!("BIN {REPORT}")), Some(0.25));
        assert_eq!(
            read(&format!("BIN {}", REPORT.trim_end_matches('='))),
            Some(0.25)
        );
        let both = [
            (ENDPOINT_LOAD, "TEXT cpu_utilization=0.9"),
            (ENDPOINT_LOAD_BIN, REPORT),
        ];
        let both = both.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let found = super::read(&Fields::from_iter(both));
        assert_eq!(found.and_then(LoadReport::utilization), Some(0.25));
    }

    #[test]
    fn request_cost_is_the_sum_of_its_parts() {
        let cost = |value: &str| report(value).and_then(LoadReport::request_cost);
        assert_eq!(cost(&format!("BIN {REPORT}")), Some(87.0));
        let both = r#"JSON {"request_cost":{"prefill":80,"decode":"7"}}"#;
        assert_eq!(cost(both), Some(87.0));
        assert_eq!(cost(r#"JSON {"requestCost":{"t":-1}}"#), None);
        assert_eq!(cost("TEXT cpu_utilization=0.3"), None);
    }

    #[test]
    fn queue_and_company_are_named_metrics_in_every_form() {
        let found = |value: &str| {
            let report = report(value).unwrap();
            (report.queue_seconds(), report.in_service())
        };
        let text = "TEXT named_metrics.tidegate.queue_ms=12.5,named_metrics.tidegate.in_service=7";
        assert_eq!(found(text), (Some(0.0125), Some(7)));
        let json = r#"JSON {"named_metrics":{"tidegate.queue_ms":12.5,"tidegate.in_service":7}}"#;
        assert_eq!(found(json), (Some(0.0125), Some(7)));
        let entry = |name: &str, value: f64| {
            let name = [&[0x0a, name.len() as u8], name.as_bytes()].concat();
            let entry = [&name[..], &[0x11], &value.to_le_bytes()].concat();
            [&[0x42, entry.len() as u8], &entry[..]].concat()
        };
        let message = [
            entry(QUEUE_MS, 12.5),
            entry("depth", 3.0),
            entry(IN_SERVICE, 7.0),
        ];
        let message = BASE64.encode(message.concat());
        assert_eq!(found(&format!("BIN {message}")), (Some(0.0125), Some(7)));
        assert_eq!(found("TEXT cpu_utilization=0.3"), (None, None));
    }

    #[test]
    fn binary_report_cut_short_is_void() {
        let message = BASE64.decode(REPORT).unwrap();
        // Whole fields end after these many bytes.
        for length in (1..message.len()).filter(|length| ![9, 18, 20].contains(length)) {
            let cut = BASE64.encode(&message[..length]);
            assert_eq!(read(&format!("BIN {cut}")), None, "{length}");
        }
    }

    #[test]
    fn own_report_is_read_back_in_every_form() {
        for format in ["TEXT", "JSON", "BIN"] {
            let format = LoadFormat::of(&HeaderValue::from_static(format)).unwrap();
            let report = format.report(1.25).unwrap();
            assert_eq!(read(report.to_str().unwrap()), Some(1.25));
        }
    }
}
