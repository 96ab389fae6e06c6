//! The variables of the environment that every OpenTelemetry SDK has.
//!
//! Source: the OpenTelemetry specification, "Environment Variable Specification" and "OpenTelemetry
//! Protocol Exporter". A variable for one signal comes before the one for all. An empty one is
//! none. One that makes no sense is warned about and counts as none, as the specification wants it.
//!
//! It differs in one place: nothing is exported unless an endpoint or an exporter is named. A proxy
//! must not look for a collector that nobody has.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans of requests.
    Traces,
    /// The metrics of the proxy.
    Metrics,
}

impl Signal {
    /// The word in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }

    /// The part of a variable's name.
    const fn infix(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }

    const fn method(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }
}

/// How messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `http/protobuf`: a POST per batch.
    Http,
    /// `grpc`: a call per batch, over HTTP/2.
    Grpc,
}

/// Where one signal is sent to.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The address of the POST or call.
    pub url: Uri,
    /// How messages are sent.
    pub protocol: Protocol,
    /// Headers of every message, such as a token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// After this an attempt has failed.
    pub timeout: Duration,
    /// Whether messages are compressed.
    pub gzip: bool,
    /// PEM file with the authorities to trust, instead of the system's.
    pub certificate: Option<PathBuf>,
    /// PEM files with what to present to the collector.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// All that the environment says.
#[derive(Debug, Clone, PartialEq)]
pub struct Environment {
    /// Where spans go, if they do.
    pub traces: Option<Target>,
    /// Where metrics go, if they do.
    pub metrics: Option<Target>,
    /// The service's name, and what else describes it.
    pub resource: Vec<(String, String)>,
    /// Share of requests that are recorded.
    pub share: Option<f64>,
    /// How long spans are gathered.
    pub span_delay: Duration,
    /// Spans that may wait for the collector.
    pub span_queue: usize,
    /// Spans of a message.
    pub span_batch: usize,
    /// Time between two messages of metrics.
    pub metric_interval: Duration,
    /// Whether counters are sent as what was added since the last message.
    pub delta: bool,
    /// Whether histograms are sent with all buckets.
    pub exponential: bool,
}

/// Reads variables, and gathers what is wrong with them.
struct Reader<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Environment {
    /// What the process's environment says; and a line about each variable that makes no sense.
    #[must_use]
    pub fn of_process() -> (Self, Vec<String>) {
        Self::read(&|name| std::env::var(name).ok())
    }

