//! The law of quotas: how many requests a second Envoy may let through, and which.
//!
//! Envoy enforces rates by itself and reports counts; its access log says how long requests took.
//! A rate above the capacity `C` of the service makes its queue grow without bound, so the mean
//! service time `S` is what is controlled. With `S0` the mean service time without a queue and
//! `T` the target,
//!
//! ```text
//! S* = S0 + SETPOINT_OF_SLACK (T - S0)         setpoint
//! R  = C (1 + GAIN (S* - S) / S*)              assigned rate, over all classes
//! ```
//!
//! In overload the queue inside integrates `R - C`, so that `dS/dt = GAIN (S* - S) / S*`: a first
//! order with the time constant `S* / GAIN`. It has to be above the delay of the loop: an interval,
//! a report, a service time.
//!
//! `C` is the rate of completions while the service is busy (`S` above half of the way to the
//! setpoint), or the largest seen so far where it is not. While it is not busy and `R` is used
//! up, completions follow `R`, and `C` follows completions: the rate grows by `GAIN` a step.
//!
//! `R` is divided by importance: a class gets what it asks for before the next one gets anything.
//!
//! What breaks it: an access log whose delay exceeds the time constant. If most clients abandon,
//! completions are few although the service is busy, and `C` is too low until the queue inside is
//! gone. With `T` below `2 S0` the setpoint is `(1 + SETPOINT_OF_SLACK) S0` whatever `T` is.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Part of the time between base service time and target that is used for a queue inside. Chosen:
/// three quarters are left to the spread of waiting times. Decision 0180 has the measured p99.
const SETPOINT_OF_SLACK: f64 = 0.25;

/// Relative change of the rate per relative error. Chosen: with a setpoint of 150 ms the time
/// constant is a second, four intervals of 250 ms.
const GAIN: f64 = 0.15;

/// Largest relative error that counts. Chosen: `1 + GAIN * ERROR_MIN` is a fifth, so that a fifth
/// of the measured capacity passes however long the queue inside is.
const ERROR_MIN: f64 = -5.3;

/// Weight of the last interval in the capacity. Chosen.
const CAPACITY_WEIGHT: f64 = 0.3;

/// Fewer completions than this in an interval say nothing. Chosen.
const SAMPLES_MIN: u64 = 5;

/// What a class may send above what it asked for lately, so that it can grow. Chosen.
const HEADROOM: f64 = 1.25;

/// Intervals without a report after which a demand is over. Chosen.
const INTERVALS_UNTIL_OVER: u32 = 20;

/// Rise of the base service time per interval without a shorter measurement. Chosen: 62 % in a
/// minute of 250 ms intervals.
const BASE_RISE: f64 = 1.002;

/// Shortest time of a report, in seconds: the first one of a bucket is of the first request alone.
const ELAPSED_MIN: f64 = 0.1;

/// Completions of one interval.
#[derive(Debug, Default, Clone, Copy)]
struct Completions {
    served: u64,
    /// Served ones, and those whose client left.
    timed: u64,
    seconds: f64,
}

/// Requests a second that one bucket of one Envoy wants.
#[derive(Debug, Clone, Copy)]
struct Demand {
    class: usize,
    rate: f64,
    age: u32,
}

/// Assigns rates to buckets, which are told by `B`.
#[derive(Debug)]
pub(crate) struct Rates<B> {
    target: f64,
    interval: f64,
    completions: Completions,
    demands: BTreeMap<B, Demand>,
    picture: Picture,
}

/// What was measured and decided last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Picture {
    /// Requests a second of all buckets.
    pub(crate) demand: f64,
    /// Assigned rate; absent while nothing has to be limited.
    pub(crate) rate: Option<f64>,
    /// Completions a second of the busy service.
    pub(crate) capacity: Option<f64>,
    /// Mean service time that is aimed at, in seconds.
    pub(crate) setpoint: Option<f64>,
    /// Mean service time of the last interval, in seconds.
    pub(crate) measured: Option<f64>,
    /// Mean service time without a queue, in seconds.
    pub(crate) base: Option<f64>,
}

