//! Carries out what the [`Machine`] decides: sends probes, tells the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{ReplicaId, Report};
use tokio::sync::futures::Notified;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::load_reports;
use super::probe::{Answer, probe};
use super::{Action, Machine, explain};
use crate::application::Application;
use crate::config::{Config, Origin};
use crate::upstream::Replica;

/// How often replicas are looked at while one of them is not well: nothing wakes the driver when
/// requests show that it is well again.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(1);

/// The same while all are well: one that fails wakes the driver.
const LOOK_WELL: Duration = Duration::from_secs(60);

/// Looks after the replicas' health until it is dropped; `notice` gets a line for every replica
/// that is taken out or let back.
pub async fn run(application: Arc<Application>, seed: u64, notice: impl Fn(&str)) {
    let config = application.config();
    let mut driver = Driver {
        machine: Machine::new(config.health.clone(), seed),
        application,
        roster: BTreeMap::new(),
        config: None,
        ailing: BTreeSet::new(),
        probes: JoinSet::new(),
        followed: BTreeMap::new(),
        notice,
    };
    let application = Arc::clone(&driver.application);
    loop {
        // Before the settings are read, so that no change of them is missed.
        let changed = application.changed();
        driver.take_over_config();
        driver.handle_timeout();
        driver.wait(changed).await;
    }
}

struct Driver<N> {
    machine: Machine,
    application: Arc<Application>,
    /// Who has which id; ids of removed replicas are given to new ones.
    roster: BTreeMap<ReplicaId, Origin>,
    config: Option<Arc<Config>>,
    /// Replicas that fail and stay in, since no other one works; it has been said of them.
    ailing: BTreeSet<ReplicaId>,
    probes: JoinSet<(ReplicaId, Answer)>,
    /// Replicas whose load reports are read out of band.
    followed: BTreeMap<ReplicaId, Followed>,
    notice: N,
}

/// A replica whose load reports are read, by a task that ends with this.
struct Followed {
    replica: Arc<Replica>,
    interval: Duration,
    _task: JoinSet<()>,
}

impl<N: Fn(&str)> Driver<N> {
    fn take_over_config(&mut self) {
        let config = self.application.config();
        if self
            .config
            .as_ref()
            .is_some_and(|old| Arc::ptr_eq(old, &config))
        {
            return;
        }
        let roster = self.read_roster();
        let stays = |(id, origin): &(&ReplicaId, &Origin)| self.roster.get(id) == Some(origin);
        let old: Vec<_> = roster.iter().filter(stays).map(|(&id, _)| id).collect();
        let all: Vec<_> = roster.keys().copied().collect();
        let now = self.application.now();
        self.machine.reconfigure(now, config.health.clone(), &old);
        self.machine.reconfigure(now, config.health.clone(), &all);
        self.roster = roster;
        self.follow_reports(config.upstream.load_reports.map(|interval| *interval));
        self.config = Some(config);
    }

    /// Reads the reports of all replicas from now on, at this interval; of none without one.
    fn follow_reports(&mut self, interval: Option<Duration>) {
        let settings = self.application.settings();
        let mut before = std::mem::take(&mut self.followed);
        let Some(interval) = interval else { return };
        for &id in self.roster.keys() {
            let Some(replica) = settings.replica(id) else {
                continue;
            };
            let same = |it: &Followed| Arc::ptr_eq(&it.replica, replica) && it.interval == interval;
            let kept = before.remove(&id).filter(same);
            let followed = kept.unwrap_or_else(|| {
                let (application, replica) = (Arc::clone(&self.application), Arc::clone(replica));
                let mut task = JoinSet::new();
                let its = Arc::clone(&replica);
                task.spawn(load_reports::follow(application, its, id, interval));
                Followed {
                    replica,
                    interval,
                    _task: task,
                }
            });
            self.followed.insert(id, followed);
        }
    }

    fn read_roster(&self) -> BTreeMap<ReplicaId, Origin> {
        let settings = self.application.settings();
        let ids = settings.replica_ids().iter();
        ids.filter(|&&id| !settings.is_draining(id))
            .filter_map(|&id| Some((id, settings.replica(id)?.origin().clone())))
            .collect()
    }

    fn handle_timeout(&mut self) {
        let now = self.application.now();
        for action in self.machine.handle_timeout(now, self.application.board()) {
            self.carry_out(now, action);
        }
        self.tell_ailing();
    }

    /// Says once of a replica that it fails although it cannot be taken out, and once that it is
    /// well.
    fn tell_ailing(&mut self) {
        for (&id, origin) in &self.roster {
            let trip = self.application.board().trip(id);
            match trip.filter(|_| self.machine.is_up(id)) {
                Some(trip) if self.ailing.insert(id) => {
                    let cause = explain(&self.application, id, trip.as_str());
                    let line = format!("{cause}, and it is asked all the same: no other one works");
                    (self.notice)(&format!("replica {origin}: {line}"));
                }
                // One that was taken out is told of elsewhere.
                None if self.ailing.remove(&id) && self.machine.is_up(id) => {
                    (self.notice)(&format!("replica {origin}: it answers again"));
                }
                _ => {}
            }
        }
        self.ailing.retain(|id| self.roster.contains_key(id));
    }

    fn carry_out(&mut self, now: Timestamp, action: Action) {
        match action {
            Action::Probe(id) => self.send_probe(id),
            Action::SetHealth { replica, up, cause } => {
                let whom = match self.roster.get(&replica) {
                    Some(origin) => origin.to_string(),
                    None => format!("{}", replica.0),
                };
                let what = if up {
                    "gets requests again"
                } else {
                    "gets no requests"
                };
                let cause = explain(&self.application, replica, cause);
                (self.notice)(&format!("replica {whom} {what}: {cause}"));
                self.application.set_health(now, replica, up);
            }
        }
    }

    fn send_probe(&mut self, id: ReplicaId) {
        let config = Arc::clone(self.config.as_ref().expect("taken over before any timeout"));
        let settings = self.application.settings();
        let Some(replica) = settings.replica(id).cloned() else {
            return;
        };
        self.probes.spawn(async move {
            let within = *config.health.active.timeout;
            let answer = tokio::time::timeout(within, probe(&replica, &config)).await;
            let silent = |_| replica.note_failed_check("no answer in time".into());
            (id, answer.map_err(silent).unwrap_or_default())
        });
    }

    fn on_answer(&mut self, id: ReplicaId, answer: Answer) {
        let now = self.application.now();
        if answer.utilization.is_some() {
            let report = Report {
                utilization: answer.utilization,
                ..Report::default()
            };
            self.application.sentry().on_report(now, id, &report);
        }
        let board = self.application.board();
        let action = self.machine.on_probe(now, board, id, answer.well);
        action
            .into_iter()
            .for_each(|action| self.carry_out(now, action));
    }

    /// Until a timer is due, a replica trips, a probe ends, the settings change, or it is time to
    /// look.
    async fn wait(&mut self, changed: Notified<'_>) {
        let board = self.application.board();
        let is_well = |id: &ReplicaId| self.machine.is_up(*id) && board.trip(*id).is_none();
        let look = if self.roster.keys().all(is_well) {
            LOOK_WELL
        } else {
            SETTINGS_INTERVAL
        };
        let due = self
            .application
            .clock()
            .instant(self.machine.poll_timeout());
        let until = Instant::from_std(due).min(Instant::now() + look);
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.application.board().alarmed() => {}
            () = changed => {}
            Some(ended) = self.probes.join_next() => {
                if let Ok((id, answer)) = ended {
                    self.on_answer(id, answer);
                }
            }
        }
    }
}
