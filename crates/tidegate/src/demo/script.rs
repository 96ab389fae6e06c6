//! What happens in the demo, and the words for it.
//!
//! Three replicas, a crowd of four times what they can serve, and half of their capacity gone in
//! the middle of it. Times below are those of the full run; the quick one plays them faster.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_lab::app::AppConfig;
use tidegate_sim::service::Law;
use tidegate_sim::workload::Schedule;
use tidegate_sim::workload::schedule::Point;

/// How many replicas there are.
pub(super) const REPLICAS: usize = 3;
const WORKERS: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
const SERVICE_S: f64 = 0.04;

/// What the replicas can serve together, per second.
pub(super) const CAPACITY: f64 = REPLICAS as f64 * WORKERS.get() as f64 / SERVICE_S;
/// How long a client waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

const LOAD_CALM: f64 = 0.6;
const CROWD: f64 = 4.0;

const CROWD_COMES_S: f64 = 8.0;
const CROWD_IS_THERE_S: f64 = 14.0;
const CAPACITY_HALVES_S: f64 = 20.0;
const CROWD_LEAVES_S: f64 = 30.0;
const END_S: f64 = 45.0;

/// The full run takes 45 s, the quick one 18 s.
const QUICK_PACE: f64 = 0.4;

/// A stretch of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Calm,
    CrowdComes,
    HalfCapacity,
    After,
}

impl Phase {
    /// What is happening and what to look at.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Calm => "A calm day. Both sides serve every request.",
            Self::CrowdComes => {
                "Overload: up to four times the requests that the replicas can serve. Without \
                 protection all of them queue, clients wait too long and leave, and the replicas \
                 work in vain. Tidegate admits as many as can be served and sheds the others at \
                 once, with a time to come back."
            }
            Self::HalfCapacity => {
                "Half of the capacity is lost. Tidegate is not told: it notices, and admits half as \
                 many."
            }
            Self::After => {
                "The overload has ended and the capacity is back. Without protection the replicas \
                 still work off requests whose clients are gone; with Tidegate the next request is \
                 served."
            }
        }
    }
}

/// The demo at one of its two paces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    pace: f64,
}

impl Script {
    pub(super) fn new(quick: bool) -> Self {
        Self {
            pace: if quick { QUICK_PACE } else { 1.0 },
        }
    }

    pub(super) fn duration(self) -> Duration {
        Duration::from_secs_f64(END_S * self.pace)
    }

    /// From when the crowd comes to when it leaves, in seconds.
    pub(super) fn rush(self) -> (f64, f64) {
        (CROWD_COMES_S * self.pace, CROWD_LEAVES_S * self.pace)
    }

    pub(super) fn phase(self, seconds: f64) -> Phase {
        match seconds / self.pace {
            time if time < CROWD_COMES_S => Phase::Calm,
            time if time < CAPACITY_HALVES_S => Phase::CrowdComes,
            time if time < CROWD_LEAVES_S => Phase::HalfCapacity,
            _ => Phase::After,
        }
    }

    /// Requests per second.
    pub(super) fn rate(self) -> Schedule {
        self.schedule(&[
            (0.0, LOAD_CALM * CAPACITY, false),
            (CROWD_COMES_S, LOAD_CALM * CAPACITY, false),
            (CROWD_IS_THERE_S, CROWD * CAPACITY, true),
            (CROWD_LEAVES_S, LOAD_CALM * CAPACITY, false),
        ])
    }

    /// Speed of the replicas.
    pub(super) fn speed(self) -> Schedule {
        self.schedule(&[
            (0.0, 1.0, false),
            (CAPACITY_HALVES_S, 0.5, false),
            (CROWD_LEAVES_S, 1.0, false),
        ])
    }

    fn schedule(self, points: &[(f64, f64, bool)]) -> Schedule {
        let points: Vec<Point<f64>> = points
            .iter()
            .map(|&(at_s, value, ramp)| Point {
                at: Duration::from_secs_f64(at_s * self.pace).into(),
                value,
                ramp,
            })
            .collect();
        Schedule::new(&points).expect("the script's points are in order and positive")
    }

    /// What the replicas could serve in a second of the run, knowing all in advance.
    pub(super) fn possible(self, second: u64, offered: u64) -> f64 {
        let speed = self.speed();
        let from = second as f64;
        let capacity = CAPACITY * (speed.area_at(from + 1.0) - speed.area_at(from));
        capacity.min(offered as f64)
    }

    /// One of the replicas.
    pub(super) fn replica(self, index: usize, seed: u64) -> AppConfig {
        AppConfig {
            speed: self.speed(),
            seed: seed.wrapping_add(index as u64),
            ..AppConfig::new(WORKERS, Law::exponential(SERVICE_S))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_is_four_times_the_capacity_and_capacity_halves() {
        let script = Script::new(false);
        assert_eq!(CAPACITY, 150.0);
        assert_eq!(script.rate().max(), 600.0);
        assert_eq!(script.speed().value_at(25.0), 0.5);
        assert_eq!(script.possible(25, 600), 75.0);
        assert_eq!(script.possible(2, 90), 90.0);
    }

    #[test]
    fn the_quick_run_has_the_same_story() {
        for quick in [false, true] {
            let script = Script::new(quick);
            let end = script.duration().as_secs_f64();
            assert!(end <= if quick { 20.0 } else { 60.0 });
            let (from, to) = script.rush();
            assert_eq!(script.phase(from - 0.1), Phase::Calm);
            assert_eq!(script.phase(from + 0.1), Phase::CrowdComes);
            assert_eq!(script.phase(to - 0.1), Phase::HalfCapacity);
            assert_eq!(script.phase(end - 0.1), Phase::After);
        }
    }
}
