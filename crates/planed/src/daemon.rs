//! The loop: look, decide, carry out, write down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use serde::Serialize;
use tidegate_control::Timestamp;
use tidegate_plane::{
    ApplicationConfig, ApplicationStatus, Decision, DivisionStatus, Observation, Plane, PlaneEvent,
    ServerShare,
};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{self, Api};
use crate::cluster::{Cluster, Declared, Report};
use crate::config::{DriverConfig, File, Mode, OnExit, ProxiesDriverConfig};
use crate::driver::{Driver, Saved, Seen, driver, run_hook};
use crate::http::CallError;
use crate::observe::{Counted, Engine, together};
use crate::proxy::{self, Proxy};
use crate::saved::{State, StateFile};

/// How often the state is written when nothing happens.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Calls to proxies that are under way together.
const CALLS_MAX: usize = 64;
/// Events that are kept for people.
const EVENTS_MAX: usize = 500;

/// What a file asks for that a build without the feature `kubernetes` has not.
pub const NO_KUBERNETES: &str = "the file has parts for Kubernetes or KEDA, which this build leaves \
                                 out: build with `--features kubernetes`";

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DaemonError(String);

/// An event as it is kept.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Noted {
    /// Unix time, in seconds.
    #[serde(rename = "time")]
    pub(crate) at: f64,
    /// Whether it was carried out; absent where there is nothing to carry out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) applied: Option<bool>,
    #[serde(flatten)]
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum What {
    Plane(PlaneEvent),
    Problem { problem: String },
}

