//! The fleet: other proxies in front of the same replicas, as the crate `tidegate-fleet` sees them.
//!
//! A task beside the data plane takes what the engines say once per interval, gives each its share,
//! and posts the report to the admin listener of every peer. The answer to a report is the peer's
//! own, so that one direction is enough. Requests never wait for any of it: they read what the
//! engine has published.
//!
//! What breaks it: a peer that answers and whose requests do not arrive is taken for alive. It is;
//! it goes on by its last known share.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use tidegate_fleet::{
    AppSample, FleetEvent, FleetStatus, KeyRates, MESSAGE_BYTES_MAX, Member, MemberConfig,
    PeerReport,
};
use tidegate_sentry::ClassId;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::error::ApiError;
use super::{AbortOnDrop, Operator};
use crate::application::Application;
use crate::config::{Config, Fleet, Secret};
use crate::operator_log::Level;
use crate::state::State;

/// Time between two looks at what the names of peers stand for.
const LOOKUP: Duration = Duration::from_secs(5);

/// Time between two counts of the keys of quotas.
const KEYS_PERIOD: Duration = Duration::from_secs(1);

/// Weight of the newest count.
const KEYS_NEWEST: f64 = 0.4;

/// Time for a report and its answer, at least.
const ANSWER_MIN: Duration = Duration::from_millis(500);

/// Lines about refused reports of one peer are this far apart.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// This proxy in its fleet.
#[derive(Debug)]
pub(super) struct FleetNode {
    config: Fleet,
    token: Option<Secret>,
    member: Mutex<Member>,
    keys: Mutex<Keys>,
    latest: watch::Sender<Bytes>,
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
            hold_cut_off: *fleet.hold_cut_off,
        };
        Ok(Some(Self {
            token: fleet.read_token(&config.admin)?,
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
        let now = state.clock().now();
        let mut member = self.member.lock();
        let taken = PeerReport::decode(body)
            .inspect_err(|_| member.on_bad_report())
            .and_then(|report| member.on_report(now, report));
        match taken {
            // Two ways lead to this proxy: its answers and its own reports.
            Ok(()) | Err(tidegate_fleet::BadReport::Old(_)) => Ok(self.latest.borrow().clone()),
            Err(error) => Err(ApiError::new(
                StatusCode::CONFLICT,
                error.to_string(),
                "give the proxies of a fleet one `fleet.name` and names of their own",
            )),
        }
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
            self.latest.send_replace(member.report().encode().into());
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
    let mut links = Links::default();
    loop {
        ticks.tick().await;
        let events = node.step(&operator.state);
        events.iter().for_each(|event| tell(&operator, event));
        links.follow(&operator, node).await;
    }
}

/// One line for the operator, and one event.
fn tell(operator: &Operator, event: &FleetEvent) {
    let now = SystemTime::now();
    match event {
        FleetEvent::PeerJoined { proxy } => {
            let line = format!("proxy {proxy} is in the fleet: windows and quotas are shared");
            operator.log(Level::Info, &line, &json!({ "proxy": proxy }));
            operator.publish("peer_joined", now, &json!({ "proxy": proxy }));
        }
        FleetEvent::PeerLost { proxy, why } => {
            let why = why.as_str();
            let line = format!("proxy {proxy} is no longer in the fleet ({why})");
            operator.log(Level::Warn, &line, &json!({ "proxy": proxy, "why": why }));
            operator.publish("peer_lost", now, &json!({ "proxy": proxy, "why": why }));
        }
        FleetEvent::CutOff { on: true } => {
            let line = "no other proxy of the fleet is heard of: the last known shares stay in \
                        force; see whether the admin listeners reach each other";
            operator.log(Level::Warn, line, &json!({ "cut_off": true }));
        }
        FleetEvent::CutOff { on: false } => {
            operator.notice("other proxies of the fleet are heard of again");
        }
    }
}

/// Connections to the peers, one task each.
#[derive(Default)]
struct Links {
    looked: Option<Instant>,
    tasks: HashMap<SocketAddr, AbortOnDrop>,
}

impl Links {
    /// Keeps a connection to every address that the names of the peers stand for.
    async fn follow(&mut self, operator: &Arc<Operator>, node: &FleetNode) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOKUP) {
            return;
        }
        self.looked = Some(Instant::now());
        let mut found = Vec::new();
        let mut complete = true;
        for peer in &node.config.peers {
            // A name server that does not answer must not hold up the shares.
            let lookup = timeout(
                *node.config.interval,
                tokio::net::lookup_host(peer.as_str()),
            );
            match lookup.await {
                Ok(Ok(addresses)) => found.extend(addresses),
                _ => complete = false,
            }
        }
        if complete {
            self.tasks.retain(|address, _| found.contains(address));
        }
        for address in found {
            self.tasks.entry(address).or_insert_with(|| {
                let link = Link::new(Arc::clone(operator), address, node);
                AbortOnDrop(tokio::spawn(link.run()))
            });
        }
    }
}

