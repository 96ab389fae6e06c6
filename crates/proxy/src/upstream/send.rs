//! Sends a request to the replica of its slot, and to another one where that is safe.
//!
//! | what happened | did the replica see it? | then |
//! | --- | --- | --- |
//! | no connection | no | another replica, whatever the method |
//! | a pooled connection was closed before the request was written | no | another connection |
//! | the connection broke before the response's head | perhaps | another replica, if the method is idempotent, the body can be sent again and the budget allows |
//! | no head before the deadline | perhaps | 504 |
//!
//! So POST is never sent twice to anybody who may have seen it.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tidegate_control::Timestamp;
use tidegate_sentry::{Ending, ReplicaId};

use super::pool::Sender;
use super::{Replica, connect};
use crate::alarm::{Alarm, Elapsed};
use crate::config::HostHeader;
use crate::fault::{Fault, Invalid};
use crate::gate::Slot;
use crate::health::Outcome;
use crate::metrics::UpstreamFailure;
use crate::request::deadline::Allowance;
use crate::request::outward::set_host;
use crate::request::upload::{Pace, Upload};
use crate::worker::Worker;

/// A client that lets its replica wait this long for the next piece of its body no longer holds
/// a slot. Chosen: longer than a round trip around the world, shorter than anybody's patience.
pub(crate) const STALL: Duration = Duration::from_millis(500);

/// Connections tried for one request that no replica has seen yet.
const UNSEEN_MAX: u32 = 4;

/// A request ready to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) parts: Parts,
    pub(crate) upload: Upload,
    /// Whom the client asked for; HTTP/1.0 need not say.
    pub(crate) host: Option<HeaderValue>,
}

/// A response whose head has come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) lease: Lease,
}

/// The connection a response comes in on. Given back when the response has been read; dropped
/// before that, an HTTP/1.1 connection closes.
#[derive(Debug)]
pub(crate) struct Lease {
    worker: Arc<Worker>,
    uid: u64,
    sender: Sender,
}

impl Lease {
    pub(crate) fn give_back(self) {
        let state = &self.worker.state;
        let idle_max = state.settings().config.upstream.idle_max;
        // HTTP/2 connections are shared and have never left the pool.
        if matches!(self.sender, Sender::Http1(_)) && !state.is_draining() {
            self.worker
                .pool
                .put(self.uid, self.sender, state.now(), idle_max);
        }
    }
}

/// When a request has to be answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Timestamp,
    pub(crate) allowance: Allowance,
}

/// Stands where a replica has gone between two looks at the settings.
static UNKNOWN_HOST: HeaderValue = HeaderValue::from_static("invalid");

/// A connection to send a request on.
struct Connection {
    sender: Sender,
    /// The replica it leads to.
    uid: u64,
    /// Whether it has been used before, and so may have been closed since.
    reused: bool,
}

/// Sends one request.
pub(crate) struct Sending<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) slot: &'a mut Slot,
    pub(crate) alarm: &'a Alarm,
    pub(crate) deadline: Deadline,
}

/// What became of one attempt.
enum Failure {
    /// The replica has not seen the request, which is here again.
    Unseen(Outgoing),
    /// It may have.
    Seen(UpstreamFailure),
}

