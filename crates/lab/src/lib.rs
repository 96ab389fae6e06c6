//! What experiments on live processes need: an open-loop load generator and an upstream whose
//! capacity is virtual.
//!
//! Rates, schedules, laws of service times and the server itself are those of `tidegate-sim`, so
//! that one file describes an experiment in the simulator and live.
//!
//! Decision: docs/decisions/0005-load-generator-and-virtual-upstream.md.

pub mod app;
mod clock;
pub mod load;
