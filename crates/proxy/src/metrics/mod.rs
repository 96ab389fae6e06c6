//! What the data plane counts.
//!
//! The engine counts its own decisions (admitted, shed by reason, endings); see
//! [`Status`](tidegate_sentry::Status). What only the data plane sees is counted here: times,
//! statuses, connections, retries, failures of replicas. Every worker thread writes its own
//! [`Core`], and nobody else does, so a record is an addition that need not be atomic; readers add
//! the cores up.

mod exemplar;
pub mod family;
mod histogram;
mod open_metrics;
mod protobuf;
mod remembered;
mod request_id;
mod text;
mod top;

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_control::Timestamp;
use tidegate_sentry::{ClassId, Refusal, ReplicaId, ShedReason};

pub use exemplar::Exemplar;
use exemplar::Exemplars;
pub use family::{Family, Kind, Metric};
use histogram::Histogram;
pub use histogram::{SCHEMA, Snapshot};
use remembered::RememberedRequests;
pub use remembered::{Ending, Failing, Remembered};
pub use request_id::RequestId;
pub(crate) use request_id::RequestIds;
use top::TopTables;
pub use top::{Heavy, Top};
pub(crate) use top::{Outcome as SampledOutcome, Sampled, Sampler};

/// Classes that are told apart; the engine allows no more.
const CLASSES_MAX: usize = 64;

/// Replicas whose times are told apart: those beyond are served and not measured one by one.
const REPLICAS_MAX: usize = 256;

/// Why a replica failed a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// No connection could be opened.
    Connect,
    /// The connection broke before the response was complete.
    Reset,
    /// No response in time.
    Timeout,
    /// The response was malformed.
    Malformed,
}

impl UpstreamFailure {
    /// Every kind, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Reset, Self::Timeout, Self::Malformed];

    /// The word in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
        }
    }
}

/// Why a client's connection never got as far as HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnedAway {
    /// There were too many.
    Limit,
    /// There were too many of its address.
    Address,
    /// It did not begin with a header of the PROXY protocol, on a listener that demands one.
    ProxyProtocol,
    /// No TLS session was agreed on.
    Tls,
}

impl TurnedAway {
    /// Every cause, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Limit, Self::Address, Self::ProxyProtocol, Self::Tls];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Address => "address",
            Self::ProxyProtocol => "proxy_protocol",
            Self::Tls => "tls",
        }
    }
}

/// Where bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From clients to replicas.
    Request,
    /// From replicas to clients.
    Response,
}

impl Direction {
    /// Both, in the order of the counters.
    pub const ALL: [Self; 2] = [Self::Request, Self::Response];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// What a client was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The replica's answer, whole.
    Served,
    /// A refusal for load.
    Shed,
    /// A refusal of a request that is malformed, forbidden or beyond a quota.
    Rejected,
    /// An answer in place of a replica that failed, or one that broke off.
    Failed,
    /// Nothing: the client left.
    Abandoned,
}

impl Outcome {
    /// Every outcome, in the order of the histograms.
    pub const ALL: [Self; 5] = [
        Self::Served,
        Self::Shed,
        Self::Rejected,
        Self::Failed,
        Self::Abandoned,
    ];

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Shed => "shed",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// The counters of all worker threads.
#[derive(Debug)]
pub struct Metrics {
    cores: Box<[Core]>,
    ticks: Histogram,
}

impl Metrics {
    /// Counters for `cores` worker threads, at least one.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores.max(1)).map(|_| Core::one_of(cores)).collect(),
            ticks: Histogram::default(),
        }
    }

    /// The counters of one worker thread.
    #[must_use]
    pub fn core(&self, index: usize) -> &Core {
        &self.cores[index % self.cores.len()]
    }

    /// The engine's adaptation took this long.
    pub fn record_tick(&self, took: Duration) {
        self.ticks.record(took);
    }

    /// A few of the refusals since the last call, one per worker thread at most. The first call
    /// asks for them.
    pub fn take_shed_samples(&self) -> Vec<Refusal> {
        self.cores.iter().filter_map(Core::take_sample).collect()
    }

    /// The request of this id that was not served, while it is remembered.
    #[must_use]
    pub fn find_request(&self, id: &str) -> Option<Remembered> {
        let number = RequestId::number_of(id);
        let mut found = self
            .cores
            .iter()
            .filter_map(|core| core.remembered.lock().find(number));
        found.next()
    }

    /// The paths and tenants that cost most and are shed most.
    #[must_use]
    pub fn top(&self, now: Timestamp) -> Top {
        top::collect(now, self.cores.iter().map(|core| &core.top))
    }

    /// The sums over all worker threads.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.ticks.add_to(&mut totals.ticks);
        for core in &self.cores {
            core.add_to(&mut totals);
        }
        totals
    }
}

