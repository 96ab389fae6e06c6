//! What the layer and the sidecar share: counting requests, the controller, and when it ticks.
//!
//! There is no timer: the first request that begins or ends after a sampling period is over ends
//! that period. After a silence one tick stands for all that were missed, since time without
//! requests says nothing about the service.
//!
//! **Demand is relative** (paper 004, section III-B, steps 3 and 4): each answer asks for `1 +
//! change` requests, and the proxy takes an answer without a demand for 1. A change that could not
//! be told, because the answer had ended in a way that leaves no place for it, is owed: it is added
//! to the next demand. What breaks it: an answer lost after it was handed to the connection. The
//! proxy's count and ours then differ by that one change for good.
//!
//! One lock, taken twice per request for some tens of nanoseconds (`examples/overhead.rs`), and
//! once per period for the time it takes to read the CPU accounting.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_sentry::brownout::{ServiceControl, ServiceControlConfig};

use crate::account::CpuAccount;
use crate::dimmer::{DimmerConfig, OwnDimmer};
use crate::flight::Flight;
use crate::usage::CpuMeter;
use crate::wire::{Instructions, Measurements};

/// Parameters of a nucleus.
#[derive(Debug, Clone, Copy)]
pub struct NucleusConfig {
    /// Sampling period of the service-time controller; the paper's is a quarter of a second.
    pub period: Duration,
    /// The controller's constants.
    pub control: ServiceControlConfig,
    /// Decide about optional content here where the proxy does not; without it everything is
    /// included then.
    pub dimmer: Option<DimmerConfig>,
}

impl Default for NucleusConfig {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(250),
            control: ServiceControlConfig::default(),
            dimmer: None,
        }
    }
}

/// Measures a service and runs its controller. Shared by all requests of the service.
#[derive(Debug)]
pub struct Nucleus {
    state: Mutex<State>,
    epoch: Instant,
}

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Neither an error of the service nor a stream.
    pub(crate) served: bool,
    /// With optional content.
    pub(crate) full: bool,
}

impl Answered {
    /// Only what was served in full tells the service-time controller something (004, III-B).
    fn is_sample(self) -> bool {
        self.served && self.full
    }
}

/// What a nucleus knows at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Requests in service.
    pub present: usize,
    /// Requests answered so far, aborted ones left out.
    pub answered: u64,
    /// How many requests the controller wants to have in service.
    pub concurrency: i64,
    /// Seconds that a request takes per request in service, as the controller estimates.
    pub gain_s: f64,
    /// CPU utilization over the last period, 0 to 1, where it is accounted for.
    pub utilization: Option<f64>,
}

impl Nucleus {
    /// A nucleus without CPU accounting when `cpu` is `None`.
    #[must_use]
    pub fn new(config: NucleusConfig, cpu: Option<CpuMeter>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                control: ServiceControl::new(config.control),
                period: config.period,
                next_tick: Timestamp::ZERO + config.period,
                present: 0,
                answered: 0,
                owed: 0,
                dimmer: config
                    .dimmer
                    .map(|dimmer| OwnDimmer::new(dimmer, config.period)),
                cpu: cpu.map(|meter| CpuAccount::new(meter, Timestamp::ZERO)),
            }),
            epoch: Instant::now(),
        })
    }

    /// A request begins.
    #[must_use]
    pub fn begin(self: &Arc<Self>, instructions: Instructions) -> Flight {
        let now = self.now();
        let mut state = self.state();
        state.advance(now);
        state.present += 1;
        if let Some(target_s) = instructions.service_target_s {
            state.control.set_setpoint(target_s);
        }
        let full = state.is_full(instructions.optional);
        drop(state);
        Flight::new(Arc::clone(self), now, full)
    }

    /// What it knows now.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let state = self.state();
        Reading {
            present: state.present,
            answered: state.answered,
            concurrency: state.control.concurrency(),
            gain_s: state.control.gain_s(),
            utilization: state.cpu.as_ref().and_then(CpuAccount::utilization),
        }
    }

    /// A request was answered. Whether that answer carries what is returned is `told`.
    pub(crate) fn answered(
        &self,
        now: Timestamp,
        service: Duration,
        how: Answered,
        told: bool,
    ) -> Measurements {
        self.state().answered(now, service, how, told)
    }

    /// A request was aborted: counted out, and nothing else.
    pub(crate) fn aborted(&self) {
        let now = self.now();
        let mut state = self.state();
        state.advance(now);
        state.present -= 1;
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.epoch.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in a critical section panics halfway through an update.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    control: ServiceControl,
    period: Duration,
    next_tick: Timestamp,
    present: usize,
    answered: u64,
    /// Changes of demand that no answer has carried yet.
    owed: i64,
    dimmer: Option<OwnDimmer>,
    cpu: Option<CpuAccount>,
}

