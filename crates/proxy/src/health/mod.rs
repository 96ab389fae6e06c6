//! Health of replicas: who gets requests, who is out, and who is asked whether it is back.
//!
//! Three parts. The [`Board`] is written by the request path. The [`Machine`] holds the rules and
//! is pure: time comes in, actions come out. The driver ([`run`]) carries them out: it sends the
//! probes and tells the engine.

mod driver;
mod machine;
mod probe;
mod vitals;

pub use driver::run;
pub use machine::{Action, Machine};
pub use vitals::{Board, Outcome, Trip};
