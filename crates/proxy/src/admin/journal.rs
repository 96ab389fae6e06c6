//! Since when every state of one engine holds, and what is written to the log when one changes.
//!
//! The engine's events carry its own timestamps; here they become times of day. An overload is an
//! episode with a beginning, an end and the counts between the two.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_sentry::{ClassStatus, Event, ReplicaId, Status};

use super::limiter::Limiter;
use super::warnings::{Condition, Warning};
use crate::operator_log::Level;
use crate::wall_clock::rfc3339;

/// What has a "since".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Mode,
    Overload,
    /// `kill_switch`, `dry_run` or `draining`.
    Switch(&'static str),
    Replica(ReplicaId),
}

/// A line for the log, not written yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) message: String,
    pub(super) fields: Value,
}

/// An overload, from its beginning to now or to its end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct EpisodeView {
    /// When it began: time of day.
    pub(super) began: String,
    /// Absent while it lasts.
    pub(super) ended: Option<String>,
    /// How long it lasted, or lasts.
    pub(super) duration_seconds: f64,
    /// Requests that arrived in it.
    pub(super) arrived: u64,
    /// Requests that were served in it.
    pub(super) served: u64,
    /// Requests that were served within their target.
    pub(super) in_target: u64,
    /// Requests that were shed.
    pub(super) shed: u64,
    /// Most that arrived per second.
    pub(super) offered_per_second_max: f64,
}

/// Counts of all classes since the start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Counts {
    arrived: u64,
    served: u64,
    in_target: u64,
    shed: u64,
}

impl Counts {
    fn of(classes: &[ClassStatus]) -> Self {
        let sum = |count: fn(&ClassStatus) -> u64| classes.iter().map(count).sum();
        Self {
            arrived: sum(|class| class.arrived),
            served: sum(|class| class.served),
            in_target: sum(|class| class.in_target),
            shed: sum(|class| class.shed.iter().map(|(_, count)| count).sum()),
        }
    }
}

#[derive(Debug)]
struct Episode {
    began: SystemTime,
    before: Counts,
    offered_max: f64,
}

impl Episode {
    fn view(&self, now: SystemTime, ended: bool, counts: Counts) -> EpisodeView {
        let since = now.duration_since(self.began).unwrap_or_default();
        EpisodeView {
            began: rfc3339(self.began),
            ended: ended.then(|| rfc3339(now)),
            duration_seconds: since.as_secs_f64(),
            arrived: counts.arrived.saturating_sub(self.before.arrived),
            served: counts.served.saturating_sub(self.before.served),
            in_target: counts.in_target.saturating_sub(self.before.in_target),
            shed: counts.shed.saturating_sub(self.before.shed),
            offered_per_second_max: self.offered_max,
        }
    }
}

/// The states of one engine.
#[derive(Debug)]
pub(super) struct Journal {
    started: SystemTime,
    since: BTreeMap<Subject, SystemTime>,
    episode: Option<Episode>,
    last_episode: Option<EpisodeView>,
    episodes: u64,
    warnings: BTreeMap<String, Warning>,
    limiter: Limiter,
}

impl Journal {
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            started,
            since: BTreeMap::new(),
            episode: None,
            last_episode: None,
            episodes: 0,
            warnings: BTreeMap::new(),
            limiter: Limiter::default(),
        }
    }

    /// Since when the state of a subject is what it is.
    pub(super) fn since(&self, subject: Subject) -> SystemTime {
        self.since.get(&subject).copied().unwrap_or(self.started)
    }

    /// Whether an overload lasts.
    pub(super) fn is_overloaded(&self) -> bool {
        self.episode.is_some()
    }

    pub(super) fn episodes(&self) -> u64 {
        self.episodes
    }

    /// The overload of now, or else the last one.
    pub(super) fn episode(&self, now: SystemTime, classes: &[ClassStatus]) -> Option<EpisodeView> {
        let current = self.episode.as_ref();
        let current = current.map(|episode| episode.view(now, false, Counts::of(classes)));
        current.or_else(|| self.last_episode.clone())
    }

    /// Takes an event in; `name` gives a replica's address.
    pub(super) fn on_event(
        &mut self,
        time: SystemTime,
        event: &Event,
        status: &Status,
        name: impl Fn(ReplicaId) -> String,
    ) -> Option<Line> {
        match *event {
            Event::Mode { .. } => self.note(Subject::Mode, time),
            Event::Switch { name, .. } => self.note(Subject::Switch(name), time),
            Event::Health { replica, .. } => self.note(Subject::Replica(replica), time),
            Event::Overload { on, .. } => return self.on_overload(time, on, status),
            Event::Ejected {
                replica,
                on,
                seconds,
                others_seconds,
                ..
            } => {
                self.note(Subject::Replica(replica), time);
                let line = ejection(&name(replica), on, seconds, others_seconds);
                return self.limited("ejection", line);
            }
            _ => {}
        }
        None
    }

    fn note(&mut self, subject: Subject, time: SystemTime) {
        self.since.insert(subject, time);
    }

    /// Takes the figures of about a second in; modes without an event for overload have it here.
    pub(super) fn on_second(
        &mut self,
        time: SystemTime,
        status: &Status,
        offered: f64,
    ) -> Option<Line> {
        if let Some(episode) = &mut self.episode {
            episode.offered_max = episode.offered_max.max(offered);
        }
        let overloaded = status.overloaded.unwrap_or(false);
        if overloaded == self.episode.is_some() {
            None
        } else {
            self.on_overload(time, overloaded, status)
        }
    }

    fn on_overload(&mut self, time: SystemTime, on: bool, status: &Status) -> Option<Line> {
        if on == self.episode.is_some() {
            return None;
        }
        self.note(Subject::Overload, time);
        let counts = Counts::of(&status.classes);
        let line = match self.episode.take() {
            None => {
                self.episodes += 1;
                self.episode = Some(Episode {
                    began: time,
                    before: counts,
                    offered_max: 0.0,
                });
                overload_began(status)
            }
            Some(episode) => {
                let view = episode.view(time, true, counts);
                let line = overload_ended(&view);
                self.last_episode = Some(view);
                line
            }
        };
        self.limited("overload", line)
    }

    /// The line with how many of its kind were left out before it; none when it is left out itself.
    fn limited(&mut self, kind: &'static str, mut line: Line) -> Option<Line> {
        let suppressed = self.limiter.pass(kind, Instant::now())?;
        if suppressed > 0 {
            line.fields["lines_left_out"] = suppressed.into();
        }
        Some(line)
    }

    /// Takes the conditions that hold now; the lines for those that began or ended.
    pub(super) fn on_conditions(&mut self, time: SystemTime, now: Vec<Condition>) -> Vec<Line> {
        let mut lines = Vec::new();
        let ended = |warning: &Warning| !now.iter().any(|condition| condition.key == warning.key);
        let gone: Vec<_> = self
            .warnings
            .values()
            .filter(|it| ended(it))
            .cloned()
            .collect();
        for warning in gone {
            self.warnings.remove(&warning.key);
            if warning.logged {
                lines.extend(self.limited("condition", warning.over()));
            }
        }
        for condition in now {
            match self.warnings.get_mut(&condition.key) {
                Some(known) => known.text = condition.text,
                None => {
                    let warning = condition.begin(rfc3339(time));
                    if warning.logged {
                        lines.extend(self.limited("condition", warning.line()));
                    }
                    self.warnings.insert(warning.key.clone(), warning);
                }
            }
        }
        lines
    }

    /// The warnings in force.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.warnings.values().cloned().collect()
    }
}

