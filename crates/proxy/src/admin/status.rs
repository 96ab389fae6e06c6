//! What the proxy is doing, for people and programs.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_sentry::{ClassStatus, Refusal, ReplicaId, ReplicaStatus, SentryConfig, Status};

use super::{Operator, prefix};
use crate::application::Application;
use crate::health::ailment;
use crate::metrics::{ClassTimes, Snapshot};
use crate::reload::ReloadStatus;

/// Seconds that the recent figures look back; one picture is taken a second.
const PICTURES: usize = 10;

/// The answer of `/api/status`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StatusView {
    version: &'static str,
    uptime_seconds: f64,
    threads: usize,
    connections: u64,
    /// The applications, by name.
    applications: BTreeMap<String, ApplicationView>,
    /// Of the only application; absent when there are several.
    #[serde(flatten)]
    single: Option<ApplicationView>,
    /// Lines missing in the access log since the start.
    access_log_lines_lost: u64,
    /// What an operator should know about: one sentence each.
    warnings: Vec<String>,
    reload: ReloadStatus,
}

/// What one application is doing: the answer of `/api/applications/NAME`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ApplicationView {
    /// The admission engine: mode, switches, queue, replicas, and per class what was offered,
    /// admitted, refused, earned and lost.
    engine: Status,
    /// Addresses of the replicas in `engine`, by id.
    replicas: Vec<ReplicaView>,
    recent: Recent,
}

impl ApplicationView {
    pub(super) fn of(operator: &Operator, application: &Application) -> Self {
        let settings = application.settings();
        let replica = |id: &ReplicaId| ReplicaView {
            id: id.0,
            url: settings
                .replica(*id)
                .map_or_else(String::new, |replica| replica.origin().to_string()),
        };
        let pictures = operator.pictures.lock();
        let recent = pictures.get(application.name()).map(Pictures::recent);
        Self {
            engine: application.sentry().status(application.now()),
            replicas: settings.replica_ids().iter().map(replica).collect(),
            recent: recent.unwrap_or_default(),
        }
    }

    /// What an operator should know about: one sentence each.
    fn warnings(&self, application: &Application) -> Vec<String> {
        let mut warnings = warnings(&self.engine);
        let ailing = |replica: &ReplicaStatus| ailment(application, replica.id, replica.up);
        warnings.extend(self.engine.replicas.iter().filter_map(ailing));
        warnings
    }
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct ReplicaView {
    id: u16,
    url: String,
}

impl StatusView {
    pub(super) fn of(operator: &Operator) -> Self {
        let state = &operator.state;
        let settings = state.settings();
        let refused = &settings.log_refused;
        let mut warnings = Vec::new();
        let mut applications = BTreeMap::new();
        for application in state.applications().iter() {
            let view = ApplicationView::of(operator, application);
            let of = prefix(operator, application.name());
            let its = view.warnings(application).into_iter();
            warnings.extend(its.map(|line| format!("{of}{line}")));
            applications.insert(application.name().to_owned(), view);
        }
        warnings.extend(refused.now().then(|| LOG_REFUSED.to_owned()));
        let limit = settings.config.limits.connections;
        warnings.extend((state.connections() >= limit).then(|| crowded(limit)));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: operator.started.elapsed().as_secs_f64(),
            threads: state.threads(),
            connections: state.connections() as u64,
            access_log_lines_lost: refused.lines() + state.metrics().totals().log_lines_lost,
            warnings,
            single: state
                .applications()
                .single()
                .and_then(|single| applications.get(single.name()).cloned()),
            applications,
            reload: operator.reloader.status(),
        }
    }
}

const LOG_REFUSED: &str = "the access log cannot be written, its lines are lost; make room where it \
                           is, or choose another place with `access_log.to`";

pub(super) const BLIND: &str = "the mode regulates the utilization of the replicas, and no answer has carried it, so that \
     everything is admitted; let answers or health checks carry `tidegate-utilization`, \
     choose another `measure`, or use mode `auto`";

const KILLED: &str = "the kill switch is on, so that everything is admitted; send { \"enabled\": false } to \
     /api/kill-switch to protect the service again";

const DRAINING: &str = "the proxy drains, so that everything is refused; send { \"enabled\": false } to \
     /api/drain to take requests again";

fn crowded(limit: usize) -> String {
    format!(
        "there are {limit} client connections, and further ones are closed at once; raise \
         `limits.connections`, or see who holds them"
    )
}

/// What is wrong in a way that only running shows.
fn warnings(engine: &Status) -> Vec<String> {
    let guarantees = engine.classes.iter().filter_map(|class| class.guarantee);
    let promised: f64 = guarantees.map(|guarantee| guarantee.rate).sum();
    let overpromised = engine.drain_rate.filter(|rate| promised > *rate);
    let warning = overpromised.map(|rate| {
        format!(
            "the guarantees of all classes add up to {promised:.1}/s, more than the {rate:.1}/s \
             that the replicas can serve now: they cannot all be kept; lower them or add replicas"
        )
    });
    let standing = [
        (engine.blind, BLIND),
        (engine.kill_switch, KILLED),
        (engine.draining, DRAINING),
    ];
    let standing = standing.into_iter().filter(|(holds, _)| *holds);
    let standing = standing.map(|(_, what)| what.to_owned());
    warning.into_iter().chain(standing).collect()
}

