//! A dimmer in the replica: it decides about optional content itself, where the proxy does not.
//!
//! The rivals of ILAC in paper 004. They are here for comparison, and for a replica behind a
//! balancer that knows nothing of content. What the proxy says goes first.

use std::time::Duration;

use tidegate_sentry::brownout::{Dimmer, QueueCascade};

/// How a replica decides about optional content by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DimmerConfig {
    /// Which controller.
    pub kind: DimmerKind,
    /// Wanted response time of the service at the 95th percentile.
    pub setpoint: Duration,
}

/// A controller of optional content in the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimmerKind {
    /// Brownout: a share of the answers is full, by response time.
    Brownout,
    /// Brownout-CC: answers are full while few requests are in service, by response time.
    BrownoutCc,
}

/// A dimmer at work.
#[derive(Debug)]
pub(crate) struct OwnDimmer {
    control: Control,
    /// Stands in for a coin: multiples of the golden ratio are spread evenly over 0 to 1, so that
    /// the share of full answers is what it should be over any few of them.
    turn: f64,
}

#[derive(Debug)]
enum Control {
    Share(Dimmer),
    Queue(QueueCascade),
}

/// The golden ratio without its whole part.
const GOLDEN: f64 = 0.618_033_988_749_895;

impl OwnDimmer {
    pub(crate) fn new(config: DimmerConfig, period: Duration) -> Self {
        let (setpoint_s, period_s) = (config.setpoint.as_secs_f64(), period.as_secs_f64());
        Self {
            control: match config.kind {
                DimmerKind::Brownout => Control::Share(Dimmer::new(setpoint_s, period_s)),
                DimmerKind::BrownoutCc => Control::Queue(QueueCascade::new(setpoint_s, period_s)),
            },
            turn: 0.0,
        }
    }

    /// Whether a request that makes the service hold `present` is answered in full.
    pub(crate) fn decide(&mut self, present: usize) -> bool {
        match &mut self.control {
            Control::Share(dimmer) => {
                self.turn = (self.turn + GOLDEN).fract();
                dimmer.decide(self.turn)
            }
            Control::Queue(cascade) => {
                cascade.on_arrival();
                cascade.decide(present)
            }
        }
    }

    pub(crate) fn on_answer(&mut self, service_s: f64, full: bool) {
        match &mut self.control {
            Control::Share(dimmer) => dimmer.on_response(service_s),
            Control::Queue(cascade) => cascade.on_response(service_s, full),
        }
    }

    pub(crate) fn tick(&mut self) {
        match &mut self.control {
            Control::Share(dimmer) => dimmer.tick(),
            Control::Queue(cascade) => cascade.tick(),
        }
    }

    /// The share of full answers of late.
    pub(crate) fn share(&self) -> f64 {
        match &self.control {
            Control::Share(dimmer) => dimmer.theta(),
            Control::Queue(cascade) => cascade.theta(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service whose answers take as long as the share of full ones says.
    fn settle(kind: DimmerKind, full_s: f64) -> f64 {
        let setpoint = Duration::from_secs(1);
        let mut dimmer = OwnDimmer::new(DimmerConfig { kind, setpoint }, setpoint / 4);
        let mut full_answers = 0;
        for period in 0..800 {
            let full = (0..40).filter(|_| dimmer.decide(20)).count();
            let response_s = full_s * full as f64 / 40.0;
            (0..40).for_each(|_| dimmer.on_answer(response_s, true));
            dimmer.tick();
            full_answers += if period >= 400 { full } else { 0 };
        }
        full_answers as f64 / (400.0 * 40.0)
    }

    #[test]
    fn share_of_full_answers_is_what_meets_the_setpoint() {
        let share = settle(DimmerKind::Brownout, 4.0);
        assert!((share - 0.25).abs() < 0.03, "{share}");
    }

    #[test]
    fn service_with_room_answers_in_full() {
        assert!(settle(DimmerKind::Brownout, 0.5) > 0.99);
    }
}
