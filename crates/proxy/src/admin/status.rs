//! What the proxy is doing, for people and programs: the process, and one part per application.

use std::collections::BTreeMap;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_fleet::FleetStatus;
use tidegate_sentry::{
    BrownoutStatus, ClassId, ClassStatus, ControllerStatus, MomentsStatus, PolicingStatus,
    QueueStatus, Refusal, ReplicaStatus, SentryConfig, ShadowStatus, Status,
};

use super::Operator;
use super::advice;
use super::endings;
use super::forecast::ForecastView;
use super::guard::Access;
use super::headline::{Situation, headline};
use super::journal::{EpisodeView, Journal, Subject};
use super::plane::PlaneView;
use super::reasons;
use super::recent::{Rates, Recent, ReplicaTimes};
use super::top::TopView;
use super::warnings::{self, Warning};
use crate::application::Application;
use crate::health;
use crate::metrics::{Ending, Failing, Outcome, Remembered};
use crate::reload::ReloadStatus;
use crate::wall_clock::rfc3339;

/// The answer of `/api/status`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StatusView {
    /// The version of the program.
    version: &'static str,
    /// The commit it was built from, where that is known.
    commit: Option<&'static str>,
    /// The time of day on this machine.
    time: String,
    /// When the process started.
    started: String,
    /// Seconds since then.
    uptime_seconds: f64,
    /// Worker threads.
    threads: usize,
    /// CPU use of this process over the last second, of the cores that it may use: 0 to 1.
    cpu_share: Option<f64>,
    /// Connections of clients that are open.
    connections: u64,
    /// Lines missing in the access log since the start.
    access_log_lines_lost: u64,
    /// What an operator should know about the process.
    warnings: Vec<Warning>,
    /// The file, and the last attempt to put it in force.
    reload: ReloadStatus,
    /// Other proxies in front of the same replicas; `null` where none are configured.
    fleet: Option<FleetStatus>,
    /// The control plane, where `admin.plane` names one.
    plane: Option<PlaneView>,
    /// This caller may look and change nothing: it carries no token.
    read_only: bool,
    /// By name; a proxy for one application has `default`.
    applications: BTreeMap<String, ApplicationStatus>,
}

impl StatusView {
    pub(super) fn of(operator: &Operator, access: Access) -> Self {
        let state = &operator.state;
        let settings = state.settings();
        let lost = settings.log_refused.lines() + state.metrics().totals().log_lines_lost;
        operator.look_at_process();
        let all = state.applications();
        let applications = all.iter().map(|application| {
            let status = ApplicationStatus::of(operator, application);
            (application.name().to_owned(), status)
        });
        let applications = applications.collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("TIDEGATE_COMMIT"),
            time: rfc3339(SystemTime::now()),
            started: rfc3339(operator.started_at),
            uptime_seconds: operator.started.elapsed().as_secs_f64(),
            threads: state.threads(),
            cpu_share: state.cpu_share(),
            connections: state.connections() as u64,
            access_log_lines_lost: lost,
            warnings: operator.process_journal.lock().warnings(),
            reload: operator.reloader.status(),
            fleet: operator.fleet_status(),
            plane: operator.plane.lock().clone(),
            read_only: access == Access::ReadOnly,
            applications,
        }
    }
}

/// Everything about one application: its engine, its replicas and its figures.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApplicationStatus {
    /// The state in one sentence.
    headline: String,
    /// The mode, and since when.
    mode: ModeView,
    /// Whether more arrives than can be served, and since when.
    overload: OverloadView,
    /// Decide and report, but admit everything.
    dry_run: SwitchView,
    /// Admit everything at once.
    kill_switch: SwitchView,
    /// Refuse new requests and finish those inside.
    draining: SwitchView,
    /// Requests that the replicas can serve per second together, where the mode knows.
    capacity_per_second: Option<f64>,
    /// What an operator should know about.
    warnings: Vec<Warning>,
    /// Another configuration beside the one in force, where `[shadow]` has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<ShadowView>,
    /// What would help while requests are shed; empty otherwise.
    advice: Vec<String>,
    /// What the replicas keep, and what would change it: simulated from the last minute, in the
    /// background, while somebody looks. Absent while too little is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<ForecastView>,
    /// The paths and tenants that cost most and are shed most.
    top: TopView,
    /// The central queue.
    queue: QueueStatus,
    /// Every replica: state, concurrency limit, times.
    replicas: Vec<ReplicaView>,
    /// By name.
    classes: BTreeMap<String, ClassView>,
    /// Of the last seconds, all classes together.
    recent: RecentView,
    /// The controller's last step, where the mode has one.
    controller: Option<ControllerStatus>,
    /// The controller regulates the utilization, and no replica reports it.
    blind: bool,
    /// Optional content, where the mode decides about it.
    brownout: Option<BrownoutStatus>,
    /// How requests are judged, in mode `sentry`.
    policing: Option<PolicingStatus>,
    /// CPU use of the whole proxy over the last second, of the cores that it may use: 0 to 1.
    proxy_cpu_share: Option<f64>,
    /// Mean and mean square of inter-arrival and service times, over about the last minute.
    moments: MomentsStatus,
    /// Parts of reports that were not finite or not in their range.
    bad_reports: u64,
}

