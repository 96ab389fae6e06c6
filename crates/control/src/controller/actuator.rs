//! What stands between a controller's wish and the gate: range, slew limit, bad samples.
//!
//! Every controller owns one [`Actuator`] and sends each output through it, so the promises
//! about limits hold by construction and in one place. The outputs that one step can reach are
//!
//! ```text
//! [min, max]  ∩  [u(k-1) - slew, u(k-1) + slew]
//! ```
//!
//! which is never empty, because `u(k-1)` lies in the range. The slew limit is what 001 §5.4
//! needs ("limiting the maximum difference between two consecutive rate control parameters").

use crate::error::{ControlError, require_finite, require_positive};

/// The range of a command, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Smallest command.
    pub min: f64,
    /// Largest command.
    pub max: f64,
}

impl Limits {
    /// Everything that is finite: for a controller whose gate does the limiting, as in 002.
    pub const UNLIMITED: Self = Self {
        min: f64::MIN,
        max: f64::MAX,
    };

    /// The value within the range that is nearest to `value`; NaN gives `min`.
    #[must_use]
    pub fn clamp(self, value: f64) -> f64 {
        value.max(self.min).min(self.max)
    }

    /// Whether `value` lies within the range.
    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        self.min <= value && value <= self.max
    }

    fn checked(self) -> Result<Self, ControlError> {
        let Self { min, max } = self;
        if min.is_finite() && max.is_finite() && min <= max {
            Ok(self)
        } else {
            Err(ControlError::Limits { min, max })
        }
    }
}

/// What a controller may ask for, and where it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActuatorConfig {
    /// Range of the output.
    pub limits: Limits,
    /// Largest change between two steps; `None` for no bound.
    pub slew: Option<f64>,
    /// Output before the first step, and the bias that a controller's terms add to.
    pub initial: f64,
}

impl ActuatorConfig {
    /// Outputs from `min` to `max`, no slew limit, starting at zero or the limit next to it.
    #[must_use]
    pub fn within(min: f64, max: f64) -> Self {
        let limits = Limits { min, max };
        Self {
            limits,
            slew: None,
            initial: limits.clamp(0.0),
        }
    }

    /// No limits at all, starting at zero.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::within(Limits::UNLIMITED.min, Limits::UNLIMITED.max)
    }

    /// The same, starting at `initial`.
    #[must_use]
    pub fn starting_at(self, initial: f64) -> Self {
        Self { initial, ..self }
    }

    /// The same, moving by at most `slew` per step.
    #[must_use]
    pub fn with_slew(self, slew: f64) -> Self {
        Self {
            slew: Some(slew),
            ..self
        }
    }
}

/// Holds the command in force and lets a new one through as far as limits allow.
///
/// A controller hands out its actuator so that range and slew can change while it runs (001
/// derives the slew limit from the estimated number of clients); the rest is the controller's.
#[derive(Debug, Clone)]
pub struct Actuator {
    limits: Limits,
    slew: Option<f64>,
    output: f64,
    saturated: bool,
    bad_samples: u64,
}

impl Actuator {
    pub(crate) fn new(config: ActuatorConfig) -> Result<Self, ControlError> {
        let limits = config.limits.checked()?;
        if let Some(slew) = config.slew {
            require_positive("slew", slew)?;
        }
        require_finite("initial", config.initial)?;
        crate::error::require(
            limits.contains(config.initial),
            "initial",
            "within the limits",
            config.initial,
        )?;
        Ok(Self {
            limits,
            slew: config.slew,
            output: config.initial,
            saturated: false,
            bad_samples: 0,
        })
    }

    /// The range in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The slew limit in force.
    #[must_use]
    pub fn slew(&self) -> Option<f64> {
        self.slew
    }

    /// Changes the range. An output outside the new range moves into it at once: the range
    /// goes before the slew limit.
    pub fn set_limits(&mut self, limits: Limits) -> Result<(), ControlError> {
        self.limits = limits.checked()?;
        self.output = self.limits.clamp(self.output);
        Ok(())
    }

    /// Changes the upper end of the range alone; below the lower end it is the lower end, and
    /// what is not finite changes nothing.
    pub fn set_max(&mut self, max: f64) {
        if max.is_finite() {
            self.limits.max = max.max(self.limits.min);
            self.output = self.limits.clamp(self.output);
        }
    }

    /// Changes the largest change per step.
    pub fn set_slew(&mut self, slew: Option<f64>) -> Result<(), ControlError> {
        if let Some(slew) = slew {
            require_positive("slew", slew)?;
        }
        self.slew = slew;
        Ok(())
    }

