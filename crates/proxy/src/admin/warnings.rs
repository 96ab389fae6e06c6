//! What an operator should know about, while it holds: cause and remedy in one sentence.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tidegate_sentry::{ReplicaStatus, Status};

use super::journal::Line;
use super::recent::Recent;
use crate::application::Application;
use crate::config::Companion;
use crate::health::ailment;
use crate::operator_log::Level;
use crate::state::State;

/// Requests of the last seconds without which nothing is said about a class's target.
const SERVED_MIN: f64 = 20.0;

/// Something that holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    /// What it is about: `guarantees`, `target:CLASS`, `replica:URL` and so on.
    pub(super) key: String,
    pub(super) text: String,
    /// Whether its begin and end are lines of the log; others have lines of their own.
    logged: bool,
}

impl Condition {
    pub(super) fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            text: text.into(),
            logged: true,
        }
    }

    fn unlogged(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            logged: false,
            ..Self::new(key, text)
        }
    }

    pub(super) fn begin(self, since: String) -> Warning {
        Warning {
            key: self.key,
            since,
            text: self.text,
            logged: self.logged,
        }
    }
}

/// A condition and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Warning {
    /// What it is about: `guarantees`, `target:CLASS`, `replica:URL` and so on.
    pub(super) key: String,
    /// When it was noticed.
    pub(super) since: String,
    /// Cause and remedy.
    pub(super) text: String,
    #[serde(skip)]
    pub(super) logged: bool,
}

impl Warning {
    pub(super) fn line(&self) -> Line {
        Line {
            level: Level::Warn,
            message: self.text.clone(),
            fields: json!({ "warning": self.key }),
        }
    }

    pub(super) fn over(&self) -> Line {
        Line {
            level: Level::Info,
            message: format!("no longer: {}", self.text),
            fields: json!({ "warning": self.key, "since": self.since }),
        }
    }
}

const LOG_REFUSED: &str = "the access log cannot be written, its lines are lost; make room where it \
                           is, or choose another place with `access_log.to`";

const BLIND: &str = "the mode regulates the utilization of the replicas, and no answer carries it, \
     so that the admitted rate stays what it is; let answers or health checks carry \
     `tidegate-utilization`, choose another `measure`, or use mode `auto`";

const KILLED: &str = "the kill switch is on, so that everything is admitted; `tidegate ctl \
     kill-switch off` (/api/kill-switch) protects the service again";

const MAINTENANCE: &str = "maintenance is on, so that everything is answered with its page; \
     `tidegate ctl maintenance off` (/api/maintenance), or `edge.maintenance` in the file, opens the \
     service again";

const DRAINING: &str = "the proxy drains, so that everything is refused; `tidegate ctl drain off` \
     (/api/drain) takes requests again";

const DRY_RUN: &str = "dry run is on, so that everything is admitted and refusals are only counted; \
     `tidegate ctl dry-run off` (/api/dry-run) protects the service";

/// What is wrong with the process.
pub(super) fn of_process(state: &State) -> Vec<Condition> {
    let settings = state.settings();
    let limit = settings.config.limits.connections;
    let crowded = state.connections() >= limit;
    let full = format!(
        "there are {limit} client connections, and further ones are closed at once; raise \
         `limits.connections`, or see which clients hold them"
    );
    let mut all = Vec::new();
    if settings.log_refused.now() {
        all.push(Condition::unlogged("access_log", LOG_REFUSED));
    }
    if crowded {
        all.push(Condition::new("connections", full));
    }
    if let Some(shortage) = state.descriptors.shortage() {
        all.push(Condition::unlogged("descriptors", shortage));
    }
    all
}

/// The file was refused; the reload has written that to the log.
pub(super) fn of_reload(error: &str) -> Condition {
    let text = format!("the file was refused, so the old configuration stays in force: {error}");
    Condition::unlogged("reload", text)
}

/// What is wrong with one engine and its replicas.
pub(super) fn of_engine(
    application: &Application,
    engine: &Status,
    recent: &Recent,
) -> Vec<Condition> {
    let mut all = Vec::new();
    all.extend(guarantees(engine));
    all.extend(targets(engine, recent));
    all.extend(denied(engine));
    let ailing = |replica: &ReplicaStatus| ailment(application, replica.id, replica.up);
    let replicas = engine.replicas.iter();
    all.extend(replicas.filter_map(|replica| {
        let text = ailing(replica)?;
        Some(Condition::unlogged(
            format!("replica:{}", replica.id.0),
            text,
        ))
    }));
    all.extend(canary(application, engine));
    let borrowed = engine.borrowed.as_ref();
    all.extend(borrowed.map(|text| Condition::unlogged("borrowed", text)));
    let standing = [
        (engine.blind, Condition::new("blind", BLIND)),
        (
            engine.kill_switch,
            Condition::unlogged("kill_switch", KILLED),
        ),
        (
            application.settings().config.edge.maintenance.enabled,
            Condition::unlogged("maintenance", MAINTENANCE),
        ),
        (engine.draining, Condition::unlogged("draining", DRAINING)),
        (engine.dry_run, Condition::unlogged("dry_run", DRY_RUN)),
    ];
    let standing = standing.into_iter().filter(|(holds, _)| *holds);
    all.extend(standing.map(|(_, condition)| condition));
    all
}

