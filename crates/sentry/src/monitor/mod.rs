//! Monitors: what happened since the last look (002 §2).
//!
//! Requests add to atomics ([`Tally`], the counters of classes and replicas); the adaptation
//! takes the difference at each tick ([`Interval`]) and adds ticks up to control intervals.

mod gaps;
mod histogram;
mod moments;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use gaps::{AtomicGaps, Gaps};
pub(crate) use histogram::{AtomicHistogram, Histogram};
pub(crate) use moments::MomentsMeter;

use crate::api::{Report, is_cost, is_time};
use crate::atomic::add_one;
use crate::class::Class;
use crate::replica_reports::CHANGE_MAX;

/// Samples of the requests that were served, since the last tick.
#[derive(Debug)]
pub(crate) struct Tally {
    /// From arrival to end.
    pub(crate) response: AtomicHistogram,
    /// From admission to end.
    pub(crate) residence: AtomicHistogram,
    /// Between arrivals.
    pub(crate) gaps: AtomicGaps,
    pub(crate) reports: Reports,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            response: AtomicHistogram::new(),
            residence: AtomicHistogram::new(),
            gaps: AtomicGaps::new(),
            reports: Reports::default(),
        }
    }

    /// Moves everything into `interval`.
    pub(crate) fn drain_into(&self, interval: &mut Interval) {
        self.response.drain_into(&mut interval.response);
        self.residence.drain_into(&mut interval.residence);
        self.gaps.drain_into(&mut interval.gaps);
        let (sum, count) = self.reports.take();
        interval.utilization_sum += sum;
        interval.utilization_count += count;
    }
}

/// Utilization as the replicas report it.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// In billionths, so that adding is one atomic operation.
    sum_nano: AtomicU64,
    count: AtomicU64,
    bad: AtomicU64,
}

/// Utilization above 1 by rounding or by a second of boost is 1; above this it is nonsense.
const UTILIZATION_MAX: f64 = 1.5;

impl Reports {
    /// Takes what is sound in a report, counts what is not.
    pub(crate) fn on_report(&self, report: &Report) {
        if let Some(utilization) = report.utilization {
            if (0.0..=UTILIZATION_MAX).contains(&utilization) {
                let nano = (utilization.min(1.0) * 1e9).round() as u64;
                self.sum_nano.fetch_add(nano, Ordering::Relaxed);
                add_one(&self.count);
            } else {
                add_one(&self.bad);
            }
        }
        if report
            .dimmer
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            add_one(&self.bad);
        }
        if report
            .demand
            .is_some_and(|change| change.unsigned_abs() > CHANGE_MAX.unsigned_abs())
        {
            add_one(&self.bad);
        }
        if report.cost.is_some_and(|cost| !is_cost(cost)) {
            add_one(&self.bad);
        }
        let times = [
            report.service_seconds,
            report.cpu_seconds,
            report.io_seconds,
            report.queue_seconds,
        ];
        for _ in times.into_iter().flatten().filter(|&time| !is_time(time)) {
            add_one(&self.bad);
        }
    }

    pub(crate) fn bad(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }

    fn take(&self) -> (f64, f64) {
        let sum = self.sum_nano.swap(0, Ordering::Relaxed) as f64 * 1e-9;
        (sum, self.count.swap(0, Ordering::Relaxed) as f64)
    }
}

/// Counts since the start, over all classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) arrived: u64,
    pub(crate) admitted: u64,
    pub(crate) served: u64,
    pub(crate) in_target: u64,
    pub(crate) dropped: u64,
    pub(crate) abandoned: u64,
    pub(crate) shed: u64,
    pub(crate) refused_by_gate: u64,
}

impl Totals {
    pub(crate) fn of<'a>(classes: impl IntoIterator<Item = &'a Class>) -> Self {
        let mut totals = Self::default();
        for class in classes {
            let counters = &class.counters;
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            totals.arrived += load(&counters.arrived);
            totals.admitted += load(&counters.admitted);
            totals.served += load(&counters.served);
            totals.in_target += load(&counters.in_target);
            totals.dropped += load(&counters.dropped);
            totals.abandoned += load(&counters.abandoned);
            totals.shed += counters.shed_total();
            totals.refused_by_gate += counters.refused_by_gate();
        }
        totals
    }

    /// What was added since `before`; nothing where a class has gone with its counts.
    fn since(self, before: Self) -> Self {
        Self {
            arrived: self.arrived.saturating_sub(before.arrived),
            admitted: self.admitted.saturating_sub(before.admitted),
            served: self.served.saturating_sub(before.served),
            in_target: self.in_target.saturating_sub(before.in_target),
            dropped: self.dropped.saturating_sub(before.dropped),
            abandoned: self.abandoned.saturating_sub(before.abandoned),
            shed: self.shed.saturating_sub(before.shed),
            refused_by_gate: self.refused_by_gate.saturating_sub(before.refused_by_gate),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            arrived: self.arrived + other.arrived,
            admitted: self.admitted + other.admitted,
            served: self.served + other.served,
            in_target: self.in_target + other.in_target,
            dropped: self.dropped + other.dropped,
            abandoned: self.abandoned + other.abandoned,
            shed: self.shed + other.shed,
            refused_by_gate: self.refused_by_gate + other.refused_by_gate,
        }
    }
}

