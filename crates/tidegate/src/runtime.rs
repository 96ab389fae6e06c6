//! What the small tools need of the system: a runtime, files, and what they have cost.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_channel::net::Dialer;
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

/// Opens connections; `--ca` says whose certificates are believed instead of the system's.
pub(crate) fn dialer(ca: Option<&Path>) -> Result<Dialer, CliError> {
    let trusting = ca.map(Dialer::trusting).transpose();
    let trusting = trusting.map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(trusting.unwrap_or_default())
}

/// CPU time of the calling thread in microseconds, where the system says (Linux).
pub(crate) fn cpu_us() -> Option<f64> {
    // First field: nanoseconds spent on a CPU.
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e3)
}

/// Allows as many open files as the system permits: a connection is one, and the usual 1024 are
/// few.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where it cannot be raised, what does not fit is counted as errors.
    let _ = setrlimit(Resource::Nofile, raised);
}
