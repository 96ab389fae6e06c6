//! What a run was: time series and totals.

use serde::Serialize;
use tidegate_sentry::ShedReason;

use crate::stats::{Histogram, Moments};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The replica answered in full.
    Served,
    /// The answer was a stream, or read slowly; it ended as it should.
    Streamed,
    /// The protection refused it.
    Shed(ShedReason),
    /// The replica failed or refused it.
    Dropped,
    /// The client left.
    Abandoned,
}

/// Attempts by what happened to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Attempts that arrived, retries included.
    pub offered: u64,
    /// Of them, first attempts.
    pub fresh: u64,
    /// Attempts sent to a replica.
    pub admitted: u64,
    /// Attempts answered in full: the goodput.
    pub served: u64,
    /// Of them, within the target; all of them where there is none.
    pub in_target: u64,
    /// Of those answered, without optional content.
    pub degraded: u64,
    /// Streams that ended.
    pub streamed: u64,
    /// Attempts refused.
    pub shed: u64,
    /// Attempts that the replica failed.
    pub dropped: u64,
    /// Attempts whose client left.
    pub abandoned: u64,
    /// Requests whose last attempt failed.
    pub given_up: u64,
    /// Of those refused, the ones that found a less important request in service.
    pub displaced: u64,
    /// Refusals by reason, in the order of [`ShedReason::ALL`].
    pub shed_by: [u64; ShedReason::ALL.len()],
}

impl Counts {
    /// Attempts that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.served + self.streamed + self.shed + self.dropped + self.abandoned
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.fresh += other.fresh;
        self.admitted += other.admitted;
        self.served += other.served;
        self.in_target += other.in_target;
        self.degraded += other.degraded;
        self.streamed += other.streamed;
        self.shed += other.shed;
        self.dropped += other.dropped;
        self.abandoned += other.abandoned;
        self.given_up += other.given_up;
        self.displaced += other.displaced;
        for (sum, part) in self.shed_by.iter_mut().zip(other.shed_by) {
            *sum += part;
        }
    }

    fn by_name(&self, name: &str) -> Option<u64> {
        Some(match name {
            "offered" => self.offered,
            "fresh" => self.fresh,
            "admitted" => self.admitted,
            "goodput" => self.served,
            "goodput_in_target" => self.in_target,
            "degraded" => self.degraded,
            "streamed" => self.streamed,
            "shed" => self.shed,
            "dropped" => self.dropped,
            "abandoned" => self.abandoned,
            "given_up" => self.given_up,
            "displaced" => self.displaced,
            reason => {
                let word = reason.strip_prefix("shed.")?;
                let found = ShedReason::ALL.iter().find(|r| r.as_str() == word)?;
                self.shed_by[found.index()]
            }
        })
    }
}

/// Response times of one interval in seconds; NaN where nothing was served.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
}

/// One interval of the time series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its end in seconds.
    pub at: f64,
    /// All classes together.
    pub counts: Counts,
    /// By class.
    pub classes: Vec<Counts>,
    /// Response times of what was served.
    pub response: Times,
    /// 95th percentile of what was served with optional content.
    pub full_p95: f64,
    /// Mean waiting time in the protector of what was admitted.
    pub waiting: f64,
    /// Mean number of requests inside replicas.
    pub in_flight: f64,
    /// Mean number of requests waiting in the protector.
    pub queued: f64,
    /// Mean utilization of the replicas.
    pub utilization: f64,
    /// Mean capacity in cores at speed 1.
    pub capacity: f64,
    /// Mean number of replicas in the pool that are alive and not drained.
    pub replicas: f64,
    /// The protector's gauges, in the order of [`Outcome::gauges`].
    pub gauges: Vec<f64>,
}

/// Sums over everything after the warm-up.
#[derive(Debug, Clone)]
pub struct Totals {
    /// Length in seconds.
    pub seconds: f64,
    /// What happened.
    pub counts: Counts,
    /// Response times of what was served.
    pub response: Moments,
    /// The same, for quantiles.
    pub histogram: Histogram,
    /// Response times of what was served with optional content.
    pub full: Histogram,
    /// Waiting time in the protector of what was admitted.
    pub waiting: Moments,
}

