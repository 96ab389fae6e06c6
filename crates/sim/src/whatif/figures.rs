//! Figures of runs and of what really happened, with their intervals over repetitions.

use serde::Serialize;
use tidegate_sentry::ShedReason;

use crate::scenario::{Outcome, Totals};

/// Figures of a run or of what really happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Figures {
    /// Requests per second.
    pub offered_per_second: f64,
    /// Requests sent to a replica, per second.
    pub admitted_per_second: f64,
    /// Answers within the target, per second.
    pub goodput_per_second: f64,
    /// Share of requests answered within the target.
    pub in_target: f64,
    /// Share refused.
    pub shed: f64,
    /// Median response time of what was answered, in seconds.
    pub p50_seconds: f64,
    /// Its 95th percentile.
    pub p95_seconds: f64,
    /// Its 99th percentile.
    pub p99_seconds: f64,
    /// Worth of the answers within the target, per second.
    pub revenue_per_second: f64,
}

impl Figures {
    const PARTS: [fn(&mut Self) -> &mut f64; 9] = [
        |f| &mut f.offered_per_second,
        |f| &mut f.admitted_per_second,
        |f| &mut f.goodput_per_second,
        |f| &mut f.in_target,
        |f| &mut f.shed,
        |f| &mut f.p50_seconds,
        |f| &mut f.p95_seconds,
        |f| &mut f.p99_seconds,
        |f| &mut f.revenue_per_second,
    ];

    /// Part by part.
    pub(super) fn combine(mut self, mut other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        let mut result = Self::default();
        for part in Self::PARTS {
            *part(&mut result) = with(*part(&mut self), *part(&mut other));
        }
        result
    }

    /// Of a run, or of one class of it.
    fn of(totals: &Totals, revenue: f64) -> Self {
        let counts = &totals.counts;
        let offered = counts.offered.max(1) as f64;
        Self {
            offered_per_second: totals.offered(),
            admitted_per_second: counts.admitted as f64 / totals.seconds,
            goodput_per_second: totals.goodput_in_target(),
            in_target: counts.in_target as f64 / offered,
            shed: counts.shed as f64 / offered,
            p50_seconds: totals.histogram.quantile(0.5),
            p95_seconds: totals.histogram.quantile(0.95),
            p99_seconds: totals.histogram.quantile(0.99),
            revenue_per_second: revenue / totals.seconds,
        }
    }
}

/// Figures of one class.
#[derive(Debug, Clone, Serialize)]
pub struct ClassFigures {
    /// Its name.
    pub class: String,
    /// Of its requests alone.
    pub figures: Figures,
    /// Half of each interval, by chance alone; zero for what happened.
    pub plus_minus: Figures,
}

/// Share of all requests that was refused for a reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReasonShare {
    /// Its name.
    pub reason: String,
    /// Share of all requests.
    pub share: f64,
    /// Half of its interval, by chance alone; zero for what happened.
    pub plus_minus: f64,
}

/// All figures of one run.
pub(super) fn figures(outcome: &Outcome) -> Figures {
    Figures::of(&outcome.totals, outcome.revenue())
}

/// Mean, and two standard errors of it.
pub(super) fn mean(all: &[Figures]) -> (Figures, Figures) {
    let count = all.len().max(1) as f64;
    let sum = |total: Figures, one: &Figures| total.combine(*one, |a, b| a + b);
    let mean = all.iter().fold(Figures::default(), sum);
    let mean = mean.combine(mean, |total, _| total / count);
    let squares = all.iter().fold(Figures::default(), |total, one| {
        let distance = one.combine(mean, |a, b| (a - b).powi(2));
        total.combine(distance, |a, b| a + b)
    });
    let chance = squares.combine(mean, |square, _| {
        2.0 * (square / (count - 1.0).max(1.0)).sqrt() / count.sqrt()
    });
    (mean, chance)
}

/// By class, over all repetitions.
pub(super) fn by_class(outcomes: &[Outcome]) -> Vec<ClassFigures> {
    let Some(first) = outcomes.first() else {
        return Vec::new();
    };
    let classes = first.classes.iter().enumerate();
    classes
        .map(|(index, class)| {
            let of = |outcome: &Outcome| {
                let totals = &outcome.class_totals[index];
                let worth = totals.counts.in_target as f64 * outcome.revenues[index];
                Figures::of(totals, worth)
            };
            let all: Vec<Figures> = outcomes.iter().map(of).collect();
            let (figures, plus_minus) = mean(&all);
            ClassFigures {
                class: class.clone(),
                figures,
                plus_minus,
            }
        })
        .collect()
}

/// By reason, over all repetitions; the commonest first.
pub(super) fn by_reason(outcomes: &[Outcome]) -> Vec<ReasonShare> {
    let count = outcomes.len().max(1) as f64;
    let mut reasons: Vec<ReasonShare> = ShedReason::ALL
        .iter()
        .filter_map(|reason| {
            let share = |outcome: &Outcome| {
                let counts = &outcome.totals.counts;
                counts.shed_by[reason.index()] as f64 / counts.offered.max(1) as f64
            };
            let mean = outcomes.iter().map(share).sum::<f64>() / count;
            let squares = outcomes
                .iter()
                .map(|outcome| (share(outcome) - mean).powi(2));
            let variance = squares.sum::<f64>() / (count - 1.0).max(1.0);
            (mean > 0.0).then(|| ReasonShare {
                reason: reason.as_str().to_owned(),
                share: mean,
                plus_minus: 2.0 * (variance / count).sqrt(),
            })
        })
        .collect();
    reasons.sort_by(|a, b| b.share.total_cmp(&a.share));
    reasons
}
