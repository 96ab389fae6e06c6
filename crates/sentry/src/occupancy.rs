//! Service times by concurrency: how long requests take when `n` of them are inside.
//!
//! **By level.** By Little's law the mean service time while `n` are inside is the time integral of
//! `n` over the requests done. Both are kept in bins of `n`, two per octave, so that the natural
//! ups and downs of the load show how the service copes with any concurrency, without a trial.
//! Beside that, how long the window was full and how many were done meanwhile. It is known at once,
//! and it holds by counting level crossings if requests come and go one at a time.
//!
//! **By admission.** Eight requests that come at once and take equally long end at once. All time
//! is spent at a level of 8, and levels 7 to 1 show completions that took no time. So a request
//! also counts at the concurrency it was admitted to, with its time so far. Its work does not
//! depend on what it finds, so that is the mean service time whatever the arrivals. And of the
//! requests that a window of `w` bounded (they waited, or took the last slot) a full window does
//! one every `R / w`. It lags by a service time, and requests that share a processor with later
//! ones look slow.
//!
//! Which of the two is used follows from the arrivals (`mode/auto/clumps.rs`, docs/decisions/0110).
//!
//! Slots that are kept after their clients have left ([`departed_slots`](crate::engine)) take room,
//! but their end is not seen. So they count in `n`, and not in either integral: a slot of a
//! full window that is kept takes its share from the time, and a replica all of whose clients have
//! left at once has shown nothing.
//!
//! Filled by many threads, emptied by one. Two threads that change `n` at the same moment may
//! attribute the time between them to each other's bin.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::completion_times::{CompletionTime, CompletionTimes};
use crate::counts::Counts;

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

/// What a request was admitted to; it leaves with the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Requests inside, itself included.
    pub(crate) inside: u32,
    /// The window was what bounded them: it had waited, or took the last slot.
    pub(crate) bound: bool,
}

/// Time that requests have spent inside, those included that are still there.
///
/// `clock + present * now` is that time since the beginning, modulo 2^64: a request that enters
/// takes off when it came, and one that leaves adds when it left.
#[derive(Debug, Default)]
struct Stay {
    present: AtomicU64,
    clock_ns: AtomicU64,
    done: AtomicU32,
    /// The sum when it was last taken.
    taken_ns: AtomicU64,
}

impl Stay {
    /// A thread that reads between the two sees too little time, never too much.
    fn enter(&self, now: Timestamp) {
        self.clock_ns.fetch_sub(now.as_nanos(), Ordering::SeqCst);
        self.present.fetch_add(1, Ordering::SeqCst);
    }

    /// As [`Stay::enter`]. A request whose client has left counts with its time alone.
    fn leave(&self, now: Timestamp, done: bool) {
        self.present.fetch_sub(1, Ordering::SeqCst);
        self.clock_ns.fetch_add(now.as_nanos(), Ordering::SeqCst);
        self.done.fetch_add(u32::from(done), Ordering::Relaxed);
    }

    /// Request-seconds since the last call, and requests done. What is seen in the middle of a
    /// change counts the next time.
    fn take(&self, now: Timestamp) -> (f64, f64) {
        let done = f64::from(self.done.swap(0, Ordering::Relaxed));
        let clock = self.clock_ns.load(Ordering::SeqCst);
        let present = self.present.load(Ordering::SeqCst);
        let sum = clock.wrapping_add(present.wrapping_mul(now.as_nanos()));
        let more = sum.wrapping_sub(self.taken_ns.load(Ordering::Relaxed));
        let steady = clock == self.clock_ns.load(Ordering::SeqCst);
        if !steady || more > u64::MAX / 2 {
            return (0.0, done);
        }
        self.taken_ns.store(sum, Ordering::Relaxed);
        (more as f64 * 1e-9, done)
    }
}

/// Service times of one replica by level and by admission.
#[derive(Debug)]
pub(crate) struct Occupancy {
    /// By the concurrency of admission.
    stays: [Stay; BINS],
    /// Of the requests that the window bounded.
    bound: Stay,
    last_ns: AtomicU64,
    /// Slots that are kept after their clients have left.
    kept: AtomicU32,
    /// Request-nanoseconds.
    inside: [AtomicU64; BINS],
    done: [AtomicU32; BINS],
    full_ns: AtomicU64,
    full_done: AtomicU32,
    times: CompletionTimes,
    /// Bins in which something happened since they were last emptied, one bit each.
    touched: AtomicU64,
}

impl Occupancy {
    pub(crate) fn new() -> Self {
        Self {
            stays: std::array::from_fn(|_| Stay::default()),
            bound: Stay::default(),
            last_ns: AtomicU64::new(u64::MAX),
            kept: AtomicU32::new(0),
            inside: std::array::from_fn(|_| AtomicU64::new(0)),
            done: std::array::from_fn(|_| AtomicU32::new(0)),
            full_ns: AtomicU64::new(0),
            full_done: AtomicU32::new(0),
            times: CompletionTimes::new(),
            touched: AtomicU64::new(0),
        }
    }