impl Totals {
    /// Takes all of another part of the same time.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.response.merge(&other.response);
        self.histogram.merge(&other.histogram);
        self.full.merge(&other.full);
        self.waiting.merge(&other.waiting);
    }

    pub(super) fn new(seconds: f64) -> Self {
        Self {
            seconds,
            counts: Counts::default(),
            response: Moments::default(),
            histogram: Histogram::default(),
            full: Histogram::default(),
            waiting: Moments::default(),
        }
    }

    /// Answers per second.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.counts.served as f64 / self.seconds
    }

    /// Answers within the target per second.
    #[must_use]
    pub fn goodput_in_target(&self) -> f64 {
        self.counts.in_target as f64 / self.seconds
    }

    /// Attempts per second.
    #[must_use]
    pub fn offered(&self) -> f64 {
        self.counts.offered as f64 / self.seconds
    }

    /// Share of attempts answered within the target.
    #[must_use]
    pub fn in_target_share(&self) -> f64 {
        self.counts.in_target as f64 / self.counts.offered as f64
    }

    /// Share of attempts that were refused while a less important request was in service.
    #[must_use]
    pub fn displaced_share(&self) -> f64 {
        self.counts.displaced as f64 / self.counts.offered as f64
    }

    /// Share of answers with optional content.
    #[must_use]
    pub fn full_share(&self) -> f64 {
        1.0 - self.counts.degraded as f64 / self.counts.served as f64
    }

    /// Share of attempts refused.
    #[must_use]
    pub fn shed_share(&self) -> f64 {
        self.counts.shed as f64 / self.counts.offered as f64
    }

    /// Kleinrock's power (LQR-proxy eq. 1): goodput over `capacity` (per second), over mean
    /// response time in units of `service` (seconds).
    #[must_use]
    pub fn power(&self, capacity: f64, service: f64) -> f64 {
        (self.goodput() / capacity) / (self.response.mean() / service)
    }
}

/// A run of a scenario.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Length of an interval in seconds.
    pub interval: f64,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Names of the protector's gauges.
    pub gauges: Vec<&'static str>,
    /// The time series.
    pub rows: Vec<Row>,
    /// Everything after the warm-up.
    pub totals: Totals,
    /// The same by class.
    pub class_totals: Vec<Totals>,
    /// What the classes are worth, per request in time.
    pub revenues: Vec<f64>,
    /// The most that could have been earned after the warm-up.
    pub revenue_optimum: f64,
    /// Mean utilization of the replicas after the warm-up.
    pub utilization: f64,
    /// The whole run, warm-up included: `offered == ended() + unfinished`.
    pub ledger: Counts,
    /// Attempts that were still under way at the end.
    pub unfinished: u64,
    /// Answers computed for clients that had left.
    pub wasted: u64,
    /// Simulated events.
    pub simulated: u64,
}

impl Outcome {
    /// The series that every outcome has; counts are per second. Besides them there are
    /// `shed.<reason>`, `class.<name>.<count>` and `gauge.<name>`.
    pub const SERIES: [&'static str; 24] = [
        "offered",
        "fresh",
        "admitted",
        "goodput",
        "goodput_in_target",
        "degraded",
        "streamed",
        "shed",
        "dropped",
        "abandoned",
        "given_up",
        "displaced",
        "response_mean",
        "response_p50",
        "response_p95",
        "response_p99",
        "response_max",
        "full_p95",
        "waiting",
        "in_flight",
        "queued",
        "utilization",
        "capacity",
        "replicas",
    ];

    /// What was earned after the warm-up.
    #[must_use]
    pub fn revenue(&self) -> f64 {
        let classes = self.class_totals.iter().zip(&self.revenues);
        classes
            .map(|(totals, revenue)| totals.counts.in_target as f64 * revenue)
            .sum()
    }

    /// A series by its name: end of interval in seconds, and value.
    #[must_use]
    pub fn series(&self, name: &str) -> Option<Vec<(f64, f64)>> {
        self.rows
            .iter()
            .map(|row| Some((row.at, self.value(row, name)?)))
            .collect()
    }

    fn value(&self, row: &Row, name: &str) -> Option<f64> {
        if let Some(gauge) = name.strip_prefix("gauge.") {
            let at = self.gauges.iter().position(|known| *known == gauge)?;
            return row.gauges.get(at).copied();
        }
        if let Some(rest) = name.strip_prefix("class.") {
            let (class, count) = rest.rsplit_once('.')?;
            // A reason has a dot of its own: class.gold.shed.predicted.
            let (class, count) = match class.strip_suffix(".shed") {
                Some(class) => (class, format!("shed.{count}")),
                None => (class, count.to_owned()),
            };
            let at = self.classes.iter().position(|known| known == class)?;
            return Some(row.classes[at].by_name(&count)? as f64 / self.interval);
        }
        Some(match name {
            "response_mean" => row.response.mean,
            "response_p50" => row.response.p50,
            "response_p95" => row.response.p95,
            "response_p99" => row.response.p99,
            "response_max" => row.response.max,
            "full_p95" => row.full_p95,
            "waiting" => row.waiting,
            "in_flight" => row.in_flight,
            "queued" => row.queued,
            "utilization" => row.utilization,
            "capacity" => row.capacity,
            "replicas" => row.replicas,
            count => row.counts.by_name(count)? as f64 / self.interval,
        })
    }
}
