//! Replicas that are looked at together while their first windows grow.
//!
//! To tell a crowd takes some forty requests ([`SlowStart`](super::slow_start::SlowStart)), and a
//! slow replica piles up as many until then. Replicas are mostly alike; so it takes forty of all of
//! them, and they stop together. A replica that is not like most (slow, stuck, of another weight)
//! is looked at alone, as if there were no others, and the others without it. When those have
//! stopped it stops too, unless it does more than they did: by chance one of many is not like them
//! while few requests are done.
//!
//! What breaks it: replicas that answer equally fast with few inside, but do not hold equally many.
//! The narrow one shows a crowd less, the wide ones more than is true; what follows are the trials
//! of each by itself.

use super::profile::Profile;
use super::tuning::Tuning;

/// Replicas that are looked at together while their first windows grow.
#[derive(Debug)]
pub(super) struct Cohort {
    /// How many grew, alike or not.
    size: usize,
    /// The window that most began with.
    first: f64,
    /// Their median service time.
    residence: f64,
    seen: Profile,
}

impl Cohort {
    /// Takes of each replica whose first window grows what that was, and what was seen of it.
    pub(super) fn of(growing: &[(f64, &Profile)]) -> Option<Self> {
        let first = median(growing.iter().map(|(first, _)| *first))?;
        let of_that = growing.iter().filter(|(other, _)| *other == first);
        let mut cohort = Self {
            size: growing.len(),
            first,
            residence: median(of_that.map(|(_, seen)| seen.all().service_time()))?,
            seen: Profile::new(),
        };
        for &(first, seen) in growing {
            if cohort.is_like(first, seen) {
                cohort.seen.merge(seen);
            }
        }
        Some(cohort)
    }

    /// What was seen of all that are like this one, if it is one of them.
    pub(super) fn seen_with(&self, first: f64, seen: &Profile) -> Option<&Profile> {
        self.is_like(first, seen).then_some(&self.seen)
    }

    /// What was seen of them before they stopped, for one that grew on: if it has become one of
    /// them, or does no more than they did, with as many inside.
    pub(super) fn seen_without(&self, first: f64, seen: &Profile) -> Option<&Profile> {
        let (one, all) = (seen.all(), self.seen.all());
        let no_more = one.done >= Tuning::SLOW_START_COMPLETIONS.get()
            && one.rate() < Tuning::COHORT_NO_MORE.get() * all.rate()
            && one.concurrency() >= all.concurrency();
        let like = self.is_like(first, seen) || (no_more && first == self.first);
        like.then_some(&self.seen)
    }

    /// Of how many it was made.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// One that has done nothing yet is like no other.
    fn is_like(&self, first: f64, seen: &Profile) -> bool {
        let residence = seen.all().service_time();
        let near = residence < Tuning::COHORT_ALIKE.get() * self.residence
            && self.residence < Tuning::COHORT_ALIKE.get() * residence;
        near && first == self.first
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of how many completions a cohort of these consists, and which of them are in it.
    fn pooled(growing: &[(f64, &Profile)]) -> (f64, Vec<bool>) {
        let cohort = Cohort::of(growing).unwrap();
        let is_in = |&(first, seen): &(f64, &Profile)| cohort.seen_with(first, seen).is_some();
        (cohort.seen.all().done, growing.iter().map(is_in).collect())
    }

    #[test]
    fn replicas_that_are_alike_are_looked_at_together() {
        let (a, b) = (Profile::of(16, 15, 0.3), Profile::of(20, 10, 0.5));
        assert_eq!(pooled(&[(16.0, &a), (16.0, &b)]), (25.0, vec![true, true]));
        assert!(Cohort::of(&[]).is_none());
    }

    #[test]
    fn one_that_is_slow_or_stuck_is_left_out() {
        let (a, b, slow) = (
            Profile::of(16, 40, 0.1),
            Profile::of(16, 40, 0.12),
            Profile::of(16, 10, 0.5),
        );
        let others = (80.0, vec![true, true, false]);
        assert_eq!(pooled(&[(16.0, &a), (16.0, &b), (16.0, &slow)]), others);
        let stuck = Profile::stuck(16, 1.0);
        assert_eq!(pooled(&[(16.0, &a), (16.0, &b), (16.0, &stuck)]), others);
        // Where most are stuck each one that is not is alone.
        let most = [(16.0, &a), (16.0, &stuck), (16.0, &stuck)];
        assert_eq!(pooled(&most).1, [false; 3]);
    }

    #[test]
    fn one_of_another_weight_is_left_out() {
        let (a, b) = (Profile::of(16, 40, 0.1), Profile::of(16, 40, 0.11));
        let (done, is_in) = pooled(&[(16.0, &a), (32.0, &a), (16.0, &b)]);
        assert_eq!((done, is_in), (80.0, vec![true, false, true]));
    }

    #[test]
    fn one_that_was_left_out_stops_too_unless_it_does_more() {
        let (a, b) = (Profile::of(16, 20, 0.6), Profile::of(16, 20, 0.7));
        let cohort = Cohort::of(&[(16.0, &a), (16.0, &b)]).unwrap();
        let stops = |first, seen: &Profile| cohort.seen_without(first, seen).is_some();
        let crowded = Profile::of(40, 20, 1.5);
        assert!(cohort.seen_with(16.0, &crowded).is_none());
        assert!(stops(16.0, &crowded));
        assert!(!stops(32.0, &crowded), "it is of another weight");
        assert!(!stops(16.0, &Profile::of(40, 19, 1.5)), "too few are done");
        assert!(!stops(16.0, &Profile::of(80, 80, 1.5)), "it does more");
        assert!(!stops(16.0, &Profile::of(10, 20, 0.3)), "it holds fewer");
        // Like them by now.
        assert!(stops(16.0, &Profile::of(16, 20, 0.5)));
    }

    #[test]
    fn one_alone_sees_what_it_saw() {
        let a = Profile::of(16, 40, 0.1);
        assert_eq!(pooled(&[(16.0, &a)]), (40.0, vec![true]));
    }
}
