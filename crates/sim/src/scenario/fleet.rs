//! Several proxies in front of the replicas, each an engine of its own, which exchange reports.
//!
//! ```toml
//! [fleet]
//! proxies = 2
//! traffic = [9, 1]
//! delay = "5ms"
//! loss = 0.05
//! down = [{ proxy = 1, from = "40s", until = "60s" }]
//! ```
//!
//! A balancer in front sends each request to one of the live proxies, by weight. What waits in a
//! proxy that dies is sent to another by its client at once; what it has in replicas is finished
//! there and counts as served, so that `lost` is for the live run to show. A proxy that comes back
//! is a new engine that knows nothing.
//!
//! What breaks it: the balancer notices a death at once, and refused connections are noticed within
//! an interval.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Share};
use tidegate_control::Timestamp;
use tidegate_fleet::{AppSample, Member, MemberConfig, PeerReport};
use tidegate_sentry::{Arrival, Ending, Observer, ReplicaId, Report, SentryConfig, SentryError};

use super::guarded::SentryProtector;
use super::protector::{Decision, Orders, PoolChange, Protector, RequestId, Wakes};
use crate::rng::{SimRng, Streams};

/// Several proxies in front of the replicas, as `[fleet]` of a scenario has it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetSpec {
    /// How many proxies there are.
    #[schemars(example = 2)]
    pub proxies: NonZeroU32,
    /// Parts of the traffic that go to them, such as `[9, 1]`; equal where there are none.
    #[serde(default)]
    pub traffic: Vec<f64>,
    /// Whether they exchange reports.
    #[serde(default = "yes")]
    pub exchange: bool,
    /// Time between two reports of a proxy.
    #[serde(default = "interval")]
    pub interval: Dur,
    /// How long a report travels.
    #[serde(default)]
    pub delay: Dur,
    /// Part of the reports that do not arrive.
    #[serde(default)]
    pub loss: Share,
    /// A proxy that is silent for so long is lost.
    #[serde(default = "hold")]
    pub hold: Dur,
    /// When proxies are dead.
    #[serde(default)]
    pub down: Vec<ProxyOutage>,
    /// When no report arrives anywhere.
    #[serde(default)]
    pub cut_off: Vec<super::Outage>,
}

/// A time in which a proxy is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyOutage {
    /// Which, counted from 0.
    #[schemars(example = 1)]
    pub proxy: u32,
    /// When it dies; 0 for one that is not there at first.
    #[schemars(example = &"40s")]
    pub from: Dur,
    /// When it is started anew; never when not given.
    #[schemars(example = &"60s")]
    #[serde(default)]
    pub until: Option<Dur>,
}

fn yes() -> bool {
    true
}

fn interval() -> Dur {
    Duration::from_millis(100).into()
}

fn hold() -> Dur {
    Duration::from_secs(2).into()
}

/// As in the live proxy's configuration.
const HOLD_CUT_OFF: Duration = Duration::from_secs(60);

const APPLICATION: &str = "main";

impl FleetSpec {
    /// What keeps it from running.
    pub(super) fn check(&self) -> Result<(), String> {
        let proxies = self.proxies.get();
        if self.interval.is_zero() || self.hold <= self.interval {
            return Err("`fleet.interval` is longer than 0 and shorter than `fleet.hold`".into());
        }
        let weights = self.traffic.len();
        if weights != 0 && weights != proxies as usize {
            return Err(format!(
                "`fleet.traffic` has {weights} parts for {proxies} proxies"
            ));
        }
        let part = |part: &f64| *part >= 0.0 && part.is_finite();
        if weights != 0
            && !(self.traffic.iter().all(part) && self.traffic.iter().any(|&it| it > 0.0))
        {
            return Err("the parts of `fleet.traffic` are numbers from 0 on, not all 0".into());
        }
        if let Some(outage) = self.down.iter().find(|outage| outage.proxy >= proxies) {
            let proxy = outage.proxy;
            return Err(format!(
                "`fleet.down` names proxy {proxy}; the last is {}",
                proxies - 1
            ));
        }
        let mut named: Vec<u32> = self.down.iter().map(|outage| outage.proxy).collect();
        named.sort_unstable();
        named.dedup();
        if named.len() < proxies as usize {
            Ok(())
        } else {
            Err("`fleet.down` leaves no proxy that lives throughout".into())
        }
    }

