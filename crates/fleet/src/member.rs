//! One proxy of a fleet: which peers there are, and what this one may use.
//!
//! **Peers.** A proxy is a peer from its first report on, and gets a share at once. It is lost when
//! it says that it leaves, when its connections are refused, or when it is silent for `hold` while
//! the exchange works. Where no peer sends anything, it may be this proxy that is cut off: then the
//! last known peers stay for `hold_cut_off`, and the windows stay as they were.
//!
//! **The leader** of an application is the live proxy with the smallest name. It searches for the
//! windows of all and divides ([`divide`]); the others take over both. Until the first
//! report of a new leader, the last one of the old leader stays in force.
//!
//! A report that is not newer than the last one of its proxy is refused, also when the proxy was
//! lost meanwhile: a store hands the last report of a dead proxy out again.
//!
//! What breaks it: clocks are not compared, only ages by this proxy's own; a proxy that stands
//! still for longer than `hold` is lost, and comes back as a new one.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_control::Timestamp;
use tidegate_sentry::{
    Elsewhere, FleetReport, FleetShare, LeadWindow, Portion, ReplicaId, ReplicaShare, ReplicaTotals,
};

use crate::division::{Demand, divide};
use crate::message::{
    AppReport, BadReport, ClassReport, Lead, PeerReport, ProxyShare, ReplicaReport, VERSION,
    has_room,
};
use crate::peer::{Application, Peer};
use crate::quotas::{KeyRates, key_shares};

/// A proxy whose connections are refused is lost after so long: a restart takes less.
const PEER_REFUSED_DURATION_MAX: Duration = Duration::from_millis(500);

/// A newcomer counts as having the mean traffic for so long.
const PEER_NEW_DURATION: Duration = Duration::from_secs(2);

/// Guarantees in force stay while all that would change is less than this part of them.
const GUARANTEE_CHANGE_MIN: f64 = 0.03;

/// Shares of windows stay while all that would change is less than this part of them and less than
/// `SHARE_CHANGE_Z` standard deviations of the arrivals that they rest on. Chosen: a slot that
/// moves is with neither proxy until both know, so that noise must not move any. With a thirtieth
/// eight proxies lost capacity (experiments/fleet/overload.toml).
const SHARE_CHANGE_MIN: f64 = 0.1;
const SHARE_CHANGE_Z: f64 = 3.0;

/// Slots of all replicas per proxy, at least. Chosen: with one each, two of eight equal proxies
/// have none by rounding (experiments/fleet/overload.toml).
const SLOTS_PER_PROXY_MIN: f64 = 2.0;

/// Until the others do what the leader found, and it has their results: its report, their
/// step, their tick, a report about the time after it, and that report's way.
const LAG_INTERVALS: u32 = 5;

/// Proxies that were lost and of which the last report is still known.
const DEPARTED_MAX: usize = 1000;

/// Smaller shares count as this one, when changes are compared with them.
const SHARE_MIN: f64 = 0.03;

/// What a member is configured with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberConfig {
    /// Name of the fleet.
    pub fleet: String,
    /// Name of this proxy.
    pub proxy: String,
    /// Tells two starts of this proxy apart.
    pub boot: u64,
    /// Time between two reports.
    pub interval: Duration,
    /// A peer that is silent for so long is lost.
    pub hold: Duration,
    /// The same while no peer reports; without it the last known peers stay.
    pub hold_cut_off: Option<Duration>,
    /// What carries the reports, for people.
    pub carrier: String,
}

/// What one engine says.
#[derive(Debug, Clone)]
pub struct AppSample {
    /// Name of the application.
    pub name: String,
    /// Names of its classes.
    pub classes: Vec<String>,
    /// Names of its replicas, by which other proxies know them too.
    pub replicas: Vec<(ReplicaId, String)>,
    /// What the engine says.
    pub report: FleetReport,
    /// Keys that use much of a quota, by the quota's name.
    pub quotas: BTreeMap<String, KeyRates>,
    /// Sessions stick to replicas: a slot in each.
    pub sticky: bool,
}

/// Why a peer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// It said so.
    Left,
    /// Its connections are refused.
    Gone,
    /// It did not report in time.
    Silent,
}

impl Lost {
    /// The word in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Gone => "gone",
            Self::Silent => "silent",
        }
    }
}

