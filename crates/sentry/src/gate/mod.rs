//! Gates: what enforces a controller's command at the entrance (002 §2.1).
//!
//! All of them are atomics only and take the time as an argument. `Gate` is the one at the
//! entrance of the engine: any kind, exchangeable while requests pass.

mod content;
mod leaky_bucket;
mod percent;
mod token_bucket;
mod window;

use std::sync::atomic::{AtomicU8, Ordering};

use tidegate_control::Timestamp;

pub(crate) use content::{ContentGate, ContentRule, Dispatched};
pub use leaky_bucket::LeakyBucket;
pub use percent::PercentBlocking;
pub use token_bucket::TokenBucket;
pub use window::DynamicWindow;

use crate::api::ShedReason;
use crate::config::GateKind;
use crate::random::Dice;

/// What a gate refused, and against what limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Closed {
    pub(crate) reason: ShedReason,
    pub(crate) measured: f64,
    pub(crate) limit: f64,
}

/// A request that passed; `counted` ones give their place in the window back when they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) counted: bool,
}

/// The gate at the entrance: open, or one of the kinds.
#[derive(Debug)]
pub(crate) struct Gate {
    kind: AtomicU8,
    bucket: TokenBucket,
    percent: PercentBlocking,
    window: DynamicWindow,
}

const OPEN: u8 = 0;
const RATE: u8 = 1;
const PERCENT: u8 = 2;
const WINDOW: u8 = 3;

impl Gate {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            kind: AtomicU8::new(OPEN),
            bucket: TokenBucket::new(now, 0.0, 1.0),
            percent: PercentBlocking::new(1.0),
            window: DynamicWindow::new(u32::MAX),
        }
    }

    /// Lets everything through.
    pub(crate) fn open(&self) {
        self.kind.store(OPEN, Ordering::Relaxed);
    }

    /// Enforces a rate of requests per second, in bursts of at most `burst` requests.
    pub(crate) fn set_rate(&self, now: Timestamp, requests_per_second: f64, burst: f64) {
        self.bucket.set_rate(now, requests_per_second, burst);
        self.kind.store(RATE, Ordering::Relaxed);
    }

    /// Enforces a command of the given kind; a negative one is zero (002 §5).
    pub(crate) fn set(&self, now: Timestamp, kind: GateKind, command: f64, burst: f64) {
        match kind {
            GateKind::Rate => self.set_rate(now, command, burst),
            GateKind::Percent => {
                self.percent.set_share(command);
                self.kind.store(PERCENT, Ordering::Relaxed);
            }
            GateKind::Window => {
                // `as` saturates, and maps NaN and what is negative to zero.
                self.window.set_limit(command as u32);
                self.kind.store(WINDOW, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn pass(&self, now: Timestamp, dice: &Dice) -> Result<Passed, Closed> {
        let free = Passed { counted: false };
        match self.kind.load(Ordering::Relaxed) {
            RATE if !self.bucket.try_take(now) => Err(Closed {
                reason: ShedReason::Rate,
                measured: self.bucket.tokens(now),
                limit: 1.0,
            }),
            PERCENT => {
                let drawn = dice.unit();
                if self.percent.passes(drawn) {
                    Ok(free)
                } else {
                    Err(Closed {
                        reason: ShedReason::Blocked,
                        measured: drawn,
                        limit: self.percent.share(),
                    })
                }
            }
            WINDOW => {
                if self.window.try_enter() {
                    Ok(Passed { counted: true })
                } else {
                    Err(Closed {
                        reason: ShedReason::Window,
                        measured: f64::from(self.window.inside()),
                        limit: f64::from(self.window.limit()),
                    })
                }
            }
            _ => Ok(free),
        }
    }

    /// A request that passed and left comes back, whether there is room or not.
    pub(crate) fn return_to(&self, passed: Passed) {
        if passed.counted {
            self.window.force_enter();
        }
    }

    /// A request that passed has ended, or was refused further on.
    pub(crate) fn leave(&self, passed: Passed) {
        if passed.counted {
            self.window.leave();
        }
    }

    /// Seconds until the gate can let another request through, where it knows.
    pub(crate) fn wait_seconds(&self) -> Option<f64> {
        let is_rate = self.kind.load(Ordering::Relaxed) == RATE;
        is_rate.then(|| self.bucket.seconds_per_request()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_is_blocked_has_what_was_drawn_and_the_share() {
        let gate = Gate::new(Timestamp::ZERO);
        gate.set(Timestamp::ZERO, GateKind::Percent, 0.3, 1.0);
        let dice = Dice::new(1);
        let closed: Vec<_> = (0..100)
            .filter_map(|_| gate.pass(Timestamp::ZERO, &dice).err())
            .collect();
        assert!(closed.len() > 50);
        for it in closed {
            assert_eq!(it.limit, 0.3);
            assert!((0.3..1.0).contains(&it.measured), "{}", it.measured);
        }
    }
}
