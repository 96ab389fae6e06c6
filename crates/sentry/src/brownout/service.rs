//! ILAC at the replica: the service-time controller (paper 004, section III-B).
//!
//! A replica that serves `u` requests at once takes about `K u` for each; `K` is its speed, unknown
//! and changing. The controller is an [`AdaptiveIntegral`] (eq. 9 and 11): it estimates `K` and
//! integrates with a gain that is the inverse of the estimate, so that the loop has the same poles
//! at every speed. An interval without a full response repeats the last error.
//!
//! `u_a` is `u` rounded up (eq. after 8), at least 1: a replica that asks for nothing would never
//! report again. Only full responses are samples.
//!
//! The balancer is told by *demand*: each completed request asks for `1 + (u_a_new - u_a)` others
//! ([`ServiceControl::on_completion`]). Anti-windup: `u` stays between 0 and five more than the
//! replica holds at the moment, because asking for more than there is to be had is no information.

use tidegate_control::ControlError;
use tidegate_control::controller::{
    ActuatorConfig, AdaptiveIntegral, AdaptiveIntegralConfig, Controller, Integration,
};

use super::TickSamples;

/// Parameters of the service-time controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServiceControlConfig {
    /// Loop gain `c (1 - c)` with the slowest pole at `c` (eq. 10): 0.16 for c = 0.8.
    pub loop_gain: f64,
    /// Weight of the newest sample in the estimate of `K`.
    pub estimate_weight: f64,
    /// First guess of `K`, seconds per concurrent request.
    pub initial_gain_s: f64,
    /// How far `u` may run ahead of the requests that are really there.
    pub headroom: f64,
}

impl ServiceControlConfig {
    fn integral(&self) -> Result<AdaptiveIntegral, ControlError> {
        AdaptiveIntegral::new(AdaptiveIntegralConfig {
            // Zero leaves the concurrency where it is: experiments switch the loop off so.
            gain: self.loop_gain.max(f64::MIN_POSITIVE),
            plant_gain: self.initial_gain_s,
            weight: self.estimate_weight,
            integration: Integration::Forward,
            actuator: ActuatorConfig::within(0.0, f64::MAX),
        })
    }
}

impl Default for ServiceControlConfig {
    fn default() -> Self {
        Self {
            loop_gain: 0.16,
            estimate_weight: 0.5,
            initial_gain_s: 0.05,
            headroom: 5.0,
        }
    }
}

/// The replica's side of ILAC; the proxy runs one on behalf of a replica that has none.
#[derive(Debug, Clone)]
pub struct ServiceControl {
    headroom: f64,
    served: TickSamples,
    setpoint_s: f64,
    integral: AdaptiveIntegral,
    /// What has been asked for by demands so far.
    asked: i64,
}

impl ServiceControl {
    /// Starts with one request at a time. Parameters that cannot be (a weight above one, a first
    /// estimate of zero) are replaced by the paper's.
    #[must_use]
    pub fn new(config: ServiceControlConfig) -> Self {
        let paper = ServiceControlConfig::default();
        let integral = config.integral().or_else(|_| paper.integral());
        Self {
            headroom: config.headroom,
            served: TickSamples::default(),
            setpoint_s: 0.0,
            integral: integral.expect("the paper's parameters make a loop"),
            asked: 1,
        }
    }

    /// The setpoint that came with a request.
    pub fn set_setpoint(&mut self, seconds: f64) {
        if seconds.is_finite() && seconds >= 0.0 {
            self.setpoint_s = seconds;
        }
    }

    /// A request was completed after `service_s`; returns the demand to send back with it.
    pub fn on_completion(&mut self, service_s: f64, full: bool) -> i64 {
        if full {
            self.served.push(service_s);
        }
        let target = self.concurrency();
        let demand = 1 + target - self.asked;
        self.asked = target;
        demand
    }

    /// Ends a sampling period; `present` requests are at the replica now.
    pub fn tick(&mut self, present: usize) {
        let mean_s = self.served.mean();
        self.served.clear();
        self.tick_measured(mean_s, present);
    }