    /// What variables say.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut reader = Reader {
            get,
            warnings: Vec::new(),
        };
        let disabled = reader
            .text("OTEL_SDK_DISABLED")
            .is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let mut target = |signal| reader.target(signal).filter(|_| !disabled);
        let (traces, metrics) = (target(Signal::Traces), target(Signal::Metrics));
        let environment = Self {
            traces,
            metrics,
            resource: reader.resource(),
            share: reader.share(),
            span_delay: reader.millis("OTEL_BSP_SCHEDULE_DELAY", 5000),
            span_queue: reader.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
            span_batch: reader.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            metric_interval: reader.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            delta: reader.choice(
                "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
                &[("cumulative", false), ("delta", true), ("lowmemory", true)],
            ),
            exponential: reader.choice(
                "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
                &[
                    ("explicit_bucket_histogram", false),
                    ("base2_exponential_bucket_histogram", true),
                ],
            ),
        };
        (environment, reader.warnings)
    }

    /// Whether anything is exported.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.traces.is_some() || self.metrics.is_some()
    }
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let text = (self.get)(name)?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn warn(&mut self, name: &str, text: &str, remedy: &str) {
        self.warnings
            .push(format!("{name}: `{text}` is ignored; {remedy}"));
    }

    /// The variable of one signal, else that of all; with the name it has.
    fn of_signal(&self, signal: Signal, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.infix());
        let common = format!("OTEL_EXPORTER_OTLP_{what}");
        let found = self.text(&own).map(|text| (own, text));
        found.or_else(|| self.text(&common).map(|text| (common, text)))
    }

    fn target(&mut self, signal: Signal) -> Option<Target> {
        let endpoint = self.of_signal(signal, "ENDPOINT");
        if !self.is_wanted(signal, endpoint.is_some()) {
            return None;
        }
        let protocol = self.protocol(signal);
        let url = self.url(signal, protocol, endpoint)?;
        let path = |pair: Option<(String, String)>| pair.map(|(_, text)| PathBuf::from(text));
        let client = (
            path(self.of_signal(signal, "CLIENT_CERTIFICATE")),
            path(self.of_signal(signal, "CLIENT_KEY")),
        );
        Some(Target {
            url,
            protocol,
            headers: self.headers(signal),
            timeout: self.timeout(signal),
            gzip: self.gzip(signal),
            certificate: path(self.of_signal(signal, "CERTIFICATE")),
            client: client.0.zip(client.1),
        })
    }

    /// Whether a signal is exported: if it has an endpoint, unless its exporter is another one.
    fn is_wanted(&mut self, signal: Signal, has_endpoint: bool) -> bool {
        let name = format!("OTEL_{}_EXPORTER", signal.infix());
        let Some(text) = self.text(&name) else {
            return has_endpoint;
        };
        let mut exporters = text.split(',').map(str::trim);
        if exporters.clone().any(|it| it == "otlp") {
            return true;
        }
        if exporters.any(|it| it != "none") {
            self.warn(
                &name,
                &text,
                "write `otlp` or `none`: there is no other exporter",
            );
        }
        false
    }

    fn protocol(&mut self, signal: Signal) -> Protocol {
        match self.of_signal(signal, "PROTOCOL") {
            Some((_, text)) if text == "grpc" => Protocol::Grpc,
            Some((_, text)) if text == "http/protobuf" => Protocol::Http,
            Some((name, text)) => {
                self.warn(
                    &name,
                    &text,
                    "write `http/protobuf`, which is used now, or `grpc`",
                );
                Protocol::Http
            }
            None => Protocol::Http,
        }
    }

    /// The whole address. The endpoint of all signals is a base; that of one is taken as it is.
    fn url(
        &mut self,
        signal: Signal,
        protocol: Protocol,
        endpoint: Option<(String, String)>,
    ) -> Option<Uri> {
        let port = match protocol {
            Protocol::Http => 4318,
            Protocol::Grpc => 4317,
        };
        let usual = || (String::new(), format!("http://localhost:{port}"));
        let (name, text) = endpoint.unwrap_or_else(usual);
        let own = name.contains(signal.infix());
        let insecure = self.of_signal(signal, "INSECURE");
        let insecure = insecure.is_none_or(|(_, text)| text.eq_ignore_ascii_case("true"));
        let with_scheme = match (text.contains("://"), insecure) {
            (true, _) => text.clone(),
            // Allowed with gRPC.
            (false, true) => format!("http://{text}"),
            (false, false) => format!("https://{text}"),
        };
        let base = with_scheme.trim_end_matches('/');
        let whole = match (protocol, own) {
            (Protocol::Http, true) => with_scheme.clone(),
            (Protocol::Http, false) => format!("{base}{}", signal.path()),
            (Protocol::Grpc, _) => {
                let authority = base.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
                format!("{authority}{}", signal.method())
            }
        };
        let url: Option<Uri> = whole.parse().ok();
        let fits = |url: &Uri| {
            let scheme = url.scheme_str();
            (scheme == Some("http") || scheme == Some("https")) && url.host().is_some()
        };
        let url = url.filter(fits);
        if url.is_none() {
            let remedy = "write an URL such as http://127.0.0.1:4318; nothing is exported";
            self.warn(&name, &text, remedy);
        }
        url
    }

    /// `name=value,name=value`, where values may be percent-encoded.
    fn headers(&mut self, signal: Signal) -> Vec<(HeaderName, HeaderValue)> {
        let Some((name, text)) = self.of_signal(signal, "HEADERS") else {
            return Vec::new();
        };
        let mut headers = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let read = pair.split_once('=').and_then(|(name, value)| {
                let name = HeaderName::try_from(name.trim()).ok()?;
                let value = HeaderValue::try_from(percent_decoded(value.trim())).ok()?;
                Some((name, value))
            });
            match read {
                Some(header) => headers.push(header),
                // Its value may be a secret.
                None => {
                    let key = pair.split('=').next().unwrap_or_default();
                    self.warn(&name, key, "write `name=value`, with commas between them");
                }
            }
        }
        headers
    }

    fn timeout(&mut self, signal: Signal) -> Duration {
        let of_signal = format!("OTEL_EXPORTER_OTLP_{}_TIMEOUT", signal.infix());
        let common = self.millis("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000);
        self.millis(&of_signal, common.as_millis() as u64)
    }

    fn gzip(&mut self, signal: Signal) -> bool {
        match self.of_signal(signal, "COMPRESSION") {
            Some((_, text)) if text == "gzip" => true,
            Some((name, text)) if text != "none" => {
                self.warn(&name, &text, "write `gzip` or `none`");
                false
            }
            _ => false,
        }
    }

    fn share(&mut self) -> Option<f64> {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        let text = self.text(NAME)?;
        match text.strip_prefix("parentbased_").unwrap_or(&text) {
            "always_on" => Some(1.0),
            "always_off" => Some(0.0),
            "traceidratio" => {
                let name = "OTEL_TRACES_SAMPLER_ARG";
                let Some(text) = self.text(name) else {
                    return Some(1.0);
                };
                let share = text
                    .parse()
                    .ok()
                    .filter(|share| (0.0..=1.0).contains(share));
                if share.is_none() {
                    self.warn(name, &text, "write a number from 0 to 1");
                }
                share
            }
            _ => {
                let remedy = "write `parentbased_traceidratio` with OTEL_TRACES_SAMPLER_ARG, \
                              `always_on` or `always_off`";
                self.warn(NAME, &text, remedy);
                None
            }
        }
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let mut resource = Vec::new();
        let text = self.text(NAME).unwrap_or_default();
        for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match pair.split_once('=') {
                Some((key, value)) => {
                    resource.push((key.trim().to_owned(), percent_decoded(value.trim())));
                }
                None => self.warn(NAME, pair, "write `key=value`, with commas between them"),
            }
        }
        if let Some(name) = self.text("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        }
        resource
    }

    fn number(&mut self, name: &str, usual: usize) -> usize {
        let Some(text) = self.text(name) else {
            return usual;
        };
        let number = text.parse().ok().filter(|number| *number > 0);
        number.unwrap_or_else(|| {
            self.warn(
                name,
                &text,
                &format!("write a number of at least 1; {usual} holds"),
            );
            usual
        })
    }

    fn millis(&mut self, name: &str, usual: u64) -> Duration {
        Duration::from_millis(self.number(name, usual as usize) as u64)
    }

    fn choice(&mut self, name: &str, choices: &[(&str, bool)]) -> bool {
        let Some(text) = self.text(name) else {
            return false;
        };
        let mut known = choices
            .iter()
            .filter(|(word, _)| text.eq_ignore_ascii_case(word));
        let chosen = known.next().map(|(_, chosen)| *chosen);
        chosen.unwrap_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.warn(name, &text, &format!("write one of {}", words.join(", ")));
            false
        })
    }
}

