//! Events of the last ticks.

use std::collections::VecDeque;

/// Ticks in a group, for the dispersion, and the groups it takes.
const DISPERSION_GROUPS: [usize; 2] = [1, 5];
const DISPERSION_GROUPS_MIN: usize = 20;

/// Chance deviations that are taken off it.
const DISPERSION_Z: f64 = 3.0;

/// Mean of the squares of a normal deviate without the greatest tenth of them.
const TRIMMED: f64 = 0.623;

/// Counts and lengths of the last ticks, the newest first.
#[derive(Debug)]
pub(crate) struct TickCounts {
    ticks: VecDeque<(f64, f64)>,
    most: usize,
}

impl TickCounts {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            ticks: VecDeque::with_capacity(most + 1),
            most,
        }
    }

    pub(crate) fn push(&mut self, count: f64, seconds: f64) {
        self.ticks.push_front((count, seconds));
        self.ticks.truncate(self.most);
    }

    /// Whether it looks back as far as it can.
    pub(crate) fn is_full(&self) -> bool {
        self.ticks.len() == self.most
    }

    /// Events per second over the last `ticks`; 0 before the first.
    pub(crate) fn rate_over(&self, ticks: usize) -> f64 {
        let (count, seconds) = self.over(ticks);
        if seconds > 0.0 { count / seconds } else { 0.0 }
    }

    /// Events of the last tick.
    pub(crate) fn newest(&self) -> f64 {
        self.ticks.front().map_or(0.0, |(count, _)| *count)
    }

    /// Events and seconds as far as it looks back.
    pub(crate) fn total(&self) -> (f64, f64) {
        self.over(self.most)
    }

    fn over(&self, ticks: usize) -> (f64, f64) {
        let sum = |(a, b): (f64, f64), &(c, d): &(f64, f64)| (a + c, b + d);
        self.ticks.iter().take(ticks).fold((0.0, 0.0), sum)
    }

    /// Count and length of every stretch that ends now, up to `ticks` long.
    pub(crate) fn stretches(&self, ticks: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
        let add = |sum: &mut (f64, f64), tick: &(f64, f64)| {
            *sum = (sum.0 + tick.0, sum.1 + tick.1);
            Some(*sum)
        };
        self.ticks.iter().take(ticks).scan((0.0, 0.0), add)
    }

    /// Variance over mean of the counts as far as it is beyond chance, at least 1: of single ticks
    /// and of groups, so that bursts count which last for several. Half the mean square of the
    /// difference of neighbours (von Neumann 1941), without the greatest tenth: what comes and goes
    /// a few times is a change of the load and no burst. So are the `newest` ticks.
    pub(crate) fn dispersion(&self, newest: usize) -> f64 {
        let of = |size| self.dispersion_of_groups(newest, size);
        DISPERSION_GROUPS.into_iter().map(of).fold(1.0, f64::max)
    }

    fn dispersion_of_groups(&self, newest: usize, size: usize) -> f64 {
        let old = self.ticks.len().saturating_sub(newest);
        let groups = old / size;
        if groups < DISPERSION_GROUPS_MIN {
            return 1.0;
        }
        let group = |index: usize| -> f64 {
            let first = newest + index * size;
            self.ticks
                .range(first..first + size)
                .map(|tick| tick.0)
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
        let variance = squares.iter().sum::<f64>() / squares.len() as f64 / 2.0 / TRIMMED;
        let chance = 1.0 + DISPERSION_Z * (3.0 / groups as f64).sqrt();
        variance / mean.max(f64::MIN_POSITIVE) / chance
    }

    /// The same without the two ticks of each that brought most: a crowd that comes at once is in
    /// one of them, or in two.
    pub(crate) fn stretches_without_crowd(
        &self,
        ticks: usize,
    ) -> impl Iterator<Item = (f64, f64)> + '_ {
        let mut most = [(0.0, 0.0); 2];
        let pairs = self.ticks.iter().zip(self.stretches(ticks));
        pairs
            .map(move |(&tick, sum)| {
                if tick.0 > most[0].0 {
                    most = [tick, most[0]];
                } else if tick.0 > most[1].0 {
                    most[1] = tick;
                }
                let crowd = (most[0].0 + most[1].0, most[0].1 + most[1].1);
                (sum.0 - crowd.0, sum.1 - crowd.1)
            })
            .filter(|(_, seconds)| *seconds > 0.0)
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
            recent.push(count, 0.5);
        }
        assert_eq!(recent.rate_over(1), 8.0);
        assert_eq!(recent.rate_over(9), 6.0);
        assert_eq!(recent.newest(), 4.0);
        let stretches: Vec<_> = recent.stretches(2).collect();
        assert_eq!(stretches, [(4.0, 0.5), (7.0, 1.0)]);
    }

    #[test]
    fn a_crowd_is_left_out_wherever_it_is() {
        let mut recent = TickCounts::new(9);
        for count in [1.0, 9.0, 8.0, 2.0, 3.0] {
            recent.push(count, 0.5);
        }
        let stretches: Vec<_> = recent.stretches_without_crowd(5).collect();
        assert_eq!(stretches, [(2.0, 0.5), (5.0, 1.0), (6.0, 1.5)]);
    }
}
