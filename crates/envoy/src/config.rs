//! The file of `tidegate envoy -c FILE`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{ConfigError, Dur};
use tidegate_proxy::config::{Addr, ClassRule, Config, Problem, Severity};
use tidegate_sentry::SentryConfig;

/// Shortest `quota.interval`. Chosen: at a hundred requests a second one falls into it.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The whole file. `protect`, `default_class` and `classify` are those of the proxy.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvoyConfig {
    /// Where Envoy connects. There is no authentication: keep it on loopback or a private network.
    pub listen: Addr,
    /// How the service behind Envoy is protected. Nothing here has to be set.
    pub protect: SentryConfig,
    /// The class of requests that no rule of `[[classify]]` fits; by default the least important.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_class: Option<String>,
    /// Which requests are in which class; the first rule that fits decides.
    pub classify: Vec<ClassRule>,
    /// Whether headers may make a request more important: Envoy removes those of clients, or sets
    /// them itself.
    pub trust_headers: bool,
    /// Rates that are assigned to Envoy's `rate_limit_quota`.
    pub quota: QuotaConfig,
}

/// Rates that are assigned to Envoy's `rate_limit_quota`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuotaConfig {
    /// How often rates are computed and sent. Envoy's `reporting_interval` should be the same.
    pub interval: Dur,
    /// Key of the bucket's id whose value is the name of a class.
    pub class_key: String,
    /// Target where `protect.target` is not given.
    pub target: Dur,
}

impl Default for EnvoyConfig {
    fn default() -> Self {
        Self {
            listen: Addr::loopback(9400),
            protect: SentryConfig::default(),
            default_class: None,
            classify: Vec::new(),
            trust_headers: false,
            quota: QuotaConfig::default(),
        }
    }
}

impl Default for QuotaConfig {
    fn default() -> Self {
        Self {
            interval: Dur(Duration::from_millis(250)),
            class_key: "class".to_owned(),
            target: Dur(Duration::from_secs(1)),
        }
    }
}

impl QuotaConfig {
    /// A rate is a count divided by the interval, so the interval has a lower bound.
    fn problem(&self) -> Option<Problem> {
        (self.interval.0 < INTERVAL_MIN).then(|| Problem {
            path: "quota.interval".to_owned(),
            severity: Severity::Error,
            message: format!(
                "{} is too short to count requests in: use {} or more",
                self.interval,
                Dur(INTERVAL_MIN)
            ),
            also: None,
        })
    }
}

impl EnvoyConfig {
    /// Reads a configuration from text; `file` is only used to say where an error is.
    ///
    /// # Errors
    /// What the types refuse, with its place.
    pub fn from_text(file: &str, text: &str) -> Result<Self, ConfigError> {
        tidegate_config::parse(file, text)
    }

    /// Everything wrong with it that its types alone cannot refuse.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = self.proxy().class_problems();
        problems.extend(self.quota.problem());
        problems
    }

    /// The part that a proxy's file has as well.
    pub(crate) fn proxy(&self) -> Config {
        Config {
            protect: self.protect.clone(),
            default_class: self.default_class.clone(),
            classify: self.classify.clone(),
            ..Config::default()
        }
    }

    /// Response time that quotas aim below.
    pub(crate) fn quota_target(&self) -> Duration {
        self.protect.target.unwrap_or(self.quota.target).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(interval: &str) -> Vec<Problem> {
        let text = format!("quota.interval = \"{interval}\"\n");
        let config = EnvoyConfig::from_text("test", &text);
        config.expect("the text is valid").problems()
    }

    #[test]
    fn quota_interval_of_zero_is_refused() {
        let refused = problems("0s");
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].path, "quota.interval");
        assert_eq!(refused[0].severity, Severity::Error);
        assert!(refused[0].message.contains("use 10ms or more"));
        assert_eq!(problems("10ms"), []);
    }
}
