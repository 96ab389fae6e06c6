//! What proxies say to each other: one JSON document, bounded in size and in every number.
//!
//! Counters are totals since the proxy's start, so that a lost report loses nothing. Replicas and
//! classes go by name: their numbers differ between proxies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_sentry::{LeadWindow, PhaseName};

use crate::quotas::KeyRates;

/// The version of the format.
pub const VERSION: u32 = 1;

/// A report is no longer than this. A thousand replicas of ten applications fit.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

const NAME_BYTES_MAX: usize = 256;
const APPLICATIONS_MAX: usize = 1000;
const CLASSES_MAX: usize = 256;
const REPLICAS_MAX: usize = 10_000;
const PROXIES_MAX: usize = 1000;
const KEYS_MAX: usize = 256;
/// No counter, rate or time of a report is larger: a hundred million requests per second for a
/// year.
const NUMBER_MAX: f64 = 3e15;

/// A report that is not taken over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadReport {
    /// Longer than allowed.
    #[error("report of {0} bytes: at most {MESSAGE_BYTES_MAX} are read")]
    TooLong(usize),
    /// No report at all.
    #[error("report is not valid: {0}")]
    Malformed(String),
    /// Of another format.
    #[error("report of version {0}: this proxy knows version {VERSION}; run the same release")]
    Version(u32),
    /// Of another fleet.
    #[error("report of fleet `{0}`: its proxy has another `fleet.name`")]
    Fleet(String),
    /// From a proxy of this name.
    #[error("another proxy has the name `{0}`: give each its own `fleet.proxy`")]
    SameName(String),
    /// A number or name that cannot be.
    #[error("report of `{proxy}`: {what}")]
    Implausible {
        /// From which proxy.
        proxy: String,
        /// What cannot be.
        what: String,
    },
    /// Older than one that is known.
    #[error("report of `{0}` is older than the last one")]
    Old(String),
    /// More proxies than a fleet may have.
    #[error("report of `{0}`: a fleet has at most {PROXIES_MAX} proxies")]
    TooMany(String),
}

/// What a proxy says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the fleet.
    pub fleet: String,
    /// Name of the proxy, its own in the fleet.
    pub proxy: String,
    /// When it was started, in any unit: two starts of one name are told apart.
    pub boot: u64,
    /// Counts its reports.
    pub sequence: u64,
    /// When, in nanoseconds since its start.
    pub at_ns: u64,
    /// It is about to end: others take over its share at once.
    #[serde(default)]
    pub leaving: bool,
    /// By name.
    pub applications: BTreeMap<String, AppReport>,
}

/// One application of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AppReport {
    /// The most important first.
    pub classes: Vec<ClassReport>,
    /// Requests that wait.
    pub queued: u32,
    /// Whether more arrives than can be served.
    pub overloaded: bool,
    /// By the address at which the proxy reaches them.
    pub replicas: BTreeMap<String, ReplicaReport>,
    /// What the leader divides.
    #[serde(default)]
    pub lead: Option<Lead>,
    /// Keys that use much of a quota, by the quota's name.
    #[serde(default)]
    pub quotas: BTreeMap<String, KeyRates>,
}

/// A class at a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Of them, by the guarantee.
    pub guaranteed: u64,
}

/// A replica as a proxy uses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Requests of the proxy in it.
    pub in_flight: u32,
    /// What the proxy may hold in it; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Requests done.
    pub done: f64,
    /// Time that requests spent inside.
    pub inside_seconds: f64,
    /// Time in which the proxy's window was full.
    pub full_seconds: f64,
    /// Requests done meanwhile.
    pub full_done: f64,
    /// What the search has found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
    /// Requests per second that it does for all proxies at a full window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
}

/// What the search for a window has found, of all proxies together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Requests that the replica may hold.
    pub window: u32,
    /// How far the search is.
    pub phase: PhaseName,
    /// A window is tried that may be too small.
    pub tries_less: bool,
}

impl From<LeadWindow> for Found {
    fn from(lead: LeadWindow) -> Self {
        Self {
            window: lead.window,
            phase: lead.phase,
            tries_less: lead.tries_less,
        }
    }
}

impl From<Found> for LeadWindow {
    fn from(found: Found) -> Self {
        Self {
            window: found.window,
            phase: found.phase,
            tries_less: found.tries_less,
        }
    }
}

/// What the leader divides, by proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lead {
    /// By name; in this order they stand in line for slots.
    pub shares: BTreeMap<String, ProxyShare>,
}

/// What a proxy gets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyShare {
    /// Of windows and what is fixed for all.
    pub share: f64,
    /// Of guarantees, by class.
    pub guarantees: BTreeMap<String, f64>,
}

