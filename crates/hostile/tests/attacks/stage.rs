//! A proxy between an attacker and a replica that remembers what it got, or lies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_proxy::config::Config;
use tidegate_proxy::{Proxy, Running};
use tidegate_testing::{Client, eventually, within};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What a replica answers to a request for `/lie`, and whether it closes the connection then.
#[derive(Debug, Clone)]
pub(crate) struct Lie {
    pub(crate) bytes: Vec<u8>,
    pub(crate) closes: bool,
}

/// An attacker's view.
pub(crate) struct Stage {
    pub(crate) proxy: Running,
    pub(crate) addr: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// With a replica that means well.
    pub(crate) async fn start() -> Self {
        Self::with(
            "",
            Lie {
                bytes: Vec::new(),
                closes: true,
            },
        )
        .await
    }

    pub(crate) async fn configured(extra: &str) -> Self {
        Self::with(
            extra,
            Lie {
                bytes: Vec::new(),
                closes: true,
            },
        )
        .await
    }

    /// With a replica that answers so when it is asked for `/lie`.
    pub(crate) async fn lying(bytes: impl Into<Vec<u8>>, closes: bool) -> Self {
        let bytes = bytes.into();
        Self::with(
            "timeouts.request = '2s'\nretry.attempts = 0",
            Lie { bytes, closes },
        )
        .await
    }

    pub(crate) async fn with(extra: &str, lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let replica = listener.local_addr().expect("it is bound");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen), lie.clone()));
            }
        });
        let listen = if extra.contains("listen =") {
            ""
        } else {
            "listen = '127.0.0.1:0'"
        };
        let text = format!(
            "admin = 'off'\nthreads = 1\ntimeouts.head = '2s'\nupstream = 'http://{replica}'\n{listen}\n{extra}\n\
             protect.mode = 'static'\nprotect.static.window = 1000\nprotect.limits.slots = 8"
        );
        let config = Config::from_text("test.toml", &text).expect("it is sound");
        let bound = Proxy::bind(config).expect("it binds");
        let proxy = bound.start().expect("it starts");
        let addr = proxy.local_addr();
        Self { proxy, addr, heads }
    }

    /// Heads that the replica got.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    pub(crate) fn replica_saw(&self, what: &str) -> bool {
        self.heads.lock().iter().any(|head| head.contains(what))
    }

    pub(crate) async fn connect(&self) -> Attacker {
        Attacker(within(Client::connect(self.addr)).await)
    }

    /// Sends bytes and reads what comes until the connection ends: the proxy ends it, or a time
    /// limit of the proxy does. One that closed its own side would count as gone.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut attacker = self.connect().await;
        attacker.send(bytes).await;
        attacker.read_to_end().await
    }

    fn in_flight(&self) -> (u32, u32) {
        let state = self.proxy.state();
        let applications = state.applications();
        let engine = applications.single().expect("there is one").sentry();
        let status = engine.status(state.now());
        (status.replicas[0].in_flight, status.replicas[0].streams)
    }

    /// Nothing is left of the attack, the counters balance, and honest clients are served.
    pub(crate) async fn is_unharmed(&self) {
        eventually("connections are closed", || {
            self.proxy.state().connections() == 0
        })
        .await;
        eventually("slots are free", || self.in_flight() == (0, 0)).await;
        self.balances();
        let answer = self.exchange(HONEST).await;
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "honest client: {answer}"
        );
        assert!(answer.ends_with("sound"), "honest client: {answer}");
    }

    /// Every request that arrived was shed or has ended.
    fn balances(&self) {
        let state = self.proxy.state();
        let applications = state.applications();
        let engine = applications.single().expect("there is one").sentry();
        for class in engine.status(state.now()).classes {
            let shed: u64 = class.shed.iter().map(|(_, count)| count).sum();
            let ended = class.served + class.dropped + class.abandoned + class.ignored;
            assert_eq!(class.arrived, shed + ended, "{class:?}");
        }
    }
}

/// What an honest client sends.
pub(crate) const HONEST: &str = "GET /honest HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// One hostile connection.
pub(crate) struct Attacker(Client);

impl Attacker {
    /// Sends as much as is taken: one that is cut off has lost.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.0.try_send(bytes)).await;
    }

    pub(crate) async fn read_to_end(&mut self) -> String {
        self.0.read_to_end().await
    }

    pub(crate) async fn read_until(&mut self, what: &str) -> String {
        self.0.read_until(what).await
    }

    /// Leaves with a reset instead of a goodbye.
    pub(crate) fn reset(self) {
        let stream = self.0.into_stream().into_std().expect("it is a socket");
        let socket = socket2::SockRef::from(&stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

/// A replica's side of one connection.
async fn serve(stream: TcpStream, heads: Arc<Mutex<Vec<String>>>, lie: Lie) {
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream).await {
        heads.lock().push(head.clone());
        if head.contains(" /lie ") {
            if stream.write_all(&lie.bytes).await.is_err() || lie.closes {
                return;
            }
            continue;
        }
        match read_body(&mut stream, &head).await {
            Some(trailers) => heads.lock().extend(trailers),
            None => return,
        }
        let sound: &[u8] = if head.starts_with("HEAD ") {
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
        } else {
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsound"
        };
        if stream.write_all(sound).await.is_err() {
            return;
        }
    }
}

async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Reads a body to its end; gives the trailers, if there can be any.
async fn read_body(stream: &mut BufReader<TcpStream>, head: &str) -> Option<Option<String>> {
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    if let Some(length) = field("content-length: ") {
        let mut body = vec![0; length.parse().ok()?];
        stream.read_exact(&mut body).await.ok()?;
    } else if field("transfer-encoding: chunked").is_some() {
        let mut line = String::new();
        while line != "0\r\n" {
            line.clear();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
        }
        let mut trailers = String::new();
        while !trailers.ends_with("\r\n\r\n") && trailers != "\r\n" {
            stream.read_line(&mut trailers).await.ok()?;
        }
        return Some(Some(trailers).filter(|trailers| trailers != "\r\n"));
    }
    Some(None)
}
