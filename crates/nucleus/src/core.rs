//! What the layer and the sidecar share: counting requests, the controller, and when it ticks.
//!
//! There is no timer: a request that begins or ends after a sampling period is over first ends that
//! period. A service without requests has nothing to control.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_sentry::brownout::{ServiceControl, ServiceControlConfig};

use crate::usage::CpuMeter;
use crate::wire::{Instructions, Measurements};

/// Parameters of a nucleus.
#[derive(Debug, Clone, Copy)]
pub struct NucleusConfig {
    /// Sampling period of the service-time controller; the paper's is a quarter of a second.
    pub period: Duration,
    /// The controller's constants.
    pub control: ServiceControlConfig,
}

impl Default for NucleusConfig {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(250),
            control: ServiceControlConfig::default(),
        }
    }
}

/// Measures a service and runs its controller. Shared by all requests of the service.
#[derive(Debug)]
pub struct Nucleus {
    state: Mutex<State>,
    cpu: Option<CpuMeter>,
    epoch: Instant,
}

#[derive(Debug)]
struct State {
    control: ServiceControl,
    period: Duration,
    next_tick: Timestamp,
    present: usize,
    completed: u64,
    cpu: CpuWindow,
}

/// CPU use over the last sampling period.
#[derive(Debug, Default)]
struct CpuWindow {
    began: Timestamp,
    used: Duration,
    completed: u64,
    per_request_s: Option<f64>,
    utilization: Option<f64>,
}

impl Nucleus {
    /// A nucleus without CPU accounting when `cpu` is `None`.
    #[must_use]
    pub fn new(config: NucleusConfig, cpu: Option<CpuMeter>) -> Arc<Self> {
        let state = State {
            control: ServiceControl::new(config.control),
            period: config.period,
            next_tick: Timestamp::ZERO + config.period,
            present: 0,
            completed: 0,
            cpu: CpuWindow::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            cpu,
            epoch: Instant::now(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.epoch.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in a critical section panics halfway through an update.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    #[must_use]
    pub fn begin(self: &Arc<Self>, instructions: Instructions) -> Flight {
        let now = self.now();
        let mut state = self.state();
        state.catch_up(now, self.cpu.as_ref());
        if let Some(target_s) = instructions.service_target_s {
            state.control.set_setpoint(target_s);
        }
        state.present += 1;
        Flight {
            nucleus: Arc::clone(self),
            began: now,
            full: instructions.full,
            landed: false,
        }
    }
}

impl State {
    /// Ends all sampling periods that are over; after a long silence one tick is enough, because a
    /// period without samples changes nothing that the next one would not.
    fn catch_up(&mut self, now: Timestamp, cpu: Option<&CpuMeter>) {
        if now < self.next_tick {
            return;
        }
        self.control.tick(self.present);
        self.next_tick = now + self.period;
        if let Some((meter, used)) = cpu.and_then(|meter| Some((meter, meter.read().ok()?))) {
            self.cpu.close(now, used, self.completed, meter.cores());
        }
    }
}

impl CpuWindow {
    fn close(&mut self, now: Timestamp, used: Duration, completed: u64, cores: f64) {
        let spent_s = used.saturating_sub(self.used).as_secs_f64();
        let lasted_s = now.since(self.began).as_secs_f64();
        let requests = completed.saturating_sub(self.completed);
        if lasted_s > 0.0 {
            self.utilization = Some((spent_s / (lasted_s * cores)).min(1.0));
        }
        if requests > 0 {
            self.per_request_s = Some(spent_s / requests as f64);
        }
        (self.began, self.used, self.completed) = (now, used, completed);
    }
}

/// A request in service. Dropping it without [`Flight::land`] is how an aborted request ends: it
/// is counted out and is no sample.
#[derive(Debug)]
pub struct Flight {
    nucleus: Arc<Nucleus>,
    began: Timestamp,
    full: bool,
    landed: bool,
}

impl Flight {
    /// Whether the application should include optional content.
    #[must_use]
    pub fn full(&self) -> bool {
        self.full
    }

    /// The request was answered: what to tell the proxy.
    #[must_use]
    pub fn land(mut self) -> Measurements {
        self.landed = true;
        let now = self.nucleus.now();
        let service_s = now.since(self.began).as_secs_f64();
        let mut state = self.nucleus.state();
        state.catch_up(now, self.nucleus.cpu.as_ref());
        state.present -= 1;
        state.completed += 1;
        Measurements {
            demand: state.control.on_completion(service_s, self.full),
            service_s,
            cpu_s: state.cpu.per_request_s,
            utilization: state.cpu.utilization,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.landed {
            self.nucleus.state().present -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Instructions = Instructions {
        full: true,
        service_target_s: Some(0.1),
    };

    #[test]
    fn every_request_is_counted_out_once() {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let first = nucleus.begin(FULL);
        let second = nucleus.begin(FULL);
        assert_eq!(nucleus.state().present, 2);
        drop(first);
        let told = second.land();
        assert_eq!(nucleus.state().present, 0);
        assert_eq!(nucleus.state().completed, 1);
        assert_eq!(told.demand, 1, "one ended, one more is wanted");
    }

    #[test]
    fn utilization_is_of_the_cores_it_may_use() {
        let mut window = CpuWindow::default();
        let at = |seconds| Timestamp::from_secs_f64(seconds);
        window.close(at(1.0), Duration::from_millis(500), 10, 2.0);
        assert_eq!(window.utilization, Some(0.25));
        assert_eq!(window.per_request_s, Some(0.05));
        window.close(at(2.0), Duration::from_millis(500), 10, 2.0);
        assert_eq!(window.utilization, Some(0.0));
        assert_eq!(
            window.per_request_s,
            Some(0.05),
            "without requests the last figure stands"
        );
    }

    #[test]
    fn a_tick_is_due_once_per_period() {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let mut state = nucleus.state();
        let first = state.next_tick;
        state.catch_up(Timestamp::ZERO, None);
        assert_eq!(state.next_tick, first);
        state.catch_up(Timestamp::from_secs_f64(60.0), None);
        assert_eq!(state.next_tick, Timestamp::from_secs_f64(60.25));
    }
}
