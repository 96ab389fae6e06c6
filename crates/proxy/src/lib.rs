//! See `ARCHITECTURE.md`.

pub mod config;
pub mod metrics;
