//! Replicas that come and go: in the DNS, in a file, over Unix sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod operator;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use operator::{Desk, soon};
use parking_lot::Mutex;
use serde_json::{Value, json};
use simple_dns::rdata::{A, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tidegate_proxy::admin::Operations;
use tidegate_proxy::reload::Source;
use tidegate_proxy::{Proxy, Running, SavedState, config};
use tidegate_testing::Client;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UdpSocket, UnixListener};

/// What the name server knows.
#[derive(Debug, Clone, Default)]
struct Zone {
    addresses: Vec<Ipv4Addr>,
    /// Port, weight and priority of a service at every address.
    services: Vec<(u16, u16, u16)>,
    silent: bool,
}

struct NameServer {
    addr: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    asked: Arc<AtomicUsize>,
}

impl NameServer {
    async fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            addr: socket.local_addr().unwrap(),
            zone: Arc::new(Mutex::new(zone)),
            asked: Arc::default(),
        };
        let (zone, asked) = (Arc::clone(&server.zone), Arc::clone(&server.asked));
        tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((read, from)) = socket.recv_from(&mut bytes).await {
                let known = zone.lock().clone();
                if !known.silent {
                    let reply = reply(&bytes[..read], &known);
                    socket.send_to(&reply, from).await.unwrap();
                }
                asked.fetch_add(1, Ordering::SeqCst);
            }
        });
        server
    }

    fn change(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.lock());
    }

    /// Waits until it was asked a few more times.
    async fn asked_again(&self) {
        let before = self.asked.load(Ordering::SeqCst);
        soon(async {
            while self.asked.load(Ordering::SeqCst) < before + 4 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

fn reply(question: &[u8], zone: &Zone) -> Vec<u8> {
    let asked = Packet::parse(question).unwrap();
    let mut reply = Packet::new_reply(asked.id());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    let name = asked.questions[0].qname.clone();
    let mut add = |data| {
        let record = ResourceRecord::new(name.clone(), CLASS::IN, 0, data);
        reply.answers.push(record);
    };
    match asked.questions[0].qtype {
        QTYPE::TYPE(TYPE::A) => {
            for ip in &zone.addresses {
                add(RData::A(A {
                    address: (*ip).into(),
                }));
            }
        }
        QTYPE::TYPE(TYPE::SRV) => {
            for &(port, weight, priority) in &zone.services {
                let target = Name::new_unchecked("host.test");
                add(RData::SRV(SRV {
                    priority,
                    weight,
                    port,
                    target,
                }));
            }
        }
        _ => {}
    }
    if zone.addresses.is_empty() {
        *reply.rcode_mut() = RCODE::NameError;
    }
    reply.questions = asked.questions;
    reply.build_bytes_vec().unwrap()
}

/// Answers every request on a connection with `name`.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, name: String) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
            name.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn serve(listener: TcpListener) {
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let name = stream.local_addr().unwrap().ip().to_string();
            tokio::spawn(converse(stream, name));
        }
    });
}

/// Replicas at 127.0.0.2 and 127.0.0.3 that share a port.
async fn twins() -> u16 {
    loop {
        let one = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = one.local_addr().unwrap().port();
        if let Ok(two) = TcpListener::bind(("127.0.0.3", port)).await {
            serve(one);
            serve(two);
            return port;
        }
    }
}

const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const THREE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A proxy with its operations, from a file.
fn started(dir: &Path, upstream: &str) -> (Running, Desk) {
    started_with("protect.warm_up = '0s'", dir, upstream)
}

fn started_with(protect: &str, dir: &Path, upstream: &str) -> (Running, Desk) {
    let file = dir.join("tidegate.toml");
    let top = "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nthreads = 1\n";
    fs::write(&file, format!("{top}{protect}\n{upstream}")).unwrap();
    let bound = Proxy::bind(config::load(&file).unwrap().config).unwrap();
    let desk = Desk::beside(&bound, &file);
    (bound.start().unwrap(), desk)
}

fn dns(server: &NameServer, port: u16) -> String {
    format!(
        "[[upstream.discover]]\ndns = 'http://app.test:{port}'\nnameserver = '{}'\n\
         ttl_min = '10ms'\n",
        server.addr
    )
}

fn replicas(desk: &Desk) -> Vec<String> {
    let application = desk.state.first();
    let settings = application.settings();
    let mut urls: Vec<_> = settings
        .pool()
        .members
        .iter()
        .map(|it| it.url.host.clone())
        .collect();
    urls.sort();
    urls
}