    /// The same for a caller that measured the mean service time of full responses elsewhere.
    pub fn tick_measured(&mut self, mean_s: Option<f64>, present: usize) {
        self.integral.set_max(self.headroom + present as f64);
        match mean_s {
            Some(mean_s) => {
                let asked = self.asked as f64;
                self.integral.step_applied(self.setpoint_s, mean_s, asked);
            }
            None => {
                self.integral.step_unmeasured();
            }
        }
    }

    /// What the replica may hold at once from now on, by whatever decision: what it takes
    /// for one is measured against this.
    pub fn grant(&mut self, concurrency: u32) {
        self.asked = i64::from(concurrency.max(1));
    }

    /// Goes on from a concurrency that was found elsewhere, without a jump.
    pub fn track(&mut self, concurrency: u32) {
        self.grant(concurrency);
        self.integral.set_max(f64::MAX);
        self.integral
            .track(f64::from(concurrency.saturating_sub(1)));
    }

    /// `u_a`: how many requests the replica should hold at once.
    #[must_use]
    pub fn concurrency(&self) -> i64 {
        (self.output().floor() as i64).saturating_add(1)
    }

    /// `u`, before it is rounded.
    #[must_use]
    pub fn output(&self) -> f64 {
        self.integral.output()
    }

    /// The estimate of `K`: seconds per concurrent request. A replica whose estimate leaves the
    /// pack is a faulty one.
    #[must_use]
    pub fn gain_s(&self) -> f64 {
        self.integral.plant_gain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica that takes `gain_s` seconds per request it holds, whatever their number.
    fn settle(control: &mut ServiceControl, gain_s: f64, ticks: usize) -> f64 {
        for _ in 0..ticks {
            let held = control.concurrency();
            for _ in 0..20 {
                control.on_completion(gain_s * held as f64, true);
            }
            control.tick(held as usize);
        }
        gain_s * control.concurrency() as f64
    }

    #[test]
    fn settles_at_the_setpoint_at_any_speed() {
        for gain_s in [0.002, 0.02, 0.1] {
            let mut control = ServiceControl::new(ServiceControlConfig::default());
            control.set_setpoint(0.5);
            let service_s = settle(&mut control, gain_s, 200);
            assert!((service_s - 0.5).abs() <= gain_s, "{gain_s}: {service_s}");
        }
    }

    #[test]
    fn follows_a_replica_that_becomes_four_times_slower_and_recovers() {
        let mut control = ServiceControl::new(ServiceControlConfig::default());
        control.set_setpoint(0.5);
        settle(&mut control, 0.01, 200);
        assert!((settle(&mut control, 0.04, 60) - 0.5).abs() <= 0.04);
        assert!((settle(&mut control, 0.01, 200) - 0.5).abs() <= 0.01);
    }

    #[test]
    fn demands_add_up_to_the_concurrency_asked_for() {
        let mut control = ServiceControl::new(ServiceControlConfig::default());
        control.set_setpoint(0.5);
        let mut held = 1; // a replica that joins is given one request
        for _ in 0..50 {
            for _ in 0..5 {
                held += control.on_completion(0.01 * held as f64, true) - 1;
            }
            control.tick(held as usize);
        }
        held += control.on_completion(0.01, true) - 1;
        assert_eq!(held, control.concurrency());
    }

    #[test]
    fn broken_samples_change_nothing() {
        let mut control = ServiceControl::new(ServiceControlConfig::default());
        control.set_setpoint(f64::NAN);
        control.set_setpoint(0.5);
        settle(&mut control, 0.01, 100);
        let before = (control.concurrency(), control.gain_s());
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            control.on_completion(bad, true);
        }
        control.tick(usize::try_from(before.0).unwrap());
        assert!((control.concurrency() - before.0).abs() <= 1);
        assert_eq!(control.gain_s(), before.1);
    }

    #[test]
    fn idle_replica_does_not_wind_up() {
        let mut control = ServiceControl::new(ServiceControlConfig::default());
        control.set_setpoint(0.5);
        control.on_completion(0.001, true);
        for _ in 0..1000 {
            control.tick(0);
        }
        assert!(control.concurrency() <= 6, "{}", control.concurrency());
    }
}
