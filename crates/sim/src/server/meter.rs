//! Utilization as a server tells it with its answers.
//!
//! Answers come when they come, so that time is cut into windows by the answers themselves: one
//! ends with the first reading that is [`WINDOW`] or more after its beginning. A reading is the
//! utilization of the last whole window.

use std::time::Duration;

use tidegate_control::Timestamp;

/// Shortest window. Chosen: several of them in a controller's interval of a second.
const WINDOW: Duration = Duration::from_millis(250);

/// What a replica says of its utilization: see the description of this module.
#[derive(Debug, Clone, Copy, Default)]
pub struct UtilizationMeter {
    since: Timestamp,
    busy_before: f64,
    last: f64,
}

impl UtilizationMeter {
    /// Begins at `now`, after `busy` seconds of core time were used.
    #[must_use]
    pub fn starting(now: Timestamp, busy: f64) -> Self {
        Self {
            since: now,
            busy_before: busy,
            last: 0.0,
        }
    }

    /// The utilization of `cores`, which have used `busy` seconds of core time until `now`.
    pub fn read(&mut self, now: Timestamp, busy: f64, cores: f64) -> f64 {
        let window = now - self.since;
        if window >= WINDOW {
            let used = (busy - self.busy_before) / (cores * window.as_secs_f64());
            *self = Self {
                since: now,
                busy_before: busy,
                // A hair above 1 is rounding.
                last: used.clamp(0.0, 1.0),
            };
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_is_that_of_the_last_whole_window() {
        let mut meter = UtilizationMeter::default();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        assert_eq!(meter.read(at(100), 0.1, 2.0), 0.0);
        assert_eq!(meter.read(at(500), 0.5, 2.0), 0.5);
        assert_eq!(meter.read(at(600), 0.7, 2.0), 0.5);
        assert_eq!(meter.read(at(1000), 1.5, 2.0), 1.0);
    }
}
