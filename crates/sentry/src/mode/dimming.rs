//! Degrade before refusing: optional content under control, and when that is not enough.
//!
//! The [`Cascade`] (004) holds the response time of full responses at a setpoint `r` by leaving
//! optional content out for requests that waited too long. That has an end: once every request is
//! served reduced and the queue still grows, only shedding helps. Both act on one queue, so they
//! are kept apart on it: content is left out at short waits, requests are shed at long ones.
//!
//! The distance has to grow with the noise of the queue. Full responses that are a share `φ` of all
//! leave a slack of `φ S_o / S_m` in reduced capacity, whatever the threshold (conservation of
//! work), and the queue returns to the threshold the more slowly the less of it there is. So the
//! limit on the response time of full responses is lowered from the cascade's `r_c` as `φ`
//! vanishes:
//!
//! ```text
//! limit = floor + (r_c - floor) h      h = φ from 0.03 to 0.1, as 0 to 1      floor = S_full + r/4
//! ```
//!
//! | state | content | requests are shed | until |
//! | --- | --- | --- | --- |
//! | dimming | up to the limit | no | for half a second nothing was dispatched in full, waits are beyond the limit and `r/2`, and more arrives than is served reduced |
//! | refusing | up to the floor | by forecast, for waits beyond about `r/2` | for a second nothing was shed, waits are near the limit, and no more arrives than is served reduced |
//!
//! A single threshold at `r_c` with an exclusive change of state oscillates around the reduced
//! capacity: a queue of `r_c` is shed in one stroke, content comes back and fills it again.
//!
//! When the load steps up, the queue is long before its head is old: content is also left out while
//! more wait than the replicas serve reduced within the limit. While refusing, the cascade stands
//! still.
//!
//! What breaks it: replicas that ignore the flag. Then dimming changes nothing, and admission takes
//! over half a second later than it could.

use tidegate_control::controller::Terms;

use super::Step;
use super::auto::drain::DrainMeter;
use crate::brownout::{Cascade, CascadeConfig, CascadeSample};
use crate::counts::Counts;
use crate::event::Event;
use crate::gate::{ContentRule, Dispatched};
use crate::monitor::Histogram;
use crate::plan::Plan;
use crate::replica::Replica;
use crate::status::BrownoutStatus;

/// Waits beyond the threshold by this factor are beyond what dimming does by itself: around it
/// they scatter by a few per cent. Chosen: experiments/brownout/handover.toml.
const BEYOND: f64 = 1.15;

/// Share of the setpoint that waits exceed when dimming is exhausted, however low its limit is.
const EXHAUSTED_OF_SETPOINT: f64 = 0.5;

/// Share of the setpoint that is left for waiting where hardly anything is served in full.
/// Chosen with the next three: experiments/brownout/handover-grid.toml.
const FLOOR_OF_SETPOINT: f64 = 0.25;

/// Shares of full responses at which the limit is the floor, and the cascade's.
const FULL_SHARE_SCARCE: f64 = 0.03;
const FULL_SHARE_AMPLE: f64 = 0.1;

/// Time constant of the share of full responses, in setpoints and at least in seconds. A limit that
/// is raised by a setpoint fills the queue with full responses; were that a large part of what is
/// looked back on, the limit would rise on account of its own rise.
const FULL_SHARE_SETPOINTS: f64 = 8.0;
const FULL_SHARE_SECONDS_MIN: f64 = 8.0;

/// Time constant of the offered rate, in seconds: 75 requests/s are known to 3 % then.
const OFFERED_SECONDS: f64 = 8.0;

/// Share of the queue's bound up to which content is served, where the capacity is unknown.
const QUEUE_OF_BOUND: f64 = 0.5;

/// Largest share of the requests in service that may be full responses for what is served to show
/// what could be served without them.
const FULL_INSIDE_MAX: f64 = 0.2;

/// How long dimming must have been without effect before requests are shed.
const EXHAUSTED_SECONDS: f64 = 0.5;

/// How long nothing must have been shed before dimming is enough again.
const QUIET_SECONDS: f64 = 1.0;

