//! From the counters of a proxy's status to what happened since the last look.
//!
//! Counters that went back are those of a proxy that was restarted: that interval is missing, not
//! zero.

use std::collections::BTreeMap;

use serde::Deserialize;
use tidegate_plane::{Moments, Observation};

/// The part of an application's status that is looked at.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Engine {
    /// Requests per second of all replicas.
    #[serde(default)]
    pub(crate) capacity_per_second: Option<f64>,
    /// By name.
    pub(crate) classes: BTreeMap<String, Class>,
    pub(crate) replicas: Vec<Replica>,
    #[serde(default)]
    pub(crate) policing: Option<Policing>,
    #[serde(default)]
    pub(crate) moments: Option<EngineMoments>,
}

/// Second moments of the engine, over about its last minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct EngineMoments {
    pub(crate) gaps: Option<Moments>,
    pub(crate) service: Option<Moments>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Class {
    /// 0 is the most important.
    #[serde(default)]
    pub(crate) rank: u32,
    pub(crate) arrived: u64,
    pub(crate) served: u64,
    #[serde(default)]
    pub(crate) shed: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Replica {
    pub(crate) up: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Policing {
    pub(crate) cpu_share: Option<f64>,
}

impl Engine {
    /// CPU use of the proxy where it is known, NaN elsewhere.
    pub(crate) fn cpu_share(&self) -> f64 {
        let policing = self.policing.as_ref();
        policing
            .and_then(|policing| policing.cpu_share)
            .unwrap_or(f64::NAN)
    }

    pub(crate) fn replicas_up(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.up).count()
    }

    /// The most important class first.
    fn by_rank(&self) -> Vec<&Class> {
        let mut classes: Vec<&Class> = self.classes.values().collect();
        classes.sort_by_key(|class| class.rank);
        classes
    }
}

/// Refusals that more servers would not have cured.
const INCURABLE: [&str; 2] = ["draining", "costly"];

/// Counts since the proxy's start.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    classes: Vec<u64>,
    served: u64,
    shed: u64,
}

impl Counts {
    fn of(engine: &Engine) -> Self {
        let curable = |(reason, _): &(&String, &u64)| !INCURABLE.contains(&reason.as_str());
        let classes = engine.by_rank();
        let shed = classes.iter().flat_map(|class| &class.shed);
        Self {
            classes: classes.iter().map(|class| class.arrived).collect(),
            served: classes.iter().map(|class| class.served).sum(),
            shed: shed.filter(curable).map(|(_, count)| count).sum(),
        }
    }
}

/// What one proxy counted at its last look.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    before: Option<Counts>,
}

impl Counted {
    /// What happened in the `seconds` since the last look; nothing at the first one, and after a
    /// restart of the proxy.
    pub(crate) fn since(&mut self, engine: &Engine, seconds: f64) -> Option<Observation> {
        let now = Counts::of(engine);
        let before = self.before.replace(now.clone())?;
        if before.classes.len() != now.classes.len() {
            return None;
        }
        let pairs = now.classes.iter().zip(&before.classes);
        let classes: Option<Vec<u64>> = pairs.map(|(now, then)| now.checked_sub(*then)).collect();
        let classes: Vec<f64> = classes?.into_iter().map(|count| count as f64).collect();
        let up = engine.replicas_up();
        let capacity = engine.capacity_per_second;
        let capacity = capacity.filter(|rate| *rate > 0.0 && up > 0);
        let moments = engine.moments.unwrap_or_default();
        Some(Observation {
            seconds,
            arrived: classes.iter().sum(),
            deferred: 0.0,
            shed: now.shed.checked_sub(before.shed)? as f64,
            served: now.served.checked_sub(before.served)? as f64,
            classes,
            gaps: moments.gaps,
            service: moments.service,
            capacity: capacity.map(|rate| rate / up as f64),
        })
    }
}

/// Several proxies' observations of the same interval, as one.
pub(crate) fn together(parts: &[Observation]) -> Option<Observation> {
    let mut all = parts.first()?.clone();
    for part in &parts[1..] {
        all.seconds = all.seconds.max(part.seconds);
        all.arrived += part.arrived;
        all.shed += part.shed;
        all.served += part.served;
        for (sum, count) in all.classes.iter_mut().zip(&part.classes) {
            *sum += count;
        }
        all.gaps = all.gaps.or(part.gaps);
        all.service = all.service.or(part.service);
        // Proxies that share servers each see a part of what they do.
        all.capacity = match (all.capacity, part.capacity) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(arrived: u64, shed: u64) -> Engine {
        let text = serde_json::json!({
            "capacity_per_second": 120.0,
            "classes": { "silver": {
                "rank": 1, "arrived": arrived, "served": arrived - shed,
                "shed": { "predicted": shed, "draining": 7 },
            }, "gold": { "rank": 0, "arrived": 5, "served": 5, "shed": {} } },
            "replicas": [{ "up": true }, { "up": true }, { "up": false }],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn counters_become_differences_and_a_restart_is_a_gap() {
        let mut counted = Counted::default();
        assert_eq!(counted.since(&engine(100, 10), 1.0), None);
        let seen = counted.since(&engine(150, 30), 1.0).unwrap();
        assert_eq!((seen.arrived, seen.shed, seen.served), (50.0, 20.0, 30.0));
        assert_eq!(seen.capacity, Some(60.0));
        assert_eq!(seen.classes, [0.0, 50.0]);
        assert_eq!(counted.since(&engine(20, 0), 1.0), None);
        assert!(counted.since(&engine(30, 0), 1.0).is_some());
    }
}
