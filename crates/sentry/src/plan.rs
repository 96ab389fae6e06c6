//! What requests read: classes, replicas and the configuration, replaced as a whole.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use tidegate_control::Timestamp;

use crate::api::{Arrival, ClassId, ReplicaChange, ReplicaId};
use crate::balance::Replicas;
use crate::class::Class;
use crate::config::{Balance, CostBy, ModeName, SentryConfig};
use crate::contract::Contract;
use crate::error::SentryError;
use crate::policing::toll::toll;
use crate::policing::{Kind, Limit, PathKey, Policer, Server, Servers};
use crate::replica::{Health, Replica, UNLIMITED};
use crate::session::Sessions;

/// Replicas have small ids.
const REPLICAS_MAX: usize = 10_000;

/// What requests read: classes, replicas and the configuration, replaced as a whole.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Arc<SentryConfig>,
    pub(crate) classes: Vec<Arc<Class>>,
    pub(crate) replicas: Replicas,
    pub(crate) policer: Arc<Policer>,
    pub(crate) sessions: Arc<Sessions>,
}

impl Plan {
    pub(crate) fn new(
        config: &SentryConfig,
        weights: &[NonZeroU32],
        now: Timestamp,
    ) -> Result<Self, SentryError> {
        config.validate()?;
        if weights.len() > REPLICAS_MAX {
            return Err(too_many_replicas());
        }
        let mut replicas = Replicas::new(REPLICAS_MAX);
        for (index, &weight) in weights.iter().enumerate() {
            put_replica(&mut replicas, index, config, weight);
        }
        Ok(Self {
            classes: classes_of(config, &[], now),
            replicas,
            policer: Arc::new(Policer::new(config)),
            sessions: Arc::new(sessions(config)),
            config: Arc::new(config.clone()),
        })
    }

    /// The plan after a change, and the ids of the replicas added; nothing has changed yet for
    /// those that remain.
    pub(crate) fn changed(
        &self,
        config: &SentryConfig,
        changes: &[ReplicaChange],
        now: Timestamp,
    ) -> Result<(Self, Vec<ReplicaId>), SentryError> {
        config.validate()?;
        let (replicas, added) = change_replicas(&self.replicas, changes, config)?;
        let plan = Self {
            classes: classes_of(config, &self.classes, now),
            replicas,
            policer: if self.policer.suits(config) {
                Arc::clone(&self.policer)
            } else {
                Arc::new(Policer::new(config))
            },
            sessions: if self
                .sessions
                .suits(config.sessions.max, config.sessions.lifetime.0)
            {
                Arc::clone(&self.sessions)
            } else {
                Arc::new(sessions(config))
            },
            config: Arc::new(config.clone()),
        };
        Ok((plan, added))
    }

    /// Retires the replicas that were removed. This plan is in force already: a request that finds
    /// the replicas of an older one retired finds this one (`Sentry::newer_than`).
    pub(crate) fn retire(&self, changes: &[ReplicaChange]) {
        fence(Ordering::Release);
        for change in changes {
            if let ReplicaChange::Remove(id) = *change {
                self.replicas[usize::from(id.0)].set_health(Health::Retired);
            }
        }
    }

    /// Gives a replica another weight, and the slots that go with it where they are fixed.
    pub(crate) fn weigh(&self, id: ReplicaId, weight: NonZeroU32) {
        let replica = &self.replicas[usize::from(id.0)];
        if replica.weight() == weight.get() {
            return;
        }
        replica.set_weight(weight);
        if !matches!(self.config.mode, ModeName::Auto | ModeName::Ilac) {
            replica.set_limit(initial_window(&self.config, weight.get()));
        }
    }

    /// A class by its id; an id that went with an older configuration is the last class.
    pub(crate) fn class(&self, class: ClassId) -> &Class {
        &self.classes[self.class_index(class)]
    }

    pub(crate) fn class_index(&self, class: ClassId) -> usize {
        usize::from(class.0).min(self.classes.len() - 1)
    }

    /// Whether a request belongs to a session that was admitted.
    pub(crate) fn prefers(&self, now: Timestamp, arrival: &Arrival) -> bool {
        let session = arrival.session;
        session.is_some_and(|session| self.sessions.knows(now, session))
    }

    pub(crate) fn replica(&self, replica: ReplicaId) -> Option<&Replica> {
        self.replicas
            .get(usize::from(replica.0))
            .map(|replica| &**replica)
    }

    /// Replicas that may get requests, with their ids.
    pub(crate) fn up(&self) -> impl Iterator<Item = (ReplicaId, &Replica)> {
        let all = self.replicas.iter().enumerate();
        all.filter(|(_, replica)| replica.is_up())
            .map(|(index, replica)| (ReplicaId(index as u16), &**replica))
    }

    /// How a replica is chosen; in mode `ilac` the one that asks for most gets the request.
    pub(crate) fn balance(&self) -> Balance {
        match self.config.mode {
            ModeName::Ilac => Balance::MostFree,
            _ => self.config.balance,
        }
    }