/// Something that people want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetEvent {
    /// A peer is there.
    PeerJoined {
        /// Which.
        proxy: String,
    },
    /// A peer is there no longer.
    PeerLost {
        /// Which.
        proxy: String,
        /// Why.
        why: Lost,
    },
    /// No peer reports any longer, or one does again.
    CutOff {
        /// Whether no peer reports.
        on: bool,
    },
}

/// A peer, for people.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PeerStatus {
    /// Its name.
    pub proxy: String,
    /// Seconds since its last report.
    pub age_seconds: f64,
}

/// The fleet as one proxy sees it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FleetStatus {
    /// Name of the fleet.
    pub fleet: String,
    /// Name of this proxy.
    pub proxy: String,
    /// What carries the reports.
    pub carrier: String,
    /// Why it does not, where it does not.
    pub trouble: Option<String>,
    /// No peer reports: the last known shares stay in force.
    pub cut_off: bool,
    /// The others.
    pub peers: Vec<PeerStatus>,
    /// By application.
    pub applications: BTreeMap<String, FleetAppStatus>,
    /// Reports of others that were refused.
    pub bad_reports: u64,
}

/// What this proxy may use of an application.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FleetAppStatus {
    /// The proxy that searches for windows and divides.
    pub leader: String,
    /// This proxy's share of windows, from 0 to 1.
    pub share: f64,
    /// Its share of guarantees, by class.
    pub guarantees: BTreeMap<String, f64>,
}

/// What is in force for an application.
#[derive(Debug, Default)]
struct Force {
    leader: String,
    shares: BTreeMap<String, ProxyShare>,
    found: BTreeMap<String, LeadWindow>,
}

/// One proxy of a fleet.
#[derive(Debug)]
pub struct Member {
    config: MemberConfig,
    sequence: u64,
    leaving: bool,
    own: Option<Peer>,
    peers: BTreeMap<String, Peer>,
    /// Start and number of the last report of proxies that were lost.
    departed: BTreeMap<String, (u64, u64)>,
    /// Start and number of the last report of another proxy of this name.
    namesake: Option<(u64, u64)>,
    trouble: Option<String>,
    /// The peers of this moment report, or could: the exchange works.
    works: Timestamp,
    cut_off: bool,
    /// When peers began to report again. All of them need a moment for that.
    heard_again: Timestamp,
    force: BTreeMap<String, Force>,
    events: Vec<FleetEvent>,
    bad_reports: u64,
}

impl Member {
    /// A proxy that knows of no other yet.
    #[must_use]
    pub fn new(config: MemberConfig, now: Timestamp) -> Self {
        Self {
            config,
            sequence: 0,
            leaving: false,
            own: None,
            peers: BTreeMap::new(),
            departed: BTreeMap::new(),
            namesake: None,
            trouble: None,
            works: now,
            cut_off: false,
            heard_again: now,
            force: BTreeMap::new(),
            events: Vec::new(),
            bad_reports: 0,
        }
    }

    /// What it is configured with.
    #[must_use]
    pub fn config(&self) -> &MemberConfig {
        &self.config
    }

    /// A report of another proxy arrived.
    ///
    /// # Errors
    /// Why it is not taken over; it is counted.
    pub fn on_report(&mut self, now: Timestamp, report: PeerReport) -> Result<(), BadReport> {
        let taken = self.take_report(now, report);
        if taken.is_err() {
            self.bad_reports += 1;
        }
        taken
    }

    /// A report could not be read.
    pub fn on_bad_report(&mut self) {
        self.bad_reports += 1;
    }

    fn take_report(&mut self, now: Timestamp, report: PeerReport) -> Result<(), BadReport> {
        if report.fleet != self.config.fleet {
            return Err(BadReport::Fleet(report.fleet));
        }
        if report.proxy == self.config.proxy {
            return self.take_own_name(report);
        }
        let name = report.proxy.clone();
        let number = (report.boot, report.sequence);
        let known = self.peers.get(&name).map(|peer| (peer.boot, peer.sequence));
        if known.or_else(|| self.departed.get(&name).copied()) >= Some(number) {
            return Err(BadReport::Old(name));
        }
        if report.leaving {
            self.lose(&name, Lost::Left);
            self.depart(name, number);
            return Ok(());
        }
        self.works = self.works.max(now);
        let room = has_room(self.peers.len());
        match self.peers.get_mut(&name) {
            Some(peer) if peer.boot == report.boot => peer.on_report(now, report),
            Some(peer) => *peer = Peer::new(now, report),
            None if !room => return Err(BadReport::TooMany(name)),
            None => {
                self.departed.remove(&name);
                self.peers.insert(name.clone(), Peer::new(now, report));
                self.events.push(FleetEvent::PeerJoined { proxy: name });
            }
        }
        Ok(())
    }

