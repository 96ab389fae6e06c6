//! Events of the last ticks.

use std::collections::VecDeque;

use super::tuning::Tuning;
use crate::counts::Counts;

/// Counts and lengths of the last ticks, the newest first.
#[derive(Debug)]
pub(crate) struct TickCounts {
    ticks: VecDeque<Counts>,
    most: usize,
}

impl TickCounts {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            ticks: VecDeque::with_capacity(most + 1),
            most,
        }
    }

    pub(crate) fn push(&mut self, counts: Counts) {
        self.ticks.push_front(counts);
        self.ticks.truncate(self.most);
    }

    /// Whether it looks back as far as it can.
    pub(crate) fn is_full(&self) -> bool {
        self.ticks.len() == self.most
    }

    /// Events per second over the last `ticks`; 0 before the first.
    pub(crate) fn rate_over(&self, ticks: usize) -> f64 {
        let counts = self.over(ticks);
        if counts.seconds > 0.0 {
            counts.rate()
        } else {
            0.0
        }
    }

    /// Events of the last tick.
    pub(crate) fn newest(&self) -> f64 {
        self.ticks.front().map_or(0.0, |tick| tick.done)
    }

    /// Events as far as it looks back.
    pub(crate) fn total(&self) -> Counts {
        self.over(self.most)
    }

    fn over(&self, ticks: usize) -> Counts {
        self.stretches(ticks).last().unwrap_or_default()
    }

    /// Events of every stretch that ends now, up to `ticks` long.
    pub(crate) fn stretches(&self, ticks: usize) -> impl Iterator<Item = Counts> + '_ {
        let add = |sum: &mut Counts, tick: &Counts| {
            *sum = sum.plus(tick);
            Some(*sum)
        };
        self.ticks.iter().take(ticks).scan(Counts::default(), add)
    }

    /// Variance over mean of the counts as far as it is beyond chance, at least 1: of single ticks
    /// and of groups, so that bursts count which last for several. Half the mean square of the
    /// difference of neighbours (von Neumann 1941), without the greatest tenth: what comes and goes
    /// a few times is a change of the load and no burst. So are the `newest` ticks.
    pub(crate) fn dispersion(&self, newest: usize) -> f64 {
        let of = |size| self.dispersion_of_groups(newest, size);
        let sizes = [1, Tuning::ARRIVALS_GROUP_DURATION.ticks()];
        sizes.into_iter().map(of).fold(1.0, f64::max)
    }

    fn dispersion_of_groups(&self, newest: usize, size: usize) -> f64 {
        let old = self.ticks.len().saturating_sub(newest);
        let groups = old / size;
        if groups < Tuning::ARRIVALS_GROUPS_MIN.get() {
            return 1.0;
        }
        let group = |index: usize| -> f64 {
            let first = newest + index * size;
            self.ticks
                .range(first..first + size)
                .map(|tick| tick.done)
                .sum()
        };
        let counts: Vec<f64> = (0..groups).map(group).collect();
        let mut squares: Vec<f64> = counts
            .windows(2)
            .map(|pair| square(pair[1] - pair[0]))
            .collect();
        squares.sort_by(f64::total_cmp);
        squares.truncate(squares.len() * 9 / 10);
        let mean = counts.iter().sum::<f64>() / groups as f64;
        let variance = squares.iter().sum::<f64>()
            / squares.len() as f64
            / 2.0
            / Tuning::ARRIVALS_TRIMMED.get();
        let chance = 1.0 + Tuning::ARRIVALS_Z.get() * (3.0 / groups as f64).sqrt();
        variance / mean.max(f64::MIN_POSITIVE) / chance
    }

    /// The same without the two ticks of each that brought most: a crowd that comes at once is in
    /// one of them, or in two.
    pub(crate) fn stretches_without_crowd(
        &self,
        ticks: usize,
    ) -> impl Iterator<Item = Counts> + '_ {
        let mut most = [Counts::default(); 2];
        let pairs = self.ticks.iter().zip(self.stretches(ticks));
        pairs
            .map(move |(&tick, sum)| {
                if tick.done > most[0].done {
                    most = [tick, most[0]];
                } else if tick.done > most[1].done {
                    most[1] = tick;
                }
                sum.minus(&most[0].plus(&most[1]))
            })
            .filter(|stretch| stretch.seconds > 0.0)
    }
}

fn square(x: f64) -> f64 {
    x * x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_back_as_far_as_asked() {
        let mut recent = TickCounts::new(3);
        assert_eq!(recent.rate_over(3), 0.0);
        for count in [1.0, 2.0, 3.0, 4.0] {
            recent.push(Counts::of(count, 0.5));
        }
        assert_eq!(recent.rate_over(1), 8.0);
        assert_eq!(recent.rate_over(9), 6.0);
        assert_eq!(recent.newest(), 4.0);
        let stretches: Vec<_> = recent.stretches(2).collect();
        assert_eq!(stretches, [Counts::of(4.0, 0.5), Counts::of(7.0, 1.0)]);
    }

    #[test]
    fn crowd_is_left_out_wherever_it_is() {
        let mut recent = TickCounts::new(9);
        for count in [1.0, 9.0, 8.0, 2.0, 3.0] {
            recent.push(Counts::of(count, 0.5));
        }
        let stretches: Vec<_> = recent.stretches_without_crowd(5).collect();
        let expected = [(2.0, 0.5), (5.0, 1.0), (6.0, 1.5)];
        assert_eq!(
            stretches,
            expected.map(|(done, seconds)| Counts::of(done, seconds))
        );
    }
}
