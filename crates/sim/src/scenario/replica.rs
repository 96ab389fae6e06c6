//! A replica while it runs: its server, its completion event, its reports.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::Report;

use super::nucleus::Nucleus;
use super::protector::{Orders, RequestId};
use super::spec::{Abandoned, ReplicaSpec};
use crate::engine::EventId;
use crate::server::{Station, UtilizationMeter};

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) station: Station<RequestId>,
    /// The completion on the calendar.
    pub(super) completion: Option<(Timestamp, EventId)>,
    pub(super) abandoned: Abandoned,
    pub(super) speed: f64,
    pub(super) place: Place,
    nucleus: Option<Nucleus>,
    cpu_share: Option<f64>,
    reported: Mark,
    recorded: Mark,
    meter: UtilizationMeter,
}

/// Whether a replica is in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Not yet, or no more; what is inside finishes.
    Outside,
    /// It gets requests.
    Serving,
    /// It gets no new ones; what is inside finishes.
    Drained,
}

/// Busy time at an instant, to take differences.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Timestamp,
    busy: f64,
}

impl Mark {
    const START: Self = Self {
        at: Timestamp::ZERO,
        busy: 0.0,
    };

    /// The utilization since the mark, which moves to `now`.
    fn advance(&mut self, now: Timestamp, station: &Station<RequestId>) -> f64 {
        let before = std::mem::replace(
            self,
            Self {
                at: now,
                busy: station.busy(now),
            },
        );
        let possible = now.since(before.at).as_secs_f64() * station.cores();
        if possible == 0.0 {
            return 0.0;
        }
        // A hair above 1 is rounding.
        ((self.busy - before.busy) / possible).clamp(0.0, 1.0)
    }
}

impl Replica {
    pub(super) fn new(spec: &ReplicaSpec) -> Self {
        let speed = spec.speed.value_at(0.0);
        let mut station = Station::new(&spec.station());
        station.set_speed(Timestamp::ZERO, speed);
        Self {
            station,
            completion: None,
            abandoned: spec.abandoned,
            speed,
            place: if spec.is_first() {
                Place::Serving
            } else {
                Place::Outside
            },
            nucleus: spec.nucleus.then(Nucleus::new),
            cpu_share: spec.cpu_share.map(|share| share.0),
            reported: Mark::START,
            recorded: Mark::START,
            meter: UtilizationMeter::default(),
        }
    }

    /// It starts again, and what it knew is lost.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.station.restore();
        self.meter = UtilizationMeter::starting(now, self.station.busy(now));
        self.nucleus = self.nucleus.is_some().then(Nucleus::new);
    }

    /// A request came with these orders.
    pub(super) fn told(&mut self, now: Timestamp, orders: &Orders) {
        if let Some(nucleus) = &mut self.nucleus {
            nucleus.begin(now, orders.service_target, self.station.len());
        }
    }

    /// The utilization it tells with an answer.
    pub(super) fn metered(&mut self, now: Timestamp) -> f64 {
        let (busy, cores) = (self.station.busy(now), self.station.cores());
        self.meter.read(now, busy, cores)
    }

    /// What it says with an answer, having a nucleus or not, about what can be left out.
    pub(super) fn answer(&mut self, now: Timestamp, took: Duration, full: bool) -> Report {
        let present = self.station.len();
        let nucleus = self.nucleus.as_mut();
        Report {
            measured_seconds: Some(took.as_secs_f64()),
            service_seconds: Some(took.as_secs_f64()),
            demand: nucleus.map(|nucleus| nucleus.end(now, took, full, present)),
            ..Report::default()
        }
    }

    /// What a request cost that would have taken `alone` on an idle replica, where it reports that.
    /// Called when the request has left.
    pub(super) fn cost(&self, alone_s: f64, took: Duration) -> Option<Report> {
        let cpu_s = alone_s * self.cpu_share?;
        let took_s = took.as_secs_f64();
        Some(Report {
            measured_seconds: Some(took_s),
            service_seconds: Some(took_s),
            cpu_seconds: Some(cpu_s),
            cost: Some(alone_s),
            io_seconds: Some((took_s - cpu_s).max(0.0)),
            queue_seconds: Some(self.station.latest_wait_s()),
            in_service: u32::try_from(self.station.len() + 1).ok(),
            ..Report::default()
        })
    }

    /// Utilization since the last report.
    pub(super) fn report(&mut self, now: Timestamp) -> f64 {
        self.reported.advance(now, &self.station)
    }

    /// Utilization since the last interval of the record.
    pub(super) fn utilization(&mut self, now: Timestamp) -> f64 {
        self.recorded.advance(now, &self.station)
    }

    /// Whether it is to get requests, as far as anybody can know.
    pub(super) fn serves(&self) -> bool {
        self.place == Place::Serving && self.station.is_up()
    }

    /// Cores times speed: seconds of work it can do per second for new requests.
    pub(super) fn capacity(&self) -> f64 {
        if self.serves() {
            self.station.cores() * self.speed
        } else {
            0.0
        }
    }
}