    /// A report under this proxy's own name. One that is its own comes by way of an address that is
    /// its own. A store may still hold one of this proxy's last start; a second one is of a proxy
    /// that lives.
    fn take_own_name(&mut self, report: PeerReport) -> Result<(), BadReport> {
        let number = (report.boot, report.sequence);
        if report.boot == self.config.boot {
            return Ok(());
        }
        match self.namesake.replace(number) {
            Some(before) if before != number => Err(BadReport::SameName(report.proxy)),
            _ => Ok(()),
        }
    }

    /// The exchange could be used, whether a peer reported or not.
    pub fn on_exchange(&mut self, now: Timestamp) {
        self.works = self.works.max(now);
        self.trouble = None;
    }

    /// The exchange does not work, and why, for people.
    pub fn on_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// A peer's connections are refused: its process is gone, or is being started again.
    pub fn on_gone(&mut self, now: Timestamp, proxy: &str) {
        if let Some(peer) = self.peers.get_mut(proxy) {
            peer.gone.get_or_insert(now);
        }
    }

    /// From now on its reports say that it leaves.
    pub fn leave(&mut self) {
        // What it says now is newer than its last report.
        self.sequence += u64::from(!self.leaving);
        self.leaving = true;
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<FleetEvent> {
        std::mem::take(&mut self.events)
    }

    fn lose(&mut self, proxy: &str, why: Lost) {
        if let Some(peer) = self.peers.remove(proxy) {
            self.depart(proxy.to_owned(), (peer.boot, peer.sequence));
            self.events.push(FleetEvent::PeerLost {
                proxy: proxy.to_owned(),
                why,
            });
        }
    }

    /// Keeps the number of the last report of a proxy that is lost.
    fn depart(&mut self, proxy: String, number: (u64, u64)) {
        if self.departed.len() >= DEPARTED_MAX {
            self.departed.pop_first();
        }
        self.departed.insert(proxy, number);
    }

    fn lose_the_silent(&mut self, now: Timestamp) {
        let config = &self.config;
        let cut_off = !self.peers.is_empty() && now >= self.works + config.hold;
        if cut_off != self.cut_off {
            self.cut_off = cut_off;
            self.heard_again = now;
            self.events.push(FleetEvent::CutOff { on: cut_off });
        }
        let hold = if cut_off {
            config.hold_cut_off
        } else {
            Some(config.hold)
        };
        let verdict = |peer: &Peer| match peer.gone {
            Some(since) if now >= since + PEER_REFUSED_DURATION_MAX => Some(Lost::Gone),
            _ => {
                // As long as that lasts, `hold_cut_off` counts from the last report.
                let heard = if cut_off {
                    peer.heard
                } else {
                    peer.heard.max(self.heard_again)
                };
                let silent = hold.is_some_and(|hold| now >= heard + hold);
                silent.then_some(Lost::Silent)
            }
        };
        let lost: Vec<(String, Lost)> = (self.peers.iter())
            .filter_map(|(name, peer)| Some((name.clone(), verdict(peer)?)))
            .collect();
        for (name, why) in lost {
            self.lose(&name, why);
        }
        self.cut_off &= !self.peers.is_empty();
    }

    /// Takes what the engines of this proxy say; gives what each may use from now on.
    pub fn on_sample(
        &mut self,
        now: Timestamp,
        samples: &[AppSample],
    ) -> BTreeMap<String, FleetShare> {
        self.lose_the_silent(now);
        self.sequence += 1;
        let report = self.own_report(now, samples);
        match &mut self.own {
            Some(own) => own.on_report(now, report),
            None => self.own = Some(Peer::new(now, report)),
        }
        self.force
            .retain(|name, _| samples.iter().any(|it| it.name == *name));
        for sample in samples {
            self.put_in_force(now, sample);
        }
        let shares = samples.iter().map(|it| (it.name.clone(), self.share(it)));
        shares.collect()
    }

    fn own_report(&self, now: Timestamp, samples: &[AppSample]) -> PeerReport {
        PeerReport {
            version: VERSION,
            fleet: self.config.fleet.clone(),
            proxy: self.config.proxy.clone(),
            boot: self.config.boot,
            sequence: self.sequence,
            at_ns: now.as_nanos(),
            leaving: self.leaving,
            applications: samples
                .iter()
                .map(|it| (it.name.clone(), app_report(it)))
                .collect(),
        }
    }

    /// What to send to the others.
    #[must_use]
    pub fn report(&self) -> PeerReport {
        let own = self.own.as_ref();
        let applications = own.map(|own| own.applications.iter()).into_iter().flatten();
        let with_lead = |(name, it): (&String, &Application)| {
            let leads = |force: &&Force| force.leader == self.config.proxy;
            let lead = self.force.get(name).filter(leads).map(|force| Lead {
                shares: force.shares.clone(),
            });
            let last = AppReport {
                lead,
                ..it.last.clone()
            };
            (name.clone(), last)
        };
        PeerReport {
            version: VERSION,
            fleet: self.config.fleet.clone(),
            proxy: self.config.proxy.clone(),
            boot: self.config.boot,
            sequence: self.sequence,
            at_ns: own.map_or(0, |own| own.heard.as_nanos()),
            leaving: self.leaving,
            applications: applications.map(with_lead).collect(),
        }
    }

    /// Peers that have the application.
    fn with_application<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Peer, &'a Application)> + Clone {
        let peers = self.peers.iter();
        peers.filter_map(move |(proxy, peer)| Some((proxy, peer, peer.applications.get(name)?)))
    }

