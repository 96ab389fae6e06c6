//! What an operator may say about policing, and about what requests cost.

use std::time::Duration;

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Share};

use super::SentryConfig;
use crate::api::ClassId;
use crate::error::SentryError;

/// Parameters of mode `sentry` (Cataclysm, section 3).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SentryModeConfig {
    /// How requests are judged.
    pub policing: Policing,
    /// How often rates, service times and delays are brought up to date.
    pub interval: Dur,
    /// How often the threshold is computed.
    pub threshold_interval: Dur,
    /// With `policing = "auto"`: share of its CPU the proxy itself uses above which it judges by
    /// the threshold.
    pub cpu_high: Share,
    /// Share of its CPU below which the proxy may judge batches again.
    pub cpu_low: Share,
    /// How long its CPU use has to stay below `cpu_low` before it does.
    pub cpu_quiet: Dur,
    /// Share of the requests of a class that may be refused because of less important ones that
    /// were admitted a moment earlier (`epsilon`); less important classes are held for a moment so
    /// that it is kept.
    pub denied_max: Share,
    /// Share of the answers of a class that may come after their target: servers are filled only so
    /// far that it is kept. With `1` the mean response time is kept within the target, as in the
    /// paper.
    pub late_max: Share,
    /// Longest time that a class is held, as a share of its target.
    pub delay_max: Share,
    /// A class is held this many times longer than the next more important one.
    pub delay_ratio: f64,
    /// How long the classes are held, the most important first, in place of what is computed.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub delays: Vec<Dur>,
    /// Weight of the time a request waits for disk and network in its service time (`alpha` of
    /// equation 2), where replicas report both. Without it the weight is found from how long
    /// requests take in company, by least squares.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub io_weight: Option<f64>,
    /// Service time of a request before anything was measured.
    pub service_time: Dur,
}

impl Default for SentryModeConfig {
    fn default() -> Self {
        Self {
            policing: Policing::Auto,
            interval: Dur(Duration::from_millis(500)),
            threshold_interval: Dur(Duration::from_secs(15)),
            cpu_high: Share(0.8),
            cpu_low: Share(0.6),
            cpu_quiet: Dur(Duration::from_secs(30)),
            denied_max: Share(0.01),
            late_max: Share(0.0005),
            delay_max: Share(0.15),
            delay_ratio: 2.0,
            delays: Vec::new(),
            io_weight: None,
            service_time: Dur(Duration::from_millis(10)),
        }
    }
}

/// How requests are judged in mode `sentry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Policing {
    /// In batches, and by the threshold while the proxy itself is short of CPU.
    #[default]
    Auto,
    /// Each batch against its target: precise.
    Batch,
    /// By a share per class computed now and then: a few nanoseconds a request.
    Threshold,
}

/// What requests cost, by path.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct PathConfig {
    /// Paths whose service time is remembered; each takes nine bytes.
    pub max: u32,
    /// Patterns of paths that count as one: `*` stands for a segment, `/**` at the end for
    /// whatever follows. Segments of digits or hexadecimal digits count as ids without it.
    pub fold: Vec<String>,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            max: 16_384,
            fold: Vec::new(),
        }
    }
}

/// More paths than this are no table but a copy of the site.
const PATHS_MAX: u32 = 1 << 24;

impl PathConfig {
    pub(super) fn validate(&self) -> Result<(), SentryError> {
        if self.max > PATHS_MAX {
            return Err(SentryError::out_of_range(
                "paths.max",
                self.max,
                "write at most 16777216, which takes 150 MB",
            ));
        }
        match self.fold.iter().find(|pattern| !pattern.starts_with('/')) {
            Some(pattern) => Err(SentryError::out_of_range(
                "paths.fold",
                pattern,
                "paths begin with a slash: write a pattern like /blog/*/comments",
            )),
            None => Ok(()),
        }
    }
}

impl SentryModeConfig {
    pub(super) fn validate(&self, config: &SentryConfig) -> Result<(), SentryError> {
        let mut classes = (0..config.class_count() as u16).map(ClassId);
        if classes.any(|class| config.target_of(class).is_none()) {
            return Err(SentryError::Missing {
                mode: "sentry",
                what: "a target to judge requests by: write `target`, or one for each class",
            });
        }
        for (key, interval) in [
            ("sentry.interval", self.interval),
            ("sentry.threshold_interval", self.threshold_interval),
        ] {
            super::modes::interval_above_zero(key, interval)?;
        }
        if self.cpu_low.0 > self.cpu_high.0 {
            return Err(SentryError::out_of_range(
                "sentry.cpu_low",
                self.cpu_low,
                "write at most sentry.cpu_high",
            ));
        }
        if !(self.delay_ratio.is_finite() && self.delay_ratio >= 1.0) {
            return Err(SentryError::out_of_range(
                "sentry.delay_ratio",
                self.delay_ratio,
                "less important classes are held no shorter: write 1 or more",
            ));
        }
        if !self.delays.is_sorted() {
            return Err(SentryError::out_of_range(
                "sentry.delays",
                "not in order",
                "less important classes are held no shorter: write them from short to long",
            ));
        }
        let senseless = |weight: &f64| !(weight.is_finite() && *weight >= 0.0);
        if let Some(weight) = self.io_weight.filter(senseless) {
            return Err(SentryError::out_of_range(
                "sentry.io_weight",
                weight,
                "write a weight of zero or more",
            ));
        }
        Ok(())
    }
}
