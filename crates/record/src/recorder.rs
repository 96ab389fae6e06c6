//! The recorder of a data path: a bounded ring to a thread of its own.
//!
//! Adding to the ring never waits and wakes no thread: the writer looks by itself, every
//! [`LOOK_EVERY`]. What finds the ring full is counted, and the count stands in the file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::names::NameKind;
use crate::request::{Event, Request, Tables};
use crate::writer::FileWriter;

/// How often the writer empties the ring.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often it writes: what a crash may cost.
const WRITE_EVERY: Duration = Duration::from_secs(2);
/// Messages the ring holds: at 100,000 requests per second sixteen looks' worth.
const RING: usize = 1 << 15;
/// Names that are known to be in the file, by their lowest bits.
const KNOWN: usize = 4096;

/// What goes through the ring.
#[derive(Debug)]
pub enum Message {
    /// A request that ended.
    Request(Request),
    /// Anything else.
    Event(Event),
    /// A name behind a hash.
    Name(NameKind, u64, Box<str>),
    /// The configuration changed.
    Config(Box<(Tables, Option<serde_json::Value>)>),
    /// An input of the engine or its decision.
    Input(Box<[u8]>),
}

/// How a recording goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The file written now.
    pub file: PathBuf,
    /// Requests in the recording.
    pub requests: u64,
    /// Requests and events lost because the writer did not keep up or the disk refused.
    pub lost: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Whether the size cap has been reached and nothing more is written.
    pub full: bool,
}

#[derive(Debug, Default)]
struct Shared {
    /// Messages that found the ring full.
    lost: AtomicU64,
    /// Messages that the disk or the cap refused.
    lost_writing: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    full: AtomicBool,
    stop: AtomicBool,
    file: std::sync::Mutex<PathBuf>,
}

/// The writing end; cheap to call from many threads.
#[derive(Debug)]
pub struct Recorder {
    ring: SyncSender<Message>,
    shared: Arc<Shared>,
    known: Box<[AtomicU64]>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Starts the writer's thread. `complain` is called once, when the disk refuses.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        writer: FileWriter,
        complain: impl FnOnce(&io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let (ring, messages) = sync_channel(RING);
        let shared = Arc::new(Shared::default());
        writer.path().clone_into(&mut lock(&shared.file));
        let mut its = Thread {
            writer,
            shared: Arc::clone(&shared),
            complain: Some(complain),
            lost_before: 0,
        };
        let thread = thread::Builder::new()
            .name("recorder".into())
            .spawn(move || its.run(&messages))?;
        Ok(Self {
            ring,
            shared,
            known: (0..KNOWN).map(|_| AtomicU64::new(0)).collect(),
            thread: std::sync::Mutex::new(Some(thread)),
        })
    }

    /// Adds a request, or counts it as lost.
    pub fn request(&self, request: Request) {
        self.send(Message::Request(request));
    }

    /// Adds anything, or counts it as lost; false if so.
    pub fn send(&self, message: Message) -> bool {
        let sent = self.ring.try_send(message).is_ok();
        if !sent {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    /// Adds the name behind a hash, unless it was added lately.
    pub fn name(&self, kind: NameKind, hash: u64, name: impl FnOnce() -> Box<str>) {
        let place = &self.known[hash as usize % KNOWN];
        if hash == 0 || place.load(Ordering::Relaxed) == hash {
            return;
        }
        if self
            .ring
            .try_send(Message::Name(kind, hash, name()))
            .is_ok()
        {
            place.store(hash, Ordering::Relaxed);
        }
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        Status {
            file: lock(&shared.file).clone(),
            requests: shared.requests.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed) + shared.lost_writing.load(Ordering::Relaxed),
            bytes: shared.bytes.load(Ordering::Relaxed),
            full: shared.full.load(Ordering::Relaxed),
        }
    }

    /// Writes what is in the ring and ends the thread. Later messages are lost.
    pub fn stop(&self) -> Status {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = lock(&self.thread).take() {
            thread.thread().unpark();
            // A writer that panicked has nothing left to write.
            let _ = thread.join();
        }
        self.status()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A lock that a panic elsewhere does not break.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Thread<F> {
    writer: FileWriter,
    shared: Arc<Shared>,
    complain: Option<F>,
    lost_before: u64,
}

impl<F: FnOnce(&io::Error)> Thread<F> {
    fn run(&mut self, messages: &Receiver<Message>) {
        let mut written = Instant::now();
        loop {
            // Looked at before the ring is emptied, so that nothing added before is left behind.
            let stop = self.shared.stop.load(Ordering::Acquire);
            let open = self.empty(messages);
            if stop || !open || written.elapsed() >= WRITE_EVERY {
                if stop || !open {
                    self.writer.close_events();
                }
                self.write();
                written = Instant::now();
            }
            if stop || !open {
                return;
            }
            thread::park_timeout(LOOK_EVERY);
        }
    }

    /// False when no sender is left.
    fn empty(&mut self, messages: &Receiver<Message>) -> bool {
        loop {
            match messages.try_recv() {
                Ok(message) => self.add(message),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn add(&mut self, message: Message) {
        match message {
            Message::Request(request) => {
                self.writer.request(request);
                self.shared.requests.fetch_add(1, Ordering::Relaxed);
            }
            Message::Event(event) => self.writer.event(&event),
            Message::Name(kind, hash, name) => self.writer.name(kind, hash, &name),
            Message::Config(config) => self.writer.reconfigure(config.0, config.1),
            Message::Input(bytes) => self.writer.input(&bytes),
        }
    }

    fn write(&mut self) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        self.writer.lost(lost - self.lost_before);
        self.lost_before = lost;
        if let Err(error) = self.writer.flush()
            && let Some(complain) = self.complain.take()
        {
            complain(&error);
        }
        let lost_writing = self.writer.lost_total() - lost;
        self.shared
            .lost_writing
            .store(lost_writing, Ordering::Relaxed);
        self.shared
            .bytes
            .store(self.writer.total_bytes(), Ordering::Relaxed);
        self.shared
            .full
            .store(self.writer.is_full(), Ordering::Relaxed);
        let mut file = lock(&self.shared.file);
        if *file != self.writer.path() {
            self.writer.path().clone_into(&mut file);
        }
    }
}
