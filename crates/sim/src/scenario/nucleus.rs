//! The nucleus of a simulated replica: the service-time controller of 004, asked and answered with
//! every request, as `tidegate-nucleus` does it in a real service.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::brownout::{ServiceControl, ServiceControlConfig};

/// Sampling period, the default of `tidegate-nucleus`.
const PERIOD: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Nucleus {
    control: ServiceControl,
    next_tick: Timestamp,
}

impl Nucleus {
    pub(super) fn new() -> Self {
        Self {
            control: ServiceControl::new(ServiceControlConfig::default()),
            next_tick: Timestamp::ZERO + PERIOD,
        }
    }

    /// A request came with the service time to aim at; `present` are there with it.
    pub(super) fn begin(&mut self, now: Timestamp, target: Option<Duration>, present: usize) {
        self.advance(now, present);
        if let Some(target) = target {
            self.control.set_setpoint(target.as_secs_f64());
        }
    }

    /// A request ended, `present` are left; returns its demand.
    pub(super) fn end(
        &mut self,
        now: Timestamp,
        took: Duration,
        full: bool,
        present: usize,
    ) -> i64 {
        self.advance(now, present);
        self.control.on_completion(took.as_secs_f64(), full)
    }

    fn advance(&mut self, now: Timestamp, present: usize) {
        if now >= self.next_tick {
            self.next_tick = now + PERIOD;
            self.control.tick(present);
        }
    }
}
