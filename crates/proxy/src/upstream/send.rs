//! Sends a request to the replica of its slot, and to another one where that is safe.
//!
//! | what happened | did the replica see it? | then |
//! | --- | --- | --- |
//! | no connection | no | another replica, whatever the method |
//! | a pooled connection was closed before the request was written | no | another connection |
//! | a pooled connection is closed without a byte of an answer | hardly: it was closed when the request came | a new connection, if the method is idempotent and the body can be sent again |
//! | an HTTP/2 replica closes the connection before it looked at the request (GOAWAY) | no | another connection, unless a part of the body has been passed on and is gone |
//! | an HTTP/2 replica refuses the stream (REFUSED_STREAM) | no | the same, if the budget allows |
//! | the connection broke before the response's head | perhaps | another replica, if the method is idempotent, the body can be sent again and the budget allows |
//! | no head before the deadline | perhaps | 504 |
//!
//! So POST is never sent twice to anybody who may have seen it. Where another replica is meant and
//! none has room, the request goes back to the head of the queue.

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::HeaderValue;
use hyper::client::conn::http2::SendRequest;
use tidegate_control::Timestamp;
use tidegate_sentry::ReplicaId;

use super::download::Download;
use super::http1::{self, Failed};
use super::pool::Sender;
use super::{Replica, connect, shape};
use crate::alarm::{Alarm, Elapsed};
use crate::client::Client;
use crate::config::HostHeader;
use crate::fault::{Fault, Invalid};
use crate::gate::{Slot, Wait};
use crate::health::Outcome;
use crate::message::{self, Response};
use crate::metrics::UpstreamFailure;
use crate::request::Request;
use crate::request::deadline::Allowance;
use crate::request::head::Head;
use crate::request::upload::{Pace, Upload};
use crate::settings::Settings;
use crate::worker::{LocalApplication, Worker};

/// How often an upload is looked at.
const UPLOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Connections tried for one request that no replica has seen yet.
const UNSEEN_MAX: u32 = 4;

/// A response whose head has come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<()>,
    pub(crate) body: Download,
}

/// When a request has to be answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Timestamp,
    /// The time that the proxy gives it; none where its client gave less.
    by_proxy: Option<Duration>,
}

impl Deadline {
    /// Of a request that arrived at this time.
    pub(crate) fn new(arrived: Timestamp, allowance: Allowance) -> Self {
        Self {
            at: arrived + allowance.time,
            by_proxy: (!allowance.by_client).then_some(allowance.time),
        }
    }

    /// The client's own, if it said so.
    pub(crate) fn by_client(self) -> Option<Timestamp> {
        self.by_proxy.is_none().then_some(self.at)
    }

    /// Gives a request its whole time from now on, unless the client itself has less.
    pub(crate) fn restart(&mut self, now: Timestamp) {
        if let Some(time) = self.by_proxy {
            self.at = now + time;
        }
    }
}

/// A connection to send a request on.
struct Connection {
    sender: Sender,
    /// The replica it leads to.
    uid: u64,
    /// Whether it has been used before, and so may have been closed since.
    reused: bool,
}

/// Sends one request. It knows what is needed, so that the futures of its steps need not hold it.
pub(crate) struct Sending<'a> {
    worker: &'a Worker,
    application: &'a LocalApplication,
    client: &'a Client,
    slot: &'a mut Slot,
    alarm: Alarm<&'a Worker>,
    message: &'a mut message::Request<Upload>,
    head: &'a Head,
    deadline: &'a mut Deadline,
    /// How often it may be sent again to a replica that may have seen it.
    repetitions: u32,
    pace: Option<Rc<Pace>>,
    /// The body once more, if it may be sent again.
    spare: Option<Upload>,
    /// Whether a pooled connection will not do.
    fresh: bool,
}

/// What became of one attempt.
enum Failure {
    /// No connection to the replica.
    Unreachable,
    /// The connection turned out to be closed before the request was written or looked at.
    Stale,
    /// The replica may have seen the request.
    Seen(UpstreamFailure),
}

impl<'a> Sending<'a> {
    pub(crate) fn new(request: &'a mut Request, slot: &'a mut Slot) -> Self {
        let exchange = &request.exchange;
        let worker = &**exchange.worker();
        let settings = exchange.application.settings();
        Self {
            worker,
            application: &exchange.application,
            client: &exchange.client,
            slot,
            alarm: Alarm::set(worker, request.deadline.at),
            pace: request.message.body.pace(),
            message: &mut request.message,
            head: &request.head,
            deadline: &mut request.deadline,
            repetitions: settings.config.retry.attempts,
            spare: None,
            fresh: false,
        }
    }

