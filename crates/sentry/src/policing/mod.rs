//! Policing at extreme overload (003): the least important work is refused first, and a refusal
//! costs next to nothing.
//!
//! - [`threshold`]: one atomic operation per request, from rates measured now and then;
//! - [`delays`]: how long less important classes are held, so that they do not take the place of
//!   more important ones that arrive a moment later;
//! - [`table`] and [`path`]: what a request will cost, by its path;
//! - `toll`: what it pays for that in mode `auto`;
//! - `cost_shares`: shares by cost, where the operator wants cheap requests preferred.
//!
//! Decision: docs/decisions/0020-policing-differences-to-paper-003.md.

pub(crate) mod buckets;
pub(crate) mod cost_shares;
pub mod delays;
pub(crate) mod exams;
pub(crate) mod io_weight;
pub mod path;
mod policer;
pub(crate) mod room;
pub(crate) mod servers;
pub(crate) mod switch;
pub mod table;
pub mod threshold;
pub(crate) mod toll;

pub use path::{PathHasher, PathKey};
pub(crate) use policer::{Kind, Policer};
pub(crate) use servers::{Limit, Server, Servers};
pub use table::ServiceTable;
pub use threshold::{ClassLoad, Threshold, ThresholdGate};
