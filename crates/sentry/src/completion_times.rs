//! How long the latest requests took in a replica, and at which concurrency.
//!
//! Filled by many threads, emptied by one at each tick. Of a tick with more completions than there
//! is room for, the latest are kept: they are as good a sample as any.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Completions that are kept. Chosen: with ten ticks a second, 640 a second are enough for a
/// median.
const COMPLETIONS_MAX: u32 = 64;

/// Bits of a time in nanoseconds, 52 days; above them two bins of six bits.
const TIME_BITS: u32 = 52;
const BIN_BITS: u32 = 6;

/// How long a request took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CompletionTime {
    /// Bin of the concurrency when it was done.
    pub(crate) level: usize,
    /// Bin of the concurrency that it was admitted to.
    pub(crate) admitted: usize,
    /// In the replica.
    pub(crate) seconds: f64,
}

/// How long the latest requests took in a replica, and at which concurrency.
#[derive(Debug)]
pub(crate) struct CompletionTimes {
    latest: [AtomicU64; COMPLETIONS_MAX as usize],
    count: AtomicU32,
    taken: AtomicU32,
}

impl CompletionTimes {
    pub(crate) fn new() -> Self {
        Self {
            latest: std::array::from_fn(|_| AtomicU64::new(0)),
            count: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// A request was done.
    pub(crate) fn push(&self, level: usize, admitted: usize, time: Duration) {
        let most = (1 << TIME_BITS) - 1;
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(most).min(most);
        let bins = (admitted << BIN_BITS | level) as u64;
        let index = self.count.fetch_add(1, Ordering::Relaxed);
        self.slot(index)
            .store(bins << TIME_BITS | nanos, Ordering::Relaxed);
    }

    fn slot(&self, index: u32) -> &AtomicU64 {
        &self.latest[(index % COMPLETIONS_MAX) as usize]
    }

    /// Those since the last call, the oldest first. One that is just being added may be an old one.
    pub(crate) fn take(&self) -> impl Iterator<Item = CompletionTime> + use<'_> {
        let count = self.count.load(Ordering::Relaxed);
        let new = count.wrapping_sub(self.taken.swap(count, Ordering::Relaxed));
        (1..=new.min(COMPLETIONS_MAX)).rev().map(move |back| {
            let packed = self.slot(count.wrapping_sub(back)).load(Ordering::Relaxed);
            let bin = |bins: u64| (bins & ((1 << BIN_BITS) - 1)) as usize;
            CompletionTime {
                level: bin(packed >> TIME_BITS),
                admitted: bin(packed >> (TIME_BITS + BIN_BITS)),
                seconds: (packed & ((1 << TIME_BITS) - 1)) as f64 * 1e-9,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_times_are_taken_once_in_order() {
        let times = CompletionTimes::new();
        times.push(3, 32, Duration::from_millis(20));
        times.push(4, 1, Duration::from_secs(3));
        let taken: Vec<_> = times.take().collect();
        let first = CompletionTime {
            level: 3,
            admitted: 32,
            seconds: 0.02,
        };
        assert_eq!(taken[0], first);
        assert_eq!((taken.len(), taken[1].seconds), (2, 3.0));
        assert_eq!(times.take().count(), 0);
    }

    #[test]
    fn completion_times_beyond_the_room_are_the_latest() {
        let times = CompletionTimes::new();
        (0..200).for_each(|n| times.push(1, 1, Duration::from_secs(n)));
        let taken: Vec<f64> = times.take().map(|time| time.seconds).collect();
        assert_eq!(taken, (136..200).map(f64::from).collect::<Vec<_>>());
    }

    #[test]
    fn completion_time_beyond_all_bounds_is_the_longest() {
        let times = CompletionTimes::new();
        times.push(1, 1, Duration::MAX);
        assert!(times.take().next().unwrap().seconds > 4e6);
    }
}
