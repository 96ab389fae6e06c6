//! The data plane over real sockets.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "helpers of tests fail by panicking and are shared by the modules of this one binary"
)]

mod applications;
mod classes;
mod companions;
mod content;
mod costs;
mod edge;
mod endings;
mod enemies;
mod faults;
mod forward;
mod http2;
mod hygiene;
mod lobby;
mod queue;
mod refusal;
mod shutdown;
mod support;
mod tls;
mod top;
mod tracing;
mod upgrade;
mod uploads;
