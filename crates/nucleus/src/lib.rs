//! The replica's side of Tidegate.
//!
//! A proxy in front of a service sees response times; what it cannot see is how many requests the
//! service would like to have, how much CPU they cost, and that half of a page could be left out.
//! A nucleus in the service (or beside it) adds that:
//!
//! - it measures service time, concurrency, CPU and the share of time not spent on the CPU;
//! - it runs ILAC's service-time controller (paper 004) and answers each request with its *demand*:
//!   how many requests it wants next;
//! - it tells the application, request by request, whether to include optional content.
//!
//! [`NucleusLayer`] does so for Rust services built on `tower`; [`sidecar`] for anything that speaks
//! HTTP. The words on the wire are in [`wire`], few enough to be written by hand in any language.

mod body;
mod core;
mod layer;
pub mod sidecar;
mod usage;
pub mod wire;

pub use crate::core::{Flight, Nucleus, NucleusConfig};
pub use layer::{Measured, MeasuredBody, NucleusLayer, NucleusService, OptionalContent};
pub use usage::{CpuMeter, UsageError};