    fn changes(&self) -> BTreeMap<(Timestamp, u32), bool> {
        let mut changes = BTreeMap::new();
        for outage in &self.down {
            changes.insert((Timestamp::ZERO + outage.from.0, outage.proxy), false);
            if let Some(until) = outage.until {
                changes.insert((Timestamp::ZERO + until.0, outage.proxy), true);
            }
        }
        changes
    }
}

/// One start of one proxy.
#[derive(Debug)]
struct Proxy {
    number: u32,
    engine: SentryProtector,
    member: Member,
    alive: bool,
    next_report: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct PoolMember {
    replica: ReplicaId,
    weight: NonZeroU32,
    up: bool,
}

/// Several engines, and what stands between them.
#[derive(Debug)]
pub struct FleetProtector {
    spec: FleetSpec,
    config: SentryConfig,
    /// The replicas that a proxy starts with, and whether they get requests.
    pool: Vec<PoolMember>,
    seed: u64,
    rng: SimRng,
    /// Dead ones stay until the end: what they have in replicas is theirs.
    proxies: Vec<Proxy>,
    /// By the request's slot: its proxy and how it arrived.
    requests: Vec<Option<(usize, Arrival)>>,
    down: Vec<bool>,
    changes: BTreeMap<(Timestamp, u32), bool>,
    messages: BTreeMap<(Timestamp, u64), (u32, PeerReport)>,
    sent: u64,
    /// What a replica said with the answer of a request that is about to end.
    answers: Vec<(ReplicaId, Report)>,
}

impl FleetProtector {
    /// Proxies in front of replicas of these weights.
    ///
    /// # Errors
    /// What the engine refuses about the configuration.
    pub(super) fn new(
        spec: &FleetSpec,
        config: &SentryConfig,
        weights: &[NonZeroU32],
        streams: &Streams,
    ) -> Result<Self, SentryError> {
        let mut fleet = Self {
            spec: spec.clone(),
            config: config.clone(),
            pool: (0..)
                .map(ReplicaId)
                .zip(weights)
                .map(|(replica, &weight)| PoolMember {
                    replica,
                    weight,
                    up: true,
                })
                .collect(),
            seed: streams.seed_of("sentry"),
            rng: streams.stream("fleet"),
            proxies: Vec::new(),
            requests: Vec::new(),
            down: vec![false; spec.proxies.get() as usize],
            changes: spec.changes(),
            messages: BTreeMap::new(),
            sent: 0,
            answers: Vec::new(),
        };
        for number in 0..spec.proxies.get() {
            fleet.start(Timestamp::ZERO, number)?;
        }
        fleet.change_proxies(Timestamp::ZERO, &mut Wakes::new());
        Ok(fleet)
    }

    fn start(&mut self, now: Timestamp, number: u32) -> Result<(), SentryError> {
        let boot = self.proxies.len() as u64;
        let pool: Vec<_> = self.pool.iter().map(|it| (it.replica, it.weight)).collect();
        let mut engine = SentryProtector::started(&self.config, &pool, now, self.seed + boot)?;
        for member in self.pool.iter().filter(|member| !member.up) {
            // It has no request yet that could be woken.
            engine.set_health(now, member.replica, false, &mut Wakes::new());
        }
        let member = MemberConfig {
            fleet: "simulated".to_owned(),
            proxy: format!("proxy-{number:03}"),
            boot,
            interval: self.spec.interval.0,
            hold: self.spec.hold.0,
            hold_cut_off: Some(HOLD_CUT_OFF),
            carrier: "simulated".to_owned(),
        };
        // They were not started in step.
        let phase = self.spec.interval.0.mul_f64(self.rng.random::<f64>());
        self.proxies.push(Proxy {
            number,
            engine,
            member: Member::new(member, now),
            alive: true,
            next_report: now + phase + Duration::from_nanos(1),
        });
        Ok(())
    }

    /// A live proxy, by the weights of the traffic.
    fn choose(&mut self) -> usize {
        let weight = |proxy: &Proxy| {
            let weight = self.spec.traffic.get(proxy.number as usize);
            if proxy.alive {
                weight.copied().unwrap_or(1.0)
            } else {
                0.0
            }
        };
        let all: f64 = self.proxies.iter().map(weight).sum();
        let mut at = self.rng.random::<f64>() * all;
        let mut last = 0;
        for (index, proxy) in self.proxies.iter().enumerate().filter(|(_, it)| it.alive) {
            last = index;
            at -= weight(proxy);
            if at < 0.0 {
                break;
            }
        }
        last
    }