/// The configuration of `[shadow]` beside the one in force.
#[derive(Debug, Serialize, JsonSchema)]
struct ShadowView {
    /// Keys of `protect` that it has otherwise, with both values.
    differences: Vec<String>,
    /// What comes out, in one sentence.
    headline: String,
    #[serde(flatten)]
    engines: ShadowStatus,
}

/// A mode in force.
#[derive(Debug, Serialize, JsonSchema)]
struct ModeView {
    /// Its name.
    name: String,
    /// Since when: time of day.
    since: String,
}

/// A switch of an operator.
#[derive(Debug, Serialize, JsonSchema)]
struct SwitchView {
    /// Whether it is on.
    on: bool,
    /// Since when it is on or off: time of day.
    since: String,
}

/// Overload of an application.
#[derive(Debug, Serialize, JsonSchema)]
struct OverloadView {
    /// Absent where the mode does not know.
    on: Option<bool>,
    /// Since when it is on or off.
    since: String,
    /// Overloads since the start of the process.
    episodes: u64,
    /// The overload of now, or else the last one.
    episode: Option<EpisodeView>,
}

/// A replica.
#[derive(Debug, Serialize, JsonSchema)]
struct ReplicaView {
    /// Where it is.
    url: String,
    /// `up`, `ejected` (far slower than the others), `draining` (by an operator) or `down` (gets
    /// no requests).
    state: &'static str,
    /// Half of its requests take far longer than half of those of the others.
    slow: bool,
    /// What is wrong with it, as its checks and requests show; `null` while it is well.
    trouble: Option<String>,
    /// Since when it has this state: time of day.
    since: String,
    #[serde(flatten)]
    engine: ReplicaStatus,
    /// Of the last seconds.
    recent: ReplicaTimes,
}

/// A class of requests.
#[derive(Debug, Serialize, JsonSchema)]
struct ClassView {
    /// 0 is the most important.
    rank: usize,
    #[serde(flatten)]
    engine: ClassStatus,
    /// Of the last seconds.
    recent: Rates,
}

/// Figures of the last seconds, all classes together.
#[derive(Debug, Serialize, JsonSchema)]
struct RecentView {
    /// Seconds they cover.
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
}

impl ApplicationStatus {
    /// The status of one application.
    pub(super) fn of(operator: &Operator, application: &Application) -> Self {
        let engine = application.sentry().status(application.now());
        let name = application.name();
        let recent = operator.watch(name, |watch| watch.pictures.recent_of(name));
        operator.forecasts.asked();
        let forecast = operator.forecasts.of(name);
        operator.look_for_warnings(application, &engine, &recent);
        operator.watch(name, |watch| {
            let cpu_share = operator.state.cpu_share();
            let measured = (cpu_share, forecast);
            Self::new(application, engine, &watch.journal, recent, measured)
        })
    }

