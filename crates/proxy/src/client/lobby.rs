//! Where connections wait that need no task.
//!
//! A task is what a request needs: two kilobytes, a place in the runtime's tables, and on each event a dozen atomic
//! operations to be woken, scheduled and put to sleep again. A client that is told time and again that there is
//! no room needs none of it, nor does one that has been idle for a while. They take a seat here: one
//! `epoll` of our own, which the runtime watches as a whole, says who has spoken, and whoever is to be refused is refused on the
//! spot. All others get a task again, and begin there with what has come.
//!
//! Only HTTP/1.1 without TLS rests: the others have more to do than to read and to write.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::retry_on_intr;
use slab::Slab;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_local;

use super::Client;
use super::http1::{Greeted, Next, Resting};
use super::serve::serve_on;
use crate::worker::{Registration, Worker};

/// Clients that are looked at before others get their turn.
const TURN: usize = 64;

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
        // One that cannot be watched would never be heard again: it is closed.
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

    /// Something has come from whoever has this seat.
    fn hear(&self, worker: &Rc<Worker>, key: usize) {
        let greeted = {
            let mut seats = self.seats.borrow_mut();
            let Some(seat) = seats.get_mut(key) else {
                return;
            };
            // As in a task: what goes wrong with one connection does not concern the others.
            let greet = || seat.connection.refuse(worker, &seat.client);
            catch_unwind(AssertUnwindSafe(greet)).unwrap_or(Greeted::Gone)
        };
        match greeted {
            Greeted::Stays => {}
            Greeted::Gone => drop(self.take(worker, key)),
            Greeted::Goes(next) => self.leave(worker, key, next),
        }
    }

    /// Gives whoever has this seat a task, which finds out what it was called for.
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
    let watched = watch(lobby.epoll.try_clone()?)?;
    lobby.attended.set(true);
    let mut events = Vec::with_capacity(TURN);
    loop {
        let mut ready = watched.readable().await?;
        events.clear();
        retry_on_intr(|| {
            let events = spare_capacity(&mut events);
            epoll::wait(&lobby.epoll, events, Some(&Timespec::default()))
        })?;
        if events.len() < TURN {
            ready.clear_ready();
        }
        for event in &events {
            let data = event.data;
            lobby.hear(worker, data.u64() as usize);
        }
    }
}

#[expect(
    deprecated,
    reason = "unsound for types whose descriptor changes while it is watched; this one's does not, and what replaces it is \
              an unsafe function"
)]
fn watch(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(epoll, Interest::READABLE)
}