impl Sending<'_> {
    /// Sends the request until somebody answers or nobody may be asked any more.
    pub(crate) async fn send(mut self, mut outgoing: Outgoing) -> Result<Answer, Fault> {
        self.earn_retry();
        let pace = outgoing.upload.pace();
        let mut unseen = 0;
        let mut repeated = 0;
        loop {
            let spare = self.spare(&outgoing, repeated);
            match self.attempt(outgoing, pace.as_deref()).await? {
                Ok(answer) => return Ok(answer),
                Err(Failure::Unseen(back)) if unseen < UNSEEN_MAX => {
                    unseen += 1;
                    outgoing = back;
                    self.slot.reassign();
                }
                Err(Failure::Unseen(_)) => return Err(self.give_up(UpstreamFailure::Connect)),
                Err(Failure::Seen(failure)) => {
                    let spare = spare.filter(|_| self.spend_retry());
                    outgoing = spare.ok_or_else(|| self.give_up(failure))?;
                    repeated += 1;
                    self.slot.reassign();
                }
            }
        }
    }

    fn give_up(&mut self, failure: UpstreamFailure) -> Fault {
        self.slot.set_ending(Ending::Dropped);
        Fault::Upstream(failure)
    }

    /// One attempt. The outer error is final.
    async fn attempt(
        &mut self,
        outgoing: Outgoing,
        pace: Option<&Pace>,
    ) -> Result<Result<Answer, Failure>, Fault> {
        let id = self.slot.replica();
        let connection = match self.connection(id).await? {
            Ok(connection) => connection,
            Err(_) => {
                self.record_failure(id, UpstreamFailure::Connect);
                return Ok(Err(Failure::Unseen(outgoing)));
            }
        };
        let host = outgoing.host.clone();
        let reused = connection.reused;
        let request = self.shape(outgoing, id, &connection.sender);
        let result = self.exchange(connection, request, pace).await?;
        Ok(result.map_err(|mut error| match error.take_message() {
            Some(request) => {
                if !reused {
                    self.record_failure(id, UpstreamFailure::Connect);
                }
                let (parts, upload) = request.into_parts();
                Failure::Unseen(Outgoing {
                    parts,
                    upload,
                    host,
                })
            }
            None => {
                let failure = kind(error.error());
                self.record_failure(id, failure);
                Failure::Seen(failure)
            }
        }))
    }

    /// A connection from the pool, or a new one.
    async fn connection(&mut self, id: ReplicaId) -> Result<io::Result<Connection>, Fault> {
        let state = &self.worker.state;
        let replica = {
            // Settings are looked at, not kept: a count shared by all cores is worth avoiding.
            let settings = state.settings();
            let Some(replica) = settings.replica(id) else {
                return Ok(Err(io::ErrorKind::NotFound.into()));
            };
            if let Some(sender) = self.worker.pool.take(replica, state.now()) {
                return Ok(Ok(Connection {
                    sender,
                    uid: replica.uid(),
                    reused: true,
                }));
            }
            Arc::clone(replica)
        };
        let limit = *state.settings().config.timeouts.connect;
        let alarm = Alarm::set(self.worker, (state.now() + limit).min(self.deadline.at));
        match alarm.before(open(self.worker, &replica)).await {
            Ok(opened) => Ok(opened.map(|sender| Connection {
                sender,
                uid: replica.uid(),
                reused: false,
            })),
            Err(Elapsed) if state.now() >= self.deadline.at => {
                Err(self.deadline_passed(UpstreamFailure::Connect))
            }
            Err(Elapsed) => Ok(Err(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Writes the request and waits for the head of the response.
    async fn exchange(
        &mut self,
        mut connection: Connection,
        request: Request<Upload>,
        pace: Option<&Pace>,
    ) -> Result<Result<Answer, TrySendError<Request<Upload>>>, Fault> {
        let result = match &mut connection.sender {
            Sender::Http1(sender) => {
                let response = sender.try_send_request(request);
                self.await_head(response, pace).await?
            }
            Sender::Http2(sender) => {
                let response = sender.try_send_request(request);
                self.await_head(response, pace).await?
            }
        };
        if result.is_err()
            && let Some(invalid) = pace.and_then(Pace::fault)
        {
            return Err(invalid.into());
        }
        Ok(result.map(|response| Answer {
            response,
            lease: Lease {
                worker: Arc::clone(self.worker),
                uid: connection.uid,
                sender: connection.sender,
            },
        }))
    }

    /// Waits within the deadline. While a body is still coming in, every piece of it starts the
    /// time again, and a client that makes the replica wait loses the slot.
    async fn await_head<F: Future>(
        &mut self,
        response: F,
        pace: Option<&Pace>,
    ) -> Result<F::Output, Fault> {
        let mut response = pin!(response);
        let mut frames = 0;
        loop {
            let open = pace.filter(|pace| pace.is_open());
            let now = self.worker.state.now();
            self.alarm.reset(match open {
                Some(_) => self.deadline.at.min(now + STALL),
                None => self.deadline.at,
            });
            match self.alarm.before(response.as_mut()).await {
                Ok(output) => return Ok(output),
                Err(Elapsed) => self.on_alarm(open, &mut frames)?,
            }
        }
    }

    fn on_alarm(&mut self, open: Option<&Pace>, frames: &mut u32) -> Result<(), Fault> {
        let now = self.worker.state.now();
        if let Some(pace) = open {
            let seen = pace.frames();
            if seen != *frames && !self.deadline.allowance.by_client {
                self.deadline.at = now + self.deadline.allowance.time;
            } else if seen == *frames && pace.is_waiting() {
                self.slot.stream();
            }
            *frames = seen;
        }
        match now < self.deadline.at {
            true => Ok(()),
            false if open.is_some_and(Pace::is_waiting) => Err(Invalid::BodyTimeout.into()),
            false => Err(self.deadline_passed(UpstreamFailure::Timeout)),
        }
    }

    /// A client's own haste is no failure of the replica.
    fn deadline_passed(&mut self, failure: UpstreamFailure) -> Fault {
        if !self.deadline.allowance.by_client {
            self.record_failure(self.slot.replica(), failure);
            self.slot.set_ending(Ending::Dropped);
        }
        Fault::Deadline
    }

    fn record_failure(&self, id: ReplicaId, failure: UpstreamFailure) {
        self.worker.metrics().record_upstream_failure(failure);
        self.worker
            .state
            .board()
            .record(id, Outcome::Failed(failure));
    }

    /// Puts the request into the form the connection's protocol has for it.
    fn shape(&self, outgoing: Outgoing, id: ReplicaId, sender: &Sender) -> Request<Upload> {
        let Outgoing {
            mut parts,
            upload,
            host,
        } = outgoing;
        let settings = self.worker.state.settings();
        let replica = settings.replica(id);
        let own = replica.map_or(&UNKNOWN_HOST, |replica| replica.host());
        let host = match settings.config.upstream.host {
            HostHeader::Client => host.as_ref().unwrap_or(own),
            HostHeader::Replica => own,
        };
        match sender {
            Sender::Http1(_) => {
                parts.version = Version::HTTP_11;
                if parts.uri.authority().is_some() {
                    parts.uri = path_of(&parts.uri).into();
                }
                set_host(&mut parts.headers, host);
                announce_nothing(&mut parts, &upload);
            }
            Sender::Http2(_) => {
                parts.version = Version::HTTP_2;
                parts.headers.remove(HOST);
                parts.uri = absolute(
                    &parts.uri,
                    replica.map_or(Scheme::HTTP, |r| r.scheme()),
                    host,
                );
            }
        }
        Request::from_parts(parts, upload)
    }

    /// A copy to send again if the first is lost: only of what may be repeated.
    fn spare(&self, outgoing: &Outgoing, repeated: u32) -> Option<Outgoing> {
        let may = repeated < self.worker.state.settings().config.retry.attempts
            && is_idempotent(&outgoing.parts.method);
        let upload = outgoing.upload.copy().filter(|_| may)?;
        Some(Outgoing {
            parts: outgoing.parts.clone(),
            upload,
            host: outgoing.host.clone(),
        })
    }

    fn earn_retry(&self) {
        let state = &self.worker.state;
        let rules = &state.settings().config.retry;
        self.worker
            .budget
            .lock()
            .earn(state.now(), rules, state.threads());
    }

    fn spend_retry(&self) -> bool {
        let state = &self.worker.state;
        let rules = &state.settings().config.retry;
        let granted = self
            .worker
            .budget
            .lock()
            .spend(state.now(), rules, state.threads());
        match granted {
            true => self.worker.metrics().record_retry(),
            false => self.worker.metrics().record_retry_denied(),
        }
        granted
    }
}

/// RFC 9110 section 9.2.2, as far as anybody relies on it.
pub(crate) fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE
    )
}

/// Opens a connection; of an HTTP/2 replica one at a time.
async fn open(worker: &Worker, replica: &Replica) -> io::Result<Sender> {
    let opening = worker.pool.opening(replica);
    let _turn = match replica.is_http2() {
        true => Some(opening.lock().await),
        false => None,
    };
    if let Some(sender) = worker.pool.take(replica, worker.state.now()) {
        return Ok(sender);
    }
    let permit = connect::permit(replica).await?;
    let sender = connect::connect(replica, permit).await?;
    if let Sender::Http2(shared) = &sender {
        let shared = Sender::Http2(shared.clone());
        worker
            .pool
            .put(replica.uid(), shared, worker.state.now(), 0);
    }
    Ok(sender)
}

fn path_of(uri: &Uri) -> PathAndQuery {
    uri.path_and_query()
        .cloned()
        .unwrap_or(PathAndQuery::from_static("/"))
}

/// HTTP/2 names scheme and authority in the target.
fn absolute(uri: &Uri, scheme: Scheme, host: &HeaderValue) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    // It passed the check of its syntax when the request came in.
    parts.authority = host.to_str().ok().and_then(|host| host.parse().ok());
    parts.path_and_query = Some(path_of(uri));
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Servers want to be told that a POST has no body (RFC 9110 section 8.6).
fn announce_nothing(parts: &mut Parts, upload: &Upload) {
    let expects_body = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    if expects_body && matches!(upload, Upload::Empty) {
        parts
            .headers
            .insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// What an error says about the replica.
fn kind(error: &hyper::Error) -> UpstreamFailure {
    match error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
        true => UpstreamFailure::Malformed,
        false => UpstreamFailure::Reset,
    }
}
