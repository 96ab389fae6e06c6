//! Graceful degradation: optional content is switched off before anybody is refused.
//!
//! An application that can leave something out (recommendations, related items) says so, and each
//! request is then served in full or reduced to what is mandatory. Who decides, and from what, is
//! what the strategies differ in:
//!
//! | strategy | who decides | from | module |
//! | --- | --- | --- | --- |
//! | ILAC (paper 004) | the balancer, when it dispatches | waiting time in the one central queue | [`cascade`], [`service`] |
//! | brownout | the replica, by a coin of weight theta | its response times | [`dimmer`] |
//! | brownout-CC | the replica, by its queue length | its response times, by a cascade | [`queue_cascade`] |
//!
//! The last two leave the choice of the replica to a balancer of its own; [`weights`] has the one
//! made for them (EPBH). ILAC joins both decisions, which is why its loops do not fight.
//!
//! All of it is pure: samples come in with `on_*`, a `tick` is called once per sampling period.
//!
//! Decision: docs/decisions/0030-brownout-in-the-engine.md.

pub mod cascade;
pub mod dimmer;
pub mod queue_cascade;
mod samples;
pub mod service;
pub mod weights;

pub use cascade::{Cascade, CascadeConfig, CascadeSample};
pub use dimmer::Dimmer;
pub use queue_cascade::QueueCascade;
pub use samples::TickSamples;
pub use service::{ServiceControl, ServiceControlConfig};
pub use weights::EqualDimmers;