/// Degrade before refusing: optional content under control, and when that is not enough.
#[derive(Debug)]
pub(crate) struct Dimming {
    cascade: Cascade,
    charge: Charge,
    scope: Scope,
    min_samples: f64,
    /// Full responses since the quantile was last taken.
    responses: Histogram,
    measured_s: f64,
    full_share: Option<f64>,
    /// Requests dispatched in full, and all of them, over seconds: slack in reduced capacity.
    full_lately: f64,
    dispatched_lately: f64,
    /// What is served per second while nothing is served in full.
    reduced: DrainMeter,
    /// Requests that arrive per second, over seconds.
    offered_rate: Option<f64>,
    /// Share of full responses among the requests in service, at the end of the last period.
    full_inside: f64,
    /// For how long nothing was dispatched in full.
    reduced_s: f64,
    /// What a full response takes at present.
    expected_full_s: f64,
    threshold_s: f64,
    queued_max: u32,
}

/// Whose replicas are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them, with the service time to aim at.
    Everywhere,
    /// Those that have said that they can leave something out.
    WhereUnderstood,
}

impl Dimming {
    pub(crate) fn new(config: CascadeConfig, scope: Scope, min_samples: u32) -> Self {
        let mut cascade = Cascade::new(config);
        // The first period has no samples; its setpoints are those of the configuration.
        cascade.tick(CascadeSample::default());
        Self {
            cascade,
            charge: Charge::default(),
            scope,
            min_samples: f64::from(min_samples.max(1)),
            responses: Histogram::default(),
            measured_s: f64::NAN,
            full_share: None,
            full_lately: 0.0,
            dispatched_lately: 0.0,
            reduced: DrainMeter::default(),
            offered_rate: None,
            full_inside: 0.0,
            reduced_s: 0.0,
            expected_full_s: 0.0,
            threshold_s: config.setpoint_s,
            queued_max: u32::MAX,
        }
    }

    /// Goes on with other parameters.
    pub(crate) fn set_config(&mut self, config: CascadeConfig) {
        self.cascade.set_config(config);
    }

    pub(crate) fn setpoint_s(&self) -> f64 {
        self.cascade.config().setpoint_s
    }

    pub(crate) fn service_setpoint_s(&self) -> f64 {
        self.cascade.service_setpoint_s()
    }

    /// What the replicas serve per second without optional content, once it was seen.
    pub(crate) fn reduced_rate(&self) -> Option<f64> {
        self.reduced.rate()
    }

    /// Whether requests are shed by forecast.
    pub(crate) fn refusing(&self) -> bool {
        self.charge.refusing
    }

    /// Whether more arrives than is served without optional content, once that was seen.
    fn offered_beyond_reduced(&self) -> Option<bool> {
        let (offered, reduced) = self.offered_rate.zip(self.reduced.rate())?;
        Some(offered > reduced)
    }

    fn watch_offered(&mut self, step: &Step<'_>) {
        let rate = step.interval.per_second(step.interval.counts.arrived);
        let before = self.offered_rate.unwrap_or(rate);
        let weight = (step.interval.seconds / OFFERED_SECONDS).min(1.0);
        self.offered_rate = Some(before + weight * (rate - before)).filter(|rate| rate.is_finite());
    }

    /// Ends a sampling period.
    pub(crate) fn step(&mut self, step: &mut Step<'_>) {
        self.watch_offered(step);
        let (full_before, inside_before) = (self.responses.count(), self.full_inside);
        let dispatched = step.content.take(&mut self.responses);
        let full_served = self.responses.count() - full_before;
        self.full_inside = full_inside(step);
        let inside = f64::midpoint(inside_before, self.full_inside);
        self.full_share = dispatched.full_share().or(self.full_share);
        for (_, replica) in step.plan.up() {
            replica.reports.doubt_expectation();
        }
        self.watch_share(step.interval.seconds, &dispatched);
        self.watch_reduced(step, &dispatched, full_served, inside);
        self.expected_full_s = expected_full_s(step.plan);
        self.threshold_s = self.threshold_s();
        let before = self.charge.refusing;
        self.charge.on_tick(&Look {
            seconds: step.interval.seconds,
            dispatched,
            threshold_s: self.threshold_s,
            exhausted_s: EXHAUSTED_OF_SETPOINT * self.setpoint_s(),
            queued: step.plan.queued(),
            shed: step.interval.counts.shed > 0,
            beyond_reduced: self.offered_beyond_reduced(),
            reduced_inside: self.full_inside <= FULL_INSIDE_MAX
                || self.reduced_s > self.setpoint_s(),
        });
        if !self.charge.refusing {
            let response_s = self.take_quantile();
            self.cascade.tick(CascadeSample {
                waited_s: dispatched.waited_s(),
                response_s,
            });
        }
        self.queued_max = self.queued_max(step.plan);
        step.content.set(&self.rule());
        self.tell(step, before, &dispatched);
    }

