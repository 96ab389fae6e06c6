//! How much is asked for: arrivals, whatever became of them.
//!
//! Demand is what arrived, was shed, was held back by clients or waited for a server to start. A
//! controller that looks only at what was served shrinks what it starves. An interval without
//! arrivals is an observation of zero; an interval without an observation is nothing, and the last
//! known rate stands until it is too old.
//!
//! What breaks it: clients that retry what was shed. They count as often as they ask.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

/// What a proxy saw of an application in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Length of the interval.
    pub seconds: f64,
    /// Requests that arrived, those that were shed included.
    pub arrived: f64,
    /// Requests that clients held back because they were asked to.
    pub deferred: f64,
    /// Requests that were shed for want of capacity: what more servers would have cured.
    pub shed: f64,
    /// Requests answered.
    pub served: f64,
    /// Requests that arrived per class, by its name; empty where classes are not known.
    pub classes: BTreeMap<String, f64>,
    /// Times between arrivals.
    pub gaps: Option<Moments>,
    /// Times that requests spent in a server.
    pub service: Option<Moments>,
    /// Requests per second that one server can do, where that was measured.
    pub capacity: Option<f64>,
}

/// Mean and mean square of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// How many times.
    pub count: f64,
    /// Their mean, in seconds.
    pub mean: f64,
    /// Mean of their squares, in seconds squared.
    pub square: f64,
}

impl Moments {
    /// Squared coefficient of variation: variance over the squared mean.
    #[must_use]
    pub fn scv(&self) -> Option<f64> {
        let scv = self.square / (self.mean * self.mean) - 1.0;
        scv.is_finite().then(|| scv.max(0.0))
    }

    /// Of times that were measured in several places.
    #[must_use]
    pub fn pooled(parts: &[Self]) -> Option<Self> {
        let mut sound = parts.iter().filter(|part| part.is_sound());
        let mut all = *sound.next()?;
        sound.for_each(|part| all.merge(part, f64::INFINITY));
        Some(all)
    }

    /// Of the times between arrivals of several streams together, where these are `parts` and
    /// independent of each other: rates add up, and each stream's variability counts by its share.
    #[must_use]
    pub fn superposed(parts: &[Self]) -> Option<Self> {
        let sound = || parts.iter().filter(|part| part.is_sound());
        let rate: f64 = sound().map(|part| 1.0 / part.mean).sum();
        let by_share = |part: &Self| part.scv().unwrap_or(1.0) / (part.mean * rate);
        let scv: f64 = sound().map(by_share).sum();
        let mean = 1.0 / rate;
        (rate > 0.0).then(|| Self {
            count: sound().map(|part| part.count).sum(),
            mean,
            square: (1.0 + scv) * mean * mean,
        })
    }

    fn is_sound(&self) -> bool {
        self.count > 0.0 && self.mean > 0.0 && self.square.is_finite()
    }

    /// Adds `other`, and forgets what is beyond `count_max` of the past.
    fn merge(&mut self, other: &Self, count_max: f64) {
        let past = self.count.min(count_max);
        let all = past + other.count;
        self.mean = (self.mean * past + other.mean * other.count) / all;
        self.square = (self.square * past + other.square * other.count) / all;
        self.count = all;
    }
}

/// Times that are remembered for the second moments. Chosen: a variance is known to 10 %.
const MOMENTS_COUNT_MAX: f64 = 2_000.0;

/// Weight of a new measurement of a server's capacity.
const CAPACITY_WEIGHT: f64 = 0.2;

/// A rate with its standard deviation, requests per second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// The rate.
    pub rate: f64,
    /// Its standard deviation.
    pub sd: f64,
}

#[derive(Debug, Clone)]
struct Interval {
    at: Timestamp,
    seconds: f64,
    demand: f64,
    shed: f64,
    classes: BTreeMap<String, f64>,
}

/// The recent demand of one application.
#[derive(Debug, Clone)]
pub struct Demand {
    keep: Duration,
    intervals: VecDeque<Interval>,
    gaps: Option<Moments>,
    service: Option<Moments>,
    capacity: Option<f64>,
    /// Service time when the capacity was measured.
    capacity_service: Option<f64>,
}

impl Demand {
    /// Remembers observations for `keep`.
    #[must_use]
    pub fn new(keep: Duration) -> Self {
        Self {
            keep,
            intervals: VecDeque::new(),
            gaps: None,
            service: None,
            capacity: None,
            capacity_service: None,
        }
    }

