//! Distributed traces: what replicas learn of them, and which requests are recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::Share;

/// Distributed traces. Where spans are sent to is said by the environment, as for every program
/// that OpenTelemetry has a word for: `OTEL_EXPORTER_OTLP_ENDPOINT` and its like.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tracing {
    /// Whether requests have a trace context (W3C `traceparent`): a valid one is passed on, a
    /// malformed one replaced, a missing one begun. By default that is so while spans are exported.
    /// With `false` the headers pass unread and nothing is recorded.
    #[schemars(example = true)]
    pub context: Option<bool>,
    /// Share of the requests that are recorded. A sampled flag of proxies in `forward.trust` comes
    /// before it. By default `OTEL_TRACES_SAMPLER_ARG` says it, else 1%.
    #[schemars(example = &"1%")]
    pub sample: Option<Share>,
    /// Whether requests that are shed are recorded whatever `sample` says.
    pub refusals: bool,
    /// Requests recorded per second, over all threads. Refusals may use all of them, others half.
    #[schemars(range(min = 1))]
    pub per_second: u32,
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            context: None,
            sample: None,
            refusals: true,
            per_second: 100,
        }
    }
}
