//! A client's connection: what its parts tell each other.
//!
//! The task of a connection runs its requests, the socket lies below them, and the worker's sweep
//! looks on. They share a [`Client`]. Where bytes flow only counters are touched: the sweep reads
//! them and is the one that knows the time.
//!
//! ```text
//! requests ──── HTTP/1.1, or h2 for HTTP/2 ──── (TLS) ──── socket
//!     │                      │                               │
//!     └──────────────────────┼───────────────────────────────┘
//!                          Client ◄──── sweep: late? idle? stalled? draining?
//! ```

mod counted;
mod frames;
mod http1;
mod http2;
pub(crate) mod identity;
pub(crate) mod inbound;
pub(crate) mod lobby;
mod phase;
pub(crate) mod serve;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod timeouts;
mod wire;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use http::{HeaderValue, StatusCode};

use crate::config::Limits;
use crate::hop::{self, Border};
use crate::http1::write;
use crate::listen::per_address::Address;
use crate::message::Fields;
use crate::worker::{OpenGuard, Worker};
use frames::IDLE_FRAMES_MAX;
use identity::Identity;
use phase::{Change, Phase, Turns};

/// Refusals in a row after which a client waits without a task. Chosen: to change costs as much as
/// half a refusal, so a client of whose requests every second one is let in hardly ever does.
const REFUSALS: u32 = 8;

/// Which protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// What the sweep wants of a connection's task; later ones overrule earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionCommand {
    None,
    /// A head is late: answer 408.
    Timeout,
    /// Finish what is in flight, then close.
    Close,
    /// Close at once.
    Abort,
}

/// Whether the client is still there: a question to the socket and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Unasked,
    Asked,
    Here,
    Gone,
}

/// State shared by the parts of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The client's address, by the PROXY protocol where there is one.
    pub(crate) peer: SocketAddr,
    forwarded_for: OnceCell<HeaderValue>,
    pub(crate) tls: bool,
    identity: OnceCell<Box<Identity>>,
    /// Whether it is a proxy whose `X-Forwarded-*` is believed.
    pub(crate) trusted: bool,
    linger_bytes: u32,
    /// Counts the connection as open for as long as any part of it lives.
    open: OpenGuard,
    protocol: Cell<Protocol>,
    /// Moves with every read and write of the socket.
    progress: Cell<u32>,
    /// Requests that reached the service, those not yet answered in full, and those cancelled.
    requests: Cell<u32>,
    in_flight: Cell<u32>,
    cancelled: Cell<u32>,
    /// Heads of HTTP/1 that were complete.
    heads: Cell<u32>,
    phase: Cell<Phase>,
    /// HTTP/2 frames that carry nothing, since the last sweep.
    idle_frames: Cell<u32>,
    /// Whether answers over HTTP/2 wait for each other.
    corked: Cell<bool>,
    /// Something waits for the client: the socket's write, a request's body.
    write_blocked: Cell<bool>,
    uploads_waiting: Cell<u32>,
    /// Whether to read on after our side is closed.
    linger: Cell<bool>,
    /// Whether nobody would notice that the client leaves.
    unwatched: Cell<bool>,
    presence: Cell<Presence>,
    /// What a replica said before its response, and whether it said anything.
    heard: RefCell<Vec<u8>>,
    has_heard: Cell<bool>,
    command: Cell<ConnectionCommand>,
    /// Requests that were refused since one was not, and whether it has been idle for a while.
    refusals: Cell<u32>,
    idles: Cell<bool>,
    /// Its seat, while it has no task.
    seat: Cell<Option<usize>>,
    task: RefCell<Option<Waker>>,
}

/// Who a connection comes from, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) peer: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) trusted: bool,
    /// Bytes to swallow at the end, so that the client sees an answer given before it was done.
    pub(crate) linger_bytes: u32,
}

impl Client {
    pub(crate) fn new(link: Link, open: OpenGuard) -> Self {
        Self {
            peer: link.peer,
            forwarded_for: OnceCell::new(),
            tls: link.tls,
            identity: OnceCell::new(),
            trusted: link.trusted,
            linger_bytes: link.linger_bytes,
            open,
            protocol: Cell::new(Protocol::Http1),
            progress: Cell::new(0),
            requests: Cell::new(0),
            in_flight: Cell::new(0),
            cancelled: Cell::new(0),
            heads: Cell::new(0),
            phase: Cell::new(Phase::Opening),
            idle_frames: Cell::new(0),
            corked: Cell::new(false),
            write_blocked: Cell::new(false),
            uploads_waiting: Cell::new(0),
            linger: Cell::new(false),
            unwatched: Cell::new(false),
            presence: Cell::new(Presence::Unasked),
            heard: RefCell::default(),
            has_heard: Cell::new(false),
            command: Cell::new(ConnectionCommand::None),
            refusals: Cell::new(0),
            idles: Cell::new(false),
            seat: Cell::new(None),
            task: RefCell::new(None),
        }
    }

