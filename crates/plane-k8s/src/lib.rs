//! The control plane in Kubernetes.
//!
//! ```text
//! TidegateApplication ─► accept ─► tidegate_planed::Daemon ─► Decision
//! EndpointSlices, scale, pools of the proxies ─► scaler ─► marks, drains, scale
//! Lease ─► which of several daemons acts              status ─► TidegateApplication, KEDA
//! ```
//!
//! What decides is here without the feature `client`: which objects are accepted (`accept`), what
//! is due for an application (`scaler`), what a status shows (`status`), and the external scaler
//! for KEDA ([`Keda`]). The feature adds what talks to an API server, `Kubernetes`.
//!
//! Decision: docs/decisions/0232-one-daemon-acts-the-others-follow.md.

mod keda;
mod resource;

// Without the feature only tests use what decides.
#[cfg(any(test, feature = "client"))]
mod accept;
#[cfg(any(test, feature = "client"))]
mod scaler;
#[cfg(any(test, feature = "client"))]
mod status;

#[cfg(feature = "client")]
mod cluster;
#[cfg(feature = "client")]
mod driver;
#[cfg(feature = "client")]
mod objects;

pub use keda::Keda;
pub use resource::{
    ApplicationSpec, Band, Class, Condition, ResourceStatus, ScaleTarget, SpecDrain, SpecMode,
    SpecPool,
};

#[cfg(feature = "client")]
pub use cluster::Kubernetes;
#[cfg(feature = "client")]
pub use resource::TidegateApplication;
