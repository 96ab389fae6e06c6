//! One class as the request path sees it: counters, and the limits published for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::api::{Ending, ShedReason};
use crate::atomic::{AtomicF64, add_one};
use crate::config::ClassConfig;
use crate::contract::Contract;
use crate::policing::cost_shares::CostShares;
use crate::status::{BandStatus, ClassStatus};

/// A duration without bound, in nanoseconds.
pub(crate) const NEVER: u64 = u64::MAX;

/// One class as the request path sees it: counters, and the limits published for it.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// Waiters of the class in the central queue.
    pub(crate) queued: AtomicU32,
    /// Of them, those that let the others pass.
    pub(crate) late: AtomicU32,
    pub(crate) forecast: Forecast,
    pub(crate) counters: Counters,
    pub(crate) contract: Contract,
    pub(crate) cost: Cost,
    pub(crate) cost_shares: CostShares,
    /// How long requests are held before they are examined, in nanoseconds.
    delay_ns: AtomicU64,
    /// Share of what its target allows that the servers may be filled to.
    room: AtomicF64,
}

/// What the adaptation published for the class: with this a newcomer is judged.
#[derive(Debug)]
pub(crate) struct Forecast {
    /// Waiters at this importance or above with which a newcomer is still in time.
    pub(crate) ahead_limit: AtomicU32,
    /// Waiting time beyond which it is too late to start, in nanoseconds.
    pub(crate) wait_limit_ns: AtomicU64,
    /// Waiting time beyond which others are let pass, in nanoseconds.
    pub(crate) late_ns: AtomicU64,
    /// The target in force, in nanoseconds.
    pub(crate) target_ns: AtomicU64,
    /// What the class can count on being drained per second; 0 while unknown.
    pub(crate) drain: AtomicF64,
    /// What a request takes in a replica at present, in seconds.
    pub(crate) residence: AtomicF64,
    /// What those took that were answered lately, in seconds: how long the slot of a client that
    /// left is kept. 0 to give it back at once.
    pub(crate) linger: AtomicF64,
    /// Offered load over what can be served, at least 1.
    pub(crate) pressure: AtomicF64,
    /// What a request of the class costs on the mean, in seconds, while those that cost far more
    /// pay for it; 0 while they do not.
    pub(crate) toll_mean_s: AtomicF64,
    /// Waiters ahead with which they may still wait, times what they pay.
    pub(crate) toll_limit: AtomicU32,
}

impl Forecast {
    fn new(target: Option<Duration>) -> Self {
        Self {
            ahead_limit: AtomicU32::new(u32::MAX),
            wait_limit_ns: AtomicU64::new(NEVER),
            late_ns: AtomicU64::new(NEVER),
            target_ns: AtomicU64::new(target.map_or(NEVER, saturating_nanos)),
            drain: AtomicF64::new(0.0),
            residence: AtomicF64::new(0.0),
            linger: AtomicF64::new(0.0),
            pressure: AtomicF64::new(1.0),
            toll_mean_s: AtomicF64::new(0.0),
            toll_limit: AtomicU32::new(u32::MAX),
        }
    }

    /// Nothing is refused on a forecast.
    pub(crate) fn withdraw(&self) {
        self.ahead_limit.store(u32::MAX, Ordering::Relaxed);
        self.wait_limit_ns.store(NEVER, Ordering::Relaxed);
        self.late_ns.store(NEVER, Ordering::Relaxed);
        self.drain.store(0.0);
        self.linger.store(0.0);
        self.pressure.store(1.0);
        self.toll_mean_s.store(0.0);
    }

    /// Waiting time beyond which it is too late to start.
    pub(crate) fn wait_limit(&self) -> Duration {
        Duration::from_nanos(self.wait_limit_ns.load(Ordering::Relaxed))
    }

    /// Waiting time beyond which others are let pass, if there is one.
    pub(crate) fn late_after(&self) -> Option<Duration> {
        let nanos = self.late_ns.load(Ordering::Relaxed);
        (nanos != NEVER).then(|| Duration::from_nanos(nanos))
    }

