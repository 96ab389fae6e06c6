//! Real sockets for the tests: a service behind the proxy, the proxy, and a client that says
//! exactly what it is told to.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate_proxy::config::Config;
use tidegate_proxy::{Proxy, Running};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

pub type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// No test takes longer, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(30);

pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LIMIT, future)
        .await
        .expect("it took too long")
}

/// Waits for something that another thread brings about.
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

pub fn full(data: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(data.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub fn text(data: impl Into<Bytes>) -> Reply {
    Response::new(full(data))
}

/// A service behind the proxy: HTTP/1.1 and HTTP/2.
pub struct Service {
    pub addr: SocketAddr,
    pub requests: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    pub async fn start<H, F>(handler: H) -> Self
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (requests, connections) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, opened) = (Arc::clone(&requests), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                opened.fetch_add(1, Ordering::SeqCst);
                let (handler, counted) = (handler.clone(), Arc::clone(&counted));
                let service = service_fn(move |request| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let reply = handler(request);
                    async move { Ok::<_, std::convert::Infallible>(reply.await) }
                });
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let serving =
                        builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                    let _ = serving.await;
                });
            }
        });
        Self {
            addr,
            requests,
            connections,
            task,
        }
    }

    /// Answers every request with its own method, target, headers and body.
    pub async fn echo() -> Self {
        Self::start(|request| async move { echo(request).await }).await
    }

    /// Answers as many requests as it is given permits.
    pub async fn held() -> (Self, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&permits);
        let service = Self::start(move |_| {
            let held = Arc::clone(&held);
            async move {
                held.acquire().await.unwrap().forget();
                text("served")
            }
        })
        .await;
        (service, permits)
    }

    pub fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn echo(request: Request<Incoming>) -> Reply {
    let (parts, body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
    for (name, value) in &parts.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let body = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    text += &format!("\n{}", String::from_utf8_lossy(&body));
    self::text(text)
}

/// A service that speaks bytes, for what no HTTP library would say. `converse` gets each
/// connection with its number.
pub async fn raw_service<F>(converse: impl Fn(TcpStream, usize) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
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

/// Starts a proxy on a port of its own; `extra` is more of the configuration.
pub fn proxy(replicas: &[SocketAddr], extra: &str) -> Running {
    let urls: Vec<_> = replicas
        .iter()
        .map(|addr| format!("\"http://{addr}\""))
        .collect();
    proxy_from(&format!(
        "upstream.replicas = [{}]\n{PLAIN}\n{extra}",
        urls.join(", ")
    ))
}

/// What every proxy of the tests has: no admin listener, one thread, and an engine that admits all
/// unless the test says otherwise.
pub const PLAIN: &str = "admin = 'off'\nthreads = 1\nlisten = '127.0.0.1:0'\nprotect.mode = 'off'";

pub fn proxy_from(text: &str) -> Running {
    let text = match text.matches("protect.mode").count() {
        2 => text.replacen("protect.mode = 'off'", "", 1),
        _ => text.to_owned(),
    };
    let config = Config::from_text("test.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Proxy::bind(config).unwrap().start().unwrap()
}

/// A response as a raw client sees it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client that says exactly what it is told to.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .await
            .unwrap();
    }

    /// Sends and does not care whether the other side still listens.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .await
            .is_ok()
    }

    /// Reads a response; `None` at the end of the connection.
    pub async fn try_answer(&mut self, to_head: bool) -> Option<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if within(self.stream.read_line(&mut head)).await.ok()? == 0 {
                return None;
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if to_head || status == 304 || status == 204 || status < 200 {
            return Some(answer);
        }
        answer.body = within(self.read_body(&answer)).await?;
        Some(answer)
    }

    pub async fn answer(&mut self) -> Answer {
        self.try_answer(false)
            .await
            .expect("the connection ended without an answer")
    }

    async fn read_body(&mut self, answer: &Answer) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        if let Some(length) = answer.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).await.ok()?;
        } else if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).await.ok()?;
                let size = usize::from_str_radix(line.trim(), 16).ok()?;
                let mut chunk = vec![0; size + 2];
                self.stream.read_exact(&mut chunk).await.ok()?;
                body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            }
        } else {
            self.stream.read_to_end(&mut body).await.ok()?;
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

    /// Reads so many bytes of whatever is spoken now.
    pub async fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        within(self.stream.read_exact(&mut bytes)).await.unwrap();
        bytes
    }
}

/// One request on a connection of its own.
pub async fn ask(addr: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    Client::connect(addr).await.ask(request).await
}

pub const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
