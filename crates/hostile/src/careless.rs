//! A deliberately careless proxy: it carries every byte as it came. The judge has to see that.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The proxy; ends with this handle.
#[derive(Debug)]
pub struct Careless {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Careless {
    /// Starts in front of an upstream.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, upstream));
            }
        });
        Ok(Self { addr, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    let mut upstream = TcpStream::connect(upstream).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_upstream, mut to_upstream) = upstream.split();
    // Whichever side ends first ends both.
    tokio::select! {
        ended = tokio::io::copy(&mut from_client, &mut to_upstream) => ended,
        ended = tokio::io::copy(&mut from_upstream, &mut to_client) => ended,
    }
    .map(drop)
}
