//! What the small tools need of the system: a runtime, files, and what they have cost.

use std::fs;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::error::CliError;

/// A runtime on the calling thread: the tools leave the other cores to what they measure.
pub(crate) fn current_thread() -> Result<Runtime, CliError> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::Usage(format!("cannot start the runtime: {error}")))
}

/// Listens on `--listen`; also says on which port, since 0 takes a free one.
pub(crate) async fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let listener = TcpListener::bind(addr).await;
    let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (addr, listener) = bound.map_err(|error| CliError::cannot_listen(addr, &error))?;
    Ok((listener, addr))
}

/// CPU time of the calling thread in microseconds, where the system says (Linux).
pub(crate) fn cpu_us() -> Option<f64> {
    // First field: nanoseconds spent on a CPU.
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e3)
}

/// Allows as many open files as the system permits: a connection is one, and the usual 1024 are few.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where it cannot be raised, what does not fit is counted as errors.
    let _ = setrlimit(Resource::Nofile, raised);
}