    /// Refuses newcomers with this many waiters at their importance or above; at least one may
    /// wait.
    pub(crate) fn set_ahead_limit(&self, waiters: f64) {
        // `as` saturates.
        let waiters = (waiters.ceil() as u32).max(1);
        self.ahead_limit.store(waiters, Ordering::Relaxed);
    }

    pub(crate) fn set_wait_limit(&self, seconds: f64) {
        let limit = Duration::try_from_secs_f64(seconds).map_or(NEVER, saturating_nanos);
        self.wait_limit_ns.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn set_target(&self, target: Option<Duration>) {
        let nanos = target.map_or(NEVER, saturating_nanos);
        self.target_ns.store(nanos, Ordering::Relaxed);
    }

    /// The target in force, if there is one.
    pub(crate) fn target(&self) -> Option<Duration> {
        let nanos = self.target_ns.load(Ordering::Relaxed);
        (nanos != NEVER).then(|| Duration::from_nanos(nanos))
    }

    /// Response time of a request with `ahead` before it (003 eq. 3 with measured quantities):
    /// what is queued ahead over the drain rate, plus service. None while nothing is known.
    pub(crate) fn response_seconds(&self, ahead: u32) -> Option<f64> {
        let drain = self.drain.load();
        let waiting = f64::from(ahead) / drain;
        (drain > 0.0).then(|| waiting + self.residence.load())
    }
}

impl Forecast {
    /// The inverse of [`Forecast::response_seconds`]: requests that can be before one, itself
    /// included, for it to be answered within `seconds`.
    pub(crate) fn places_within(&self, seconds: f64) -> Option<f64> {
        let drain = self.drain.load();
        let waiting = (seconds - self.residence.load()).max(0.0);
        (drain > 0.0).then_some(waiting * drain)
    }
}

/// What a request of the class costs a server on its own, as a decayed mean.
#[derive(Debug)]
pub(crate) struct Cost {
    service_s: AtomicF64,
}

/// Weight of the newest service time. Chosen: as for a path that is asked for often
/// ([`table`](crate::policing::table)).
const COST_WEIGHT: f64 = 0.02;

impl Cost {
    /// Two cores that learn at once may lose one of two samples.
    pub(crate) fn learn(&self, service_s: f64) {
        let mean = self.service_s.load();
        let mean = if mean > 0.0 {
            mean + COST_WEIGHT * (service_s - mean)
        } else {
            service_s
        };
        self.service_s.store(mean);
    }

    /// None before the first sample.
    pub(crate) fn service_s(&self) -> Option<f64> {
        Some(self.service_s.load()).filter(|&mean| mean > 0.0)
    }
}

impl Class {
    pub(crate) fn new(name: String, target: Option<Duration>, contract: Contract) -> Self {
        Self {
            name,
            queued: AtomicU32::new(0),
            late: AtomicU32::new(0),
            forecast: Forecast::new(target),
            counters: Counters::default(),
            contract,
            cost: Cost {
                service_s: AtomicF64::new(0.0),
            },
            cost_shares: CostShares::new(),
            delay_ns: AtomicU64::new(0),
            room: AtomicF64::new(1.0),
        }
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        let nanos = saturating_nanos(delay);
        self.delay_ns.store(nanos, Ordering::Relaxed);
    }

    /// See [`room`](crate::policing::room).
    pub(crate) fn room(&self) -> f64 {
        self.room.load()
    }

    pub(crate) fn set_room(&self, share: f64) {
        self.room.store(share);
    }

    pub(crate) fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// A waiter left the queue, whichever way.
    pub(crate) fn on_left_queue(&self, late: bool) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        if late {
            self.late.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn status(&self, now: Timestamp, config: Option<&ClassConfig>) -> ClassStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        ClassStatus {
            name: self.name.clone(),
            target_seconds: self.forecast.target().map(|target| target.as_secs_f64()),
            band: self.band_status(config),
            guarantee: self.contract.guarantee_status(now),
            service_seconds: self.cost.service_s(),
            costs: self.cost_shares.status(),
            delay_seconds: self.delay().as_secs_f64(),
            room_share: self.room(),
            revenue: self.contract.revenue(),
            revenue_earned: self.contract.revenue() * load(&counters.in_target) as f64,
            revenue_lost: counters.lost(self.contract.revenue()),
            queued: self.queued(),
            arrived: load(&counters.arrived),
            admitted: load(&counters.admitted),
            waited: load(&counters.waited),
            served: load(&counters.served),
            in_target: load(&counters.in_target),
            degraded: load(&counters.degraded),
            dropped: load(&counters.dropped),
            abandoned: load(&counters.abandoned),
            ignored: load(&counters.ignored),
            unreported: load(&counters.unreported),
            shed: by_reason(&counters.shed),
            would_shed: by_reason(&counters.would_shed),
        }
    }

