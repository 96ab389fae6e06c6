//! From the counters of a proxy's status to what happened since the last look.
//!
//! Counters that went back are those of a proxy that was restarted: that interval is missing, not
//! zero.

use std::collections::BTreeMap;

use serde::Deserialize;
use tidegate_plane::{Moments, Observation, ServerShare};

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
    pub(crate) mode: Mode,
    /// CPU use of the proxy's process, of the cores it may use.
    #[serde(default)]
    pub(crate) proxy_cpu_share: Option<f64>,
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
pub(crate) struct Mode {
    pub(crate) name: String,
}

impl Engine {
    /// CPU use of the proxy where it is known, NaN elsewhere.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.proxy_cpu_share.unwrap_or(f64::NAN)
    }

    pub(crate) fn replicas_up(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.up).count()
    }
}

/// Refusals that more servers would not have cured, in any mode.
const INCURABLE: [&str; 2] = ["draining", "costly"];
/// Refusals by limits that are configured in mode `static`, however many servers there are. In
/// other modes a controller sets them by what it measures.
const INCURABLE_STATIC: [&str; 3] = ["rate", "blocked", "window"];

/// Whether more servers would have cured refusals for this reason.
fn is_curable(mode: &str, reason: &str) -> bool {
    let by_configuration = mode == "static" && INCURABLE_STATIC.contains(&reason);
    !by_configuration && !INCURABLE.contains(&reason)
}

/// Counts since the proxy's start.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    classes: BTreeMap<String, u64>,
    served: u64,
    shed: u64,
}

impl Counts {
    fn of(engine: &Engine) -> Self {
        let mode = &engine.mode.name;
        let curable = |(reason, _): &(&String, &u64)| is_curable(mode, reason);
        let classes = &engine.classes;
        let shed = classes.values().flat_map(|class| &class.shed);
        let arrived = |(name, class): (&String, &Class)| (name.clone(), class.arrived);
        Self {
            classes: classes.iter().map(arrived).collect(),
            served: classes.values().map(|class| class.served).sum(),
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
        let since = |(name, now): (&String, &u64)| {
            let then = before.classes.get(name)?;
            Some((name.clone(), now.checked_sub(*then)? as f64))
        };
        let classes: Option<BTreeMap<String, f64>> = now.classes.iter().map(since).collect();
        let classes = classes.filter(|it| it.len() == before.classes.len())?;
        let up = engine.replicas_up();
        let capacity = engine.capacity_per_second;
        let capacity = capacity.filter(|rate| *rate > 0.0 && up > 0);
        let moments = engine.moments.unwrap_or_default();
        Some(Observation {
            seconds,
            arrived: classes.values().sum(),
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
pub(crate) fn together(parts: &[Observation], servers: ServerShare) -> Option<Observation> {
    let mut all = parts.first()?.clone();
    for part in &parts[1..] {
        all.seconds = all.seconds.max(part.seconds);
        all.arrived += part.arrived;
        all.deferred += part.deferred;
        all.shed += part.shed;
        all.served += part.served;
        for (name, count) in &part.classes {
            *all.classes.entry(name.clone()).or_default() += count;
        }
    }
    let gaps: Vec<Moments> = parts.iter().filter_map(|part| part.gaps).collect();
    let service: Vec<Moments> = parts.iter().filter_map(|part| part.service).collect();
    all.gaps = Moments::superposed(&gaps);
    all.service = Moments::pooled(&service);
    let capacities: Vec<f64> = parts.iter().filter_map(|part| part.capacity).collect();
    let sum: f64 = capacities.iter().sum();
    all.capacity = (!capacities.is_empty()).then_some(match servers {
        // Proxies that share servers each see a part of what they do.
        ServerShare::Shared => sum,
        ServerShare::Partitioned => sum / capacities.len() as f64,
    });
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
        assert_eq!((seen.classes["gold"], seen.classes["silver"]), (0.0, 50.0));
        assert_eq!(counted.since(&engine(20, 0), 1.0), None);
        assert!(counted.since(&engine(30, 0), 1.0).is_some());
    }

    #[test]
    fn only_refusals_that_servers_cure_ask_for_servers() {
        let in_mode = |mode: &str, reason: &str, count: u64| {
            let text = serde_json::json!({
                "mode": { "name": mode, "since": "" },
                "classes": { "all": { "arrived": 100, "served": 0, "shed": { reason: count } } },
                "replicas": [],
            });
            serde_json::from_value::<Engine>(text).unwrap()
        };
        let curable = |mode, reason| {
            let mut counted = Counted::default();
            counted.since(&in_mode(mode, reason, 0), 1.0);
            counted.since(&in_mode(mode, reason, 10), 1.0).unwrap().shed
        };
        for reason in ["rate", "blocked", "window"] {
            assert_eq!(curable("static", reason), 0.0, "{reason}");
            assert_eq!(curable("pi", reason), 10.0, "{reason}");
        }
        for reason in ["predicted", "expired", "queue-full", "no-replica"] {
            assert_eq!(curable("static", reason), 10.0, "{reason}");
            assert_eq!(curable("auto", reason), 10.0, "{reason}");
        }
        assert_eq!(curable("auto", "draining") + curable("auto", "costly"), 0.0);
    }

    #[test]
    fn proxies_together_have_the_moments_and_the_capacity_of_all() {
        let part = |arrived, mean, capacity| Observation {
            seconds: 1.0,
            arrived,
            classes: BTreeMap::from([("all".to_owned(), arrived)]),
            service: Some(Moments {
                count: arrived,
                mean,
                square: 2.0 * mean * mean,
            }),
            capacity: Some(capacity),
            ..Observation::default()
        };
        let parts = [part(30.0, 0.1, 45.0), part(10.0, 0.5, 15.0)];
        let shared = together(&parts, ServerShare::Shared).unwrap();
        assert_eq!((shared.arrived, shared.classes["all"]), (40.0, 40.0));
        assert!((shared.service.unwrap().mean - 0.2).abs() < 1e-9);
        assert_eq!(shared.capacity, Some(60.0));
        let divided = together(&parts, ServerShare::Partitioned).unwrap();
        assert_eq!(divided.capacity, Some(30.0));
    }
}