fn ejection(replica: &str, on: bool, seconds: f64, others_seconds: f64) -> Line {
    let fields = json!({
        "replica": replica, "seconds": round(seconds), "others_seconds": round(others_seconds),
    });
    if on {
        Line {
            level: Level::Warn,
            message: "a replica is ejected: it is far slower than the others".to_owned(),
            fields,
        }
    } else {
        Line {
            level: Level::Info,
            message: "an ejected replica is back: it is no longer far slower than the others"
                .to_owned(),
            fields,
        }
    }
}

fn overload_began(status: &Status) -> Line {
    Line {
        level: Level::Warn,
        message: "overload began: more arrives than can be served".to_owned(),
        fields: json!({
            "capacity_per_second": status.drain_rate.map(round),
            "queued": status.queue.requests,
            "dry_run": status.dry_run,
        }),
    }
}

fn overload_ended(episode: &EpisodeView) -> Line {
    Line {
        level: Level::Info,
        message: "overload ended".to_owned(),
        fields: json!({
            "duration_seconds": round(episode.duration_seconds),
            "arrived": episode.arrived,
            "served": episode.served,
            "in_target": episode.in_target,
            "shed": episode.shed,
            "offered_per_second_max": round(episode.offered_per_second_max),
        }),
    }
}

/// Three digits after the point are enough for a person.
pub(super) fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Config;
    use crate::state::State;

    fn status() -> Status {
        let config = Config::from_text("t.toml", "upstream = 'http://a:1'").unwrap();
        let state = State::new(config).unwrap();
        {
            let applications = state.applications();
            let application = applications.single().unwrap();
            application.sentry().status(application.now())
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn overload_has_a_line_at_its_begin_and_its_end_with_duration_and_counts() {
        let mut journal = Journal::new(at(0));
        let mut status = status();
        status.overloaded = Some(true);
        status.classes[0].arrived = 100;
        let began = journal.on_second(at(10), &status, 0.0).unwrap();
        assert_eq!(began.level, Level::Warn);
        assert_eq!(journal.since(Subject::Overload), at(10));
        assert_eq!(journal.on_second(at(11), &status, 312.0), None, "said once");
        status.classes[0].arrived = 700;
        status.classes[0].shed[0].1 = 250;
        status.overloaded = Some(false);
        let ended = journal.on_second(at(70), &status, 0.0).unwrap();
        assert_eq!(ended.fields["duration_seconds"], 60.0);
        assert_eq!(ended.fields["arrived"], 600);
        assert_eq!(ended.fields["shed"], 250);
        assert_eq!(ended.fields["offered_per_second_max"], 312.0);
        let last = journal.episode(at(99), &status.classes).unwrap();
        assert_eq!(last.ended.unwrap(), "1970-01-01T00:01:10.000Z");
    }

    #[test]
    fn conditions_are_said_when_they_begin_and_when_they_end() {
        let mut journal = Journal::new(at(0));
        let holds = || vec![Condition::new("target:gold", "too slow; raise it")];
        assert_eq!(journal.on_conditions(at(1), holds()).len(), 1);
        assert_eq!(journal.on_conditions(at(2), holds()).len(), 0);
        assert_eq!(journal.warnings()[0].since, "1970-01-01T00:00:01.000Z");
        let over = journal.on_conditions(at(3), Vec::new());
        assert!(over[0].message.contains("no longer"), "{over:?}");
        assert!(journal.warnings().is_empty());
    }
}
