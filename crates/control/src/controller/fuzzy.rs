//! A fuzzy PI controller: rules on the error and its change give the change of the output.
//!
//! 001 names fuzzy control as future work and cites Chan and Chu's fuzzy PI controller for web
//! servers. Error and change of error are scaled to [-1, 1] and described by seven triangular
//! sets, from "negative large" to "positive large" (levels -3 to 3). The rule table is Mac
//! Vicar-Whelan's: the consequent's level is the sum of the two levels, kept within ±3. With the
//! product for "and" and the weighted mean to defuzzify,
//!
//! ```text
//! Δu = step Σ_i Σ_j w_i(e/E) w_j(Δe/C) out(clamp(i + j)),        out(l) = sign(l) (l/3)²
//! ```
//!
//! With evenly spaced consequents this would be a linear PI controller up to its limits. Those
//! here grow with the square of the level: the gain at the setpoint is a third of what the same
//! table gives linearly and five times smaller than at full error, so that noise is left alone and
//! a real upset is met with force.
//!
//! What breaks it: scales chosen without looking at the plant. The output never moves by more than
//! `step`, so a plant that needs more per interval is followed late.

use super::actuator::finite;
use super::{Actuator, ActuatorConfig, Controller, Terms};
use crate::error::{ControlError, require_nonzero, require_positive};

/// Levels on each side of zero.
const LEVELS: i32 = 3;

/// What counts as large for a [`FuzzyPi`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FuzzyPiScales {
    /// `E`, the error from which on the answer grows no further.
    pub error: f64,
    /// `C`, the same for the change of the error between two steps.
    pub change: f64,
    /// Largest change of the output per step; negative for reverse action.
    pub step: f64,
}

impl FuzzyPiScales {
    fn check(&self) -> Result<(), ControlError> {
        require_positive("error", self.error)?;
        require_positive("change", self.change)?;
        require_nonzero("step", self.step)
    }
}

/// Parameters of [`FuzzyPi`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FuzzyPiConfig {
    /// What counts as large.
    pub scales: FuzzyPiScales,
    /// Range, slew limit and start of the output.
    pub actuator: ActuatorConfig,
}

/// PI control by rules, gentle near the setpoint and firm far from it.
///
/// ```
/// use tidegate_control::controller::{
///     ActuatorConfig, Controller, FuzzyPi, FuzzyPiConfig, FuzzyPiScales,
/// };
///
/// let mut controller = FuzzyPi::new(FuzzyPiConfig {
///     scales: FuzzyPiScales { error: 1.0, change: 0.5, step: 10.0 },
///     actuator: ActuatorConfig::within(0.0, 100.0),
/// })?;
/// let mut delay_s = 0.0;
/// for _ in 0..200 {
///     delay_s = 0.7 * delay_s + 0.3 * 0.02 * controller.step(1.0, delay_s);
/// }
/// assert!((delay_s - 1.0).abs() < 0.01);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct FuzzyPi {
    scales: FuzzyPiScales,
    previous_error: Option<f64>,
    wanted: f64,
    actuator: Actuator,
}

impl FuzzyPi {
    /// Checks `config` and builds the controller.
    pub fn new(config: FuzzyPiConfig) -> Result<Self, ControlError> {
        config.scales.check()?;
        Ok(Self {
            scales: config.scales,
            previous_error: None,
            wanted: config.actuator.initial,
            actuator: Actuator::new(config.actuator)?,
        })
    }

    /// Changes the scales; the output stays where it is.
    pub fn set_scales(&mut self, scales: FuzzyPiScales) -> Result<(), ControlError> {
        scales.check()?;
        self.scales = scales;
        Ok(())
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        &mut self.actuator
    }

    fn update(&mut self, error: f64) {
        let previous = self.previous_error.replace(error).unwrap_or(error);
        let change = infer(
            error / self.scales.error,
            (error - previous) / self.scales.change,
        );
        self.wanted = finite(self.actuator.output() + self.scales.step * change);
        self.actuator.apply(self.wanted);
    }
}

