//! How long a request takes in a replica, by how many are inside.
//!
//! The *base* residence is that without a crowd: the mean over all concurrencies up to some `n`,
//! with the `n` for which it is smallest. With very few inside they are often those that
//! take long, with many they hold each other up; single concurrencies mislead, because short
//! requests come and go while long ones stay.
//!
//! A change of the service's speed stretches the whole profile; the concurrency at which it bends
//! stays.

use crate::occupancy::{BINS, Occupancy, top_of};

/// Requests a bin remembers.
const MEMORY: f64 = 500.0;

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

    /// Mean residence of at least so many.
    fn residence(&self, samples: f64) -> Option<f64> {
        (self.done >= samples).then(|| self.inside_seconds / self.done)
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            inside_seconds: self.inside_seconds + other.inside_seconds,
            done: self.done + other.done,
        }
    }
}

/// Residence without a crowd.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Base {
    /// In seconds.
    pub(crate) residence: f64,
    /// Fewer inside were seen to take no less; otherwise it may be shorter still.
    pub(crate) proven: bool,
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

    /// Residence without a crowd, from concurrencies up to `most` and at least so many samples.
    pub(crate) fn base(&self, most: f64, samples: f64) -> Option<Base> {
        let mut sum = Bin::default();
        let mut best: Option<(usize, f64)> = None;
        let mut lowest = None;
        for (index, bin) in self.bins.iter().enumerate().skip(1) {
            if f64::from(top_of(index)) > most {
                break;
            }
            sum = sum.plus(bin);
            let Some(residence) = sum.residence(samples) else {
                continue;
            };
            lowest = lowest.or(Some(index));
            if best.is_none_or(|(_, least)| residence < least) {
                best = Some((index, residence));
            }
        }
        let (found_at, residence) = best?;
        Some(Base {
            residence,
            proven: lowest.is_some_and(|lowest| found_at > lowest) || found_at <= 1,
        })
    }

    /// What is known is about another service.
    pub(crate) fn forget(&mut self) {
        *self = Self::new();
    }

    /// The service became slower (or faster) by this factor.
    pub(crate) fn stretch(&mut self, factor: f64) {
        for bin in &mut self.bins {
            bin.inside_seconds *= factor;
        }
    }
}