    fn touch(&self, bin: usize) {
        let bit = 1 << bin;
        if self.touched.load(Ordering::SeqCst) & bit == 0 {
            self.touched.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Whether nothing has happened since the last call of [`Occupancy::take_touched`], and nothing
    /// goes on.
    pub(crate) fn is_untouched(&self) -> bool {
        self.touched.load(Ordering::SeqCst) == 0
    }

    /// The bins in which something happened since the last call, or goes on, in order. What is
    /// added while they are emptied touches them again.
    pub(crate) fn take_touched(&self) -> impl Iterator<Item = usize> + use<'_> {
        let mut left = self.touched.swap(0, Ordering::SeqCst);
        std::iter::from_fn(move || {
            let bin = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            if self.stays[bin].present.load(Ordering::SeqCst) > 0 {
                self.touch(bin);
            }
            Some(bin)
        })
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
            self.touch(bin_of(n));
            if n >= limit {
                let share = amount / u64::from(n);
                self.full_ns.fetch_add(share, Ordering::Relaxed);
            }
        }
    }

    /// A client has left, and its slot is kept (`true`), or it is kept no longer. To be called
    /// after [`Occupancy::on_change`].
    pub(crate) fn on_kept(&self, kept: bool) {
        let change = if kept { 1 } else { u32::MAX };
        self.kept.fetch_add(change, Ordering::Relaxed);
    }

    /// A request was done while `n` were inside a window of `limit`.
    pub(crate) fn on_done(&self, n: u32, limit: u32) {
        self.done[bin_of(n)].fetch_add(1, Ordering::Relaxed);
        self.touch(bin_of(n));
        if n >= limit {
            self.full_done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How long that request took, which was one of `n` and was admitted to a place.
    pub(crate) fn on_time(&self, n: u32, place: Place, time: Duration) {
        self.times.push(bin_of(n), bin_of(place.inside), time);
    }

    /// How long the requests took that were done since the last call.
    pub(crate) fn take_times(&self) -> impl Iterator<Item = CompletionTime> + use<'_> {
        self.times.take()
    }

    /// A request is admitted.
    pub(crate) fn on_enter(&self, now: Timestamp, place: Place) {
        self.stays[bin_of(place.inside)].enter(now);
        self.touch(bin_of(place.inside));
        if place.bound {
            self.bound.enter(now);
        }
    }

    /// It leaves, served or not.
    pub(crate) fn on_leave(&self, now: Timestamp, place: Place, served: bool) {
        self.stays[bin_of(place.inside)].leave(now, served);
        self.touch(bin_of(place.inside));
        if place.bound {
            self.bound.leave(now, served);
        }
    }

    /// What the requests did that the window bounded since the last call: a window of `limit` that
    /// is full does one of them every `R / limit`.
    pub(crate) fn take_bound(&self, now: Timestamp, limit: u32) -> Counts {
        let (inside, done) = self.bound.take(now);
        Counts::of(done, inside / f64::from(limit.max(1)))
    }

    /// What was done with the window full since the last call.
    pub(crate) fn take_full(&self) -> Counts {
        let seconds = self.full_ns.swap(0, Ordering::Relaxed) as f64 * 1e-9;
        Counts::of(
            f64::from(self.full_done.swap(0, Ordering::Relaxed)),
            seconds,
        )
    }

    /// Request-seconds, and requests done, of those admitted to a bin since the last call.
    pub(crate) fn take_admitted(&self, now: Timestamp, bin: usize) -> (f64, f64) {
        self.stays[bin].take(now)
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

    #[test]
    fn batch_shows_the_rate_of_the_window() {
        let (occupancy, at) = (Occupancy::new(), Timestamp::from_secs_f64);
        let place = Place {
            inside: 4,
            bound: true,
        };
        // Eight at once for four slots of 16 ms: all of the second half have waited.
        (0..4).for_each(|_| occupancy.on_enter(at(1.0), place));
        (0..4).for_each(|_| occupancy.on_leave(at(1.016), place, true));
        let full = occupancy.take_bound(at(2.0), 4);
        assert!((full.seconds - 0.016).abs() < 1e-9, "{full:?}");
        assert_eq!(full.done, 4.0);
        let (inside, done) = occupancy.take_admitted(at(2.0), bin_of(4));
        assert!((inside / done - 0.016).abs() < 1e-9);
    }

    #[test]
    fn bins_are_touched_by_what_happens_and_what_goes_on() {
        let (occupancy, at) = (Occupancy::new(), Timestamp::from_secs_f64);
        let place = Place {
            inside: 12,
            bound: false,
        };
        assert!(occupancy.is_untouched());
        occupancy.on_enter(at(0.0), place);
        let touched = || occupancy.take_touched().collect::<Vec<_>>();
        assert_eq!(touched(), [bin_of(12)]);
        assert_eq!(touched(), [bin_of(12)], "it goes on");
        occupancy.on_leave(at(3.0), place, true);
        occupancy.on_done(1, 9);
        assert_eq!(touched(), [1, bin_of(12)]);
        assert!(occupancy.is_untouched());
        assert!(touched().is_empty());
    }

    #[test]
    fn request_counts_with_its_time_so_far_and_once() {
        let (occupancy, at) = (Occupancy::new(), Timestamp::from_secs_f64);
        let place = Place {
            inside: 1,
            bound: false,
        };
        occupancy.on_enter(at(0.0), place);
        assert_eq!(occupancy.take_admitted(at(2.0), 1), (2.0, 0.0));
        occupancy.on_leave(at(3.0), place, false);
        assert_eq!(occupancy.take_admitted(at(9.0), 1), (1.0, 0.0));
    }
}
