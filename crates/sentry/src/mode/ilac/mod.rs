//! Mode `ilac`: balancing joined with graceful degradation (004).
//!
//! One central queue; a request leaves it when a replica has a free slot, and the replica with the
//! most free slots gets it. Three controllers, slowest first:
//!
//! 1. the **top level** moves the response time shared out between queue and replica so that the
//!    chosen quantile of full responses meets the setpoint (eq. 12, [`Dimming`]);
//! 2. the **waiting-time** controller decides which requests are served in full (eq. 1 and 4,
//!    [`Dimming`]);
//! 3. per replica a **service-time** controller finds how many requests at once it serves within
//!    the time aimed at (eq. 9 and 11, [`member`]). A replica with a nucleus runs it itself and
//!    asks by demand; for one that knows nothing of it, it runs here, on what is measured from
//!    outside.
//!
//! When leaving content out is not enough, [`admission`] refuses at the queue, the least important
//! first. A replica that leaves the pack, or goes silent, is given less ([`fault`]).
//!
//! A full response may take longer on an idle replica than the replica's part of the setpoint,
//! `(1 - gamma) setpoint`. With the paper's rule such a replica gets one request at a time, and all
//! but one of its processors idle. Except in the paper's preset it aims at a quarter more than a
//! response takes alone then: as many as hardly hold each other up.
//!
//! What breaks it: a full response that alone takes more than half of the setpoint.

mod admission;
mod fault;
mod member;

use std::time::Duration;

use tidegate_control::Timestamp;

use self::admission::Admission;
use self::member::{Member, Period};
use super::dimming::{Dimming, Scope};
use super::{Handover, Step, Strategy};
use crate::api::ReplicaId;
use crate::config::{IlacConfig, SentryConfig};
use crate::error::SentryError;
use crate::event::Event;
use crate::gate::{ContentRule, Gate};
use crate::plan::Plan;
use crate::status::{BrownoutReplica, BrownoutStatus};

/// Mode `ilac`: balancing joined with graceful degradation (004).
#[derive(Debug)]
pub(crate) struct Ilac {
    config: IlacConfig,
    dimming: Dimming,
    members: Vec<Member>,
    admission: Admission,
}

impl Ilac {
    pub(crate) fn new(config: &SentryConfig, _now: Timestamp) -> Result<Self, SentryError> {
        config.ilac.validate(config.target)?;
        let setpoint = config.ilac.setpoint_or(config.target).unwrap_or_default();
        let cascade = config.ilac.cascade(setpoint);
        Ok(Self {
            config: config.ilac.clone(),
            dimming: Dimming::new(cascade, Scope::Everywhere, config.low_traffic.min_samples),
            members: Vec::new(),
            admission: Admission::new(setpoint.as_secs_f64()),
        })
    }

    fn follow_replicas(&mut self, plan: &Plan) {
        for _ in self.members.len()..plan.replicas.len() {
            self.members.push(Member::new(&self.config));
        }
    }

    /// The service time that replicas with a loop of their own are told: the median of what the
    /// loops here aim at.
    fn service_s(&self) -> f64 {
        let (own_s, setpoint_s) = (self.dimming.service_setpoint_s(), self.dimming.setpoint_s());
        let aims = self
            .members
            .iter()
            .map(|member| member.aim_s(own_s, setpoint_s));
        let mut aims: Vec<f64> = aims.collect();
        aims.sort_by(f64::total_cmp);
        aims.get(aims.len() / 2).copied().unwrap_or(own_s)
    }

    fn step_members(&mut self, step: &mut Step<'_>) {
        let service_s = self.dimming.service_setpoint_s();
        let setpoint_s = self.dimming.setpoint_s();
        let gains: Vec<Option<f64>> = self.members.iter().map(Member::known_gain_s).collect();
        for (index, member) in self.members.iter_mut().enumerate() {
            let replica = &step.plan.replicas[index];
            let pack_s = fault::pack_without(&gains, index);
            let period = Period {
                seconds: step.interval.seconds,
                service_s,
                setpoint_s,
                pack_s,
                refusing: self.dimming.refusing(),
            };
            let changed = member.step(replica, &period);
            replica.grant(member.wanted(replica), step.plan.config.limits.window_max);
            member.granted(replica.limit());
            if let Some(standing) = changed {
                step.observer.on_event(&Event::Standing {
                    at: step.now,
                    replica: ReplicaId(index as u16),
                    standing,
                    gain_seconds: member.gain_s(),
                    pack_seconds: pack_s.unwrap_or(f64::NAN),
                });
            }
        }
    }
}

impl Strategy for Ilac {
    fn interval(&self) -> Duration {
        self.config.interval.0
    }

    fn start(&mut self, _: Timestamp, plan: &Plan, gate: &Gate, handover: Option<&Handover>) {
        gate.open();
        self.admission.stand_by(plan);
        self.members.clear();
        for replica in plan.replicas.iter() {
            let mut member = Member::new(&self.config);
            let held = match handover {
                Some(_) => replica.in_flight().max(1),
                None => 1,
            };
            member.go_on_from(held);
            replica.trust(u32::MAX);
            replica.set_limit(held);
            self.members.push(member);
        }
    }

    fn step(&mut self, step: &mut Step<'_>) {
        self.follow_replicas(step.plan);
        self.dimming.step(step);
        self.step_members(step);
        let reduced = self.dimming.reduced_rate();
        let drain = reduced.filter(|_| self.dimming.refusing());
        self.admission.step(step, drain);
        // Replicas with a nucleus run the loop themselves: they are told the same setpoint.
        step.content.set_service_target(self.service_s());
    }

    fn reconfigure(&mut self, _: Timestamp, plan: &Plan) -> bool {
        let ilac = &plan.config.ilac;
        let setpoint = ilac.setpoint_or(plan.config.target).unwrap_or_default();
        self.dimming.set_config(ilac.cascade(setpoint));
        self.admission.set_target(setpoint.as_secs_f64());
        for member in &mut self.members {
            member.set_config(ilac);
        }
        self.config = ilac.clone();
        true
    }

    fn drain_rate(&self) -> Option<f64> {
        self.admission.drain_rate()
    }

    fn overloaded(&self) -> Option<bool> {
        Some(self.dimming.refusing())
    }

    fn content_rule(&self) -> Option<ContentRule> {
        Some(ContentRule {
            service_target_s: Some(self.service_s()),
            ..self.dimming.rule()
        })
    }

    fn brownout(&self) -> Option<BrownoutStatus> {
        let members = self.members.iter().enumerate();
        let replicas = members.map(|(index, member)| BrownoutReplica {
            id: ReplicaId(index as u16),
            concurrency: member.concurrency(),
            gain_seconds: member.gain_s(),
            asks: member.asks(),
            standing: member.standing(),
        });
        Some(BrownoutStatus {
            replicas: replicas.collect(),
            service_target_seconds: Some(self.service_s()),
            ..self.dimming.status()
        })
    }
}
