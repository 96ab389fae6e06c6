//! What to send, when, and with how much patience.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};
use rustls::ClientConfig;
use tidegate_control::Timestamp;
use tidegate_sim::rng::Streams;
use tidegate_sim::workload::{Arrivals, Pattern, RateFunction};

/// More requests than this in one run is a slip of the finger.
const REQUESTS_MAX: f64 = 50e6;

/// Everything a run needs. [`LoadConfig::new`] fills in the rest.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    /// Where to send: taken in turns.
    pub targets: Vec<Uri>,
    /// What to send: drawn by weight.
    pub requests: Vec<RequestSpec>,
    /// Requests per second over time.
    pub rate: RateFunction,
    /// How regular they are.
    pub pattern: Pattern,
    /// When the last one is sent.
    pub duration: Duration,
    /// Requests due before this are sent and shown second by second, but left out of the totals.
    pub warm_up: Duration,
    /// HTTP/1.1 or HTTP/2.
    pub protocol: Protocol,
    /// How `https` targets are verified, and the protocols that are offered to them.
    pub tls: Option<Arc<ClientConfig>>,
    /// At most this many connections per target.
    pub connections: usize,
    /// A client leaves when its answer is not complete by then.
    pub timeout: Duration,
    /// Whether and when clients come back after a failure.
    pub retry: Retry,
    /// What counts as in time.
    pub target_time: Duration,
    /// Decides arrivals, choices and jitter.
    pub seed: u64,
    /// Requests with times and kinds of their own, in place of `rate` and of drawing by weight.
    pub replay: Option<Vec<Recorded>>,
}

/// A request of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// When it is due.
    pub at: Timestamp,
    /// Index into [`LoadConfig::requests`].
    pub kind: usize,
}

