//! What changed while it was recorded: configurations put in force, replicas that came and went or
//! were found down, and restarts of the proxy.
//!
//! What breaks it: a replica that died is one that gets no requests from the moment on at which it
//! was found down; what it held then has its recorded ending only in the row of what happened.

use std::time::Duration;

use serde_json::Value;
use tidegate_record::{Recording, Request};
use tidegate_sentry::SentryConfig;

use super::WhatIfError;
use super::variant::config_of;
use crate::scenario::{Outage, ReplicaSpec};

/// A pool that is first named within this time is the one that was there from the beginning.
const BEGINNING_S: f64 = 1.0;

/// When a replica was in the pool, in seconds from the first arrival.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Presence {
    /// From when on; 0 from the beginning.
    pub(super) from: f64,
    /// When it went; none if it stayed.
    pub(super) until: Option<f64>,
    /// When it got no requests in between, in order and without overlaps.
    away: Vec<(f64, Option<f64>)>,
}

impl Presence {
    /// Of states by time: whether it is in the pool and up from then on.
    fn of(states: &[(f64, bool, bool)]) -> Self {
        let in_pool = |state: &&(f64, bool, bool)| state.1;
        let Some(first) = states.iter().find(in_pool) else {
            return Self::default();
        };
        let from = if first.0 <= BEGINNING_S { 0.0 } else { first.0 };
        let last_in = states.iter().rposition(|state| state.1).unwrap_or(0);
        let until = states.get(last_in + 1).map(|state| state.0);
        let mut away: Vec<(f64, Option<f64>)> = Vec::new();
        for &(at, inside, up) in states {
            let at = at.max(from);
            if until.is_some_and(|until| at >= until) {
                break;
            }
            match (inside && up, away.last_mut()) {
                (false, last) if last.as_ref().is_none_or(|last| last.1.is_some()) => {
                    away.push((at, None));
                }
                (true, Some(last)) if last.1.is_none() => last.1 = Some(at),
                _ => {}
            }
        }
        away.retain(|&(begin, end)| end.is_none_or(|end| end > begin));
        Self { from, until, away }
    }

    pub(super) fn is_first(&self) -> bool {
        self.from == 0.0
    }

    fn is_constant(&self) -> bool {
        self.is_first() && self.until.is_none() && self.away.is_empty()
    }

    /// Puts the times into a replica of a scenario.
    pub(super) fn apply(&self, spec: &mut ReplicaSpec) {
        let dur = |seconds: f64| Duration::from_secs_f64(seconds).into();
        spec.added = (!self.is_first()).then(|| dur(self.from));
        spec.removed = self.until.map(dur);
        let outage = |&(from, until): &(f64, Option<f64>)| Outage {
            from: dur(from),
            until: until.map(dur),
        };
        spec.drained = self.away.iter().map(outage).collect();
    }
}

/// What events say of replicas, in seconds from the first arrival.
#[derive(Debug, Default)]
struct Replicas {
    /// The whole pool from then on, by names.
    pools: Vec<(f64, Vec<String>)>,
    /// A replica by its name, and whether it is up from then on.
    health: Vec<(f64, String, bool)>,
}

/// Everything but the requests.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The protection by time, the first from the beginning; empty where there was none.
    pub(super) configs: Vec<(f64, SentryConfig)>,
    /// By the recording's number of the replica, for those of the application.
    pub(super) presence: Vec<Option<Presence>>,
    /// How often another process went on.
    pub(super) restarts: usize,
    /// What cannot be followed.
    pub(super) cautions: Vec<String>,
}

/// The protection of an application in a configuration of the proxy.
fn protect_of<'a>(config: &'a Value, application: &str) -> Option<&'a Value> {
    let list = config.get("application").and_then(Value::as_array);
    let named = |name: &str| list?.iter().find(|it| it["name"] == name);
    let Some(own) = named(application) else {
        return config.get("protect");
    };
    // A canary or a mirror has from its main application what it does not have itself.
    let main = ["canary", "mirror"]
        .iter()
        .find_map(|kind| own.get(kind)?.get("of"));
    let main = main.and_then(Value::as_str).and_then(named);
    own.get("protect")
        .or_else(|| main?.get("protect"))
        .or_else(|| config.get("protect"))
}

