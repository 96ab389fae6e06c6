//! The data plane over real sockets.

mod faults;
mod forward;
mod http2;
mod hygiene;
mod queue;
mod refusal;
mod shutdown;
mod support;
mod tls;
mod upgrade;
