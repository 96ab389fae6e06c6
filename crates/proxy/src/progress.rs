//! Signs of life of the data plane's threads, for a watchdog.
//!
//! Every worker gives one with each of its sweeps, the ticker with each of its looks: several per
//! second, whatever the load. A thread that hangs in a lock, a loop or a file gives none, although
//! the process and its other threads go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

/// In place of a time, of a thread that has not begun or has ended in order.
const NOT_RUNNING: u64 = u64::MAX;

/// When each thread gave its last sign of life.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Workers by index, then the ticker.
    last_ns: Vec<AtomicU64>,
}

impl Progress {
    pub(crate) fn new(workers: usize) -> Self {
        let threads = 0..=workers;
        Self {
            last_ns: threads.map(|_| AtomicU64::new(NOT_RUNNING)).collect(),
        }
    }

    /// The number of the ticker, where workers have their index.
    pub(crate) fn ticker(&self) -> usize {
        self.last_ns.len() - 1
    }

    /// The thread runs.
    pub(crate) fn sign(&self, thread: usize, now: Timestamp) {
        self.last_ns[thread].store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The thread has ended in order. One that panics does not come here.
    pub(crate) fn ended(&self, thread: usize) {
        self.last_ns[thread].store(NOT_RUNNING, Ordering::Relaxed);
    }

    /// A thread that has given no sign of life for longer than `silence`.
    pub(crate) fn stalled(&self, now: Timestamp, silence: Duration) -> Option<String> {
        let limit = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
        let silent = |last: &AtomicU64| {
            let last = last.load(Ordering::Relaxed);
            last != NOT_RUNNING && now.as_nanos().saturating_sub(last) > limit
        };
        let thread = self.last_ns.iter().position(silent)?;
        Some(if thread == self.ticker() {
            "ticker".to_owned()
        } else {
            format!("worker-{thread}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_without_a_sign_of_life_is_named_until_it_gives_one_or_ends() {
        let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
        let progress = Progress::new(2);
        let limit = Duration::from_secs(10);
        assert_eq!(progress.stalled(at(100), limit), None, "none has begun");
        for thread in 0..3 {
            progress.sign(thread, at(100));
        }
        assert_eq!(progress.stalled(at(110), limit), None);
        progress.sign(0, at(110));
        progress.sign(progress.ticker(), at(110));
        let stalled = progress.stalled(at(111), limit);
        assert_eq!(stalled.as_deref(), Some("worker-1"));
        progress.ended(1);
        assert_eq!(progress.stalled(at(111), limit), None);
        let stalled = progress.stalled(at(130), limit);
        assert_eq!(stalled.as_deref(), Some("worker-0"));
        progress.sign(0, at(130));
        let stalled = progress.stalled(at(130), limit);
        assert_eq!(stalled.as_deref(), Some("ticker"));
    }
}