    /// Takes an observation that ends now; one that is not finite is refused.
    pub fn on_observation(&mut self, now: Timestamp, seen: &Observation) -> bool {
        let numbers = [seen.seconds, seen.arrived, seen.deferred, seen.shed];
        let sound = numbers
            .iter()
            .all(|number| number.is_finite() && *number >= 0.0);
        if !sound || seen.seconds <= 0.0 {
            return false;
        }
        self.intervals.push_back(Interval {
            at: now,
            seconds: seen.seconds,
            demand: seen.arrived + seen.deferred,
            shed: seen.shed.min(seen.arrived),
            classes: seen.classes.clone(),
        });
        let keep = self.keep;
        while self
            .intervals
            .front()
            .is_some_and(|oldest| now - oldest.at > keep)
        {
            self.intervals.pop_front();
        }
        merge(&mut self.gaps, seen.gaps);
        merge(&mut self.service, seen.service);
        self.learn_capacity(seen);
        true
    }

    fn learn_capacity(&mut self, seen: &Observation) {
        let Some(measured) = seen.capacity.filter(|c| c.is_finite() && *c > 0.0) else {
            return;
        };
        let known = self.capacity().unwrap_or(measured);
        self.capacity = Some(known + CAPACITY_WEIGHT * (measured - known));
        self.capacity_service = self.service.map(|service| service.mean);
    }

    /// When the last observation ended.
    #[must_use]
    pub fn last_seen(&self) -> Option<Timestamp> {
        self.intervals.back().map(|interval| interval.at)
    }

    /// Measured requests per second of one server. When requests have come to take longer since the
    /// measurement, it is so much less.
    #[must_use]
    pub fn capacity(&self) -> Option<f64> {
        let capacity = self.capacity?;
        let ratio = match (self.capacity_service, self.service) {
            (Some(then), Some(now)) => then / now.mean,
            _ => 1.0,
        };
        Some(capacity * ratio.clamp(0.25, 1.0))
    }

    /// Service times.
    #[must_use]
    pub fn service(&self) -> Option<Moments> {
        self.service
    }

    /// Squared coefficient of variation of the times between arrivals; 1, a Poisson process,
    /// before it was measured.
    #[must_use]
    pub fn arrivals_scv(&self) -> f64 {
        self.gaps.and_then(|gaps| gaps.scv()).unwrap_or(1.0)
    }

    /// Squared coefficient of variation of the service times; 1 before it was measured.
    #[must_use]
    pub fn service_scv(&self) -> f64 {
        self.service.and_then(|times| times.scv()).unwrap_or(1.0)
    }

    fn recent(&self, now: Timestamp, window: Duration) -> impl Iterator<Item = &Interval> {
        let inside = move |interval: &&Interval| now - interval.at < window;
        self.intervals.iter().rev().take_while(inside)
    }

    /// The rate over the last `window`; nothing where nothing was observed.
    #[must_use]
    pub fn rate(&self, now: Timestamp, window: Duration) -> Option<Estimate> {
        let (mut seconds, mut demand) = (0.0, 0.0);
        for interval in self.recent(now, window) {
            seconds += interval.seconds;
            demand += interval.demand;
        }
        (seconds > 0.0).then(|| Estimate {
            rate: demand / seconds,
            sd: (demand.max(1.0) * self.arrivals_scv().max(1.0)).sqrt() / seconds,
        })
    }

    /// Requests per second in the last three intervals, the oldest first.
    #[must_use]
    pub fn last_rates(&self) -> Option<[f64; 3]> {
        let mut last = self.intervals.iter().rev().take(3);
        let mut rate = || {
            last.next()
                .map(|interval| interval.demand / interval.seconds)
        };
        let rates = [rate()?, rate()?, rate()?];
        let [last, middle, before] = rates;
        Some([before, middle, last])
    }

    /// Share of the demand that was shed over the last `window`.
    #[must_use]
    pub fn shed_share(&self, now: Timestamp, window: Duration) -> Option<f64> {
        let (mut demand, mut shed) = (0.0, 0.0);
        for interval in self.recent(now, window) {
            demand += interval.demand;
            shed += interval.shed;
        }
        (demand > 0.0).then(|| shed / demand)
    }

