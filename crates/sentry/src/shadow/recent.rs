//! Counters of an engine's classes, since a beginning and over the last seconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use tidegate_control::Timestamp;

use super::status::ShadowClass;
use crate::api::ShedReason;
use crate::class::Class;
use crate::plan::Plan;

/// Seconds that rates cover.
const SECONDS: usize = 10;

/// Counters of a class at one instant.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    arrived: u64,
    admitted: u64,
    in_target: u64,
    shed: [u64; ShedReason::ALL.len()],
}

impl Counts {
    fn of(class: &Class) -> Self {
        let counters = &class.counters;
        Self {
            arrived: counters.arrived(),
            admitted: counters.admitted.load(Ordering::Relaxed),
            in_target: counters.in_target.load(Ordering::Relaxed),
            shed: ShedReason::ALL.map(|reason| counters.shed_for(reason)),
        }
    }

    fn since(&self, before: &Self) -> Self {
        let mut shed = self.shed;
        for (count, before) in shed.iter_mut().zip(before.shed) {
            *count = count.saturating_sub(before);
        }
        Self {
            arrived: self.arrived.saturating_sub(before.arrived),
            admitted: self.admitted.saturating_sub(before.admitted),
            in_target: self.in_target.saturating_sub(before.in_target),
            shed,
        }
    }

    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.admitted += other.admitted;
        self.in_target += other.in_target;
        for (sum, count) in self.shed.iter_mut().zip(other.shed) {
            *sum += count;
        }
    }

    fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }
}

fn counts(plan: &Plan) -> Vec<Counts> {
    plan.classes.iter().map(|class| Counts::of(class)).collect()
}

/// Counters once a second.
#[derive(Debug)]
pub(super) struct Recent {
    begin: Vec<Counts>,
    seconds: VecDeque<(Timestamp, Vec<Counts>)>,
}

impl Recent {
    pub(super) fn new(now: Timestamp, plan: &Plan) -> Self {
        let begin = counts(plan);
        Self {
            seconds: VecDeque::from([(now, begin.clone())]),
            begin,
        }
    }

    /// A second has passed.
    pub(super) fn on_second(&mut self, now: Timestamp, plan: &Plan) {
        if self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back((now, counts(plan)));
    }

    /// Seconds that the rates cover.
    pub(super) fn covered(&self) -> f64 {
        let ends = self.seconds.front().zip(self.seconds.back());
        ends.map_or(0.0, |((from, _), (to, _))| (*to - *from).as_secs_f64())
    }

    /// All classes together, and each.
    pub(super) fn classes(&self, plan: &Plan) -> (ShadowClass, Vec<ShadowClass>) {
        let (mut lately, mut since_begin) = (Counts::default(), Counts::default());
        let mut classes = Vec::with_capacity(plan.classes.len());
        for (index, class) in plan.classes.iter().enumerate() {
            let (recent, all) = self.differences(index);
            lately.add(&recent);
            since_begin.add(&all);
            let target = class.forecast.target();
            classes.push(ShadowClass {
                name: class.name.clone(),
                target_seconds: target.map(|target| target.as_secs_f64()),
                ..self.view(&recent, &all)
            });
        }
        (self.view(&lately, &since_begin), classes)
    }

    /// Counts of a class over the last seconds, and since the beginning.
    fn differences(&self, class: usize) -> (Counts, Counts) {
        let at = |counts: Option<&Vec<Counts>>| -> Counts {
            let class = counts.and_then(|counts| counts.get(class));
            class.copied().unwrap_or_default()
        };
        let last = at(self.seconds.back().map(|(_, counts)| counts));
        let first = at(self.seconds.front().map(|(_, counts)| counts));
        let begin = at(Some(&self.begin));
        (last.since(&first), last.since(&begin))
    }

    fn view(&self, lately: &Counts, all: &Counts) -> ShadowClass {
        let seconds = self.covered();
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let by_reason = |counts: &Counts| -> BTreeMap<&'static str, u64> {
            let pairs = ShedReason::ALL.into_iter().zip(counts.shed);
            let shed = pairs.filter(|(_, count)| *count > 0);
            shed.map(|(reason, count)| (reason.as_str(), count))
                .collect()
        };
        let rates = by_reason(lately).into_iter();
        ShadowClass {
            name: String::new(),
            target_seconds: None,
            offered_per_second: rate(lately.arrived),
            admitted_per_second: rate(lately.admitted),
            in_target_per_second: rate(lately.in_target),
            shed_per_second: rate(lately.shed_total()),
            shed_per_second_by_reason: rates.map(|(reason, count)| (reason, rate(count))).collect(),
            arrived: all.arrived,
            admitted: all.admitted,
            in_target: all.in_target,
            shed: by_reason(all),
        }
    }
}
