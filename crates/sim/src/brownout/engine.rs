//! The admission engine of the live proxy in front of the plant.

use std::collections::HashMap;
use std::num::NonZeroU32;

use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, Ending, Event, Permit, ReplicaChange, ReplicaId, Report, Resolution, Sentry,
    SentryConfig, SentryError, Verdict,
};

use super::replica::Job;

/// A request that goes to a replica of the plant now.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) replica: usize,
    pub(super) job: Job,
}

/// The engine, with what the plant's requests hold of it.
#[derive(Debug)]
pub(super) struct Engine {
    /// Requests are known by when they were created, in seconds.
    sentry: Sentry<f64>,
    /// By the plant's index.
    replicas: Vec<ReplicaId>,
    permits: HashMap<u64, Permit>,
    admitted: u64,
    pub(super) shed: u64,
}

impl Engine {
    pub(super) fn new(
        config: &SentryConfig,
        replicas: usize,
        seed: u64,
    ) -> Result<Self, SentryError> {
        Ok(Self {
            sentry: Sentry::new(config, replicas, Timestamp::ZERO, seed)?,
            replicas: (0..replicas).map(|index| ReplicaId(index as u16)).collect(),
            permits: HashMap::new(),
            admitted: 0,
            shed: 0,
        })
    }

    pub(super) fn arrive(&mut self, now: Timestamp) -> Option<Sent> {
        let created_s = now.as_secs_f64();
        match self
            .sentry
            .on_arrival(now, &Arrival::default(), || created_s)
        {
            Verdict::Admit(permit) => self.admit(now, created_s, permit),
            Verdict::Wait(_) => None,
            Verdict::Shed(_) => {
                self.shed += 1;
                None
            }
        }
    }

    /// A replica has answered; who goes next.
    pub(super) fn complete(&mut self, now: Timestamp, job: Job) -> Vec<Sent> {
        let Some(permit) = self.permits.remove(&job.number) else {
            return Vec::new();
        };
        let took_s = now.as_secs_f64() - job.dispatched_s;
        let report = Report {
            measured_seconds: Some(took_s),
            service_seconds: Some(took_s),
            ..Report::default()
        };
        self.sentry.on_report(now, permit.replica(), &report);
        let resolved = self.sentry.on_end(now, permit, Ending::Served).collect();
        self.resolve(now, resolved)
    }

    /// The replica's answer is in no statistics any more.
    pub(super) fn forget(&mut self, now: Timestamp, job: Job) -> Vec<Sent> {
        let Some(permit) = self.permits.remove(&job.number) else {
            return Vec::new();
        };
        let resolved = self.sentry.on_end(now, permit, Ending::Ignored).collect();
        self.resolve(now, resolved)
    }

    /// One more replica, the last.
    pub(super) fn join(&mut self, now: Timestamp) -> Vec<Sent> {
        let (mut added, resolved) = self.change(now, &[ReplicaChange::Add(NonZeroU32::MIN)]);
        self.replicas.append(&mut added);
        self.resolve(now, resolved)
    }

    /// The last replicas leave, until `left` of them are there.
    pub(super) fn shrink(&mut self, now: Timestamp, left: usize) -> Vec<Sent> {
        let gone = self.replicas.split_off(left);
        let changes: Vec<_> = gone.into_iter().map(ReplicaChange::Remove).collect();
        let (_, resolved) = self.change(now, &changes);
        self.resolve(now, resolved)
    }

    fn change(
        &mut self,
        now: Timestamp,
        changes: &[ReplicaChange],
    ) -> (Vec<ReplicaId>, Vec<(f64, Resolution)>) {
        let (added, resolutions) = self
            .sentry
            .reconfigure(now, &self.sentry.config(), changes)
            .expect("replicas come and go within the engine's bounds");
        (added, resolutions.collect())
    }

    pub(super) fn next_timer(&self) -> Timestamp {
        self.sentry.poll_timeout()
    }

    pub(super) fn tick(&mut self, now: Timestamp) -> Vec<Sent> {
        let ticked = self.sentry.handle_timeout(now, &mut |_: &Event| {});
        let resolved = ticked.collect();
        self.resolve(now, resolved)
    }

    fn resolve(&mut self, now: Timestamp, resolved: Vec<(f64, Resolution)>) -> Vec<Sent> {
        let mut sent = Vec::new();
        for (created_s, resolution) in resolved {
            match resolution {
                Resolution::Admit(permit) => sent.extend(self.admit(now, created_s, permit)),
                Resolution::Shed(_) => self.shed += 1,
            }
        }
        sent
    }

    /// None for a replica that has left meanwhile: its answer would be in no statistics.
    fn admit(&mut self, now: Timestamp, created_s: f64, permit: Permit) -> Option<Sent> {
        let replica = self.replicas.iter().position(|&id| id == permit.replica());
        let Some(replica) = replica else {
            self.sentry
                .on_end(now, permit, Ending::Ignored)
                .for_each(drop);
            return None;
        };
        let job = Job {
            created_s,
            dispatched_s: now.as_secs_f64(),
            full: Some(permit.optional().unwrap_or(true)),
            number: self.admitted,
        };
        self.permits.insert(self.admitted, permit);
        self.admitted += 1;
        Some(Sent { replica, job })
    }
}
