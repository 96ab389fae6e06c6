//! What experiments on live processes need: an open-loop load generator and an upstream whose
//! capacity is virtual.
//!
//! Rates, schedules, laws of service times and the server itself are those of `tidegate-sim`, so
//! that one file describes an experiment in the simulator and live.

pub mod app;
mod clock;
pub mod load;
