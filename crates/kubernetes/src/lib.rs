//! What Tidegate reads of Kubernetes: the endpoints of a Service, and a Lease for one leader.
//!
//! ```text
//! EndpointSlices or Endpoints ─► Endpoint: address, ready, pod ─► pool of a proxy, or of the plane
//! Lease ─► Election ─► who acts
//! ```
//!
//! Parsing and the election are plain functions. The feature `client` adds what talks to an API
//! server: without it the crate builds in a second, with it in minutes.
//!
//! Decision: docs/decisions/0230-kubernetes-behind-a-feature.md.

mod election;
mod endpoints;

#[cfg(feature = "client")]
mod connect;
#[cfg(feature = "client")]
mod lease;
#[cfg(feature = "client")]
mod watch;

pub use election::{Election, LeaseRecord, Step};
pub use endpoints::{Endpoint, EndpointsError, PortChoice, of_endpoints, of_slices};

#[cfg(feature = "client")]
pub use connect::{ConnectError, connect, describe, is_missing, is_unreachable};
#[cfg(feature = "client")]
pub use lease::Leadership;
#[cfg(feature = "client")]
pub use watch::{Objects, ServiceRef, ServiceState, ServiceWatch, Source, follow};