    pub(crate) fn output(&self) -> f64 {
        self.output
    }

    pub(crate) fn saturated(&self) -> bool {
        self.saturated
    }

    pub(crate) fn bad_samples(&self) -> u64 {
        self.bad_samples
    }

    /// `setpoint - measured`, or nothing (and one more bad sample) when either is not finite.
    pub(crate) fn error(&mut self, setpoint: f64, measured: f64) -> Option<f64> {
        self.accept(&[setpoint, measured])
            .then(|| finite(setpoint - measured))
    }

    /// Whether all of `samples` are finite; counts one bad sample when not.
    pub(crate) fn accept(&mut self, samples: &[f64]) -> bool {
        let good = samples.iter().all(|sample| sample.is_finite());
        self.bad_samples += u64::from(!good);
        good
    }

    /// Moves the output towards `wanted` as far as range and slew allow.
    pub(crate) fn apply(&mut self, wanted: f64) -> f64 {
        debug_assert!(!wanted.is_nan(), "terms are kept finite, so is their sum");
        self.output = self.reach().clamp(wanted);
        self.saturated = self.output != wanted;
        self.output
    }

    /// Takes over what was really applied, brought into the range; nothing when it is not
    /// finite (counted), or when it is the output already.
    pub(crate) fn track(&mut self, applied: f64) -> Option<f64> {
        if !self.accept(&[applied]) {
            return None;
        }
        let applied = self.limits.clamp(applied);
        let news = applied != self.output;
        self.output = applied;
        news.then_some(applied)
    }

    fn reach(&self) -> Limits {
        let Some(slew) = self.slew else {
            return self.limits;
        };
        Limits {
            min: self.limits.clamp(self.output - slew),
            max: self.limits.clamp(self.output + slew),
        }
    }
}

/// The finite number nearest to `value`: products of huge samples and gains overflow, and an
/// infinite term would turn into NaN as soon as two of them meet. NaN itself counts as nothing.
pub(crate) fn finite(value: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(f64::MIN, f64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actuator(slew: f64) -> Actuator {
        Actuator::new(ActuatorConfig::within(0.0, 10.0).with_slew(slew)).unwrap()
    }

    #[test]
    fn moves_by_the_slew_limit_and_stays_in_range() {
        let mut actuator = actuator(4.0);
        let outputs: Vec<f64> = (0..4).map(|_| actuator.apply(1e9)).collect();
        assert_eq!(outputs, [4.0, 8.0, 10.0, 10.0]);
        assert!(actuator.saturated());
        assert_eq!(actuator.apply(9.0), 9.0);
        assert!(!actuator.saturated());
    }

    #[test]
    fn infinite_wishes_stop_at_the_limits() {
        let mut actuator = Actuator::new(ActuatorConfig::unlimited()).unwrap();
        assert_eq!(actuator.apply(f64::INFINITY), f64::MAX);
        assert_eq!(actuator.apply(f64::NEG_INFINITY), f64::MIN);
    }

    #[test]
    fn narrower_range_takes_effect_at_once() {
        let mut actuator = actuator(1.0);
        actuator.track(9.0);
        let narrow = Limits { min: 0.0, max: 3.0 };
        actuator.set_limits(narrow).unwrap();
        assert_eq!(actuator.output(), 3.0);
        assert_eq!(actuator.apply(9.0), 3.0);
    }

    #[test]
    fn tracking_reports_only_news() {
        let mut actuator = actuator(1.0);
        assert_eq!(actuator.track(5.0), Some(5.0));
        assert_eq!(actuator.track(5.0), None);
        assert_eq!(actuator.track(50.0), Some(10.0));
        assert_eq!(actuator.track(f64::NAN), None);
        assert_eq!(actuator.bad_samples(), 1);
    }

    #[test]
    fn refuses_what_has_no_meaning() {
        let build = |config| Actuator::new(config).map(drop).unwrap_err().to_string();
        assert_eq!(
            build(ActuatorConfig::within(2.0, 1.0)),
            "limits need min <= max, both finite; got min = 2, max = 1"
        );
        assert_eq!(
            build(ActuatorConfig::within(0.0, 1.0).with_slew(0.0)),
            "slew must be finite and above zero, got 0"
        );
        assert_eq!(
            build(ActuatorConfig::within(0.0, 1.0).starting_at(3.0)),
            "initial must be within the limits, got 3"
        );
        assert!(Actuator::new(ActuatorConfig::within(f64::NAN, 1.0)).is_err());
    }
}
