//! One client: sends a request when it is due, loses patience, tries again.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use tidegate_control::Timestamp;
use tokio::time::timeout_at;

use super::config::Retry;
use super::mix::Kind;
use super::outcome::{Attempt, Ending, Outcome, retry_after};
use super::transport::{Failure, Lease};
use crate::clock::Clock;

/// A request that is due, with the connection it was given.
pub(super) struct Client<R> {
    pub(super) clock: Clock,
    pub(super) kind_index: usize,
    pub(super) kind: Arc<Kind>,
    pub(super) due: Timestamp,
    pub(super) retry: Retry,
    pub(super) rng: R,
}

impl<R: rand::Rng> Client<R> {
    /// Carries the request to its end.
    pub(super) async fn run(mut self, lease: Lease) -> Outcome {
        let lag = self.clock.now() - self.due;
        let mut attempts = vec![self.attempt(self.due, lease).await];
        while let Some(due) = self.next_try(&attempts) {
            tokio::time::sleep_until(self.clock.instant(due)).await;
            attempts.push(match self.kind.lease() {
                Some(lease) => self.attempt(due, lease).await,
                None => self.ended(due, Ending::Unsent),
            });
        }
        Outcome {
            kind: self.kind_index,
            lag,
            attempts,
        }
    }

    async fn attempt(&self, due: Timestamp, mut lease: Lease) -> Attempt {
        let patience_ends = due + self.kind.timeout;
        if self.clock.now() >= patience_ends {
            // Gone before its turn came. Connecting for an abandoned request would make a late
            // generator later.
            lease.give_back();
            return self.ended(due, Ending::Timeout);
        }
        let patience = self.clock.instant(patience_ends);
        let exchange = lease.exchange(self.kind.read_pause);
        let (ending, retry_after) = match timeout_at(patience, exchange).await {
            Ok(Ok(answer)) => (
                Ending::of_answer(answer.status(), answer.headers()),
                retry_after(answer.headers()),
            ),
            Ok(Err(Failure::Connect)) => (Ending::ConnectError, None),
            Ok(Err(Failure::Broken)) => (Ending::Broken, None),
            Err(_) => (Ending::Timeout, None),
        };
        let finished = self.clock.now();
        if ending != Ending::Timeout {
            lease.give_back();
        }
        Attempt {
            due,
            finished,
            ending,
            retry_after,
        }
    }

    /// A try that ends now, without an answer.
    fn ended(&self, due: Timestamp, ending: Ending) -> Attempt {
        Attempt {
            due,
            finished: self.clock.now(),
            ending,
            retry_after: None,
        }
    }

    /// When to try again, if at all.
    fn next_try(&mut self, attempts: &[Attempt]) -> Option<Timestamp> {
        let last = attempts.last()?;
        let retries_done = attempts.len() as u32 - 1;
        if retries_done >= self.retry.retries_max || !last.ending.is_retryable() {
            return None;
        }
        let backoff = backoff(&self.retry, retries_done, self.rng.random());
        let asked = last.retry_after.filter(|_| self.retry.obey_retry_after);
        Some(last.finished + backoff.max(asked.unwrap_or_default()))
    }
}

/// Doubling backoff with a jitter from half to whole, so that those refused together do not
/// return together.
fn backoff(retry: &Retry, retries_done: u32, jitter: f64) -> Duration {
    let doubled = retry.backoff.saturating_mul(1 << retries_done.min(20));
    doubled.min(retry.backoff_max).mul_f64(0.5 + 0.5 * jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_cap_and_is_never_below_half() {
        let retry = Retry {
            retries_max: 10,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_millis(500),
            obey_retry_after: false,
        };
        let whole: Vec<_> = (0..4)
            .map(|done| backoff(&retry, done, 1.0).as_millis())
            .collect();
        assert_eq!(whole, [100, 200, 400, 500]);
        assert_eq!(backoff(&retry, 0, 0.0), Duration::from_millis(50));
        assert_eq!(backoff(&retry, u32::MAX, 1.0), Duration::from_millis(500));
    }
}