impl Controller for FuzzyPi {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        match self.actuator.error(setpoint, measured) {
            Some(error) => self.update(error),
            // A change across a gap is not a change over one interval.
            None => self.previous_error = None,
        }
        self.actuator.output()
    }

    fn output(&self) -> f64 {
        self.actuator.output()
    }

    fn track(&mut self, applied: f64) {
        self.actuator.track(applied);
    }

    fn set_max(&mut self, max: f64) {
        self.actuator.set_max(max);
    }

    fn terms(&self) -> Terms {
        Terms {
            i: self.wanted,
            saturated: self.actuator.saturated(),
            ..Terms::default()
        }
    }

    fn bad_samples(&self) -> u64 {
        self.actuator.bad_samples()
    }
}

/// The rule base: scaled error and change of error to a change of output in [-1, 1].
fn infer(error: f64, change: f64) -> f64 {
    let change_sets = memberships(change);
    memberships(error)
        .iter()
        .flat_map(|&(i, wi)| change_sets.map(|(j, wj)| wi * wj * consequent(i + j)))
        .sum()
}

/// The two neighbouring sets that `value` belongs to, with the degree of each; the degrees sum to
/// 1.
fn memberships(value: f64) -> [(i32, f64); 2] {
    let levels = f64::from(LEVELS);
    let scaled = (value * levels).clamp(-levels, levels);
    let below = scaled.floor().min(levels - 1.0);
    let above_degree = scaled - below;
    let level = below as i32;
    [(level, 1.0 - above_degree), (level + 1, above_degree)]
}

fn consequent(level: i32) -> f64 {
    let share = f64::from(level.clamp(-LEVELS, LEVELS)) / f64::from(LEVELS);
    share * share.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_answer_as_the_table_says() {
        assert_eq!(infer(0.0, 0.0), 0.0);
        assert!((infer(1.0, 0.0) - 1.0).abs() < 1e-12);
        assert!((infer(9.0, 9.0) - 1.0).abs() < 1e-12);
        // Error positive large, falling fast: wait.
        assert!(infer(1.0, -1.0).abs() < 1e-12);
        // Positive small and zero: level 1.
        assert!((infer(1.0 / 3.0, 0.0) - 1.0 / 9.0).abs() < 1e-12);
    }

    #[test]
    fn rules_are_odd_and_monotone() {
        let grid: Vec<f64> = (-12..=12).map(|n| f64::from(n) / 10.0).collect();
        for &change in &grid {
            for pair in grid.windows(2) {
                assert!(infer(pair[0], change) <= infer(pair[1], change) + 1e-12);
                assert!((infer(pair[0], change) + infer(-pair[0], -change)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn gain_is_five_times_smaller_at_the_setpoint_than_at_full_error() {
        let at = |error: f64| (infer(error + 0.01, 0.0) - infer(error, 0.0)) / 0.01;
        assert!((at(0.9) / at(0.0) - 5.0).abs() < 1e-6);
    }

    #[test]
    fn answer_needs_two_good_samples_to_see_a_change() {
        let mut controller = FuzzyPi::new(FuzzyPiConfig {
            scales: FuzzyPiScales {
                error: 1.0,
                change: 0.1,
                step: 1.0,
            },
            actuator: ActuatorConfig::within(-10.0, 10.0),
        })
        .unwrap();
        assert_eq!(controller.step(0.0, 0.0), 0.0);
        controller.step(0.0, f64::NAN);
        let alone = controller.step(0.0, -1.0 / 3.0);
        assert!((alone - 1.0 / 9.0).abs() < 1e-12, "{alone}");
    }

    #[test]
    fn refuses_scales_that_are_not_positive() {
        let scales = FuzzyPiScales {
            error: 0.0,
            change: 1.0,
            step: 1.0,
        };
        assert!(scales.check().is_err());
    }
}
