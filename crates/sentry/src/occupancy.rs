//! Service time by concurrency: how long a request takes that finds so many others inside.
//!
//! Every request carries how many were inside when it was admitted, itself included. Its time counts
//! in a bin of that concurrency, two bins per octave, from then on, and so does its completion. The work
//! of a request does not depend on what it finds, so time over completions is the mean service time at
//! that concurrency whatever the arrivals: one by one, in batches, or on a beat. Requests that are still
//! inside, and those whose clients have left, count with their time (censored samples).
//!
//! Beside that, the requests that took the last slot of the window, and the time in which a full
//! window does as many. By Little's law `w` slots that are full serve one request every `R / w`, with the
//! service time `R` of a request that was admitted to the last of them. While the window stays full all
//! requests are of that kind, and the sum of `R / w` is the time that has passed.
//!
//! The time with `n` inside over the completions meanwhile is the same for arrivals one at a time, and
//! wrong for others: eight requests that come at once and take equally long end at once too, so that the
//! first completion ends the full window and concurrencies of one to seven show requests that take no
//! time at all (docs/decisions/0070).
//!
//! What breaks it: requests that come together and share a processor. The first of them counts as one
//! that was alone, and took as long as all of them.
//!
//! Slots that are kept after their clients have left ([`departed_slots`](crate::engine)) take room and no
//! time.
//!
//! Filled by many threads, emptied by one.

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

/// Shares of a slot are counted in these: a request in a window of `n` slots stands for `1 / n` of the
/// time.
const WHOLE: u64 = 1 << 20;

/// Time that requests have spent inside, those included that are still there.
///
/// `clock + present * now` is that time since the beginning, modulo 2^64: a request that enters takes
/// off when it came, and one that leaves adds when it left.
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
    fn enter(&self, now: Timestamp, weight: u64) {
        let since = now.as_nanos().wrapping_mul(weight);
        self.clock_ns.fetch_sub(since, Ordering::SeqCst);
        self.present.fetch_add(weight, Ordering::SeqCst);
    }

    /// As [`Stay::enter`]. A request whose client has left counts with its time alone.
    fn leave(&self, now: Timestamp, weight: u64, done: bool) {
        let until = now.as_nanos().wrapping_mul(weight);
        self.present.fetch_sub(weight, Ordering::SeqCst);
        self.clock_ns.fetch_add(until, Ordering::SeqCst);
        self.done.fetch_add(u32::from(done), Ordering::Relaxed);
    }

    /// Nanoseconds since the last call, and requests done. What is seen in the middle of a change counts
    /// the next time.
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
        (more as f64, done)
    }
}

/// What requests take, by the concurrency they were admitted to.
#[derive(Debug)]
pub(crate) struct Occupancy {
    stays: [Stay; BINS],
    /// Of the requests that took the last slot.
    full: Stay,
}

/// What was done with the window full.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Full {
    pub(crate) seconds: f64,
    pub(crate) done: f64,
}

/// What a request was admitted to; it leaves with the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Requests inside, itself included.
    pub(crate) inside: u32,
    /// It took the last slot of the window.
    pub(crate) last: bool,
}

impl Occupancy {
    pub(crate) fn new() -> Self {
        Self {
            stays: std::array::from_fn(|_| Stay::default()),
            full: Stay::default(),
        }
    }

    /// A request is admitted.
    pub(crate) fn on_enter(&self, now: Timestamp, place: Place) {
        self.stays[bin_of(place.inside)].enter(now, 1);
        if place.last {
            self.full.enter(now, share_of(place.inside));
        }
    }

    /// It leaves, served or not.
    pub(crate) fn on_leave(&self, now: Timestamp, place: Place, served: bool) {
        self.stays[bin_of(place.inside)].leave(now, 1, served);
        if place.last {
            self.full.leave(now, share_of(place.inside), served);
        }
    }

    /// What was done with the window full since the last call.
    pub(crate) fn take_full(&self, now: Timestamp) -> Full {
        let (ns, done) = self.full.take(now);
        Full {
            seconds: ns * 1e-9 / WHOLE as f64,
            done,
        }
    }

    /// Request-seconds and requests done in a bin since the last call.
    pub(crate) fn take(&self, now: Timestamp, bin: usize) -> (f64, f64) {
        let (ns, done) = self.stays[bin].take(now);
        (ns * 1e-9, done)
    }
}

fn share_of(inside: u32) -> u64 {
    WHOLE / u64::from(inside.max(1))
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

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn place(inside: u32, last: bool) -> Place {
        Place { inside, last }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-5, "{a} is not {b}");
    }

    #[test]
    fn batch_of_equal_requests_shows_their_time_and_the_rate_of_the_window() {
        let occupancy = Occupancy::new();
        let places = (1..=8).map(|n| place(n, n == 8));
        places
            .clone()
            .for_each(|place| occupancy.on_enter(at(1.0), place));
        places.for_each(|place| occupancy.on_leave(at(1.016), place, true));
        for n in 1..=4 {
            let (inside, done) = occupancy.take(at(2.0), bin_of(n));
            near(inside, 0.016);
            near(done, 1.0);
        }
        // 8 slots of 16 ms each do 500 requests a second.
        let full = occupancy.take_full(at(2.0));
        near(full.seconds / full.done, 0.002);
        assert_eq!(occupancy.take_full(at(3.0)), Full::default());
    }

    #[test]
    fn window_that_stays_full_counts_the_time_that_passes() {
        let occupancy = Occupancy::new();
        // The first finds one slot taken already, and each that leaves is followed by another.
        occupancy.on_enter(at(0.0), place(2, true));
        occupancy.on_enter(at(0.0), place(2, true));
        for second in 1..=3 {
            occupancy.on_leave(at(f64::from(second)), place(2, true), true);
            occupancy.on_enter(at(f64::from(second)), place(2, true));
        }
        let full = occupancy.take_full(at(3.0));
        near(full.seconds, 3.0);
        near(full.done, 3.0);
        near(occupancy.take(at(3.0), bin_of(2)).0, 6.0);
    }

    #[test]
    fn request_that_does_not_end_takes_time_all_the_same() {
        let occupancy = Occupancy::new();
        occupancy.on_enter(at(1.0), place(1, false));
        assert_eq!(occupancy.take(at(1.5), 1), (0.5, 0.0));
        assert_eq!(occupancy.take(at(1.75), 1), (0.25, 0.0));
        // Its client leaves: that much time, and no request done.
        occupancy.on_leave(at(2.0), place(1, false), false);
        assert_eq!(occupancy.take(at(9.0), 1), (0.25, 0.0));
    }
}
