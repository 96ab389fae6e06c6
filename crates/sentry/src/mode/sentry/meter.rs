//! Arrival rates of the classes, smoothed over the periods in which they are asked for.

use tidegate_control::Timestamp;

use crate::plan::Plan;

/// Requests per second of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ClassRate {
    pub(super) beyond_guarantee: f64,
    pub(super) guaranteed: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    arrived: u64,
    guaranteed: u64,
}

/// Arrival rates of the classes, smoothed over the periods in which they are asked for.
#[derive(Debug)]
pub(super) struct Meter {
    /// Weight of the newest period.
    newest: f64,
    since: Timestamp,
    seen: Vec<Seen>,
    rates: Vec<ClassRate>,
}

impl Meter {
    pub(super) fn new(newest: f64) -> Self {
        Self {
            newest,
            since: Timestamp::ZERO,
            seen: Vec::new(),
            rates: Vec::new(),
        }
    }

    /// Begins the first period.
    pub(super) fn start(&mut self, now: Timestamp, plan: &Plan) {
        self.since = now;
        self.seen = counts(plan).collect();
        self.rates.clear();
    }

    /// Ends a period.
    pub(super) fn rates(&mut self, now: Timestamp, plan: &Plan) -> &[ClassRate] {
        let seconds = (now - self.since).as_secs_f64();
        let seen: Vec<Seen> = counts(plan).collect();
        if seconds > 0.0 && seen.len() == self.seen.len() {
            let newest: Vec<ClassRate> = seen
                .iter()
                .zip(&self.seen)
                .map(|(now, before)| rate(*now, *before, seconds))
                .collect();
            if self.rates.len() == newest.len() {
                let pairs = self.rates.iter_mut().zip(newest);
                pairs.for_each(|(rate, newest)| rate.approach(newest, self.newest));
            } else {
                self.rates = newest;
            }
        }
        self.since = now;
        self.seen = seen;
        self.rates.resize(self.seen.len(), ClassRate::default());
        &self.rates
    }
}

impl ClassRate {
    fn approach(&mut self, newest: Self, weight: f64) {
        self.beyond_guarantee += weight * (newest.beyond_guarantee - self.beyond_guarantee);
        self.guaranteed += weight * (newest.guaranteed - self.guaranteed);
    }
}

fn counts(plan: &Plan) -> impl Iterator<Item = Seen> + '_ {
    plan.classes.iter().map(|class| Seen {
        arrived: class.counters.arrived(),
        guaranteed: class.contract.guaranteed(),
    })
}

fn rate(now: Seen, before: Seen, seconds: f64) -> ClassRate {
    let arrived = now.arrived.saturating_sub(before.arrived);
    let guaranteed = now.guaranteed.saturating_sub(before.guaranteed);
    ClassRate {
        beyond_guarantee: arrived.saturating_sub(guaranteed) as f64 / seconds,
        guaranteed: guaranteed as f64 / seconds,
    }
}