    fn band_status(&self, config: Option<&ClassConfig>) -> Option<BandStatus> {
        let rows = &config?.targets;
        let row = rows.get(self.contract.band().checked_sub(1)?)?;
        Some(BandStatus {
            above: row.above.0,
            target_seconds: row.target.as_secs_f64(),
        })
    }
}

pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

fn by_reason(counters: &[AtomicU64]) -> Vec<(&'static str, u64)> {
    ShedReason::ALL
        .iter()
        .map(|reason| {
            let count = counters[reason.index()].load(Ordering::Relaxed);
            (reason.as_str(), count)
        })
        .collect()
}

/// What happened to the class's requests since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) arrived: AtomicU64,
    pub(crate) admitted: AtomicU64,
    pub(crate) waited: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) in_target: AtomicU64,
    pub(crate) degraded: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) ignored: AtomicU64,
    unreported: AtomicU64,
    shed: [AtomicU64; ShedReason::ALL.len()],
    would_shed: [AtomicU64; ShedReason::ALL.len()],
}

impl Counters {
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self, ending: Ending) {
        let counter = match ending {
            Ending::Served => &self.served,
            Ending::Dropped => &self.dropped,
            Ending::Abandoned => &self.abandoned,
            Ending::Ignored => &self.ignored,
            Ending::Unreported => &self.unreported,
        };
        add_one(counter);
    }

    /// What was not earned, by reason: refusals, and requests that were admitted in vain.
    fn lost(&self, revenue: f64) -> Vec<(&'static str, f64)> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let admitted = [
            ("late", self.late()),
            ("failed", load(&self.dropped)),
            ("abandoned", load(&self.abandoned)),
        ];
        let all = admitted.into_iter().chain(by_reason(&self.shed));
        all.map(|(reason, count)| (reason, revenue * count as f64))
            .collect()
    }

    /// Refused, on arrival or after waiting.
    pub(crate) fn shed(&self, reason: ShedReason) {
        add_one(&self.shed[reason.index()]);
    }

    /// Refused by the test of mode `sentry`.
    pub(crate) fn policed(&self) -> u64 {
        self.shed[ShedReason::Policed.index()].load(Ordering::Relaxed)
    }

    /// Answered, but not within the target. The two counters are read one after the other.
    pub(crate) fn late(&self) -> u64 {
        let in_target = self.in_target.load(Ordering::Relaxed);
        self.served
            .load(Ordering::Relaxed)
            .saturating_sub(in_target)
    }

    pub(crate) fn would_shed(&self, reason: ShedReason) {
        add_one(&self.would_shed[reason.index()]);
    }

    /// This many more that enforcing would have refused.
    pub(crate) fn would_shed_more(&self, reason: ShedReason, count: u64) {
        self.would_shed[reason.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// Refused for this reason.
    pub(crate) fn shed_for(&self, reason: ShedReason) -> u64 {
        self.shed[reason.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn shed_total(&self) -> u64 {
        let counts = self.shed.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Refusals at the entrance, enforced or not.
    pub(crate) fn refused_by_gate(&self) -> u64 {
        const GATE: [ShedReason; 3] = [ShedReason::Rate, ShedReason::Blocked, ShedReason::Window];
        let count = |counters: &[AtomicU64], reason: ShedReason| {
            counters[reason.index()].load(Ordering::Relaxed)
        };
        let both = |reason| count(&self.shed, reason) + count(&self.would_shed, reason);
        GATE.into_iter().map(both).sum()
    }
}