impl<B: Ord + Clone> Rates<B> {
    pub(crate) fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target: target.as_secs_f64(),
            interval: interval.as_secs_f64(),
            completions: Completions::default(),
            demands: BTreeMap::new(),
            picture: Picture::default(),
        }
    }

    pub(crate) fn picture(&self) -> Picture {
        self.picture
    }

    /// A bucket reported `requests` in `elapsed` seconds, allowed ones and others. Returns whether
    /// the bucket is new.
    pub(crate) fn on_usage(
        &mut self,
        bucket: B,
        class: usize,
        requests: u64,
        elapsed: f64,
    ) -> bool {
        let rate = requests as f64 / elapsed.max(ELAPSED_MIN);
        let demand = Demand {
            class,
            rate,
            age: 0,
        };
        self.demands.insert(bucket, demand).is_none()
    }

    /// A bucket's Envoy left.
    pub(crate) fn on_gone(&mut self, gone: impl Fn(&B) -> bool) {
        self.demands.retain(|bucket, _| !gone(bucket));
    }

    /// A request ended after `seconds` in the service.
    pub(crate) fn on_completion(&mut self, seconds: f64, served: bool) {
        self.completions.served += u64::from(served);
        self.completions.timed += 1;
        self.completions.seconds += seconds.max(0.0);
    }

    /// Once per interval.
    pub(crate) fn step(&mut self) {
        let completions = std::mem::take(&mut self.completions);
        self.age_demands();
        self.picture.demand = self.demands.values().map(|demand| demand.rate).sum();
        self.picture.measured = None;
        if completions.timed >= SAMPLES_MIN {
            self.adapt(&completions);
        }
    }

    fn age_demands(&mut self) {
        self.demands.retain(|_, demand| {
            demand.age += 1;
            demand.age <= INTERVALS_UNTIL_OVER
        });
    }

    fn adapt(&mut self, completions: &Completions) {
        let measured = completions.seconds / completions.timed as f64;
        let base = self
            .picture
            .base
            .map_or(measured, |base| (base * BASE_RISE).min(measured));
        let setpoint = base + SETPOINT_OF_SLACK * (self.target - base).max(base);
        let busy = measured > (base + setpoint) / 2.0;
        let done = completions.served as f64 / self.interval;
        let capacity = capacity(self.picture.capacity, done, busy);
        let error = ((setpoint - measured) / setpoint).max(ERROR_MIN);
        let limits = busy || self.picture.rate.is_some();
        self.picture = Picture {
            rate: limits.then_some(capacity * (1.0 + GAIN * error)),
            capacity: Some(capacity),
            setpoint: Some(setpoint),
            measured: Some(measured),
            base: Some(base),
            ..self.picture
        };
    }

    /// The rate of each bucket; `None` is no limit.
    pub(crate) fn assignments(&self) -> Vec<(&B, Option<f64>)> {
        let by_class = self.by_class();
        let share = |demand: &Demand| {
            let (wanted, granted) = by_class.get(&demand.class)?;
            let part = if *wanted > 0.0 {
                demand.rate / wanted
            } else {
                1.0
            };
            Some(granted.as_ref()? * part)
        };
        let demands = self.demands.iter();
        demands
            .map(|(bucket, demand)| (bucket, share(demand)))
            .collect()
    }

    /// What each class wants, and what it gets.
    fn by_class(&self) -> BTreeMap<usize, (f64, Option<f64>)> {
        let mut classes = BTreeMap::new();
        for demand in self.demands.values() {
            classes.entry(demand.class).or_insert((0.0, None)).0 += demand.rate;
        }
        let mut left = self.picture.rate;
        for (wanted, granted) in classes.values_mut() {
            *granted = left.map(|left| left.min(*wanted * HEADROOM + 1.0));
            left = left.zip(*granted).map(|(left, granted)| left - granted);
        }
        classes
    }
}

