//! A scenario as a file describes it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::{self, IntoDeserializer, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_config::{Dur, Share};
use tidegate_sentry::{SentryConfig, SentryError};

use super::fleet::FleetSpec;
use super::one_or_many::OneOrMany;
use super::trace::Trace;
use super::unprotected::Choice;
use crate::client::ClientSpec;
use crate::server::{Bound, Penalty, StationSpec};
use crate::service::Law;
use crate::workload::schedule::Numbers;
use crate::workload::{Batch, FanOut, Pattern, Phases, RateFunction, Schedule, Spacing};

/// Clients, protection and replicas; see the [module](super) for a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// For people.
    #[serde(default)]
    pub title: String,
    /// How long it lasts.
    pub duration: Dur,
    /// At the beginning, left out of the totals (not of the time series).
    #[serde(default)]
    pub warm_up: Dur,
    /// Length of an interval of the time series.
    #[serde(default = "one_second")]
    pub interval: Dur,
    /// How often replicas report their utilization.
    #[serde(default = "one_second")]
    pub report_interval: Dur,
    /// Whether they do so with every answer too, as over HTTP.
    #[serde(default)]
    pub report_with_answers: bool,
    /// How long it takes to notice that a replica died or is back.
    #[serde(default = "one_second")]
    pub health_delay: Dur,
    /// The response time within which an answer counts as goodput within target; the protection's
    /// when not given.
    #[serde(default)]
    pub target: Option<Dur>,
    /// Classes of requests, the most important first; the protection's when not given.
    #[serde(default)]
    pub class: Vec<ClassSpec>,
    /// Work of a request, in seconds on one core at speed 1.
    pub service: Law,
    /// Work that optional content adds to a request that is served in full; without it nothing can
    /// be left out.
    #[serde(default)]
    pub optional: Option<Law>,
    /// Who sends requests.
    pub load: OneOrMany<LoadSpec>,
    /// Who serves them.
    #[serde(default)]
    pub replica: OneOrMany<ReplicaSpec>,
    /// What stands between them.
    #[serde(default)]
    pub protect: Protect,
    /// Share of its CPU that what stands between them uses, by time; unknown when not given.
    #[serde(default)]
    pub proxy_cpu: Option<Numbers>,
    /// Several proxies that do so; one where it is missing.
    #[serde(default)]
    pub fleet: Option<FleetSpec>,
}

fn one_second() -> Dur {
    Duration::from_secs(1).into()
}

/// A class of requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSpec {
    /// Its name.
    pub name: String,
    /// Its own target.
    #[serde(default)]
    pub target: Option<Dur>,
    /// What a request in time is worth.
    #[serde(default = "one")]
    pub revenue: f64,
}

fn one() -> f64 {
    1.0
}

/// A source of requests: open (`rate`), recorded (`times`) or closed (`users`).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadSpec {
    /// Open loop: arrivals at this rate, whatever happens to them.
    pub rate: Option<RateFunction>,
    /// Regularity of open arrivals.
    pub spacing: Spacing,
    /// Open arrivals that come together; the rate stays that of requests.
    pub batch: Option<Batch>,
    /// Open arrivals of pages with their parts; the rate stays that of requests.
    pub fan_out: Option<FanOut>,
    /// How chance changes the rate of open arrivals, which is their mean.
    pub phases: Phases,
    /// Recorded arrivals.
    pub times: Option<Vec<Dur>>,
    /// Closed loop: this many users, each of which waits for its answer and thinks before the next
    /// request.
    pub users: Option<NonZeroU32>,
    /// Think time of a user.
    pub think: Option<Law>,
    /// Kinds of client, by weight.
    pub client: OneOrMany<ClientSpec>,
    /// Requests of a recording, each with its own work; not in a file.
    #[serde(skip)]
    pub trace: Option<Arc<Trace>>,
}

impl LoadSpec {
    /// The regularity of an open loop.
    #[must_use]
    pub fn pattern(&self) -> Pattern {
        Pattern {
            spacing: self.spacing.clone(),
            batch: self.batch,
            fan_out: self.fan_out.clone(),
            phases: self.phases.clone(),
        }
    }
}

