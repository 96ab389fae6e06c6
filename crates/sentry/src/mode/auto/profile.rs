//! How long a request takes in a replica, by how many are inside.
//!
//! The *base* residence is that without a crowd: the mean over all concurrencies up to some `n`,
//! with the `n` for which it is smallest. With very few inside they are often those that
//! take long, with many they hold each other up; single concurrencies mislead, because short
//! requests come and go while long ones stay.
//!
//! Times are those at one and the same speed of the service, so that a change of its capacity leaves
//! the profile as it is.

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

    /// Takes over what was seen since the last call, at a speed that makes requests take that
    /// much less time than at speed 1.
    pub(crate) fn absorb(&mut self, occupancy: &Occupancy, speed: f64) {
        for (index, bin) in self.bins.iter_mut().enumerate().skip(1) {
            let (inside_seconds, done) = occupancy.take(index);
            bin.add(inside_seconds * speed, done);
        }
    }

    /// Residence without a crowd in seconds at speed 1, from concurrencies up to `most` and at
    /// least so many samples.
    pub(crate) fn base(&self, most: f64, samples: f64) -> Option<f64> {
        let mut sum = Bin::default();
        let mut least: Option<f64> = None;
        for (index, bin) in self.bins.iter().enumerate().skip(1) {
            if f64::from(top_of(index)) > most {
                break;
            }
            sum = sum.plus(bin);
            let residence = sum.residence(samples).unwrap_or(f64::INFINITY);
            least = Some(least.map_or(residence, |least| least.min(residence)));
        }
        least.filter(|least| least.is_finite())
    }

    /// What is known is about another service.
    pub(crate) fn forget(&mut self) {
        *self = Self::new();
    }
}
