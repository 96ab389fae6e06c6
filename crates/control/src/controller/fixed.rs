//! The static controller of 002 §2.2: one fixed command, whatever is measured.
//!
//! For an admitted rate it is `u_fix = rho_ref / x̄`, with the mean service time `x̄`. It breaks
//! as soon as the service time is not what it was when the output was computed.

use super::{Actuator, ActuatorConfig, Controller, Terms};
use crate::error::{ControlError, require_finite, require_positive};

/// Always the same command.
///
/// ```
/// use tidegate_control::controller::{ActuatorConfig, Controller, Static};
///
/// // A server with 25.5 ms of work per request, to be kept 80 % busy.
/// let rate = Static::rate_for_utilization(0.8, 0.0255)?;
/// let mut controller = Static::new(rate, ActuatorConfig::within(0.0, 100.0))?;
/// assert_eq!(controller.step(0.8, 0.3).round(), 31.0);
/// # Ok::<(), tidegate_control::ControlError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Static {
    command: f64,
    actuator: Actuator,
}

impl Static {
    /// Commands `command`, brought into the limits of `actuator`.
    pub fn new(command: f64, actuator: ActuatorConfig) -> Result<Self, ControlError> {
        require_finite("command", command)?;
        Ok(Self {
            command,
            actuator: Actuator::new(actuator)?,
        })
    }

    /// `u_fix = rho_ref / x̄` (002 §2.2): requests per second that keep one server at
    /// `utilization` when a request needs `service_time_s` seconds of it.
    pub fn rate_for_utilization(
        utilization: f64,
        service_time_s: f64,
    ) -> Result<f64, ControlError> {
        require_positive("utilization", utilization)?;
        require_positive("service_time_s", service_time_s)?;
        Ok(utilization / service_time_s)
    }

    /// Changes the command; the output goes there at the slew limit.
    pub fn set_command(&mut self, command: f64) -> Result<(), ControlError> {
        require_finite("command", command)?;
        self.command = command;
        Ok(())
    }

    /// Range and slew limit, to be changed while running.
    pub fn actuator_mut(&mut self) -> &mut Actuator {
        &mut self.actuator
    }
}

impl Controller for Static {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        match self.actuator.error(setpoint, measured) {
            Some(_) => self.actuator.apply(self.command),
            None => self.actuator.output(),
        }
    }

    fn output(&self) -> f64 {
        self.actuator.output()
    }

    /// The output starts from `applied` and returns to the command at the slew limit.
    fn track(&mut self, applied: f64) {
        self.actuator.track(applied);
    }

    fn set_max(&mut self, max: f64) {
        self.actuator.set_max(max);
    }

    fn terms(&self) -> Terms {
        Terms {
            i: self.command,
            saturated: self.actuator.saturated(),
            ..Terms::default()
        }
    }

    fn bad_samples(&self) -> u64 {
        self.actuator.bad_samples()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_to_its_command_at_the_slew_limit() {
        let config = ActuatorConfig::within(0.0, 10.0)
            .with_slew(2.0)
            .starting_at(5.0);
        let mut controller = Static::new(5.0, config).unwrap();
        assert_eq!(controller.step(0.0, 123.0), 5.0);
        controller.track(0.0);
        assert_eq!(controller.output(), 0.0);
        let back: Vec<f64> = (0..3).map(|_| controller.step(0.0, 0.0)).collect();
        assert_eq!(back, [2.0, 4.0, 5.0]);
    }

    #[test]
    fn refuses_a_command_that_is_not_finite() {
        assert!(Static::new(f64::INFINITY, ActuatorConfig::unlimited()).is_err());
        assert!(Static::rate_for_utilization(0.8, 0.0).is_err());
    }
}
