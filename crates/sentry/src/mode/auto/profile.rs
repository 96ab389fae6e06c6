//! How long a request takes in a replica, by how many are inside.
//!
//! The *base* service time is that without a crowd: the mean over all concurrencies up to some `n`,
//! with the `n` for which it is smallest. With very few inside they are often those that
//! take long, with many they hold each other up; single concurrencies mislead, because short
//! requests come and go while long ones stay. Where as much was done as the replica can do there
//! was a crowd, unless a request was alone; that is no base.
//!
//! A service that was overloaded from its first request on has never been seen without a crowd.
//! Then the window is made smaller until throughput falls: in a window that costs throughput there
//! is no crowd, and the service time in it is the base. Once may be bad luck unless it fell far;
//! twice is believed.
//!
//! What is done at a concurrency shows as well what the replica can do, with no window full:
//! completions over the time with `n` inside are the arrivals with one less inside (levels are
//! crossed up as often as down), whatever the law of the work. They grow with `n` up to the knee,
//! and no further. So where requests took far longer than without a crowd, what was done is
//! capacity.
//!
//! Times are those at one and the same speed of the service, so that a change of its capacity
//! leaves the profile as it is.

use tidegate_control::Timestamp;

use super::tuning::Tuning;
use super::typical::Typical;
use crate::counts::Counts;
use crate::occupancy::{BINS, Occupancy, bin_of, middle_of, top_of};

/// Completions needed until a service time of `bases` base service times is no chance: they
/// tell its logarithm to `1 / √samples`.
pub(super) fn crowd_samples(bases: f64) -> f64 {
    if bases > Tuning::CROWD_BASES.get() {
        (Tuning::CROWD_Z.get() / (bases / Tuning::CROWD_BASES_NARROW.get()).ln()).powi(2)
    } else {
        f64::INFINITY
    }
}

/// What was seen at a concurrency.
fn at_level(index: usize, (inside_seconds, done): (f64, f64)) -> Counts {
    Counts {
        done,
        seconds: inside_seconds / middle_of(index),
        inside_seconds,
    }
}

/// Adds to what is remembered of a concurrency, which is bounded: the older, the less it counts.
fn remember(bin: &mut Counts, new: &Counts) {
    let full = bin.done + new.done > Tuning::PROFILE_COMPLETIONS_MAX.get();
    let kept = if full {
        1.0 - new.done / Tuning::PROFILE_COMPLETIONS_MAX.get()
    } else {
        1.0
    };
    *bin = bin.times(kept.max(0.0)).plus(new);
}

/// How long a request takes in a replica, by how many are inside.
#[derive(Debug)]
pub(crate) struct Profile {
    /// By how many were inside.
    level: [Counts; BINS],
    /// By how many were inside when a request was admitted.
    admitted: [Counts; BINS],
    /// How long a request typically took, by the one of both that is valid.
    typical: [Typical; BINS],
    /// Requests come several at once, so that levels show nothing.
    clumped: bool,
    too_small: TooSmall,
}

/// What was seen at some concurrencies together.
#[derive(Debug, Clone, Copy, Default)]
struct LevelCounts {
    counts: Counts,
    typical: Typical,
}

impl LevelCounts {
    fn plus(&self, other: &Self) -> Self {
        Self {
            counts: self.counts.plus(&other.counts),
            typical: self.typical.plus(other.typical),
        }
    }

    /// By how much requests take longer than in a calm: all of them, if they hold each other up.
    /// Where only the mean rises, some take longer by themselves.
    fn bases(&self, calm: &Self) -> f64 {
        let mean = self.counts.service_time() / calm.counts.service_time();
        let typical = self.typical.over(calm.typical);
        typical.map_or(mean, |typical| mean.min(typical))
    }
}

/// Service time in a window that cost throughput.
#[derive(Debug, Clone, Copy)]
enum TooSmall {
    Never,
    Once(f64),
    Twice(f64),
}

impl Profile {
    pub(crate) fn new() -> Self {
        Self {
            level: [Counts::default(); BINS],
            admitted: [Counts::default(); BINS],
            typical: [Typical::default(); BINS],
            clumped: false,
            too_small: TooSmall::Never,
        }
    }