    /// Brings leader, shares and windows up to date.
    fn put_in_force(&mut self, now: Timestamp, sample: &AppSample) {
        let mut force = self.force.remove(&sample.name).unwrap_or_default();
        if !self.cut_off || force.leader.is_empty() {
            force.leader = self.leader(now, &sample.name);
        }
        if self.cut_off && !force.shares.is_empty() {
            self.hold_windows(&mut force, sample);
        } else if force.leader == self.config.proxy {
            let shares = self.divide(now, sample);
            self.redivide(&mut force.shares, shares, &sample.name);
            force.found.clear();
        } else {
            self.follow(now, &mut force, sample);
        }
        self.force.insert(sample.name.clone(), force);
    }

    /// The live proxy with the smallest name.
    fn leader(&self, now: Timestamp, application: &str) -> String {
        let alive = |peer: &Peer| now < peer.heard + self.config.hold && peer.gone.is_none();
        let mut others = self.with_application(application);
        let first = others
            .find(|(_, peer, _)| alive(peer))
            .map(|(name, ..)| name);
        let first = first.filter(|name| **name < self.config.proxy);
        first.unwrap_or(&self.config.proxy).clone()
    }

    /// Cut off: windows stay as they are, whichever proxy searched for them.
    fn hold_windows(&self, force: &mut Force, sample: &AppSample) {
        for (name, totals) in named(sample) {
            if let Some(found) = totals.found {
                force.found.entry(name.clone()).or_insert(found);
            }
        }
    }

    /// Takes over what the leader says.
    fn follow(&self, now: Timestamp, force: &mut Force, sample: &AppSample) {
        let leader = self.peers.get(&force.leader);
        let Some(said) = leader.and_then(|peer| peer.applications.get(&sample.name)) else {
            return;
        };
        let found = |(name, replica): (&String, &ReplicaReport)| {
            Some((name.clone(), LeadWindow::from(replica.found?)))
        };
        force.found = said.last.replicas.iter().filter_map(found).collect();
        match &said.last.lead {
            Some(lead) => force.shares = with_newcomer(&lead.shares, &self.config.proxy),
            // It does not know yet that it leads.
            None => force.shares = self.divide(now, sample),
        }
    }

