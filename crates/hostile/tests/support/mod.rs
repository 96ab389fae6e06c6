//! A proxy in front of an upstream that counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_proxy::config::Config;
use tidegate_proxy::{Proxy, Running};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// An upstream that counts requests and never answers those for `/`.
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    count: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let addr = listener.local_addr().expect("it is bound");
        let count = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&counter)));
            }
        });
        Self { addr, count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until more requests than `seen` have come.
    pub(crate) async fn more_than(&self, seen: usize) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(1));
        while self.count() <= seen {
            ticks.tick().await;
        }
    }
}

async fn converse(stream: TcpStream, count: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut answered = false;
    let mut answer = "";
    while matches!(stream.read_line(&mut line).await, Ok(1..)) {
        if line.contains(" HTTP/1.1") {
            count.fetch_add(1, Ordering::SeqCst);
            answered = !line.contains(" / ");
            // The body of the request before, whose end is no end of a line, may stand in front.
            answer = if line.contains("HEAD ") {
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsound"
            };
        }
        if line == "\r\n" && answered {
            answered = false;
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// A proxy with the limits it has by default.
pub(crate) fn proxy(upstream: SocketAddr) -> Running {
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = 'off'\nthreads = 1\nprotect.mode = 'off'\nupstream = 'http://{upstream}'"
    );
    let config = Config::from_text("test.toml", &text).expect("it is sound");
    Proxy::bind(config)
        .and_then(tidegate_proxy::Bound::start)
        .expect("it starts")
}