impl LoadConfig {
    /// Poisson arrivals of GET requests over HTTP/1.1 with one second of patience and no retries.
    #[must_use]
    pub fn new(targets: Vec<Uri>, rate: RateFunction, duration: Duration) -> Self {
        Self {
            targets,
            requests: vec![RequestSpec::default()],
            rate,
            pattern: Pattern::default(),
            duration,
            warm_up: Duration::ZERO,
            protocol: Protocol::Http1,
            tls: None,
            connections: 1000,
            timeout: Duration::from_secs(1),
            retry: Retry::default(),
            target_time: Duration::from_millis(500),
            seed: 1,
            replay: None,
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// The first problem found, with its remedy.
    pub fn validate(&self) -> Result<(), LoadError> {
        if self.targets.is_empty() {
            return Err(LoadError::NoTarget);
        }
        if self.timeout.is_zero() || self.duration.is_zero() || self.connections == 0 {
            return Err(LoadError::Zero);
        }
        if self.warm_up >= self.duration {
            return Err(LoadError::WarmUp);
        }
        if let Some(replay) = &self.replay {
            return self.validate_replay(replay);
        }
        let expected = self.rate.cumulative(self.duration.as_secs_f64());
        if expected > REQUESTS_MAX {
            return Err(LoadError::TooMany(expected));
        }
        self.pattern.check().map_err(LoadError::Pattern)
    }

    fn validate_replay(&self, replay: &[Recorded]) -> Result<(), LoadError> {
        let known = |request: &Recorded| request.kind < self.requests.len();
        if replay.is_empty() || !replay.iter().all(known) {
            return Err(LoadError::NothingRecorded);
        }
        Ok(())
    }

    /// When requests are due, and their kinds where these are not drawn.
    pub(super) fn due(&self) -> Box<dyn Iterator<Item = (Timestamp, Option<usize>)> + Send> {
        match &self.replay {
            Some(replay) => {
                let requests = replay.clone().into_iter();
                Box::new(requests.map(|request| (request.at, Some(request.kind))))
            }
            None => Box::new(self.arrival_times().map(|at| (at, None))),
        }
    }

    /// The times at which requests are due, a function of rate, spacing and seed alone.
    pub fn arrival_times(&self) -> impl Iterator<Item = Timestamp> + Send + use<> {
        let rng = Streams::new(self.seed).stream("load/arrivals");
        let end = Timestamp::ZERO + self.duration;
        Arrivals::new(self.rate.clone(), self.pattern.clone(), rng).take_while(move |at| *at < end)
    }
}

/// One kind of request.
#[derive(Debug, Clone)]
pub struct RequestSpec {
    /// Names it in the report.
    pub name: String,
    /// How often it is drawn, against the other kinds.
    pub weight: f64,
    /// GET, POST, …
    pub method: Method,
    /// Replaces the path of the target.
    pub path: Option<PathAndQuery>,
    /// Added to the request; `host` is set from the target where it is not given.
    pub headers: HeaderMap,
    /// Sent with a content length.
    pub body: Bytes,
    /// Replaces the common patience: a short one makes an aborting client.
    pub timeout: Option<Duration>,
    /// Pause after every part of the answer that was read: makes a slow reader.
    pub read_pause: Option<Duration>,
}

impl Default for RequestSpec {
    fn default() -> Self {
        Self {
            name: "request".to_owned(),
            weight: 1.0,
            method: Method::GET,
            path: None,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: None,
            read_pause: None,
        }
    }
}

/// What carries the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One request at a time per connection.
    Http1,
    /// Many per connection; with prior knowledge, or by ALPN under TLS.
    Http2 {
        /// At most this many at a time per connection.
        streams: usize,
    },
}

/// How clients come back after a refusal, an error or a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often; 0 for never.
    pub retries_max: u32,
    /// Wait before the first retry, doubled before each further one, with jitter.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// Whether `retry-after` is waited for where it is longer.
    pub obey_retry_after: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            retries_max: 0,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            obey_retry_after: false,
        }
    }
}

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nowhere to send.
    #[error("no target: give at least one URL")]
    NoTarget,
    /// A URL that cannot be requested.
    #[error("cannot send to `{0}`: write http://HOST:PORT/PATH, or https://")]
    Url(Uri),
    /// A URL with TLS, and nothing to verify it by.
    #[error("cannot send to `{0}`: the run was not told how to verify it")]
    NoTls(Uri),
    /// A host that is not found.
    #[error("cannot find the host of {url}: {source}")]
    Resolve {
        /// The URL.
        url: Uri,
        /// What the system said.
        source: io::Error,
    },
    /// A zero that would never end or never begin.
    #[error("timeout, duration and connections must be above 0")]
    Zero,
    /// Nothing would be left to measure.
    #[error("the warm-up, which is not measured, must be shorter than the duration")]
    WarmUp,
    /// Weights that choose nothing.
    #[error("the weights of the requests must be numbers from 0, at least one above 0")]
    Weights,
    /// A pattern of arrivals that contradicts itself.
    #[error("{0}")]
    Pattern(&'static str),
    /// A recording without a request.
    #[error("the recording holds no request that can be sent again")]
    NothingRecorded,
    /// Too many requests for one run.
    #[error("that would be {0:.0} requests in one run; lower the rate or the duration")]
    TooMany(f64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::workload::Spacing;

    fn config(rate: f64, seconds: u64) -> LoadConfig {
        let target = Uri::from_static("http://127.0.0.1:1/");
        LoadConfig::new(
            vec![target],
            RateFunction::constant(rate),
            Duration::from_secs(seconds),
        )
    }

    #[test]
    fn arrivals_depend_on_the_seed_alone() {
        let first: Vec<_> = config(200.0, 10).arrival_times().collect();
        let again: Vec<_> = config(200.0, 10).arrival_times().collect();
        assert_eq!(first, again);
        let mut other = config(200.0, 10);
        other.seed = 2;
        assert_ne!(first, other.arrival_times().collect::<Vec<_>>());
    }

    #[test]
    fn arrivals_are_ordered_and_end_with_the_run() {
        let times: Vec<_> = config(200.0, 10).arrival_times().collect();
        assert!(times.is_sorted());
        assert!(times.iter().all(|at| at.as_secs_f64() < 10.0));
        // A Poisson count of mean 2000: five standard deviations.
        assert!((times.len() as f64 - 2000.0).abs() < 5.0 * 2000_f64.sqrt());
    }

    #[test]
    fn constant_spacing_is_exact() {
        let mut config = config(100.0, 1);
        config.pattern = Spacing::deterministic().into();
        let times: Vec<_> = config.arrival_times().collect();
        assert_eq!(times[0].as_nanos(), 10_000_000);
        assert_eq!(times.len(), 99, "at 10 ms, 20 ms, ... 990 ms");
    }

    #[test]
    fn impossible_runs_are_refused() {
        let mut nowhere = config(1.0, 1);
        nowhere.targets.clear();
        assert!(matches!(nowhere.validate(), Err(LoadError::NoTarget)));
        assert!(matches!(config(1.0, 0).validate(), Err(LoadError::Zero)));
        let mut unmeasured = config(1.0, 1);
        unmeasured.warm_up = Duration::from_secs(1);
        assert!(matches!(unmeasured.validate(), Err(LoadError::WarmUp)));
        let forever = config(1e6, 3600);
        assert!(matches!(forever.validate(), Err(LoadError::TooMany(_))));
    }
}
