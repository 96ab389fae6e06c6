//! Cinnamon, Uber's load shedder (blog posts of November 2023): a PID controller of the share that
//! is rejected.
//!
//! Behind a queue requests in flight are limited by a variant of TCP Vegas. Twice a second a
//! controller looks at what came in and went out since and at free slots, and wants
//!
//! ```text
//! e = (in - out - free) / out
//! ```
//!
//! to be zero: what comes in goes out, and no slot is free. The share that is rejected is
//! `K_p e + K_i ∫ e`, between 0 and 1. A request has a tier and a cohort (its class and chance
//! here); from the priorities of the last requests follows the one below which that share lies.
//! What is in the queue for too long is rejected as well.
//!
//! The architecture and the target function are those of the posts. The gains (0.1 and 1.4) are as
//! they are quoted, not checked against code, which is not public; the limit is our [`Vegas`].

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::Ending;

use super::levels::{Histogram, level_of};
use super::limit::{Limit, Sample};
use super::rules::Vegas;
use super::server_queue::{AtGate, Ended, ServerRule};

/// A controller of the share that is rejected, behind which Vegas limits requests in flight.
#[derive(Debug)]
pub struct Cinnamon {
    timeout: Duration,
    limit: Vegas,
    share: f64,
    integral: f64,
    /// Levels that are admitted.
    admitted_levels: usize,
    arrived: Histogram,
    came_in: u64,
    went_out: u64,
    pending: usize,
    next: Timestamp,
}

impl Cinnamon {
    const INTERVAL: Duration = Duration::from_millis(500);
    const PROPORTIONAL: f64 = 0.1;
    const INTEGRAL: f64 = 1.4;

    /// With the time after which a request in the queue is rejected.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            limit: Vegas::default(),
            share: 0.0,
            integral: 0.0,
            admitted_levels: usize::MAX,
            arrived: Histogram::default(),
            came_in: 0,
            went_out: 0,
            pending: 0,
            next: Timestamp::ZERO + Self::INTERVAL,
        }
    }

    fn update(&mut self) {
        let free = (self.limit.limit() - self.pending as f64).max(0.0);
        let (came_in, went_out) = (self.came_in as f64, self.went_out as f64);
        let error = (came_in - went_out - free) / went_out.max(1.0);
        // The integral stops where the share is at a bound.
        let seconds = Self::INTERVAL.as_secs_f64();
        self.integral = (self.integral + Self::INTEGRAL * error * seconds).clamp(0.0, 1.0);
        self.share = (Self::PROPORTIONAL * error + self.integral).clamp(0.0, 1.0);
        self.admitted_levels = if self.share > 0.0 {
            let admitted = (1.0 - self.share) * self.arrived.total as f64;
            self.arrived.levels_within(admitted)
        } else {
            usize::MAX
        };
        self.arrived = Histogram::default();
        (self.came_in, self.went_out) = (0, 0);
    }
}

impl ServerRule for Cinnamon {
    fn admits(&mut self, request: &AtGate) -> bool {
        self.pending = request.pending;
        if request.now >= self.next {
            self.update();
            self.next = request.now + Self::INTERVAL;
        }
        let level = level_of(request.class, request.draw);
        self.arrived.count(level);
        let admits = level < self.admitted_levels;
        self.came_in += u64::from(admits);
        admits
    }

    fn slots(&self) -> usize {
        self.limit.limit() as usize
    }

    fn drops(&self, waited: Duration) -> bool {
        waited > self.timeout
    }

    fn on_end(&mut self, ended: &Ended) {
        self.went_out += 1;
        if ended.ending == Ending::Served || ended.ending == Ending::Dropped {
            self.limit.on_sample(&Sample {
                now: ended.now,
                response_s: ended.service_s,
                in_flight: ended.in_flight,
                dropped: ended.ending == Ending::Dropped,
            });
        }
    }

    fn level(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_settles_at_what_does_not_fit_and_goes_back_to_nothing() {
        let mut cinnamon = Cinnamon::new(Duration::from_secs(1));
        // Two hundred arrive between two updates, a hundred of them can be done.
        let mut half_seconds = 0;
        let mut run = |cinnamon: &mut Cinnamon, updates: u64, arrive: u64| {
            let mut queue = 0;
            for _ in 0..updates {
                half_seconds += 1;
                for index in 0..arrive {
                    let ms = half_seconds * 500 + index * 500 / arrive;
                    let request = AtGate {
                        now: Timestamp::from_nanos(ms * 1_000_000),
                        class: 0,
                        draw: index as f64 / arrive as f64,
                        pending: queue,
                    };
                    queue += usize::from(cinnamon.admits(&request));
                }
                let done = queue.min(100);
                queue -= done;
                cinnamon.went_out += done as u64;
            }
            cinnamon.level()
        };
        let share = run(&mut cinnamon, 60, 200);
        assert!((0.4..=0.7).contains(&share), "{share}");
        let share = run(&mut cinnamon, 60, 20);
        assert_eq!(share, 0.0);
    }
}