    /// How requests are judged one by one, where the mode does.
    pub(crate) fn policing(&self) -> Option<Kind> {
        (self.config.mode == ModeName::Sentry).then(|| self.policer.kind())
    }

    /// Whether those whose path costs far more than others pay for it in overload.
    pub(crate) fn charges_tolls(&self) -> bool {
        self.config.mode == ModeName::Auto && self.config.auto.path_costs && !self.shares_by_cost()
    }

    /// Whether cheap requests are preferred in overload, as far as the operator allows.
    pub(crate) fn shares_by_cost(&self) -> bool {
        self.config.mode == ModeName::Auto && self.config.auto.cost_fairness > 0.0
    }

    /// Whether what requests cost is learned from the time that they take.
    pub(crate) fn learns_cost_by_time(&self) -> bool {
        let by_time = self.config.auto.cost_by == CostBy::Time;
        self.charges_tolls() || self.shares_by_cost() && by_time
    }

    /// What a request is expected to cost, where that counts: what its client says, what requests
    /// of its path and tenant cost, of its path, or of its class.
    pub(crate) fn expected_cost(&self, arrival: &Arrival) -> Option<f64> {
        if !self.shares_by_cost() {
            return None;
        }
        let unit = match self.config.auto.cost_by {
            CostBy::Time => 1e-3,
            CostBy::Report => 1.0,
        };
        let declared = arrival.cost.map(|cost| cost * unit);
        declared
            .filter(|&cost| cost > 0.0 && cost.is_finite())
            .or_else(|| {
                self.policer
                    .well_known_of_tenant(arrival.path, arrival.tenant)
            })
            .or_else(|| self.policer.well_known_s(arrival.path))
            .or_else(|| self.class(arrival.class).cost.service_s())
    }

    /// What newcomers meet in the replicas.
    pub(crate) fn servers(&self) -> Servers {
        self.each_server().collect()
    }

    /// Whether one more request passes the test in a replica, or there is none to judge it by.
    pub(crate) fn fits_one(&self, service_s: f64, limit: Limit) -> bool {
        let mut servers = self.each_server().peekable();
        servers.peek().is_none() || servers.any(|server| server.free(service_s, limit) > 0)
    }

    fn each_server(&self) -> impl Iterator<Item = Server> {
        self.up().map(|(_, replica)| Server {
            in_service: replica.company(),
            queue_s: replica.queue_s(),
        })
    }

    /// What a request is expected to cost a server on its own: by its path, or like its class,
    /// or as configured.
    pub(crate) fn service_s(&self, class: ClassId, path: Option<PathKey>) -> f64 {
        let by_class = || self.class(class).cost.service_s();
        let known = self.policer.service_s(path).or_else(by_class);
        known.unwrap_or_else(|| self.config.sentry.service_time.as_secs_f64())
    }

    /// As how many a request counts in overload, by its path's cost: 1 for most.
    pub(crate) fn toll(&self, class: ClassId, path: Option<PathKey>) -> f64 {
        let mean_s = self.class(class).forecast.toll_mean_s.load();
        if mean_s <= 0.0 {
            return 1.0;
        }
        let cost_s = self.policer.well_known_s(path);
        cost_s.map_or(1.0, |cost_s| toll(cost_s, mean_s))
    }

    pub(crate) fn any_up(&self) -> bool {
        self.any_up_but(None)
    }

    /// Whether a replica is healthy other than this one.
    pub(crate) fn any_up_but(&self, except: Option<ReplicaId>) -> bool {
        let (up, end) = (&self.replicas.vacancies().up, self.replicas.len());
        up.around(0, end, None).any(|index| {
            self.replicas[index].is_up() && except.is_none_or(|id| usize::from(id.0) != index)
        })
    }

    /// Waiters of this importance or above.
    pub(crate) fn queued_at_or_above(&self, class: ClassId) -> u32 {
        self.classes[..=self.class_index(class)]
            .iter()
            .map(|class| class.queued())
            .sum()
    }

    /// Of them, those whom a newcomer would wait behind.
    pub(crate) fn queued_ahead(&self, class: ClassId) -> u32 {
        let late = self.class(class).late.load(Ordering::Relaxed);
        self.queued_at_or_above(class).saturating_sub(late)
    }

    pub(crate) fn queued(&self) -> u32 {
        self.classes.iter().map(|class| class.queued()).sum()
    }

    /// Requests waiting or in flight.
    pub(crate) fn in_system(&self) -> u32 {
        self.queued() + self.in_flight()
    }

    /// What would wait if the windows were enforced.
    pub(crate) fn in_flight_beyond_windows(&self) -> u32 {
        self.up()
            .map(|(_, replica)| replica.in_flight().saturating_sub(replica.limit()))
            .sum()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.replicas
            .iter()
            .map(|replica| replica.in_flight())
            .sum()
    }
}

fn sessions(config: &SentryConfig) -> Sessions {
    Sessions::new(config.sessions.max, config.sessions.lifetime.0)
}

