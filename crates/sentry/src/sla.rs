//! Degradation by agreement: the target in force follows the arrival rate (003 §2.2, eq. 1).
//!
//! A class may have a table of targets by arrival rate, for an overload that cannot be served as
//! fast as a quiet hour. The rate is that of the whole application, smoothed over some seconds,
//! and a row is left only when the rate is clearly below where it began, so that a rate at the
//! border does not move the target up and down.
//!
//! What breaks it: a crowd that comes and goes faster than the smoothing.

use tidegate_control::Timestamp;

use crate::api::ClassId;
use crate::config::ClassConfig;
use crate::event::Event;
use crate::plan::Plan;

/// Time constant of the arrival rate. Chosen: above the noise of arrivals, below the minutes in
/// which crowds come and go.
const SMOOTHING_SECONDS: f64 = 5.0;

/// A row is left below this share of where it began.
const ROW_LEFT_OF_FIRST: f64 = 0.9;

/// Degradation by agreement: the target in force follows the arrival rate (003 §2.2, eq.
#[derive(Debug, Default)]
pub(crate) struct Sla {
    rate: f64,
}

impl Sla {
    /// Takes what arrived in a tick, and puts the targets in force that go with it.
    pub(crate) fn on_tick(
        &mut self,
        now: Timestamp,
        plan: &Plan,
        arrived: u64,
        seconds: f64,
        note: &mut dyn FnMut(Event),
    ) {
        if seconds > 0.0 {
            let newest = -(-seconds / SMOOTHING_SECONDS).exp_m1();
            self.rate += newest * (arrived as f64 / seconds - self.rate);
        }
        for (index, config) in plan.config.classes.iter().enumerate() {
            if let Some(event) = self.follow(now, plan, ClassId(index as u16), config) {
                note(event);
            }
        }
    }

    fn follow(
        &self,
        now: Timestamp,
        plan: &Plan,
        id: ClassId,
        config: &ClassConfig,
    ) -> Option<Event> {
        let class = plan.class(id);
        let from = class.contract.band().min(config.targets.len());
        let to = band(config, from, self.rate);
        class.contract.set_band(to);
        if from == to {
            return None;
        }
        let target = plan.config.target_in_band(id, to);
        class.forecast.set_target(target);
        Some(Event::Target {
            at: now,
            class: id,
            offered_per_second: self.rate,
            seconds: target.map_or(f64::INFINITY, |target| target.as_secs_f64()),
        })
    }
}

/// The row for a rate, counted from 1, coming from row `from`.
fn band(config: &ClassConfig, from: usize, rate: f64) -> usize {
    let rows = config.targets.iter().enumerate();
    let begins = |index: usize, above: f64| {
        if index < from {
            ROW_LEFT_OF_FIRST * above
        } else {
            above
        }
    };
    rows.take_while(|(index, row)| rate >= begins(*index, row.above.0))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ClassConfig {
        tidegate_config::parse(
            "class.toml",
            "name = 'a'\ntargets = [{ above = '1000/s', target = '2s' }, \
             { above = '10000/s', target = '3s' }]",
        )
        .expect("valid")
    }

    #[test]
    fn row_is_left_only_clearly_below_its_beginning() {
        let table = table();
        assert_eq!(band(&table, 0, 999.0), 0);
        assert_eq!(band(&table, 0, 1000.0), 1);
        assert_eq!(band(&table, 1, 950.0), 1);
        assert_eq!(band(&table, 1, 899.0), 0);
        assert_eq!(band(&table, 2, 9_500.0), 2);
        assert_eq!(band(&table, 2, 50.0), 0);
        assert_eq!(band(&table, 0, 1e6), 2);
    }
}
