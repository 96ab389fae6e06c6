//! Sources of requests while they run.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use tidegate_control::Timestamp;
use tidegate_sentry::policing::PathHasher;
use tidegate_sentry::{Arrival, ClassId, PathKey};

use super::spec::{LoadSpec, Scenario, ScenarioError};
use super::trace::{Trace, TraceKind};
use crate::client::{Failure, Retry};
use crate::rng::{SimRng, Streams};
use crate::service::Law;
use crate::workload::Arrivals;

/// A request of a client, with everything that chance decides about it: a retry is the same again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) load: u32,
    kind: u32,
    /// 1 for the first.
    pub(super) tries: u32,
    pub(super) work: f64,
    /// What optional content adds to it.
    pub(super) optional: f64,
    pub(super) patience: Option<Duration>,
    /// Its own deadline and bytes, in place of those of its kind.
    own: Option<(Option<Duration>, u32)>,
    /// How long the answer is read or streamed after the work is done.
    pub(super) tail: Option<Tail>,
}

impl Attempt {
    /// The same request once more.
    pub(super) fn again(self) -> Self {
        Self {
            tries: self.tries + 1,
            ..self
        }
    }
}

/// What follows the work.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tail {
    /// The replica's slot stays taken.
    Read(Duration),
    /// Nothing is taken.
    Stream(Duration),
}

/// One source.
#[derive(Debug)]
pub(super) struct Load {
    index: u32,
    source: Source,
    kinds: Vec<Kind>,
    mix: SimRng,
    work: SimRng,
    optional: Option<Law>,
    extra: SimRng,
    patience: SimRng,
    tail: SimRng,
    backoff: SimRng,
}

#[derive(Debug)]
enum Source {
    Open(Box<Arrivals>),
    Recorded { trace: Arc<Trace>, next: usize },
    Closed { users: u32, think: Law, rng: SimRng },
}

#[derive(Debug)]
struct Kind {
    /// Chance of this kind or an earlier one.
    up_to: f64,
    class: ClassId,
    work: Law,
    timeout: Option<Law>,
    retry: Option<Retry>,
    deadline: Option<Duration>,
    read: Option<Law>,
    stream: Option<Law>,
    bytes: u32,
    path: Option<PathKey>,
    tenant: Option<u64>,
}

impl Load {
    pub(super) fn new(
        scenario: &Scenario,
        index: usize,
        streams: &Streams,
    ) -> Result<Self, ScenarioError> {
        let spec = &scenario.load[index];
        let stream = |name| streams.indexed(name, index);
        Ok(Self {
            index: u32::try_from(index).expect("a file has fewer than 2^32 loads"),
            source: source(spec, stream("arrivals")),
            kinds: kinds(scenario, spec)?,
            mix: stream("mix"),
            work: stream("service"),
            optional: scenario.optional.clone(),
            extra: stream("optional"),
            patience: stream("patience"),
            tail: stream("tail"),
            backoff: stream("backoff"),
        })
    }

    /// The next arrival of an open loop.
    pub(super) fn next_arrival(&mut self) -> Option<Timestamp> {
        match &mut self.source {
            Source::Open(arrivals) => arrivals.next(),
            Source::Recorded { trace, next } => {
                let request = trace.requests.get(*next)?;
                *next += 1;
                Some(Timestamp::ZERO + request.at)
            }
            Source::Closed { .. } => None,
        }
    }

    /// When each user of a closed loop sends its first request.
    pub(super) fn first_requests(&mut self) -> Vec<Duration> {
        let users = match &self.source {
            Source::Open(_) | Source::Recorded { .. } => 0,
            Source::Closed { users, .. } => *users,
        };
        (0..users).filter_map(|_| self.think()).collect()
    }

    /// A user's time between an answer and the next request; nothing in an open loop.
    pub(super) fn think(&mut self) -> Option<Duration> {
        match &mut self.source {
            Source::Open(_) | Source::Recorded { .. } => None,
            Source::Closed { think, rng, .. } => Some(draw(think, rng)),
        }
    }

