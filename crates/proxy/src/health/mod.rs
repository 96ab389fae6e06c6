//! Health of replicas: who gets requests, who is out, and who is asked whether it is back.
//!
//! Three parts. The [`Board`] is written by the request path. The [`Machine`] holds the rules and
//! is pure: time comes in, actions come out. The driver ([`run`]) carries them out: it sends the
//! probes and tells the engine.

mod driver;
mod machine;
mod probe;
mod vitals;

use std::sync::Arc;

use crate::upstream::Replica;

pub use driver::run;
pub use machine::{Action, Machine};
pub use vitals::{Board, Outcome, Trip};

/// Why a replica is ill, with what the system or TLS said where it cannot be reached.
pub(crate) fn explain(cause: &str, replica: Option<&Arc<Replica>>) -> String {
    let said = replica.and_then(|replica| replica.unreachable());
    match said.filter(|_| cause == Trip::Unreachable.as_str()) {
        Some(said) => format!("{cause} ({said})"),
        None => cause.to_owned(),
    }
}