    /// Takes over what was seen in the `seconds` since the last call, at a speed that makes
    /// requests take that much less time than at speed 1; returns it as it was.
    pub(crate) fn absorb(
        &mut self,
        occupancy: &Occupancy,
        now: Timestamp,
        seconds: f64,
        speed: f64,
    ) -> Counts {
        let mut all = Counts::of(0.0, seconds);
        for index in occupancy.take_touched().filter(|&index| index > 0) {
            let (inside, done) = occupancy.take_admitted(now, index);
            remember(
                &mut self.admitted[index],
                &at_level(index, (inside * speed, done)),
            );
            let (inside, done) = occupancy.take(index);
            remember(
                &mut self.level[index],
                &at_level(index, (inside * speed, done)),
            );
            all.inside_seconds += inside;
            all.done += done;
        }
        self.learn_times(occupancy, speed);
        all
    }

    /// A concurrency of which nothing is known begins with what is typical of the next smaller.
    fn learn_times(&mut self, occupancy: &Occupancy, speed: f64) {
        for time in occupancy.take_times() {
            let index = if self.clumped {
                time.admitted
            } else {
                time.level
            };
            let (smaller, rest) = self.typical.split_at_mut(index);
            let guess = smaller.iter().rev().find(|typical| typical.is_known());
            rest[0].learn(time.seconds * speed, guess.copied());
        }
    }

    /// Takes over what several engines did together, of which no more is known than how many
    /// requests were inside on average: by Little's law that is the mean service time as well.
    pub(crate) fn absorb_mean(&mut self, all: &Counts, speed: f64) {
        // `as` saturates and maps NaN to zero.
        let inside = all.concurrency().round() as u32;
        if inside > 0 {
            let index = bin_of(inside);
            let new = at_level(index, (all.inside_seconds * speed, all.done));
            remember(&mut self.level[index], &new);
            remember(&mut self.admitted[index], &new);
        }
    }

    /// Leaves out what was seen in the `seconds` since the last call; returns it.
    pub(crate) fn pass_over(&self, occupancy: &Occupancy, now: Timestamp, seconds: f64) -> Counts {
        let mut all = Counts::of(0.0, seconds);
        for index in occupancy.take_touched().filter(|&index| index > 0) {
            occupancy.take_admitted(now, index);
            let (inside, done) = occupancy.take(index);
            all.inside_seconds += inside;
            all.done += done;
        }
        occupancy.take_times().for_each(drop);
        all
    }

    /// Whether requests come several at once.
    pub(super) fn set_clumped(&mut self, clumped: bool) {
        self.clumped = clumped;
    }

    /// What is valid for these arrivals.
    fn bins(&self) -> &[Counts; BINS] {
        if self.clumped {
            &self.admitted
        } else {
            &self.level
        }
    }

    /// A window cost throughput, in which requests took so long at speed 1: so much of it that it
    /// need not happen twice if `clear`.
    pub(crate) fn on_too_small(&mut self, residence: f64, clear: bool) {
        self.too_small = match self.too_small {
            TooSmall::Never if clear => TooSmall::Twice(residence),
            TooSmall::Never => TooSmall::Once(residence),
            TooSmall::Once(first) => TooSmall::Twice(0.5 * (first + residence)),
            known @ TooSmall::Twice(_) => known,
        };
    }

    /// It cost none when it was tried again.
    pub(crate) fn on_large_enough(&mut self) {
        if let TooSmall::Once(_) = self.too_small {
            self.too_small = TooSmall::Never;
        }
    }

    /// What trials have shown is to be found out again; says whether they have shown anything.
    pub(crate) fn doubt(&mut self) -> bool {
        let shown = matches!(self.too_small, TooSmall::Twice(_));
        if shown {
            self.too_small = TooSmall::Never;
        }
        shown
    }

