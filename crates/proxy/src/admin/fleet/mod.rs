//! The fleet: other proxies in front of the same replicas, as the crate `tidegate-fleet` sees them.
//!
//! A task beside the data plane takes what the engines say once per interval, gives each its share,
//! and hands the report to a [`Carrier`](carrier::Carrier):
//!
//! ```text
//! peers   POST to the admin listener of each; the answer is the peer's own report
//! nats    put into a bucket of NATS JetStream, which every proxy watches
//! plane   POST to the control plane; the answer is what the others said since the last time
//! ```
//!
//! Requests never wait for any of it: they read what the engine has published.
//!
//! What breaks it: a peer that answers and whose requests do not arrive is taken for alive. It is;
//! it goes on by its last known share.

mod carrier;
#[cfg(feature = "nats")]
mod nats;
mod peers;
mod plane;
mod post;
mod seal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use tidegate_fleet::{
    AppSample, BadReport, FleetEvent, FleetStatus, KeyRates, Member, MemberConfig, PeerReport,
};
use tidegate_sentry::ClassId;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use self::carrier::Link;
use self::seal::Seal;
use super::error::ApiError;
use super::{AbortOnDrop, Operator};
use crate::application::Application;
use crate::config::{Config, Fleet, FleetCarrier, Secret};
use crate::operator_log::Level;
use crate::state::State;

/// Time between two counts of the keys of quotas.
const KEYS_PERIOD: Duration = Duration::from_secs(1);

/// Weight of the newest count.
const KEYS_NEWEST: f64 = 0.4;

/// This proxy in its fleet.
#[derive(Debug)]
pub(super) struct FleetNode {
    config: Fleet,
    /// Its name in the fleet.
    proxy: String,
    token: Option<Secret>,
    /// On reports that go through a server.
    seal: Option<Seal>,
    member: Mutex<Member>,
    keys: Mutex<Keys>,
    latest: watch::Sender<Bytes>,
}

/// A report that was read.
#[derive(Debug)]
enum Taken {
    /// This proxy's own one.
    Own,
    /// Of the proxy of this name.
    Other(String),
}

/// Rates of the busy keys of quotas, by application and quota.
#[derive(Debug)]
struct Keys {
    counted: Instant,
    rates: BTreeMap<String, BTreeMap<String, KeyRates>>,
}

impl FleetNode {
    /// Where the configuration names a fleet.
    pub(super) fn new(config: &Config, state: &State) -> Result<Option<Self>, String> {
        let Some(fleet) = &config.fleet else {
            return Ok(None);
        };
        let boot = SystemTime::now().duration_since(UNIX_EPOCH);
        let member = MemberConfig {
            fleet: fleet.name.clone(),
            proxy: config.fleet_proxy(),
            boot: boot.map_or(0, |since| since.as_nanos() as u64),
            interval: *fleet.interval,
            hold: *fleet.hold,
            hold_cut_off: fleet.cut_off_after(),
            carrier: fleet.carrier().to_string(),
        };
        let token = fleet.read_token(&config.admin)?;
        let sealed = fleet.carrier().is_server();
        let seal = sealed.then(|| Seal::new(token.as_ref().map_or("", Secret::expose)));
        Ok(Some(Self {
            proxy: member.proxy.clone(),
            token,
            seal,
            config: fleet.clone(),
            member: Mutex::new(Member::new(member, state.clock().now())),
            keys: Mutex::new(Keys {
                counted: Instant::now(),
                rates: BTreeMap::new(),
            }),
            latest: watch::Sender::new(Bytes::new()),
        }))
    }

    pub(super) fn status(&self, state: &State) -> FleetStatus {
        self.member.lock().status(state.clock().now())
    }