    fn enter(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        let chosen = self.choose();
        if self.requests.len() <= request.slot() {
            self.requests.resize(request.slot() + 1, None);
        }
        self.requests[request.slot()] = Some((chosen, *arrival));
        self.proxies[chosen]
            .engine
            .on_arrival(now, request, arrival)
    }

    fn engine_of(&mut self, request: RequestId) -> &mut SentryProtector {
        let (proxy, _) = self.requests[request.slot()].expect("a request has a proxy");
        &mut self.proxies[proxy].engine
    }

    /// What the replica said goes to the proxy that has the request.
    fn pass_answers(&mut self, now: Timestamp, request: RequestId) {
        for (replica, report) in std::mem::take(&mut self.answers) {
            self.engine_of(request).on_answer(now, replica, &report);
        }
    }

    fn change_proxies(&mut self, now: Timestamp, wakes: &mut Wakes) {
        while let Some((&(at, number), &up)) = self.changes.first_key_value() {
            if at > now {
                return;
            }
            self.changes.pop_first();
            self.down[number as usize] = !up;
            if up {
                // The configuration was good enough for the first start.
                let _ = self.start(now, number);
            } else {
                self.kill(now, number, wakes);
            }
        }
    }

    fn kill(&mut self, now: Timestamp, number: u32, wakes: &mut Wakes) {
        let dying = |proxy: &Proxy| proxy.alive && proxy.number == number;
        let Some(index) = self.proxies.iter().position(dying) else {
            return;
        };
        self.proxies[index].alive = false;
        for request in self.proxies[index].engine.waiting() {
            self.proxies[index].engine.on_abandon(now, request);
            let (_, arrival) = self.requests[request.slot()].expect("a request has a proxy");
            match self.enter(now, request, &arrival) {
                Decision::Wait => {}
                decision => wakes.push_back((request, decision)),
            }
        }
    }

    fn is_cut_off(&self, now: Timestamp) -> bool {
        let seconds = now.since(Timestamp::ZERO).as_secs_f64();
        self.spec
            .cut_off
            .iter()
            .any(|outage| outage.covers(seconds))
    }

    /// A proxy takes its share and sends its report.
    fn report(&mut self, now: Timestamp, index: usize, wakes: &mut Wakes) {
        let cut_off = self.is_cut_off(now);
        let classes = (0..self.config.class_count() as u16)
            .map(|class| {
                self.config
                    .class_name(tidegate_sentry::ClassId(class))
                    .to_owned()
            })
            .collect();
        let down: Vec<String> = (0..)
            .zip(&self.down)
            .filter(|(_, down)| **down)
            .map(|(number, _): (u32, _)| format!("proxy-{number:03}"))
            .collect();
        let proxy = &mut self.proxies[index];
        proxy.next_report = now + self.spec.interval.0;
        if !cut_off {
            down.iter().for_each(|name| proxy.member.on_gone(now, name));
        }
        let sample = AppSample {
            name: APPLICATION.to_owned(),
            classes,
            replicas: (self.pool.iter())
                .filter_map(|member| {
                    let number = proxy.engine.number(member.replica)?;
                    Some((number, format!("replica-{}", member.replica.0)))
                })
                .collect(),
            report: proxy.engine.sentry().fleet_report(now),
            quotas: BTreeMap::new(),
            sticky: false,
        };
        let shares = proxy.member.on_sample(now, &[sample]);
        if let Some(share) = shares.get(APPLICATION) {
            proxy.engine.share(now, share, wakes);
        }
        let report = proxy.member.report();
        let from = proxy.number;
        for number in (0..self.spec.proxies.get()).filter(|&number| number != from) {
            let lost = self.rng.random::<f64>() < *self.spec.loss || cut_off;
            if !lost {
                self.sent += 1;
                let at = now + self.spec.delay.0;
                self.messages
                    .insert((at, self.sent), (number, report.clone()));
            }
        }
    }

    fn deliver(&mut self, now: Timestamp) {
        while let Some(entry) = self.messages.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let (number, report) = entry.remove();
            let live = |proxy: &&mut Proxy| proxy.alive && proxy.number == number;
            if let Some(proxy) = self.proxies.iter_mut().find(live) {
                // An old one overtook a newer one: it is counted.
                let _ = proxy.member.on_report(now, report);
            }
        }
    }
}

