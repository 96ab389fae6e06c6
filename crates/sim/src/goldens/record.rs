//! The engine's events as lines of text.

use std::fmt::Write;

use tidegate_control::Timestamp;
use tidegate_sentry::{Event, Observer};

use crate::scenario::Outcome;

/// A derived target that has moved by less than this share makes no line of its own.
const TARGET_STEP: f64 = 0.1;

/// What was decided in one run.
pub(super) struct Text {
    lines: String,
    /// The target of the last line that has one, in seconds.
    target: f64,
}

impl Text {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lines: format!("seed {seed}\n"),
            target: 0.0,
        }
    }

    fn line(&mut self, at: Timestamp, what: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "{:.1} {what}", at.as_secs_f64());
    }

    fn on_target(&mut self, at: Timestamp, seconds: f64) {
        if (seconds - self.target).abs() > TARGET_STEP * self.target {
            self.target = seconds;
            self.line(at, format_args!("target {:.0}ms", seconds * 1e3));
        }
    }

    /// The text, with what came of it.
    pub(super) fn ended(mut self, outcome: &Outcome) -> String {
        let in_target = outcome.totals.counts.in_target;
        let shed = outcome.ledger.shed;
        self.lines += &format!("end {in_target} in target, {shed} shed\n");
        self.lines
    }
}

impl Observer for Text {
    fn on_event(&mut self, event: &Event) {
        match event {
            Event::Window {
                at,
                replica,
                from,
                to,
                cause,
            } => {
                let (replica, cause) = (replica.0, cause.as_str());
                self.line(*at, format_args!("w{replica} {from}>{to} {cause}"));
            }
            Event::Overload {
                at,
                on: true,
                offered_per_second: offered,
                drain_per_second: drain,
            } => self.line(*at, format_args!("overload {offered:.0}/s of {drain:.0}/s")),
            Event::Overload { at, on: false, .. } => self.line(*at, format_args!("calm")),
            Event::Forecast(outlook) => self.on_target(outlook.at, outlook.target_seconds),
            _ => {}
        }
    }
}
