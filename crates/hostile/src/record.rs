//! An upstream that writes down what reaches it and judges it at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::canonical::{self, Breach};
use crate::grammar::{self, Message};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// What has reached the upstream.
#[derive(Debug, Default)]
pub struct Log {
    /// Complete requests, in the order of their arrival.
    pub messages: Vec<Message>,
    /// What is wrong with those, or with bytes that are none.
    pub breaches: Vec<Breach>,
}

/// The upstream; ends with this handle.
#[derive(Debug)]
pub struct Recorder {
    addr: SocketAddr,
    log: Arc<Mutex<Log>>,
    /// Connections in the middle of a request.
    busy: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn start(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let log = Arc::<Mutex<Log>>::default();
        let (busy, watched) = watch::channel(0);
        let task = tokio::spawn(accept(listener, Arc::clone(&log), busy));
        Ok(Self {
            addr,
            log,
            busy: watched,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What has come since the last call, once no request is under way.
    pub async fn take(&mut self) -> Log {
        // Fails only when the task is gone, and then nothing is under way.
        let _ = self.busy.wait_for(|busy| *busy == 0).await;
        std::mem::take(&mut *self.log.lock())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, log: Arc<Mutex<Log>>, busy: watch::Sender<usize>) {
    // A failed accept is out of file descriptors; connections have to end first.
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (log, busy) = (Arc::clone(&log), busy.clone());
                tokio::spawn(async move {
                    // The proxy may close whenever it likes.
                    let _ = converse(stream, &log, &mut Busy::new(busy)).await;
                });
            }
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn converse(mut stream: TcpStream, log: &Mutex<Log>, busy: &mut Busy) -> io::Result<()> {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await? > 0 {
        loop {
            busy.set(!bytes.is_empty());
            match grammar::message(&bytes) {
                Ok(None) => break,
                Ok(Some((message, len))) => {
                    bytes.drain(..len);
                    let last = is_last(&message);
                    note(&mut log.lock(), message);
                    stream.write_all(ANSWER).await?;
                    if last {
                        return Ok(());
                    }
                }
                Err(flaw) => {
                    log.lock().breaches.push(flaw.into());
                    return stream.write_all(REFUSAL).await;
                }
            }
        }
    }
    Ok(())
}

fn note(log: &mut Log, message: Message) {
    log.breaches.extend(canonical::judge(&message));
    log.messages.push(message);
}

fn is_last(message: &Message) -> bool {
    message
        .values("connection")
        .any(|value| value.eq_ignore_ascii_case(b"close"))
}

/// One connection's part in the count of those that are busy.
struct Busy {
    count: watch::Sender<usize>,
    is_busy: bool,
}

impl Busy {
    fn new(count: watch::Sender<usize>) -> Self {
        Self {
            count,
            is_busy: false,
        }
    }

    fn set(&mut self, is_busy: bool) {
        match (self.is_busy, is_busy) {
            (false, true) => self.count.send_modify(|count| *count += 1),
            (true, false) => self.count.send_modify(|count| *count -= 1),
            _ => {}
        }
        self.is_busy = is_busy;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set(false);
    }
}
