//! What the demo upstream is, and what of it can change while it runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tidegate_config::{Share, Size};
use tidegate_sim::server::{Bound, Penalty, StationSpec};
use tidegate_sim::service::Law;
use tidegate_sim::workload::Schedule;

use super::law::{LawTextError, parse_law};

/// Everything about one upstream.
#[derive(Debug, Clone)]
pub struct AppConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How many requests progress at full speed at once.
    pub workers: NonZeroU32,
    /// Who is worked on when there are more.
    pub discipline: Discipline,
    /// How many may wait; the next one is answered 503.
    pub queue: Bound,
    /// Throughput lost to concurrency.
    pub penalty: Option<Penalty>,
    /// Work of a request, in seconds of one worker.
    pub service: Law,
    /// Speed of the workers over time; 1 is nominal.
    pub speed: Schedule,
    /// Part of the work that is optional content, left out on `tidegate-optional: 0`.
    pub optional: Share,
    /// Paths whose requests are more work than the others; the first that fits counts.
    pub slow_paths: Vec<SlowPath>,
    /// Length of the answer's body.
    pub response: Size,
    /// Whether work stops when the client leaves. Most servers finish it.
    pub cancel: bool,
    /// Whether answers carry `tidegate-utilization`, and where there is optional content
    /// `tidegate-service-ms`.
    pub report: bool,
    /// Decides the work of each request.
    pub seed: u64,
}

impl AppConfig {
    /// `workers` with that law of work, on a free port of the loopback address.
    #[must_use]
    pub fn new(workers: NonZeroU32, service: Law) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            workers,
            discipline: Discipline::Fifo,
            queue: Bound::Unlimited,
            penalty: None,
            service,
            speed: Schedule::constant(1.0),
            optional: Share(0.0),
            slow_paths: Vec::new(),
            response: Size(100),
            cancel: false,
            report: false,
            seed: 1,
        }
    }

    /// Requests per second at nominal speed, optional content included.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        f64::from(self.workers.get()) / self.service.mean()
    }

    pub(super) fn station(&self) -> StationSpec {
        StationSpec {
            cores: match self.discipline {
                // The slots alone hold back a queue, so that their number can change.
                Discipline::Fifo => NonZeroU32::MAX,
                Discipline::Sharing { .. } => self.workers,
            },
            slots: Some(match self.discipline {
                Discipline::Fifo => Bound::Limited(self.workers.get()),
                Discipline::Sharing { at_once } => at_once,
            }),
            queue: self.queue,
            penalty: self.penalty,
        }
    }
}

/// Who is worked on when there are more requests than workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Those who came first; the others wait.
    Fifo,
    /// All alike, each the slower the more there are: threads on shared cores.
    Sharing {
        /// At most this many; the others wait.
        at_once: Bound,
    },
}

/// Requests that are more (or less) work than usual.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowPath {
    /// Paths that begin like this.
    pub prefix: String,
    /// How many times the usual work.
    pub factor: f64,
}

/// Changes to a running upstream; what is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// New number of workers; only behind a queue (shared workers change by `speed`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<NonZeroU32>,
    /// New speed, in force until the capacity schedule changes it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// New law of work, like `exp:20ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// New share of optional content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<Share>,
    /// New length of the answer's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Size>,
    /// Whether work stops when the client leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
}

/// Why a change was refused; nothing of it is in force.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParamsError {
    /// A law that cannot be.
    #[error(transparent)]
    Service(#[from] LawTextError),
    /// Shared workers have a fixed number.
    #[error("the number of shared workers is fixed: change `speed` instead")]
    SharedWorkers,
    /// A speed that is no speed.
    #[error("the speed is a number from 0, not {0}")]
    Speed(f64),
}

/// Changes that were found possible.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) workers: Option<NonZeroU32>,
    pub(super) speed: Option<f64>,
    pub(super) service: Option<Law>,
    pub(super) optional: Option<f64>,
    pub(super) response: Option<Size>,
    pub(super) cancel: Option<bool>,
}

impl Params {
    pub(super) fn check(&self, discipline: Discipline) -> Result<Checked, ParamsError> {
        if self.workers.is_some() && discipline != Discipline::Fifo {
            return Err(ParamsError::SharedWorkers);
        }
        if let Some(speed) = self.speed.filter(|speed| !(0.0..=1e6).contains(speed)) {
            return Err(ParamsError::Speed(speed));
        }
        Ok(Checked {
            workers: self.workers,
            speed: self.speed,
            service: self.service.as_deref().map(parse_law).transpose()?,
            optional: self.optional.map(|share| share.0),
            response: self.response,
            cancel: self.cancel,
        })
    }
}
