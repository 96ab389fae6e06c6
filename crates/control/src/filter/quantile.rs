//! Quantiles of the last samples, exact.
//!
//! By nearest rank, the `N_95` of 004: the smallest sample that at least 95 % of the window do not
//! exceed. It is always a sample that occurred. The window is kept sorted; a sample costs a binary
//! search and moving part of the window in memory: right for up to a few thousand samples, and
//! there is no error to reason about. For more than that use a histogram.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use super::SampleCheck;

/// The sample of nearest rank `⌈q n⌉` of `n` sorted ones: the smallest that a share `q` of
/// all do not exceed. Nothing when there is none; `q` outside 0 to 1 gives the nearest end.
///
/// ```
/// use tidegate_control::filter::nearest_rank;
///
/// let sorted: Vec<f64> = (1..=20).map(f64::from).collect();
/// assert_eq!(nearest_rank(&sorted, 0.95), Some(19.0));
/// assert_eq!(nearest_rank(&sorted, 0.951), Some(20.0));
/// assert_eq!(nearest_rank(&[], 0.95), None);
/// ```
#[must_use]
pub fn nearest_rank(sorted: &[f64], q: f64) -> Option<f64> {
    // The product may land just above a whole number (0.07 * 100); that is not a rank more.
    let rank = (q * sorted.len() as f64 - 1e-9).ceil() as usize;
    let last = sorted.len().checked_sub(1)?;
    sorted.get(rank.saturating_sub(1).min(last)).copied()
}

/// Quantiles of the last samples.
///
/// ```
/// use std::num::NonZeroUsize;
/// use tidegate_control::filter::WindowedQuantile;
///
/// let mut response_ms = WindowedQuantile::new(NonZeroUsize::new(100).unwrap());
/// (1..=1000).for_each(|ms| response_ms.on_sample(f64::from(ms)));
/// assert_eq!(response_ms.quantile(0.95), Some(995.0)); // of 901 to 1000
/// response_ms.clear(); // for a window per control interval
/// assert_eq!(response_ms.quantile(0.95), None);
/// ```
#[derive(Debug, Clone)]
pub struct WindowedQuantile {
    capacity: usize,
    arrivals: VecDeque<f64>,
    sorted: Vec<f64>,
    check: SampleCheck,
}

impl WindowedQuantile {
    /// Keeps the last `capacity` samples.
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self {
            capacity: capacity.get(),
            arrivals: VecDeque::new(),
            sorted: Vec::new(),
            check: SampleCheck::default(),
        }
    }

    /// Takes one sample; the oldest goes when the window is full.
    pub fn on_sample(&mut self, sample: f64) {
        if !self.check.accept(sample) {
            return;
        }
        if self.arrivals.len() == self.capacity {
            self.drop_oldest();
        }
        self.arrivals.push_back(sample);
        let place = self.place(sample);
        self.sorted.insert(place, sample);
    }

    /// The nearest-rank quantile `q` (0.95 for `N_95`), once there is a sample.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        nearest_rank(&self.sorted, q)
    }

    /// How many samples are in the window.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether the window holds no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.arrivals.clear();
        self.sorted.clear();
    }

    /// How many samples were skipped.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.check.refused
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.arrivals.pop_front() {
            let place = self.place(oldest);
            self.sorted.remove(place);
        }
    }

    /// Where `sample` is, or belongs.
    fn place(&self, sample: f64) -> usize {
        self.sorted
            .partition_point(|x| x.total_cmp(&sample).is_lt())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_do_not_suffer_from_rounding() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        for percent in 1..=100_u32 {
            let q = f64::from(percent) / 100.0;
            assert_eq!(nearest_rank(&sorted, q), Some(f64::from(percent)));
        }
        assert_eq!(nearest_rank(&sorted, 0.0), Some(1.0));
        assert_eq!(nearest_rank(&sorted, 7.0), Some(100.0));
    }

    #[test]
    fn samples_that_are_not_finite_are_skipped() {
        let mut window = WindowedQuantile::new(NonZeroUsize::new(3).unwrap());
        for sample in [f64::NAN, 1.0, f64::INFINITY] {
            window.on_sample(sample);
        }
        assert_eq!((window.len(), window.bad_samples()), (1, 2));
    }

    proptest! {
        #[test]
        fn agrees_with_sorting_the_last_samples(
            capacity in 1_usize..20,
            samples in prop::collection::vec(-5_i32..5, 1..100),
            q in 0.0..1.0_f64,
        ) {
            let mut window = WindowedQuantile::new(NonZeroUsize::new(capacity).unwrap());
            let samples: Vec<f64> = samples.into_iter().map(f64::from).collect();
            samples.iter().for_each(|&sample| window.on_sample(sample));
            let mut last = samples[samples.len().saturating_sub(capacity)..].to_vec();
            last.sort_by(f64::total_cmp);
            prop_assert_eq!(window.quantile(q), nearest_rank(&last, q));
            let reached = last.iter().filter(|&&x| x <= window.quantile(q).unwrap()).count();
            prop_assert!(reached as f64 >= q * last.len() as f64 - 1e-6);
        }
    }
}
