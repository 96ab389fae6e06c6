//! What is remembered of one application: figures, states with their since, history.

use std::time::{Duration, SystemTime};

use tidegate_control::Timestamp;
use tidegate_sentry::Event;

use super::history::History;
use super::journal::Journal;
use super::recent::Pictures;

/// Time between two forecasts in the event stream, and the arrivals below which there are none.
const FORECAST_EVERY: Duration = Duration::from_secs(1);
const IDLE_PER_SECOND: f64 = 0.1;

/// What is remembered of one application: figures, states with their since, history.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) pictures: Pictures,
    pub(super) journal: Journal,
    pub(super) history: History,
    last_forecast: Option<Timestamp>,
}

impl Watch {
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            pictures: Pictures::default(),
            journal: Journal::new(started),
            history: History::default(),
            last_forecast: None,
        }
    }

    /// Whether an event is worth telling. A forecast is made with every step: one a second is
    /// enough to draw it, and one of an idle service says nothing.
    pub(super) fn is_news(&mut self, event: &Event) -> bool {
        let Event::Forecast(outlook) = event else {
            return true;
        };
        let idle = outlook.offered_per_second < IDLE_PER_SECOND && !outlook.overloaded;
        let last = self.last_forecast;
        let soon = last.is_some_and(|last| outlook.at - last < FORECAST_EVERY);
        if idle || soon {
            return false;
        }
        self.last_forecast = Some(outlook.at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sentry::Outlook;

    fn forecasts(offered_per_second: f64) -> usize {
        let mut watch = Watch::new(SystemTime::UNIX_EPOCH);
        let ticks = (0..100).map(|tick| {
            Event::Forecast(Outlook {
                at: Timestamp::from_nanos(tick * 100_000_000),
                offered_per_second,
                drain_per_second: None,
                residence_seconds: 0.0,
                target_seconds: 1.0,
                queue_limit: None,
                queued: 0,
                overloaded: false,
            })
        });
        ticks.filter(|event| watch.is_news(event)).count()
    }

    #[test]
    fn idle_proxy_has_no_forecasts_and_a_busy_one_has_one_a_second() {
        assert_eq!(forecasts(0.0), 0);
        assert_eq!(forecasts(50.0), 10);
    }
}