    /// Service time without a crowd in seconds at speed 1, from concurrencies up to `most` and at
    /// least this many samples, or from a window that was too small. `capacity` is what can be done
    /// per second at speed 1.
    pub(crate) fn base(&self, most: f64, samples: f64, capacity: f64) -> Option<f64> {
        let tried = match self.too_small {
            TooSmall::Twice(residence) => Some(residence),
            _ => None,
        };
        let known = [tried, self.seen(most, samples, capacity)]
            .into_iter()
            .flatten();
        known.reduce(f64::min)
    }

    fn seen(&self, most: f64, samples: f64, capacity: f64) -> Option<f64> {
        let calm = self.calm(most, samples, capacity)?;
        Some(calm.counts.service_time())
    }

    /// Where requests took the least time.
    fn calm(&self, most: f64, samples: f64, capacity: f64) -> Option<LevelCounts> {
        let mut sum = LevelCounts::default();
        let mut least: Option<LevelCounts> = None;
        for index in 1..BINS {
            if f64::from(top_of(index)) > most {
                break;
            }
            sum = sum.plus(&self.seen_at(index));
            let calm =
                top_of(index) == 1 || sum.counts.rate() < Tuning::PROFILE_CALM.get() * capacity;
            let less = |least: LevelCounts| sum.counts.service_time() < least.counts.service_time();
            if sum.counts.done >= samples && calm && least.is_none_or(less) {
                least = Some(sum);
            }
        }
        least
    }

    fn seen_at(&self, index: usize) -> LevelCounts {
        LevelCounts {
            counts: self.bins()[index],
            typical: self.typical[index],
        }
    }

    /// By how much a typical request takes longer with `window` and more inside than where requests
    /// take the least time, with no more than `most` and at least this many samples.
    pub(crate) fn typical_bases(&self, window: u32, most: f64, samples: f64) -> Option<f64> {
        let calm = self.calm(most, samples, f64::INFINITY)?;
        let mut top_down = self.top_down().take(BINS - bin_of(window));
        top_down.find_map(|seen| seen.typical.over(calm.typical))
    }

    /// What can be done per second at speed 1, going by what was done with this many inside that
    /// they held each other up beyond doubt, however much the work varies. Where that is so from
    /// several concurrencies on, the most: a window that is too large is better than one that is
    /// too small.
    pub(crate) fn crowded_rate(&self, samples: f64) -> Option<f64> {
        let calm = self.calm(f64::INFINITY, samples, f64::INFINITY)?;
        let is_crowd = |seen: &LevelCounts| {
            let needed = Tuning::DISPERSION_MAX.get() * crowd_samples(seen.bases(&calm));
            seen.counts.done >= needed.max(samples)
        };
        let crowds = self.top_down().filter(is_crowd);
        crowds.map(|seen| seen.counts.rate()).reduce(f64::max)
    }

    /// What was done with the most inside, with those and the next fewer, and so on.
    fn top_down(&self) -> impl Iterator<Item = LevelCounts> {
        (1..BINS).rev().scan(LevelCounts::default(), |sum, index| {
            *sum = sum.plus(&self.seen_at(index));
            Some(*sum)
        })
    }

    /// Least service time, and throughput where requests hold each other up, in a
    /// service that fills up.
    pub(crate) fn crowd(&self, samples: f64) -> Option<(f64, f64)> {
        let calm = self.calm(f64::INFINITY, samples, f64::INFINITY)?;
        // The mean shows it sooner: of those that are piling up none is done.
        let is_crowd = |seen: &LevelCounts| {
            let bases = seen.counts.service_time() / calm.counts.service_time();
            bases > Tuning::CROWD_BASES_FILLING.get()
                && seen.counts.done >= crowd_samples(bases).max(samples)
        };
        let crowd = self.top_down().find(is_crowd)?;
        Some((calm.counts.service_time(), crowd.counts.rate()))
    }

    /// Adds what was seen of another replica.
    pub(super) fn merge(&mut self, other: &Self) {
        self.clumped |= other.clumped;
        for (bin, new) in self.level.iter_mut().zip(&other.level) {
            *bin = bin.plus(new);
        }
        for (bin, new) in self.admitted.iter_mut().zip(&other.admitted) {
            *bin = bin.plus(new);
        }
        for (bin, new) in self.typical.iter_mut().zip(&other.typical) {
            *bin = bin.plus(*new);
        }
    }

