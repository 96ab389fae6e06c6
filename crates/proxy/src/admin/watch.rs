//! What is remembered of one application: figures, states with their since, history.

use std::time::{Duration, SystemTime};

use tidegate_control::Timestamp;
use tidegate_sentry::{Event, ReplicaId, Status};

use super::history::History;
use super::journal::{Journal, Line};
use super::marks::{MarkKind, Marks};
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
    pub(super) marks: Marks,
    last_forecast: Option<Timestamp>,
}

impl Watch {
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            pictures: Pictures::default(),
            journal: Journal::new(started),
            history: History::default(),
            marks: Marks::default(),
            last_forecast: None,
        }
    }

    /// Takes an event in; `name` gives a replica's address.
    pub(super) fn on_event(
        &mut self,
        time: SystemTime,
        event: &Event,
        status: &Status,
        name: impl Fn(ReplicaId) -> String,
    ) -> Option<Line> {
        self.marking(time, |journal| journal.on_event(time, event, status, name))
    }

    /// Takes the figures of about a second in.
    pub(super) fn on_second(
        &mut self,
        time: SystemTime,
        status: &Status,
        offered: f64,
    ) -> Option<Line> {
        self.marking(time, |journal| journal.on_second(time, status, offered))
    }

    /// Marks an overload that begins or ends.
    fn marking(
        &mut self,
        time: SystemTime,
        take: impl FnOnce(&mut Journal) -> Option<Line>,
    ) -> Option<Line> {
        let before = self.journal.is_overloaded();
        let line = take(&mut self.journal);
        let words = line.as_ref().map_or("", |line| line.message.as_str());
        match (before, self.journal.is_overloaded()) {
            (false, true) => self.marks.add(time, MarkKind::OverloadBegan, words),
            (true, false) => self.marks.add(time, MarkKind::OverloadEnded, words),
            _ => {}
        }
        line
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
