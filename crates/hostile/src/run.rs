//! Many vectors through a few lanes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_proxy::config::Config;
use tidegate_proxy::{BindError, Proxy, Running};
use tokio::task::JoinSet;

use crate::careless::Careless;
use crate::lane::{Finding, Lane};
use crate::record::Recorder;
use crate::report::Report;
use crate::vector::Vector;

/// Lanes of a proxy of our own.
const LANES: usize = 4;

/// Which proxy is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Tidegate, the real data plane, in this process.
    Tidegate,
    /// The careless proxy.
    Careless,
    /// One that somebody else started, and the address that it leads to.
    Other {
        /// Where it listens.
        proxy: SocketAddr,
        /// Where its upstream is expected.
        upstream: SocketAddr,
    },
}

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Tidegate does not start.
    #[error(transparent)]
    Proxy(#[from] BindError),
    /// A socket.
    #[error("{what}: {cause}")]
    Socket {
        /// What could not be done.
        what: String,
        /// What the system said.
        cause: io::Error,
    },
}

/// Keeps a proxy of our own running.
#[derive(Debug)]
enum Kept {
    Tidegate(#[expect(dead_code, reason = "held for its drop")] Running),
    Careless(#[expect(dead_code, reason = "held for its drop")] Careless),
    Nothing,
}

/// Sends every vector and gathers the findings.
///
/// # Errors
/// When a proxy cannot be started or reached.
pub async fn run<I>(subject: Subject, vectors: I) -> Result<Report, RunError>
where
    I: Iterator<Item = Vector> + Send + 'static,
{
    let vectors = Arc::new(Mutex::new(vectors));
    let lanes = match subject {
        Subject::Other { .. } => 1,
        _ => LANES,
    };
    let mut under_way = JoinSet::new();
    for _ in 0..lanes {
        let (lane, kept) = open(subject).await?;
        under_way.spawn(follow(lane, kept, Arc::clone(&vectors)));
    }
    let mut report = Report::default();
    while let Some(ended) = under_way.join_next().await {
        let findings = ended.map_err(|error| socket("a lane ended", error.into()))??;
        findings
            .into_iter()
            .for_each(|(vector, finding)| report.add(vector, finding));
    }
    Ok(report)
}

async fn follow<I: Iterator<Item = Vector>>(
    mut lane: Lane,
    _kept: Kept,
    vectors: Arc<Mutex<I>>,
) -> Result<Vec<(Vector, Finding)>, RunError> {
    let mut findings = Vec::new();
    loop {
        let Some(vector) = vectors.lock().next() else {
            return Ok(findings);
        };
        let finding = lane.run(&vector).await;
        let finding = finding.map_err(|cause| socket("the proxy cannot be reached", cause))?;
        findings.push((vector, finding));
    }
}

async fn open(subject: Subject) -> Result<(Lane, Kept), RunError> {
    let upstream = match subject {
        Subject::Other { upstream, .. } => upstream,
        _ => ([127, 0, 0, 1], 0).into(),
    };
    let recorder = Recorder::start(upstream).await;
    let recorder =
        recorder.map_err(|cause| socket(&format!("cannot listen on {upstream}"), cause))?;
    let (proxy, kept) = match subject {
        Subject::Other { proxy, .. } => (proxy, Kept::Nothing),
        Subject::Careless => {
            let careless = Careless::start(recorder.addr()).await;
            let careless =
                careless.map_err(|cause| socket("cannot start the careless proxy", cause))?;
            (careless.addr(), Kept::Careless(careless))
        }
        Subject::Tidegate => {
            let running = tidegate(recorder.addr())?;
            (running.local_addr(), Kept::Tidegate(running))
        }
    };
    Ok((Lane::new(proxy, recorder), kept))
}

/// A proxy as `tidegate run` makes it, except that it admits everything.
fn tidegate(upstream: SocketAddr) -> Result<Running, BindError> {
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = 'off'\nthreads = 1\nprotect.mode = 'off'\nupstream = 'http://{upstream}'"
    );
    let config =
        Config::from_text("hostile.toml", &text).expect("a constant with an address is sound");
    Proxy::bind(config)?.start()
}

fn socket(what: &str, cause: io::Error) -> RunError {
    RunError::Socket {
        what: what.to_owned(),
        cause,
    }
}