/// Completions a second of the busy service.
fn capacity(before: Option<f64>, done: f64, busy: bool) -> f64 {
    match before {
        None => done,
        Some(before) if busy => before + CAPACITY_WEIGHT * (done - before),
        Some(before) => before.max(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: f64 = 0.25;

    /// A service of `capacity` requests a second with a queue, as a fluid.
    struct Fluid {
        capacity: f64,
        queue: f64,
        fraction: f64,
    }

    impl Fluid {
        const BASE: f64 = 0.02;

        fn interval(&mut self, admitted: f64, rates: &mut Rates<u8>) -> f64 {
            let before = self.queue;
            let served = (self.queue + admitted * INTERVAL).min(self.capacity * INTERVAL);
            self.queue += admitted * INTERVAL - served;
            let seconds = Self::BASE + (before + self.queue) / 2.0 / self.capacity;
            self.fraction += served;
            let whole = self.fraction.floor();
            self.fraction -= whole;
            for _ in 0..whole as u64 {
                rates.on_completion(seconds, true);
            }
            seconds
        }
    }

    fn rates() -> Rates<u8> {
        Rates::new(
            Duration::from_millis(500),
            Duration::from_secs_f64(INTERVAL),
        )
    }

    /// Runs `seconds` with two classes; the first wants a quarter of the capacity. Returns the
    /// service time at the end and the rates of the two.
    fn run(rates: &mut Rates<u8>, service: &mut Fluid, seconds: f64, demand: f64) -> [f64; 3] {
        let mut admitted = [demand / 4.0, demand];
        let mut last = 0.0;
        for _ in 0..(seconds / INTERVAL) as usize {
            last = service.interval(admitted.iter().sum(), rates);
            rates.on_usage(0, 0, (demand / 4.0 * INTERVAL) as u64, INTERVAL);
            rates.on_usage(1, 1, (demand * INTERVAL) as u64, INTERVAL);
            rates.step();
            for (bucket, rate) in rates.assignments() {
                let wanted = [demand / 4.0, demand][usize::from(*bucket)];
                admitted[usize::from(*bucket)] = rate.map_or(wanted, |rate| rate.min(wanted));
            }
        }
        [last, admitted[0], admitted[1]]
    }

    fn service(capacity: f64) -> Fluid {
        Fluid {
            capacity,
            queue: 0.0,
            fraction: 0.0,
        }
    }

    #[test]
    fn rates_settle_at_the_capacity_with_the_service_time_within_the_target() {
        let (mut rates, mut service) = (rates(), service(200.0));
        let [time, gold, rest] = run(&mut rates, &mut service, 30.0, 480.0);
        assert!(
            (gold - 120.0).abs() < 1.0,
            "the important class is whole: {gold}"
        );
        assert!(
            ((gold + rest) / 200.0 - 1.0).abs() < 0.05,
            "{gold} + {rest}"
        );
        assert!((0.02..0.3).contains(&time), "{time}");
    }

    #[test]
    fn rates_follow_a_capacity_that_halves_and_comes_back() {
        let (mut rates, mut service) = (rates(), service(200.0));
        run(&mut rates, &mut service, 20.0, 480.0);
        service.capacity = 100.0;
        let [time, gold, rest] = run(&mut rates, &mut service, 20.0, 480.0);
        assert!(((gold + rest) / 100.0 - 1.0).abs() < 0.1, "{gold} + {rest}");
        assert!(time < 0.5, "{time}");
        service.capacity = 200.0;
        let [_, gold, rest] = run(&mut rates, &mut service, 20.0, 480.0);
        assert!(((gold + rest) / 200.0 - 1.0).abs() < 0.1, "{gold} + {rest}");
    }

    #[test]
    fn rates_are_not_limited_before_the_service_is_busy() {
        let (mut rates, mut service) = (rates(), service(200.0));
        let [_, gold, rest] = run(&mut rates, &mut service, 10.0, 100.0);
        assert_eq!((gold, rest), (25.0, 100.0));
        assert_eq!(rates.picture().rate, None);
    }

    #[test]
    fn rates_of_an_envoy_that_left_are_given_to_the_others() {
        let (mut rates, mut service) = (rates(), service(200.0));
        run(&mut rates, &mut service, 20.0, 480.0);
        rates.on_gone(|bucket| *bucket == 0);
        let rest = rates.assignments();
        assert_eq!(rest.len(), 1);
        assert!(rest[0].1.expect("there is a limit") > 150.0, "{rest:?}");
    }
}