    /// One that nothing comes from.
    #[cfg(test)]
    pub(crate) fn of_nobody(worker: &Rc<Worker>) -> Self {
        let link = Link {
            peer: ([127, 0, 0, 1], 1).into(),
            tls: false,
            trusted: false,
            linger_bytes: 0,
        };
        Self::new(link, worker.count_open())
    }

    /// Where it is served, from its first byte to its last.
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        self.open.worker()
    }

    /// The address whose connections it counts for, if it does.
    pub(crate) fn address(&self) -> Option<Address> {
        self.open.address()
    }

    /// The client's address for `x-forwarded-for`.
    pub(crate) fn forwarded_for(&self) -> &HeaderValue {
        self.forwarded_for.get_or_init(|| {
            let ip = self.peer.ip().to_string();
            HeaderValue::try_from(ip).unwrap_or(HeaderValue::from_static("unknown"))
        })
    }

    /// Who it is by its certificate, if it presented one.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.get().map(|identity| &**identity)
    }

    /// Its certificate has been verified.
    pub(crate) fn set_identity(&self, identity: Identity) {
        // There is one handshake per connection.
        let _ = self.identity.set(Box::new(identity));
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.get()
    }

    /// TLS is being agreed on.
    pub(crate) fn begin_handshake(&self) {
        self.change(Change::HandshakeBegun);
    }

    /// TLS has been agreed on, or not.
    pub(crate) fn end_handshake(&self) {
        self.change(Change::HandshakeEnded);
    }

    /// The only place where the phase changes.
    fn change(&self, change: Change) {
        let turns = Turns {
            heads: self.heads.get(),
            requests: self.requests.get(),
        };
        self.phase.set(self.phase.get().after(change, turns));
    }

    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        self.protocol.set(protocol);
    }
}

/// Adds, and gives the new value.
fn add(counter: &Cell<u32>, delta: i32) -> u32 {
    let value = counter.get().wrapping_add_signed(delta);
    counter.set(value);
    value
}

/// The requests' side.
impl Client {
    /// A request reached the service.
    pub(crate) fn begin_request(&self) {
        add(&self.requests, 1);
        add(&self.in_flight, 1);
        self.change(Change::RequestBegun);
    }

    /// Whether one request is under way, and no other beside it.
    pub(crate) fn has_one_request(&self) -> bool {
        self.in_flight.get() == 1
    }

    pub(crate) fn end_request(&self, cancelled: bool) {
        if add(&self.in_flight, -1) == 0 {
            self.change(Change::RequestsEnded);
        }
        if cancelled {
            add(&self.cancelled, 1);
        }
    }

    /// Whether it has cancelled so much that it is trusted with no more. What is in flight may be
    /// cancelled as well, so it counts as soon as one request has been.
    pub(crate) fn cancels_too_much(&self, limits: &Limits) -> bool {
        let cancelled = self.cancelled.get();
        let doubtful = cancelled.saturating_add(self.in_flight.get());
        cancelled >= limits.early_resets
            || (cancelled > 0 && doubtful > limits.early_resets.max(limits.streams))
    }

    /// Swallow what the client still sends after the connection's last answer.
    pub(crate) fn linger(&self) {
        self.linger.set(true);
    }

    /// A request's body waits for the client (`true`) or no longer does.
    pub(crate) fn upload_waits(&self, waits: bool) {
        add(&self.uploads_waiting, if waits { 1 } else { -1 });
    }