/// `%41` for `A`; what is no such code stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Environment, Vec<String>) {
        let map: HashMap<_, _> = pairs.iter().copied().collect();
        Environment::read(&|name| map.get(name).map(|text| (*text).to_owned()))
    }

    fn url(target: Option<Target>) -> String {
        target.expect("it is exported").url.to_string()
    }

    #[test]
    fn nothing_is_exported_unless_a_collector_is_named() {
        let (none, warnings) = read(&[]);
        assert!(!none.is_used() && warnings.is_empty());
        let (otlp, _) = read(&[("OTEL_TRACES_EXPORTER", "otlp")]);
        assert_eq!(url(otlp.traces), "http://localhost:4318/v1/traces");
        assert_eq!(otlp.metrics, None);
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        let (both, _) = read(&[endpoint]);
        assert_eq!(url(both.traces), "http://c:4318/v1/traces");
        assert_eq!(url(both.metrics), "http://c:4318/v1/metrics");
        let (off, _) = read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]);
        assert!(!off.is_used());
        let (one, _) = read(&[endpoint, ("OTEL_METRICS_EXPORTER", "none")]);
        assert!(one.traces.is_some() && one.metrics.is_none());
    }

    #[test]
    fn variable_of_one_signal_comes_before_that_of_all() {
        let (read, warnings) = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1/base"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://own:2/x"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "500"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a=1, authorization=Bearer%20x",
            ),
        ]);
        assert_eq!(warnings, [""; 0]);
        let (traces, metrics) = (read.traces.unwrap(), read.metrics.unwrap());
        assert_eq!(traces.url, "https://own:2/x");
        assert_eq!(
            metrics.url,
            "http://all:1/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
        );
        assert_eq!(traces.timeout, Duration::from_millis(500));
        assert_eq!(metrics.timeout, Duration::from_secs(2));
        assert!(traces.gzip && !metrics.gzip);
        assert_eq!(traces.headers[1].1, "Bearer x");
    }

    #[test]
    fn sampler_and_resource_are_read() {
        let (read, warnings) = read(&[
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,zone=b%20c"),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
        ]);
        assert_eq!(warnings, [""; 0]);
        assert_eq!(read.share, Some(0.25));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            read.resource,
            [pair("zone", "b c"), pair("service.name", "edge")]
        );
        assert_eq!(read.metric_interval, Duration::from_secs(1));
        assert!(read.delta && !read.exponential);
    }

    #[test]
    fn variable_that_makes_no_sense_is_warned_about_and_ignored() {
        let (read, warnings) = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://c"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ]);
        assert!(!read.is_used());
        assert_eq!(read.span_queue, 2048);
        assert_eq!(warnings.len(), 5, "{warnings:#?}");
        assert!(warnings[0].starts_with("OTEL_TRACES_EXPORTER: `zipkin` is ignored; write"));
    }
}