    /// Sends the request until somebody answers or nobody may be asked any more.
    pub(crate) async fn send(&mut self) -> Result<Answer, Fault> {
        self.application.budget.earn();
        let mut unseen = 0;
        let mut repeated = 0;
        loop {
            self.keep_spare(repeated);
            let uploads = self.is_uploading();
            if uploads {
                self.slot.pause();
            }
            let failure = match self.attempt().await? {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if uploads {
                self.slot.resume();
            }
            match failure {
                Failure::Stale if unseen < UNSEEN_MAX => {
                    unseen += 1;
                    // The replica is not to blame: only the connection was old.
                    self.fresh = true;
                }
                Failure::Unreachable if unseen < UNSEEN_MAX && self.move_on().await? => unseen += 1,
                Failure::Stale | Failure::Unreachable => {
                    return Err(self.give_up(UpstreamFailure::Connect));
                }
                Failure::Seen(failure) => {
                    repeated += 1;
                    let spare = self.spare.take().filter(|_| self.spend_retry());
                    self.message.body = spare.ok_or_else(|| self.give_up(failure))?;
                    // If there is nobody else, the one who failed is asked again.
                    self.move_on().await?;
                }
            }
        }
    }

    /// Goes on to another replica, through the queue if none has room. False if there is none.
    async fn move_on(&mut self) -> Result<bool, Fault> {
        if self.slot.reassign() {
            return Ok(true);
        }
        let bytes = self.head.bytes_with(&self.message.body);
        match self.slot.requeue(bytes, self.deadline.by_client()) {
            Some(wait) => Box::pin(self.wait_again(wait)).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Waits for the slot of another replica. A client that leaves drops this future, and with it
    /// its place in the queue.
    async fn wait_again(&mut self, mut wait: Wait) -> Result<(), Fault> {
        self.alarm.reset(self.deadline.at);
        let answer = self.alarm.before(wait.answer()).await;
        let watched = self.slot.take_watched();
        *self.slot = match answer {
            Ok(Some(answer)) => answer?,
            Ok(None) => return Err(Fault::Departed),
            Err(Elapsed) => return Err(Fault::Deadline),
        };
        self.slot.attach(watched);
        Ok(())
    }

    fn give_up(&mut self, failure: UpstreamFailure) -> Fault {
        self.slot.set_failed();
        Fault::Upstream(failure)
    }

    /// One attempt. The outer error is final; otherwise the request has its body again if it has
    /// not been seen.
    async fn attempt(&mut self) -> Result<Result<Answer, Failure>, Fault> {
        let id = self.slot.replica();
        let connection = match self.connection(id).await? {
            Ok(connection) => connection,
            Err(cause) => {
                self.record_failure(id, no_connection(&cause));
                return Ok(Err(Failure::Unreachable));
            }
        };
        let exchanged = match connection.sender {
            Sender::Http1(sender) => self.exchange_http1(sender, connection.uid).await?,
            Sender::Http2(sender) => Box::pin(self.exchange_http2(sender)).await?,
        };
        let failed = match exchanged {
            Ok(answer) => return Ok(Ok(answer)),
            Err(failed) => failed,
        };
        if failed == Failed::Closed
            && connection.reused
            && let Some(spare) = self.spare.take()
        {
            self.message.body = spare;
            return Ok(Err(Failure::Stale));
        }
        let failure = match failed {
            Failed::Closed => UpstreamFailure::Reset,
            Failed::Declined => return Ok(Err(Failure::Stale)),
            Failed::Unsent if connection.reused => return Ok(Err(Failure::Stale)),
            Failed::Unsent => UpstreamFailure::Connect,
            Failed::Seen(failure) => failure,
        };
        if let Some(invalid) = self.pace.as_deref().and_then(Pace::fault) {
            return Err(invalid.into());
        }
        self.record_failure(id, failure);
        Ok(Err(match failed {
            Failed::Unsent | Failed::Declined => Failure::Unreachable,
            Failed::Closed | Failed::Seen(_) => Failure::Seen(failure),
        }))
    }

    /// A connection from the pool, or a new one, and the request in the form its protocol has.
    async fn connection(&mut self, id: ReplicaId) -> Result<io::Result<Connection>, Fault> {
        let replica = {
            // Settings are looked at, not kept: a count shared by all cores is worth avoiding.
            let settings = self.application.settings_with(id);
            let Some(replica) = settings.replica(id) else {
                return Ok(Err(io::ErrorKind::NotFound.into()));
            };
            if !self.fresh
                && let Some(sender) = self.worker.pool.take(replica, self.worker.about_now())
            {
                let host = self.head.host.as_ref();
                shape(self.message, host, &settings, replica, &sender);
                return Ok(Ok(Connection {
                    sender,
                    uid: replica.uid(),
                    reused: true,
                }));
            }
            Arc::clone(replica)
        };
        // Boxed, like everything that seldom happens: it would make every request larger.
        Box::pin(self.new_connection(replica)).await
    }

    async fn new_connection(
        &mut self,
        replica: Arc<Replica>,
    ) -> Result<io::Result<Connection>, Fault> {
        let state = &self.worker.state;
        let limit = *self.application.settings().config.timeouts.connect;
        let mut alarm = Alarm::set(self.worker, (state.now() + limit).min(self.deadline.at));
        let opened = alarm.before(open(self.worker, &replica)).await;
        let opened = opened.unwrap_or_else(|Elapsed| {
            if replica.is_crowded() {
                Err(CROWDED.into())
            } else {
                Err(io::ErrorKind::TimedOut.into())
            }
        });
        let cause = match opened {
            Ok(sender) => {
                shape(
                    self.message,
                    self.head.host.as_ref(),
                    &self.application.settings(),
                    &replica,
                    &sender,
                );
                return Ok(Ok(Connection {
                    sender,
                    uid: replica.uid(),
                    reused: false,
                }));
            }
            Err(cause) => cause,
        };
        if cause.kind() != CROWDED {
            replica.note_unreachable(&cause);
        }
        if state.now() >= self.deadline.at {
            Err(self.deadline_passed(no_connection(&cause)))
        } else {
            Ok(Err(cause))
        }
    }

    /// Writes the request and waits for the head of the response.
    async fn exchange_http1(
        &mut self,
        mut connection: Box<http1::Connection>,
        uid: u64,
    ) -> Result<Result<Answer, Failed>, Fault> {
        connection.begin(self.message);
        let client = self.client;
        let hear = |status, headers| client.hear(status, headers);
        let head = pin!(poll_fn(|cx| connection.poll_head(cx, hear)));
        Ok(match self.await_head(head).await? {
            Ok(response) => {
                let body = Download::Http1 { connection, uid };
                Ok(Answer { response, body })
            }
            Err(failed) => {
                if failed == Failed::Unsent {
                    self.message.body = connection.take_upload();
                }
                Err(failed)
            }
        })
    }

    async fn exchange_http2(
        &mut self,
        mut sender: SendRequest<Upload>,
    ) -> Result<Result<Answer, Failed>, Fault> {
        let lent = self.message.body.lend();
        let request = shape::take(self.message).into();
        let response = Box::pin(sender.try_send_request(request));
        let mut error = match self.await_head(response).await? {
            Ok(response) => {
                let mut body = Download::Over;
                let response =
                    Response::from(response).map(|incoming| body = Download::Http2(incoming));
                return Ok(Ok(Answer { response, body }));
            }
            Err(error) => error,
        };
        let unsent = error.take_message().is_some();
        Ok(Err(match lent.take_back() {
            Some(body) if unsent || self.is_declined(error.error()) => {
                self.message.body = body;
                if unsent {
                    Failed::Unsent
                } else {
                    Failed::Declined
                }
            }
            _ => Failed::Seen(kind(error.error())),
        }))
    }

    /// Whether the replica has said that it did not look at the request, which may then be sent
    /// again whatever its method (RFC 9113 section 8.7). Of those on a connection that it closes h2
    /// fails the ones above its last stream alone with the GOAWAY. One that it refuses by itself
    /// may be too much for it, so that is a retry like any other.
    fn is_declined(&self, error: &hyper::Error) -> bool {
        let cause = error.source().and_then(|it| it.downcast_ref::<h2::Error>());
        let Some(cause) = cause.filter(|cause| cause.is_remote()) else {
            return false;
        };
        let refused = cause.reason() == Some(h2::Reason::REFUSED_STREAM);
        cause.is_go_away() || (refused && self.repetitions > 0 && self.spend_retry())
    }

    /// Waits within the deadline. While a body is still coming in, the request is paused, and every
    /// piece of the body starts the time again.
    async fn await_head<F>(&mut self, mut response: F) -> Result<F::Output, Fault>
    where
        F: Future + Unpin,
    {
        if self.is_uploading() {
            let received = Box::pin(self.await_body(&mut response)).await?;
            if let Some(output) = received {
                return Ok(output);
            }
        }
        self.alarm.reset(self.deadline.at);
        let head = self.alarm.before(&mut response).await;
        head.map_err(|Elapsed| self.deadline_passed(UpstreamFailure::Timeout))
    }

    /// Waits until the replica has the whole body; gives the response if that comes before.
    async fn await_body<F>(&mut self, mut response: F) -> Result<Option<F::Output>, Fault>
    where
        F: Future + Unpin,
    {
        let Some(pace) = self.pace.clone() else {
            return Ok(None);
        };
        let mut frames = pace.frames();
        pace.begin(self.worker.state.now());
        loop {
            let look = self.worker.state.now() + UPLOAD_INTERVAL;
            self.alarm.reset(self.deadline.at.min(look));
            let looked = self
                .alarm
                .before(poll_fn(|cx| match Pin::new(&mut response).poll(cx) {
                    Poll::Ready(output) => Poll::Ready(Some(output)),
                    Poll::Pending => pace.poll_complete(cx).map(|()| None),
                }));
            match looked.await {
                Ok(None) => {
                    self.slot.resume();
                    self.deadline.restart(self.worker.state.now());
                    return Ok(None);
                }
                Ok(output) => return Ok(output),
                Err(Elapsed) => self.look_at_upload(&pace, &mut frames)?,
            }
        }
    }

    fn is_uploading(&self) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.is_open())
    }

    fn look_at_upload(&mut self, pace: &Pace, frames: &mut u32) -> Result<(), Fault> {
        let now = self.worker.state.now();
        let waiting = pace.is_waiting();
        if pace.is_too_slow(now, waiting) {
            return Err(Invalid::BodyTimeout.into());
        }
        if std::mem::replace(frames, pace.frames()) != pace.frames() {
            self.deadline.restart(now);
        }
        if now < self.deadline.at {
            Ok(())
        } else if waiting {
            Err(Invalid::BodyTimeout.into())
        } else {
            Err(self.deadline_passed(UpstreamFailure::Timeout))
        }
    }

    /// A client's own haste is no failure of the replica.
    fn deadline_passed(&mut self, failure: UpstreamFailure) -> Fault {
        if self.deadline.by_client().is_none() {
            self.record_failure(self.slot.replica(), failure);
            self.slot.set_failed();
        }
        Fault::Deadline
    }

    fn record_failure(&self, id: ReplicaId, failure: UpstreamFailure) {
        self.application.metrics().record_upstream_failure(failure);
        self.application
            .shared
            .board()
            .record(id, Outcome::Failed(failure));
    }

    /// Keeps a copy of what may be repeated.
    fn keep_spare(&mut self, repeated: u32) {
        let may_repeat = repeated < self.repetitions && shape::is_idempotent(&self.message.method);
        self.spare = may_repeat.then(|| self.message.body.copy()).flatten();
    }

    fn spend_retry(&self) -> bool {
        let state = &self.worker.state;
        let settings = self.application.settings();
        let rules = &settings.config.retry;
        let granted = self
            .application
            .budget
            .spend(state.now(), rules, state.threads());
        if granted {
            self.application.metrics().record_retry();
        } else {
            self.application.metrics().record_retry_denied();
        }
        granted
    }
}

/// There is no connection because all there may be are in use.
const CROWDED: io::ErrorKind = io::ErrorKind::ResourceBusy;

/// What it says about a replica that there is no connection. One that can be reached and holds all
/// its connections does not answer in time.
fn no_connection(cause: &io::Error) -> UpstreamFailure {
    match cause.kind() {
        CROWDED => UpstreamFailure::Timeout,
        _ => UpstreamFailure::Connect,
    }
}

/// Puts the request into the form the connection's protocol has for it. `host` is what the client
/// asked for.
pub(super) fn shape(
    request: &mut message::Request<Upload>,
    host: Option<&HeaderValue>,
    settings: &Settings,
    replica: &Replica,
    sender: &Sender,
) {
    let wanted = match settings.config.upstream.host {
        HostHeader::Client => host,
        HostHeader::Replica => None,
    };
    match sender {
        Sender::Http1(_) => shape::for_http1(request, wanted, replica.host()),
        Sender::Http2(_) => {
            let host = wanted.unwrap_or(replica.host());
            shape::for_http2(request, replica.scheme(), host);
        }
    }
}

/// Opens a connection; of an HTTP/2 replica one at a time.
pub(super) async fn open(worker: &Worker, replica: &Replica) -> io::Result<Sender> {
    let opening = worker.pool.opening(replica);
    let _turn = if replica.is_http2() {
        Some(opening.lock().await)
    } else {
        None
    };
    if replica.is_http2()
        && let Some(sender) = worker.pool.take(replica, worker.about_now())
    {
        return Ok(sender);
    }
    let permit = connect::permit(replica).await?;
    let sender = connect::connect(replica, permit).await?;
    if let Sender::Http2(shared) = &sender {
        let shared = Sender::Http2(shared.clone());
        worker
            .pool
            .put(replica.uid(), shared, worker.about_now(), 0);
    }
    Ok(sender)
}

/// What an error says about the replica.
pub(super) fn kind(error: &hyper::Error) -> UpstreamFailure {
    if error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
        UpstreamFailure::Malformed
    } else {
        UpstreamFailure::Reset
    }
}
