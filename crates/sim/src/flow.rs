//! The discrete-time flow model of PI-gate (002 §4, figure 4).
//!
//! Requests are a liquid, time runs in control intervals of length `h`. In interval `k`, with
//! `α(k)` requests offered and at most `σ(k)` served, both random:
//!
//! ```text
//! gate     ū(k)   = min(max(h u(k), 0), α(k))
//! monitor  ρ(k)   = min((ū(k) + x(k)) / σ(k), 1)
//! queue    x(k+1) = max(x(k) + ū(k) - σ(k), 0)
//! ```
//!
//! and the controller turns `ρ(k)` into the rate `u(k+1)` of the next interval: the monitor's delay
//! of one interval.
//!
//! It is the non-linear model that linear design leaves out, two saturations included: {K, Ti} =
//! {5, 0.185} is unstable on paper and settles here. What breaks it: intervals so short that a
//! request's service does not fit in one.

use rand_distr::{Distribution, Poisson};
use serde::Deserialize;
use tidegate_config::Dur;
use tidegate_control::Controller;

use crate::rng::{SimRng, Streams};
use crate::service::Law;
use crate::workload::{RateFunction, Spacing};

/// The plant: who comes and how much can be served.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// Control interval `h`.
    pub interval: Dur,
    /// Offered load.
    pub rate: RateFunction,
    /// Regularity of arrivals.
    #[serde(default)]
    pub spacing: Spacing,
    /// Law of service; its mean is the time one request takes.
    pub service: Law,
}

/// What happened in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowStep {
    /// End of the interval, in seconds.
    pub at: f64,
    /// The controller's rate in force, per second; may be negative.
    pub rate: f64,
    /// Requests offered.
    pub offered: f64,
    /// Requests admitted.
    pub admitted: f64,
    /// Requests that could have been served.
    pub capacity: f64,
    /// Utilization, as the monitor estimates it.
    pub utilization: f64,
    /// Requests in the system at the end.
    pub queue: f64,
}

/// The flow model while it runs.
#[derive(Debug)]
pub struct Flow<'a> {
    spec: &'a FlowSpec,
    arrivals: Counter,
    departures: Counter,
    queue: f64,
    step: u64,
}

impl<'a> Flow<'a> {
    /// An empty system.
    #[must_use]
    pub fn new(spec: &'a FlowSpec, streams: Streams) -> Self {
        Self {
            spec,
            arrivals: Counter::new(spec.spacing.law(), streams.stream("arrivals")),
            departures: Counter::new(&spec.service, streams.stream("departures")),
            queue: 0.0,
            step: 0,
        }
    }

    /// One interval with the rate `u` in force.
    pub fn step(&mut self, u: f64) -> FlowStep {
        let h = self.spec.interval.as_secs_f64();
        let mean = self.mean_offered();
        let offered = self.arrivals.count(mean);
        let capacity = self.departures.count(h / self.spec.service.mean());
        let admitted = (h * u).max(0.0).min(offered);
        let demand = admitted + self.queue;
        self.queue = (demand - capacity).max(0.0);
        self.step += 1;
        FlowStep {
            at: self.step as f64 * h,
            rate: u,
            offered,
            admitted,
            capacity,
            utilization: utilization(demand, capacity),
            queue: self.queue,
        }
    }

    fn mean_offered(&self) -> f64 {
        let h = self.spec.interval.as_secs_f64();
        let from = self.step as f64 * h;
        self.spec.rate.cumulative(from + h) - self.spec.rate.cumulative(from)
    }

    /// Closes the loop for `steps` intervals: `controller` holds the utilization at `setpoint`.
    pub fn control(
        &mut self,
        controller: &mut dyn Controller,
        setpoint: f64,
        steps: usize,
    ) -> Vec<FlowStep> {
        (0..steps)
            .map(|_| {
                let step = self.step(controller.output());
                controller.step(setpoint, step.utilization);
                step
            })
            .collect()
    }
}

/// `min(demand / capacity, 1)`; an interval in which nothing could be served is full if anything
/// wanted to be.
fn utilization(demand: f64, capacity: f64) -> f64 {
    if demand == 0.0 {
        return 0.0;
    }
    (demand / capacity).min(1.0)
}

/// How many gaps of a law fit into an interval: the traffic generators of 002 §4.
#[derive(Debug)]
struct Counter {
    law: Law,
    rng: SimRng,
    /// Part of a gap that reaches into the next interval.
    rest: f64,
}