    /// Seconds that were observed in the last `window`.
    #[must_use]
    pub fn observed_seconds(&self, now: Timestamp, window: Duration) -> f64 {
        self.recent(now, window)
            .map(|interval| interval.seconds)
            .sum()
    }

    /// Shares of the classes in the last `window`, by name; empty where nothing is known of them.
    #[must_use]
    pub fn class_shares(&self, now: Timestamp, window: Duration) -> BTreeMap<String, f64> {
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for interval in self.recent(now, window) {
            for (name, count) in &interval.classes {
                *counts.entry(name.clone()).or_default() += count;
            }
        }
        let all: f64 = counts.values().sum();
        if all > 0.0 {
            counts.values_mut().for_each(|count| *count /= all);
            counts
        } else {
            BTreeMap::new()
        }
    }
}

fn merge(known: &mut Option<Moments>, new: Option<Moments>) {
    let Some(new) = new.filter(Moments::is_sound) else {
        return;
    };
    match known {
        Some(known) => known.merge(&new, MOMENTS_COUNT_MAX),
        None => *known = Some(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn second(arrived: f64, shed: f64) -> Observation {
        Observation {
            seconds: 1.0,
            arrived,
            shed,
            ..Observation::default()
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn demand_includes_what_was_shed_and_what_clients_held_back() {
        let mut demand = Demand::new(WINDOW);
        let seen = Observation {
            deferred: 20.0,
            ..second(100.0, 60.0)
        };
        assert!(demand.on_observation(at(1), &seen));
        let estimate = demand.rate(at(1), WINDOW).unwrap();
        assert_eq!(estimate.rate, 120.0);
        assert_eq!(demand.shed_share(at(1), WINDOW), Some(0.5));
    }

    #[test]
    fn moments_of_several_proxies_are_those_of_all_requests() {
        let of = |count, mean, scv: f64| Moments {
            count,
            mean,
            square: (1.0 + scv) * mean * mean,
        };
        let service = Moments::pooled(&[of(30.0, 0.1, 0.0), of(10.0, 0.5, 0.0)]).unwrap();
        assert!((service.mean - 0.2).abs() < 1e-9, "{service:?}");
        assert!((service.square - 0.07).abs() < 1e-9, "{service:?}");
        let gaps = Moments::superposed(&[of(30.0, 0.02, 1.0), of(10.0, 0.02, 3.0)]).unwrap();
        assert!((gaps.mean - 0.01).abs() < 1e-9, "{gaps:?}");
        assert!((gaps.scv().unwrap() - 2.0).abs() < 1e-9, "{gaps:?}");
        assert_eq!(
            (Moments::pooled(&[]), Moments::superposed(&[])),
            (None, None)
        );
    }

    #[test]
    fn missing_data_is_not_zero_and_zero_traffic_is_an_observation() {
        let mut demand = Demand::new(WINDOW);
        assert_eq!(demand.rate(at(0), WINDOW), None);
        demand.on_observation(at(1), &second(100.0, 0.0));
        // Eight seconds without an observation: the rate of the one that there is.
        assert_eq!(demand.rate(at(9), WINDOW).unwrap().rate, 100.0);
        assert_eq!(demand.rate(at(12), WINDOW), None);
        for t in 12..=22 {
            demand.on_observation(at(t), &second(0.0, 0.0));
        }
        assert_eq!(demand.rate(at(22), WINDOW).unwrap().rate, 0.0);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut demand = Demand::new(WINDOW);
        assert!(!demand.on_observation(at(1), &second(f64::NAN, 0.0)));
        assert!(!demand.on_observation(at(1), &second(-1.0, 0.0)));
        assert_eq!(demand.rate(at(1), WINDOW), None);
    }

    #[test]
    fn capacity_falls_as_service_times_grow() {
        let mut demand = Demand::new(WINDOW);
        let times = |mean: f64, count: f64| {
            Some(Moments {
                count,
                mean,
                square: 2.0 * mean * mean,
            })
        };
        let mut seen = second(100.0, 0.0);
        seen.capacity = Some(50.0);
        seen.service = times(0.02, 1e3);
        demand.on_observation(at(1), &seen);
        seen.capacity = None;
        seen.service = times(0.04, 1e6);
        demand.on_observation(at(2), &seen);
        assert!((demand.capacity().unwrap() - 25.0).abs() < 0.1);
        assert!((demand.service_scv() - 1.0).abs() < 0.01);
    }
}