/// What happened in a stretch of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interval {
    pub(crate) seconds: f64,
    pub(crate) counts: Totals,
    pub(crate) response: Histogram,
    pub(crate) residence: Histogram,
    pub(crate) gaps: Gaps,
    utilization_sum: f64,
    utilization_count: f64,
}

impl Interval {
    /// Adds a tick of the given length with the counts since `before`.
    pub(crate) fn add_tick(&mut self, length: Duration, counts: Totals, before: Totals) {
        self.seconds += length.as_secs_f64();
        self.counts = self.counts.plus(counts.since(before));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.counts = self.counts.plus(other.counts);
        self.response.merge(&other.response);
        self.residence.merge(&other.residence);
        self.gaps.merge(&other.gaps);
        self.utilization_sum += other.utilization_sum;
        self.utilization_count += other.utilization_count;
    }

    pub(crate) fn clear(&mut self) {
        self.seconds = 0.0;
        self.counts = Totals::default();
        self.response.clear();
        self.residence.clear();
        self.gaps.clear();
        self.utilization_sum = 0.0;
        self.utilization_count = 0.0;
    }

    /// Whether there were samples enough to act on. Few of them mean low traffic only where the
    /// gate shed nothing: otherwise a gate that is nearly closed would never learn that it
    /// may open again.
    pub(crate) fn has_samples(&self, min_samples: f64) -> bool {
        let samples = self.response.count();
        samples >= min_samples || (samples > 0.0 && self.counts.refused_by_gate > 0)
    }

    /// Mean of the utilizations reported, if any was.
    pub(crate) fn utilization(&self) -> Option<f64> {
        (self.utilization_count > 0.0).then(|| self.utilization_sum / self.utilization_count)
    }

    /// Mean time in the central queue of those that were served.
    pub(crate) fn waiting_seconds(&self) -> Option<f64> {
        let response = self.response.mean_seconds()?;
        Some((response - self.residence.mean_seconds()?).max(0.0))
    }

    pub(crate) fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 {
            count as f64 / self.seconds
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(utilization: f64) -> Report {
        Report {
            utilization: Some(utilization),
            ..Report::default()
        }
    }

    #[test]
    fn nonsense_in_reports_is_counted_and_nothing_else() {
        let tally = Tally::new();
        for utilization in [f64::NAN, f64::INFINITY, -0.1, 80.0] {
            tally.reports.on_report(&report(utilization));
        }
        tally.reports.on_report(&Report {
            utilization: Some(0.5),
            service_seconds: Some(f64::NAN),
            ..Report::default()
        });
        for demand in [i64::MIN, i64::MAX, CHANGE_MAX] {
            tally.reports.on_report(&Report {
                demand: Some(demand),
                ..Report::default()
            });
        }
        tally.reports.on_report(&report(1.2));
        let mut interval = Interval::default();
        tally.drain_into(&mut interval);
        assert_eq!(interval.utilization(), Some(0.75));
        assert_eq!(tally.reports.bad(), 7);
    }

    #[test]
    fn few_samples_behind_a_closed_gate_are_no_low_traffic() {
        let tally = Tally::new();
        let mut interval = Interval::default();
        interval.counts.refused_by_gate = 40;
        assert!(!interval.has_samples(5.0));
        tally.response.record(Duration::from_millis(80));
        tally.drain_into(&mut interval);
        assert!(interval.has_samples(5.0));
        interval.counts.refused_by_gate = 0;
        assert!(!interval.has_samples(5.0) && interval.has_samples(1.0));
    }

    #[test]
    fn waiting_is_response_without_residence() {
        let tally = Tally::new();
        tally.response.record(Duration::from_millis(300));
        tally.residence.record(Duration::from_millis(100));
        let mut interval = Interval::default();
        assert_eq!(interval.waiting_seconds(), None);
        tally.drain_into(&mut interval);
        assert!((interval.waiting_seconds().unwrap() - 0.2).abs() < 1e-9);
    }
}