impl PeerReport {
    /// Reads a report and looks whether all in it can be.
    ///
    /// # Errors
    /// What is wrong with it, for the operator.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadReport> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(BadReport::TooLong(bytes.len()));
        }
        let report: Self = serde_json::from_slice(bytes)
            .map_err(|error| BadReport::Malformed(error.to_string()))?;
        report.check()?;
        Ok(report)
    }

    /// The document to send.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Maps have strings for keys and numbers are finite, so that this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn check(&self) -> Result<(), BadReport> {
        if self.version != VERSION {
            return Err(BadReport::Version(self.version));
        }
        let bad = |what: String| {
            Err(BadReport::Implausible {
                proxy: self.proxy.chars().take(64).collect(),
                what,
            })
        };
        if !is_name(&self.proxy) || !is_name(&self.fleet) {
            return bad("a name is 1 to 256 printable characters".to_owned());
        }
        if self.applications.len() > APPLICATIONS_MAX {
            return bad(format!("more than {APPLICATIONS_MAX} applications"));
        }
        for (name, application) in &self.applications {
            if !is_name(name) {
                return bad("a name is 1 to 256 printable characters".to_owned());
            }
            if let Err(what) = application.check() {
                return bad(format!("application `{name}`: {what}"));
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let length = 1..=NAME_BYTES_MAX;
    length.contains(&name.len()) && !name.chars().any(char::is_control)
}

fn is_number(number: f64) -> bool {
    (0.0..=NUMBER_MAX).contains(&number)
}

impl AppReport {
    fn check(&self) -> Result<(), String> {
        let counts = [
            (self.classes.len(), CLASSES_MAX, "classes"),
            (self.replicas.len(), REPLICAS_MAX, "replicas"),
            (self.quotas.len(), CLASSES_MAX, "quotas"),
        ];
        if let Some((_, most, what)) = counts.iter().find(|(count, most, _)| count > most) {
            return Err(format!("more than {most} {what}"));
        }
        if !self.classes.iter().all(|class| is_name(&class.name)) {
            return Err("a class has no proper name".to_owned());
        }
        for (name, replica) in &self.replicas {
            if !is_name(name) || !replica.is_plausible() {
                let name: String = name.chars().take(64).collect();
                return Err(format!("replica `{name}` has numbers that cannot be"));
            }
        }
        for rates in self.quotas.values() {
            if rates.len() > KEYS_MAX || !rates.values().all(|&rate| is_number(rate)) {
                return Err("a quota has rates that cannot be".to_owned());
            }
        }
        if self.lead.as_ref().is_none_or(Lead::is_plausible) {
            Ok(())
        } else {
            Err("shares that do not add up to one".to_owned())
        }
    }
}

impl ReplicaReport {
    fn is_plausible(&self) -> bool {
        [
            self.done,
            self.inside_seconds,
            self.full_seconds,
            self.full_done,
            self.capacity.unwrap_or(0.0),
        ]
        .into_iter()
        .all(is_number)
    }
}

impl Lead {
    fn is_plausible(&self) -> bool {
        let adds_up = |shares: &[f64]| {
            let each = shares.iter().all(|share| (0.0..=1.0).contains(share));
            each && shares.iter().sum::<f64>() <= 1.0 + 1e-6
        };
        let mut of_class: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for share in self.shares.values() {
            if share.guarantees.len() > CLASSES_MAX {
                return false;
            }
            for (class, &part) in &share.guarantees {
                of_class.entry(class).or_default().push(part);
            }
        }
        let shares: Vec<f64> = self.shares.values().map(|share| share.share).collect();
        self.shares.len() <= PROXIES_MAX
            && adds_up(&shares)
            && of_class.values().all(|parts| adds_up(parts))
    }
}

/// Whether one more proxy fits into a fleet of this size.
pub(crate) fn has_room(proxies: usize) -> bool {
    proxies < PROXIES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> PeerReport {
        let mut report = PeerReport {
            version: VERSION,
            fleet: "main".to_owned(),
            proxy: "a".to_owned(),
            boot: 1,
            sequence: 1,
            at_ns: 1,
            leaving: false,
            applications: BTreeMap::new(),
        };
        let mut shop = AppReport::default();
        shop.replicas
            .insert("10.0.0.1:80".to_owned(), ReplicaReport::default());
        report.applications.insert("shop".to_owned(), shop);
        report
    }

    #[test]
    fn report_survives_the_wire() {
        let report = report();
        assert_eq!(PeerReport::decode(&report.encode()), Ok(report));
    }

    #[test]
    fn report_of_another_version_names_the_remedy() {
        let newer = PeerReport {
            version: 2,
            ..report()
        };
        let error = PeerReport::decode(&newer.encode()).unwrap_err();
        assert!(error.to_string().contains("same release"), "{error}");
    }

    #[test]
    fn garbled_and_lying_reports_are_refused() {
        assert!(PeerReport::decode(b"{").is_err());
        assert!(PeerReport::decode(&vec![b' '; MESSAGE_BYTES_MAX + 1]).is_err());
        let refused = |change: &dyn Fn(&mut AppReport)| {
            let mut bad = report();
            change(bad.applications.get_mut("shop").unwrap());
            let refused = PeerReport::decode(&bad.encode()).is_err();
            assert!(refused, "{bad:?}");
        };
        refused(&|shop| shop.replicas.values_mut().for_each(|it| it.done = -1.0));
        refused(&|shop| {
            shop.replicas
                .values_mut()
                .for_each(|it| it.inside_seconds = 1e300);
        });
        refused(&|shop| {
            let whole = ProxyShare {
                share: 1.0,
                ..ProxyShare::default()
            };
            let shares = [("a".to_owned(), whole.clone()), ("b".to_owned(), whole)];
            shop.lead = Some(Lead {
                shares: shares.into(),
            });
        });
        let mut nameless = report();
        nameless.proxy = "a\nb".to_owned();
        assert!(PeerReport::decode(&nameless.encode()).is_err());
    }
}
