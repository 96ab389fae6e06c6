//! The module for browsers, in a browser: messages, phases and pacing as in Rust, and a bid that
//! is held back and sent. Needs Chromium; without one the test says so and passes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_channel::net::{Desk, Hub, serve, unix_now};
use tidegate_channel::strategy::Groups;
use tidegate_channel::{ClientId, ControlMessage, Pacer, Permit, SecretKey, Strategy};
use tidegate_control::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);
const MODULE: &str = include_str!("../web/tidegate-client.js");
const PAGE: &str = include_str!("browser.html");
const VECTORS: &str = include_str!("../../channel/tests/vectors.json");

/// When clients may send under a strategy, as the page computes it too.
fn schedule() -> Value {
    let groups = Groups::with_share(0.3, Duration::from_secs(4));
    let cases = [
        ("group", Strategy::Group(groups)),
        ("interval", Strategy::Interval(Duration::from_secs(20))),
    ];
    let mut rows = Vec::new();
    for (name, strategy) in cases {
        for id in [0_u64, 1, 77, 1_000_000_007] {
            let mut pacer = Pacer::new(ClientId(id));
            let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
            pacer.apply(at(1_000_000), strategy.clone());
            let sends: Vec<u64> = (1_000_000..1_200_000)
                .step_by(50)
                .filter(|&ms| {
                    let now = pacer.permit(at(ms)) == Permit::Now;
                    if now {
                        pacer.on_sent(at(ms));
                    }
                    now
                })
                .collect();
            rows.push(serde_json::json!({ "strategy": name, "client": id, "sends": sends }));
        }
    }
    Value::from(rows)
}

struct Site {
    config: String,
    results: mpsc::UnboundedSender<String>,
    hub: Hub,
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let (kind, text) = match path.as_str() {
            "/" => ("text/html", PAGE.to_owned()),
            "/tidegate-client.js" => ("text/javascript", MODULE.to_owned()),
            "/vectors.json" => ("application/json", VECTORS.to_owned()),
            "/schedule.json" => ("application/json", schedule().to_string()),
            "/config.json" => ("application/json", self.config.clone()),
            // The page asks for the channel to open once its bid is seen to wait.
            "/open" => {
                say(&self.hub, Strategy::Open);
                ("text/plain", String::new())
            }
            "/result" => {
                let _ = self
                    .results
                    .send(String::from_utf8_lossy(&body).into_owned());
                ("text/plain", String::new())
            }
            _ => ("text/plain", "taken".to_owned()),
        };
        let mut response = Response::new(Full::from(text));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, kind.parse().unwrap());
        response
    }
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[8; 32])
}

fn say(hub: &Hub, strategy: Strategy) {
    let message = ControlMessage {
        seq: unix_now().as_nanos() / 1000,
        issued: unix_now(),
        validity: Duration::from_secs(60),
        setpoint: Duration::from_secs(1),
        strategy,
        successor: None,
    };
    hub.publish(&message.sign(&key()));
}

async fn start_site(
    hub: Hub,
    channel: SocketAddr,
) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (results, received) = mpsc::unbounded_channel();
    let config = serde_json::json!({
        "channel": format!("http://{channel}"),
        "key": key().public().to_string(),
    });
    let site = Arc::new(Site {
        config: config.to_string(),
        results,
        hub,
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let site = Arc::clone(&site);
            let service = service_fn(move |request| {
                let site = Arc::clone(&site);
                async move { Ok::<_, Infallible>(site.answer(request).await) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (addr, received)
}

/// A browser, until it is dropped.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn browse(url: &str, profile: &std::path::Path) -> Option<Browser> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().find_map(|name| {
        Command::new(name)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()
            .map(Browser)
    })
}

#[tokio::test]
async fn a_browser_verifies_paces_holds_back_and_sends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = listener.local_addr().unwrap();
    let hub = Hub::default();
    let desk = Arc::new(Desk::relay(hub.clone()));
    tokio::spawn(serve::serve(listener, desk, std::future::pending()));
    say(&hub, Strategy::Interval(Duration::from_secs(3600)));
    let (site, mut results) = start_site(hub, channel).await;
    let profile = tempfile::tempdir().unwrap();
    let Some(_browser) = browse(&format!("http://{site}/"), profile.path()) else {
        println!("skipped: no Chromium on this machine");
        return;
    };
    let result = tokio::time::timeout(PATIENCE, results.recv()).await;
    assert_eq!(result.expect("the browser never reported").unwrap(), "ok");
}
