//! The integral term that PID and the integral controllers share, with its anti-windup.
//!
//! While a limit holds the output back, an integral that keeps adding up has to be unwound
//! again before the output moves: the controller is deaf for as long as it was saturated. Two
//! usual cures are worse than they look for the noisy measurements of servers. Full
//! back-calculation (`i = applied - p - d`) lets every noise spike of `p` pull the output off
//! its limit; freezing the integral leaves it wherever it was when the limit struck. Here the
//! integral is cut to the smallest value that still asks for what was applied once the other
//! terms stop asking for more:
//!
//! ```text
//! limited from above:  i <- min(i, applied - min(p + d, 0))
//! limited from below:  i <- max(i, applied - max(p + d, 0))
//! not limited:         i is untouched, so the loop is exactly the linear one
//! ```
//!
//! Hence in saturation `i` never lies beyond the limit, and when the error changes sign the
//! other terms take the output off it in that very step (with [`Integration::Forward`] one step
//! later, as that form answers an error one step later anyway). The slew limit counts
//! as a limit, so the integral never runs ahead of an output that is still on its way.

use super::actuator::{Actuator, finite};

/// Up to which sample the integral sums the errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Integration {
    /// Up to and including this step's error: answers at once, the usual choice.
    #[default]
    Backward,
    /// Up to the previous step's error, `i(k) = Σ_{j<k} e(j)`, that is `1/(z-1)`: the form for
    /// which 002 (§5) and 004 (eq. 4) place their poles.
    Forward,
}

/// An integral (or, in a controller without integral action, a bias).
#[derive(Debug, Clone)]
pub(crate) struct Integrator {
    value: f64,
    rule: Integration,
}

impl Integrator {
    pub(crate) fn new(initial: f64, rule: Integration) -> Self {
        Self {
            value: initial,
            rule,
        }
    }

    /// Puts the integral where `i + rest` is `applied`.
    pub(crate) fn settle_at(&mut self, applied: f64, rest: f64) {
        self.value = finite(applied - rest);
    }

    /// Moves the integral by `amount`, for a change of gains that must not move the output.
    pub(crate) fn shift(&mut self, amount: f64) {
        self.value = finite(self.value + amount);
    }

    /// One step: adds `increment`, applies `i + rest`, unwinds. Returns the `i` it used.
    pub(crate) fn drive(&mut self, actuator: &mut Actuator, increment: f64, rest: f64) -> f64 {
        let (now, later) = match self.rule {
            Integration::Backward => (finite(increment), 0.0),
            Integration::Forward => (0.0, finite(increment)),
        };
        let used = finite(self.value + now);
        let applied = actuator.apply(finite(used + rest));
        self.value = finite(unwound(used, rest, applied) + later);
        used
    }

    /// One step of a controller without integral action: the bias stays what it is.
    pub(crate) fn bias(&self, actuator: &mut Actuator, rest: f64) -> f64 {
        actuator.apply(finite(self.value + rest));
        self.value
    }
}

/// The anti-windup rule of the module header; `applied` is what became of `integral + rest`.
fn unwound(integral: f64, rest: f64, applied: f64) -> f64 {
    let wanted = finite(integral + rest);
    if wanted > applied {
        integral.min(applied - rest.min(0.0))
    } else if wanted < applied {
        integral.max(applied - rest.max(0.0))
    } else {
        integral
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::ActuatorConfig;

    #[test]
    fn saturation_cuts_the_integral_to_the_limit_but_noise_in_the_rest_does_not_move_it() {
        let mut actuator = Actuator::new(ActuatorConfig::within(0.0, 10.0)).unwrap();
        let mut integrator = Integrator::new(0.0, Integration::Backward);
        for _ in 0..100 {
            integrator.drive(&mut actuator, 1.0, 5.0);
        }
        // `rest` drops from 5 to 0.1 and still asks for more: the output stays at the limit.
        integrator.drive(&mut actuator, 0.0, 0.1);
        assert_eq!(actuator.output(), 10.0);
        // It changes sign: the output follows in that step.
        integrator.drive(&mut actuator, 0.0, -0.1);
        assert_eq!(actuator.output(), 9.9);
    }

    #[test]
    fn negative_rest_at_the_upper_limit_is_back_calculated() {
        assert_eq!(unwound(15.0, -1.0, 12.0), 13.0);
        assert_eq!(unwound(-15.0, 1.0, -12.0), -13.0);
    }

    #[test]
    fn without_a_limit_nothing_is_cut() {
        assert_eq!(unwound(15.0, -10.0, 5.0), 15.0);
    }

    #[test]
    fn forward_is_one_step_behind_backward() {
        let run = |rule| {
            let mut actuator = Actuator::new(ActuatorConfig::unlimited()).unwrap();
            let mut integrator = Integrator::new(0.0, rule);
            [1.0, 2.0, 3.0].map(|e| integrator.drive(&mut actuator, e, 0.0))
        };
        assert_eq!(run(Integration::Backward), [1.0, 3.0, 6.0]);
        assert_eq!(run(Integration::Forward), [0.0, 1.0, 3.0]);
    }
}