/// Guarantees that add up to more than the replicas can serve.
fn guarantees(engine: &Status) -> Option<Condition> {
    let rates = engine.classes.iter().filter_map(|class| class.guarantee);
    let promised: f64 = rates.map(|guarantee| guarantee.rate).sum();
    let capacity = engine.drain_rate.filter(|capacity| promised > *capacity)?;
    Some(Condition::new(
        "guarantees",
        format!(
            "the guarantees of all classes add up to {promised:.1}/s, more than the capacity of \
             {capacity:.1}/s: they cannot all be kept; lower them or add replicas"
        ),
    ))
}

/// A canary that serves nothing, so that its main application does.
fn canary(application: &Application, engine: &Status) -> Option<Condition> {
    let config = application.config();
    let Some(Companion::Canary(canary)) = config.companion.as_ref() else {
        return None;
    };
    let none_up = !engine.replicas.iter().any(|replica| replica.up);
    let away = application.companion_counters().is_away(application.now());
    (canary.fallback && (none_up || away)).then(|| {
        let text = format!(
            "no replica of this canary can be reached, so that its requests go to `{}`; mend its \
             replicas, or take the application out of the file",
            canary.of
        );
        Condition::new("canary", text)
    })
}

/// The share of displaced requests that no delay within its bound keeps (003 eq. 8).
fn denied(engine: &Status) -> Option<Condition> {
    let policing = engine.policing.as_ref();
    let policing = policing.filter(|policing| policing.denied_share > policing.denied_max)?;
    Some(Condition::new(
        "denied_max",
        format!(
            "`sentry.denied_max` of {:.4} cannot be kept: with the longest delays that \
             `sentry.delay_max` allows, {:.3} of the requests of an important class find a less \
             important one in their place; raise `delay_max`, add replicas, or accept it with a larger \
             `denied_max`",
            policing.denied_max, policing.denied_share
        ),
    ))
}

/// Classes of which half the requests take longer inside the replicas than the target allows:
/// no admission control mends that.
fn targets(engine: &Status, recent: &Recent) -> Vec<Condition> {
    let classes = engine.classes.iter();
    classes
        .filter_map(|class| {
            let target = class.target_seconds?;
            let rates = recent.classes.get(&class.name)?;
            let enough = rates.served_per_second * recent.seconds >= SERVED_MIN;
            let median = rates
                .service_p50_seconds
                .filter(|&median| enough && median > target)?;
            let name = &class.name;
            Some(Condition::new(
                format!("target:{name}"),
                format!(
                    "the target of class {name} cannot be met: half of its requests spend more \
                     than {:.0} ms in the replicas, the target is {:.0} ms; raise the target, or \
                     make the service faster",
                    median * 1e3,
                    target * 1e3
                ),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn engine(state: &State) -> Status {
        let applications = state.applications();
        let application = applications.single().unwrap();
        application.sentry().status(application.now())
    }

    fn state(text: &str) -> std::sync::Arc<State> {
        State::new(Config::from_text("t.toml", text).unwrap()).unwrap()
    }

    #[test]
    fn guarantees_that_cannot_be_kept_are_a_warning() {
        let state = state(
            "upstream = 'http://a:1'\nprotect.classes = \
             [{ name = 'a', guarantee = '40/s' }, { name = 'b', guarantee = '20/s' }]",
        );
        let mut engine = engine(&state);
        assert_eq!(guarantees(&engine), None, "nothing is known yet");
        engine.drain_rate = Some(60.0);
        assert_eq!(guarantees(&engine), None);
        engine.drain_rate = Some(50.0);
        let text = guarantees(&engine).unwrap().text;
        assert!(
            text.contains("60.0/s, more than the capacity of 50.0/s"),
            "{text}"
        );
    }

    #[test]
    fn mode_on_numbers_of_another_service_is_a_warning() {
        let warned = |text: &str| {
            let state = state(&format!("upstream = 'http://a:1'\n{text}"));
            let applications = state.applications();
            let application = applications.single().unwrap();
            let all = of_engine(application, &engine(&state), &Recent::default());
            all.into_iter().any(|condition| condition.key == "borrowed")
        };
        assert!(warned("protect.mode = 'lqr'"));
        assert!(warned("protect.mode = 'pi'"));
        assert!(!warned("protect.mode = 'auto'"));
        assert!(!warned(
            "protect.mode = 'lqr'\nprotect.lqr = { rate = '100/s', rate_max = '130/s', \
             goodput = '100/s', gain = [-3.0, 12.0] }"
        ));
    }

    #[test]
    fn target_below_the_service_time_is_a_warning() {
        let state = state("upstream = 'http://a:1'\nprotect.target = '100ms'");
        let engine = engine(&state);
        let mut recent = Recent {
            seconds: 10.0,
            ..Recent::default()
        };
        let name = engine.classes[0].name.clone();
        let rates = recent.classes.entry(name).or_default();
        rates.served_per_second = 10.0;
        rates.service_p50_seconds = Some(0.09);
        assert!(targets(&engine, &recent).is_empty());
        recent
            .classes
            .values_mut()
            .for_each(|of| of.service_p50_seconds = Some(0.3));
        let found = targets(&engine, &recent);
        assert!(
            found[0]
                .text
                .contains("300 ms in the replicas, the target is 100 ms")
        );
        recent
            .classes
            .values_mut()
            .for_each(|of| of.served_per_second = 0.1);
        assert!(
            targets(&engine, &recent).is_empty(),
            "one request is no evidence"
        );
    }
}
