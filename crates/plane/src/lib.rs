//! The control plane: how many servers and proxies each application needs (003 §4).
//!
//! A driver passes in what proxies saw and what servers there are, and gets decisions with their
//! reasons. Nothing here reads a clock or opens a socket: the daemon `tidegate plane` and the
//! simulator run the same code. [`Plane`] is the driver's manual.
//!
//! - [`demand`]: how much is asked for, whatever became of it; [`forecast`]: how much will be;
//! - [`model`]: servers that a rate needs; [`servers`]: those that there are, and how they start;
//! - [`allocation`]: a pool divided by revenue; [`proxies`]: how many proxies.

pub mod allocation;
mod application;
mod config;
mod decision;
pub mod demand;
pub mod forecast;
pub mod model;
mod plane;
pub mod proxies;
pub mod servers;

pub use application::Need;
pub use config::{
    ApplicationConfig, BandConfig, ClassConfig, PlaneConfig, PlaneError, PredictionConfig,
    ProxiesConfig, ReactionConfig, ScaleInConfig, ServerShare,
};
pub use decision::{Cause, Decision, PlaneEvent};
pub use demand::{Moments, Observation};
pub use plane::{ApplicationStatus, DivisionStatus, Plane, Snapshot};
