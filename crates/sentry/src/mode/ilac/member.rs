//! One replica under mode `ilac`: its service-time controller, and how far it is trusted.

use super::fault::{Look, Watch};
use crate::brownout::ServiceControl;
use crate::config::IlacConfig;
use crate::replica::Replica;
use crate::replica_reports::MeanSample;
use crate::status::Standing;

/// What a replica asks for is believed up to so many times what its service times, as measured
/// here, allow. Both run the same controller and differ by the network alone; a replica that
/// overstates its demand gets at most this much.
const ASKED_OF_FOUND: u32 = 2;

/// The sampling period that ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    pub(super) seconds: f64,
    /// What a replica should take for a request.
    pub(super) service_s: f64,
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
        self.control.set_setpoint(period.service_s);
        let sample = take_sample(replica, period.refusing);
        let held = replica.limit().max(in_flight).max(1);
        let gain_sample = sample.map(|sample| (sample.mean_s / f64::from(held), sample.count));
        if let Some(sample) = sample {
            let mean_s = Some(sample.mean_s);
            self.control.tick_measured(mean_s, in_flight as usize);
            self.measured = true;
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
        self.watch.come_back();
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

    /// It was given so many.
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
/// admission is in charge: nobody gets one then, and a replica that was given few requests at a
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
