//! Spans and metrics of a proxy for an OpenTelemetry collector, by OTLP.
//!
//! ```text
//! workers ── ring of spans ──┐
//!                            ├─► a thread of its own: encode ─► POST, in batches ─► collector
//! counters ── every minute ──┘       queue, bounded: what is lost is counted
//! ```
//!
//! Everything here runs on one thread beside the data plane ([`Exporter`]), which never waits for
//! it. Where to, how and how often is said by the environment, under the names that every
//! OpenTelemetry SDK has ([`Environment`]). A collector that is away, slow or answers errors costs
//! spans once the queue is full, and one line of the log when that begins and ends.
//!
//! The messages are written by hand (`proto`), like those of Envoy; a test decodes them with the
//! crate that is generated from OTLP's own definitions. See decision 0241.

mod client;
mod convert;
mod environment;
mod exporter;
mod proto;

pub use environment::{Environment, Protocol, Signal, Target};
pub use exporter::{Exporter, StartError};
