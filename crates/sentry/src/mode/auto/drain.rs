//! The drain rate: how much a service can do, measured while it does all it can.
//!
//! Only ticks count during which requests were waiting all the time; then throughput is
//! capacity, whatever the load. What was measured is kept while no request waits: an idle service
//! has not become slower.
//!
//! How far back to look adapts to what is seen (ADWIN, Bifet and Gavaldà 2007, for counts). The
//! history is cut where the ticks before and after differ by more than chance allows
//! ([`Tuning::CAPACITY_CHANGE`]), with an index of dispersion of the counts (1 for Poisson) that is
//! estimated, because long requests leave in bunches. In the long run it is the squared coefficient
//! of variation of the work (renewal theory), so no cut goes by less: a few ticks do not show it.
//! So a loss of three quarters of 100 requests/s is noticed after 0.3 s, and a steady rate is known
//! to a few per cent.
//!
//! A slow service takes minutes for as many completions as a rate rests on. The history has a
//! bounded number of ticks then, each of them longer.
//!
//! What breaks it: requests that differ so much that `D` is beyond its bound; then the estimate
//! follows them.

use std::collections::VecDeque;

use super::tuning::Tuning;
use crate::counts::Counts;

/// The drain rate: how much a service can do, measured while it does all it can.
#[derive(Debug, Default)]
pub(crate) struct DrainMeter {
    ticks: VecDeque<Counts>,
    sum: Counts,
    /// Enough was seen at some time; after a change less has to do.
    known: bool,
    /// The index of dispersion before the history was last cut: work that varied does so at another
    /// rate too.
    dispersion_before: f64,
    /// Squared coefficient of variation of how long requests take, where their work varies.
    variation: f64,
    /// How often neighbouring ticks were put together: each is at least this power of two of the
    /// shortest.
    coarseness: u32,
}

impl DrainMeter {
    /// Takes what was done in some time at full window; little of it is added to the last.
    pub(crate) fn on_tick(&mut self, tick: &Counts) {
        self.sum = self.sum.plus(tick);
        let shortest = Tuning::CAPACITY_SAMPLE_SECONDS_MIN.get() * f64::from(1 << self.coarseness);
        match self.ticks.back_mut().filter(|last| last.seconds < shortest) {
            Some(last) => *last = last.plus(tick),
            None => self.ticks.push_back(*tick),
        }
        self.known |= self.sum.done >= Tuning::CAPACITY_COMPLETIONS_FIRST.get();
        while self.sum.seconds > Tuning::CAPACITY_SECONDS_MAX.get()
            && self.sum.done > Tuning::CAPACITY_COMPLETIONS_MIN.get()
        {
            self.forget_oldest();
        }
        if self.ticks.len() > Tuning::CAPACITY_SAMPLES_MAX.get() {
            self.coarsen();
        }
        self.cut();
    }

    /// Puts each two ticks together.
    fn coarsen(&mut self) {
        self.coarseness += 1;
        let mut ticks = std::mem::take(&mut self.ticks).into_iter();
        while let Some(first) = ticks.next() {
            let both = ticks.next().map_or(first, |second| first.plus(&second));
            self.ticks.push_back(both);
        }
    }

    /// Completions per second, once enough were seen. Just after a change the little there is
    /// counts, with half a completion more: no rate is zero for certain.
    pub(crate) fn rate(&self) -> Option<f64> {
        let few = self.sum.done < Tuning::CAPACITY_COMPLETIONS_FIRST.get();
        let served = self.sum.done + if few { 0.5 } else { 0.0 };
        (self.known && self.sum.seconds > 0.0).then(|| served / self.sum.seconds)
    }

    /// How long the estimate looks back.
    pub(crate) fn seconds(&self) -> f64 {
        self.sum.seconds
    }

    /// Whether the estimate rests on this many completions or this many seconds.
    pub(crate) fn rests_on(&self, completions: f64, seconds: f64) -> bool {
        self.sum.done >= completions || self.sum.seconds >= seconds
    }

    /// Takes the squared coefficient of variation of how long requests take.
    pub(crate) fn set_variation(&mut self, variation: f64) {
        let varies = variation > Tuning::DISPERSION_SHARING.get();
        self.variation = if varies {
            variation.min(Tuning::DISPERSION_MAX.get())
        } else {
            0.0
        };
    }