    fn new(
        application: &Application,
        engine: Status,
        journal: &Journal,
        recent: Recent,
        (proxy_cpu_share, forecast): (Option<f64>, Option<ForecastView>),
    ) -> Self {
        let now = SystemTime::now();
        let switch = |name: &'static str, on: bool| SwitchView {
            on,
            since: rfc3339(journal.since(Subject::Switch(name))),
        };
        let replicas = replicas(application, &engine.replicas, journal, &recent);
        let top = application.metrics().top(application.now());
        let top = TopView::of(&top, &application.config().protect);
        Self {
            headline: headline_of(now, &engine, journal, &recent),
            advice: advice(
                &situation(&engine, &replicas, &recent),
                &top,
                forecast.as_ref(),
            ),
            forecast,
            mode: ModeView {
                name: engine.mode.as_str().to_owned(),
                since: rfc3339(journal.since(Subject::Mode)),
            },
            overload: OverloadView {
                on: engine.overloaded,
                since: rfc3339(journal.since(Subject::Overload)),
                episodes: journal.episodes(),
                episode: journal.episode(now, &engine.classes),
            },
            dry_run: switch("dry_run", engine.dry_run),
            kill_switch: switch("kill_switch", engine.kill_switch),
            draining: switch("draining", engine.draining),
            capacity_per_second: engine.drain_rate,
            warnings: journal.warnings(),
            shadow: shadow(application, &recent),
            top,
            queue: engine.queue,
            replicas,
            classes: classes(engine.classes, &recent),
            recent: RecentView {
                seconds: recent.seconds,
                rates: recent.total,
            },
            controller: engine.controller,
            blind: engine.blind,
            brownout: engine.brownout,
            policing: engine.policing,
            proxy_cpu_share,
            moments: engine.moments,
            bad_reports: engine.bad_reports,
        }
    }
}

fn shadow(application: &Application, recent: &Recent) -> Option<ShadowView> {
    let mut engines = application.shadow()?;
    engines.in_force.response_p95_seconds = recent.total.response_p95_seconds;
    let config = application.config();
    Some(ShadowView {
        differences: config.shadow.differences(&config.protect),
        headline: shadow_headline(&engines),
        engines,
    })
}

/// What the other configuration would do, with the error of the models beside it.
fn shadow_headline(engines: &ShadowStatus) -> String {
    let good = |engine: &tidegate_sentry::ShadowEngine| engine.total.in_target_per_second;
    let shed = |engine: &tidegate_sentry::ShadowEngine| engine.total.shed_per_second;
    let (real, modelled, other) = (&engines.in_force, &engines.modelled, &engines.shadow);
    if engines.seconds < 1.0 {
        return "The comparison has just begun.".to_owned();
    }
    let known = match (engines.limits_known, engines.replicas_up) {
        (known, up) if known >= up => String::new(),
        (known, up) => format!(
            " The limit of {} of {up} replicas was not seen yet, so their models serve everything.",
            up - known.min(up)
        ),
    };
    format!(
        "The shadow would answer {:.1}/s in target and shed {:.1}/s; in force are {:.1}/s and \
         {:.1}/s, by the models {:.1}/s and {:.1}/s.{known}",
        good(other),
        shed(other),
        good(real),
        shed(real),
        good(modelled),
        shed(modelled),
    )
}

fn headline_of(now: SystemTime, engine: &Status, journal: &Journal, recent: &Recent) -> String {
    let since = |name, on: bool| on.then(|| journal.since(Subject::Switch(name)));
    let names: Vec<_> = engine
        .classes
        .iter()
        .map(|class| class.name.clone())
        .collect();
    headline(&Situation {
        now,
        overloaded: engine.overloaded.unwrap_or(false),
        overload_since: journal.since(Subject::Overload),
        kill_switch_since: since("kill_switch", engine.kill_switch),
        draining_since: since("draining", engine.draining),
        dry_run_since: since("dry_run", engine.dry_run),
        replicas_up: engine.replicas.iter().filter(|replica| replica.up).count(),
        replicas: engine.replicas.len(),
        capacity_per_second: engine.drain_rate,
        recent,
        classes: &names,
    })
}

/// What would help, a class for the cheap paths first, then what was forecast.
fn advice(
    situation: &advice::Situation<'_>,
    top: &TopView,
    forecast: Option<&ForecastView>,
) -> Vec<String> {
    let others = advice::of(
        situation,
        forecast.is_some_and(ForecastView::knows_replicas),
    );
    let forecast = forecast.map(|forecast| forecast.advice(situation.total));
    let forecast = forecast.into_iter().flatten();
    top.advice()
        .into_iter()
        .chain(forecast)
        .chain(others)
        .collect()
}