impl History {
    pub(super) fn learn(
        recording: &Recording,
        requests: &[Request],
        application: Option<usize>,
    ) -> Result<Self, WhatIfError> {
        let tables = &recording.meta.tables;
        let name = application.and_then(|at| tables.applications.get(at));
        let name = name.map_or("", String::as_str);
        let first_us = requests.first().map_or(0, |request| request.at_us);
        let seconds = |at_us: u64| (at_us as f64 - first_us as f64) / 1e6;
        let mut history = Self {
            restarts: recording.restarts.len(),
            ..Self::default()
        };
        let read = |value: &Value| config_of(value.clone()).map_err(WhatIfError::Config);
        let protect = recording.meta.config.as_ref();
        if let Some(value) = protect.and_then(|config| protect_of(config, name)) {
            history.configs.push((0.0, read(value)?));
        }
        let mut replicas = Replicas::default();
        for event in &recording.events {
            // Most of them are figures of a second.
            let is_wanted = ["\"config\"", "\"replicas\"", "\"health\"", "\"switch\""]
                .iter()
                .any(|kind| event.json.contains(kind));
            let Some(value) = is_wanted
                .then(|| serde_json::from_str::<Value>(&event.json).ok())
                .flatten()
            else {
                continue;
            };
            let own = value
                .get("application")
                .is_none_or(|it| it == name || name.is_empty());
            let at = seconds(event.at_us);
            match value["event"].as_str() {
                Some("config") => {
                    if let Some(value) = protect_of(&value["config"], name) {
                        history.reload(at, read(value)?);
                    }
                }
                Some("replicas") if own => {
                    let names = value["replicas"].as_array().into_iter().flatten();
                    let names = names.filter_map(|name| name.as_str().map(str::to_owned));
                    replicas.pools.push((at, names.collect()));
                }
                Some("health") if own => {
                    if let Some(replica) = value["replica"].as_str() {
                        let up = value["up"] == true;
                        replicas.health.push((at, replica.to_owned(), up));
                    }
                }
                Some("switch") if own => history.cautions.push(format!(
                    "an operator moved the switch `{}` {at:.0} s after the beginning: a forecast \
                     does not",
                    value["name"].as_str().unwrap_or_default()
                )),
                _ => {}
            }
        }
        history.find_presence(recording, requests, application, &replicas);
        history.join_classes();
        history.say_what_changed();
        Ok(history)
    }

    /// What is put in force when the recording begins, or again, is no change.
    fn reload(&mut self, at: f64, config: SentryConfig) {
        if self.configs.last().is_some_and(|(_, last)| *last == config) {
            return;
        }
        if at <= 0.0 || self.configs.is_empty() {
            self.configs.clear();
            self.configs.push((0.0, config));
        } else {
            self.configs.push((at, config));
        }
    }

