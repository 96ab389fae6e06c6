//! Figures of the last seconds, from pictures of the counters taken once a second.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_sentry::ClassStatus;

use crate::metrics::{ClassTimes, Snapshot};

/// Seconds that the recent figures look back; one picture is taken a second.
const PICTURES: usize = 10;
/// They look back this far.
const SPAN: Duration = Duration::from_secs(PICTURES as u64);

/// Figures of the last seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct Recent {
    /// Of which application.
    pub(super) application: String,
    /// Seconds they cover.
    pub(super) seconds: f64,
    /// Of all classes together.
    pub(super) total: Rates,
    /// By class.
    pub(super) classes: BTreeMap<String, Rates>,
    /// Service time by replica's id, in seconds: median and 99th percentile.
    #[serde(skip)]
    pub(super) replicas: Vec<ReplicaTimes>,
}

/// What a replica took lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct ReplicaTimes {
    /// Requests answered per second.
    pub(super) served_per_second: f64,
    /// Median of its service time.
    pub(super) service_p50_seconds: Option<f64>,
    /// 99th percentile of its service time.
    pub(super) service_p99_seconds: Option<f64>,
}

/// What happened per second, and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct Rates {
    /// Requests that arrived.
    pub(super) offered_per_second: f64,
    /// Requests that were admitted.
    pub(super) admitted_per_second: f64,
    /// Requests that were served.
    pub(super) served_per_second: f64,
    /// Goodput: answered within the target.
    pub(super) in_target_per_second: f64,
    /// Served without optional content.
    pub(super) browned_out_per_second: f64,
    /// Requests that were shed.
    pub(super) shed_per_second: f64,
    /// Refusals by reason; only reasons that occurred.
    pub(super) shed_per_second_by_reason: BTreeMap<&'static str, f64>,
    /// What a dry run would have refused.
    pub(super) would_shed_per_second: f64,
    /// The same by reason; only reasons that occurred.
    pub(super) would_shed_per_second_by_reason: BTreeMap<&'static str, f64>,
    /// Requests that a replica failed.
    pub(super) failed_per_second: f64,
    /// Requests whose client left before the answer.
    pub(super) abandoned_per_second: f64,
    /// Revenue of the requests that were answered within their target.
    pub(super) revenue_earned_per_second: f64,
    /// Revenue of the others.
    pub(super) revenue_lost_per_second: f64,
    /// Median of the waiting time in the queue.
    pub(super) waiting_p50_seconds: Option<f64>,
    /// 99th percentile of the waiting time.
    pub(super) waiting_p99_seconds: Option<f64>,
    /// Median of the service time in the replicas.
    pub(super) service_p50_seconds: Option<f64>,
    /// 99th percentile of the service time.
    pub(super) service_p99_seconds: Option<f64>,
    /// Response time: waiting and service together.
    pub(super) response_p50_seconds: Option<f64>,
    /// 95th percentile of the response time.
    pub(super) response_p95_seconds: Option<f64>,
    /// 99th percentile of the response time.
    pub(super) response_p99_seconds: Option<f64>,
    /// Kleinrock's power: goodput per second over the mean response time in seconds, where
    /// anything was answered.
    pub(super) power: Option<f64>,
}

/// One picture of all counters.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) at: Instant,
    pub(super) classes: Vec<ClassStatus>,
    pub(super) times: Vec<ClassTimes>,
    pub(super) replicas: Vec<Snapshot>,
}

/// Pictures of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Pictures(VecDeque<Picture>);

impl Pictures {
    /// Those before the first of the last ten seconds are forgotten.
    pub(super) fn add(&mut self, picture: Picture) {
        let old = |at: Instant| picture.at.saturating_duration_since(at) >= SPAN;
        while self.0.len() > PICTURES || self.0.get(1).is_some_and(|second| old(second.at)) {
            self.0.pop_front();
        }
        self.0.push_back(picture);
    }

    /// Whether as many requests had arrived at each of them, for about ten seconds.
    pub(super) fn are_quiet_since(&self, arrivals: u64) -> bool {
        let arrived =
            |picture: &Picture| -> u64 { picture.classes.iter().map(|class| class.arrived).sum() };
        let span = self.0.front().map(|first| first.at.elapsed());
        span.is_some_and(|span| span >= SPAN)
            && self.0.iter().all(|picture| arrivals == arrived(picture))
    }

    /// Over all pictures.
    pub(super) fn recent(&self) -> Recent {
        self.over(self.0.front())
    }

    /// The same, with the application's name.
    pub(super) fn recent_of(&self, application: &str) -> Recent {
        Recent {
            application: application.to_owned(),
            ..self.recent()
        }
    }

    /// Between the last two pictures.
    pub(super) fn last_second(&self) -> Recent {
        let before_last = self.0.len().checked_sub(2);
        self.over(before_last.and_then(|index| self.0.get(index)))
    }

    fn over(&self, first: Option<&Picture>) -> Recent {
        let (Some(first), Some(last)) = (first, self.0.back()) else {
            return Recent::default();
        };
        Stretch::new(first, last).recent()
    }
}

/// Two pictures and the time between them.
struct Stretch<'a> {
    first: &'a Picture,
    last: &'a Picture,
    seconds: f64,
}

impl<'a> Stretch<'a> {
    fn new(first: &'a Picture, last: &'a Picture) -> Self {
        let span: Duration = last.at.saturating_duration_since(first.at);
        Self {
            first,
            last,
            seconds: span.as_secs_f64(),
        }
    }