/// What advice is given from.
fn situation<'a>(
    engine: &'a Status,
    replicas: &'a [ReplicaView],
    recent: &'a Recent,
) -> advice::Situation<'a> {
    let view = |replica: &'a ReplicaView| advice::Replica {
        url: &replica.url,
        state: replica.state,
        service_p50_seconds: replica.recent.service_p50_seconds,
    };
    advice::Situation {
        capacity_per_second: engine.drain_rate,
        total: &recent.total,
        classes: engine.classes.len(),
        mode: engine.mode,
        replicas: replicas.iter().map(view).collect(),
    }
}

fn replicas(
    application: &Application,
    replicas: &[ReplicaStatus],
    journal: &Journal,
    recent: &Recent,
) -> Vec<ReplicaView> {
    let times = |replica: &ReplicaStatus| {
        let times = recent.replicas.get(usize::from(replica.id.0)).copied();
        times.unwrap_or_default()
    };
    let view = |replica: &ReplicaStatus| ReplicaView {
        url: url(application, replica),
        state: state(application, replica),
        trouble: trouble(application, replica),
        slow: is_slow(replica, replicas, times),
        since: rfc3339(journal.since(Subject::Replica(replica.id))),
        recent: times(replica),
        engine: replica.clone(),
    };
    replicas.iter().map(view).collect()
}

/// What is wrong with a replica; one that is drained is well.
fn trouble(application: &Application, replica: &ReplicaStatus) -> Option<String> {
    let draining = state(application, replica) == "draining";
    health::ailment(application, replica.id, replica.up || draining)
}

fn is_slow(
    replica: &ReplicaStatus,
    all: &[ReplicaStatus],
    times: impl Fn(&ReplicaStatus) -> ReplicaTimes,
) -> bool {
    let others = all.iter().filter(|other| other.id != replica.id);
    let others = others.map(|other| times(other).service_p50_seconds);
    advice::slower_than(times(replica).service_p50_seconds, others).is_some()
}

fn state(application: &Application, replica: &ReplicaStatus) -> &'static str {
    let settings = application.settings();
    let origin = settings.replica(replica.id).map(|it| it.origin());
    let mut members = settings.pool().members.iter();
    let member = members.find(|member| Some(&member.url) == origin);
    match (replica.up, replica.aside) {
        _ if member.is_some_and(|member| member.is_draining()) => "draining",
        (false, _) => "down",
        (true, true) => "ejected",
        (true, false) => "up",
    }
}

fn url(application: &Application, replica: &ReplicaStatus) -> String {
    let settings = application.settings();
    let known = settings.replica(replica.id);
    known.map_or_else(String::new, |replica| replica.origin().to_string())
}

fn classes(classes: Vec<ClassStatus>, recent: &Recent) -> BTreeMap<String, ClassView> {
    let view = |(rank, class): (usize, ClassStatus)| {
        let view = ClassView {
            rank,
            recent: recent.classes.get(&class.name).cloned().unwrap_or_default(),
            engine: class,
        };
        (view.engine.name.clone(), view)
    };
    classes.into_iter().enumerate().map(view).collect()
}

/// The answer of `/api/requests`: what became of one request that was not served.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RequestView {
    /// Its `x-request-id`.
    id: String,
    /// When it ended: time of day.
    time: String,
    /// `shed`, `rejected`, `failed` or `abandoned`.
    ending: &'static str,
    /// Its application; `null` if it reached none or that is gone.
    application: Option<String>,
    /// Its class; `null` if it did not come so far.
    class: Option<String>,
    /// The shed reason, or the word of the access log.
    reason: &'static str,
    /// What the decision compared, in `unit`; `null` if the engine did not refuse it.
    measured: Option<f64>,
    /// What it was compared with.
    limit: Option<f64>,
    /// Unit of `measured` and `limit`.
    unit: Option<&'static str>,
    /// What `retry-after` said.
    retry_after_seconds: Option<f64>,
    /// The status of its answer; `null` for a refusal of the engine, and without an answer.
    status: Option<u16>,
    /// Time from its arrival to its end; `null` for a refusal of the engine.
    took_seconds: Option<f64>,
    /// The replica that it was sent to.
    replica: Option<String>,
    /// The quota that it exceeded.
    quota: Option<String>,
    /// All of it in words.
    words: String,
    /// What an operator can do.
    remedy: &'static str,
    /// The trace in which it is recorded, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