/// The counters of one worker thread. Aligned to two cache lines, since processors fetch them in
/// pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Core {
    classes: [OnceLock<Box<Times>>; CLASSES_MAX],
    replicas: Box<[OnceLock<Box<Histogram>>]>,
    responses: [AtomicU64; 5],
    failures: [AtomicU64; 4],
    bytes: [AtomicU64; 2],
    opened: AtomicU64,
    closed: AtomicU64,
    resting: AtomicU64,
    turned_away: [AtomicU64; TurnedAway::ALL.len()],
    retries: AtomicU64,
    retries_denied: AtomicU64,
    unrouted: AtomicU64,
    log_lines_lost: AtomicU64,
    sample_wanted: AtomicBool,
    sample: Mutex<Option<Refusal>>,
    remembered: Mutex<RememberedRequests>,
    top: Mutex<TopTables>,
}

#[derive(Debug, Default)]
struct Times {
    waiting: Histogram,
    service: Histogram,
    response: Histogram,
    /// By [`Outcome`]; most have one or two.
    client: [OnceLock<Box<Histogram>>; Outcome::ALL.len()],
    exemplars: Mutex<Exemplars>,
}

impl Core {
    fn one_of(cores: usize) -> Self {
        Self {
            classes: array::from_fn(|_| OnceLock::new()),
            replicas: (0..REPLICAS_MAX).map(|_| OnceLock::new()).collect(),
            responses: Default::default(),
            failures: Default::default(),
            bytes: Default::default(),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            resting: AtomicU64::new(0),
            turned_away: Default::default(),
            retries: AtomicU64::new(0),
            retries_denied: AtomicU64::new(0),
            unrouted: AtomicU64::new(0),
            log_lines_lost: AtomicU64::new(0),
            sample_wanted: AtomicBool::new(false),
            sample: Mutex::new(None),
            remembered: Mutex::new(RememberedRequests::for_one_of(cores)),
            top: Mutex::default(),
        }
    }

    /// An admitted request waited this long for its slot; zero counts too.
    pub fn record_waiting(&self, class: ClassId, waited: Duration) {
        self.times(class).waiting.record(waited);
    }

    /// A replica answered in full: this long after admission, and this long after arrival.
    pub fn record_served(
        &self,
        class: ClassId,
        replica: ReplicaId,
        service: Duration,
        response: Duration,
    ) {
        let times = self.times(class);
        times.service.record(service);
        times.response.record(response);
        if let Some(times) = self.replicas.get(usize::from(replica.0)) {
            times.get_or_init(Box::default).record(service);
        }
    }

    /// A request has ended for its client, this long after its arrival.
    pub fn record_client(&self, class: ClassId, outcome: Outcome, took: Duration) {
        let histogram = &self.times(class).client[outcome as usize];
        histogram.get_or_init(Box::default).record(took);
    }

    /// A request that was served, recorded for its trace, is an example of its response time.
    pub(crate) fn record_response_exemplar(&self, class: ClassId, exemplar: Exemplar) {
        self.times(class).exemplars.lock().response(exemplar);
    }

    /// A request that was shed, recorded for its trace, is an example of the reason.
    pub(crate) fn record_shed_exemplar(
        &self,
        class: ClassId,
        reason: ShedReason,
        exemplar: Exemplar,
    ) {
        self.times(class).exemplars.lock().shed(reason, exemplar);
    }

    /// A request was shed. The engine has counted it; this only keeps one now and then to show why
    /// requests are shed, when somebody watches.
    pub fn record_shed(&self, refusal: &Refusal) {
        if self.sample_wanted.load(Ordering::Relaxed) {
            self.sample_wanted.store(false, Ordering::Relaxed);
            *self.sample.lock() = Some(*refusal);
        }
    }

    /// A request was not served: it is found by its id for a while.
    pub fn remember(&self, request: Remembered) {
        self.remembered.lock().remember(request);
    }