    /// Whether nobody would notice that the client leaves: it has sent too much ahead, or its body
    /// is not being read.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.unwatched.get()
    }

    /// The connection goes on in another protocol.
    pub(crate) fn upgrade(&self) {
        self.change(Change::Upgraded);
    }

    /// A replica has something to say before its response, such as 103 (Early Hints). Of 100 we
    /// have our own; of HTTP/2 we would have to know the stream.
    pub(crate) fn hear(&self, status: StatusCode, mut headers: Fields) {
        if status == StatusCode::CONTINUE || self.protocol() == Protocol::Http2 {
            return;
        }
        hop::strip(&mut headers, Border::ToClient);
        write::interim(&mut self.heard.borrow_mut(), status, &headers);
        self.has_heard.set(true);
    }

    /// Whether the client has closed its side, by the socket: for those that are not watched.
    ///
    /// To be called within the connection's own task, which answers after it has polled the
    /// request.
    pub(crate) async fn has_left(&self) -> bool {
        if self.protocol() == Protocol::Http2 {
            return false;
        }
        self.presence.set(Presence::Asked);
        let mut polled = false;
        poll_fn(|cx| {
            if polled {
                return Poll::Ready(());
            }
            polled = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.presence.replace(Presence::Unasked) == Presence::Gone
    }
}

/// The connection's side.
impl Client {
    fn head_begun(&self) {
        self.change(Change::HeadBegun);
    }

    fn head_complete(&self) {
        add(&self.heads, 1);
        self.change(Change::HeadComplete);
    }

    /// A request was refused, or was not.
    fn count_refusal(&self, refused: bool) {
        let refusals = if refused {
            self.refusals.get().saturating_add(1)
        } else {
            0
        };
        self.refusals.set(refusals);
        self.idles.set(false);
    }

    /// Whether it may wait for its next request without a task.
    fn may_rest(&self) -> bool {
        let may = self.idles.get() || self.refusals.get() >= REFUSALS;
        may && self.command() == ConnectionCommand::None && self.worker().lobby.is_open()
    }

    fn set_unwatched(&self, unwatched: bool) {
        self.unwatched.set(unwatched);
    }

    /// What a replica said before its response, as it is to be written.
    fn take_heard(&self) -> Option<Vec<u8>> {
        let heard = self.has_heard.get();
        heard.then(|| {
            self.has_heard.set(false);
            self.heard.take()
        })
    }

    fn presence_asked(&self) -> bool {
        self.presence.get() == Presence::Asked
    }

    fn set_presence(&self, gone: bool) {
        let answer = if gone { Presence::Gone } else { Presence::Here };
        self.presence.set(answer);
    }

    /// Lets answers over HTTP/2 wait for each other, or no longer.
    fn cork(&self, corked: bool) {
        self.corked.set(corked);
    }

    fn is_corked(&self) -> bool {
        self.corked.get()
    }

    /// Notes HTTP/2 frames that carry nothing; false if there are too many.
    fn count_idle_frames(&self, frames: u32) -> bool {
        frames == 0 || add(&self.idle_frames, frames as i32) <= IDLE_FRAMES_MAX
    }

    /// Whether the sweep found the head late; tells once.
    fn take_timeout(&self) -> bool {
        let late = self.command() == ConnectionCommand::Timeout;
        if late {
            self.command.set(ConnectionCommand::None);
        }
        late
    }
}

/// The socket's side.
impl Client {
    fn progressed(&self) {
        add(&self.progress, 1);
    }

    fn set_write_blocked(&self, blocked: bool) {
        self.write_blocked.set(blocked);
    }

    /// Bytes to swallow before closing, if that was asked for.
    fn start_lingering(&self) -> Option<u32> {
        self.linger.get().then(|| {
            self.change(Change::Closed);
            self.linger_bytes
        })
    }

    /// Whether the connection has another protocol by now.
    fn is_tunnel(&self) -> bool {
        self.phase.get() == Phase::Tunnel
    }
}

/// The task's and the sweep's side.
impl Client {
    /// Moves with every read and write of the socket.
    pub(crate) fn progress(&self) -> u32 {
        self.progress.get()
    }

    pub(crate) fn command(&self) -> ConnectionCommand {
        self.command.get()
    }

    /// A sweep has passed: frames that carry nothing are counted anew.
    pub(crate) fn forget_idle_frames(&self) {
        self.idle_frames.set(0);
    }

    /// Gives a command and wakes the task.
    pub(crate) fn give(&self, command: ConnectionCommand) {
        self.command.set(self.command().max(command));
        self.wake();
    }

    /// It has been idle for a while: it may wait without a task.
    pub(crate) fn let_rest(&self) {
        let speaks_plainly = !self.tls && self.protocol() == Protocol::Http1;
        if speaks_plainly && self.seat.get().is_none() && !self.idles.replace(true) {
            self.wake();
        }
    }

    /// Its seat, while it has no task.
    pub(crate) fn seat(&self) -> Option<usize> {
        self.seat.get()
    }

    fn wake(&self) {
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    /// It has a seat instead of a task, or a task again.
    fn set_seat(&self, seat: Option<usize>) {
        self.seat.set(seat);
        self.task.replace(None);
    }

    fn set_task(&self, waker: &Waker) {
        self.task.replace(Some(waker.clone()));
    }
}
