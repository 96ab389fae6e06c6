//! Writes a run down while it happens.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::ClassId;

use super::load::Attempt;
use super::outcome::{Counts, Fate, Outcome, Row, Times, Totals};
use super::protector::Protector;
use super::revenue::Offers;
use super::spec::Scenario;
use crate::stats::{Histogram, Moments, TimeAverage};

#[derive(Debug)]
pub(super) struct Recorder {
    classes: Vec<Class>,
    interval: Interval,
    rows: Vec<Row>,
    gauges: Vec<&'static str>,
    warm_up: Timestamp,
    totals: Totals,
    class_totals: Vec<Totals>,
    ledger: Counts,
    wasted: u64,
    /// First attempts after the warm-up.
    offers: Offers,
    /// Requests inside replicas, by class.
    inside: Vec<u32>,
    /// Requests inside replicas.
    in_flight: TimeAverage,
    /// Requests waiting in the protector.
    pub(super) queued: TimeAverage,
    /// Cores at speed 1.
    pub(super) capacity: TimeAverage,
    /// Replicas that are to get requests.
    pub(super) replicas: TimeAverage,
}

#[derive(Debug)]
struct Class {
    name: String,
    target: Option<Duration>,
    revenue: f64,
}

/// The interval under way.
#[derive(Debug)]
struct Interval {
    counts: Vec<Counts>,
    response: Moments,
    histogram: Histogram,
    full: Histogram,
    waiting: Moments,
}