impl RequestView {
    /// What became of a request; its application where that is in force.
    pub(super) fn of(
        application: Option<&Application>,
        time: SystemTime,
        id: &str,
        found: &Remembered,
    ) -> Self {
        let mut view = Self {
            id: id.to_owned(),
            time: rfc3339(time),
            ending: Outcome::Shed.as_str(),
            application: application.map(|it| it.name().to_owned()),
            class: None,
            reason: "",
            measured: None,
            limit: None,
            unit: None,
            retry_after_seconds: None,
            status: None,
            took_seconds: None,
            replica: None,
            quota: None,
            words: String::new(),
            remedy: "",
            trace_id: found.trace.map(|trace| trace.to_string()),
        };
        let why = match &found.ending {
            Ending::Shed(refusal) => view.refused(application, refusal),
            Ending::Other(failing) => view.failing(application, failing),
        };
        view.words = view.in_words(&why);
        view
    }

    fn refused(&mut self, application: Option<&Application>, refusal: &Refusal) -> String {
        self.class = class_name(application, refusal.class);
        self.reason = refusal.reason.as_str();
        self.measured = Some(refusal.measured);
        self.limit = Some(refusal.limit);
        self.unit = Some(refusal.reason.unit());
        self.retry_after_seconds = Some(refusal.retry_after.as_secs_f64());
        (_, self.remedy) = reasons::meaning(refusal.reason);
        reasons::words(refusal.reason, refusal.measured, refusal.limit)
    }

    fn failing(&mut self, application: Option<&Application>, failing: &Failing) -> String {
        self.ending = failing.outcome.as_str();
        self.class = failing.class.and_then(|id| class_name(application, id));
        self.reason = failing.reason;
        self.status = Some(failing.status).filter(|&status| status > 0);
        self.took_seconds = Some(failing.took.as_secs_f64());
        let settings = application.map(|it| it.settings());
        let replica = settings.zip(failing.replica);
        let url = replica.and_then(|(of, id)| Some(of.replica(id)?.origin().to_string()));
        self.replica = url;
        self.quota = failing.quota.as_deref().map(str::to_owned);
        let (meaning, remedy) = endings::meaning(failing.outcome, failing.reason);
        self.remedy = remedy;
        let mut words = meaning.to_owned();
        if let Some(quota) = &self.quota {
            words += &format!(" It was the quota `{quota}`.");
        }
        words += &match (&self.replica, self.ending) {
            (Some(url), _) => format!(" It was sent to {url}."),
            (None, "abandoned") => " It had not been sent to a replica.".to_owned(),
            (None, _) => String::new(),
        };
        let answered = self
            .status
            .map(|status| format!(", answered with {status}"));
        words += &format!(
            " It took {:.0} ms{}.",
            failing.took.as_secs_f64() * 1e3,
            answered.unwrap_or_default()
        );
        words
    }

    fn in_words(&self, why: &str) -> String {
        let mut words = String::new();
        let mut letters = self.ending.chars();
        words.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        words.push_str(letters.as_str());
        words += &format!(" at {}", self.time);
        if let Some(class) = &self.class {
            words += &format!(" in class {class}");
        }
        words += &format!(". {why} What helps: {}.", self.remedy);
        if let Some(id) = &self.trace_id {
            words += &format!(" Its trace is {id}.");
        }
        words
    }
}

fn class_name(application: Option<&Application>, class: ClassId) -> Option<String> {
    let config = application?.config();
    Some(config.protect.class_name(class).to_owned())
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
    unit: &'static str,
    words: String,
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
            unit: refusal.reason.unit(),
            words: reasons::words(refusal.reason, refusal.measured, refusal.limit),
        }
    }
}

impl Operator {
    /// Notes what is wrong with the process, and writes what began or ended to the log.
    pub(super) fn look_at_process(&self) {
        let mut process = warnings::of_process(&self.state);
        let refused = self.reloader.status().error;
        process.extend(refused.as_deref().map(warnings::of_reload));
        let lines = self
            .process_journal
            .lock()
            .on_conditions(SystemTime::now(), process);
        for line in lines {
            self.log(line.level, &line.message, &line.fields);
        }
    }

    /// The same of an application.
    pub(super) fn look_for_warnings(
        &self,
        application: &Application,
        engine: &Status,
        recent: &Recent,
    ) {
        let conditions = warnings::of_engine(application, engine, recent);
        let now = SystemTime::now();
        let name = application.name();
        let lines = self.watch(name, |watch| watch.journal.on_conditions(now, conditions));
        self.write(name, lines);
    }
}
