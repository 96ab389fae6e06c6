//! For tests only: a raw HTTP/1.1 client and service, and processes that end with their test.
//!
//! HTTP libraries repair what they send and hide what they receive. These send exactly the bytes
//! they are given, and an [`Answer`] shows the head as it came. [`Client`] is for tests on tokio,
//! [`blocking`] and [`process`] are for tests that start processes.
//!
//! Everything here panics when the other side does not do what a test expects.

pub mod blocking;
pub mod process;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// No test takes longer, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for what has to happen.
///
/// # Panics
/// When it takes longer than any machine needs.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("it took too long")
}

/// Waits for something that another thread brings about.
///
/// # Panics
/// When it never happens.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    let waiting = async {
        while !holds() {
            ticks.tick().await;
        }
    };
    assert!(
        tokio::time::timeout(LIMIT, waiting).await.is_ok(),
        "never happened: {what}"
    );
}

/// A service on a free port, for bytes that no HTTP library sends. `converse` gets each connection
/// with its number.
///
/// # Panics
/// When no port is free.
pub async fn raw_service<F>(converse: impl Fn(TcpStream, usize) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.expect("it accepts");
            tokio::spawn(converse(stream, number));
        }
    });
    addr
}

/// Reads a request's head from a raw connection.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A response as a raw client sees it.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its head as it came, the empty line included.
    pub head: String,
    /// Its body without its framing.
    pub body: Vec<u8>,
}

fn status_of(head: &str) -> u16 {
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.unwrap_or_else(|| panic!("a status line: {head}"))
}

/// Where a body ends.
enum Framing {
    Nothing,
    Length(usize),
    Chunked,
    /// With the connection.
    Open,
}

impl Answer {
    fn new(head: String) -> Self {
        Self {
            status: status_of(&head),
            head,
            body: Vec::new(),
        }
    }

    fn framing(&self) -> Framing {
        if self.status == 304 || self.status == 204 || self.status < 200 {
            Framing::Nothing
        } else if let Some(length) = self.header("content-length") {
            Framing::Length(length.parse().expect("a length is a number"))
        } else if self.header("transfer-encoding") == Some("chunked") {
            Framing::Chunked
        } else {
            Framing::Open
        }
    }

    /// The value of a header, the first if there are several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Its body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client that sends exactly the bytes it is given.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Opens a connection.
    ///
    /// # Panics
    /// When nothing listens there.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("it connects");
        stream.set_nodelay(true).expect("it is a socket");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the other side is gone.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.try_send(bytes).await, "the other side is gone");
    }

    /// Sends bytes; false if the other side is gone.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .await
            .is_ok()
    }

    /// Reads a response; `None` at the end of the connection.
    ///
    /// # Panics
    /// When what comes is no response.
    pub async fn try_answer(&mut self, to_head: bool) -> Option<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if within(self.stream.read_line(&mut head)).await.ok()? == 0 {
                return None;
            }
        }
        let mut answer = Answer::new(head);
        if !to_head {
            answer.body = within(self.read_body(&answer.framing())).await?;
        }
        Some(answer)
    }

    /// Reads a response.
    ///
    /// # Panics
    /// When the connection ends without one.
    pub async fn answer(&mut self) -> Answer {
        self.try_answer(false)
            .await
            .expect("the connection ended without an answer")
    }

    async fn read_body(&mut self, framing: &Framing) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        match framing {
            Framing::Nothing => {}
            Framing::Length(length) => {
                body.resize(*length, 0);
                self.stream.read_exact(&mut body).await.ok()?;
            }
            Framing::Chunked => loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).await.ok()?;
                let size = usize::from_str_radix(line.trim(), 16).ok()?;
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk).await.ok()?;
                body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            },
            Framing::Open => {
                self.stream.read_to_end(&mut body).await.ok()?;
            }
        }
        Some(body)
    }

    /// Sends a request and reads its response.
    pub async fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).await;
        self.answer().await
    }

    /// Whether the connection has been closed, with nothing left to read.
    pub async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        !matches!(within(self.stream.read(&mut byte)).await, Ok(1))
    }

    /// Reads until this has come, or the end, and returns what was read. More of what follows it
    /// may have been read too.
    pub async fn read_until(&mut self, what: &str) -> String {
        let mut answer = String::new();
        let mut piece = [0; 4096];
        while !answer.contains(what) {
            match within(self.stream.read(&mut piece)).await {
                Ok(len @ 1..) => answer += &String::from_utf8_lossy(&piece[..len]),
                _ => break,
            }
        }
        answer
    }

    /// Reads what comes until the connection ends, in whichever way.
    pub async fn read_to_end(&mut self) -> String {
        let mut answer = Vec::new();
        // What came before a reset counts.
        let _ = within(self.stream.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The connection itself.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    /// Reads bytes of whatever protocol is spoken now.
    ///
    /// # Panics
    /// When the connection ends before.
    pub async fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        within(self.stream.read_exact(&mut bytes))
            .await
            .expect("there are as many bytes");
        bytes
    }
}

/// One request on a connection of its own.
pub async fn ask(addr: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    Client::connect(addr).await.ask(request).await
}
