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
//! [`NucleusLayer`] does so for Rust services built on `tower`; [`sidecar`] (a feature) for
//! anything that speaks HTTP. The words on the wire are in [`wire`], few enough to be written by
//! hand in any language.

mod account;
mod body;
mod dimmer;
mod flight;
mod layer;
mod nucleus;
mod report;
#[cfg(feature = "sidecar")]
pub mod sidecar;
mod usage;
pub mod wire;

pub use body::MeasuredBody;
pub use dimmer::{DimmerConfig, DimmerKind};
pub use flight::{Ending, Flight};
pub use layer::{Measured, NucleusLayer, NucleusService, OptionalContent};
pub use nucleus::{Nucleus, NucleusConfig, Reading};
pub use usage::{CpuMeter, UsageError, Whose};

/// The code of the book's page is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/nucleus.md")]
struct BookPage;
