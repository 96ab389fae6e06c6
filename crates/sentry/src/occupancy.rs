//! Residence by concurrency: how long requests take when `n` of them are inside.
//!
//! By Little's law the mean residence while `n` are inside is the time integral of `n` over the
//! requests done. Both are kept in bins of `n`, two per octave, so that the natural ups and downs
//! of the load show how the service copes with any concurrency, without a trial.
//!
//! Beside that, how long the window was full and how many were done meanwhile: that is what the
//! replica can do, whether or not others were waiting.
//!
//! Slots that are kept after their clients have left ([`departed_slots`](crate::engine)) take room, but nobody hears of them
//! again. So they count in `n`, and not in either integral: a slot of a full window that is kept takes its share
//! from the time, and a replica all of whose clients have left at once has shown nothing.
//!
//! Filled by many threads, emptied by one. Two threads that change `n` at the same moment may
//! attribute the time between them to each other's bin.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidegate_control::Timestamp;

/// Concurrency has a bin of its own up to this, and two bins per octave beyond.
const SINGLE: u32 = 4;
/// Bins up to a concurrency of 65536.
pub(crate) const BINS: usize = 33;

/// The bin of a concurrency.
pub(crate) fn bin_of(n: u32) -> usize {
    if n <= SINGLE {
        return n as usize;
    }
    // 5..=6, 7..=8, 9..=12, 13..=16, 17..=24, …
    let octave = (n - 1).ilog2();
    let upper_half = (n - 1) >> (octave - 1) & 1;
    let bin = SINGLE + 1 + 2 * (octave - 2) + upper_half;
    (bin as usize).min(BINS - 1)
}

/// The largest concurrency of a bin.
pub(crate) fn top_of(bin: usize) -> u32 {
    let bin = bin as u32;
    if bin <= SINGLE {
        return bin;
    }
    let (octave, upper_half) = ((bin - SINGLE - 1) / 2 + 2, (bin - SINGLE - 1) % 2);
    (1 << octave) + ((1 + upper_half) << (octave - 1))
}

/// The concurrency in the middle of a bin, which is not that of none.
pub(crate) fn middle_of(bin: usize) -> f64 {
    let bottom = top_of(bin.saturating_sub(1)) + 1;
    0.5 * f64::from(bottom + top_of(bin))
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Occupancy {
    last_ns: AtomicU64,
    /// Slots that are kept after their clients have left.
    kept: AtomicU32,
    /// Request-nanoseconds.
    inside: [AtomicU64; BINS],
    done: [AtomicU32; BINS],
    full_ns: AtomicU64,
    full_done: AtomicU32,
}

/// What was done while the window was full.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Full {
    pub(crate) seconds: f64,
    pub(crate) done: f64,
}

impl Occupancy {
    pub(crate) fn new() -> Self {
        Self {
            last_ns: AtomicU64::new(u64::MAX),
            kept: AtomicU32::new(0),
            inside: std::array::from_fn(|_| AtomicU64::new(0)),
            done: std::array::from_fn(|_| AtomicU32::new(0)),
            full_ns: AtomicU64::new(0),
            full_done: AtomicU32::new(0),
        }
    }

    /// Until now `n` were inside a window of `limit`.
    pub(crate) fn on_change(&self, now: Timestamp, n: u32, limit: u32) {
        let now = now.as_nanos();
        let last = match self.last_ns.load(Ordering::Relaxed) {
            u64::MAX => self.last_ns.swap(now, Ordering::Relaxed).min(now),
            _ => self.last_ns.fetch_max(now, Ordering::Relaxed),
        };
        let elapsed = now.saturating_sub(last);
        if n > 0 && elapsed > 0 {
            let heard_of = n.saturating_sub(self.kept.load(Ordering::Relaxed));
            let amount = elapsed.saturating_mul(u64::from(heard_of));
            self.inside[bin_of(n)].fetch_add(amount, Ordering::Relaxed);
            if n >= limit {
                let share = amount / u64::from(n);
                self.full_ns.fetch_add(share, Ordering::Relaxed);
            }
        }
    }

    /// A client has left, and its slot is kept (`true`), or it is kept no longer. To be called after
    /// [`Occupancy::on_change`].
    pub(crate) fn on_kept(&self, kept: bool) {
        let change = if kept { 1 } else { u32::MAX };
        self.kept.fetch_add(change, Ordering::Relaxed);
    }

    /// A request was done while `n` were inside a window of `limit`.
    pub(crate) fn on_done(&self, n: u32, limit: u32) {
        self.done[bin_of(n)].fetch_add(1, Ordering::Relaxed);
        if n >= limit {
            self.full_done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was done with the window full since the last call.
    pub(crate) fn take_full(&self) -> Full {
        Full {
            seconds: self.full_ns.swap(0, Ordering::Relaxed) as f64 * 1e-9,
            done: f64::from(self.full_done.swap(0, Ordering::Relaxed)),
        }
    }

    /// Request-seconds and requests done in a bin since the last call.
    pub(crate) fn take(&self, bin: usize) -> (f64, f64) {
        let inside = self.inside[bin].swap(0, Ordering::Relaxed) as f64 * 1e-9;
        (inside, f64::from(self.done[bin].swap(0, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_and_without_gaps() {
        for bin in 1..BINS - 1 {
            assert_eq!(bin_of(top_of(bin)), bin);
            assert_eq!(bin_of(top_of(bin) + 1), bin + 1);
        }
        assert_eq!(bin_of(u32::MAX), BINS - 1);
        assert_eq!(top_of(bin_of(12)), 12);
        assert_eq!((middle_of(bin_of(3)), middle_of(bin_of(12))), (3.0, 10.5));
    }

    #[test]
    fn residence_follows_from_littles_law() {
        // Two inside for 3 s, one of them done every second: 2 s each.
        let occupancy = Occupancy::new();
        let at = Timestamp::from_secs_f64;
        occupancy.on_change(at(0.0), 1, 2);
        for second in 1..=3 {
            occupancy.on_change(at(f64::from(second)), 2, 2);
            occupancy.on_done(2, 2);
        }
        let (inside, done) = occupancy.take(bin_of(2));
        assert_eq!((inside, done), (6.0, 3.0));
        assert_eq!(occupancy.take(bin_of(2)), (0.0, 0.0));
        let full = occupancy.take_full();
        assert_eq!((full.seconds, full.done), (3.0, 3.0));
    }

    #[test]
    fn slots_that_are_kept_take_room_and_no_time() {
        let occupancy = Occupancy::new();
        let at = Timestamp::from_secs_f64;
        occupancy.on_change(at(0.0), 3, 4);
        occupancy.on_kept(true);
        occupancy.on_change(at(2.0), 4, 4);
        occupancy.on_done(4, 4);
        (0..3).for_each(|_| occupancy.on_kept(true));
        occupancy.on_change(at(9.0), 4, 4);
        occupancy.on_kept(false);
        occupancy.on_change(at(10.0), 3, 4);
        assert_eq!(occupancy.take(bin_of(4)), (6.0, 1.0));
        let full = occupancy.take_full();
        assert_eq!((full.seconds, full.done), (1.5, 1.0));
    }
}
