//! How long a queue can chance alone bring about?
//!
//! A queue is the sum of what arrived beyond what was served, a random walk that is held at zero.
//! With a load of `ρ` it falls by `1 - ρ` for each request that could be served, with a variance of
//! `ρ A + D` (`A` and `D` are the indices of dispersion of what arrives and what is served). So it
//! exceeds `b` with a chance of `exp(-θ b)` (Kingman 1961; for Poisson both ways that is `ρ^b`),
//!
//! ```text
//! θ = 2 (1 - ρ) / (ρ A + D)
//! ```
//!
//! and about `r t (1 - ρ)²` times in a time `t` there is a fresh chance for it: this many times it
//! is empty and then does not stay so at once. The queue that chance exceeds once in `t` is
//!
//! ```text
//! b = ln(r t (1 - ρ)²) / θ
//! ```
//!
//! The queue itself is the evidence: no rate has to be known well. That is a sequential test with
//! its error counted in time instead of in looks (a cumulative sum, Page 1954).
//!
//! What breaks it: a queue that windows have made that are too small. The caller has to know
//! that.

use super::tuning::Tuning;

/// Requests in a queue that chance does not exceed, where `drain` per second are served, with the
/// dispersion of what arrives and of what is served.
pub(crate) fn burst(drain: f64, arrivals: f64, dispersion: f64) -> f64 {
    let room = 1.0 - Tuning::BURST_LOAD.get();
    let exponent =
        2.0 * room / (Tuning::BURST_LOAD.get() * arrivals.max(1.0) + dispersion.max(1.0));
    let chances = drain * Tuning::BURST_ONCE_IN_SECONDS.get() * room * room;
    chances.max(1.0).ln() / exponent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Dice;

    #[test]
    fn it_grows_with_the_dispersion_and_hardly_with_the_rate() {
        assert!((105.0..120.0).contains(&burst(20.0, 1.0, 1.0)));
        assert!((burst(2000.0, 1.0, 1.0) / burst(20.0, 1.0, 1.0)) < 1.5);
        assert!((2.0..3.0).contains(&(burst(100.0, 1.0, 4.0) / burst(100.0, 1.0, 1.0))));
        assert!(burst(0.0, 1.0, 1.0) >= 0.0);
    }

    /// Twenty hours at nine tenths of twenty requests per second.
    #[test]
    fn chance_stays_below_it() {
        let dice = Dice::new(1);
        let (mut queue, mut longest) = (0.0_f64, 0.0_f64);
        let steps = (72_000.0 * 20.0 * 1.9) as usize;
        for _ in 0..steps {
            let arrives = dice.unit() < Tuning::BURST_LOAD.get() / (1.0 + Tuning::BURST_LOAD.get());
            queue = (queue + if arrives { 1.0 } else { -1.0 }).max(0.0);
            longest = longest.max(queue);
        }
        assert!(longest < burst(20.0, 1.0, 1.0), "{longest}");
        assert!(longest > 0.5 * burst(20.0, 1.0, 1.0), "{longest}");
    }
}