async fn until(desk: &Desk, wanted: &[&str]) {
    soon(async {
        while replicas(desk) != wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// One request on a connection; its status and body.
async fn ask(client: &mut Client) -> (u16, String) {
    let answer = client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    (answer.status, answer.text())
}

async fn connect(proxy: &Running) -> Client {
    Client::connect(proxy.local_addr()).await
}

#[tokio::test]
async fn dns_that_flaps_under_load_loses_no_request() {
    let port = twins().await;
    let addresses = vec![TWO];
    let server = NameServer::start(Zone {
        addresses,
        ..Zone::default()
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (proxy, desk) = started(dir.path(), &dns(&server, port));
    until(&desk, &["127.0.0.2"]).await;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, addr) = (Arc::clone(&over), proxy.local_addr());
            tokio::spawn(async move {
                let mut stream = Client::connect(addr).await;
                let (mut asked, mut lost) = (0, 0);
                while !over.load(Ordering::SeqCst) {
                    asked += 1;
                    lost += usize::from(ask(&mut stream).await.0 != 200);
                }
                (asked, lost)
            })
        })
        .collect();
    for _ in 0..10 {
        server.change(|zone| zone.addresses = vec![THREE, TWO]);
        until(&desk, &["127.0.0.2", "127.0.0.3"]).await;
        server.change(|zone| zone.addresses = vec![THREE]);
        until(&desk, &["127.0.0.3"]).await;
        server.change(|zone| zone.addresses = Vec::new());
        server.asked_again().await;
        assert_eq!(replicas(&desk), ["127.0.0.3"], "the last known stay");
        server.change(|zone| zone.addresses = vec![TWO]);
        until(&desk, &["127.0.0.2"]).await;
    }
    over.store(true, Ordering::SeqCst);
    let (mut asked, mut lost) = (0, 0);
    for client in clients {
        let counts = soon(client).await.unwrap();
        asked += counts.0;
        lost += counts.1;
    }
    assert!(asked > 40, "{asked} requests while addresses came and went");
    assert_eq!(lost, 0, "of {asked}");
}

#[tokio::test]
async fn a_name_server_that_is_silent_takes_nothing_away() {
    let port = twins().await;
    let addresses = vec![TWO, THREE];
    let server = NameServer::start(Zone {
        addresses,
        ..Zone::default()
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (proxy, desk) = started(dir.path(), &dns(&server, port));
    until(&desk, &["127.0.0.2", "127.0.0.3"]).await;
    server.change(|zone| zone.silent = true);
    let mut client = connect(&proxy).await;
    assert_eq!(ask(&mut client).await.0, 200);
    assert_eq!(replicas(&desk).len(), 2);
    let pool = desk.get("/api/applications/default/replicas").await.json();
    assert_eq!(pool["source"], "discovery");
}

#[tokio::test]
async fn services_have_ports_and_weights_and_the_best_priority_counts() {
    let port = twins().await;
    let zone = Zone {
        addresses: vec![TWO],
        services: vec![(port, 7, 1), (1, 9, 2)],
        silent: false,
    };
    let server = NameServer::start(zone).await;
    let dir = tempfile::tempdir().unwrap();
    let source = dns(&server, port).replace(
        "dns = 'http://app.test",
        "srv = 'http://_http._tcp.app.test",
    );
    let (proxy, desk) = started(dir.path(), &source);
    until(&desk, &["127.0.0.2"]).await;
    let pool = desk.get("/api/applications/default/replicas").await.json();
    assert_eq!(pool["replicas"][0]["weight"], 7);
    assert_eq!(
        ask(&mut connect(&proxy).await).await,
        (200, "127.0.0.2".to_owned())
    );
}

#[tokio::test]
async fn a_watched_file_names_the_replicas() {
    let port = twins().await;
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("replicas");
    fs::write(&list, format!("http://127.0.0.2:{port}\n")).unwrap();
    let (proxy, desk) = started(dir.path(), "upstream.discover = [{ file = 'replicas' }]");
    until(&desk, &["127.0.0.2"]).await;
    assert_eq!(ask(&mut connect(&proxy).await).await.1, "127.0.0.2");
    fs::write(&list, format!("[\"http://127.0.0.3:{port}\"]")).unwrap();
    until(&desk, &["127.0.0.3"]).await;
    assert_eq!(ask(&mut connect(&proxy).await).await.1, "127.0.0.3");
}

#[tokio::test]
async fn a_replica_may_be_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, "by socket".to_owned()));
        }
    });
    let (proxy, desk) = started(dir.path(), &format!("upstream = 'unix:{}'", path.display()));
    let mut client = connect(&proxy).await;
    for _ in 0..3 {
        assert_eq!(ask(&mut client).await, (200, "by socket".to_owned()));
    }
    let pool = desk.get("/api/applications/default/replicas").await.json();
    assert_eq!(
        pool["replicas"][0]["url"],
        format!("unix:{}", path.display())
    );
}