    /// All that was seen.
    pub(super) fn all(&self) -> Counts {
        self.top_down().last().unwrap_or_default().counts
    }

    /// What is known is about another service.
    pub(crate) fn forget(&mut self) {
        *self = Self {
            clumped: self.clumped,
            ..Self::new()
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::occupancy::Place;

    impl Profile {
        /// Of `n` inside for as long as it takes until this many of them are done, each after
        /// `seconds`.
        pub(in super::super) fn of(n: u32, done: u32, seconds: f64) -> Self {
            Self::after(n, done, f64::from(done) * seconds / f64::from(n))
        }

        /// Of `n` inside for `seconds`, of which none is done.
        pub(in super::super) fn stuck(n: u32, seconds: f64) -> Self {
            Self::after(n, 0, seconds)
        }

        fn after(n: u32, done: u32, seconds: f64) -> Self {
            let (mut profile, occupancy) = (Self::new(), Occupancy::new());
            occupancy.on_change(Timestamp::ZERO, 0, u32::MAX);
            occupancy.on_change(Timestamp::from_secs_f64(seconds), n, u32::MAX);
            (0..done).for_each(|_| occupancy.on_done(n, u32::MAX));
            assert_eq!(
                profile
                    .absorb(&occupancy, Timestamp::ZERO, seconds, 1.0)
                    .done,
                f64::from(done)
            );
            profile
        }
    }

    /// `n` inside for as long as it takes until a hundred of them are done, each after `seconds`.
    fn crowd(profile: &mut Profile, n: u32, seconds: f64) {
        profile.merge(&Profile::of(n, 100, seconds));
    }

    const ANY: f64 = f64::INFINITY;

    #[test]
    fn base_is_where_there_is_no_crowd() {
        let mut profile = Profile::new();
        crowd(&mut profile, 16, 0.16);
        assert_eq!(
            profile.base(10.0, 50.0, ANY),
            None,
            "nothing so small was seen"
        );
        assert_eq!(
            profile.base(20.0, 50.0, 100.0),
            None,
            "all was done that can be done"
        );
        crowd(&mut profile, 3, 0.04);
        let base = profile.base(20.0, 50.0, 100.0).unwrap();
        assert!((base - 0.04).abs() < 1e-6, "{base}");
    }

    #[test]
    fn request_alone_is_no_crowd() {
        let mut profile = Profile::new();
        crowd(&mut profile, 1, 0.01);
        let base = profile.base(2.0, 50.0, 100.0).unwrap();
        assert!((base - 0.01).abs() < 1e-6, "{base}");
    }

    #[test]
    fn window_that_is_too_small_is_believed_the_second_time() {
        let mut profile = Profile::new();
        crowd(&mut profile, 16, 0.16);
        profile.on_too_small(0.12, false);
        profile.on_large_enough();
        profile.on_too_small(0.05, false);
        assert_eq!(profile.base(10.0, 50.0, ANY), None);
        profile.on_too_small(0.03, false);
        assert_eq!(profile.base(20.0, 50.0, ANY), Some(0.04));
        profile.forget();
        assert_eq!(profile.base(20.0, 50.0, ANY), None);
    }

    #[test]
    fn window_that_is_far_too_small_is_believed_at_once_until_it_is_doubted() {
        let mut profile = Profile::new();
        crowd(&mut profile, 16, 0.16);
        assert!(!profile.doubt());
        profile.on_too_small(0.05, true);
        assert_eq!(profile.base(10.0, 50.0, ANY), Some(0.05));
        assert!(profile.doubt());
        assert_eq!(profile.base(10.0, 50.0, ANY), None);
    }

    /// Four workers: what is done grows up to four inside, and then does not.
    #[test]
    fn what_a_crowd_does_is_what_can_be_done() {
        let mut profile = Profile::new();
        crowd(&mut profile, 2, 0.02);
        crowd(&mut profile, 4, 0.02);
        crowd(&mut profile, 6, 0.03);
        assert_eq!(profile.crowded_rate(50.0), None, "not beyond doubt");
        crowd(&mut profile, 16, 0.08);
        let rate = profile.crowded_rate(50.0).unwrap();
        // 200, but for the middle of bins.
        assert!((180.0..=200.0).contains(&rate), "{rate}");
    }

    #[test]
    fn few_that_are_slow_are_no_crowd() {
        let mut profile = Profile::new();
        crowd(&mut profile, 1, 0.01);
        crowd(&mut profile, 2, 0.018);
        assert_eq!(profile.crowded_rate(50.0), None);
    }

    /// Six times as many inside, and six times the mean, by Little's law: of a crowd all take as
    /// long, and of a page that takes long by itself the others take as long as before.
    #[test]
    fn long_requests_beside_others_are_no_crowd() {
        let crowded_rate = |typical_ms: u64| {
            let mut profile = Profile::new();
            for (n, done, seconds, each_ms) in [(2, 200, 2.0, 20), (12, 400, 4.0, typical_ms)] {
                let (occupancy, at) = (Occupancy::new(), Timestamp::from_secs_f64);
                let place = Place {
                    inside: n,
                    bound: false,
                };
                occupancy.on_change(at(0.0), 0, u32::MAX);
                occupancy.on_change(at(seconds), n, u32::MAX);
                for _ in 0..done {
                    occupancy.on_done(n, u32::MAX);
                    occupancy.on_time(n, place, Duration::from_millis(each_ms));
                }
                profile.absorb(&occupancy, at(seconds), seconds, 1.0);
            }
            profile.crowded_rate(50.0)
        };
        assert!(crowded_rate(120).is_some_and(|rate| (90.0..=110.0).contains(&rate)));
        assert_eq!(crowded_rate(20), None);
    }

    #[test]
    fn what_two_have_seen_shows_a_crowd_that_neither_shows() {
        let (mut one, other) = (Profile::of(4, 30, 0.1), Profile::of(16, 30, 0.4));
        assert_eq!(one.crowd(20.0), None);
        assert_eq!(other.crowd(20.0), None);
        one.merge(&other);
        let (base, rate) = one.crowd(20.0).unwrap();
        assert!((base - 0.1).abs() < 1e-6, "{base}");
        // 40, but for the middle of the bin.
        assert!((35.0..=40.0).contains(&rate), "{rate}");
    }

    #[test]
    fn what_is_passed_over_is_counted_and_forgotten() {
        let mut profile = Profile::new();
        let occupancy = Occupancy::new();
        occupancy.on_change(Timestamp::ZERO, 0, u32::MAX);
        occupancy.on_change(Timestamp::from_secs_f64(1.0), 3, u32::MAX);
        (0..100).for_each(|_| occupancy.on_done(3, u32::MAX));
        assert_eq!(
            profile.pass_over(&occupancy, Timestamp::ZERO, 1.0).done,
            100.0
        );
        assert_eq!(
            profile.absorb(&occupancy, Timestamp::ZERO, 1.0, 1.0).done,
            0.0
        );
        assert_eq!(profile.base(10.0, 50.0, ANY), None);
    }

    /// Eight that come and go at the same moment take equally long, whichever of them one looks at.
    #[test]
    fn batch_shows_the_service_time_by_admission() {
        let (mut profile, occupancy) = (Profile::new(), Occupancy::new());
        profile.set_clumped(true);
        for batch in 0..20 {
            let came = Timestamp::from_secs_f64(f64::from(batch) * 0.025);
            let left = came + std::time::Duration::from_millis(15);
            let places = (1..=8).map(|inside| Place {
                inside,
                bound: false,
            });
            places
                .clone()
                .for_each(|place| occupancy.on_enter(came, place));
            places.for_each(|place| occupancy.on_leave(left, place, true));
        }
        profile.absorb(&occupancy, Timestamp::from_secs_f64(1.0), 1.0, 1.0);
        let base = profile.base(ANY, 20.0, ANY).unwrap();
        assert!((base - 0.015).abs() < 1e-6, "{base}");
        assert_eq!(profile.crowded_rate(20.0), None);
    }
}
