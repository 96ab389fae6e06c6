//! Degrade before refusing: optional content under control, and when that is not enough.
//!
//! The [`Cascade`] (004) holds the response time of full responses at a setpoint by leaving
//! optional content out for those who waited too long. That has an end: once everybody is served
//! reduced and the queue still grows, only refusing helps. The two must not work on one queue at
//! the same time, or refusals would shorten the queue, which would bring optional content back,
//! which would lengthen the queue. So one of them is in charge:
//!
//! | in charge | content | refusals on a forecast | until |
//! | --- | --- | --- | --- |
//! | dimming | by the cascade | none | nothing was dispatched in full, and waits are beyond the threshold, for half a second |
//! | admission | left out for everybody | yes, at a shorter queue | nobody was refused for a second, and waits are below half of the threshold |
//!
//! While admission is in charge the cascade stands still: it measures nothing that it could act on.
//!
//! What breaks it: replicas that ignore the flag. Then dimming changes nothing, and admission takes
//! over half a second later than it could.

use tidegate_control::controller::Terms;

use super::Step;
use crate::brownout::{Cascade, CascadeConfig, CascadeSample};
use crate::event::Event;
use crate::gate::{ContentRule, Dispatched};
use crate::monitor::Histogram;
use crate::plan::Plan;
use crate::replica::Replica;
use crate::status::BrownoutStatus;

/// Waits beyond the threshold by this factor are beyond what dimming does by itself: around it
/// they scatter by a few per cent. Chosen: experiments/brownout/handover.toml.
const BEYOND: f64 = 1.15;

/// How long dimming must have been without effect before requests are refused.
const EXHAUSTED_SECONDS: f64 = 0.5;

/// How long nobody must have been refused before dimming is enough again.
const QUIET_SECONDS: f64 = 1.0;

/// A wait below this share of the threshold is short.
const SHORT: f64 = 0.5;

/// See the module's description.
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
    threshold_s: f64,
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
            threshold_s: config.setpoint_s,
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

    /// Whether admission is in charge.
    pub(crate) fn refusing(&self) -> bool {
        self.charge.refusing
    }

    /// Ends a sampling period.
    pub(crate) fn step(&mut self, step: &mut Step<'_>) {
        let dispatched = step.content.take(&mut self.responses);
        self.full_share = dispatched.full_share().or(self.full_share);
        for (_, replica) in step.plan.up() {
            replica.reports.doubt_expectation();
        }
        self.threshold_s = self.threshold_s(step.plan);
        let before = self.charge.refusing;
        self.charge.on_tick(&Look {
            seconds: step.interval.seconds,
            dispatched,
            threshold_s: self.threshold_s,
            queued: step.plan.queued(),
            shed: step.interval.counts.shed > 0,
        });
        if !self.charge.refusing {
            let response_s = self.take_quantile();
            self.cascade.tick(CascadeSample {
                waited_s: dispatched.waited_s(),
                response_s,
            });
        }
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

    /// The waiting time beyond which content is left out.
    fn threshold_s(&self, plan: &Plan) -> f64 {
        let limit_s = self.cascade.limit_s();
        if !self.cascade.config().predict {
            return limit_s.min(self.setpoint_s());
        }
        let (sum, count) = plan.up().fold((0.0, 0.0), |(sum, count), (_, replica)| {
            (sum + replica.reports.expected_full_s(), count + 1.0)
        });
        let expected_s: f64 = if count > 0.0 { sum / count } else { 0.0 };
        (limit_s - expected_s).max(0.0)
    }

    /// What requests are judged by from now on.
    pub(crate) fn rule(&self) -> ContentRule {
        let limit_s = match self.charge.refusing {
            true => -1.0,
            false => self.cascade.limit_s(),
        };
        let everywhere = self.scope == Scope::Everywhere;
        ContentRule {
            limit_s,
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

    /// Whether leaving content out is enough, so that nobody has to be refused.
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
    queued: u32,
    shed: bool,
}

impl Look {
    /// Leaving content out has no effect any more.
    fn is_exhausted(&self) -> bool {
        match self.dispatched.waited_s() {
            Some(waited_s) => self.dispatched.full == 0 && waited_s > BEYOND * self.threshold_s,
            None => self.queued > 0,
        }
    }

    fn is_quiet(&self) -> bool {
        let short = |waited_s: f64| waited_s < SHORT * self.threshold_s;
        !self.shed && self.dispatched.waited_s().map_or(self.queued == 0, short)
    }
}

/// Who is in charge.
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
        self.refusing = match self.refusing {
            false => self.exhausted_s >= EXHAUSTED_SECONDS,
            true => self.quiet_s < QUIET_SECONDS,
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
            predict: false,
            service_target_s: None,
            everywhere: true,
        });
        for _ in 0..10 {
            let _ = gate.decide(Duration::from_millis(waited_ms), &replica);
        }
        Look {
            seconds: 0.25,
            dispatched: gate.take(&mut Histogram::default()),
            threshold_s: 1.0,
            queued: 5,
            shed,
        }
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
        (0..20).for_each(|_| charge.on_tick(&look(600, -1.0, false)));
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