/// A refusal as the event stream shows it.
#[derive(Debug, Serialize)]
pub(super) struct ShedSample<'a> {
    application: &'a str,
    class: &'a str,
    reason: &'static str,
    retry_after_seconds: f64,
    measured: f64,
    limit: f64,
}

impl<'a> ShedSample<'a> {
    pub(super) fn new(application: &'a str, refusal: &Refusal, protect: &'a SentryConfig) -> Self {
        Self {
            application,
            class: protect.class_name(refusal.class),
            reason: refusal.reason.as_str(),
            retry_after_seconds: refusal.retry_after.as_secs_f64(),
            measured: refusal.measured,
            limit: refusal.limit,
        }
    }
}

/// Figures of the last seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct Recent {
    /// Seconds they cover.
    seconds: f64,
    /// Per class, in the order of the engine's.
    classes: Vec<RecentClass>,
}

/// Figures of the last seconds, and whose they are.
#[derive(Debug, Serialize)]
pub(super) struct RecentOf<'a> {
    application: &'a str,
    #[serde(flatten)]
    recent: Recent,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
struct RecentClass {
    name: String,
    arrived_per_second: f64,
    admitted_per_second: f64,
    served_per_second: f64,
    shed_per_second: f64,
    dropped_per_second: f64,
    in_target_per_second: f64,
    revenue_earned_per_second: f64,
    revenue_lost_per_second: f64,
    waiting_p50_seconds: Option<f64>,
    waiting_p99_seconds: Option<f64>,
    service_p50_seconds: Option<f64>,
    service_p99_seconds: Option<f64>,
}

/// One picture of all counters.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) at: Instant,
    pub(super) classes: Vec<ClassStatus>,
    pub(super) times: Vec<ClassTimes>,
}

/// Pictures of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Pictures(VecDeque<Picture>);

impl Pictures {
    pub(super) fn add(&mut self, picture: Picture) {
        if self.0.len() > PICTURES {
            self.0.pop_front();
        }
        self.0.push_back(picture);
    }

    /// The figures as the event stream shows them.
    pub(super) fn recent_of<'a>(&self, application: &'a str) -> RecentOf<'a> {
        RecentOf {
            application,
            recent: self.recent(),
        }
    }

    pub(super) fn recent(&self) -> Recent {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Recent::default();
        };
        let span = last.at.saturating_duration_since(first.at);
        let classes = last.classes.iter().enumerate();
        Recent {
            seconds: span.as_secs_f64(),
            classes: classes
                .map(|(index, class)| recent_class(index, class, first, last, span))
                .collect(),
        }
    }
}

fn recent_class(
    index: usize,
    now: &ClassStatus,
    first: &Picture,
    last: &Picture,
    span: Duration,
) -> RecentClass {
    let then = first.classes.iter().find(|class| class.name == now.name);
    let amount_rate = |amount: fn(&ClassStatus) -> f64| {
        let new = amount(now) - then.map_or(0.0, amount);
        new.max(0.0) / span.as_secs_f64().max(1e-9)
    };
    let rate = |count: fn(&ClassStatus) -> u64| {
        let new = count(now).saturating_sub(then.map_or(0, count));
        new as f64 / span.as_secs_f64().max(1e-9)
    };
    let quantile = |of: fn(&ClassTimes) -> &Snapshot, share: f64| {
        let now = of(last.times.get(index)?);
        let new = match first.times.get(index) {
            Some(then) => now.since(of(then)),
            None => now.clone(),
        };
        new.quantile(share).map(|time| time.as_secs_f64())
    };
    RecentClass {
        name: now.name.clone(),
        arrived_per_second: rate(|class| class.arrived),
        admitted_per_second: rate(|class| class.admitted),
        served_per_second: rate(|class| class.served),
        shed_per_second: rate(|class| class.shed.iter().map(|(_, count)| count).sum()),
        dropped_per_second: rate(|class| class.dropped),
        in_target_per_second: rate(|class| class.in_target),
        revenue_earned_per_second: amount_rate(|class| class.revenue_earned),
        revenue_lost_per_second: amount_rate(|class| {
            class.revenue_lost.iter().map(|(_, amount)| amount).sum()
        }),
        waiting_p50_seconds: quantile(|times| &times.waiting, 0.5),
        waiting_p99_seconds: quantile(|times| &times.waiting, 0.99),
        service_p50_seconds: quantile(|times| &times.service, 0.5),
        service_p99_seconds: quantile(|times| &times.service, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::state::State;

    #[test]
    fn guarantees_that_cannot_be_kept_are_pointed_out() {
        let text = "upstream = 'http://a:1'\nprotect.classes = \
            [{ name = 'a', guarantee = '40/s' }, { name = 'b', guarantee = '20/s' }]";
        let config = Config::from_text("t.toml", text).unwrap();
        let state = State::new(config).unwrap();
        let mut engine = state.first().sentry().status(state.now());
        assert!(warnings(&engine).is_empty(), "nothing is known yet");
        engine.drain_rate = Some(60.0);
        assert!(warnings(&engine).is_empty());
        engine.drain_rate = Some(50.0);
        assert!(warnings(&engine)[0].contains("60.0/s, more than the 50.0/s"));
    }
}
