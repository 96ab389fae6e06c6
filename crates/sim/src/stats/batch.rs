//! Confidence from a single long run.
//!
//! Successive response times are correlated, means of long batches hardly: the run is cut into
//! batches and their means are treated as independent samples (Conway 1963). The number of batches
//! stays between `BATCHES` and twice that: when it doubles, neighbours are merged, so that batches
//! grow with the run and memory does not.
//!
//! What breaks it: a run that is only a few correlation times long; the interval is then too
//! narrow.

use super::Estimate;

/// Few enough that batches are long, many enough that the t quantile is small (Schmeiser 1982).
const BATCHES: usize = 20;

/// Means of consecutive, equally long batches of samples.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchMeans {
    means: Vec<f64>,
    length: u64,
    /// Sum and number of the samples of the batch under way.
    open: (f64, u64),
}

impl Default for BatchMeans {
    fn default() -> Self {
        Self {
            means: Vec::with_capacity(2 * BATCHES),
            length: 1,
            open: (0.0, 0),
        }
    }
}

impl BatchMeans {
    /// Takes one sample.
    #[inline]
    pub fn add(&mut self, sample: f64) {
        self.open.0 += sample;
        self.open.1 += 1;
        if self.open.1 == self.length {
            self.close();
        }
    }

    fn close(&mut self) {
        self.means.push(self.open.0 / self.length as f64);
        self.open = (0.0, 0);
        if self.means.len() == 2 * BATCHES {
            self.means = self
                .means
                .chunks_exact(2)
                .map(|pair| 0.5 * (pair[0] + pair[1]))
                .collect();
            self.length *= 2;
        }
    }

    /// The mean with its confidence interval; samples of the unfinished batch are left out.
    #[must_use]
    pub fn estimate(&self, level: f64) -> Estimate {
        Estimate::from_samples(&self.means, level)
    }

    /// Samples per batch.
    #[must_use]
    pub fn batch_length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;
    use crate::service::unit_exponential;

    #[test]
    fn batches_grow_and_their_number_does_not() {
        let mut batches = BatchMeans::default();
        (0..10_000).for_each(|i| batches.add(f64::from(i)));
        assert!((BATCHES..2 * BATCHES).contains(&batches.means.len()));
        assert_eq!(batches.batch_length(), 256);
        let used = batches.means.len() as f64 * 256.0;
        assert_eq!(batches.estimate(0.95).mean, (used - 1.0) / 2.0);
    }

    /// An interval at 95 % misses the truth in about 5 of 100 runs, also for correlated samples.
    #[test]
    fn the_interval_keeps_its_promise() {
        let misses = (0..200)
            .filter(|&run| {
                let mut rng = Streams::new(5).indexed("run", run);
                let mut batches = BatchMeans::default();
                let mut state = 1.0;
                for _ in 0..20_000 {
                    state = 0.9 * state + 0.1 * unit_exponential(&mut rng);
                    batches.add(state);
                }
                !batches.estimate(0.95).contains(1.0)
            })
            .count();
        // Binomial(200, 0.05): mean 10, sd 3.1.
        assert!((1..=20).contains(&misses), "{misses} of 200 missed");
    }
}