    /// A peer's report; the answer is this proxy's own.
    pub(super) fn on_report(&self, state: &State, body: &[u8]) -> Result<Bytes, ApiError> {
        if self.seal.is_some() {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                format!("this proxy shares through {}", self.config.carrier()),
                "give all proxies of a fleet one of `fleet.peers`, `nats` and `plane`",
            ));
        }
        match self.take(state, body) {
            Ok(_) => Ok(self.latest.borrow().clone()),
            Err(why) => Err(ApiError::new(
                StatusCode::CONFLICT,
                why,
                "give the proxies of a fleet one `fleet.name` and names of their own",
            )),
        }
    }

    /// Reads a report, by whatever way it came.
    ///
    /// # Errors
    /// Why it is not believed.
    fn take(&self, state: &State, document: &[u8]) -> Result<Taken, String> {
        let now = state.clock().now();
        let mut member = self.member.lock();
        let report = match self.seal.as_ref().map(|seal| seal.open(document)) {
            Some(Ok(report)) => PeerReport::decode(report),
            Some(Err(stranger)) => {
                member.on_bad_report();
                return Err(stranger.to_string());
            }
            None => PeerReport::decode(document),
        };
        let report = report.map_err(|error| {
            member.on_bad_report();
            error.to_string()
        })?;
        let own = member.config();
        let taken = if report.proxy == own.proxy && report.boot == own.boot {
            Taken::Own
        } else {
            Taken::Other(report.proxy.clone())
        };
        match member.on_report(now, report) {
            // Two ways can lead to a proxy: its answers and its own reports.
            Ok(()) | Err(BadReport::Old(_)) => Ok(taken),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The carrier works, whichever peers report.
    fn on_exchange(&self, state: &State) {
        self.member.lock().on_exchange(state.clock().now());
    }

    fn on_gone(&self, state: &State, proxy: &str) {
        self.member.lock().on_gone(state.clock().now(), proxy);
    }

    fn on_trouble(&self, why: String) {
        self.member.lock().on_trouble(why);
    }

    /// Takes what the engines say and gives each its share.
    fn step(&self, state: &State) -> Vec<FleetEvent> {
        let applications = state.applications();
        let proxies = self.member.lock().proxies();
        self.count_keys(state, proxies);
        let samples: Vec<AppSample> = {
            let keys = self.keys.lock();
            let quotas = |it: &Application| keys.rates.get(it.name()).cloned();
            let sample = |it: &Arc<Application>| sample(it, quotas(it).unwrap_or_default());
            applications.iter().map(sample).collect()
        };
        let now = state.clock().now();
        let mut member = self.member.lock();
        if state.is_draining() && !state.is_relieved() {
            member.leave();
        }
        let shares = member.on_sample(now, &samples);
        let quotas: Vec<_> = (applications.iter())
            .map(|it| member.quota_shares(it.name()))
            .collect();
        let events = member.take_events();
        if !state.is_relieved() {
            let report = member.report().encode();
            let document = match &self.seal {
                Some(seal) => seal.seal(&report),
                None => report.into(),
            };
            self.latest.send_replace(document);
        }
        drop(member);
        for (application, quotas) in applications.iter().zip(quotas) {
            if let Some(share) = shares.get(application.name()) {
                let now = application.now();
                application.pass_on(application.sentry().share(now, share));
            }
            if let Some(edge) = &application.settings().edge {
                edge.share_quotas(&quotas);
            }
        }
        events
    }

    /// Counts what the keys of quotas use, from time to time.
    fn count_keys(&self, state: &State, proxies: usize) {
        let mut keys = self.keys.lock();
        let elapsed = keys.counted.elapsed();
        if elapsed < KEYS_PERIOD {
            return;
        }
        keys.counted = Instant::now();
        let mut rates = BTreeMap::new();
        for application in state.applications().iter() {
            let settings = application.settings();
            let Some(edge) = &settings.edge else {
                continue;
            };
            let mut busy = edge.take_busy_keys(elapsed, proxies);
            let before = keys.rates.get(application.name());
            for (quota, rates) in &mut busy {
                let before = before.and_then(|it| it.get(quota));
                for (key, rate) in rates {
                    if let Some(before) = before.and_then(|it| it.get(key)) {
                        *rate = before + KEYS_NEWEST * (*rate - before);
                    }
                }
            }
            rates.insert(application.name().to_owned(), busy);
        }
        keys.rates = rates;
    }
}

fn sample(application: &Application, quotas: BTreeMap<String, KeyRates>) -> AppSample {
    let settings = application.settings();
    let report = application.sentry().fleet_report(application.now());
    let protect = &settings.config.protect;
    let class = |index| protect.class_name(ClassId(index)).to_owned();
    let name = |replica: &tidegate_sentry::ReplicaTotals| {
        let known = settings.replica(replica.replica)?;
        Some((replica.replica, known.origin().to_string()))
    };
    AppSample {
        name: application.name().to_owned(),
        classes: (0..protect.class_count() as u16).map(class).collect(),
        replicas: report.replicas.iter().filter_map(name).collect(),
        report,
        quotas,
        sticky: settings.config.sticky.is_some(),
    }
}

/// Reports and divides, for as long as the future is polled.
pub(super) async fn run(operator: Arc<Operator>) {
    let Some(node) = &operator.fleet else {
        return std::future::pending().await;
    };
    let mut ticks = interval(*node.config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut links = peers::Links::default();
    let _server = server(&operator, node);
    loop {
        ticks.tick().await;
        let events = node.step(&operator.state);
        events.iter().for_each(|event| tell(&operator, node, event));
        links.follow(&operator, node).await;
    }
}

/// The task of a carrier that is a server.
fn server(operator: &Arc<Operator>, node: &FleetNode) -> Option<AbortOnDrop> {
    let operator = Arc::clone(operator);
    let task = match node.config.carrier() {
        FleetCarrier::Peers(_) => return None,
        #[cfg(feature = "nats")]
        FleetCarrier::Nats(config) => {
            let store = nats::Store::new(config, node);
            tokio::spawn(Link::new(operator, node, store).run())
        }
        // Refused with the file.
        #[cfg(not(feature = "nats"))]
        FleetCarrier::Nats(_) => return None,
        FleetCarrier::Plane(url) => {
            let board = plane::Board::new(url, node);
            tokio::spawn(Link::new(operator, node, board).run())
        }
    };
    Some(AbortOnDrop(task))
}

/// One line for the operator, and one event.
fn tell(operator: &Operator, node: &FleetNode, event: &FleetEvent) {
    let now = SystemTime::now();
    match event {
        FleetEvent::PeerJoined { proxy } => {
            let line = format!("proxy {proxy} is in the fleet: windows and quotas are shared");
            operator.log(Level::Info, &line, &json!({ "proxy": proxy }));
            operator.publish(
                "peer_joined",
                now,
                &json!({ "proxy": proxy, "words": line }),
            );
        }
        FleetEvent::PeerLost { proxy, why } => {
            let why = why.as_str();
            let line = format!("proxy {proxy} is no longer in the fleet ({why})");
            operator.log(Level::Warn, &line, &json!({ "proxy": proxy, "why": why }));
            operator.publish(
                "peer_lost",
                now,
                &json!({ "proxy": proxy, "why": why, "words": line }),
            );
        }
        FleetEvent::CutOff { on: true } => {
            let line = format!(
                "no other proxy of the fleet is heard of: the last known shares stay in force; see \
                 whether this one reaches {}",
                node.config.carrier()
            );
            operator.log(Level::Warn, &line, &json!({ "cut_off": true }));
        }
        FleetEvent::CutOff { on: false } => {
            operator.notice("other proxies of the fleet are heard of again");
        }
    }
}
