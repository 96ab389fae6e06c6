//! Days and hours of arrivals that scalers are compared on.
//!
//! Rates are functions of the time in seconds; what comes before `measured_from_s` is history that
//! a scaler may learn from and that does not count. A server does 80 requests/s at first.

use std::f64::consts::TAU;

use super::cloud::SERVERS_MAX;

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

/// Requests per second that a server does, where the trace does not change it.
pub(super) const CAPACITY: f64 = 80.0;

/// One trace.
#[derive(Debug, Clone, Copy)]
pub struct Trace {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub title: &'static str,
    /// How long it is, in seconds.
    pub length_s: u64,
    /// From when on it counts.
    pub measured_from_s: u64,
    /// How long a server takes to start.
    pub start_s: u64,
    /// Of this many servers that are ordered, the last never gets ready; 0 is none.
    pub broken_every: u64,
    /// Servers there are in all.
    pub pool: u32,
    /// What a request that is answered in time earns.
    pub revenue: f64,
    /// Another application that shares the pool.
    beside: Option<Beside>,
    /// Whether the past says what comes.
    pub regular: bool,
    rate: fn(f64) -> f64,
    capacity: fn(f64) -> f64,
}

/// An application beside the first one.
#[derive(Debug, Clone, Copy)]
struct Beside {
    rate: fn(f64) -> f64,
    revenue: f64,
}

impl Trace {
    /// Its applications, each as a trace of its own.
    #[must_use]
    pub fn applications(&self) -> Vec<Self> {
        let first = Self {
            beside: None,
            ..*self
        };
        let other = self.beside.map(|beside| Self {
            rate: beside.rate,
            revenue: beside.revenue,
            ..first
        });
        std::iter::once(first).chain(other).collect()
    }

    /// Requests per second.
    #[must_use]
    pub fn rate(&self, second: u64) -> f64 {
        (self.rate)(second as f64)
    }

    /// Requests per second that a server does.
    #[must_use]
    pub fn capacity(&self, second: u64) -> f64 {
        (self.capacity)(second as f64)
    }
}

fn steady_capacity(_: f64) -> f64 {
    CAPACITY
}

/// 100 to 800 requests/s, lowest at midnight, with a slow unrest of a few percent.
fn daily(t: f64) -> f64 {
    let wave = 450.0 - 350.0 * (TAU * t / DAY).cos();
    wave * (1.0 + 0.03 * (TAU * t / 1_700.0).sin() + 0.02 * (TAU * t / 610.0).sin())
}

/// The daily wave, less at weekends; on the last day there is an evening that never was.
fn weekly(t: f64) -> f64 {
    let day = (t / DAY) as u64 % 7;
    let of_day = if day >= 5 { 0.6 } else { 1.0 };
    let evening = t - 9.0 * DAY - 20.0 * HOUR;
    let new_peak = 500.0 * (1.0 - (evening / (1.2 * HOUR)).powi(2)).max(0.0);
    of_day * daily(t) + new_peak
}

/// 100/s, from one hour on twice as much every seven minutes up to 1600/s, then half of it every
/// 14.
fn doubling(t: f64) -> f64 {
    let rising = (t - HOUR).max(0.0) / 420.0;
    let falling = (t - HOUR - 4.0 * 420.0 - 900.0).max(0.0) / 840.0;
    100.0 * (rising.min(4.0) - falling.min(4.0)).exp2()
}

/// 150/s, and 1200/s within ten seconds, for twenty minutes; then again.
fn flash_crowd(t: f64) -> f64 {
    let crowd = |from: f64| {
        ((t - from) / 10.0).clamp(0.0, 1.0) - ((t - from - 1200.0) / 30.0).clamp(0.0, 1.0)
    };
    150.0 + 1050.0 * (crowd(HOUR) + crowd(2.0 * HOUR))
}

fn drifting_capacity(t: f64) -> f64 {
    CAPACITY * (1.0 - 0.45 * ((t - HOUR) / (4.0 * HOUR)).clamp(0.0, 1.0))
}

/// A wave of two hours from 100 to 600/s.
fn short_wave(t: f64) -> f64 {
    350.0 - 250.0 * (TAU * t / (2.0 * HOUR)).cos()
}

/// Just below and just above what one server does, ten minutes each.
fn border(t: f64) -> f64 {
    70.0 + 8.0 * (TAU * t / 1_200.0).sin()
}

/// 200/s, and four times as much in the first two minutes of every hour.
fn hourly_job(t: f64) -> f64 {
    let job = if t.rem_euclid(HOUR) < 120.0 {
        600.0
    } else {
        0.0
    };
    200.0 + job
}

/// All of them.
#[must_use]
pub fn traces() -> Vec<Trace> {
    let trace = |name, title, rate, hours: f64, from_hours: f64, start_s| Trace {
        name,
        title,
        length_s: (hours * HOUR) as u64,
        measured_from_s: (from_hours * HOUR) as u64,
        start_s,
        broken_every: 0,
        pool: SERVERS_MAX,
        revenue: 1.0,
        beside: None,
        regular: false,
        rate,
        capacity: steady_capacity,
    };
    let surge = "twice as much every seven minutes, then less";
    vec![
        Trace {
            regular: true,
            ..trace(
                "daily-wave",
                "the same wave every day",
                daily,
                120.0,
                96.0,
                30,
            )
        },
        Trace {
            regular: true,
            ..trace(
                "daily-wave-slow",
                "the same, servers start in 120 s",
                daily,
                120.0,
                96.0,
                120,
            )
        },
        trace(
            "weekly-new-peak",
            "a week, and an evening that never was",
            weekly,
            240.0,
            216.0,
            30,
        ),
        trace("doubling-5", surge, doubling, 3.0, 0.5, 5),
        trace("doubling-30", surge, doubling, 3.0, 0.5, 30),
        trace("doubling-120", surge, doubling, 3.0, 0.5, 120),
        trace(
            "flash-crowd",
            "eight times as much within ten seconds",
            flash_crowd,
            3.0,
            0.5,
            30,
        ),
        Trace {
            capacity: drifting_capacity,
            ..trace(
                "drift",
                "servers get slower by 45 %",
                |_| 600.0,
                6.0,
                0.5,
                30,
            )
        },
        Trace {
            broken_every: 3,
            ..trace(
                "never-ready",
                "every third server never gets ready",
                short_wave,
                6.0,
                0.5,
                30,
            )
        },
        trace(
            "one-or-two",
            "at the border between one and two servers",
            border,
            6.0,
            0.5,
            30,
        ),
        trace(
            "hourly-job",
            "four times as much in the first two minutes of every hour",
            hourly_job,
            12.0,
            6.0,
            30,
        ),
        Trace {
            pool: 18,
            beside: Some(Beside {
                rate: short_wave,
                revenue: 5.0,
            }),
            ..trace(
                "short-pool",
                "18 servers for a doubling and for a wave whose requests earn five times as much",
                doubling,
                3.0,
                0.5,
                30,
            )
        },
    ]
}