/// Equal replicas.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicaSpec {
    /// How many.
    pub count: NonZeroU32,
    /// What each is meant to carry, relative to the others; the engine's balancing follows it.
    pub weight: NonZeroU32,
    /// Jobs that progress at full speed at once.
    pub cores: NonZeroU32,
    /// Jobs in service at once; more than `cores` share them.
    pub slots: Option<Bound>,
    /// Jobs that wait for a slot.
    pub queue: Bound,
    /// What concurrency costs.
    pub penalty: Option<Penalty>,
    /// Speed of its cores: the capacity schedule.
    pub speed: Numbers,
    /// When it is dead.
    pub down: Vec<Outage>,
    /// When it is added to the pool; there from the beginning when not given.
    pub added: Option<Dur>,
    /// How long one that is added starts before it serves.
    pub start_delay: Dur,
    /// When it is drained: it gets no new requests, and finishes those inside.
    pub drained: Vec<Outage>,
    /// When it is removed from the pool; what is inside finishes.
    pub removed: Option<Dur>,
    /// Other weights, by time.
    pub reweighted: Vec<Reweighted>,
    /// What it does with a request whose client has left.
    pub abandoned: Abandoned,
    /// It has a nucleus: it runs its own service-time controller and asks for requests by demand.
    pub nucleus: bool,
    /// It reports what requests cost, how many are in it and how long they waited: of the time that
    /// a request takes alone this share is CPU, the rest I/O.
    pub cpu_share: Option<Share>,
}

impl Default for ReplicaSpec {
    fn default() -> Self {
        let station = StationSpec::default();
        Self {
            count: NonZeroU32::MIN,
            weight: NonZeroU32::MIN,
            cores: station.cores,
            slots: station.slots,
            queue: station.queue,
            penalty: station.penalty,
            speed: Schedule::constant(1.0).into(),
            down: Vec::new(),
            added: None,
            start_delay: Dur::default(),
            drained: Vec::new(),
            removed: None,
            reweighted: Vec::new(),
            abandoned: Abandoned::default(),
            nucleus: false,
            cpu_share: None,
        }
    }
}

impl ReplicaSpec {
    /// How many of them there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.get() as usize
    }

    fn nominal_capacity(&self) -> f64 {
        f64::from(self.count.get()) * f64::from(self.cores.get())
    }

    /// When it serves; 0 for one that is there from the beginning.
    #[must_use]
    pub fn serves_from(&self) -> Duration {
        self.added
            .map_or(Duration::ZERO, |added| added.0 + self.start_delay.0)
    }

    /// Whether it is in the pool from the beginning.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.serves_from().is_zero()
    }

    /// Whether it is removed before it ever serves.
    pub(super) fn never_serves(&self) -> bool {
        self.removed
            .is_some_and(|removed| removed.0 <= self.serves_from())
    }

    /// Whether it is in the pool and gets new requests.
    fn takes_requests_at(&self, seconds: f64) -> bool {
        let from = self.serves_from().as_secs_f64();
        let until = self.removed.map_or(f64::INFINITY, |it| it.as_secs_f64());
        let drained = self.drained.iter().any(|drained| drained.covers(seconds));
        (from..until).contains(&seconds) && !drained
    }

    /// What keeps its times in the pool from being.
    fn check(&self) -> Result<(), ScenarioError> {
        check_times_of("down", &self.down)?;
        check_times_of("drained", &self.drained)?;
        if self.added.is_some_and(|added| added.is_zero()) {
            return refuse("`added` is later than 0; leave it out for a replica of the beginning");
        }
        if self.added.is_none() && !self.start_delay.is_zero() {
            return refuse("`start_delay` is for a replica that is `added` during the run");
        }
        let (added, from) = (self.added.unwrap_or_default(), self.serves_from());
        if self.removed.is_some_and(|removed| removed <= added) {
            return refuse("`removed` is later than `added` and later than 0");
        }
        let outside = |at: Dur| at.0 < from || self.removed.is_some_and(|removed| at >= removed);
        if let Some(drained) = self.drained.iter().find(|drained| outside(drained.from)) {
            let at = drained.from;
            return refuse(format!(
                "`drained` at {at}: the replica does not serve then"
            ));
        }
        if let Some(weight) = self.reweighted.iter().find(|weight| outside(weight.at)) {
            let at = weight.at;
            return refuse(format!(
                "`reweighted` at {at}: the replica does not serve then"
            ));
        }
        Ok(())
    }

    /// The server model of one of them.
    #[must_use]
    pub fn station(&self) -> StationSpec {
        StationSpec {
            cores: self.cores,
            slots: self.slots,
            queue: self.queue,
            penalty: self.penalty,
        }
    }
}

/// Another weight from a point in time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reweighted {
    /// When.
    pub at: Dur,
    /// The weight.
    pub weight: NonZeroU32,
}

