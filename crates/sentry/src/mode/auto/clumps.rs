//! Do requests come one at a time, or several at once?
//!
//! Pages that fan out, HTTP/2 connections, cron and synchronised clients send several requests
//! within a moment. It shows in the gaps between arrivals: of independent arrivals few follow each
//! other within a sixth of the mean gap,
//!
//! ```text
//! 1 - exp(-1/6) = 15 %
//! ```
//!
//! of batches of `m` it is `1 - 1/m`. And gaps vary more: their squared coefficient of variation is
//! 1 for independent arrivals, `m - 1` for batches on a beat, and 9 for a source that is on for 60
//! ms with 640 requests per second and then off for 60 ms.
//!
//! Two estimates depend on it. The service time by level ([`occupancy`](crate::occupancy)) holds
//! only if requests come and go one at a time. And counts of arrivals vary more than Poisson's.
//!
//! Gaps are looked at in blocks of [`Tuning::CLUMP_BLOCK`], each by its own mean, so that a rate
//! that changes is no clump.
//!
//! What breaks it: batches that are spread over a mean gap or more. Those are an irregular rate,
//! and counts of ticks show how irregular it is.

use super::tuning::Tuning;
use crate::monitor::{Gaps, Interval};

/// Gaps between arrivals, and whether they show clumps.
#[derive(Debug, Default)]
pub(super) struct Clumps {
    block: Gaps,
    block_seconds: f64,
    /// Share of the last blocks that show clumps.
    blocks: f64,
    /// Squared coefficient of variation of the gaps.
    variation: f64,
    clumped: bool,
}

impl Clumps {
    /// Takes a tick.
    pub(super) fn on_tick(&mut self, interval: &Interval) {
        self.block.merge(&interval.gaps);
        self.block_seconds += interval.seconds;
        let gaps = self.block.count();
        if gaps < Tuning::CLUMP_BLOCK.get() {
            return;
        }
        let mean = self.block_seconds / gaps;
        let short = self
            .block
            .shorter_than(Tuning::CLUMP_GAP_SHORT.get() * mean)
            / gaps;
        let variation = self.block.sum_of_squares() / gaps / (mean * mean) - 1.0;
        self.block.clear();
        self.block_seconds = 0.0;
        let shows =
            short > Tuning::CLUMP_SHORT_SHARE.get() || variation > Tuning::CLUMP_VARIATION.get();
        self.judge(shows, variation);
    }

    fn judge(&mut self, shows: bool, variation: f64) {
        let fade = |old: f64, new: f64| {
            old * Tuning::CLUMP_FADE.get() + new * (1.0 - Tuning::CLUMP_FADE.get())
        };
        self.blocks = fade(self.blocks, f64::from(u8::from(shows)));
        self.variation = fade(self.variation, variation);
        let least = if self.clumped {
            Tuning::CLUMP_BLOCKS_SINGLE.get()
        } else {
            Tuning::CLUMP_BLOCKS.get()
        };
        self.clumped = self.blocks > least;
    }

    /// Whether several requests come at once.
    pub(super) fn is_clumped(&self) -> bool {
        self.clumped
    }

    /// Variance over mean of the counts of arrivals in the long run, 1 where requests come one at a
    /// time: that of a renewal process is the squared coefficient of variation of its gaps.
    pub(super) fn dispersion(&self) -> f64 {
        if self.clumped {
            self.variation
                .clamp(1.0, Tuning::CLUMP_DISPERSION_MAX.get())
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::Timestamp;

    use super::*;
    use crate::monitor::Tally;
    use crate::random::Dice;

    /// Clumps of `size` at gaps that `gap` draws, for twenty seconds at a hundred requests per
    /// second.
    fn clumps(size: u32, gap: impl Fn(&Dice) -> f64) -> Clumps {
        let (mut clumps, tally, dice) = (Clumps::default(), Tally::new(), Dice::new(3));
        let mut at = 0.0;
        for tick in 1..=200 {
            while at < f64::from(tick) * 0.1 {
                (0..size).for_each(|_| tally.gaps.on_arrival(Timestamp::from_secs_f64(at)));
                at += gap(&dice) * f64::from(size) * 0.01;
            }
            let mut interval = Interval::default();
            interval.seconds = 0.1;
            tally.drain_into(&mut interval);
            clumps.on_tick(&interval);
        }
        clumps
    }

    fn exponential(dice: &Dice) -> f64 {
        -dice.unit().max(1e-9).ln()
    }

    #[test]
    fn poisson_and_regular_arrivals_are_no_clumps() {
        for clumps in [clumps(1, exponential), clumps(1, |_| 1.0)] {
            assert!(!clumps.is_clumped(), "{clumps:?}");
            assert_eq!(clumps.dispersion(), 1.0);
        }
    }

    #[test]
    fn batches_are_clumps_of_their_size() {
        for clumps in [clumps(8, exponential), clumps(8, |_| 1.0)] {
            assert!(clumps.is_clumped(), "{clumps:?}");
            let dispersion = clumps.dispersion();
            assert!((3.0..=40.0).contains(&dispersion), "{dispersion}");
        }
        assert!(clumps(2, exponential).is_clumped());
    }
}
