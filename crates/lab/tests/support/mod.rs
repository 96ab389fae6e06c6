//! What the socket tests share.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use http::Uri;
use tidegate_lab::app::{AppConfig, parse_law};
use tidegate_lab::load::{self, LoadConfig, LoadReport};
use tidegate_sim::workload::RateFunction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any machine takes: a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn upstream(workers: u32, law: &str) -> AppConfig {
    let workers = NonZeroU32::new(workers).expect("at least one");
    AppConfig::new(workers, parse_law(law).expect("a law"))
}

pub(crate) fn url(addr: SocketAddr, path: &str) -> Uri {
    format!("http://{addr}{path}").parse().expect("a URL")
}

/// A load whose clients wait as long as it takes.
pub(crate) fn patient(addr: SocketAddr, per_second: f64, seconds: u64) -> LoadConfig {
    let mut config = LoadConfig::new(
        vec![url(addr, "/")],
        RateFunction::constant(per_second),
        Duration::from_secs(seconds),
    );
    config.timeout = PATIENCE;
    config.target_time = PATIENCE;
    config
}

pub(crate) async fn run(config: LoadConfig) -> LoadReport {
    load::run(config, |_| {}).await.expect("a valid load")
}

pub(crate) async fn get(addr: SocketAddr, path: &str) -> String {
    fetch(addr, &format!("GET {path} HTTP/1.1\r\n"), "").await
}

pub(crate) async fn post(addr: SocketAddr, path: &str, body: &str) -> String {
    fetch(addr, &format!("POST {path} HTTP/1.1\r\n"), body).await
}

/// Sends one request and returns head and body of the answer.
pub(crate) async fn fetch(addr: SocketAddr, head: &str, body: &str) -> String {
    let length = body.len();
    let request =
        format!("{head}host: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = tidegate_testing::ask(addr, request).await;
    answer.head.clone() + &answer.text()
}

/// A server that answers the n-th request with what `script` returns for it, and closes.
pub(crate) async fn scripted(script: fn(usize) -> &'static str) -> SocketAddr {
    let answer = move |mut socket: TcpStream, turn: usize| async move {
        let mut head = [0; 4096];
        let _ = socket.read(&mut head).await;
        let _ = socket.write_all(script(turn).as_bytes()).await;
        let _ = socket.shutdown().await;
    };
    tidegate_testing::raw_service(answer).await
}
