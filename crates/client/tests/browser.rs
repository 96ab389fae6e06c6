//! The module for browsers, in a browser: messages, phases and pacing as in Rust, and a bid that
//! is held back and sent. Needs Chromium; without one the test says so and passes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../channel/tests/support/mod.rs"]
mod support;

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
use support::{Node, key, listener, publisher, signed, soon, until};
use tidegate_channel::message::to_text;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{CLIENT_HEADER, Desk, Hub, Relay, STAMP_HEADER, serve, unix_now};
use tidegate_channel::stamp::{Content, Stamp, client_id};
use tidegate_channel::strategy::Groups;
use tidegate_channel::{
    ClientId, ControlMessage, Pacer, Permit, PublicKey, SecretKey, Strategy, Terms, Verifier,
};
use tidegate_control::Timestamp;
use tokio::sync::mpsc;

const CLIENT: &str = include_str!("../web/tidegate-client.js");
const CHANNEL: &str = include_str!("../web/tidegate-channel.js");
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

/// The key that takes over.
fn next_key() -> SecretKey {
    SecretKey::from_seed(&[9; 32])
}

/// A message of `key` that was issued at `at`.
fn message(seq: u64, at: Timestamp, successor: Option<PublicKey>, key: &SecretKey) -> Vec<u8> {
    let message = ControlMessage {
        seq,
        issued: at,
        validity: Duration::from_secs(60),
        setpoint: Duration::from_secs(1),
        strategy: match successor {
            Some(_) => Strategy::Interval(Duration::from_secs(3600)),
            None => Strategy::Open,
        },
        successor,
        terms: Terms::default(),
    };
    message.sign(key)
}

/// A change of keys: what was said when, and whether it is believed here.
fn rotation() -> Value {
    let (old, new, stranger) = (key(), next_key(), SecretKey::from_seed(&[8; 32]));
    let announced = Some(new.public());
    let said = [
        (1000, None, &new, false),
        (1001, announced, &old, true),
        (1002, announced, &old, true),
        (1003, None, &new, true),
        // On a longer way, or by a proxy that changes its key later.
        (1004, None, &old, true),
        (1005, None, &stranger, false),
        (1602, None, &old, true),
        (1604, None, &old, false),
        (1605, None, &new, true),
    ];
    let mut verifier = Verifier::new(&[old.public()]);
    let mut messages = Vec::new();
    for (at_s, successor, key, believed) in said {
        let at = Timestamp::ZERO + Duration::from_secs(at_s);
        let bytes = message(at_s, at, successor, key);
        let accepted = verifier.accept(at, &bytes).is_ok();
        assert_eq!(accepted, believed, "at {at_s} s");
        messages.push(serde_json::json!({
            "text": to_text(&bytes),
            "now_ms": at_s * 1000,
            "accepted": accepted,
        }));
    }
    serde_json::json!({ "key": old.public().to_string(), "messages": messages })
}

/// What the page says.
enum Said {
    /// A bid, with the stamp that the browser signed for the number that it claims to have, and for
    /// this very bid.
    Bid(Option<Stamp>),
    /// How its tests ended.
    Result(String),
}

struct Site {
    config: String,
    said: mpsc::UnboundedSender<Said>,
    hub: Hub,
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let stamp = stamp(&request);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let (kind, text) = match path.as_str() {
            "/" => ("text/html", PAGE.to_owned()),
            "/tidegate-client.js" => ("text/javascript", CLIENT.to_owned()),
            "/tidegate-channel.js" => ("text/javascript", CHANNEL.to_owned()),
            "/vectors.json" => ("application/json", VECTORS.to_owned()),
            "/schedule.json" => ("application/json", schedule().to_string()),
            "/rotation.json" => ("application/json", rotation().to_string()),
            "/config.json" => ("application/json", self.config.clone()),
            // The page asks for the channel to open once its bid is seen to wait.
            "/open" => {
                self.hub.publish(&signed(2, Strategy::Open, &key()));
                ("text/plain", String::new())
            }
            "/close" => {
                let hour = Strategy::Interval(Duration::from_secs(3600));
                self.hub.publish(&signed(3, hour, &key()));
                ("text/plain", String::new())
            }
            "/announce" => {
                let announced = Some(next_key().public());
                self.hub.publish(&message(4, unix_now(), announced, &key()));
                ("text/plain", String::new())
            }
            "/rotate" => {
                self.hub.publish(&message(5, unix_now(), None, &next_key()));
                ("text/plain", String::new())
            }
            "/result" => {
                let result = String::from_utf8_lossy(&body).into_owned();
                let _ = self.said.send(Said::Result(result));
                ("text/plain", String::new())
            }
            "/bids" => {
                let content = Content::of("POST", "/bids", &body);
                let stamp = stamp.filter(|stamp| stamp.content == content);
                let _ = self.said.send(Said::Bid(stamp));
                ("text/plain", "taken".to_owned())
            }
            _ => ("text/plain", String::new()),
        };
        let mut response = Response::new(Full::from(text));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, kind.parse().unwrap());
        response
    }
}

