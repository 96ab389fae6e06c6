//! EPBH, a balancer made for replicas that dim: it shifts load towards the replicas that serve the
//! larger share in full, until the shares are equal.

/// Weight moved per sampling period and unit of difference.
const GAIN: f64 = 0.025;
/// A replica never gets less than this: it must be possible to see it recover.
const WEIGHT_MIN: f64 = 0.01;

/// Routing weights, one per replica, that sum to 1.
#[derive(Debug, Clone, Default)]
pub struct EqualDimmers {
    weights: Vec<f64>,
}

impl EqualDimmers {
    /// Equal weights for this many replicas; also what a change of their number does.
    pub fn reset(&mut self, replicas: usize) {
        self.weights.clear();
        self.weights.resize(replicas, 1.0 / replicas.max(1) as f64);
    }

    /// Moves the weights by the shares served in full that the replicas last reported.
    pub fn tick(&mut self, thetas: &[f64]) {
        debug_assert_eq!(thetas.len(), self.weights.len());
        let mean = thetas.iter().sum::<f64>() / thetas.len().max(1) as f64;
        for (weight, theta) in self.weights.iter_mut().zip(thetas) {
            *weight = (*weight + GAIN * (theta - mean)).max(WEIGHT_MIN);
        }
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|weight| *weight /= sum);
    }

    /// The weights, in the order of the replicas.
    #[must_use]
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The replica for a request, given a uniform random number from `[0, 1)`.
    #[must_use]
    pub fn choose(&self, uniform: f64) -> usize {
        let mut below = 0.0;
        for (index, weight) in self.weights.iter().enumerate() {
            below += weight;
            if below > uniform {
                return index;
            }
        }
        self.weights.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_load_to_the_brighter_replica_but_starves_none() {
        let mut weights = EqualDimmers::default();
        weights.reset(2);
        for _ in 0..1000 {
            weights.tick(&[1.0, 0.0]);
        }
        assert!(weights.weights[0] > 0.98);
        assert!(weights.weights[1] >= WEIGHT_MIN * 0.98);
        assert_eq!(weights.choose(0.5), 0);
        assert_eq!(weights.choose(0.999_999), 1);
    }
}