    /// The quantile, once there are enough full responses; they count once.
    fn take_quantile(&mut self) -> Option<f64> {
        if self.responses.count() < self.min_samples {
            return None;
        }
        let quantile = self.cascade.config().quantile;
        let measured = self.responses.interpolated_quantile_seconds(quantile);
        self.responses.clear();
        self.measured_s = measured.unwrap_or(self.measured_s);
        measured
    }

    /// How much is dispatched in full. Requests count, not periods: where content is served, fewer
    /// requests are.
    fn watch_share(&mut self, seconds: f64, dispatched: &Dispatched) {
        let back_s = (FULL_SHARE_SETPOINTS * self.setpoint_s()).max(FULL_SHARE_SECONDS_MIN);
        let left = 1.0 - (seconds / back_s).min(1.0);
        self.full_lately = left * self.full_lately + dispatched.full as f64;
        self.dispatched_lately = left * self.dispatched_lately + dispatched.requests as f64;
    }

    /// How much is served while nothing is dispatched in full. Full responses of before take their
    /// `share` of the replicas until they end: a capacity measured before that is theirs.
    fn watch_reduced(
        &mut self,
        step: &Step<'_>,
        dispatched: &Dispatched,
        full_served: f64,
        share: f64,
    ) {
        let seconds = step.interval.seconds;
        let all_reduced = dispatched.requests > 0 && dispatched.full == 0;
        self.reduced_s = if all_reduced {
            self.reduced_s + seconds
        } else {
            0.0
        };
        if all_reduced && step.plan.queued() > 0 && share <= FULL_INSIDE_MAX {
            let served = (step.interval.counts.served as f64 - full_served).max(0.0);
            self.reduced
                .on_tick(&Counts::of(served, seconds * (1.0 - share)));
        }
    }

    fn full_share_lately(&self) -> f64 {
        if self.dispatched_lately > 0.0 {
            self.full_lately / self.dispatched_lately
        } else {
            1.0
        }
    }

    /// The response time, or with the paper's rule the waiting time, up to which content is served.
    fn limit_s(&self) -> f64 {
        let predict = self.cascade.config().predict;
        let highest_s = self.cascade.limit_s().min(self.setpoint_s());
        let service_s = if predict { self.expected_full_s } else { 0.0 };
        let floor_s = highest_s.min(service_s + FLOOR_OF_SETPOINT * self.setpoint_s());
        let ample =
            (self.full_share_lately() - FULL_SHARE_SCARCE) / (FULL_SHARE_AMPLE - FULL_SHARE_SCARCE);
        let height = if self.charge.refusing {
            0.0
        } else {
            ample.clamp(0.0, 1.0)
        };
        floor_s + height * (highest_s - floor_s)
    }

    /// The waiting time beyond which content is left out.
    fn threshold_s(&self) -> f64 {
        let service_s = if self.cascade.config().predict {
            self.expected_full_s
        } else {
            0.0
        };
        (self.limit_s() - service_s).max(0.0)
    }

    /// Most requests that may wait while content is served.
    fn queued_max(&self, plan: &Plan) -> u32 {
        let bound = QUEUE_OF_BOUND * f64::from(plan.config.queue.max_requests);
        let within = self.reduced.rate().map(|rate| rate * self.threshold_s);
        within.map_or(bound, |requests| requests.min(bound)).ceil() as u32
    }

    /// What requests are judged by from now on.
    pub(crate) fn rule(&self) -> ContentRule {
        let everywhere = self.scope == Scope::Everywhere;
        // Mode `auto` keeps the queue below any floor in overload: content would come back for all.
        let limit_s = if self.charge.refusing && !everywhere {
            -1.0
        } else {
            self.limit_s()
        };
        ContentRule {
            limit_s,
            queued_max: self.queued_max,
            predict: self.cascade.config().predict,
            service_target_s: everywhere.then_some(self.cascade.service_setpoint_s()),
            everywhere,
        }
    }