    fn recent(&self) -> Recent {
        let classes = self.last.classes.iter().enumerate();
        let replicas = self.last.replicas.iter().enumerate();
        Recent {
            application: String::new(),
            seconds: self.seconds,
            classes: classes
                .map(|(index, class)| (class.name.clone(), self.class(index, class)))
                .collect(),
            total: self.total(),
            replicas: replicas
                .map(|(index, now)| self.replica(index, now))
                .collect(),
        }
    }

    fn class(&self, index: usize, now: &ClassStatus) -> Rates {
        let then = self
            .first
            .classes
            .iter()
            .find(|class| class.name == now.name);
        let times = self.last.times.get(index).cloned().unwrap_or_default();
        let before = self.first.times.get(index);
        let times = before.map_or_else(|| times.clone(), |before| times.since(before));
        let mut rates = Counted::default();
        rates.add(now, 1.0);
        if let Some(then) = then {
            rates.add(then, -1.0);
        }
        rates.rates(self.seconds, &times)
    }

    fn total(&self) -> Rates {
        let (mut counted, mut times) = (Counted::default(), ClassTimes::default());
        for (index, class) in self.last.classes.iter().enumerate() {
            counted.add(class, 1.0);
            if let Some(now) = self.last.times.get(index) {
                let then = self.first.times.get(index);
                times.add(&then.map_or_else(|| now.clone(), |then| now.since(then)));
            }
        }
        for class in &self.first.classes {
            counted.add(class, -1.0);
        }
        counted.rates(self.seconds, &times)
    }

    fn replica(&self, index: usize, now: &Snapshot) -> ReplicaTimes {
        let then = self.first.replicas.get(index);
        let new = then.map_or_else(|| now.clone(), |then| now.since(then));
        ReplicaTimes {
            served_per_second: new.count() as f64 / self.seconds.max(1e-9),
            service_p50_seconds: quantile(&new, 0.5),
            service_p99_seconds: quantile(&new, 0.99),
        }
    }
}

fn quantile(of: &Snapshot, share: f64) -> Option<f64> {
    of.quantile(share).map(|time| time.as_secs_f64())
}

/// Counters, of which an earlier picture is subtracted.
#[derive(Debug, Default)]
struct Counted {
    arrived: f64,
    admitted: f64,
    served: f64,
    in_target: f64,
    degraded: f64,
    failed: f64,
    abandoned: f64,
    would_shed: BTreeMap<&'static str, f64>,
    earned: f64,
    lost: f64,
    shed: BTreeMap<&'static str, f64>,
}

impl Counted {
    fn add(&mut self, class: &ClassStatus, sign: f64) {
        self.arrived += sign * class.arrived as f64;
        self.admitted += sign * class.admitted as f64;
        self.served += sign * class.served as f64;
        self.in_target += sign * class.in_target as f64;
        self.degraded += sign * class.degraded as f64;
        self.failed += sign * class.dropped as f64;
        self.abandoned += sign * class.abandoned as f64;
        self.earned += sign * class.revenue_earned;
        self.lost += sign * class.revenue_lost.iter().map(|of| of.1).sum::<f64>();
        for &(reason, count) in &class.shed {
            *self.shed.entry(reason).or_default() += sign * count as f64;
        }
        for &(reason, count) in &class.would_shed {
            *self.would_shed.entry(reason).or_default() += sign * count as f64;
        }
    }

    fn rates(&self, seconds: f64, times: &ClassTimes) -> Rates {
        let rate = |count: f64| count.max(0.0) / seconds.max(1e-9);
        let by_reason = |counts: &BTreeMap<&'static str, f64>| {
            let occurred = counts.iter().filter(|(_, count)| **count > 0.0);
            occurred.map(|(&why, &count)| (why, rate(count))).collect()
        };
        Rates {
            offered_per_second: rate(self.arrived),
            admitted_per_second: rate(self.admitted),
            served_per_second: rate(self.served),
            in_target_per_second: rate(self.in_target),
            browned_out_per_second: rate(self.degraded),
            shed_per_second: rate(self.shed.values().sum()),
            shed_per_second_by_reason: by_reason(&self.shed),
            would_shed_per_second: rate(self.would_shed.values().sum()),
            would_shed_per_second_by_reason: by_reason(&self.would_shed),
            failed_per_second: rate(self.failed),
            abandoned_per_second: rate(self.abandoned),
            revenue_earned_per_second: rate(self.earned),
            revenue_lost_per_second: rate(self.lost),
            waiting_p50_seconds: quantile(&times.waiting, 0.5),
            waiting_p99_seconds: quantile(&times.waiting, 0.99),
            service_p50_seconds: quantile(&times.service, 0.5),
            service_p99_seconds: quantile(&times.service, 0.99),
            response_p50_seconds: quantile(&times.response, 0.5),
            response_p95_seconds: quantile(&times.response, 0.95),
            response_p99_seconds: quantile(&times.response, 0.99),
            power: power(rate(self.in_target), &times.response),
        }
    }
}

/// 000 eq. 1 without its constants, capacity and service time, which a proxy is not given. It is
/// greatest where response times begin to rise faster than goodput.
fn power(goodput: f64, response: &Snapshot) -> Option<f64> {
    let mean_s = response.sum_seconds() / response.count() as f64;
    (mean_s > 0.0).then(|| goodput / mean_s)
}
