//! Scalers of others, by their published rules.
//!
//! | scaler | rule |
//! | --- | --- |
//! | HPA | CPU every 15 s, of the 15 s before the last 15 (metrics server); target 70 %, tolerance 10 %, up by the larger of 4 and 100 % in 15 s, down to the most of the last 300 s |
//! | KPA | concurrency over 60 s, or over 6 s in panic, which begins at 200 % of the target and lasts 60 s; target 70 % of the workers; up 1000 times, down to half, every 2 s |
//! | KEDA | request rate of the last 30 s every 30 s, then as HPA |
//! | AWS | the mean of each hour of the last 14 days, 300 s early, never down; with target tracking by minutes (70 %: out after 3, in after 15) |
//! | static | what the peak of the trace needs |
//! | oracle | what every second needs, known in advance |
//!
//! Scalers by CPU or rate get 70 % as their target, as KPA has it; the capacity of a server is
//! known to those that need it.
//!
//! Decision: docs/decisions/0135-figure-7-with-a-policer-of-its-own.md.

use std::collections::VecDeque;

use tidegate_plane::model::{Objective, Workload};

use super::cloud::{SERVERS_MAX, Second, TARGET_S, WORKERS};
use super::trace::{CAPACITY, Trace};

/// Decides how many servers there should be.
pub trait Scaler {
    /// Called after every second.
    fn on_second(&mut self, second: &Second) -> u32;
}

/// Decides for several applications that share a pool.
pub trait Scalers {
    /// Called after every second, with that second of each application.
    fn on_second(&mut self, seconds: &[Second]) -> Vec<u32>;
}

/// A scaler for each application, none of which knows the others: as pods of a full cluster wait,
/// the servers are those of who asked first.
pub(super) struct Each {
    scalers: Vec<Box<dyn Scaler>>,
    pool: u32,
    /// Applications by what they earn, where that decides who gets servers (the oracle).
    order: Option<Vec<usize>>,
}

impl Each {
    pub(super) fn new(scalers: Vec<Box<dyn Scaler>>, pool: u32) -> Self {
        Self {
            scalers,
            pool,
            order: None,
        }
    }

    /// The dearest requests first, whatever came first.
    pub(super) fn by_revenue(self, applications: &[Trace]) -> Self {
        let mut order: Vec<usize> = (0..applications.len()).collect();
        let revenue = |index: &usize| applications[*index].revenue;
        order.sort_by(|a, b| revenue(b).total_cmp(&revenue(a)));
        Self {
            order: Some(order),
            ..self
        }
    }
}

impl Scalers for Each {
    fn on_second(&mut self, seconds: &[Second]) -> Vec<u32> {
        let each = self.scalers.iter_mut().zip(seconds);
        let wishes: Vec<u32> = each
            .map(|(scaler, second)| scaler.on_second(second))
            .collect();
        if let Some(order) = &self.order {
            let mut left = self.pool - wishes.len() as u32;
            let mut given = vec![1; wishes.len()];
            for &index in order {
                let more = wishes[index].saturating_sub(1).min(left);
                given[index] += more;
                left -= more;
            }
            return given;
        }
        let mut given: Vec<u32> = seconds.iter().map(|second| second.desired).collect();
        for index in 0..wishes.len() {
            let others: u32 = given.iter().sum::<u32>() - given[index];
            let kept = given[index];
            given[index] = wishes[index].min(self.pool.saturating_sub(others).max(kept));
        }
        given
    }
}

/// Share of a server that is meant to be used.
const USE: f64 = 0.7;

fn ceil(servers: f64) -> u32 {
    (servers - 1e-9).ceil().clamp(1.0, f64::from(SERVERS_MAX)) as u32
}

/// The limits that HPA puts on every change.
#[derive(Debug, Default)]
struct HpaRules {
    wishes: VecDeque<(u64, u32)>,
}

impl HpaRules {
    fn apply(&mut self, at: u64, current: u32, ratio: f64) -> u32 {
        let wish = if (ratio - 1.0).abs() <= 0.1 {
            current
        } else {
            ceil(f64::from(current) * ratio)
        };
        self.wishes.push_back((at, wish));
        while self.wishes.front().is_some_and(|wish| wish.0 + 300 < at) {
            self.wishes.pop_front();
        }
        if wish > current {
            return wish.min((2 * current).max(current + 4));
        }
        let most = self.wishes.iter().map(|wish| wish.1).max();
        most.unwrap_or(wish).min(current)
    }
}