    fn tell(&self, step: &mut Step<'_>, before: bool, dispatched: &Dispatched) {
        let refusing = self.charge.refusing;
        if refusing != before {
            step.observe(&Event::Handover {
                at: step.now,
                refusing,
                waited_seconds: dispatched.waited_s().unwrap_or(f64::NAN),
            });
        }
        let setpoint_s = self.setpoint_s();
        step.observe(&Event::Step {
            at: step.now,
            controller: "brownout",
            setpoint: setpoint_s,
            measured: self.measured_s,
            output: self.threshold_s,
            terms: Terms {
                p: setpoint_s,
                i: self.threshold_s - setpoint_s,
                d: 0.0,
                saturated: refusing,
            },
        });
    }

    pub(crate) fn status(&self) -> BrownoutStatus {
        let config = self.cascade.config();
        let everywhere = self.scope == Scope::Everywhere;
        BrownoutStatus {
            setpoint_seconds: config.setpoint_s,
            quantile: config.quantile,
            measured_seconds: Some(self.measured_s).filter(|s| s.is_finite()),
            threshold_seconds: self.threshold_s,
            service_target_seconds: everywhere.then_some(self.cascade.service_setpoint_s()),
            full_share: self.full_share,
            refusing: self.charge.refusing,
            replicas: Vec::new(),
        }
    }
}

/// Share of full responses among the requests in service.
fn full_inside(step: &Step<'_>) -> f64 {
    let inside = step.plan.in_flight().max(1);
    (f64::from(step.content.full_inside()) / f64::from(inside)).min(1.0)
}

