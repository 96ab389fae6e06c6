//! How busy the proxy itself is, for the engine to decide how much thought a request may cost.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Measures the share that the process computes of the time it could: of its workers, or of the
/// cores that it may use (affinity, quota of its control group) where these are fewer.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    cores: f64,
    at: Instant,
    spent: Duration,
}

impl CpuMeter {
    pub(crate) fn start(threads: usize, at: Instant) -> Self {
        Self {
            cores: threads.clamp(1, cores().max(1)) as f64,
            at,
            spent: spent(),
        }
    }

    /// The share since the last look; `None` if that was just now.
    /// `aside` is what was spent so far beside the data plane, for shadows.
    pub(crate) fn look(&mut self, at: Instant, aside: Duration) -> Option<f64> {
        self.share(at, spent().saturating_sub(aside))
    }

    fn share(&mut self, at: Instant, spent: Duration) -> Option<f64> {
        let wall = at.saturating_duration_since(self.at).as_secs_f64();
        let busy = spent.saturating_sub(self.spent).as_secs_f64();
        (self.at, self.spent) = (at, spent);
        (wall > 0.0).then(|| (busy / wall / self.cores).min(1.0))
    }
}

/// Cores that the process may use.
fn cores() -> usize {
    available_parallelism().map_or(usize::MAX, NonZeroUsize::get)
}

/// User and system time of all threads so far.
pub(crate) fn spent() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

/// User and system time of this thread so far.
pub(crate) fn spent_by_thread() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_share_of_all_workers() {
        let begin = Instant::now();
        let mut meter = CpuMeter {
            cores: 2.0,
            at: begin,
            spent: Duration::from_secs(5),
        };
        let second = |n: u64| begin + Duration::from_secs(n);
        assert_eq!(meter.share(second(1), Duration::from_secs(6)), Some(0.5));
        assert_eq!(meter.share(second(2), Duration::from_secs(6)), Some(0.0));
        assert_eq!(meter.share(second(3), Duration::from_secs(60)), Some(1.0));
        assert_eq!(meter.share(second(3), Duration::from_secs(61)), None);
    }

    #[test]
    fn share_is_of_the_cores_where_there_are_more_workers() {
        let meter = CpuMeter::start(10_000, Instant::now());
        assert_eq!(meter.cores, cores() as f64);
        assert_eq!(CpuMeter::start(1, Instant::now()).cores, 1.0);
    }

    #[test]
    fn what_was_spent_only_grows() {
        let before = spent();
        let sum: u64 = (0..1_000_000).map(std::hint::black_box).sum();
        assert!(sum > 0 && spent() >= before);
    }
}
