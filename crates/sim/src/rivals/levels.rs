//! Levels of importance, and how many requests there are at each: shared by DAGOR and Cinnamon.

/// Levels within a class: users, or cohorts of them.
pub(super) const LEVELS_PER_CLASS: usize = 128;

/// The level of a request: its class first, then a chance of its own.
pub(super) fn level_of(class: u16, draw: f64) -> usize {
    let within = (draw * LEVELS_PER_CLASS as f64) as usize;
    usize::from(class) * LEVELS_PER_CLASS + within.min(LEVELS_PER_CLASS - 1)
}

/// Requests by level, the most important first.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    pub(super) total: u64,
}

impl Histogram {
    pub(super) fn count(&mut self, level: usize) {
        if self.counts.len() <= level {
            self.counts.resize(level + 1, 0);
        }
        self.counts[level] += 1;
        self.total += 1;
    }

    /// The number of levels, from the most important on, that together have no more than this many
    /// requests.
    pub(super) fn levels_within(&self, requests: f64) -> usize {
        let mut sum = 0.0;
        for (level, count) in self.counts.iter().enumerate() {
            sum += *count as f64;
            if sum > requests {
                return level;
            }
        }
        usize::MAX
    }
}
