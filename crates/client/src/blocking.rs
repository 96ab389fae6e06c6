//! The same client without `async`: it brings a runtime of its own, on one thread.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::client::{self, Status};
use crate::config::{Config, OpenError};
use crate::items::{self, Outcome, SubmitError};

/// Why a client cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The outbox cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system refuses a thread.
    #[error("cannot start the client's thread: {0}")]
    Thread(#[from] io::Error),
}

/// A client that holds back.
#[derive(Debug)]
pub struct Client {
    client: client::Client,
    /// Ends the thread when dropped.
    _alive: oneshot::Sender<()>,
    _thread: JoinHandle<()>,
}

/// An item that was accepted: it is on disk.
#[derive(Debug)]
pub struct Ticket(items::Ticket);

impl Client {
    /// Opens the outbox and starts.
    ///
    /// # Errors
    /// When the outbox cannot be used, or there is no thread to be had.
    pub fn open(config: Config) -> Result<Self, StartError> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (alive, end) = oneshot::channel::<()>();
        let (opened, client) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("tidegate-client".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // The other end waits for this.
                    let _ = opened.send(client::Client::open(config));
                    let _ = end.await;
                });
            })?;
        let client = client.recv().map_err(io::Error::other)??;
        Ok(Self {
            client,
            _alive: alive,
            _thread: thread,
        })
    }

    /// Accepts a request as an item, as [`client::Client::submit`] does.
    ///
    /// # Errors
    /// When it could not be written or stamped; then nothing happened.
    pub fn submit(
        &self,
        request: Request<Bytes>,
        key: Option<&str>,
    ) -> Result<Ticket, SubmitError> {
        self.client.submit(request, key).map(Ticket)
    }

    /// Accepts an item that is worth something for another time, as
    /// [`client::Client::submit_within`] does.
    ///
    /// # Errors
    /// When it could not be written or stamped; then nothing happened.
    pub fn submit_within(
        &self,
        request: Request<Bytes>,
        key: Option<&str>,
        delay_max: Duration,
    ) -> Result<Ticket, SubmitError> {
        self.client
            .submit_within(request, key, delay_max)
            .map(Ticket)
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        self.client.status()
    }
}

impl Ticket {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Waits for what becomes of it. Not to be called inside a runtime.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        self.0.wait()
    }
}