const POOL: &str = "/api/applications/default/replicas";

async fn change(desk: &Desk, method: Method, body: &str) -> Value {
    let answer = desk.call(desk.request(method, POOL, body)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Host, weight, state and source of every replica, in order.
fn described(pool: &Value) -> Vec<String> {
    let one = |it: &Value| {
        let word = |name: &str| it[name].as_str().unwrap().to_owned();
        let host = word("url").replace("http://", "");
        let host = host.split(':').next().unwrap().to_owned();
        format!(
            "{host} {} {} {}",
            it["weight"],
            word("state"),
            word("source")
        )
    };
    let mut all: Vec<_> = pool["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .map(one)
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn discovery_goes_on_under_the_changes_of_the_api_until_they_are_dropped() {
    let port = twins().await;
    let server = NameServer::start(Zone {
        addresses: vec![TWO],
        ..Zone::default()
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let (_proxy, desk) = started(dir.path(), &dns(&server, port));
    until(&desk, &["127.0.0.2"]).await;
    let patch = format!(
        r#"{{"drain":["http://127.0.0.2:{port}"],"weight":{{"http://127.0.0.2:{port}":3}},
             "add":[{{"url":"http://127.0.0.9:{port}"}}]}}"#
    );
    let pool = change(&desk, Method::PATCH, &patch).await;
    let drained = "127.0.0.2 3 draining discovery";
    let added = "127.0.0.9 1 active api";
    assert_eq!(described(&pool), [drained, added]);
    assert_eq!(
        (&pool["source"], &pool["changed"]),
        (&json!("discovery"), &json!(true))
    );

    // An address that comes is a replica, and the changes stay.
    server.change(|zone| zone.addresses = vec![TWO, THREE]);
    until(&desk, &["127.0.0.2", "127.0.0.3", "127.0.0.9"]).await;
    let pool = desk.get(POOL).await.json();
    let found = "127.0.0.3 1 active discovery";
    assert_eq!(described(&pool), [drained, found, added]);
    let engine = desk.get("/api/applications/default").await.json();
    let up = |it: &&Value| it["up"] == true;
    assert_eq!(
        engine["replicas"]
            .as_array()
            .unwrap()
            .iter()
            .filter(up)
            .count(),
        2,
        "{engine}"
    );

    // One that was drained, went, and comes back begins afresh.
    server.change(|zone| zone.addresses = vec![THREE]);
    until(&desk, &["127.0.0.3", "127.0.0.9"]).await;
    server.change(|zone| zone.addresses = vec![TWO, THREE]);
    until(&desk, &["127.0.0.2", "127.0.0.3", "127.0.0.9"]).await;
    let pool = desk.get(POOL).await.json();
    assert_eq!(
        described(&pool),
        ["127.0.0.2 1 active discovery", found, added]
    );

    // What the API removes stays away as long as it is named; the way back takes all of it back.
    let patch = format!(r#"{{"remove":["http://127.0.0.3:{port}"]}}"#);
    change(&desk, Method::PATCH, &patch).await;
    server.asked_again().await;
    assert_eq!(replicas(&desk), ["127.0.0.2", "127.0.0.9"]);
    let pool = change(&desk, Method::DELETE, "").await;
    assert_eq!(described(&pool), ["127.0.0.2 1 active discovery", found]);
    assert_eq!(pool["changed"], false);
}

#[tokio::test]
async fn whole_pool_of_the_api_ends_with_a_reset_or_another_source() {
    let port = twins().await;
    let dir = tempfile::tempdir().unwrap();
    let list = |name: &str, host: &str| {
        fs::write(dir.path().join(name), format!("http://{host}:{port}\n")).unwrap();
    };
    list("one", "127.0.0.2");
    list("two", "127.0.0.3");
    let (_proxy, desk) = started(dir.path(), "upstream.discover = [{ file = 'one' }]");
    until(&desk, &["127.0.0.2"]).await;
    let put = format!(r#"{{"replicas":[{{"url":"http://127.0.0.9:{port}"}}]}}"#);
    let pool = change(&desk, Method::PUT, &put).await;
    assert_eq!(described(&pool), ["127.0.0.9 1 active api"]);
    change(&desk, Method::DELETE, "").await;
    assert_eq!(replicas(&desk), ["127.0.0.2"], "what was found is known");

    change(&desk, Method::PUT, &put).await;
    let file = dir.path().join("tidegate.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("'one'", "'two'")).unwrap();
    assert_eq!(desk.post("/api/reload", "").await.status, 200);
    until(&desk, &["127.0.0.3"]).await;
}

#[tokio::test]
async fn restart_while_the_source_is_away_begins_with_the_last_known_replicas() {
    let port = twins().await;
    let server = NameServer::start(Zone {
        addresses: vec![TWO, THREE],
        ..Zone::default()
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.json");
    let upstream = format!("state_file = 'state.json'\n{}", dns(&server, port));
    let (_proxy, desk) = started(dir.path(), &upstream);
    until(&desk, &["127.0.0.2", "127.0.0.3"]).await;
    let drain = format!(r#"{{"drain":["http://127.0.0.2:{port}"]}}"#);
    change(&desk, Method::PATCH, &drain).await;
    server.change(|zone| zone.silent = true);
    let mut saved: Value = serde_json::from_str(&SavedState::of(&desk.state).to_string()).unwrap();
    let url = format!("http://127.0.0.3:{port}");
    saved["windows"] = json!({ &url: 77 });
    fs::write(&state, saved.to_string()).unwrap();

    let file = dir.path().join("tidegate.toml");
    let bound = Proxy::bind(config::load(&file).unwrap().config).unwrap();
    let first = bound.state().first();
    let windows = first.sentry().status(first.now()).replicas;
    let windows: Vec<_> = windows.iter().map(|it| it.window).collect();
    assert!(
        windows.contains(&Some(77)),
        "what was found is known too: {windows:?}"
    );
    let next = Desk::beside(&bound, &file);
    let proxy = bound.start().unwrap();
    for _ in 0..3 {
        assert_eq!(
            ask(&mut connect(&proxy).await).await,
            (200, "127.0.0.3".to_owned()),
            "the other one is still drained"
        );
    }
    server.asked_again().await;
    assert_eq!(replicas(&next), ["127.0.0.2", "127.0.0.3"]);

    // Replicas that another source named are not begun with.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("app.test", "other.test")).unwrap();
    let bound = Proxy::bind(config::load(&file).unwrap().config).unwrap();
    assert_eq!(bound.state().first().settings().pool().members.len(), 0);
}

#[tokio::test]
async fn proxy_that_starts_finds_replicas_before_it_serves() {
    let port = twins().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    fs::write(
        dir.path().join("replicas"),
        format!("http://127.0.0.2:{port}\n"),
    )
    .unwrap();
    let text = "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nthreads = 1\n\
                upstream.discover = [{ file = 'replicas' }]";
    fs::write(&file, text).unwrap();
    let bound = Proxy::bind(config::load(&file).unwrap().config).unwrap();
    let source = Source::file(&file);
    let operations = Operations::bind(Arc::clone(bound.state()), source).unwrap();
    operations.find_replicas().await;
    let proxy = bound.start().unwrap();
    assert_eq!(ask(&mut connect(&proxy).await).await.0, 200);
}

#[tokio::test]
async fn replica_that_is_found_later_warms_up_and_those_at_the_start_do_not() {
    let port = twins().await;
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("replicas");
    let (two, three) = (
        format!("http://127.0.0.2:{port}"),
        format!("http://127.0.0.3:{port}"),
    );
    fs::write(&list, &two).unwrap();
    let discover = "upstream.discover = [{ file = 'replicas' }]";
    let (_proxy, desk) = started_with("protect.warm_up = '1h'", dir.path(), discover);
    until(&desk, &["127.0.0.2"]).await;
    let windows = async || {
        let status = desk.get("/api/applications/default").await.json();
        let replicas = status["replicas"].as_array().unwrap().clone();
        [&two, &three].map(|url| {
            let found = replicas.iter().find(|it| it["url"] == **url);
            found.and_then(|it| it["window"].as_u64())
        })
    };
    fs::write(&list, format!("{two}\n{three}\n")).unwrap();
    until(&desk, &["127.0.0.2", "127.0.0.3"]).await;
    let warming = async {
        loop {
            if let [Some(known), Some(new)] = windows().await
                && new < known
            {
                return (known, new);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (known, new) = soon(warming).await;
    assert!(new * 4 < known, "an hour is hardly begun: {new} of {known}");
}