impl Protector for FleetProtector {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        self.enter(now, request, arrival)
    }

    fn orders(&self, request: RequestId) -> Orders {
        let (proxy, _) = self.requests[request.slot()].expect("a request has a proxy");
        self.proxies[proxy].engine.orders(request)
    }

    fn on_answer(&mut self, _: Timestamp, replica: ReplicaId, report: &Report) {
        self.answers.push((replica, *report));
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        self.engine_of(request).reassign(now, request)
    }

    fn requeue(
        &mut self,
        now: Timestamp,
        request: RequestId,
        arrival: &Arrival,
        wakes: &mut Wakes,
    ) -> bool {
        self.engine_of(request)
            .requeue(now, request, arrival, wakes)
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        self.pass_answers(now, request);
        self.engine_of(request).on_stream(now, request, wakes);
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        self.pass_answers(now, request);
        self.engine_of(request).on_end(now, request, ending, wakes);
    }

    fn on_abandon(&mut self, now: Timestamp, request: RequestId) {
        self.engine_of(request).on_abandon(now, request);
    }

    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64) {
        for proxy in &mut self.proxies {
            proxy.engine.on_report(now, replica, utilization);
        }
    }

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        let mut pool = self.pool.iter_mut();
        if let Some(member) = pool.find(|member| member.replica == replica) {
            member.up = up;
        }
        for proxy in &mut self.proxies {
            proxy.engine.set_health(now, replica, up, wakes);
        }
    }

    fn change_pool(&mut self, now: Timestamp, change: PoolChange, wakes: &mut Wakes) {
        let mut pool = self.pool.iter_mut();
        match change {
            PoolChange::Add(replica, weight) => self.pool.push(PoolMember {
                replica,
                weight,
                up: true,
            }),
            PoolChange::Weigh(replica, weight) => {
                if let Some(member) = pool.find(|member| member.replica == replica) {
                    member.weight = weight;
                }
            }
            PoolChange::Remove(replica) => self.pool.retain(|member| member.replica != replica),
        }
        for proxy in self.proxies.iter_mut().filter(|proxy| proxy.alive) {
            proxy.engine.change_pool(now, change, wakes);
        }
    }

    fn poll_timeout(&self) -> Timestamp {
        let live = self.proxies.iter().filter(|proxy| proxy.alive);
        let own = live.map(|proxy| {
            if self.spec.exchange {
                proxy.engine.poll_timeout().min(proxy.next_report)
            } else {
                proxy.engine.poll_timeout()
            }
        });
        let message = self.messages.first_key_value().map(|((at, _), _)| *at);
        let change = self.changes.first_key_value().map(|((at, _), _)| *at);
        own.chain(message)
            .chain(change)
            .min()
            .unwrap_or(Timestamp::MAX)
    }

    fn handle_timeout(&mut self, now: Timestamp, observer: &mut dyn Observer, wakes: &mut Wakes) {
        self.change_proxies(now, wakes);
        self.deliver(now);
        for index in 0..self.proxies.len() {
            let proxy = &mut self.proxies[index];
            if !proxy.alive {
                continue;
            }
            if proxy.engine.poll_timeout() <= now {
                proxy.engine.handle_timeout(now, observer, wakes);
            }
            if self.spec.exchange && proxy.next_report <= now {
                self.report(now, index, wakes);
            }
        }
        // A report that takes no time.
        self.deliver(now);
    }

    fn gauges(&self, now: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        let mut sums: Vec<(&'static str, f64)> = Vec::new();
        let live: Vec<&Proxy> = self.proxies.iter().filter(|proxy| proxy.alive).collect();
        for (index, proxy) in live.iter().enumerate() {
            proxy.engine.gauges(now, &mut |name, value| {
                match sums.iter_mut().find(|(known, _)| *known == name) {
                    // Windows add up; the rest is that of the first.
                    Some((_, sum)) if name == "window" => *sum += value,
                    Some(_) => {}
                    None if index == 0 => sums.push((name, value)),
                    None => {}
                }
            });
        }
        sums.into_iter()
            .for_each(|(name, value)| gauge(name, value));
        let known = live
            .iter()
            .map(|proxy| proxy.member.status(now).peers.len() + 1);
        gauge("proxies", known.min().unwrap_or(0) as f64);
    }
}
