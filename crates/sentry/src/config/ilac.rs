//! Parameters of mode `ilac`.

use std::time::Duration;

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Share};

use super::modes::{interval_above_zero, refuse};
use crate::brownout::{CascadeConfig, ServiceControlConfig};
use crate::error::SentryError;

/// Part of the response time that is spent in the central queue. Chosen by the integrated error of
/// 004's figure 3 through the engine: docs/decisions/0301-gamma-since-faults-need-evidence.md.
const GAMMA: f64 = 0.95;

/// Parameters of mode `ilac` (ILAC, section III). With a target none of them has to be given.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct IlacConfig {
    /// Whose settings the keys that are left out have.
    pub preset: IlacPreset,
    /// Response time that full responses are held at when there is more load than can be served
    /// in full; the target when not given.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub setpoint: Option<Dur>,
    /// Which quantile of the response times of full responses is held at the setpoint.
    pub quantile: Quantile,
    /// Part of the response time that is spent in the central queue, 0.95, in the paper 0.9; the
    /// rest is spent in the replica. A replica is given as many requests at once as it serves
    /// within `(1 - gamma) * setpoint` each, so choose it such that this is longer than a full
    /// response takes on an idle replica.
    pub gamma: Share,
    /// Decide by the predicted response time (what a request waited plus what its replica takes
    /// at the moment), not by the waiting time alone as the paper does.
    pub predict: bool,
    /// Sampling period of all controllers.
    pub interval: Dur,
    /// Gain of the top-level controller, per sampling period: 0.01 in the paper, more with
    /// `predict`.
    pub top_gain: f64,
    /// Gain of the waiting-time controller, per sampling period; not used with `predict`.
    pub waiting_gain: f64,
    /// How far the threshold on the waiting time may lie from its setpoint, as a share of it; not
    /// used with `predict`.
    pub waiting_reach: Share,
    /// Loop gain of the service-time controllers, `c (1 - c)` for a slowest pole at `c`.
    pub service_gain: f64,
    /// How many more requests than it holds a replica may be allowed.
    pub headroom: f64,
    /// A replica is suspect when it takes this many times as long for a request as the others, at
    /// the same concurrency. It is then given one request at a time.
    pub fault_ratio: f64,
    /// A replica that holds requests and has answered none for so long gets nothing more until it
    /// does.
    pub silence: Dur,
}

impl Default for IlacConfig {
    fn default() -> Self {
        let paper = CascadeConfig::paper(1.0, 0.9);
        let service = ServiceControlConfig::default();
        Self {
            preset: IlacPreset::default(),
            setpoint: None,
            quantile: Quantile::P95,
            gamma: Share(GAMMA),
            predict: true,
            interval: Dur(Duration::from_millis(250)),
            top_gain: CascadeConfig::predictive(1.0).top_gain,
            waiting_gain: paper.waiting_gain,
            waiting_reach: Share(paper.waiting_reach),
            service_gain: service.loop_gain,
            headroom: service.headroom,
            fault_ratio: 5.0,
            silence: Dur(Duration::from_secs(5)),
        }
    }
}

/// A set of settings for mode `ilac`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum IlacPreset {
    /// Content by predicted response time.
    #[default]
    Predictive,
    /// ILAC-0.9 of the paper: content by waiting time, `gamma` 0.9, `top_gain` 0.01.
    Paper,
}

/// A quantile of response times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Quantile {
    /// The median.
    P50,
    /// Nineteen of twenty are sooner.
    #[default]
    P95,
    /// Ninety-nine of a hundred are sooner.
    P99,
}

impl Quantile {
    /// The share of response times below it.
    #[must_use]
    pub const fn share(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P95 => 0.95,
            Self::P99 => 0.99,
        }
    }
}

impl IlacConfig {
    /// The response time that full responses are held at.
    pub(crate) fn setpoint_or(&self, target: Option<Dur>) -> Option<Duration> {
        self.setpoint.or(target).map(|setpoint| setpoint.0)
    }

    /// The balancer's two loops. A key that has its built-in value is the preset's.
    pub(crate) fn cascade(&self, setpoint: Duration) -> CascadeConfig {
        let builtin = Self::default();
        let paper = CascadeConfig::paper(setpoint.as_secs_f64(), 0.9);
        let is_paper = self.preset == IlacPreset::Paper;
        let of_preset = |given: f64, builtin: f64, paper: f64| {
            if is_paper && given == builtin {
                paper
            } else {
                given
            }
        };
        CascadeConfig {
            gamma: of_preset(self.gamma.0, builtin.gamma.0, paper.gamma),
            waiting_gain: self.waiting_gain,
            waiting_reach: self.waiting_reach.0,
            top_gain: of_preset(self.top_gain, builtin.top_gain, paper.top_gain),
            quantile: self.quantile.share(),
            predict: self.predict && !is_paper,
            ..paper
        }
    }

    /// The loop of each replica.
    pub(crate) fn service(&self) -> ServiceControlConfig {
        ServiceControlConfig {
            loop_gain: self.service_gain,
            headroom: self.headroom,
            ..ServiceControlConfig::default()
        }
    }

    pub(crate) fn validate(&self, target: Option<Dur>) -> Result<(), SentryError> {
        let Some(setpoint) = self.setpoint_or(target) else {
            return Err(SentryError::Missing {
                mode: "ilac",
                what: "`target`, or `ilac.setpoint`: the response time to hold",
            });
        };
        interval_above_zero("ilac.interval", self.interval)?;
        if setpoint.is_zero() || self.silence.is_zero() {
            return Err(refuse(
                "ilac",
                "`setpoint` and `silence` must be above zero",
            ));
        }
        if self.gamma.0 >= 1.0 {
            return Err(refuse(
                "ilac",
                "`gamma` must be below 1: a replica needs some time to serve a request",
            ));
        }
        let from_zero = |value: f64| value.is_finite() && value >= 0.0;
        let gains = [self.top_gain, self.waiting_gain, self.headroom];
        if !gains.into_iter().all(from_zero) {
            return Err(refuse(
                "ilac",
                "`top_gain`, `waiting_gain` and `headroom` must be numbers from 0",
            ));
        }
        // Poles at c and 1 - c: beyond a quarter they turn complex, beyond 1 the loop is unstable.
        if !(self.service_gain > 0.0 && self.service_gain <= 1.0) {
            return Err(refuse(
                "ilac",
                "`service_gain` must be above 0 and at most 1; 0.16 is the paper's",
            ));
        }
        if !(self.fault_ratio.is_finite() && self.fault_ratio > 1.0) {
            return Err(refuse(
                "ilac",
                "`fault_ratio` must be above 1: a replica at 1 is like the others",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETPOINT: Duration = Duration::from_secs(1);

    #[test]
    fn preset_paper_is_the_papers_controller() {
        let config = IlacConfig {
            preset: IlacPreset::Paper,
            ..IlacConfig::default()
        };
        assert_eq!(config.cascade(SETPOINT), CascadeConfig::paper(1.0, 0.9));
        let own = IlacConfig {
            gamma: Share(0.7),
            top_gain: 0.02,
            ..config
        };
        let cascade = own.cascade(SETPOINT);
        assert_eq!((cascade.gamma, cascade.top_gain), (0.7, 0.02));
        assert!(IlacConfig::default().cascade(SETPOINT).predict);
    }
}
