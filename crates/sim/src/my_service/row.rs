//! What came of a service.

use serde::Serialize;

use crate::scenario::{Outcome, Totals};

/// What came of one mode, for one application or for all of them.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceRow {
    /// The application, where the file has several; `all` for their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// What protected the service.
    pub mode: String,
    /// Answers within the target, per second.
    pub goodput_per_second: f64,
    /// Of all attempts, the share answered within the target.
    pub in_target: f64,
    /// Of all attempts, the share refused.
    pub shed: f64,
    /// Of all attempts, the share whose client left or whose replica failed.
    pub lost: f64,
    /// Median response time of what was answered, in seconds.
    pub p50_seconds: f64,
    /// Its 95th percentile.
    pub p95_seconds: f64,
    /// Its 99th percentile.
    pub p99_seconds: f64,
    /// Mean utilization of the replicas.
    pub utilization: f64,
    /// What was earned, per second.
    pub revenue_per_second: f64,
    /// By class: name, share answered within the target.
    pub classes: Vec<(String, f64)>,
    /// Goodput over time: end of the second, answers within the target per second.
    #[serde(skip)]
    pub over_time: Vec<(f64, f64)>,
    /// Replicas that get requests over time.
    #[serde(skip)]
    pub replicas_over_time: Vec<(f64, f64)>,
}

/// The name of the sum of all applications.
pub const ALL: &str = "all";

impl ServiceRow {
    pub(super) fn of(application: Option<&str>, mode: &str, outcome: &Outcome) -> Self {
        let classes = outcome.classes.iter().zip(&outcome.class_totals);
        Self {
            application: application.map(str::to_owned),
            utilization: outcome.utilization,
            revenue_per_second: outcome.revenue() / outcome.totals.seconds,
            classes: classes
                .map(|(name, totals)| (name.clone(), totals.in_target_share()))
                .collect(),
            over_time: outcome.series("goodput_in_target").unwrap_or_default(),
            replicas_over_time: outcome.series("replicas").unwrap_or_default(),
            ..Self::of_totals(mode, &outcome.totals)
        }
    }

    fn of_totals(mode: &str, totals: &Totals) -> Self {
        let counts = &totals.counts;
        let offered = counts.offered.max(1) as f64;
        let quantile = |share| totals.histogram.quantile(share);
        Self {
            application: None,
            mode: mode.to_owned(),
            goodput_per_second: totals.goodput_in_target(),
            in_target: counts.in_target as f64 / offered,
            shed: counts.shed as f64 / offered,
            lost: (counts.abandoned + counts.dropped) as f64 / offered,
            p50_seconds: quantile(0.5),
            p95_seconds: quantile(0.95),
            p99_seconds: quantile(0.99),
            utilization: f64::NAN,
            revenue_per_second: 0.0,
            classes: Vec::new(),
            over_time: Vec::new(),
            replicas_over_time: Vec::new(),
        }
    }

    /// All applications together; each has its own targets and classes.
    pub(super) fn of_all(mode: &str, outcomes: &[Outcome]) -> Option<Self> {
        let (first, rest) = outcomes.split_first()?;
        let mut totals = first.totals.clone();
        rest.iter()
            .for_each(|outcome| totals.merge(&outcome.totals));
        let mut over_time = first.series("goodput_in_target").unwrap_or_default();
        for outcome in rest {
            let more = outcome.series("goodput_in_target").unwrap_or_default();
            let pairs = over_time.iter_mut().zip(more);
            pairs.for_each(|((_, sum), (_, value))| *sum += value);
        }
        let share: f64 = outcomes.iter().map(|outcome| outcome.utilization).sum();
        let revenue: f64 = outcomes.iter().map(Outcome::revenue).sum();
        Some(Self {
            application: Some(ALL.to_owned()),
            utilization: share / outcomes.len() as f64,
            revenue_per_second: revenue / totals.seconds,
            over_time,
            ..Self::of_totals(mode, &totals)
        })
    }
}