/// Horizontal pod autoscaler on CPU.
#[derive(Debug, Default)]
pub struct Hpa {
    cpu: VecDeque<f64>,
    rules: HpaRules,
}

impl Scaler for Hpa {
    fn on_second(&mut self, second: &Second) -> u32 {
        self.cpu.push_back(second.cpu);
        if self.cpu.len() > 30 {
            self.cpu.pop_front();
        }
        if !second.at.is_multiple_of(15) {
            return second.desired;
        }
        let old: f64 = self.cpu.iter().take(15).sum::<f64>() / self.cpu.len().clamp(1, 15) as f64;
        // Servers without a metric count as idle when more are wanted.
        let known = f64::from(second.ready) / f64::from(second.desired.max(1));
        self.rules
            .apply(second.at, second.desired, old * known / USE)
    }
}

/// KEDA on the request rate.
#[derive(Debug, Default)]
pub struct Keda {
    rates: VecDeque<f64>,
    rules: HpaRules,
}

impl Scaler for Keda {
    fn on_second(&mut self, second: &Second) -> u32 {
        self.rates.push_back(second.arrived);
        if self.rates.len() > 30 {
            self.rates.pop_front();
        }
        if !second.at.is_multiple_of(30) {
            return second.desired;
        }
        let rate = self.rates.iter().sum::<f64>() / self.rates.len() as f64;
        let ratio = rate / (USE * CAPACITY * f64::from(second.desired.max(1)));
        self.rules.apply(second.at, second.desired, ratio)
    }
}

/// Knative's pod autoscaler.
#[derive(Debug, Default)]
pub struct Kpa {
    concurrency: VecDeque<f64>,
    panic_until: u64,
    panic_servers: u32,
}

impl Kpa {
    fn mean(&self, seconds: usize) -> f64 {
        let last = self.concurrency.iter().rev().take(seconds);
        last.sum::<f64>() / self.concurrency.len().clamp(1, seconds) as f64
    }
}

impl Scaler for Kpa {
    fn on_second(&mut self, second: &Second) -> u32 {
        self.concurrency.push_back(second.concurrency);
        if self.concurrency.len() > 60 {
            self.concurrency.pop_front();
        }
        if !second.at.is_multiple_of(2) {
            return second.desired;
        }
        let target = USE * WORKERS;
        let (stable, panic) = (self.mean(60) / target, self.mean(6) / target);
        let ready = f64::from(second.ready.max(1));
        if panic / ready >= 2.0 {
            if second.at >= self.panic_until {
                self.panic_servers = second.desired;
            }
            self.panic_until = second.at + 60;
        }
        let least = (f64::from(second.ready) / 2.0).floor();
        if second.at < self.panic_until {
            self.panic_servers = self.panic_servers.max(ceil(panic.min(1000.0 * ready)));
            return self.panic_servers;
        }
        ceil(stable.max(least).min(1000.0 * ready))
    }
}

/// Predictive scaling as AWS has it, with target tracking.
#[derive(Debug)]
pub struct Predictive {
    /// Sum and seconds of each hour, the oldest first.
    hours: VecDeque<(f64, f64)>,
    minute: (f64, f64),
    high_minutes: u32,
    low_minutes: u32,
    tracked: u32,
    quiet_until: u64,
    warm_up_s: u64,
}

impl Predictive {
    /// For servers that start in this time.
    #[must_use]
    pub fn new(start_s: u64) -> Self {
        Self {
            hours: VecDeque::from([(0.0, 0.0)]),
            minute: (0.0, 0.0),
            high_minutes: 0,
            low_minutes: 0,
            tracked: 1,
            quiet_until: 0,
            warm_up_s: start_s,
        }
    }

