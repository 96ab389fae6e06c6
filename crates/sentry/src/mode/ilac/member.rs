//! One replica under mode `ilac`: its service-time controller, and how far it is trusted.

use super::fault::{Look, Watch};
use crate::brownout::ServiceControl;
use crate::config::{IlacConfig, IlacPreset};
use crate::replica::Replica;
use crate::replica_reports::MeanSample;
use crate::status::Standing;

/// What a replica asks for is believed up to this many times what its service times, as measured
/// here, allow. Both run the same controller and differ by the network alone; a replica that
/// overstates its demand gets at most this much.
const ASKED_OF_FOUND: u32 = 2;

/// Least service time to aim at, in those of a response that is alone: below one nothing is gained
/// by serving fewer, at two a second request on one processor costs nothing. Chosen:
/// experiments/brownout/handover-cores.toml.
const SERVICE_PER_BASE_MIN: f64 = 1.25;

/// Largest share of the setpoint that it may be raised to.
const SERVICE_OF_SETPOINT_MAX: f64 = 0.5;

/// Weight of the newest mean in what a response takes alone. Chosen: at four periods a second a
/// second and a half, as long as the gain of the service-time controller needs for a change.
const BASE_WEIGHT: f64 = 0.2;

/// The sampling period that ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    pub(super) seconds: f64,
    /// What a replica should take for a request, its part of the setpoint.
    pub(super) service_s: f64,
    /// The setpoint.
    pub(super) setpoint_s: f64,
    /// Gain of the other replicas, where it is known.
    pub(super) pack_s: Option<f64>,
    /// Whether admission is in charge.
    pub(super) refusing: bool,
}

/// One replica under mode `ilac`: its service-time controller, and how far it is trusted.
#[derive(Debug)]
pub(super) struct Member {
    control: ServiceControl,
    watch: Watch,
    config: IlacConfig,
    served: u64,
    /// Whether any response was measured: before that the gain is a guess.
    measured: bool,
    /// What a full response takes where it is alone, once one was.
    base_s: Option<f64>,
    asks: bool,
    up: bool,
}

impl Member {
    pub(super) fn new(config: &IlacConfig) -> Self {
        Self {
            control: ServiceControl::new(config.service()),
            watch: Watch::new(config.fault_ratio, config.silence.as_secs_f64()),
            config: config.clone(),
            served: 0,
            measured: false,
            base_s: None,
            asks: false,
            up: true,
        }
    }

    pub(super) fn set_config(&mut self, config: &IlacConfig) {
        self.config = config.clone();
        self.watch
            .set_bounds(config.fault_ratio, config.silence.as_secs_f64());
    }

    /// Goes on from what the replica held under another mode.
    pub(super) fn go_on_from(&mut self, held: u32) {
        self.control.track(held);
    }

    /// Ends a sampling period; returns how it stands, if that changed.
    pub(super) fn step(&mut self, replica: &Replica, period: &Period) -> Option<Standing> {
        if !replica.is_up() {
            self.up = false;
            return None;
        }
        if !std::mem::replace(&mut self.up, true) {
            self.come_back();
        }
        let in_flight = replica.in_flight();
        let aim_s = self.aim_s(period.service_s, period.setpoint_s);
        self.control.set_setpoint(aim_s);
        let sample = take_sample(replica, period.refusing);
        let held = replica.limit().max(in_flight).max(1);
        let gain_sample = sample.map(|sample| (sample.mean_s / f64::from(held), sample.count));
        if let Some(sample) = sample {
            let mean_s = Some(sample.mean_s);
            self.control.tick_measured(mean_s, in_flight as usize);
            self.measured = true;
            self.learn_base(sample.mean_s, held);
        }
        let served = replica.served();
        let look = Look {
            seconds: period.seconds,
            gain_s: self.known_gain_s(),
            sample: gain_sample,
            pack_s: period.pack_s,
            answered: served != self.served,
            in_flight,
            wanted: self.wanted(replica),
        };
        self.served = served;
        self.asks = replica.reports.asked().is_some();
        let changed = self.watch.on_tick(&look);
        replica.trust(self.watch.trust());
        changed
    }

