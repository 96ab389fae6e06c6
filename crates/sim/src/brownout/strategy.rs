//! The strategies that paper 004 compares, and ours.

use serde::Deserialize;
use tidegate_sentry::SentryConfig;
use tidegate_sentry::brownout::{
    CascadeConfig, Dimmer, QueueCascade, ServiceControl, ServiceControlConfig,
};

/// Who decides about optional content, and where requests go.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// One central queue, replicas that ask for work, the balancer decides.
    Ilac(IlacConfig),
    /// Requests are routed when they arrive, the replica decides.
    Routed {
        /// Where a request goes.
        route: Route,
        /// What decides in the replica.
        control: ReplicaControl,
    },
    /// The admission engine of the live proxy decides everything.
    Engine(Box<SentryConfig>),
}

/// ILAC's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IlacConfig {
    /// The balancer's two loops.
    pub cascade: CascadeConfig,
    /// The replicas' loop.
    pub service: ServiceControlConfig,
}

/// How a request finds its replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// One after the other.
    RoundRobin,
    /// Any of them.
    Random,
    /// The one with the fewest requests outstanding (SQF).
    ShortestQueue,
    /// The better of two chosen at random, by requests outstanding.
    PowerOfTwo,
    /// By weights that equalise the share of full responses (EPBH).
    EqualDimmers,
}

/// The controller in each replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaControl {
    /// The original brownout controller.
    Brownout,
    /// Brownout-CC.
    BrownoutCc,
}

/// A replica's controller.
#[derive(Debug, Clone)]
pub(super) enum Control {
    Service(ServiceControl),
    Dimmer(Dimmer),
    Queue(QueueCascade),
}

impl Strategy {
    pub(super) fn control(&self, setpoint_s: f64, period_s: f64) -> Control {
        match self {
            Self::Ilac(config) => Control::Service(ServiceControl::new(config.service)),
            Self::Routed {
                control: ReplicaControl::Brownout,
                ..
            } => Control::Dimmer(Dimmer::new(setpoint_s, period_s)),
            Self::Routed {
                control: ReplicaControl::BrownoutCc,
                ..
            } => Control::Queue(QueueCascade::new(setpoint_s, period_s)),
            // The engine has its own; nobody asks this one.
            Self::Engine(_) => {
                Control::Service(ServiceControl::new(ServiceControlConfig::default()))
            }
        }
    }
}

impl Control {
    /// Share of full responses as the balancer is told; ILAC's balancer needs none.
    pub(super) fn theta(&self) -> f64 {
        match self {
            Self::Service(_) => 1.0,
            Self::Dimmer(dimmer) => dimmer.theta(),
            Self::Queue(cascade) => cascade.theta(),
        }
    }

    pub(super) fn on_arrival(&mut self) {
        if let Self::Queue(cascade) = self {
            cascade.on_arrival();
        }
    }

    /// Decides for a request that the balancer left undecided.
    pub(super) fn decide(&mut self, present: usize, uniform: impl FnOnce() -> f64) -> bool {
        match self {
            Self::Service(_) => true,
            Self::Dimmer(dimmer) => dimmer.decide(uniform()),
            Self::Queue(cascade) => cascade.decide(present),
        }
    }

    /// Returns the demand to send back, zero for controllers that have none.
    pub(super) fn on_completion(&mut self, response_s: f64, full: bool) -> i64 {
        match self {
            Self::Service(service) => return service.on_completion(response_s, full),
            Self::Dimmer(dimmer) => dimmer.on_response(response_s),
            Self::Queue(cascade) => cascade.on_response(response_s, full),
        }
        0
    }

    pub(super) fn tick(&mut self, present: usize) {
        match self {
            Self::Service(service) => service.tick(present),
            Self::Dimmer(dimmer) => dimmer.tick(),
            Self::Queue(cascade) => cascade.tick(),
        }
    }
}
