//! Replicas that come and go: in the DNS, in a file, over Unix sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod operator;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use operator::{Desk, soon};
use parking_lot::Mutex;
use simple_dns::rdata::{A, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use tidegate_proxy::{Proxy, Running, config};
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
    let file = dir.join("tidegate.toml");
    let top =
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nthreads = 1\nprotect.warm_up = '0s'\n";
    fs::write(&file, format!("{top}{upstream}")).unwrap();
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