    /// Puts new shares in force as far as they differ by more than chance.
    fn redivide(
        &self,
        shares: &mut BTreeMap<String, ProxyShare>,
        mut new: BTreeMap<String, ProxyShare>,
        application: &str,
    ) {
        let arrivals = |name: &String| -> f64 {
            let peer = self.peers.get(name).or(self.own.as_ref());
            let its = peer.and_then(|peer| peer.applications.get(application));
            its.map_or(0.0, |it| it.demand().values().sum())
        };
        let moved = |(name, new): (&String, &ProxyShare)| {
            let chance = SHARE_CHANGE_Z / arrivals(name).max(1.0).sqrt();
            let most = SHARE_CHANGE_MIN.max(chance.min(0.5));
            let old = shares.get(name).map(|old| old.share);
            old.is_none_or(|old| (new.share - old).abs() > most * old.max(SHARE_MIN))
        };
        if shares.len() == new.len() && !new.iter().any(moved) {
            for (name, new) in &mut new {
                if let Some(old) = shares.get(name) {
                    new.share = old.share;
                }
            }
        }
        if differs(shares, &new) {
            *shares = new;
        }
    }

    fn divide(&self, now: Timestamp, sample: &AppSample) -> BTreeMap<String, ProxyShare> {
        let mut demands: BTreeMap<String, Demand> = BTreeMap::new();
        let mut newcomers = Vec::new();
        for (name, peer, application) in self.with_application(&sample.name) {
            if now < peer.since + PEER_NEW_DURATION {
                newcomers.push(name.clone());
            }
            demands.insert(name.clone(), application.demand());
        }
        let own = self.own.as_ref();
        let own = own.and_then(|own| own.applications.get(&sample.name));
        let demand = own.map(Application::demand).unwrap_or_default();
        demands.insert(self.config.proxy.clone(), demand);
        welcome(&mut demands, &newcomers);
        let capacities = sample.report.replicas.iter().map(|it| it.capacity);
        divide(&demands, &sample.classes, capacities.sum())
    }

    /// What this proxy may use of an application.
    fn share(&self, sample: &AppSample) -> FleetShare {
        let mut others = self.with_application(&sample.name).peekable();
        let force = self.force.get(&sample.name);
        let (Some(force), true) = (force, others.peek().is_some()) else {
            return FleetShare {
                engines: 1,
                share: 1.0,
                ..FleetShare::default()
            };
        };
        let own = force
            .shares
            .get(&self.config.proxy)
            .cloned()
            .unwrap_or_default();
        let guarantee = |class: &String| own.guarantees.get(class).copied().unwrap_or(own.share);
        let others: Vec<&Application> = others.map(|(.., it)| it).collect();
        FleetShare {
            engines: u32::try_from(others.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1),
            guarantees: sample.classes.iter().map(guarantee).collect(),
            share: own.share,
            replicas: self.replica_shares(sample, force, &others),
            queued_elsewhere: (others.iter()).fold(0, |sum, it| sum.saturating_add(it.last.queued)),
            overloaded: self.most_are_overloaded(sample, &others),
            window_min: window_min(others.len() + 1, sample.replicas.len()),
            lag: LAG_INTERVALS * self.config.interval,
        }
    }

    fn most_are_overloaded(&self, sample: &AppSample, others: &[&Application]) -> bool {
        let arrivals = |it: &&Application| -> f64 { it.demand().values().sum() };
        let own = self.own.as_ref();
        let own = own.and_then(|own| own.applications.get(&sample.name));
        let own = own.as_ref().map_or(0.0, arrivals);
        let all: f64 = own + others.iter().map(arrivals).sum::<f64>();
        let overloaded = others.iter().filter(|it| it.last.overloaded);
        let mut over: f64 = overloaded.map(arrivals).sum();
        if sample.report.overloaded {
            over += own;
        }
        over > 0.5 * all
    }

    fn replica_shares(
        &self,
        sample: &AppSample,
        force: &Force,
        others: &[&Application],
    ) -> Vec<ReplicaShare> {
        let (before, until) = place_in_line(&force.shares, &self.config.proxy);
        let share = |(name, totals): (&String, &ReplicaTotals)| ReplicaShare {
            replica: totals.replica,
            portion: Portion {
                before,
                until,
                offset: offset(name),
                least: u32::from(sample.sticky),
            },
            elsewhere: others
                .iter()
                .fold(Elsewhere::default(), |sum, it| plus(sum, it.replica(name))),
            lead: force.found.get(name).copied(),
        };
        let mut shares: Vec<ReplicaShare> = named(sample).map(share).collect();
        shares.sort_by_key(|share| share.replica);
        self.leave_one_slot(&mut shares, sample, force);
        shares
    }