/// A time in which something is away. What is in a replica that is dead (`down`) is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// When it begins.
    #[schemars(example = &"40s")]
    pub from: Dur,
    /// When it ends; never when not given.
    #[schemars(example = &"60s")]
    #[serde(default)]
    pub until: Option<Dur>,
}

impl Outage {
    pub(super) fn covers(&self, seconds: f64) -> bool {
        let from = self.from.as_secs_f64();
        let until = self
            .until
            .map_or(f64::INFINITY, |until| until.as_secs_f64());
        (from..until).contains(&seconds)
    }
}

/// What a replica does with a request whose client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Abandoned {
    /// Finishes it, as most servers do: the work is wasted.
    #[default]
    Finish,
    /// Notices, and drops it.
    Cancel,
}

/// The protection: a table of the engine's configuration, or the name of a plain balancer.
#[derive(Debug, Clone, PartialEq)]
pub enum Protect {
    /// `"none"` or `"round-robin"`, `"random"`, `"least-in-flight"`.
    Unprotected(Choice),
    /// The engine, in the mode that its table says.
    Sentry(Box<SentryConfig>),
}

impl Default for Protect {
    fn default() -> Self {
        Self::Unprotected(Choice::default())
    }
}

impl<'de> Deserialize<'de> for Protect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Protect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", the name of a plain balancer, or a table with a `mode`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Protect, E> {
                match name {
                    "none" => Ok(Protect::default()),
                    other => {
                        Choice::deserialize(other.into_deserializer()).map(Protect::Unprotected)
                    }
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Protect, A::Error> {
                let config = SentryConfig::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Protect::Sentry(Box::new(config)))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Why a scenario cannot run; the message names the key and the remedy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// Keys that do not fit together.
    #[error("{0}")]
    Inconsistent(String),
    /// The engine refuses its configuration.
    #[error("protect: {0}")]
    Sentry(#[from] SentryError),
}

fn refuse<T>(message: impl Into<String>) -> Result<T, ScenarioError> {
    Err(ScenarioError::Inconsistent(message.into()))
}

impl Scenario {
    /// What keeps it from running, found without running it.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_times()?;
        self.check_classes()?;
        self.load
            .iter()
            .try_for_each(|load| self.check_load(load))?;
        self.replica.iter().try_for_each(ReplicaSpec::check)?;
        if self.load.is_empty() || self.replica.is_empty() {
            return refuse("a scenario needs at least one `load` and one `replica`");
        }
        if self.replica_count() > usize::from(u16::MAX) {
            return refuse("a scenario has at most 65535 replicas");
        }
        if !self.replica.iter().any(ReplicaSpec::is_first) {
            return refuse("every `replica` is `added` later: a pool begins with one at least");
        }
        if let Some(fleet) = &self.fleet {
            fleet.check().or_else(refuse)?;
            if matches!(self.protect, Protect::Unprotected(_)) {
                return refuse("a `fleet` needs engines: give `protect` a table with a `mode`");
            }
        }
        match &self.protect {
            Protect::Sentry(config) => Ok(config.validate()?),
            Protect::Unprotected(_) => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), ScenarioError> {
        if self.interval.is_zero() || self.report_interval.is_zero() {
            return refuse("`interval` and `report_interval` are longer than 0");
        }
        if self.warm_up >= self.duration {
            return refuse("`duration` is longer than `warm_up`, which is not measured");
        }
        Ok(())
    }

    fn check_classes(&self) -> Result<(), ScenarioError> {
        let Protect::Sentry(config) = &self.protect else {
            return Ok(());
        };
        let same = self.class.len() == config.classes.len()
            && (self.class.iter().zip(&config.classes)).all(|(ours, its)| ours.name == its.name);
        if self.class.is_empty() || config.classes.is_empty() || same {
            return Ok(());
        }
        refuse("`class` and `protect.classes` name different classes: leave one of them out")
    }

    fn check_load(&self, load: &LoadSpec) -> Result<(), ScenarioError> {
        let kinds = [
            load.rate.is_some(),
            load.times.is_some(),
            load.users.is_some(),
            load.trace.is_some(),
        ];
        if kinds.iter().filter(|&&given| given).count() != 1 {
            return refuse("a `load` has one of `rate`, `times` and `users`");
        }
        let think = load.think.as_ref().is_some_and(|think| think.mean() > 0.0);
        if think != load.users.is_some() {
            return refuse("a closed loop needs both `users` and `think`, longer than 0");
        }
        load.pattern().check().or_else(refuse)?;
        let weights: f64 = load.client.iter().map(|client| client.share).sum();
        if weights <= 0.0 {
            return refuse("the `share`s of a load's clients cannot all be 0");
        }
        for client in load.client.iter() {
            client.check().or_else(refuse)?;
            self.class_index(client)?;
        }
        Ok(())
    }

    /// The classes in force, with their targets; never none.
    #[must_use]
    pub fn classes(&self) -> Vec<ClassSpec> {
        let config = match &self.protect {
            Protect::Sentry(config) => Some(config),
            Protect::Unprotected(_) => None,
        };
        let target = self.target.or_else(|| config.and_then(|c| c.target));
        let mut classes = self.class.clone();
        if classes.is_empty() {
            classes.extend(
                config
                    .iter()
                    .flat_map(|config| &config.classes)
                    .map(|c| ClassSpec {
                        name: c.name.clone(),
                        target: c.target,
                        revenue: c.revenue,
                    }),
            );
        }
        if classes.is_empty() {
            classes.push(ClassSpec {
                name: tidegate_sentry::DEFAULT_CLASS.to_owned(),
                target: None,
                revenue: 1.0,
            });
        }
        for class in &mut classes {
            class.target = class.target.or(target);
        }
        classes
    }

    pub(super) fn class_index(&self, client: &ClientSpec) -> Result<u16, ScenarioError> {
        let Some(name) = &client.class else {
            return Ok(0);
        };
        let classes = self.classes();
        match classes.iter().position(|class| class.name == *name) {
            Some(index) => u16::try_from(index).or_else(|_| refuse("too many classes")),
            None => {
                let known: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
                refuse(format!(
                    "a client has the class `{name}`; known: {}",
                    known.join(", ")
                ))
            }
        }
    }

    /// Seconds of work that all replicas can do per second, at speed 1, all alive and in the pool.
    #[must_use]
    pub fn nominal_capacity(&self) -> f64 {
        self.replica.iter().map(ReplicaSpec::nominal_capacity).sum()
    }

    /// The same at a time of the scenario, by the schedules of speeds and outages.
    #[must_use]
    pub fn capacity_at(&self, seconds: f64) -> f64 {
        let capacities = self.capacities_at(seconds);
        capacities.iter().map(|(capacity, _)| capacity).sum()
    }

    /// The same of each group of replicas, with the speed of one.
    pub(crate) fn capacities_at(&self, seconds: f64) -> Vec<(f64, f64)> {
        let at = |replica: &ReplicaSpec| {
            let speed = replica.speed.value_at(seconds);
            let up = replica.takes_requests_at(seconds)
                && !replica.down.iter().any(|outage| outage.covers(seconds));
            (
                replica.nominal_capacity() * if up { speed } else { 0.0 },
                speed,
            )
        };
        self.replica.iter().map(at).collect()
    }

    /// The highest rate of its open loads together.
    #[must_use]
    pub fn peak_rate(&self) -> f64 {
        let rates = self.load.iter().filter_map(|load| load.rate.as_ref());
        rates.map(RateFunction::max).sum()
    }

    /// Its replicas, one by one; those of the beginning come first. Their position is their number.
    pub fn replicas(&self) -> impl Iterator<Item = &ReplicaSpec> {
        let those = |first: bool| self.replica.iter().filter(move |it| it.is_first() == first);
        those(true)
            .chain(those(false))
            .flat_map(|group| std::iter::repeat_n(group, group.count()))
    }

    /// The weights of the replicas of the beginning.
    #[must_use]
    pub fn first_weights(&self) -> Vec<NonZeroU32> {
        let first = self.replicas().take_while(|replica| replica.is_first());
        first.map(|replica| replica.weight).collect()
    }

    /// Number of replicas in all, those that are added later too.
    #[must_use]
    pub fn replica_count(&self) -> usize {
        self.replica.iter().map(|r| r.count.get() as usize).sum()
    }
}

fn check_times_of(key: &str, times: &[Outage]) -> Result<(), ScenarioError> {
    let mut free_from = Some(Dur::default());
    for outage in times {
        let in_order = free_from.is_some_and(|free| free <= outage.from)
            && outage.until.is_none_or(|until| until > outage.from);
        if !in_order {
            return refuse(format!(
                "the times in `{key}` are in order and do not overlap"
            ));
        }
        free_from = outage.until;
    }
    Ok(())
}
