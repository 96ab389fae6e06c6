//! A proxy as its reports show it: rates, from totals of two reports.

use std::collections::BTreeMap;

use tidegate_control::Timestamp;
use tidegate_sentry::Elsewhere;

use crate::division::Demand;
use crate::message::{AppReport, PeerReport, ReplicaReport};

/// Time constant of arrival rates in seconds. Chosen: 1 s follows traffic that moves within a few
/// reports, and is off by 7 % at 200 requests per second.
const ARRIVALS_SECONDS: f64 = 1.0;

/// Arrivals that a proxy is believed to have, per request that it gets done. Chosen: an overload of
/// 20 times is divided right; a proxy that lies takes no more than what it can show.
const ARRIVALS_OF_DONE_MAX: f64 = 20.0;

/// Arrivals per second that are believed in any case.
const ARRIVALS_UNSHOWN: f64 = 50.0;

/// A proxy as its reports show it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) boot: u64,
    pub(crate) sequence: u64,
    /// Its first report since it was last lost.
    pub(crate) since: Timestamp,
    /// Its last report.
    pub(crate) heard: Timestamp,
    /// Connections to it are refused since then.
    pub(crate) gone: Option<Timestamp>,
    at_ns: u64,
    pub(crate) applications: BTreeMap<String, Application>,
}

/// An application of a proxy.
#[derive(Debug, Default)]
pub(crate) struct Application {
    pub(crate) last: AppReport,
    arrivals: Demand,
    done_per_second: f64,
    replicas: BTreeMap<String, Elsewhere>,
    /// Whether two reports were compared.
    measured: bool,
}

impl Peer {
    /// A proxy of which this is the first report.
    pub(crate) fn new(now: Timestamp, report: PeerReport) -> Self {
        let mut peer = Self {
            boot: report.boot,
            sequence: report.sequence,
            since: now,
            heard: now,
            gone: None,
            at_ns: report.at_ns,
            applications: BTreeMap::new(),
        };
        peer.replace(report, 0.0);
        peer
    }

    /// Takes over a newer report of the same start.
    pub(crate) fn on_report(&mut self, now: Timestamp, report: PeerReport) {
        self.heard = now;
        self.gone = None;
        self.sequence = report.sequence;
        let seconds = report.at_ns.saturating_sub(self.at_ns) as f64 * 1e-9;
        self.at_ns = report.at_ns;
        self.replace(report, seconds);
    }

    fn replace(&mut self, report: PeerReport, seconds: f64) {
        let before = &mut self.applications;
        let next = |(name, new): (String, AppReport)| {
            let mut application = before.remove(&name).unwrap_or_default();
            application.on_report(new, seconds);
            (name, application)
        };
        self.applications = report.applications.into_iter().map(next).collect();
    }
}

impl Application {
    fn on_report(&mut self, new: AppReport, seconds: f64) {
        if seconds > 0.0 {
            self.measure(&new, seconds);
        } else if !self.measured {
            // Totals since a start that may be long ago say nothing about now.
            let counts = |replica: &ReplicaReport| Elsewhere {
                in_flight: f64::from(replica.in_flight),
                windows: f64::from(replica.window.unwrap_or(0)),
                ..Elsewhere::default()
            };
            let replicas = new.replicas.iter();
            self.replicas = replicas
                .map(|(name, it)| (name.clone(), counts(it)))
                .collect();
        }
        self.last = new;
    }

    fn measure(&mut self, new: &AppReport, seconds: f64) {
        let known = |name: &String| self.last.replicas.get(name);
        let rates = |(name, it): (&String, &ReplicaReport)| {
            let before = known(name).copied().unwrap_or(*it);
            (name.clone(), rates(&before, it, seconds))
        };
        let replicas: BTreeMap<String, Elsewhere> = new.replicas.iter().map(rates).collect();
        self.done_per_second = replicas.values().map(|it| it.done_per_second).sum();
        self.replicas = replicas;
        let weight = 1.0 - (-seconds / ARRIVALS_SECONDS).exp();
        let mut arrivals = Demand::new();
        for class in &new.classes {
            let same = |it: &&crate::message::ClassReport| it.name == class.name;
            let Some(before) = self.last.classes.iter().find(same) else {
                continue;
            };
            let rate = class.arrived.saturating_sub(before.arrived) as f64 / seconds;
            let old = self.arrivals.get(&class.name).copied();
            let smooth = old.map_or(rate, |old| old + weight * (rate - old));
            arrivals.insert(class.name.clone(), smooth);
        }
        self.arrivals = arrivals;
        self.measured = true;
    }

    /// Requests that arrive per second, by class, as far as they are believed.
    pub(crate) fn demand(&self) -> Demand {
        let all: f64 = self.arrivals.values().sum();
        let most = ARRIVALS_OF_DONE_MAX * self.done_per_second + ARRIVALS_UNSHOWN;
        let believed = if all > most { most / all } else { 1.0 };
        let rates = self.arrivals.iter();
        rates
            .map(|(class, rate)| (class.clone(), rate * believed))
            .collect()
    }

    /// What the proxy does in a replica.
    pub(crate) fn replica(&self, name: &str) -> Elsewhere {
        self.replicas.get(name).copied().unwrap_or_default()
    }
}

fn rates(before: &ReplicaReport, now: &ReplicaReport, seconds: f64) -> Elsewhere {
    let more = |now: f64, before: f64| ((now - before) / seconds).max(0.0);
    let windows = f64::from(now.window.unwrap_or(0));
    let full = more(now.full_seconds, before.full_seconds).min(1.0);
    let inside = more(now.inside_seconds, before.inside_seconds);
    // Only mode `auto` measures time; the others say what is in flight at the moment.
    let in_flight = if now.inside_seconds > 0.0 {
        inside
    } else {
        f64::from(now.in_flight)
    };
    Elsewhere {
        in_flight,
        done_per_second: more(now.done, before.done),
        windows,
        full_windows: windows * full,
        full_done_per_second: more(now.full_done, before.full_done),
    }
}