    /// A proxy that would get no slot in any replica gets one in one of them.
    fn leave_one_slot(&self, shares: &mut [ReplicaShare], sample: &AppSample, force: &Force) {
        let window = |share: &ReplicaShare| {
            let own = sample.report.replicas.iter();
            let mut own = own.filter(|it| it.replica == share.replica);
            let found = share.lead.or_else(|| own.next()?.found);
            found.map_or(u32::MAX, |found| found.window)
        };
        if shares
            .iter()
            .any(|share| share.portion.of(window(share)) > 0)
        {
            return;
        }
        let names = force.shares.keys();
        let rank = names.take_while(|name| **name < self.config.proxy).count();
        let count = shares.len().max(1);
        if let Some(share) = shares.get_mut(rank % count) {
            share.portion.least = 1;
        }
    }

    /// This proxy's shares of the quotas of keys that use several proxies, by quota and key.
    #[must_use]
    pub fn quota_shares(&self, application: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
        let own = self.own.as_ref();
        let Some(own) = own.and_then(|own| own.applications.get(application)) else {
            return BTreeMap::new();
        };
        let others = || self.with_application(application).map(|(.., it)| it);
        let proxies = others().count() + 1;
        let mut names: Vec<&String> = own.last.quotas.keys().collect();
        names.extend(others().flat_map(|it| it.last.quotas.keys()));
        names.sort_unstable();
        names.dedup();
        let nothing = KeyRates::new();
        let shares = |name: &String| {
            let theirs: Vec<&KeyRates> =
                others().filter_map(|it| it.last.quotas.get(name)).collect();
            let own = own.last.quotas.get(name).unwrap_or(&nothing);
            (name.clone(), key_shares(own, &theirs, proxies))
        };
        names.into_iter().map(shares).collect()
    }

    /// Proxies of the fleet as this one sees it, itself included.
    #[must_use]
    pub fn proxies(&self) -> usize {
        self.peers.len() + 1
    }

    /// The fleet as this proxy sees it.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> FleetStatus {
        let peer = |(name, peer): (&String, &Peer)| PeerStatus {
            proxy: name.clone(),
            age_seconds: now.since(peer.heard).as_secs_f64(),
        };
        let application = |(name, force): (&String, &Force)| {
            let shared = self.with_application(name).next().is_some();
            let own = force.shares.get(&self.config.proxy).cloned();
            let own = own.filter(|_| shared);
            let status = FleetAppStatus {
                leader: force.leader.clone(),
                share: own.as_ref().map_or(1.0, |own| own.share),
                guarantees: own.map(|own| own.guarantees).unwrap_or_default(),
            };
            (name.clone(), status)
        };
        FleetStatus {
            fleet: self.config.fleet.clone(),
            proxy: self.config.proxy.clone(),
            carrier: self.config.carrier.clone(),
            trouble: self.trouble.clone(),
            cut_off: self.cut_off,
            peers: self.peers.iter().map(peer).collect(),
            applications: self.force.iter().map(application).collect(),
            bad_reports: self.bad_reports,
        }
    }
}

/// Slots that each replica has at least, so that rounding leaves few proxies without any. The slot
/// that such a proxy gets all the same is unknown to the search: with windows below this it takes
/// them for enough.
fn window_min(proxies: usize, replicas: usize) -> u32 {
    let least = SLOTS_PER_PROXY_MIN * proxies as f64 / replicas.max(1) as f64;
    // `as` saturates.
    least.ceil() as u32
}

fn named(sample: &AppSample) -> impl Iterator<Item = (&String, &ReplicaTotals)> {
    let names: BTreeMap<ReplicaId, &String> = sample
        .replicas
        .iter()
        .map(|(id, name)| (*id, name))
        .collect();
    let totals = sample.report.replicas.iter();
    totals.filter_map(move |it| Some((*names.get(&it.replica)?, it)))
}