/// Mean of what the replicas take for a full response at present.
fn expected_full_s(plan: &Plan) -> f64 {
    let (sum, count) = plan.up().fold((0.0, 0.0), |(sum, count), (_, replica)| {
        (sum + replica.reports.expected_full_s(), count + 1.0)
    });
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Share of the target within which nineteen of twenty full responses are answered in mode `auto`.
/// Chosen: as much as waiting may take there in overload, so that refusing begins where leaving out
/// ends.
const AUTO_SHARE: f64 = 0.5;

/// Gain of the top level in mode `auto`: 0.05 four times a second, for ten times a second.
const AUTO_TOP_GAIN: f64 = 0.02;

/// Dimming for mode `auto`: begins when a replica says that it can leave something out.
#[derive(Debug, Default)]
pub(crate) struct OfferedDimming(Option<Dimming>);

impl OfferedDimming {
    /// Ends a sampling period.
    pub(crate) fn step(&mut self, step: &mut Step<'_>, target_s: f64) {
        let offers = |replica: &Replica| replica.reports.understands_optional();
        if self.0.is_none() && !step.plan.up().any(|(_, replica)| offers(replica)) {
            return;
        }
        let cascade = CascadeConfig {
            top_gain: AUTO_TOP_GAIN,
            ..CascadeConfig::predictive(AUTO_SHARE * target_s)
        };
        let min_samples = step.plan.config.low_traffic.min_samples;
        let new = || Dimming::new(cascade, Scope::WhereUnderstood, min_samples);
        let dimming = self.0.get_or_insert_with(new);
        dimming.set_config(cascade);
        dimming.step(step);
    }

    /// Whether leaving content out is enough, so that no request has to be shed.
    pub(crate) fn suffices(&self) -> bool {
        self.0.as_ref().is_some_and(|dimming| !dimming.refusing())
    }

    pub(crate) fn status(&self) -> Option<BrownoutStatus> {
        self.0.as_ref().map(Dimming::status)
    }
}

/// What a period looked like.
#[derive(Debug, Clone, Copy)]
struct Look {
    seconds: f64,
    dispatched: Dispatched,
    threshold_s: f64,
    /// Waits below this are short, whatever the threshold.
    exhausted_s: f64,
    queued: u32,
    shed: bool,
    /// Whether more arrives than is served without optional content, once that was seen.
    beyond_reduced: Option<bool>,
    /// Full responses that were dispatched before have left the replicas, by and large.
    reduced_inside: bool,
}

impl Look {
    /// Leaving content out has no effect any more.
    fn is_exhausted(&self) -> bool {
        let long_s = self.exhausted_s.max(BEYOND * self.threshold_s);
        match self.dispatched.waited_s() {
            // A queue that dimming alone shortens needs no shedding.
            Some(waited_s) => {
                let grows = self.beyond_reduced.unwrap_or(true);
                let reduced = self.dispatched.full == 0 && self.reduced_inside;
                reduced && waited_s > long_s && grows
            }
            None => self.queued > 0,
        }
    }

    fn is_quiet(&self) -> bool {
        let near = |waited_s: f64| waited_s < BEYOND * self.threshold_s;
        let short = self.dispatched.waited_s().map_or(self.queued == 0, near);
        !self.shed && !self.beyond_reduced.unwrap_or(false) && short
    }
}

/// Which of the two is in charge.
#[derive(Debug, Clone, Copy, Default)]
struct Charge {
    refusing: bool,
    exhausted_s: f64,
    quiet_s: f64,
}

impl Charge {
    fn on_tick(&mut self, look: &Look) {
        let count = |sum: f64, holds: bool| if holds { sum + look.seconds } else { 0.0 };
        self.exhausted_s = count(self.exhausted_s, look.is_exhausted());
        self.quiet_s = count(self.quiet_s, look.is_quiet());
        self.refusing = if self.refusing {
            self.quiet_s < QUIET_SECONDS
        } else {
            self.exhausted_s >= EXHAUSTED_SECONDS
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::ContentGate;
    use std::time::Duration;

    /// A period in which ten requests were dispatched after waiting so long, against a threshold
    /// of a second.
    fn look(waited_ms: u64, limit_s: f64, shed: bool) -> Look {
        let (gate, replica) = (ContentGate::new(), Replica::new(1));
        gate.set(&ContentRule {
            limit_s,
            queued_max: u32::MAX,
            predict: false,
            service_target_s: None,
            everywhere: true,
        });
        for _ in 0..10 {
            let _ = gate.decide(Duration::from_millis(waited_ms), 0, &replica);
        }
        Look {
            seconds: 0.25,
            dispatched: gate.take(&mut Histogram::default()),
            threshold_s: 1.0,
            exhausted_s: 0.5,
            queued: 5,
            shed,
            beyond_reduced: None,
            reduced_inside: true,
        }
    }

    #[test]
    fn full_responses_in_service_are_waited_for() {
        let mut charge = Charge::default();
        let before = Look {
            reduced_inside: false,
            ..look(1300, 1.0, false)
        };
        (0..20).for_each(|_| charge.on_tick(&before));
        assert!(!charge.refusing, "dimming has had no effect yet");
        (0..2).for_each(|_| charge.on_tick(&look(1300, 1.0, false)));
        assert!(charge.refusing);
    }

    #[test]
    fn admission_takes_over_when_dimming_is_exhausted_and_not_before() {
        let mut charge = Charge::default();
        (0..20).for_each(|_| charge.on_tick(&look(1100, 1.0, false)));
        assert!(!charge.refusing, "waits scatter around the threshold");
        charge.on_tick(&look(1300, 1.0, false));
        assert!(!charge.refusing, "once is nothing");
        charge.on_tick(&look(1300, 1.0, false));
        assert!(charge.refusing);
    }

    #[test]
    fn it_gives_back_when_nobody_was_refused_for_a_second() {
        let mut charge = Charge {
            refusing: true,
            ..Charge::default()
        };
        (0..20).for_each(|_| charge.on_tick(&look(400, -1.0, true)));
        assert!(charge.refusing, "it still refuses");
        (0..20).for_each(|_| charge.on_tick(&look(1200, -1.0, false)));
        assert!(charge.refusing, "waits are still long");
        (0..3).for_each(|_| charge.on_tick(&look(100, -1.0, false)));
        assert!(charge.refusing);
        charge.on_tick(&look(100, -1.0, false));
        assert!(!charge.refusing);
    }

    #[test]
    fn replicas_that_take_nothing_are_exhausted_too() {
        let mut charge = Charge::default();
        let stuck = Look {
            dispatched: Dispatched::default(),
            ..look(0, 1.0, false)
        };
        (0..2).for_each(|_| charge.on_tick(&stuck));
        assert!(charge.refusing);
        let idle = Look { queued: 0, ..stuck };
        (0..4).for_each(|_| charge.on_tick(&idle));
        assert!(!charge.refusing);
    }
}
