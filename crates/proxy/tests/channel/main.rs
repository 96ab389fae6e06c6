//! The channel of a running proxy: what clients hear, and what happens to those who do not listen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_channel::message::from_text;
use tidegate_channel::net::subscribe::Subscription;
use tidegate_channel::net::{
    CLIENT_HEADER, Dialer, HELD_HEADER, JOIN_PATH, MESSAGE_HEADER, MESSAGE_PATH, RECEIPT_HEADER,
    STAMP_HEADER, unix_now,
};
use tidegate_channel::stamp::{Content, Stamp, client_id};
use tidegate_channel::{ClientId, SecretKey, Strategy, Verifier};
use tidegate_control::Timestamp;
use tidegate_proxy::admin::Operations;
use tidegate_proxy::channel::ChannelCommand;
use tidegate_proxy::config::{Config, Problem, Severity};
use tidegate_proxy::reload::Source;
use tidegate_proxy::state::State;
use tidegate_proxy::{Proxy, Running};
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(30);
const SEED: &str = "0707070707070707070707070707070707070707070707070707070707070707";

fn publisher() -> SecretKey {
    SEED.parse().unwrap()
}

struct World {
    listen: SocketAddr,
    channel: SocketAddr,
    state: Arc<State>,
    _running: Running,
    folder: tempfile::TempDir,
}

/// What a request carries.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// A service that says what it was told.
async fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(|request: Request<Incoming>| async move {
                let header = |name: &str| {
                    let value = request
                        .headers()
                        .get(name)
                        .map(|value| value.to_str().unwrap());
                    value.unwrap_or("none").to_owned()
                };
                let said = format!(
                    "client: {}\nitem: {}\nreceipt: {}\nstamp: {}\n",
                    header(CLIENT_HEADER),
                    header("idempotency-key"),
                    header(RECEIPT_HEADER),
                    header(STAMP_HEADER),
                );
                let body = Full::new(Bytes::from(said));
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    addr
}

async fn world(section: &str) -> World {
    world_of(service().await, section).await
}

async fn world_of(upstream: SocketAddr, section: &str) -> World {
    world_in(tempfile::tempdir().unwrap(), upstream, section).await
}

async fn world_in(folder: tempfile::TempDir, upstream: SocketAddr, section: &str) -> World {
    let key_file = folder.path().join("channel.key");
    std::fs::write(&key_file, SEED).unwrap();
    std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\nupstream = 'http://{upstream}'\nadmin = 'off'\n\
         [channel]\nlisten = '127.0.0.1:0'\nkey_file = '{}'\nperiod = '20ms'\n{section}",
        key_file.display()
    );
    let config = Config::from_text("t.toml", &text).unwrap();
    let wrong = |problem: &Problem| problem.severity == Severity::Error;
    assert!(!config.problems().iter().any(wrong));
    let bound = Proxy::bind(config).unwrap();
    let source = Source {
        file: None,
        flags: None,
    };
    let operations = Operations::bind(Arc::clone(bound.state()), source).unwrap();
    let channel = operations.channel_addr().unwrap();
    let running = bound.start().unwrap();
    tokio::spawn(operations.run(std::future::pending()));
    World {
        listen: running.local_addr(),
        channel,
        state: Arc::clone(running.state()),
        _running: running,
        folder,
    }
}

/// A client with a key.
struct Bidder {
    key: SecretKey,
}

impl Bidder {
    fn new(seed: u8) -> Self {
        Self {
            key: SecretKey::from_seed(&[seed; 32]),
        }
    }

    fn id(&self) -> ClientId {
        client_id(&self.key.public())
    }

    /// A stamp for the bid `1`, made now.
    fn stamp(&self, item: u64) -> Stamp {
        Stamp {
            client: self.key.public(),
            item,
            made: unix_now(),
            error: Duration::ZERO,
            delay_max: Duration::from_secs(3600),
            content: Content::of("POST", "/bids", b"1"),
            clock: None,
        }
    }

    fn sign(&self, stamp: &Stamp) -> String {
        stamp.sign(&self.key).unwrap()
    }
}

impl World {
    /// Sends a bid with these headers: status, message if one came along, body.
    async fn bid(&self, headers: Headers<'_>) -> (StatusCode, Option<String>, String) {
        let (status, message, body, _) = self.send("POST", "/bids", "1", headers).await;
        (status, message, body)
    }