impl State {
    /// Whether a request that has just been counted in is answered in full.
    fn is_full(&mut self, told: Option<bool>) -> bool {
        let present = self.present;
        let own = || self.dimmer.as_mut().map(|dimmer| dimmer.decide(present));
        told.or_else(own).unwrap_or(true)
    }

    /// Accounts for the time up to `now`, and ends the sampling period when it is over.
    fn advance(&mut self, now: Timestamp) {
        if let Some(cpu) = &mut self.cpu {
            cpu.advance(now, self.present);
        }
        if now >= self.next_tick {
            self.next_tick = now + self.period;
            self.control.tick(self.present);
            if let Some(dimmer) = &mut self.dimmer {
                dimmer.tick();
            }
            if let Some(cpu) = &mut self.cpu {
                cpu.close(now);
            }
        }
    }

    fn answered(
        &mut self,
        now: Timestamp,
        service: Duration,
        how: Answered,
        told: bool,
    ) -> Measurements {
        self.advance(now);
        self.present -= 1;
        self.answered += 1;
        let service_s = service.as_secs_f64();
        if let Some(dimmer) = self.dimmer.as_mut().filter(|_| how.served) {
            dimmer.on_answer(service_s, how.full);
        }
        let change = self.control.on_completion(service_s, how.is_sample()) - 1;
        let owed = mem::take(&mut self.owed) + change;
        if !told {
            self.owed = owed;
        }
        Measurements {
            demand: 1 + owed,
            service_s,
            cpu_s: self.cpu.as_ref().and_then(|cpu| cpu.of_request(service_s)),
            utilization: self.cpu.as_ref().and_then(CpuAccount::utilization),
            dimmer: self.dimmer.as_ref().map(OwnDimmer::share),
            // The one that ends is still in service when the proxy reads this.
            in_service: u32::try_from(self.present + 1).unwrap_or(u32::MAX),
            queue_s: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET_S: f64 = 0.5;

    fn state() -> State {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let mut state = Arc::into_inner(nucleus)
            .unwrap()
            .state
            .into_inner()
            .unwrap();
        state.control.set_setpoint(TARGET_S);
        state
    }

    /// Serves requests at `gain_s` per request in service for some periods; what is told is added
    /// to `held`, as a proxy does.
    fn serve(state: &mut State, held: &mut i64, from_s: f64, told: impl Fn(usize) -> bool) {
        for step in 0..100 {
            let now = Timestamp::from_secs_f64(from_s + 0.05 * step as f64);
            state.advance(now);
            state.present += 1;
            let service = Duration::from_secs_f64(0.01 * *held as f64);
            let full = Answered {
                served: true,
                full: true,
            };
            let report = state.answered(now, service, full, told(step));
            if told(step) {
                *held += report.demand - 1;
            }
        }
    }

    #[test]
    fn tick_is_due_once_per_period_and_once_after_a_silence() {
        let mut state = state();
        let first = state.next_tick;
        state.advance(Timestamp::ZERO);
        assert_eq!(state.next_tick, first);
        state.advance(Timestamp::from_secs_f64(60.0));
        assert_eq!(state.next_tick, Timestamp::from_secs_f64(60.25));
    }

    #[test]
    fn demands_add_up_to_the_wanted_concurrency() {
        let mut state = state();
        let mut held = 1;
        serve(&mut state, &mut held, 0.0, |_| true);
        assert!(held > 1, "the controller asked for more: {held}");
        assert_eq!(held, state.control.concurrency());
    }

    #[test]
    fn what_could_not_be_told_is_owed_to_the_next_answer() {
        let mut state = state();
        let mut held = 1;
        serve(&mut state, &mut held, 0.0, |step| step % 3 == 0);
        assert!(held > 1, "the controller asked for more: {held}");
        assert_eq!(held, state.control.concurrency());
    }

    #[test]
    fn what_the_proxy_says_goes_before_the_own_dimmer() {
        let mut state = state();
        assert!(state.is_full(None), "nobody says anything");
        let dimmer = DimmerConfig {
            kind: crate::DimmerKind::BrownoutCc,
            setpoint: Duration::from_secs(1),
        };
        state.dimmer = Some(OwnDimmer::new(dimmer, Duration::from_millis(250)));
        state.present = 5;
        assert!(
            !state.is_full(None),
            "five at once are too many to begin with"
        );
        assert!(state.is_full(Some(true)));
        assert!(!state.is_full(Some(false)));
    }

    #[test]
    fn only_full_answers_that_succeeded_are_samples() {
        for (served, full) in [(false, false), (false, true), (true, false), (true, true)] {
            let sample = Answered { served, full }.is_sample();
            assert_eq!(sample, served && full);
        }
    }

    #[test]
    fn requests_without_a_target_keep_the_demand_at_one() {
        let mut state = state();
        state.control.set_setpoint(0.0);
        let mut held = 1;
        serve(&mut state, &mut held, 0.0, |_| true);
        assert_eq!(held, 1);
    }
}