    /// The part of the system that is measured changed by a known factor.
    pub(crate) fn scale(&mut self, factor: f64) {
        for tick in &mut self.ticks {
            tick.done *= factor;
        }
        self.sum.done *= factor;
    }

    /// Variance over mean of the counts, the larger of that of single ticks and that of groups of
    /// ticks: long requests make counts of neighbouring ticks alike. The newest ticks are left
    /// out, because a change that has just begun is no dispersion.
    pub(crate) fn dispersion(&self) -> f64 {
        let old = self
            .ticks
            .len()
            .saturating_sub(Tuning::DISPERSION_SAMPLES_NEW.get());
        if old < Tuning::DISPERSION_SAMPLES_MIN.get() {
            return self.dispersion_before.max(Tuning::DISPERSION_UNKNOWN.get());
        }
        let single = self.dispersion_of_groups(old, 1);
        let grouped = self.dispersion_of_groups(old, Tuning::DISPERSION_GROUP_SAMPLES.get());
        single
            .max(grouped)
            .clamp(Tuning::DISPERSION_MIN.get(), Tuning::DISPERSION_MAX.get())
    }

    /// Half the mean square of the difference of neighbours, over the mean (von Neumann 1941): a
    /// step of the rate is one difference, where it would be most of the variance.
    fn dispersion_of_groups(&self, ticks: usize, size: usize) -> f64 {
        let groups = ticks / size;
        let (mut sum, mut squares, mut before) = (0.0, 0.0, None);
        let mut ticks = self.ticks.iter();
        for _ in 0..groups {
            let count: f64 = ticks.by_ref().take(size).map(|tick| tick.done).sum();
            sum += count;
            squares += before
                .replace(count)
                .map_or(0.0, |last| square(count - last));
        }
        let n = groups as f64;
        squares / (2.0 * (n - 1.0)) / (sum / n).max(f64::MIN_POSITIVE)
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.ticks.pop_front() {
            self.sum = self.sum.minus(&oldest);
        }
    }

    /// Drops the history before the most significant change, if there is one.
    fn cut(&mut self) {
        let dispersion = self.dispersion().max(self.variation);
        let mut recent = Counts::default();
        let change = Tuning::CAPACITY_CHANGE.get();
        let mut worst = (0.0, 0);
        for (index, tick) in self.ticks.iter().enumerate().rev() {
            let older = self.sum.minus(&recent);
            if recent.seconds >= Tuning::CAPACITY_SAMPLE_SECONDS_MIN.get() && older.seconds > 0.0 {
                match change.difference(&recent, &older, dispersion) {
                    Some(z) if z > worst.0 => worst = (z, index + 1),
                    _ => {}
                }
            }
            recent = recent.plus(tick);
        }
        if worst.1 > 0 {
            self.dispersion_before = self.dispersion();
        }
        (0..worst.1).for_each(|_| self.forget_oldest());
        if self.ticks.len() <= 1 {
            self.coarseness = 0;
        }
    }
}

