//! Counting outcomes: totals, latency histograms and one row per second.
//!
//! Latency runs from the time a request was *meant* to be sent to the last byte of its answer, so
//! a server that stalls is charged for all requests that were due meanwhile (no coordinated
//! omission).

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tidegate_control::Timestamp;

use super::outcome::{Ending, Outcome};
use super::report::{Quantiles, Second, Summary};

/// Three significant digits from 1 µs to an hour; about 200 KB each.
const DIGITS: u8 = 3;
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// A latency histogram in microseconds.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS);
        Self(histogram.expect("the bounds are constants that the library accepts"))
    }
}

impl Latencies {
    pub(super) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros);
    }

    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let histogram = &self.0;
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        (!histogram.is_empty()).then(|| Quantiles {
            mean_ms: histogram.mean() / 1e3,
            p50_ms: ms(0.50),
            p90_ms: ms(0.90),
            p95_ms: ms(0.95),
            p99_ms: ms(0.99),
            p999_ms: ms(0.999),
            max_ms: histogram.max() as f64 / 1e3,
        })
    }
}

/// Counts of endings with the latencies of those that were answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    total: u64,
    ok: u64,
    within_target: u64,
    shed: BTreeMap<Box<str>, u64>,
    server_errors: u64,
    client_errors: u64,
    timeouts: u64,
    connect_errors: u64,
    broken: u64,
    unsent: u64,
    served: Latencies,
    refused: Latencies,
}

impl Tally {
    fn record(&mut self, ending: &Ending, latency: Duration, target: Duration) {
        self.total += 1;
        match ending {
            Ending::Ok => {
                self.ok += 1;
                self.within_target += u64::from(latency <= target);
                self.served.record(latency);
            }
            Ending::Shed(reason) => {
                count(&mut self.shed, reason);
                self.refused.record(latency);
            }
            Ending::ServerError => self.server_errors += 1,
            Ending::ClientError => self.client_errors += 1,
            Ending::Timeout => self.timeouts += 1,
            Ending::ConnectError => self.connect_errors += 1,
            Ending::Broken => self.broken += 1,
            Ending::Unsent => self.unsent += 1,
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            total: self.total,
            ok: self.ok,
            within_target: self.within_target,
            shed: self.shed.values().sum(),
            shed_by_reason: self
                .shed
                .iter()
                .map(|(reason, count)| (reason.to_string(), *count))
                .collect(),
            server_errors: self.server_errors,
            client_errors: self.client_errors,
            timeouts: self.timeouts,
            connect_errors: self.connect_errors,
            broken: self.broken,
            unsent: self.unsent,
            latency: self.served.quantiles(),
            refusal_latency: self.refused.quantiles(),
        }
    }
}

/// Adds one without allocating for a reason already seen.
fn count(counts: &mut BTreeMap<Box<str>, u64>, reason: &str) {
    match counts.get_mut(reason) {
        Some(count) => *count += 1,
        None => drop(counts.insert(reason.into(), 1)),
    }
}

/// Everything that is counted during a run.
#[derive(Debug)]
pub(super) struct Recorder {
    target: Duration,
    /// Requests due earlier are in no total.
    measured_from: Timestamp,
    /// Whole requests: the last try decides, the first one starts the clock.
    pub(super) requests: Tally,
    /// Each try by itself.
    pub(super) attempts: Tally,
    pub(super) kinds: Vec<Tally>,
    pub(super) lag: Latencies,
    pub(super) seconds: Vec<Second>,
    open: OpenSecond,
}

/// The second being filled: offered by due time, the rest by when it was learnt.
#[derive(Debug, Default)]
struct OpenSecond {
    row: Second,
    served: Latencies,
}

impl Recorder {
    pub(super) fn new(target: Duration, kinds: usize, warm_up: Duration) -> Self {
        Self {
            target,
            measured_from: Timestamp::ZERO + warm_up,
            requests: Tally::default(),
            attempts: Tally::default(),
            // One kind is the whole: not counted twice.
            kinds: vec![Tally::default(); if kinds > 1 { kinds } else { 0 }],
            lag: Latencies::default(),
            seconds: Vec::new(),
            open: OpenSecond::default(),
        }
    }

    pub(super) fn on_offered(&mut self) {
        self.open.row.offered += 1;
    }

    pub(super) fn on_outcome(&mut self, outcome: &Outcome) {
        let (ending, latency) = (outcome.ending(), outcome.latency());
        self.open.record(ending, latency, self.target);
        if outcome.due() < self.measured_from {
            return;
        }
        self.requests.record(ending, latency, self.target);
        if let Some(tally) = self.kinds.get_mut(outcome.kind) {
            tally.record(ending, latency, self.target);
        }
        for attempt in &outcome.attempts {
            let latency = attempt.finished - attempt.due;
            self.attempts.record(&attempt.ending, latency, self.target);
        }
        if *ending != Ending::Unsent {
            self.lag.record(outcome.lag);
        }
    }