    /// A request that was looked at has ended.
    pub(crate) fn record_sampled(
        &self,
        now: Timestamp,
        path: &str,
        tenant: Option<&str>,
        outcome: SampledOutcome,
    ) {
        self.top.lock().add(now, path, tenant, outcome);
    }

    fn take_sample(&self) -> Option<Refusal> {
        self.sample_wanted.store(true, Ordering::Relaxed);
        self.sample.lock().take()
    }

    /// A response went to a client, the proxy's own included.
    pub fn record_response(&self, status: u16) {
        let hundreds = usize::from(status / 100).clamp(1, 5);
        bump(&self.responses[hundreds - 1]);
    }

    /// A replica failed a request.
    pub fn record_upstream_failure(&self, failure: UpstreamFailure) {
        bump(&self.failures[failure as usize]);
    }

    /// Body bytes passed through.
    pub fn record_bytes(&self, direction: Direction, bytes: u64) {
        increase(&self.bytes[direction as usize], bytes);
    }

    /// A client's connection was accepted.
    pub fn record_opened(&self) {
        bump(&self.opened);
    }

    /// A client's connection ended.
    pub fn record_closed(&self) {
        bump(&self.closed);
    }

    /// This many client connections wait without a task.
    pub fn record_resting(&self, connections: usize) {
        self.resting.store(connections as u64, Ordering::Relaxed);
    }

    /// A client's connection was closed before HTTP began.
    pub fn record_turned_away(&self, cause: TurnedAway) {
        bump(&self.turned_away[cause as usize]);
    }

    /// A request was sent a second time.
    pub fn record_retry(&self) {
        bump(&self.retries);
    }

    /// A request would have been sent a second time, but the budget was used up.
    pub fn record_retry_denied(&self) {
        bump(&self.retries_denied);
    }

    /// A request fitted no application.
    pub fn record_unrouted(&self) {
        bump(&self.unrouted);
    }

    /// The access log could not keep up.
    pub fn record_log_line_lost(&self) {
        bump(&self.log_lines_lost);
    }

    fn times(&self, class: ClassId) -> &Times {
        let index = usize::from(class.0).min(CLASSES_MAX - 1);
        self.classes[index].get_or_init(Box::default)
    }

    fn add_to(&self, totals: &mut Totals) {
        for (index, times) in self.classes.iter().enumerate() {
            let Some(times) = times.get() else { continue };
            if totals.classes.len() <= index {
                totals.classes.resize_with(index + 1, ClassTimes::default);
            }
            times.waiting.add_to(&mut totals.classes[index].waiting);
            times.service.add_to(&mut totals.classes[index].service);
            let class = &mut totals.classes[index];
            times.response.add_to(&mut class.response);
            for (total, histogram) in class.client.iter_mut().zip(&times.client) {
                if let Some(histogram) = histogram.get() {
                    histogram.add_to(total.get_or_insert_default());
                }
            }
            class.exemplars.add(&times.exemplars.lock());
        }
        for (index, times) in self.replicas.iter().enumerate() {
            let Some(times) = times.get() else { continue };
            if totals.replicas.len() <= index {
                totals.replicas.resize_with(index + 1, Snapshot::default);
            }
            times.add_to(&mut totals.replicas[index]);
        }
        add(&mut totals.responses, &self.responses);
        add(&mut totals.failures, &self.failures);
        add(&mut totals.bytes, &self.bytes);
        add(&mut totals.turned_away, &self.turned_away);
        totals.opened += self.opened.load(Ordering::Relaxed);
        totals.closed += self.closed.load(Ordering::Relaxed);
        totals.resting += self.resting.load(Ordering::Relaxed);
        totals.retries += self.retries.load(Ordering::Relaxed);
        totals.retries_denied += self.retries_denied.load(Ordering::Relaxed);
        totals.unrouted += self.unrouted.load(Ordering::Relaxed);
        totals.log_lines_lost += self.log_lines_lost.load(Ordering::Relaxed);
    }
}

fn bump(counter: &AtomicU64) {
    increase(counter, 1);
}

/// Adds without the cost of an atomic addition: the worker's thread is the only one that writes.
fn increase(counter: &AtomicU64, by: u64) {
    let value = counter.load(Ordering::Relaxed).wrapping_add(by);
    counter.store(value, Ordering::Relaxed);
}

fn add(totals: &mut [u64], counters: &[AtomicU64]) {
    for (total, counter) in totals.iter_mut().zip(counters) {
        *total += counter.load(Ordering::Relaxed);
    }
}