impl Counter {
    fn new(law: &Law, rng: SimRng) -> Self {
        Self {
            law: law.normalized(),
            rng,
            rest: 0.0,
        }
    }

    /// The count in an interval in which `mean` events are expected.
    fn count(&mut self, mean: f64) -> f64 {
        if mean <= 0.0 {
            0.0
        } else if self.law.is_constant() {
            mean // a liquid: 39.2 requests are 39.2 requests
        } else if self.law.is_exponential() {
            Poisson::new(mean).map_or(mean, |law| law.sample(&mut self.rng))
        } else {
            self.renewals(mean)
        }
    }

    /// Gaps of mean 1 laid end to end until they leave the interval.
    fn renewals(&mut self, length: f64) -> f64 {
        let mut count = 0.0;
        let mut at = self.rest;
        while at < length {
            at += self.law.sample(&mut self.rng);
            count += 1.0;
        }
        self.rest = at - length;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Moments;

    fn spec(spacing: Spacing, service: Law) -> FlowSpec {
        FlowSpec {
            interval: std::time::Duration::from_secs(1).into(),
            rate: RateFunction::constant(100.0),
            spacing,
            service,
        }
    }

    fn deterministic() -> FlowSpec {
        spec(Spacing::deterministic(), Law::constant(0.0255))
    }

    #[test]
    fn the_gate_saturates_at_both_ends() {
        let spec = deterministic();
        let mut flow = Flow::new(&spec, Streams::new(1));
        assert_eq!(flow.step(-5.0).admitted, 0.0);
        assert_eq!(flow.step(1e9).admitted, 100.0);
    }

    #[test]
    fn what_is_not_served_stays() {
        let spec = deterministic();
        let mut flow = Flow::new(&spec, Streams::new(1));
        let sigma = 1.0 / 0.0255;
        let step = flow.step(60.0);
        assert_eq!(step.utilization, 1.0);
        assert!((step.queue - (60.0 - sigma)).abs() < 1e-9);
        let step = flow.step(0.0);
        assert!((step.utilization - (60.0 - sigma) / sigma).abs() < 1e-9);
        assert_eq!(step.queue, 0.0);
        assert_eq!(flow.step(0.0).utilization, 0.0);
    }

    /// 002 §4: counts of an exponential law are Poisson, variance and mean alike; of an Erlang law
    /// the variance is the mean over the stages.
    #[test]
    fn counts_have_the_variance_of_their_law() {
        #[derive(serde::Deserialize)]
        struct File {
            law: Law,
        }
        let erlang = "law = { law = 'erlang', mean = '1s', stages = 4 }";
        let erlang = tidegate_config::parse::<File>("t", erlang).unwrap().law;
        for (law, variation) in [(Law::exponential(3.0), 1.0), (erlang, 0.25)] {
            let mut counter = Counter::new(&law, Streams::new(2).stream("count"));
            let counts: Moments = (0..20_000).map(|_| counter.count(40.0)).collect();
            assert!((counts.mean() - 40.0).abs() < 0.25, "{}", counts.mean());
            let ratio = counts.variance() / counts.mean();
            assert!(
                (ratio - variation).abs() < 0.06 * variation + 0.01,
                "{ratio}"
            );
        }
    }

    /// A controller that knows the answer holds the utilization.
    #[derive(Debug)]
    struct Fixed(f64);

    impl Controller for Fixed {
        fn step(&mut self, _: f64, _: f64) -> f64 {
            self.0
        }
        fn output(&self) -> f64 {
            self.0
        }
        fn track(&mut self, _: f64) {}
        fn set_max(&mut self, _: f64) {}
        fn terms(&self) -> tidegate_control::controller::Terms {
            Default::default()
        }
        fn bad_samples(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_loop_hands_the_controllers_output_to_the_gate() {
        let spec = deterministic();
        let steps = Flow::new(&spec, Streams::new(1)).control(&mut Fixed(0.8 / 0.0255), 0.8, 50);
        assert_eq!(steps.len(), 50);
        assert!(
            steps
                .iter()
                .all(|step| (step.utilization - 0.8).abs() < 1e-9)
        );
        assert_eq!(steps[49].at, 50.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let spec = spec(Spacing::poisson(), Law::exponential(0.0255));
        let run = |seed| Flow::new(&spec, Streams::new(seed)).control(&mut Fixed(30.0), 0.8, 20);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