    /// Closes the open second and returns its row.
    pub(super) fn close_second(&mut self, in_flight: usize) -> &Second {
        let OpenSecond { mut row, served } = std::mem::take(&mut self.open);
        row.in_flight = in_flight as u64;
        row.latency = served.quantiles();
        self.open.row.second = row.second + 1;
        self.seconds.push(row);
        &self.seconds[self.seconds.len() - 1]
    }

    /// Index of the second being filled.
    pub(super) fn open_second(&self) -> u64 {
        self.open.row.second
    }
}

impl OpenSecond {
    fn record(&mut self, ending: &Ending, latency: Duration, target: Duration) {
        let row = &mut self.row;
        match ending {
            Ending::Ok => {
                row.ok += 1;
                row.within_target += u64::from(latency <= target);
                self.served.record(latency);
            }
            Ending::Shed(_) => row.shed += 1,
            Ending::Timeout => row.timeouts += 1,
            Ending::Unsent => row.unsent += 1,
            Ending::ServerError | Ending::ClientError | Ending::ConnectError | Ending::Broken => {
                row.errors += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Attempt;
    use super::*;

    const TARGET: Duration = Duration::from_millis(100);

    fn attempt(due_ms: u64, finished_ms: u64, ending: Ending) -> Attempt {
        let at = |ms| Timestamp::from_nanos(ms * 1_000_000);
        Attempt {
            due: at(due_ms),
            finished: at(finished_ms),
            ending,
            retry_after: None,
        }
    }

    fn outcome(attempts: Vec<Attempt>) -> Outcome {
        Outcome {
            kind: 0,
            lag: Duration::ZERO,
            attempts,
        }
    }

    #[test]
    fn retried_request_is_judged_from_its_first_due_time() {
        let mut recorder = Recorder::new(TARGET, 1, Duration::ZERO);
        recorder.on_outcome(&outcome(vec![
            attempt(0, 5, Ending::Shed("predicted".into())),
            attempt(200, 250, Ending::Ok),
        ]));
        let requests = recorder.requests.summary();
        assert_eq!(
            (requests.total, requests.ok, requests.within_target),
            (1, 1, 0)
        );
        let attempts = recorder.attempts.summary();
        assert_eq!(
            (attempts.total, attempts.ok, attempts.within_target),
            (2, 1, 1)
        );
        assert_eq!(attempts.shed_by_reason["predicted"], 1);
    }

    #[test]
    fn what_was_due_during_the_warm_up_is_in_its_second_alone() {
        let mut recorder = Recorder::new(TARGET, 1, Duration::from_secs(1));
        recorder.on_outcome(&outcome(vec![attempt(999, 1050, Ending::Ok)]));
        recorder.on_outcome(&outcome(vec![attempt(1000, 1050, Ending::Ok)]));
        assert_eq!(recorder.requests.summary().total, 1);
        assert_eq!(recorder.close_second(0).ok, 2);
    }

    #[test]
    fn every_request_is_in_exactly_one_class() {
        let endings = [
            Ending::Ok,
            Ending::Shed("503".into()),
            Ending::ServerError,
            Ending::ClientError,
            Ending::Timeout,
            Ending::ConnectError,
            Ending::Broken,
            Ending::Unsent,
        ];
        let mut recorder = Recorder::new(TARGET, 1, Duration::ZERO);
        for ending in endings {
            recorder.on_offered();
            recorder.on_outcome(&outcome(vec![attempt(0, 1, ending)]));
        }
        let all = recorder.requests.summary();
        assert_eq!(all.total, 8);
        assert_eq!(all.total, all.ok + all.shed + all.failed() + all.unsent);
        let row = recorder.close_second(0);
        assert_eq!(
            row.offered,
            row.ok + row.shed + row.timeouts + row.errors + row.unsent
        );
    }

    #[test]
    fn seconds_follow_each_other_and_start_empty() {
        let mut recorder = Recorder::new(TARGET, 1, Duration::ZERO);
        recorder.on_outcome(&outcome(vec![attempt(0, 10, Ending::Ok)]));
        assert_eq!(recorder.close_second(3).in_flight, 3);
        let empty = recorder.close_second(0);
        assert_eq!((empty.second, empty.ok), (1, 0));
        assert!(empty.latency.is_none());
    }

    #[test]
    fn quantiles_of_nothing_are_nothing() {
        assert!(Latencies::default().quantiles().is_none());
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_millis(7));
        let quantiles = latencies.quantiles().unwrap();
        assert!((quantiles.p99_ms - 7.0).abs() < 0.01);
    }
}