fn square(x: f64) -> f64 {
    x * x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Dice;

    const TICK: f64 = 0.1;

    /// A Poisson number by multiplication (Knuth); fine for small means.
    fn poisson(dice: &Dice, mean: f64) -> f64 {
        let (limit, mut product, mut n) = ((-mean).exp(), dice.unit(), 0.0);
        while product > limit {
            product *= dice.unit();
            n += 1.0;
        }
        n
    }

    /// Ticks until the estimate is within `tolerance` of `after`, fed from `before` on.
    fn ticks_to_follow(before: f64, after: f64, tolerance: f64, seed: u64) -> usize {
        let dice = Dice::new(seed);
        let mut meter = DrainMeter::default();
        for _ in 0..200 {
            meter.on_tick(&Counts::of(poisson(&dice, before * TICK), TICK));
        }
        let off = |meter: &DrainMeter| (meter.rate().unwrap() / after - 1.0).abs() > tolerance;
        (1..=200)
            .find(|_| {
                meter.on_tick(&Counts::of(poisson(&dice, after * TICK), TICK));
                !off(&meter)
            })
            .unwrap_or(usize::MAX)
    }

    #[test]
    fn steady_rate_is_known_well() {
        let dice = Dice::new(3);
        let mut meter = DrainMeter::default();
        let mut errors = 0;
        for tick in 0..5000 {
            meter.on_tick(&Counts::of(poisson(&dice, 10.0), TICK));
            let off = meter
                .rate()
                .is_none_or(|rate| (rate / 100.0 - 1.0).abs() > 0.15);
            errors += i32::from(tick > 50 && off);
        }
        assert!(errors < 50, "{errors} of 5000 ticks off by more than 15 %");
    }

    #[test]
    fn loss_of_three_quarters_is_seen_within_a_second_nearly_always() {
        let ticks: Vec<usize> = (0..50)
            .map(|seed| ticks_to_follow(100.0, 25.0, 0.5, seed))
            .collect();
        let late = ticks.iter().filter(|&&ticks| ticks > 10).count();
        assert!(late <= 5, "{late} of 50 later than a second");
        assert!(ticks.iter().all(|&ticks| ticks <= 30), "{ticks:?}");
    }

    #[test]
    fn return_to_full_capacity_is_seen_within_a_second() {
        for seed in 0..50 {
            assert!(ticks_to_follow(25.0, 100.0, 0.3, seed) <= 10, "seed {seed}");
        }
    }

    /// A change does not hide behind the variance it causes.
    #[test]
    fn step_is_no_dispersion() {
        let mut meter = DrainMeter::default();
        let counts = |n: usize, mean: f64| (0..n).map(move |tick| mean + [-2.0, 2.0][tick % 2]);
        for count in counts(50, 10.0).chain(counts(40, 5.0)) {
            let tick = Counts::of(count, TICK);
            meter.ticks.push_back(tick);
            meter.sum = meter.sum.plus(&tick);
        }
        assert!(meter.dispersion() < 1.5, "{}", meter.dispersion());
    }

    /// A second of half the throughput, which work that varies brings about.
    #[test]
    fn no_cut_goes_by_less_than_the_variation_of_the_work() {
        let after = |variation: f64| {
            let mut meter = DrainMeter::default();
            meter.set_variation(variation);
            (0..100).for_each(|_| meter.on_tick(&Counts::of(20.0, TICK)));
            (0..10).for_each(|_| meter.on_tick(&Counts::of(10.0, TICK)));
            meter.rate().unwrap()
        };
        assert!(
            after(2.0) < 110.0,
            "as exponential work does that shares a processor"
        );
        assert!(after(4.0) > 180.0);
    }

    #[test]
    fn nothing_is_known_from_a_handful() {
        let mut meter = DrainMeter::default();
        meter.on_tick(&Counts::of(9.0, TICK));
        assert_eq!(meter.rate(), None);
        meter.on_tick(&Counts::of(9.0, TICK));
        assert_eq!(meter.rate(), Some(90.0));
        meter.scale(2.0);
        assert_eq!(meter.rate(), Some(180.0));
    }

    /// As when the clients of a fast service leave, and the last of them had no answer.
    #[test]
    fn moment_is_no_change() {
        let mut meter = DrainMeter::default();
        (0..50).for_each(|_| meter.on_tick(&Counts::of(1700.0, TICK)));
        meter.on_tick(&Counts::of(0.0, 0.02));
        assert!(meter.rate().is_some_and(|rate| rate > 13_000.0));
        (0..3).for_each(|_| meter.on_tick(&Counts::of(0.0, TICK)));
        assert!(meter.rate().is_some_and(|rate| rate < 100.0));
    }

    /// One request in two seconds, for an hour.
    #[test]
    fn history_of_a_slow_service_is_bounded() {
        let mut meter = DrainMeter::default();
        for tick in 0..36_000 {
            let done = f64::from(u32::from(tick % 20 == 0));
            meter.on_tick(&Counts::of(done, TICK));
            assert!(meter.ticks.len() <= Tuning::CAPACITY_SAMPLES_MAX.get());
        }
        let rate = meter.rate().unwrap();
        assert!((rate / 0.5 - 1.0).abs() < 0.05, "{rate}");
        assert!(meter.seconds() > 300.0, "{}", meter.seconds());
        (0..900).for_each(|_| meter.on_tick(&Counts::of(0.2, TICK)));
        assert!(meter.rate().is_some_and(|rate| rate > 1.7));
    }

    #[test]
    fn silence_is_a_change_too() {
        let mut meter = DrainMeter::default();
        for _ in 0..50 {
            meter.on_tick(&Counts::of(10.0, TICK));
        }
        (0..10).for_each(|_| meter.on_tick(&Counts::of(0.0, TICK)));
        assert!(meter.rate().is_some_and(|rate| rate < 20.0));
    }
}
