//! What a run measured, and how sure that is.
//!
//! Memory is bounded throughout: a run of any length keeps moments ([`Moments`]), areas
//! ([`TimeAverage`]), buckets ([`Histogram`]) and a fixed number of batches ([`BatchMeans`]).

mod batch;
mod estimate;
mod histogram;
mod moments;

pub use batch::BatchMeans;
pub use estimate::Estimate;
pub use histogram::Histogram;
pub use moments::{Moments, TimeAverage};

/// The empirical distribution function of `samples`: each value with the share of samples up to it,
/// ascending, equal values once. Samples that are not finite are left out.
#[must_use]
pub fn distribution(samples: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (rank, &value) in sorted.iter().enumerate() {
        let share = (rank + 1) as f64 / n;
        match points.last_mut() {
            Some(last) if last.0 == value => last.1 = share,
            _ => points.push((value, share)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_climbs_from_the_least_to_one() {
        let points = distribution(&[3.0, 1.0, f64::NAN, 3.0, 2.0]);
        assert_eq!(points, [(1.0, 0.25), (2.0, 0.5), (3.0, 1.0)]);
        assert!(distribution(&[]).is_empty());
    }
}