/// Puts a replica about which nothing is known but its weight.
fn put_replica(replicas: &mut Replicas, index: usize, config: &SentryConfig, weight: NonZeroU32) {
    let limit = initial_window(config, weight.get());
    replicas.put(index, limit).set_weight(weight);
}

/// A replica's window before anything is known about it: as many times what is configured as its
/// weight says.
pub(crate) fn initial_window(config: &SentryConfig, weight: u32) -> u32 {
    let limits = &config.limits;
    match config.mode {
        ModeName::Off => UNLIMITED,
        // A newcomer is given one request, and asks for more (004 §III-B).
        ModeName::Ilac => 1,
        ModeName::Auto => limits
            .window_initial
            .saturating_mul(weight)
            .clamp(limits.window_min, limits.window_max),
        _ => limits
            .slots
            .map_or(UNLIMITED, |slots| slots.saturating_mul(weight)),
    }
}

/// The classes of a configuration; one that existed before keeps its counters and gets its new
/// target and contract.
fn classes_of(config: &SentryConfig, old: &[Arc<Class>], now: Timestamp) -> Vec<Arc<Class>> {
    (0..config.class_count() as u16)
        .map(|index| {
            let id = ClassId(index);
            let name = config.class_name(id);
            let Some(known) = old.iter().find(|class| class.name == name) else {
                let contract = Contract::new(now, config.class(id));
                let target = config.target_of(id);
                return Arc::new(Class::new(name.to_owned(), target, contract));
            };
            known.contract.renew(now, config.class(id));
            if config.mode != ModeName::Sentry {
                known.set_delay(std::time::Duration::ZERO);
            }
            let target = config.target_in_band(id, known.contract.band());
            known.forecast.set_target(target);
            Arc::clone(known)
        })
        .collect()
}

fn change_replicas(
    old: &Replicas,
    changes: &[ReplicaChange],
    config: &SentryConfig,
) -> Result<(Replicas, Vec<ReplicaId>), SentryError> {
    let mut replicas = old.clone();
    let mut added = Vec::new();
    for change in changes {
        match *change {
            ReplicaChange::Remove(id) | ReplicaChange::Weigh(id, _) => known(&replicas, id)?,
            ReplicaChange::Add(weight) => {
                let index = number_for_another(&replicas)?;
                put_replica(&mut replicas, index, config, weight);
                added.push(ReplicaId(index as u16));
            }
        }
    }
    Ok((replicas, added))
}

fn known(replicas: &[Arc<Replica>], id: ReplicaId) -> Result<(), SentryError> {
    let replica = replicas.get(usize::from(id.0));
    match replica.map(|replica| replica.health()) {
        None | Some(Health::Retired) => Err(SentryError::NoSuchReplica(id.0)),
        Some(_) => Ok(()),
    }
}

/// A number that no permit refers to.
fn number_for_another(replicas: &Replicas) -> Result<usize, SentryError> {
    let reusable = |replica: &Arc<Replica>| {
        // A permit in flight would be given back to a stranger, hence the second condition.
        replica.health() == Health::Retired && replica.is_idle()
    };
    match replicas.iter().position(reusable) {
        Some(index) => Ok(index),
        None if replicas.len() < REPLICAS_MAX => Ok(replicas.len()),
        None => Err(too_many_replicas()),
    }
}

fn too_many_replicas() -> SentryError {
    SentryError::TooMany {
        what: "replicas",
        limit: REPLICAS_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::Slots;

    #[test]
    fn ids_stay_and_are_used_again_only_when_nothing_refers_to_them() {
        let config = SentryConfig::default();
        let plan = Plan::new(&config, &[NonZeroU32::MIN; 3], Timestamp::ZERO).unwrap();
        let now = Timestamp::ZERO;
        assert!(plan.replicas[1].take(now, Slots::Free));
        let generation = plan.replicas[1].enter();
        plan.replicas[1].set_health(Health::Retired);
        let (plan, added) = plan
            .changed(&config, &[ReplicaChange::Add(NonZeroU32::MIN)], now)
            .unwrap();
        assert_eq!(added, [ReplicaId(3)]);
        plan.replicas[1].release(now, generation);
        let (plan, added) = plan
            .changed(&config, &[ReplicaChange::Add(NonZeroU32::MIN)], now)
            .unwrap();
        assert_eq!(added, [ReplicaId(1)]);
        assert!(plan.replicas[1].is_up());
    }

    #[test]
    fn removed_replica_cannot_be_removed_again() {
        let config = SentryConfig::default();
        let plan = Plan::new(&config, &[NonZeroU32::MIN], Timestamp::ZERO).unwrap();
        let remove = [ReplicaChange::Remove(ReplicaId(0))];
        assert!(plan.changed(&config, &remove, Timestamp::ZERO).is_ok());
        plan.replicas[0].set_health(Health::Retired);
        let refused = plan.changed(&config, &remove, Timestamp::ZERO).unwrap_err();
        assert_eq!(refused, SentryError::NoSuchReplica(0));
    }
}