    /// A new request.
    pub(super) fn request(&mut self) -> Attempt {
        if let Source::Recorded { trace, next } = &self.source {
            // The one whose arrival was given last.
            let request = &trace.requests[*next - 1];
            return Attempt {
                load: self.index,
                kind: request.kind,
                tries: 1,
                work: request.work,
                optional: request.optional,
                patience: request.patience,
                own: Some((request.deadline, request.bytes)),
                tail: None,
            };
        }
        let chance = self.mix.random::<f64>();
        let at = self.kinds.partition_point(|kind| kind.up_to <= chance);
        let at = at.min(self.kinds.len() - 1);
        let kind = &self.kinds[at];
        let timeout = kind.timeout.as_ref();
        let read = kind.read.as_ref();
        let stream = kind.stream.as_ref();
        Attempt {
            load: self.index,
            kind: at as u32,
            tries: 1,
            work: kind.work.sample(&mut self.work),
            optional: (self.optional.as_ref()).map_or(0.0, |law| law.sample(&mut self.extra)),
            patience: timeout.map(|law| draw(law, &mut self.patience)),
            own: None,
            tail: (read.map(|law| Tail::Read(draw(law, &mut self.tail))))
                .or_else(|| stream.map(|law| Tail::Stream(draw(law, &mut self.tail)))),
        }
    }

    pub(super) fn class(&self, attempt: &Attempt) -> ClassId {
        self.kinds[attempt.kind as usize].class
    }

    /// What the proxy sees of an attempt.
    pub(super) fn arrival(&self, now: Timestamp, attempt: &Attempt) -> Arrival {
        let kind = &self.kinds[attempt.kind as usize];
        let (deadline, bytes) = attempt.own.unwrap_or((kind.deadline, kind.bytes));
        Arrival {
            class: kind.class,
            bytes,
            deadline: deadline.map(|deadline| now + deadline),
            path: kind.path,
            tenant: kind.tenant,
            ..Arrival::default()
        }
    }

    /// When the client tries again after a failed attempt, if it does.
    pub(super) fn retry(
        &mut self,
        attempt: &Attempt,
        failure: Failure,
        retry_after: Duration,
    ) -> Option<Duration> {
        self.kinds[attempt.kind as usize].retry.as_ref()?.delay(
            failure,
            attempt.tries,
            retry_after,
            &mut self.backoff,
        )
    }
}

fn draw(law: &Law, rng: &mut SimRng) -> Duration {
    Duration::try_from_secs_f64(law.sample(rng)).unwrap_or(Duration::MAX)
}

fn source(spec: &LoadSpec, rng: SimRng) -> Source {
    if let Some(trace) = &spec.trace {
        return Source::Recorded {
            trace: Arc::clone(trace),
            next: 0,
        };
    }
    match (&spec.rate, &spec.times, spec.users) {
        (Some(rate), ..) => {
            let arrivals = Arrivals::new(rate.clone(), spec.pattern(), rng);
            Source::Open(Box::new(arrivals))
        }
        (_, Some(times), _) => {
            let times = times.iter().map(|time| Timestamp::ZERO + time.0);
            Source::Open(Box::new(Arrivals::recorded(times.collect(), rng)))
        }
        (.., users) => Source::Closed {
            users: users.map_or(0, std::num::NonZeroU32::get),
            think: spec.think.clone().unwrap_or_else(|| Law::constant(0.0)),
            rng,
        },
    }
}

/// In a simulation nobody has to be kept from guessing hashes.
const NAMES_KEY: (u64, u64) = (0, 0);

fn kinds(scenario: &Scenario, spec: &LoadSpec) -> Result<Vec<Kind>, ScenarioError> {
    if let Some(trace) = &spec.trace {
        return Ok(recorded_kinds(trace));
    }
    let total: f64 = spec.client.iter().map(|client| client.share).sum();
    let mut up_to = 0.0;
    let hasher = PathHasher::new(NAMES_KEY, &[]);
    spec.client
        .iter()
        .map(|client| {
            up_to += client.share / total;
            Ok(Kind {
                up_to,
                class: ClassId(scenario.class_index(client)?),
                work: client.law(&scenario.service),
                timeout: client.timeout.clone(),
                retry: client.retry.clone(),
                deadline: client.deadline.map(|deadline| deadline.0),
                read: client.read.clone(),
                stream: client.stream.clone(),
                bytes: client.bytes,
                path: client.path.as_deref().map(|path| hasher.hash(path)),
                tenant: client.tenant.as_deref().map(|name| hasher.hash(name).0),
            })
        })
        .collect()
}

fn recorded_kinds(trace: &Trace) -> Vec<Kind> {
    let kind = |kind: &TraceKind| Kind {
        up_to: 1.0,
        class: ClassId(kind.class),
        work: Law::constant(0.0),
        timeout: None,
        retry: trace.retry.clone(),
        deadline: None,
        read: None,
        stream: None,
        bytes: 0,
        path: kind.path.map(PathKey),
        tenant: kind.tenant,
    };
    trace.kinds.iter().map(kind).collect()
}