    fn find_presence(
        &mut self,
        recording: &Recording,
        requests: &[Request],
        application: Option<usize>,
        Replicas { pools, health }: &Replicas,
    ) {
        let tables = &recording.meta.tables;
        let first_us = requests.first().map_or(0, |request| request.at_us);
        let mut first_use: Vec<Option<f64>> = vec![None; tables.replicas.len()];
        for request in requests {
            let at = (request.at_us - first_us) as f64 / 1e6;
            if let Some(used) = request.replica_index().and_then(|at| first_use.get_mut(at)) {
                used.get_or_insert(at);
            }
        }
        let is_own = |index: usize| match (application, tables.replica_applications.get(index)) {
            (Some(own), Some(&of)) => usize::from(of) == own,
            _ => first_use[index].is_some(),
        };
        for (index, name) in tables.replicas.iter().enumerate() {
            self.presence.push(None);
            if !is_own(index) {
                continue;
            }
            let begins = match pools.first() {
                Some((at, pool)) if *at <= BEGINNING_S => pool.contains(name),
                // Before the pool is named, it is known by what its replicas did.
                Some((at, _)) => first_use[index].is_some_and(|used| used < *at),
                None => first_use[index].is_some(),
            };
            let mut changes: Vec<(f64, Option<bool>, Option<bool>)> = Vec::new();
            let inside = |(at, pool): &(f64, Vec<String>)| (*at, Some(pool.contains(name)), None);
            changes.extend(pools.iter().map(inside));
            let own = health.iter().filter(|(_, replica, _)| replica == name);
            changes.extend(own.map(|(at, _, up)| (*at, None, Some(*up))));
            changes.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut states = vec![(0.0, begins, true)];
            for (at, inside, up) in changes {
                let &(_, was_inside, was_up) = states.last().unwrap_or(&(0.0, true, true));
                let at = if at <= BEGINNING_S { 0.0 } else { at };
                states.push((at, inside.unwrap_or(was_inside), up.unwrap_or(was_up)));
            }
            if states.iter().any(|state| state.1) {
                self.presence[index] = Some(Presence::of(&states));
            }
        }
    }

    /// Classes of other names from some time on cannot be followed: the last ones hold for all.
    fn join_classes(&mut self) {
        let names = |config: &SentryConfig| -> Vec<String> {
            config.classes.iter().map(|it| it.name.clone()).collect()
        };
        let Some((_, last)) = self.configs.last() else {
            return;
        };
        let last = names(last);
        let before = self.configs.len();
        self.configs.retain(|(_, config)| names(config) == last);
        if self.configs.len() < before {
            self.cautions.push(
                "a reload named other classes: the forecast has the last ones from the beginning"
                    .to_owned(),
            );
        }
        if let Some(first) = self.configs.first_mut() {
            first.0 = 0.0;
        }
    }

    fn say_what_changed(&mut self) {
        if self.configs.len() > 1 {
            let times: Vec<String> = self.configs[1..]
                .iter()
                .map(|(at, _)| format!("{at:.0} s"))
                .collect();
            self.cautions.push(format!(
                "the configuration was changed after {}: the forecast changes it too, and what is \
                 set holds in all of them; every answer is judged by the last targets",
                times.join(", ")
            ));
        }
        let changed = self
            .presence
            .iter()
            .flatten()
            .filter(|it| !it.is_constant());
        let changed = changed.count();
        if changed > 0 {
            self.cautions.push(format!(
                "{changed} replica(s) came, went or were found down: the forecast has the same at \
                 the same times"
            ));
        }
        if self.restarts > 0 {
            self.cautions.push(format!(
                "the proxy was started again {} time(s): the forecast keeps what it has learnt",
                self.restarts
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replica_that_comes_is_down_and_goes_has_its_times() {
        let states = [
            (0.0, false, true),
            (10.0, true, true),
            (20.0, true, false),
            (25.0, true, true),
            (40.0, false, true),
        ];
        let presence = Presence::of(&states);
        let expected = Presence {
            from: 10.0,
            until: Some(40.0),
            away: vec![(20.0, Some(25.0))],
        };
        assert_eq!(presence, expected);
        let back = Presence::of(&[(0.0, true, true), (5.0, false, true), (8.0, true, true)]);
        assert!(back.is_first() && back.until.is_none() && !back.is_constant());
        assert_eq!(back.away, [(5.0, Some(8.0))]);
        assert!(Presence::of(&[(0.0, true, true)]).is_constant());
    }

    #[test]
    fn protection_is_that_of_the_application() {
        let config = json!({
            "protect": { "target": "1s" },
            "application": [
                { "name": "shop", "protect": { "target": "2s" } },
                { "name": "next", "canary": { "of": "shop" } },
                { "name": "blog" },
            ],
        });
        let target = |name| protect_of(&config, name).unwrap()["target"].clone();
        assert_eq!(["shop", "next", "blog"].map(target), ["2s", "2s", "1s"]);
        let alone = json!({ "protect": { "target": "3s" } });
        assert_eq!(protect_of(&alone, "default").unwrap()["target"], "3s");
    }
}