/// The counters of all worker threads, added up.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Times by class, as far as classes had requests.
    pub classes: Vec<ClassTimes>,
    /// Service times by replica's id, as far as replicas had requests.
    pub replicas: Vec<Snapshot>,
    /// Responses by the hundreds of their status, 1xx first.
    pub responses: [u64; 5],
    /// Failures of replicas, in the order of [`UpstreamFailure::ALL`].
    pub failures: [u64; 4],
    /// Body bytes, in the order of [`Direction::ALL`].
    pub bytes: [u64; 2],
    /// Client connections accepted.
    pub opened: u64,
    /// Client connections ended.
    pub closed: u64,
    /// Client connections that wait without a task: idle for a while, or refused time and again.
    pub resting: u64,
    /// Client connections closed before HTTP began, in the order of [`TurnedAway::ALL`].
    pub turned_away: [u64; TurnedAway::ALL.len()],
    /// Requests sent a second time.
    pub retries: u64,
    /// Retries that the budget denied.
    pub retries_denied: u64,
    /// Requests that fitted no application.
    pub unrouted: u64,
    /// Lines missing in the access log because it could not keep up.
    pub log_lines_lost: u64,
    /// How long the engine's adaptation took.
    pub ticks: Snapshot,
}

impl Totals {
    /// Client connections that are open.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // A connection may end between the two reads of a snapshot.
        self.opened.saturating_sub(self.closed)
    }
}

/// A class's times.
#[derive(Debug, Clone, Default)]
pub struct ClassTimes {
    /// Waiting for a slot.
    pub waiting: Snapshot,
    /// From admission to the end of the response.
    pub service: Snapshot,
    /// From arrival to the end of the response.
    pub response: Snapshot,
    /// From arrival until the answer was handed over to the client's connection, by [`Outcome`].
    pub client: [Option<Snapshot>; Outcome::ALL.len()],
    /// Requests that stand for others, where they are recorded for their traces.
    pub(crate) exemplars: Exemplars,
}

impl ClassTimes {
    /// What was recorded since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            waiting: self.waiting.since(&earlier.waiting),
            service: self.service.since(&earlier.service),
            response: self.response.since(&earlier.response),
            client: Default::default(),
            exemplars: Exemplars::default(),
        }
    }

    /// Adds the times of another class.
    pub fn add(&mut self, other: &Self) {
        self.waiting.add(&other.waiting);
        self.service.add(&other.service);
        self.response.add(&other.response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sentry::ShedReason;

    #[test]
    fn cores_are_added_up() {
        let metrics = Metrics::new(2);
        for core in [0, 1, 0] {
            metrics.core(core).record_opened();
            metrics.core(core).record_response(503);
            metrics
                .core(core)
                .record_waiting(ClassId(1), Duration::from_millis(2));
        }
        metrics.core(1).record_closed();
        metrics
            .core(1)
            .record_upstream_failure(UpstreamFailure::Reset);
        let totals = metrics.totals();
        assert_eq!(totals.connections(), 2);
        assert_eq!(totals.responses, [0, 0, 0, 0, 3]);
        assert_eq!(totals.failures, [0, 1, 0, 0]);
        assert_eq!(totals.classes[1].waiting.count(), 3);
        assert_eq!(totals.classes[0].waiting.count(), 0);
    }

    #[test]
    fn a_shed_sample_is_kept_only_when_somebody_asks() {
        let refusal = Refusal {
            reason: ShedReason::Predicted,
            class: ClassId(0),
            retry_after: Duration::from_secs(1),
            measured: 0.7,
            limit: 0.5,
        };
        let metrics = Metrics::new(1);
        metrics.core(0).record_shed(&refusal);
        assert_eq!(metrics.take_shed_samples(), []);
        metrics.core(0).record_shed(&refusal);
        assert_eq!(metrics.take_shed_samples(), [refusal]);
        assert_eq!(metrics.take_shed_samples(), []);
    }

    #[test]
    fn odd_statuses_and_classes_are_counted_somewhere() {
        let metrics = Metrics::new(0);
        metrics.core(7).record_response(999);
        let core = metrics.core(7);
        core.record_served(ClassId(9999), ReplicaId(9999), Duration::MAX, Duration::MAX);
        let totals = metrics.totals();
        assert_eq!(totals.responses[4], 1);
        assert_eq!(totals.classes[CLASSES_MAX - 1].service.count(), 1);
    }
}
