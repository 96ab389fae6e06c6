//! See `ARCHITECTURE.md`.

pub mod brownout;
pub mod chart;
