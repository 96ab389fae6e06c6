//! Where connections wait that need no task.
//!
//! A task is what a request needs: two kilobytes, a place in the runtime's tables, and on each
//! event a dozen atomic operations to be woken, scheduled and put to sleep again. A client that is
//! refused again and again needs none of it, nor does one that has been idle for a while. Their
//! connections rest here: one `epoll` of our own, which the runtime watches as a whole, says which
//! have bytes to read. A request that is to be refused is refused on the spot. All other
//! connections get a task again, and begin there with what was read.
//!
//! While requests are refused here the connections are read once in a millisecond, all together. A
//! proxy that hurries finds one or two of them at a time, and asks the system as often: the faster
//! it is, the more it asks.
//!
//! Only HTTP/1.1 without TLS rests: the others have more to do than to read and to write.
//!
//! Decision: docs/decisions/0063-lobby.md.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::retry_on_intr;
use slab::Slab;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, sleep_until};

use super::Client;
use super::http1::{Greeted, Next, Resting};
use super::serve::serve_on;
use crate::worker::{Registration, Worker};

/// Clients that are looked at before other work gets its turn. Chosen: it takes them less than a
/// millisecond.
const CLIENTS_PER_TURN: usize = 128;

/// While clients are refused their connections are read once in this time. No client that was
/// refused eight times needs its answer sooner, and the more are refused together the less it
/// costs.
const REFUSAL_INTERVAL: Duration = Duration::from_millis(1);

/// The seats of one worker.
#[derive(Debug)]
pub(crate) struct Lobby {
    epoll: OwnedFd,
    /// Whether somebody listens.
    attended: Cell<bool>,
    seats: RefCell<Slab<Seat>>,
}

#[derive(Debug)]
struct Seat {
    client: Rc<Client>,
    connection: Resting,
    registration: Registration,
}

impl Lobby {
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            attended: Cell::new(false),
            seats: RefCell::default(),
        })
    }

    /// Whether connections may rest here.
    pub(crate) fn is_open(&self) -> bool {
        self.attended.get()
    }

    /// Takes over a connection until something comes.
    pub(crate) fn seat(&self, client: Rc<Client>, connection: Resting, registration: Registration) {
        if client.idles.get() {
            connection.shrink();
        }
        let mut seats = self.seats.borrow_mut();
        let entry = seats.vacant_entry();
        let key = entry.key();
        // Edges: what has been read to its end says nothing until more comes.
        let of = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(key as u64);
        let watched = connection.rest(|socket| Ok(epoll::add(&self.epoll, socket, data, of)?));
        // One that cannot be watched would never be read again: it is closed.
        if watched.is_ok() {
            client.set_seat(Some(key));
            let worker = Rc::clone(client.worker());
            entry.insert(Seat {
                client,
                connection,
                registration,
            });
            worker.metrics().record_resting(seats.len());
        }
    }

    /// Reads all connections that have bytes; returns how many requests were refused.
    async fn take_turns(
        &self,
        worker: &Rc<Worker>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<usize> {
        let mut refused = 0;
        loop {
            events.clear();
            retry_on_intr(|| {
                let events = spare_capacity(events);
                epoll::wait(&self.epoll, events, Some(&Timespec::default()))
            })?;
            refused += self.take_turn(worker, events);
            if events.len() < CLIENTS_PER_TURN {
                return Ok(refused);
            }
            yield_now().await;
        }
    }

    /// Takes some connections that have bytes: first all are read, then all judged, then all
    /// answered. Each is far more code than a core has at hand, so it is better to do one after the
    /// other for many than all for one after the other.
    fn take_turn(&self, worker: &Rc<Worker>, events: &[epoll::Event]) -> usize {
        for event in events {
            if let Some(seat) = self.seats.borrow().get(key(event)) {
                seat.connection.read();
            }
        }
        let judge = |event| {
            self.greet(worker, event, |seat| {
                seat.connection.refuse(worker, &seat.client)
            })
        };
        let refused: Vec<_> = events.iter().filter(|event| judge(event)).collect();
        let answer =
            |event: &&&epoll::Event| self.greet(worker, event, |seat| seat.connection.write());
        refused.iter().filter(answer).count()
    }

    /// Reads a connection that has bytes; whether it rests on.
    fn greet(
        &self,
        worker: &Rc<Worker>,
        event: &epoll::Event,
        greet: impl FnOnce(&mut Seat) -> Greeted,
    ) -> bool {
        let key = key(event);
        let greeted = match self.seats.borrow_mut().get_mut(key) {
            // As in a task: what goes wrong with one connection does not concern the others.
            Some(seat) => catch_unwind(AssertUnwindSafe(|| greet(seat))).unwrap_or(Greeted::Gone),
            None => return false,
        };
        match greeted {
            Greeted::Stays => return true,
            Greeted::Gone => drop(self.take(worker, key)),
            Greeted::Goes(next) => self.leave(worker, key, next),
        }
        false
    }

    /// Gives the connection of this seat a task, which finds out what it was called for.
    pub(crate) fn call(&self, worker: &Rc<Worker>, key: usize) {
        self.leave(worker, key, None);
    }

    fn take(&self, worker: &Worker, key: usize) -> Option<Seat> {
        let mut seats = self.seats.borrow_mut();
        let seat = seats.try_remove(key);
        worker.metrics().record_resting(seats.len());
        seat
    }

    fn leave(&self, worker: &Rc<Worker>, key: usize, next: Option<Box<Next>>) {
        let Some(seat) = self.take(worker, key) else {
            return;
        };
        let Seat {
            client,
            connection,
            registration,
        } = seat;
        client.set_seat(None);
        let forgotten = connection.rest(|socket| Ok(epoll::delete(&self.epoll, socket)?));
        if forgotten.is_ok() {
            let worker = Rc::clone(worker);
            spawn_local(async move {
                serve_on(&worker, client, connection, next, registration).await;
            });
        }
    }

    /// Lets everybody go, at shutdown.
    pub(crate) fn clear(&self) {
        // Not while the seats are held: the last of a connection tells its worker.
        drop(self.seats.take());
    }
}

/// The seat that an event is about.
fn key(event: &epoll::Event) -> usize {
    let data = event.data;
    data.u64() as usize
}

/// Listens to those who rest, for as long as the worker lives.
pub(crate) async fn run(worker: Rc<Worker>) {
    // It ends only if the system does not let us listen; then everybody has a task.
    let _ = listen(&worker).await;
    worker.lobby.attended.set(false);
    let seats = worker.lobby.seats.borrow();
    let keys: Vec<_> = seats.iter().map(|(key, _)| key).collect();
    drop(seats);
    keys.into_iter()
        .for_each(|key| worker.lobby.call(&worker, key));
}

async fn listen(worker: &Rc<Worker>) -> io::Result<()> {
    let lobby = &worker.lobby;
    lobby.attended.set(true);
    let mut events = Vec::with_capacity(CLIENTS_PER_TURN);
    loop {
        // Not watched for longer than that: the runtime would be woken by each that sends.
        watch(lobby.epoll.as_fd())?.readable().await?.retain_ready();
        loop {
            let next = Instant::now() + REFUSAL_INTERVAL;
            if lobby.take_turns(worker, &mut events).await? == 0 {
                break;
            }
            sleep_until(next).await;
        }
    }
}

#[expect(
    deprecated,
    reason = "unsound for types whose descriptor changes while it is watched; this one's does not, and what replaces it is \
              an unsafe function"
)]
fn watch(epoll: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    AsyncFd::with_interest(epoll, Interest::READABLE)
}
