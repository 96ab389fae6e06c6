//! How long a request takes in a replica, by how many are inside.
//!
//! The *base* residence is that without a crowd: the smallest over all concurrencies seen, with
//! room for chance. At the lowest concurrencies the few that are inside are often those that take
//! long, at the highest they hold each other up; somewhere between it shows.
//!
//! A change of the service's speed stretches the whole profile; the concurrency at which it bends
//! stays.

use crate::occupancy::{BINS, Occupancy, top_of};

/// Requests a bin remembers.
const MEMORY: f64 = 500.0;

/// Requests without which a bin says nothing.
const SAMPLES_MIN: f64 = 30.0;

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    inside_seconds: f64,
    done: f64,
}

impl Bin {
    fn add(&mut self, inside_seconds: f64, done: f64) {
        let kept = (1.0 - done / MEMORY).max(0.0);
        let kept = if self.done + done > MEMORY { kept } else { 1.0 };
        self.inside_seconds = self.inside_seconds * kept + inside_seconds;
        self.done = self.done * kept + done;
    }

    /// Mean residence.
    fn residence(&self) -> Option<f64> {
        (self.done >= SAMPLES_MIN).then(|| self.inside_seconds / self.done)
    }

    /// The same, a chance deviation larger.
    fn residence_at_most(&self) -> Option<f64> {
        let chance = 1.0 + 1.0 / self.done.sqrt();
        self.residence().map(|residence| residence * chance)
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Profile {
    bins: [Bin; BINS],
}

impl Profile {
    pub(crate) fn new() -> Self {
        Self {
            bins: [Bin::default(); BINS],
        }
    }

    /// Takes over what was seen since the last call.
    pub(crate) fn absorb(&mut self, occupancy: &Occupancy) {
        for (index, bin) in self.bins.iter_mut().enumerate().skip(1) {
            let (inside_seconds, done) = occupancy.take(index);
            bin.add(inside_seconds, done);
        }
    }

    /// Residence without a crowd, from concurrencies up to `most`: at least, and at most.
    pub(crate) fn base(&self, most: f64) -> Option<(f64, f64)> {
        let up_to = |index: usize| f64::from(top_of(index)) <= most;
        let seen = || self.bins.iter().enumerate().skip(1);
        let least = |residence: fn(&Bin) -> Option<f64>| {
            seen()
                .take_while(|(index, _)| up_to(*index))
                .filter_map(|(_, bin)| residence(bin))
                .min_by(f64::total_cmp)
        };
        Some((least(Bin::residence)?, least(Bin::residence_at_most)?))
    }

    /// The service became slower (or faster) by this factor.
    pub(crate) fn stretch(&mut self, factor: f64) {
        for bin in &mut self.bins {
            bin.inside_seconds *= factor;
        }
    }
}