/// The stamp of a request, if it is that of the client which it claims to come from.
fn stamp(request: &Request<Incoming>) -> Option<Stamp> {
    let text = |name| request.headers().get(name)?.to_str().ok();
    let stamp = Stamp::read(text(STAMP_HEADER)?)?;
    let id = format!("{:016x};seq=", client_id(&stamp.client).0);
    text(CLIENT_HEADER)?.starts_with(&id).then_some(stamp)
}

async fn start_site(hub: Hub, channel: String) -> (SocketAddr, mpsc::UnboundedReceiver<Said>) {
    let (listener, addr) = listener().await;
    let (said, heard) = mpsc::unbounded_channel();
    let config = serde_json::json!({
        "channel": channel,
        "key": key().public().to_string(),
    });
    let site = Arc::new(Site {
        config: config.to_string(),
        said,
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
    (addr, heard)
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

/// A relay of the publisher's, once it has a message.
async fn relay(publisher: &Node) -> Node {
    let (listener, addr) = listener().await;
    let parents = Parents::Tracked {
        tracker: publisher.url(),
        own: Some(format!("http://{addr}")),
    };
    let keys = [key().public(), next_key().public()];
    let relay = Relay::new(&keys, parents, 1);
    let hub = relay.hub();
    let desk = Arc::new(Desk::relay(hub.clone()));
    let tasks = vec![
        tokio::spawn(relay.run(|_| {})),
        tokio::spawn(serve::serve(listener, desk, std::future::pending())),
    ];
    until(|| hub.newest().is_some()).await;
    Node { addr, hub, tasks }
}

#[tokio::test]
async fn browser_verifies_paces_holds_back_and_sends() {
    let publisher = publisher().await;
    publisher.say(1, Strategy::Interval(Duration::from_secs(3600)));
    let beside = relay(&publisher).await;
    let (site, mut heard) = start_site(publisher.hub.clone(), publisher.url()).await;
    let profile = tempfile::tempdir().unwrap();
    let Some(_browser) = browse(&format!("http://{site}/"), profile.path()) else {
        println!("skipped: no Chromium on this machine");
        return;
    };
    let mut stamps = Vec::new();
    let result = loop {
        match soon(heard.recv()).await.unwrap() {
            Said::Bid(stamp) => stamps.push(stamp.expect("every bid has a genuine stamp")),
            Said::Result(result) => break result,
        }
    };
    assert_eq!(result, "ok");
    // What the browser received came by the relay too.
    assert!(beside.hub.copies() > 0);
    // The second was replaced before it went.
    let items: Vec<u64> = stamps.iter().map(|stamp| stamp.item).collect();
    assert_eq!(items, [1, 3]);
    assert_eq!(stamps[0].client, stamps[1].client);
    for stamp in stamps {
        let age = unix_now().since(stamp.made);
        assert!(age < support::PATIENCE + stamp.error, "{age:?}");
        assert!(stamp.error < Duration::from_secs(5));
        let proof = stamp.clock.expect("the clock was compared");
        assert!(proof.is_signed_by(&[key().public()]));
        assert!(proof.answer.round_trip.is_some());
        assert_eq!(stamp.delay_max, Duration::from_secs(3600));
    }
}