    /// Sends the bid that a stamp is for: status, and why it was held.
    async fn stamped(&self, bidder: &Bidder, stamp: &Stamp) -> (u16, Option<String>) {
        let stamp = bidder.sign(stamp);
        let (status, _, _, held) = self
            .send("POST", "/bids", "1", &[(STAMP_HEADER, &stamp)])
            .await;
        (status.as_u16(), held)
    }

    /// Sends a request: status, message, body, why it was held.
    async fn send(
        &self,
        method: &str,
        target: &str,
        body: &str,
        headers: Headers<'_>,
    ) -> (StatusCode, Option<String>, String, Option<String>) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.listen));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        let request = request.body(body).unwrap();
        let response = tokio::time::timeout(PATIENCE, Dialer::default().send(request)).await;
        let response = response.unwrap().unwrap();
        let status = response.status();
        let message = response.headers().get(MESSAGE_HEADER);
        let message = message.map(|value| value.to_str().unwrap().to_owned());
        let held = response.headers().get(HELD_HEADER);
        let held = held.map(|value| value.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (status, message, body, held)
    }

    async fn until(&self, what: impl Fn(&Strategy) -> bool) -> Strategy {
        let wait = async {
            loop {
                let strategy = self.state.first().channel().unwrap().status().strategy;
                if self.state.first().channel().unwrap().status().seq > 0 && what(&strategy) {
                    return strategy;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap()
    }

    /// A client whose turn is far away, once there are turns.
    async fn somebody_who_waits(&self) -> Bidder {
        let strategy = self.until(|strategy| *strategy != Strategy::Open).await;
        let Strategy::Group(groups) = strategy else {
            panic!("{strategy:?}")
        };
        let waits = |bidder: &Bidder| {
            let turn = groups.next_turn(bidder.id(), unix_now()).unwrap();
            turn.since(unix_now()) > Duration::from_secs(120)
        };
        (0..=255).map(Bidder::new).find(waits).unwrap()
    }
}

/// A relay experiment that holds nearly everybody back, whatever the delay.
const HOLD: ChannelCommand = ChannelCommand::Tune {
    bias: 0.01,
    swing: 0.004,
    hysteresis_s: 1000.0,
    periods_max: 1_000_000,
};

#[tokio::test]
async fn messages_are_genuine_and_come_with_responses_to_those_who_listen() {
    let world = world("").await;
    let mut verifier = Verifier::new(&[publisher().public()]);
    let mut stream = Subscription::open(&Dialer::default(), &format!("http://{}", world.channel))
        .await
        .unwrap();
    let next = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
    let message = verifier.accept(unix_now(), &next.unwrap()).unwrap();
    assert_eq!(message.strategy, Strategy::Open);
    let (status, carried, body) = world.bid(&[(CLIENT_HEADER, "ff;seq=1;lag=250")]).await;
    assert_eq!(status, 200);
    assert!(body.contains("client: none"), "{body}");
    let carried = from_text(&carried.unwrap()).unwrap();
    let carried = Verifier::new(&[publisher().public()]).accept(unix_now(), &carried);
    assert!(carried.is_ok());
    let (status, carried, _) = world.bid(&[]).await;
    assert_eq!((status.as_u16(), carried), (200, None));
    // What a stranger says about the channel moves nothing.
    let status = world.state.first().channel().unwrap().status();
    assert_eq!((status.dead_time_s, status.clients), (0.0, 1.0));
}

#[tokio::test]
async fn the_channel_speaks_https_where_it_has_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let pair = format!(
        "{{ cert = '{}', key = '{}' }}",
        cert.display(),
        key.display()
    );
    let world = world(&format!("tls = {pair}\nurl = 'https://127.0.0.1:1'\n")).await;
    let dialer = Dialer::trusting(&cert).unwrap();
    let at = format!("https://{}", world.channel);
    let mut stream = Subscription::open(&dialer, &at).await.unwrap();
    let next = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
    let mut verifier = Verifier::new(&[publisher().public()]);
    assert!(verifier.accept(unix_now(), &next.unwrap()).is_ok());
    // The tracker sends everybody to the name that the certificate has.
    let assigned = dialer.get(&at, JOIN_PATH, None).await.unwrap();
    assert!(assigned.contains("https://127.0.0.1:1"), "{assigned}");
    let plain = format!("http://{}", world.channel);
    assert!(
        Dialer::default()
            .get(&plain, MESSAGE_PATH, None)
            .await
            .is_err()
    );
}

#[test]
fn certificates_need_the_name_that_clients_check() {
    let text =
        "upstream = 'http://127.0.0.1:1'\n[channel]\ntls = { cert = 'no.pem', key = 'no.key' }\n";
    let problems = Config::from_text("t.toml", text).unwrap().problems();
    let about = |path: &str| problems.iter().find(|problem| problem.path == path);
    assert!(
        about("channel.tls")
            .unwrap()
            .message
            .contains("channel.url")
    );
    assert!(about("channel.tls.0").unwrap().message.contains("no.pem"));
}

#[test]
fn a_setpoint_near_the_target_refuses_before_clients_hold_back() {
    let warned = |setpoint: &str| {
        let text = format!(
            "upstream = 'http://127.0.0.1:1'\nprotect.target = '1s'\n[channel]\nsetpoint = '{setpoint}'\n"
        );
        let problems = Config::from_text("t.toml", &text).unwrap().problems();
        problems
            .iter()
            .any(|problem| problem.path == "channel.setpoint")
    };
    assert!(warned("600ms") && !warned("500ms"));
}

#[tokio::test]
async fn who_does_not_wait_is_counted_throttled_banned_and_can_be_pardoned() {
    let compliance = "[channel.compliance]\nslack = '0s'\nthrottle_after = 3\nban_after = 6\n";
    let world = world(compliance).await;
    let application = world.state.first();
    let channel = application.channel().unwrap();
    channel.command(&HOLD).unwrap();
    let bidder = world.somebody_who_waits().await;
    let mut seen = Vec::new();
    for item in 0..20 {
        let (status, held) = world.stamped(&bidder, &bidder.stamp(item)).await;
        let word = held.map_or_else(|| status.to_string(), |held| format!("{status} {held}"));
        if seen.last() != Some(&word) {
            seen.push(word);
        }
    }
    assert_eq!(seen, ["200", "429 told-to-wait", "429 banned"]);
    let status = channel.status();
    assert_eq!(status.offenders[0].client, bidder.id());
    assert!(status.verdicts.tolerated > 0 && status.verdicts.bans == 1);
    // By the number that the list prints.
    let listed = serde_json::to_value(&status).unwrap();
    let name = listed["offenders"][0]["client"]
        .as_str()
        .unwrap()
        .to_owned();
    channel.command(&ChannelCommand::Pardon(name)).unwrap();
    assert_eq!(world.stamped(&bidder, &bidder.stamp(99)).await.0, 200);
    assert!(
        channel
            .command(&ChannelCommand::Pardon("xyz".to_owned()))
            .is_err()
    );
}

#[tokio::test]
async fn members_only_and_items_in_time_only() {
    let (member, stranger) = (Bidder::new(1), Bidder::new(2));
    let section = format!(
        "members = ['{}']\npaths = ['/bids']\ndelay_max = '60s'\n",
        member.key.public()
    );
    let world = world(&section).await;
    let made = |bidder: &Bidder, item, age_s| Stamp {
        made: Timestamp::ZERO + unix_now().since(Timestamp::ZERO + Duration::from_secs(age_s)),
        ..bidder.stamp(item)
    };
    for (bidder, item, age_s, expected) in [
        (&member, 1, 1, 200),
        (&stranger, 2, 1, 403),
        (&member, 3, 90, 410),
    ] {
        let stamp = made(bidder, item, age_s);
        assert_eq!(world.stamped(bidder, &stamp).await.0, expected);
    }
    assert_eq!(world.bid(&[]).await.0, 403);
    // Another's number with one's own stamp.
    let stamp = member.sign(&made(&member, 4, 1));
    let headers = [(STAMP_HEADER, stamp.as_str()), (CLIENT_HEADER, "ff")];
    assert_eq!(world.bid(&headers).await.0, 403);
    // After an outage the operator prolongs.
    let application = world.state.first();
    let channel = application.channel().unwrap();
    channel.command(&ChannelCommand::Prolong(120.0)).unwrap();
    assert_eq!(world.stamped(&member, &made(&member, 5, 90)).await.0, 200);
    let status = channel.status();
    assert_eq!((status.late, status.strangers), (1, 3));
}

#[tokio::test]
async fn a_prolongation_is_told_to_clients_and_outlives_a_restart() {
    let upstream = service().await;
    let section = "keep_alive = '50ms'\ndeadline = 4000000000\npaths = ['/bids']\n";
    let first = world_of(upstream, section).await;
    let application = first.state.first();
    let channel = application.channel().unwrap();
    channel.command(&ChannelCommand::Prolong(90.0)).unwrap();
    let deadline = ChannelCommand::Deadline(4_000_000_600);
    channel.command(&deadline).unwrap();
    let terms = |at: SocketAddr| async move {
        let at = format!("http://{at}");
        let told = async {
            loop {
                let text = Dialer::default().get(&at, MESSAGE_PATH, None).await;
                let text = text.ok().and_then(|text| from_text(&text));
                let mut verifier = Verifier::new(&[publisher().public()]);
                let message = text.and_then(|bytes| verifier.accept(unix_now(), &bytes).ok());
                if let Some(message) = message
                    && !message.terms.prolonged.is_zero()
                {
                    return (message.seq, message.terms);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.unwrap()
    };
    let (seq, told) = terms(first.channel).await;
    assert_eq!(told.prolonged, Duration::from_secs(90));
    let moved = Timestamp::ZERO + Duration::from_secs(4_000_000_600);
    assert_eq!(told.deadline, Some(moved));
    let World { folder, .. } = first;
    let second = world_in(folder, upstream, section).await;
    let (later, again) = terms(second.channel).await;
    assert_eq!(again, told);
    assert!(later > seq, "numbers grow over a restart");
}

#[tokio::test]
async fn a_proxy_that_follows_passes_messages_on_and_checks_by_them() {
    let first = world("keep_alive = '50ms'\n").await;
    let follow = format!(
        "follow = 'http://{}'\nfollow_key = '{}'\n\
         [channel.compliance]\nslack = '0s'\nthrottle_after = 1\n",
        first.channel,
        publisher().public()
    );
    let second = world(&follow).await;
    second.until(|_| true).await;
    // Its own listeners hear the first one's messages.
    let at = format!("http://{}", second.channel);
    let mut stream = Subscription::open(&Dialer::default(), &at).await.unwrap();
    let message = tokio::time::timeout(PATIENCE, stream.next()).await;
    let mut verifier = Verifier::new(&[publisher().public()]);
    let message = verifier.accept(unix_now(), &message.unwrap().unwrap());
    assert!(message.is_ok());
    // And they come with its responses.
    let (status, carried, _) = second.bid(&[(CLIENT_HEADER, "00000000000000ff")]).await;
    assert_eq!((status, carried.is_some()), (StatusCode::OK, true));
    let listeners = first.state.first().channel().unwrap().status().listeners;
    assert_eq!(listeners, 1);
    // What the first one says is what the second one's clients were told.
    assert!(
        second
            .state
            .first()
            .channel()
            .unwrap()
            .command(&HOLD)
            .is_err()
    );
    first
        .state
        .first()
        .channel()
        .unwrap()
        .command(&HOLD)
        .unwrap();
    let bidder = second.somebody_who_waits().await;
    let mut statuses = Vec::new();
    for item in 0..5 {
        statuses.push(second.stamped(&bidder, &bidder.stamp(item)).await.0);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn what_is_refused_closes_the_loop_though_nothing_waits() {
    let refuse = "setpoint = '1ms'\ngain = 10.0\nintegral_time = '20ms'\n\
                  [protect]\nmode = 'static'\n[protect.static]\nshare = '0%'\n";
    let world = world(refuse).await;
    world.until(|strategy| *strategy == Strategy::Open).await;
    let insist = async {
        loop {
            world.bid(&[]).await;
        }
    };
    tokio::select! {
        () = insist => {}
        strategy = world.until(|strategy| *strategy != Strategy::Open) => {
            assert!(matches!(strategy, Strategy::Group(_)), "{strategy:?}");
        }
    }
}

#[tokio::test]
async fn what_is_inside_can_be_held_instead_of_the_delay() {
    // A service that never answers: there is no delay to measure, but somebody is inside.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = silent.local_addr().unwrap();
    let world = world_of(upstream, "queue = 0.5\n").await;
    world.until(|strategy| *strategy == Strategy::Open).await;
    let headers = [(CLIENT_HEADER, "00000000000000ff")];
    tokio::select! {
        _ = world.bid(&headers) => panic!("nobody answers"),
        strategy = world.until(|strategy| *strategy != Strategy::Open) => {
            assert!(matches!(strategy, Strategy::Group(_)), "{strategy:?}");
        }
    }
}