impl Recorder {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let classes: Vec<Class> = scenario
            .classes()
            .into_iter()
            .map(|class| Class {
                name: class.name,
                target: class.target.map(|target| target.0),
                revenue: class.revenue,
            })
            .collect();
        let measured = (scenario.duration.0 - scenario.warm_up.0).as_secs_f64();
        Self {
            interval: Interval {
                counts: vec![Counts::default(); classes.len()],
                response: Moments::default(),
                histogram: Histogram::coarse(),
                full: Histogram::coarse(),
                waiting: Moments::default(),
            },
            class_totals: vec![Totals::new(measured); classes.len()],
            inside: vec![0; classes.len()],
            offers: Offers::default(),
            classes,
            rows: Vec::new(),
            gauges: Vec::new(),
            warm_up: Timestamp::ZERO + scenario.warm_up.0,
            totals: Totals::new(measured),
            ledger: Counts::default(),
            wasted: 0,
            in_flight: TimeAverage::new(Timestamp::ZERO, 0.0),
            queued: TimeAverage::new(Timestamp::ZERO, 0.0),
            capacity: TimeAverage::new(Timestamp::ZERO, 0.0),
            replicas: TimeAverage::new(Timestamp::ZERO, 0.0),
        }
    }

    /// Counts one thing in every place that counts it.
    fn count(&mut self, now: Timestamp, class: ClassId, count: impl Fn(&mut Counts)) {
        let class = usize::from(class.0);
        count(&mut self.ledger);
        count(&mut self.interval.counts[class]);
        if now >= self.warm_up {
            count(&mut self.totals.counts);
            count(&mut self.class_totals[class].counts);
        }
    }

    pub(super) fn offered(&mut self, now: Timestamp, class: ClassId, attempt: &Attempt) {
        let first = attempt.tries == 1;
        if first && now >= self.warm_up {
            let revenue = self.classes[usize::from(class.0)].revenue;
            self.offers.add(revenue, attempt.work);
        }
        self.count(now, class, |counts| {
            counts.offered += 1;
            counts.fresh += u64::from(first);
        });
    }

    pub(super) fn admitted(&mut self, now: Timestamp, class: ClassId, waited: Duration) {
        self.count(now, class, |counts| counts.admitted += 1);
        let seconds = waited.as_secs_f64();
        self.interval.waiting.add(seconds);
        if now >= self.warm_up {
            self.totals.waiting.add(seconds);
            self.class_totals[usize::from(class.0)].waiting.add(seconds);
        }
    }

    pub(super) fn ended(
        &mut self,
        now: Timestamp,
        class: ClassId,
        fate: Fate,
        took: Duration,
        full: bool,
    ) {
        let target = self.classes[usize::from(class.0)].target;
        let in_target = target.is_none_or(|target| took <= target);
        let displaced = self.less_important_inside(class);
        self.count(now, class, |counts| match fate {
            Fate::Served => {
                counts.served += 1;
                counts.in_target += u64::from(in_target);
                counts.degraded += u64::from(!full);
            }
            Fate::Streamed => counts.streamed += 1,
            Fate::Dropped => counts.dropped += 1,
            Fate::Abandoned => counts.abandoned += 1,
            Fate::Shed(reason) => {
                counts.shed += 1;
                counts.displaced += u64::from(displaced);
                counts.shed_by[reason.index()] += 1;
            }
        });
        if fate == Fate::Served {
            self.served(now, class, took.as_secs_f64(), full);
        }
    }

    /// A request of the class is in a replica from now on.
    pub(super) fn enters(&mut self, now: Timestamp, class: ClassId) {
        self.in_flight.add(now, 1.0);
        self.inside[usize::from(class.0)] += 1;
    }

    /// A request of the class has left its replica.
    pub(super) fn leaves(&mut self, now: Timestamp, class: ClassId) {
        self.in_flight.add(now, -1.0);
        self.inside[usize::from(class.0)] -= 1;
    }

    fn less_important_inside(&self, class: ClassId) -> bool {
        self.inside[usize::from(class.0) + 1..]
            .iter()
            .any(|&inside| inside > 0)
    }

    fn served(&mut self, now: Timestamp, class: ClassId, seconds: f64, full: bool) {
        self.interval.response.add(seconds);
        self.interval.histogram.record(seconds);
        if full {
            self.interval.full.record(seconds);
        }
        if now < self.warm_up {
            return;
        }
        let class = &mut self.class_totals[usize::from(class.0)];
        for totals in [&mut self.totals, class] {
            totals.response.add(seconds);
            totals.histogram.record(seconds);
            if full {
                totals.full.record(seconds);
            }
        }
    }

    pub(super) fn gave_up(&mut self, now: Timestamp, class: ClassId) {
        self.count(now, class, |counts| counts.given_up += 1);
    }

    pub(super) fn wasted(&mut self) {
        self.wasted += 1;
    }

    /// Closes the interval that ends now.
    pub(super) fn close(&mut self, now: Timestamp, utilization: f64, protector: &dyn Protector) {
        let interval = &mut self.interval;
        let mut counts = Counts::default();
        interval.counts.iter().for_each(|class| counts.add(class));
        let mut gauges = vec![f64::NAN; self.gauges.len()];
        protector.gauges(now, &mut |name, value| match self
            .gauges
            .iter()
            .position(|known| *known == name)
        {
            Some(at) => gauges[at] = value,
            None => {
                self.gauges.push(name);
                gauges.push(value);
            }
        });
        self.rows.push(Row {
            at: now.as_secs_f64(),
            counts,
            classes: std::mem::replace(
                &mut interval.counts,
                vec![Counts::default(); self.classes.len()],
            ),
            full_p95: interval.full.quantile(0.95),
            response: interval.times(),
            waiting: std::mem::take(&mut interval.waiting).mean(),
            in_flight: self.in_flight.take(now),
            queued: self.queued.take(now),
            utilization,
            capacity: self.capacity.take(now),
            replicas: self.replicas.take(now),
            gauges,
        });
    }

    pub(super) fn finish(self, scenario: &Scenario, simulated: u64, unfinished: u64) -> Outcome {
        let interval = scenario.interval.as_secs_f64();
        let warm_up = self.warm_up.as_secs_f64();
        let measured = self.rows.iter().filter(|row| row.at - interval >= warm_up);
        let core_s: f64 = measured.clone().map(|row| row.capacity * interval).sum();
        let utilization: Moments = measured.map(|row| row.utilization).collect();
        Outcome {
            interval,
            revenues: self.classes.iter().map(|class| class.revenue).collect(),
            revenue_optimum: self.offers.optimum(core_s),
            classes: self.classes.into_iter().map(|class| class.name).collect(),
            gauges: self.gauges,
            rows: self.rows,
            totals: self.totals,
            class_totals: self.class_totals,
            utilization: utilization.mean(),
            ledger: self.ledger,
            unfinished,
            wasted: self.wasted,
            simulated,
        }
    }
}

impl Interval {
    /// The response times so far, which are forgotten.
    fn times(&mut self) -> Times {
        let response = std::mem::take(&mut self.response);
        let times = Times {
            mean: response.mean(),
            p50: self.histogram.quantile(0.5),
            p95: self.histogram.quantile(0.95),
            p99: self.histogram.quantile(0.99),
            max: response.max(),
        };
        self.histogram.clear();
        self.full.clear();
        times
    }
}
