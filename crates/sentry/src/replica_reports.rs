//! What a replica's answers say about it: whether it can leave something out, how many requests it
//! asks for, and how long full responses take.
//!
//! **Demand** (004 §III-B, steps 3 and 4) is relative: an answer asks for `1 + change` requests.
//! The one that ended gives its slot back anyway, so that what is kept is the sum of the changes,
//! from the one request that a newcomer is given. A change that was lost on its way is lost for
//! good; a replica that comes back starts anew.
//!
//! Decision: docs/decisions/0031-optional-content-flag-in-response-heads.md.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::api::Report;
use crate::atomic::{AtomicF64, add_one};

/// Weight of the newest full response in what the next is expected to take; from 0.1 to 0.2 the
/// error of 004's hundred scenarios hardly changes, at 0.03 it is 4 % larger.
const EXPECTED_WEIGHT: f64 = 0.2;

/// What is left of an expectation after a period without a full response. Chosen: a replica that
/// seemed ten times too slow is tried again after some seconds.
const BELIEF_LEFT: f64 = 0.9;

/// No honest change of demand is larger.
pub(crate) const CHANGE_MAX: i64 = 10_000;

/// Taken for the share of full answers before a replica has said it (004's own simulator).
const FULL_SHARE_UNKNOWN: f64 = 0.5;

/// What a replica's answers say about it: whether it can leave something out, how many requests it
/// asks for, and how long full responses take.
#[derive(Debug)]
pub(crate) struct ReplicaReports {
    understands_optional: AtomicBool,
    asks: AtomicBool,
    asked: AtomicI64,
    full: MeanTime,
    reduced: MeanTime,
    expected_full_s: AtomicF64,
    /// Whether that is of this period.
    expectation_fresh: AtomicBool,
    full_share: AtomicF64,
}

impl ReplicaReports {
    pub(crate) fn new() -> Self {
        Self {
            understands_optional: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            asked: AtomicI64::new(1),
            full: MeanTime::default(),
            reduced: MeanTime::default(),
            expected_full_s: AtomicF64::new(0.0),
            expectation_fresh: AtomicBool::new(false),
            full_share: AtomicF64::new(FULL_SHARE_UNKNOWN),
        }
    }

    /// A replica that reports demand, its own service time or what it included has a nucleus, and
    /// with it the flag.
    pub(crate) fn on_report(&self, report: &Report) {
        let measures = report.demand.is_some() || report.service_seconds.is_some();
        if measures || report.optional.is_some() {
            self.understands_optional.store(true, Ordering::Relaxed);
        }
        if let Some(share) = report.dimmer.filter(|share| (0.0..=1.0).contains(share)) {
            self.full_share.store(share);
        }
        if let Some(demand) = report.demand {
            let change = demand.saturating_sub(1).clamp(-CHANGE_MAX, CHANGE_MAX);
            let add = |asked: i64| Some(asked.saturating_add(change).max(1));
            let _ = self
                .asked
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
            self.asks.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn understands_optional(&self) -> bool {
        self.understands_optional.load(Ordering::Relaxed)
    }

    /// How many requests at once it has asked for, where it asks.
    pub(crate) fn asked(&self) -> Option<u32> {
        let asked = self.asked.load(Ordering::Relaxed);
        let asks = self.asks.load(Ordering::Relaxed);
        asks.then(|| u32::try_from(asked).unwrap_or(u32::MAX))
    }

    /// A newcomer, or one that is back, has asked for one request.
    pub(crate) fn start_anew(&self) {
        self.asks.store(false, Ordering::Relaxed);
        self.asked.store(1, Ordering::Relaxed);
    }

    /// A full response took so long.
    pub(crate) fn on_full(&self, service: Duration) {
        self.full.add(service);
        // Two at the same moment: one of them counts, which an average does not notice.
        let expected = self.expected_full_s.load();
        let newest = EXPECTED_WEIGHT * (service.as_secs_f64() - expected);
        self.expected_full_s.store(expected + newest);
        self.expectation_fresh.store(true, Ordering::Relaxed);
    }

    /// A response without optional content took so long.
    pub(crate) fn on_reduced(&self, service: Duration) {
        self.reduced.add(service);
    }

    /// Ends a period: what no full response confirmed in it is believed a little less. A replica
    /// that was slow once, and gets reduced requests only since, is so tried again.
    pub(crate) fn doubt_expectation(&self) {
        if !self.expectation_fresh.swap(false, Ordering::Relaxed) {
            let expected = self.expected_full_s.load();
            self.expected_full_s.store(BELIEF_LEFT * expected);
        }
    }

    /// What a full response is expected to take at present.
    pub(crate) fn expected_full_s(&self) -> f64 {
        self.expected_full_s.load()
    }

    /// The share of its answers that are full, as it says itself.
    pub(crate) fn full_share(&self) -> f64 {
        self.full_share.load()
    }

    /// Mean time of full responses since the last call, if there were any.
    pub(crate) fn take_full_mean(&self) -> Option<MeanSample> {
        self.full.take()
    }

    /// The same of responses without optional content.
    pub(crate) fn take_reduced_mean(&self) -> Option<MeanSample> {
        self.reduced.take()
    }
}

/// A mean, and of how many responses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeanSample {
    pub(crate) mean_s: f64,
    pub(crate) count: f64,
}

/// A mean that is taken once a period.
#[derive(Debug, Default)]
struct MeanTime {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl MeanTime {
    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        add_one(&self.count);
    }

    /// Of what was added since the last call, if anything was.
    fn take(&self) -> Option<MeanSample> {
        let sum_s = self.nanos.swap(0, Ordering::Relaxed) as f64 * 1e-9;
        let count = self.count.swap(0, Ordering::Relaxed) as f64;
        let mean_s = sum_s / count;
        (count > 0.0).then_some(MeanSample { mean_s, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(reports: &ReplicaReports, demand: i64) {
        reports.on_report(&Report {
            demand: Some(demand),
            ..Report::default()
        });
    }

    #[test]
    fn old_expectation_is_doubted() {
        let reports = ReplicaReports::new();
        (0..50).for_each(|_| reports.on_full(Duration::from_secs(1)));
        reports.doubt_expectation();
        assert!(reports.expected_full_s() > 0.99, "it was confirmed");
        (0..30).for_each(|_| reports.doubt_expectation());
        assert!(reports.expected_full_s() < 0.1);
    }

    #[test]
    fn whoever_says_what_it_included_can_leave_it_out() {
        let reports = ReplicaReports::new();
        reports.on_report(&Report {
            utilization: Some(0.5),
            ..Report::default()
        });
        assert!(!reports.understands_optional());
        reports.on_report(&Report {
            optional: Some(true),
            ..Report::default()
        });
        assert!(reports.understands_optional());
        assert_eq!(reports.asked(), None, "it asks for nothing by that");
    }

    #[test]
    fn demands_add_up_and_never_to_less_than_one() {
        let reports = ReplicaReports::new();
        assert_eq!(reports.asked(), None);
        [3, 1, 4].iter().for_each(|&demand| ask(&reports, demand));
        assert_eq!(reports.asked(), Some(6));
        ask(&reports, i64::MIN);
        assert_eq!(reports.asked(), Some(1));
        ask(&reports, i64::MAX);
        assert_eq!(reports.asked(), Some(1 + CHANGE_MAX as u32));
        reports.start_anew();
        assert_eq!(reports.asked(), None);
    }
}