/// The connection to one peer.
struct Link {
    operator: Arc<Operator>,
    address: SocketAddr,
    latest: watch::Receiver<Bytes>,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
    /// The proxy that answered here last.
    proxy: Option<String>,
    complained: Option<Instant>,
    patience: Duration,
}

/// Why a report was not answered.
enum Unanswered {
    /// Nobody listens there.
    Refused,
    /// Anything else on the way.
    Lost,
    /// The peer refuses it, and says why.
    Declined(String),
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Lost,
        }
    }
}

impl From<hyper::Error> for Unanswered {
    fn from(_: hyper::Error) -> Self {
        Self::Lost
    }
}

impl Link {
    fn new(operator: Arc<Operator>, address: SocketAddr, node: &FleetNode) -> Self {
        Self {
            operator,
            address,
            latest: node.latest.subscribe(),
            sender: None,
            proxy: None,
            complained: None,
            patience: ANSWER_MIN.max(2 * *node.config.interval),
        }
    }

    async fn run(mut self) {
        while self.latest.changed().await.is_ok() {
            let report = self.latest.borrow_and_update().clone();
            let answered = timeout(self.patience, self.exchange(report)).await;
            match answered.unwrap_or(Err(Unanswered::Lost)) {
                Ok(answer) => self.on_answer(&answer).await,
                Err(unanswered) => self.on_silence(&unanswered),
            }
        }
    }

    async fn exchange(&mut self, report: Bytes) -> Result<Bytes, Unanswered> {
        // One that fails is not used again.
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await?;
        let answer = sender.send_request(self.request(report)?).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MESSAGE_BYTES_MAX);
        let body = body
            .collect()
            .await
            .map_err(|_| Unanswered::Lost)?
            .to_bytes();
        self.sender = Some(sender);
        if status.is_success() {
            return Ok(body);
        }
        let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        Err(Unanswered::Declined(format!("{status}: {text}")))
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, Unanswered> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // How it ends shows when the next report is sent.
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn request(&self, report: Bytes) -> Result<Request<Full<Bytes>>, Unanswered> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/api/fleet/report")
            .header(HOST, self.address.to_string())
            .header(CONTENT_TYPE, "application/json");
        let token = self
            .operator
            .fleet
            .as_ref()
            .and_then(|node| node.token.as_ref());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        request
            .body(Full::new(report))
            .map_err(|_| Unanswered::Lost)
    }

    async fn on_answer(&mut self, answer: &[u8]) {
        let Some(node) = &self.operator.fleet else {
            return;
        };
        let now = self.operator.state.clock().now();
        let read = PeerReport::decode(answer);
        let taken = {
            let mut member = node.member.lock();
            member.on_exchange(now);
            let own = member.config();
            let (name, boot) = (own.proxy.clone(), own.boot);
            match read {
                Ok(report) if report.proxy == name && report.boot == boot => None,
                Ok(report) => {
                    self.proxy = Some(report.proxy.clone());
                    Some(member.on_report(now, report))
                }
                Err(error) => {
                    member.on_bad_report();
                    Some(Err(error))
                }
            }
        };
        match taken {
            // An address of its own: nothing to say for a while.
            None => sleep(LOOKUP).await,
            Some(Ok(()) | Err(tidegate_fleet::BadReport::Old(_))) => {}
            Some(Err(error)) => self.complain(&error.to_string()),
        }
    }

    fn on_silence(&mut self, unanswered: &Unanswered) {
        match unanswered {
            Unanswered::Lost => {}
            Unanswered::Refused => {
                let node = self.operator.fleet.as_ref();
                if let (Some(node), Some(proxy)) = (node, &self.proxy) {
                    let now = self.operator.state.clock().now();
                    node.member.lock().on_gone(now, proxy);
                }
            }
            Unanswered::Declined(why) => self.complain(why),
        }
    }

    fn complain(&mut self, why: &str) {
        if self.complained.is_some_and(|at| at.elapsed() < COMPLAINTS) {
            return;
        }
        self.complained = Some(Instant::now());
        let line = format!(
            "the proxy at {} and this one do not share: {why}; both need one `fleet.name`, names of \
             their own, and the token of the other's admin listener",
            self.address
        );
        self.operator.log(
            Level::Warn,
            &line,
            &json!({ "peer": self.address.to_string() }),
        );
    }
}
