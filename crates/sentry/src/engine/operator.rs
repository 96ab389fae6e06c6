//! What an operator, a health check or a reload does to the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_control::Timestamp;

use super::{Resolutions, Sentry};
use crate::api::{ClassId, ReplicaChange, ReplicaId};
use crate::config::SentryConfig;
use crate::error::SentryError;
use crate::event::Event;
use crate::mode::{self, PhaseName};
use crate::plan::Plan;
use crate::replica::{Health, UNLIMITED};
use crate::status::{ClassStatus, QueueStatus, ReplicaStatus, Status};

impl<T> Sentry<T> {
    /// A health check decided. Waiters for a replica that went down go elsewhere; without any
    /// healthy replica they are refused.
    pub fn set_health(&self, now: Timestamp, replica: ReplicaId, up: bool) -> Resolutions<'_, T> {
        let plan = self.plan.load_full();
        let Some(state) = plan.replica(replica) else {
            return self.no_resolutions(now);
        };
        if state.health() == Health::Retired || state.is_up() == up {
            return self.no_resolutions(now);
        }
        state.reports.start_anew();
        state.pace.forget();
        state.set_health(if up { Health::Up } else { Health::Down });
        self.note(Event::Health {
            at: now,
            replica,
            up,
        });
        self.resolutions(now)
    }

    /// Takes over a new configuration and a changed list of replicas, whole or not at all,
    /// without a bump: windows, estimates and the queue stay, and a new mode starts from where
    /// the old one stood. Returns the ids of the replicas added, in the order of `changes`.
    ///
    /// # Errors
    /// When the configuration contradicts itself or a change names an unknown replica; then
    /// nothing has changed.
    pub fn reconfigure(
        &self,
        now: Timestamp,
        config: &SentryConfig,
        changes: &[ReplicaChange],
    ) -> Result<(Vec<ReplicaId>, Resolutions<'_, T>), SentryError> {
        let mut adaptation = self.adaptation.lock();
        let old = self.plan.load_full();
        let (new, added) = old.changed(config, changes, now)?;
        adaptation.reconfigure(&old, &new, &self.gate, &self.content, now)?;
        for change in changes {
            if let ReplicaChange::Weigh(id, weight) = *change {
                new.weigh(id, weight);
            }
        }
        self.balancer.follow(new.balance(), &new.replicas);
        let new = Arc::new(new);
        self.plan.store(Arc::clone(&new));
        new.retire(changes);
        self.reclassify(&old, &new);
        self.dry_run.store(config.dry_run, Ordering::SeqCst);
        self.noted.store(true, Ordering::Relaxed);
        drop(adaptation);
        Ok((added, self.resolutions(now)))
    }

    /// Refuses what [`Sentry::reconfigure`] would refuse; nothing changes.
    ///
    /// # Errors
    /// As [`Sentry::reconfigure`].
    pub fn check(
        &self,
        now: Timestamp,
        config: &SentryConfig,
        changes: &[ReplicaChange],
    ) -> Result<(), SentryError> {
        self.plan.load().changed(config, changes, now)?;
        mode::strategy(config, now).map(drop)
    }

    /// The windows that mode `auto` has found, where they are not those it began with: for
    /// [`Sentry::resume`] of another engine.
    pub fn windows(&self) -> Vec<(ReplicaId, u32)> {
        self.adaptation.lock().windows()
    }

    /// Begins with windows that were found before, by an engine that is no more. They are believed
    /// no more than the first ones are: what they are good for is found out. For an engine that has
    /// served no request yet.
    pub fn resume(&self, now: Timestamp, windows: &[(ReplicaId, u32)]) {
        self.adaptation.lock().resume(now, windows);
    }

    /// Decide and report, but admit everything; what waits is admitted at once.
    pub fn set_dry_run(&self, now: Timestamp, on: bool) -> Resolutions<'_, T> {
        self.switch(now, "dry_run", &self.dry_run, on);
        self.resolutions(now)
    }

    /// Fails open: everything is admitted from now on, and what waits at once.
    pub fn set_kill_switch(&self, now: Timestamp, on: bool) -> Resolutions<'_, T> {
        self.switch(now, "kill_switch", &self.kill_switch, on);
        self.resolutions(now)
    }

    /// Refuses what arrives from now on; what waits or is in flight is finished.
    pub fn set_draining(&self, now: Timestamp, on: bool) {
        self.switch(now, "draining", &self.draining, on);
    }

    fn switch(&self, now: Timestamp, name: &'static str, switch: &AtomicBool, on: bool) {
        if switch.swap(on, Ordering::SeqCst) != on {
            self.note(Event::Switch { at: now, name, on });
        }
    }

    /// Keeps an event for the observer of the next tick.
    fn note(&self, event: Event) {
        self.adaptation.lock().note(event);
        self.noted.store(true, Ordering::Relaxed);
    }

    /// Whether the observer of the next tick has something to learn that no request brought about.
    pub fn has_news(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }

    /// Requests waiting or in flight, as a share of the windows of healthy replicas: above 1 there
    /// is a queue. `None` where no window limits them.
    pub fn pressure(&self) -> Option<f64> {
        let plan = self.plan.load();
        let windows: u64 = plan
            .up()
            .map(|(_, replica)| u64::from(replica.limit()))
            .sum();
        let limited = (1..u64::from(UNLIMITED)).contains(&windows);
        limited.then(|| f64::from(plan.in_system()) / windows as f64)
    }

    /// A picture of the engine.
    pub fn status(&self, now: Timestamp) -> Status {
        let plan = self.plan.load();
        let adaptation = self.adaptation.lock();
        Status {
            mode: plan.config.mode,
            dry_run: self.dry_run.load(Ordering::Relaxed),
            kill_switch: self.kill_switch.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
            drain_rate: adaptation.drain_rate(),
            overloaded: adaptation.overloaded(),
            controller: adaptation.controller(),
            blind: adaptation.is_blind(),
            borrowed: plan.config.borrowed().map(|borrowed| borrowed.message()),
            brownout: adaptation.brownout(),
            policing: adaptation.policing(&plan),
            bad_reports: self.tally.reports.bad(),
            moments: adaptation.moments(),
            replicas: replica_statuses(&plan, &adaptation.phases(), &adaptation.knees()),
            queue: QueueStatus {
                requests: self.parked.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed),
                bytes: self.parked_bytes.load(Ordering::Relaxed),
            },
            classes: class_statuses(&plan, now),
        }
    }
}

fn class_statuses(plan: &Plan, now: Timestamp) -> Vec<ClassStatus> {
    let configs = (0..).map(|index| plan.config.class(ClassId(index)));
    plan.classes
        .iter()
        .zip(configs)
        .map(|(class, config)| class.status(now, config))
        .collect()
}

fn replica_statuses(
    plan: &Plan,
    phases: &[PhaseName],
    knees: &[Option<f64>],
) -> Vec<ReplicaStatus> {
    plan.replicas
        .iter()
        .enumerate()
        .filter(|(_, replica)| replica.health() != Health::Retired || !replica.is_idle())
        .map(|(index, replica)| ReplicaStatus {
            id: ReplicaId(index as u16),
            up: replica.is_up(),
            aside: replica.pace.is_aside(),
            weight: replica.weight(),
            window: Some(replica.limit()).filter(|&limit| limit != UNLIMITED),
            phase: phases.get(index).copied(),
            knee: knees.get(index).copied().flatten(),
            in_flight: replica.in_flight(),
            streams: replica.streams(),
            served: replica.served(),
        })
        .collect()
}