    /// It was down: nothing that was known of it holds any more.
    fn come_back(&mut self) {
        self.control = ServiceControl::new(self.config.service());
        self.measured = false;
        self.base_s = None;
        self.watch.come_back();
    }

    /// Company prolongs a response, so no mean is below that of a response that is alone.
    fn learn_base(&mut self, mean_s: f64, held: u32) {
        let before = self.base_s.unwrap_or(mean_s);
        if held == 1 || (self.base_s.is_some() && mean_s < before) {
            self.base_s = Some(before + BASE_WEIGHT * (mean_s - before));
        }
    }

    /// The service time that the replica aims at, where `service_s` is its part of the setpoint:
    /// somewhat more than a full response takes alone, where that is longer.
    pub(super) fn aim_s(&self, service_s: f64, setpoint_s: f64) -> f64 {
        let is_paper = self.config.preset == IlacPreset::Paper;
        let Some(base_s) = self.base_s.filter(|_| !is_paper) else {
            return service_s;
        };
        let most_s = SERVICE_OF_SETPOINT_MAX * setpoint_s;
        service_s.max((SERVICE_PER_BASE_MIN * base_s).min(most_s))
    }

    /// How many requests at once it should have: what it asked for, as far as the service times
    /// measured here bear it out; what is found here where it asks for nothing.
    pub(super) fn wanted(&self, replica: &Replica) -> u32 {
        let found = u32::try_from(self.control.concurrency()).unwrap_or(u32::MAX);
        let credible = found.saturating_mul(ASKED_OF_FOUND).saturating_add(1);
        replica
            .reports
            .asked()
            .map_or(found, |asked| asked.min(credible))
    }

    /// It was given this many.
    pub(super) fn granted(&mut self, limit: u32) {
        self.control.grant(limit);
    }

    pub(super) fn concurrency(&self) -> f64 {
        self.control.output()
    }

    pub(super) fn gain_s(&self) -> f64 {
        self.control.gain_s()
    }

    /// The gain, if it is more than a guess.
    pub(super) fn known_gain_s(&self) -> Option<f64> {
        (self.up && self.measured).then(|| self.gain_s())
    }

    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    pub(super) fn standing(&self) -> Standing {
        self.watch.standing()
    }
}

/// The service time of the period. Full responses are the samples (004 §III-B), except while
/// admission is in charge: no request gets one then, and a replica that was given few requests at a
/// time would stay so for ever.
fn take_sample(replica: &Replica, refusing: bool) -> Option<MeanSample> {
    let full = replica.reports.take_full_mean();
    let reduced = replica.reports.take_reduced_mean();
    full.or_else(|| reduced.filter(|_| refusing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Report;

    #[test]
    fn base_is_learnt_alone_and_never_above_a_mean_in_company() {
        let mut member = Member::new(&IlacConfig::default());
        member.learn_base(0.9, 3);
        assert_eq!(member.base_s, None, "it was never alone");
        (0..50).for_each(|_| member.learn_base(0.4, 1));
        member.learn_base(0.9, 3);
        assert!((member.base_s.unwrap() - 0.4).abs() < 1e-9);
        (0..50).for_each(|_| member.learn_base(0.1, 3));
        assert!(
            (member.base_s.unwrap() - 0.1).abs() < 1e-3,
            "it is faster now"
        );
    }

    #[test]
    fn demand_is_believed_only_as_far_as_service_times_bear_it_out() {
        let (mut member, replica) = (Member::new(&IlacConfig::default()), Replica::new(1));
        replica.reports.on_report(&Report {
            demand: Some(1000),
            ..Report::default()
        });
        assert_eq!(replica.reports.asked(), Some(1000));
        assert_eq!(member.wanted(&replica), ASKED_OF_FOUND + 1);
        member.go_on_from(20);
        assert_eq!(member.wanted(&replica), 20 * ASKED_OF_FOUND + 1);
    }
}