    fn learn(&mut self, second: &Second) {
        if second.at.is_multiple_of(3600) {
            self.hours.push_back((0.0, 0.0));
            if self.hours.len() > 14 * 24 + 1 {
                self.hours.pop_front();
            }
        }
        if let Some(hour) = self.hours.back_mut() {
            hour.0 += second.arrived;
            hour.1 += 1.0;
        }
    }

    /// Servers for the hour that it is in 300 s, and for this one; needs a day of history.
    fn forecast(&self, at: u64) -> u32 {
        let now = at / 3600;
        let soon = (at + 300 + self.warm_up_s) / 3600;
        let first = (now + 1).saturating_sub(self.hours.len() as u64);
        let of_hour = |hour: u64| {
            let same = self.hours.iter().enumerate().filter(|(index, _)| {
                let then = first + *index as u64;
                then < now && then % 24 == hour % 24
            });
            let (sum, seconds) = same.fold((0.0, 0.0), |sum, (_, hour)| {
                (sum.0 + hour.0, sum.1 + hour.1)
            });
            if seconds > 0.0 {
                ceil(sum / seconds / (USE * CAPACITY))
            } else {
                1
            }
        };
        of_hour(now).max(of_hour(soon))
    }

    fn track(&mut self, second: &Second) {
        self.minute.0 += second.cpu;
        self.minute.1 += 1.0;
        if !second.at.is_multiple_of(60) {
            return;
        }
        let cpu = self.minute.0 / self.minute.1;
        self.minute = (0.0, 0.0);
        self.high_minutes = if cpu > USE { self.high_minutes + 1 } else { 0 };
        self.low_minutes = if cpu < 0.9 * USE {
            self.low_minutes + 1
        } else {
            0
        };
        if second.at < self.quiet_until {
            return;
        }
        let wish = ceil(f64::from(second.ready.max(1)) * cpu / USE);
        if self.high_minutes >= 3 {
            self.tracked = wish.max(self.tracked);
            self.quiet_until = second.at + self.warm_up_s;
        } else if self.low_minutes >= 15 {
            self.tracked = wish;
        }
    }
}

impl Scaler for Predictive {
    fn on_second(&mut self, second: &Second) -> u32 {
        self.learn(second);
        self.track(second);
        if second.at.is_multiple_of(60) {
            return self.tracked.max(self.forecast(second.at));
        }
        second.desired
    }
}

/// A number of servers for every second.
#[derive(Debug)]
pub struct Known(Vec<u32>);

/// Seconds that a known need is looked at beyond the start of a server.
const NOTICE_S: u64 = 10;

impl Known {
    /// What the peak needs.
    #[must_use]
    pub fn peak(trace: &Trace) -> Self {
        let most = needs(trace).into_iter().max().unwrap_or(1);
        Self(vec![most])
    }

    /// What every second needs.
    #[must_use]
    pub fn oracle(trace: &Trace) -> Self {
        let needs = needs(trace);
        let ahead = (trace.start_s as f64 * 1.5) as usize + NOTICE_S as usize;
        // The most of the next seconds, from the last one backwards.
        let mut window: VecDeque<(usize, u32)> = VecDeque::new();
        let mut plan = vec![1; needs.len()];
        for at in (0..needs.len()).rev() {
            while window.back().is_some_and(|&(_, need)| need <= needs[at]) {
                window.pop_back();
            }
            window.push_back((at, needs[at]));
            while window.front().is_some_and(|&(of, _)| of > at + ahead) {
                window.pop_front();
            }
            plan[at] = window.front().map_or(1, |&(_, need)| need);
        }
        Self(plan)
    }
}

fn needs(trace: &Trace) -> Vec<u32> {
    let objective = Objective {
        target_seconds: TARGET_S,
        late_max: 0.001,
    };
    let need = |second: u64| {
        let capacity = trace.capacity(second);
        let workload = Workload {
            rate: trace.rate(second),
            arrivals_scv: 1.0,
            capacity,
            service_seconds: WORKERS / capacity,
            service_scv: 1.0,
        };
        workload.needed(&objective).servers.max(1)
    };
    (0..=trace.length_s).map(need).collect()
}

impl Scaler for Known {
    fn on_second(&mut self, second: &Second) -> u32 {
        let at = (second.at as usize).min(self.0.len() - 1);
        self.0[at]
    }
}