fn app_report(sample: &AppSample) -> AppReport {
    let report = &sample.report;
    let class = |(name, totals): (&String, &tidegate_sentry::ClassTotals)| ClassReport {
        name: name.clone(),
        arrived: totals.arrived,
        admitted: totals.admitted,
        guaranteed: totals.guaranteed,
    };
    let replica = |(name, it): (&String, &ReplicaTotals)| {
        let replica = ReplicaReport {
            in_flight: it.in_flight,
            window: it.window,
            done: it.done,
            inside_seconds: it.inside_seconds,
            full_seconds: it.full_seconds,
            full_done: it.full_done,
            found: it.found.map(Into::into),
            capacity: it.capacity,
        };
        (name.clone(), replica)
    };
    AppReport {
        classes: sample
            .classes
            .iter()
            .zip(&report.classes)
            .map(class)
            .collect(),
        queued: report.queued,
        overloaded: report.overloaded,
        replicas: named(sample).map(replica).collect(),
        lead: None,
        quotas: sample.quotas.clone(),
    }
}

fn plus(a: Elsewhere, b: Elsewhere) -> Elsewhere {
    Elsewhere {
        in_flight: a.in_flight + b.in_flight,
        done_per_second: a.done_per_second + b.done_per_second,
        windows: a.windows + b.windows,
        full_windows: a.full_windows + b.full_windows,
        full_done_per_second: a.full_done_per_second + b.full_done_per_second,
    }
}

/// A proxy whose traffic is not known yet counts as having the mean of the others'.
fn welcome(demands: &mut BTreeMap<String, Demand>, newcomers: &[String]) {
    let known = || demands.iter().filter(|(name, _)| !newcomers.contains(name));
    let count = known().count();
    if count == 0 {
        return;
    }
    let mut mean = Demand::new();
    for (_, demand) in known() {
        for (class, rate) in demand {
            *mean.entry(class.clone()).or_default() += rate / count as f64;
        }
    }
    let total = |demand: &Demand| demand.values().sum::<f64>();
    for name in newcomers {
        if let Some(demand) = demands.get_mut(name).filter(|it| total(it) < total(&mean)) {
            *demand = mean.clone();
        }
    }
}

/// The leader's shares, in which it may not know of this proxy yet: it takes an equal part.
fn with_newcomer(
    shares: &BTreeMap<String, ProxyShare>,
    proxy: &str,
) -> BTreeMap<String, ProxyShare> {
    let mut shares = shares.clone();
    if shares.contains_key(proxy) {
        return shares;
    }
    let part = 1.0 / (shares.len() + 1) as f64;
    let mut classes = BTreeMap::new();
    for share in shares.values_mut() {
        share.share *= 1.0 - part;
        for (class, guarantee) in &mut share.guarantees {
            *guarantee *= 1.0 - part;
            classes.insert(class.clone(), part);
        }
    }
    let own = ProxyShare {
        share: part,
        guarantees: classes,
    };
    shares.insert(proxy.to_owned(), own);
    shares
}

/// Whether new shares are worth being put in force.
fn differs(old: &BTreeMap<String, ProxyShare>, new: &BTreeMap<String, ProxyShare>) -> bool {
    let least = GUARANTEE_CHANGE_MIN;
    let off = |old: f64, new: f64| (new - old).abs() > least * old.max(SHARE_MIN);
    let same = |(name, new): (&String, &ProxyShare)| {
        old.get(name).is_some_and(|old| {
            let guarantee = |(class, &new): (&String, &f64)| {
                let old = old.guarantees.get(class);
                old.is_some_and(|&old| !off(old, new))
            };
            old.share == new.share && new.guarantees.iter().all(guarantee)
        })
    };
    old.len() != new.len() || !new.iter().all(same)
}

/// The interval of a proxy in the line of all.
fn place_in_line(shares: &BTreeMap<String, ProxyShare>, proxy: &str) -> (f64, f64) {
    let before = shares.iter().take_while(|(name, _)| name.as_str() < proxy);
    let before: f64 = before.map(|(_, share)| share.share).sum();
    let own = shares.get(proxy).map_or(0.0, |share| share.share);
    (before, before + own)
}

/// Where rounding begins in a replica: the fraction of its name's hash (FNV-1a), the same at every
/// proxy.
fn offset(name: &str) -> f64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The high bits of FNV change little with the last byte: mix once more.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
