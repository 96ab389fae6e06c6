//! What changed on the last day and when, for the history: overloads, reloads, operators' actions.

use std::collections::VecDeque;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::history::unix;

/// Marks of one application. Chosen: one every three minutes of a day, in some 50 KiB at most.
const KEPT: usize = 500;

/// Longest words of a mark.
const WORDS_CHARS_MAX: usize = 120;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum MarkKind {
    /// More arrives than can be served.
    OverloadBegan,
    /// No longer.
    OverloadEnded,
    /// The file was put in force.
    Reload,
    /// An operator changed something by the admin API.
    Operator,
}

/// A moment at which something changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Mark {
    /// Seconds since 1970.
    pub(super) time: f64,
    /// What kind of change.
    pub(super) kind: MarkKind,
    /// What changed, in words.
    pub(super) words: String,
}

/// The marks of one application, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<Mark>);

impl Marks {
    pub(super) fn add(&mut self, time: SystemTime, kind: MarkKind, words: &str) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Mark {
            time: unix(time),
            kind,
            words: words.chars().take(WORDS_CHARS_MAX).collect(),
        });
    }

    /// Those from a time on, which is in seconds since 1970.
    pub(super) fn since(&self, time: f64) -> Vec<Mark> {
        let late = self.0.iter().filter(|mark| mark.time >= time);
        late.cloned().collect()
    }

    /// Goes on from those that another process kept, before its own.
    pub(super) fn resume(&mut self, kept: Vec<Mark>) {
        let room = KEPT.saturating_sub(self.0.len());
        let excess = kept.len().saturating_sub(room);
        let own = std::mem::take(&mut self.0);
        self.0 = kept.into_iter().skip(excess).chain(own).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn marks_are_bounded_and_those_of_before_come_first() {
        let mut marks = Marks::default();
        let at = |second| UNIX_EPOCH + Duration::from_secs(second);
        for second in 0..2 * KEPT as u64 {
            marks.add(at(second), MarkKind::Operator, &"ä".repeat(500));
        }
        let all = marks.since(0.0);
        assert_eq!(all.len(), KEPT);
        assert_eq!(all[0].words.chars().count(), WORDS_CHARS_MAX);
        assert_eq!(marks.since(2.0 * KEPT as f64 - 3.0).len(), 3);
        let mut next = Marks::default();
        next.add(at(5000), MarkKind::Reload, "own");
        next.resume(all);
        let resumed = next.since(0.0);
        assert_eq!(resumed.len(), KEPT);
        assert_eq!(resumed.last().map(|mark| mark.kind), Some(MarkKind::Reload));
    }
}