/// What the API shows.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) mode: Mode,
    pub(crate) kill_switch: bool,
    /// Which daemon of several acts; nothing where there is only this one.
    pub(crate) leader: Option<Leader>,
    pub(crate) applications: Vec<ApplicationStatus>,
    /// What the pool earns, where there is one.
    pub(crate) pool: Option<DivisionStatus>,
    /// Admin addresses of the proxies that are looked at.
    pub(crate) proxies: Vec<String>,
    pub(crate) events: VecDeque<Noted>,
    /// Decisions by application and cause.
    pub(crate) decisions: BTreeMap<(String, &'static str), u64>,
    pub(crate) problems: u64,
    /// What is wrong now.
    pub(crate) warnings: Vec<String>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Leader {
    /// Whether it is this daemon.
    pub(crate) leads: bool,
    /// As far as it is known.
    pub(crate) leader: Option<String>,
}

/// Shared by the loop and the API.
pub(crate) type Board = Arc<Mutex<Shared>>;

pub(crate) fn lock(board: &Board) -> MutexGuard<'_, Shared> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By application, and in the order of the proxies.
type Engines = BTreeMap<String, Vec<Result<Engine, CallError>>>;

/// A control plane at work.
pub struct Daemon {
    file: File,
    plane: Plane,
    proxies: Vec<Proxy>,
    drivers: BTreeMap<String, Box<dyn Driver>>,
    cluster: Option<Box<dyn Cluster>>,
    /// Applications of the cluster, by name.
    declared: BTreeMap<String, Declared>,
    /// Servers of an earlier daemon whose application has not appeared yet.
    servers_before: BTreeMap<String, Vec<Saved>>,
    statuses: watch::Sender<Vec<ApplicationStatus>>,
    /// By application and proxy.
    counted: BTreeMap<(String, String), Counted>,
    looked: Instant,
    state_file: Option<StateFile>,
    saved: Instant,
    servers_saved: BTreeMap<String, Vec<Saved>>,
    switch_saved: bool,
    board: Board,
    listener: Option<TcpListener>,
    /// Of the proxies' admin API, and of calls that change something here.
    token: Option<String>,
    addr: SocketAddr,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

fn unix_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::ZERO + since.unwrap_or_default()
}

impl Daemon {
    /// Binds the API, takes the state file, and takes over what an earlier daemon left.
    ///
    /// # Errors
    /// An address or file that cannot be used, with the remedy.
    pub async fn start(file: File) -> Result<Self, DaemonError> {
        if file.cluster().is_some() || file.keda.is_some() {
            return Err(DaemonError(NO_KUBERNETES.to_owned()));
        }
        Self::start_in(file, None).await
    }

    /// As [`Daemon::start`], in a cluster.
    ///
    /// # Errors
    /// An address or file that cannot be used, with the remedy.
    pub async fn start_in(
        file: File,
        cluster: Option<Box<dyn Cluster>>,
    ) -> Result<Self, DaemonError> {
        let listen = file.daemon.listen;
        let cannot = |error: std::io::Error| {
            DaemonError(format!(
                "cannot listen on {listen}: {error}; choose another `daemon.listen`"
            ))
        };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let addr = listener.local_addr().map_err(cannot)?;
        let token = file.daemon.read_token().map_err(DaemonError)?;
        let proxies = file.daemon.proxies.iter();
        let proxies = proxies
            .map(|base| Proxy::new(base, token.clone()))
            .collect();
        let plane = Plane::new(file.plane.clone(), unix_now());
        let plane = plane.map_err(|error| DaemonError(error.to_string()))?;
        let state_file = file.daemon.state_file.as_deref().map(StateFile::take);
        let state_file = state_file.transpose().map_err(DaemonError)?;
        let shared = Shared {
            mode: file.daemon.mode,
            ..Shared::default()
        };
        let mut daemon = Self {
            plane,
            proxies,
            drivers: BTreeMap::new(),
            cluster,
            declared: BTreeMap::new(),
            servers_before: BTreeMap::new(),
            statuses: watch::Sender::new(Vec::new()),
            counted: BTreeMap::new(),
            looked: Instant::now(),
            saved: Instant::now(),
            servers_saved: BTreeMap::new(),
            switch_saved: false,
            board: Arc::new(Mutex::new(shared)),
            listener: Some(listener),
            token,
            addr,
            state_file,
            file,
        };
        daemon.take_over();
        Ok(daemon)
    }

    /// Where the API listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn take_over(&mut self) {
        let (state, problem) = match &self.state_file {
            Some(file) => file.read(),
            None => (None, None),
        };
        if let Some(problem) = problem {
            self.problem(problem);
        }
        if let Some(state) = state {
            self.plane.resume(state.plane);
            self.servers_before = state.servers;
            self.switch_saved = state.kill_switch;
            lock(&self.board).kill_switch = state.kill_switch;
        }
        for application in self.file.plane.applications.clone() {
            if let Some(config) = self.file.driver.get(&application.name).cloned() {
                self.add_driver(&application, &config);
            }
        }
    }

    /// Gives an application its driver. In mode `recommend` only drivers that look have a use.
    fn add_driver(&mut self, application: &ApplicationConfig, config: &DriverConfig) {
        let name = &application.name;
        let saved = || self.servers_before.get(name).cloned().unwrap_or_default();
        let driver = match (config, &mut self.cluster) {
            (DriverConfig::Kubernetes(config), Some(cluster)) => {
                Some(cluster.driver(name, config, saved()))
            }
            _ if self.file.daemon.mode == Mode::Recommend => None,
            _ => {
                let share = self.file.plane.proxies.servers;
                driver(name, config, share, application.min, saved())
            }
        };
        self.servers_before.remove(name);
        if let Some(driver) = driver {
            self.drivers.insert(name.clone(), driver);
        }
    }

    /// What the plane knows, after every look.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<Vec<ApplicationStatus>> {
        self.statuses.subscribe()
    }

    /// Works until `end` resolves.
    pub async fn run(mut self, end: impl Future<Output = ()>) {
        if let Some(listener) = self.listener.take() {
            let api = Api::new(Arc::clone(&self.board), self.token.clone());
            tokio::spawn(api::serve(listener, Arc::new(api)));
        }
        let mut ticks = tokio::time::interval(self.file.daemon.interval.0);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                _ = ticks.tick() => self.look().await,
            }
        }
        if self.file.daemon.on_exit == OnExit::Stop {
            for driver in self.drivers.values_mut() {
                driver.stop_all(&self.proxies).await;
            }
        }
        self.save();
        for driver in self.drivers.values_mut() {
            driver.finish_stops().await;
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.end().await;
        }
    }

    /// One look at everything.
    async fn look(&mut self) {
        let seconds = self.looked.elapsed().as_secs_f64();
        self.looked = Instant::now();
        self.follow_cluster();
        let mut warnings = Vec::new();
        let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
        self.find_proxies(&mut warnings).await;
        let engines = self.engines().await;
        self.observe_proxies(&engines, &mut warnings).await;
        for (name, seen) in &engines {
            let mut of_application = Vec::new();
            self.observe(name, seen, seconds, &mut of_application).await;
            problems.insert(name.clone(), of_application);
        }
        self.advance(&engines, &mut problems).await;
        warnings.extend(problems.values().flatten().cloned());
        let events = self.plane.handle_timeout(unix_now());
        for (name, problem) in self.take(events).await {
            problems.entry(name).or_default().push(problem);
        }
        let statuses = self.plane.status(unix_now());
        self.report(&statuses, &problems, &mut warnings).await;
        {
            let mut shared = lock(&self.board);
            shared.applications.clone_from(&statuses);
            shared.pool = self.plane.division();
            let proxies = self.proxies.iter();
            shared.proxies = proxies.map(|proxy| proxy.base().to_owned()).collect();
        }
        self.statuses.send_replace(statuses);
        for warning in &warnings {
            self.problem(warning.clone());
        }
        lock(&self.board).warnings = warnings;
        let switched = lock(&self.board).kill_switch != self.switch_saved;
        let changed = switched || self.servers() != self.servers_saved;
        if changed || self.saved.elapsed() >= SAVE_INTERVAL {
            self.save();
        }
    }

    /// Applications of the cluster come, change and go.
    fn follow_cluster(&mut self) {
        let base = &self.file.plane;
        let declared = self.cluster.as_mut().and_then(|it| it.declared(base));
        let Some(declared) = declared else {
            return;
        };
        let mut config = base.clone();
        let wanted = declared.iter().map(|it| it.application.clone());
        config.applications.extend(wanted);
        if let Err(error) = self.plane.reconfigure(config) {
            self.problem(format!(
                "applications of the cluster: {error}; the old ones stay"
            ));
            return;
        }
        let before = std::mem::take(&mut self.declared);
        for it in declared {
            let name = it.application.name.clone();
            let same = |old: &Declared| old.driver == it.driver;
            if !before.get(&name).is_some_and(same) {
                self.add_driver(
                    &it.application,
                    &DriverConfig::Kubernetes(it.driver.clone()),
                );
            }
            self.declared.insert(name, it);
        }
        let file = &self.file.driver;
        let stays = |name: &String| file.contains_key(name) || self.declared.contains_key(name);
        self.drivers.retain(|name, _| stays(name));
        self.counted.retain(|(name, _), _| {
            self.plane
                .config()
                .applications
                .iter()
                .any(|it| it.name == *name)
        });
    }

    /// Shows the cluster, and those who ask here, how things are.
    async fn report(
        &mut self,
        statuses: &[ApplicationStatus],
        problems: &BTreeMap<String, Vec<String>>,
        warnings: &mut Vec<String>,
    ) {
        let acts: Vec<bool> = statuses.iter().map(|it| self.acts(&it.name)).collect();
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        warnings.extend(cluster.warnings());
        lock(&self.board).leader = Some(Leader {
            leads: cluster.leads(),
            leader: cluster.leader(),
        });
        let of = |name: &str| problems.get(name).map_or(&[][..], Vec::as_slice);
        let reports = statuses.iter().zip(acts).map(|(status, acts)| {
            let problems = of(&status.name);
            let report = Report {
                status,
                acts,
                problems,
            };
            (status.name.clone(), report)
        });
        cluster.report(&reports.collect()).await;
    }

    /// Servers that a later daemon can take over.
    fn servers(&self) -> BTreeMap<String, Vec<Saved>> {
        let drivers = self.drivers.iter();
        let now = drivers.map(|(name, driver)| (name.clone(), driver.saved()));
        let mut servers = self.servers_before.clone();
        servers.extend(now);
        servers
    }

    fn names(&self) -> Vec<String> {
        let applications = self.plane.config().applications.iter();
        applications
            .map(|application| application.name.clone())
            .collect()
    }

    /// Proxies behind a name come and go.
    async fn find_proxies(&mut self, warnings: &mut Vec<String>) {
        if !self.file.daemon.each_address {
            return;
        }
        let bases = &self.file.daemon.proxies;
        let found = join_all(bases.iter().map(|base| proxy::addresses(base))).await;
        let mut known = BTreeSet::new();
        for (base, found) in bases.iter().zip(found) {
            match found {
                Ok(addresses) => known.extend(addresses),
                Err(error) => {
                    warnings.push(format!(
                        "{base}: {error}; the proxies stay those known before"
                    ));
                    return;
                }
            }
        }
        let before: BTreeSet<String> = self.proxies.iter().map(|it| it.base().to_owned()).collect();
        if known == before {
            return;
        }
        self.counted.retain(|(_, base), _| known.contains(base));
        let proxies = known.iter();
        let proxies = proxies.map(|base| Proxy::new(base, self.token.clone()));
        self.proxies = proxies.collect();
    }

    /// The status of every application in every proxy, in the order of the proxies.
    async fn engines(&self) -> Engines {
        let names = self.names();
        let pairs = names
            .iter()
            .flat_map(|name| self.proxies.iter().map(move |it| (name, it)));
        let calls: Vec<_> = pairs.map(|(name, proxy)| proxy.engine(name)).collect();
        let answers: Vec<_> = stream::iter(calls).buffered(CALLS_MAX).collect().await;
        let mut answers = answers.into_iter();
        let count = self.proxies.len();
        let of_name = |name: String| (name, answers.by_ref().take(count).collect());
        names.into_iter().map(of_name).collect()
    }

    /// CPU use of the proxies: the same in every application.
    async fn observe_proxies(&mut self, engines: &Engines, warnings: &mut Vec<String>) {
        let Some(answers) = engines.values().next() else {
            return;
        };
        let use_of =
            |answer: &Result<Engine, CallError>| answer.as_ref().ok().map(Engine::cpu_share);
        let uses: Option<Vec<f64>> = answers.iter().map(use_of).collect();
        let Some(uses) = uses.filter(|uses| !uses.is_empty()) else {
            return;
        };
        let event = self.plane.on_proxies(unix_now(), &uses);
        for (_, problem) in self.take(event.into_iter().collect()).await {
            warnings.push(problem);
        }
    }

    /// What the proxies saw. When one of them does not answer, the interval is missing, not
    /// smaller.
    async fn observe(
        &mut self,
        name: &str,
        answers: &[Result<Engine, CallError>],
        seconds: f64,
        warnings: &mut Vec<String>,
    ) {
        let mut parts: Vec<Observation> = Vec::new();
        for (proxy, answer) in self.proxies.iter().zip(answers) {
            match answer {
                Ok(engine) => {
                    let key = (name.to_owned(), proxy.base().to_owned());
                    let counted = self.counted.entry(key).or_default();
                    parts.extend(counted.since(engine, seconds));
                    warnings.extend(self.unknown_class(name, engine));
                }
                Err(error) => warnings.push(format!("a proxy gives no status: {error}")),
            }
        }
        let complete = parts.len() == answers.len();
        let servers = self.file.plane.proxies.servers;
        let Some(all) = together(&parts, servers).filter(|_| complete) else {
            return;
        };
        let events = self.plane.on_observation(unix_now(), name, &all);
        for (_, problem) in self.take(events).await {
            warnings.push(problem);
        }
    }

    /// A configured class that the proxies do not have: its revenue and guarantee mean nothing.
    fn unknown_class(&self, name: &str, engine: &Engine) -> Option<String> {
        let mut applications = self.plane.config().applications.iter();
        let application = applications.find(|it| it.name == name)?;
        let mut classes = application.classes.iter();
        let class = classes.find(|class| !engine.classes.contains_key(&class.name))?;
        let known: Vec<&str> = engine.classes.keys().map(String::as_str).collect();
        let (class, known) = (&class.name, known.join(", "));
        Some(format!(
            "{name}: the proxies have no class `{class}`; there are: {known}. Write its name as \
             in their configuration"
        ))
    }

    /// What the servers are; in mode `recommend` those that the proxies have.
    async fn advance(&mut self, engines: &Engines, problems: &mut BTreeMap<String, Vec<String>>) {
        let names = engines.keys().cloned();
        let acts: BTreeMap<String, bool> =
            names.map(|name| (name.clone(), self.acts(&name))).collect();
        let proxies = &self.proxies;
        let work = self.drivers.iter_mut().map(|(name, driver)| {
            let acts = acts.get(name).copied().unwrap_or(false);
            async move {
                let mut problems = Vec::new();
                let seen = if acts {
                    driver.advance(proxies, &mut problems).await
                } else {
                    driver.look(&mut problems).await
                };
                (name.clone(), (seen, driver.looks(), problems))
            }
        });
        let mut done: BTreeMap<_, _> = join_all(work).await.into_iter().collect();
        for (name, answers) in engines {
            let (seen, looks, found) = done.remove(name).unwrap_or((None, false, Vec::new()));
            problems.entry(name.clone()).or_default().extend(found);
            let acts = acts.get(name).copied().unwrap_or(false);
            let seen = match seen {
                None if !acts && !looks => self.replicas(answers),
                seen => seen,
            };
            let Some(Seen { desired, ready }) = seen else {
                continue;
            };
            if self.is_scaled_elsewhere() {
                self.plane.on_followed(unix_now(), name, desired, ready);
                continue;
            }
            let event = self.plane.on_servers(unix_now(), name, desired, ready);
            self.take(event.into_iter().collect()).await;
        }
    }

    /// What the proxies have: the same servers, or each its own.
    fn replicas(&self, answers: &[Result<Engine, CallError>]) -> Option<Seen> {
        let seen = |answer: &Result<Engine, CallError>| {
            let engine = answer.as_ref().ok()?;
            Some(Seen {
                desired: engine.replicas.len() as u32,
                ready: engine.replicas_up() as u32,
            })
        };
        let all: Vec<Seen> = answers.iter().map(seen).collect::<Option<_>>()?;
        match self.file.plane.proxies.servers {
            ServerShare::Shared => all.first().copied(),
            ServerShare::Partitioned => Some(Seen {
                desired: all.iter().map(|seen| seen.desired).sum(),
                ready: all.iter().map(|seen| seen.ready).sum(),
            }),
        }
    }

    /// Whether changes of the number of servers are made by another daemon, or by KEDA.
    fn is_scaled_elsewhere(&self) -> bool {
        let follows = self.cluster.as_ref().is_some_and(|it| !it.leads());
        follows || self.file.keda.is_some()
    }

    fn acts(&self, name: &str) -> bool {
        let declared = self.declared.get(name);
        self.file.daemon.mode == Mode::Act
            && declared.is_none_or(|it| it.mode == Mode::Act)
            && self.cluster.as_ref().is_none_or(|it| it.leads())
            && !lock(&self.board).kill_switch
    }

    /// Carries decisions out. Returns those that could not be, by application.
    async fn take(&mut self, events: Vec<PlaneEvent>) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        for event in events {
            let applied = match &event {
                PlaneEvent::Decision(decision) => {
                    let outcome = self.carry_out(decision).await;
                    let applied = matches!(outcome, Ok(true));
                    if let Err(problem) = outcome {
                        problems.push((decision.application.clone(), problem));
                    }
                    Some(applied)
                }
                PlaneEvent::Proxies { .. } => {
                    let outcome = self.change_proxies(&event).await;
                    let applied = matches!(outcome, Ok(true));
                    if let Err(problem) = outcome {
                        problems.push((String::new(), problem));
                    }
                    Some(applied)
                }
                _ => None,
            };
            self.note(event, applied);
        }
        problems
    }

    async fn carry_out(&mut self, decision: &Decision) -> Result<bool, String> {
        if !self.acts(&decision.application) {
            return Ok(false);
        }
        let Some(driver) = self.drivers.get_mut(&decision.application) else {
            return Ok(false);
        };
        match driver.set(decision).await {
            Ok(()) => {
                self.convey_target(decision).await;
                self.plane.on_applied(unix_now(), decision);
                self.save();
                Ok(true)
            }
            Err(problem) => {
                let problem = format!("{}: {problem}", decision.application);
                self.problem(problem.clone());
                Err(problem)
            }
        }
    }

    /// Adds a proxy or takes one away, where there is something that does.
    async fn change_proxies(&self, event: &PlaneEvent) -> Result<bool, String> {
        let Some(ProxiesDriverConfig::Hook(hook)) = &self.file.proxies else {
            return Ok(false);
        };
        let leads = self.cluster.as_ref().is_none_or(|it| it.leads());
        let acts = self.file.daemon.mode == Mode::Act && leads && !lock(&self.board).kill_switch;
        if !acts {
            return Ok(false);
        }
        let outcome = run_hook(hook, event).await;
        outcome
            .map(|()| true)
            .map_err(|problem| format!("proxies: {problem}"))
    }

    /// Proxies police requests by the target of the decision (003 §4.1), where targets can change.
    async fn convey_target(&self, decision: &Decision) {
        let mut applications = self.plane.config().applications.iter();
        let bands = applications.any(|application| {
            application.name == decision.application && !application.targets.is_empty()
        });
        if !bands {
            return;
        }
        for proxy in &self.proxies {
            let name = &decision.application;
            if let Err(error) = proxy.set_target(name, decision.target).await {
                self.problem(format!("{name}: the target was not set: {error}"));
            }
        }
    }

    fn note(&self, event: PlaneEvent, applied: Option<bool>) {
        let mut shared = lock(&self.board);
        if let PlaneEvent::Decision(decision) = &event {
            let key = (decision.application.clone(), decision.cause.as_str());
            *shared.decisions.entry(key).or_default() += 1;
        }
        shared.note(What::Plane(event), applied);
    }

    fn problem(&self, problem: String) {
        let mut shared = lock(&self.board);
        shared.problems += 1;
        shared.note(What::Problem { problem }, None);
    }

    fn save(&mut self) {
        self.saved = Instant::now();
        self.servers_saved = self.servers();
        self.switch_saved = lock(&self.board).kill_switch;
        let Some(file) = &self.state_file else {
            return;
        };
        let state = State {
            plane: self.plane.snapshot(),
            servers: self.servers_saved.clone(),
            kill_switch: self.switch_saved,
        };
        if let Err(error) = file.write(&state) {
            let problem =
                format!("the state file cannot be written: {error}; make room where it is");
            self.problem(problem);
        }
    }
}

impl Shared {
    /// Keeps an event. One that repeats the last of its kind (a recommendation that was not carried
    /// out, a proxy that is still away) is not kept again.
    fn note(&mut self, what: What, applied: Option<bool>) {
        let same = |noted: &&Noted| noted.applied == applied && repeats(&noted.what, &what);
        if applied != Some(true) && self.events.iter().rev().take(20).find(same).is_some() {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Noted {
            at: unix_now().as_secs_f64(),
            applied,
            what,
        });
    }
}

fn repeats(before: &What, now: &What) -> bool {
    match (before, now) {
        (What::Plane(PlaneEvent::Decision(a)), What::Plane(PlaneEvent::Decision(b))) => {
            (&a.application, a.from, a.to, a.target) == (&b.application, b.from, b.to, b.target)
        }
        (before, now) => before == now,
    }
}
