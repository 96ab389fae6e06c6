//! Two proxies that share through a real server of NATS JetStream.
//!
//! Needs the feature `nats` and a `nats-server`, by `TIDEGATE_NATS_SERVER` or in the `PATH`;
//! `make nats` gets one from PyPI. Without it the tests say so and end well.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fleet_support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fleet_support::{Proxy, await_half_each, peers, share};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

const PATIENCE: Duration = Duration::from_secs(60);

/// Users of the server; the last one may connect and nothing else.
const USERS: &str = "users = [ { user: tidegate, password: right }, { user: other, password: right, \
                     permissions: { publish: \"none\", subscribe: \"_INBOX.>\" } } ]";

/// A NATS server; killed with the test.
struct Server {
    process: Child,
    port: u16,
    config: PathBuf,
    program: PathBuf,
}

/// The program, where there is one.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("TIDEGATE_NATS_SERVER").map(PathBuf::from);
    let found = named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        let mut folders = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
        folders.find(|file| file.is_file())
    });
    if found.is_none() {
        eprintln!("not tested: no nats-server; `make nats` gets one");
    }
    found
}

fn free_port() -> u16 {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    held.local_addr().unwrap().port()
}

impl Server {
    fn start(folder: &Path, more: &str) -> Option<Self> {
        let program = program()?;
        let port = free_port();
        let config = folder.join("nats.conf");
        let store = folder.join("store");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream: {{ store_dir: \"{}\" }}\n\
             authorization: {{ {USERS} }}\n{more}\n",
            store.display()
        );
        fs::write(&config, text).unwrap();
        let process = Self::spawn(&program, &config, port);
        Some(Self {
            process,
            port,
            config,
            program,
        })
    }

    fn spawn(program: &Path, config: &Path, port: u16) -> Child {
        let process = Command::new(program)
            .arg("-c")
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "nats-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn restart(&mut self) {
        self.process = Self::spawn(&self.program, &self.config, self.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `[fleet]` of a proxy that connects as `user` with `password`.
fn fleet(folder: &Path, port: u16, user: &str, password: &str) -> String {
    let file = folder.join(format!("{user}-{password}"));
    fs::write(&file, format!("{password}\n")).unwrap();
    format!(
        "nats = {{ urls = ['nats://127.0.0.1:{port}'], user = '{user}', password_file = '{}' }}",
        file.display()
    )
}

#[test]
fn proxies_share_through_nats_and_go_on_while_it_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(folder.path(), "") else {
        return;
    };
    let fleet = fleet(folder.path(), server.port, "tidegate", "right");
    let one = Proxy::start(folder.path(), "edge-1", free_port(), &fleet);
    let mut two = Proxy::start(folder.path(), "edge-2", free_port(), &fleet);
    await_half_each(&one, &two);
    // The bucket is in memory: it is gone with the server, and made anew.
    server.kill();
    let left = one.await_fleet("cut off", |fleet| fleet["cut_off"] == true);
    assert_eq!((peers(&left), share(&left)), (1, 0.5), "{left}");
    assert!(left["trouble"].is_string(), "{left}");
    server.restart();
    one.await_fleet("again", |fleet| {
        fleet["cut_off"] == false && fleet["trouble"].is_null()
    });
    await_half_each(&one, &two);
    let events = one.command(&["events", "--types", "peer_lost"]);
    assert!(!events.contains("peer_lost"), "{events}");
    // While the server lives, silence is a death.
    two.kill();
    let left = one.await_fleet("left", |fleet| peers(fleet) == 0);
    assert_eq!(share(&left), 1.0);
    let shown = one.command(&["fleet"]);
    assert!(shown.contains("reports go through NATS at"), "{shown}");
}

#[test]
fn wrong_password_and_missing_rights_are_clear_errors() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "") else {
        return;
    };
    let trouble = |name: &str, user: &str, password: &str| {
        let fleet = fleet(folder.path(), server.port, user, password);
        let proxy = Proxy::start(folder.path(), name, free_port(), &fleet);
        let found = proxy.await_fleet("trouble", |fleet| fleet["trouble"].is_string());
        (found["trouble"].as_str().unwrap().to_owned(), share(&found))
    };
    let (text, share) = trouble("edge-1", "tidegate", "wrong");
    assert!(
        text.contains("password is wrong or there is no user `tidegate`"),
        "{text}"
    );
    assert_eq!(share, 1.0, "it serves all the same");
    let (text, _) = trouble("edge-2", "other", "right");
    assert!(text.contains("the right to make"), "{text}");
}

/// It may write into the bucket, and does not know the fleet's token.
#[test]
fn foreign_proxy_with_another_token_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "") else {
        return;
    };
    let fleet = fleet(folder.path(), server.port, "tidegate", "right");
    let one = Proxy::start(folder.path(), "edge-1", free_port(), &fleet);
    let stranger = format!("{fleet}, token = 'another-token-0123'");
    let stranger = Proxy::start(folder.path(), "edge-0", free_port(), &stranger);
    let refused = |fleet: &serde_json::Value| fleet["bad_reports"].as_u64().unwrap() > 2;
    for proxy in [&one, &stranger] {
        let fleet = proxy.await_fleet("refused", refused);
        assert_eq!((peers(&fleet), share(&fleet)), (0, 1.0), "{fleet}");
    }
    let two = Proxy::start(folder.path(), "edge-2", free_port(), &fleet);
    await_half_each(&one, &two);
}

#[test]
fn tls_is_verified_by_the_authority_that_the_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(path("ca.pem"), authority.pem()).unwrap();
    fs::write(path("cert.pem"), certificate.pem()).unwrap();
    fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    let tls = format!(
        "tls: {{ cert_file: \"{}\", key_file: \"{}\" }}",
        path("cert.pem").display(),
        path("key.pem").display()
    );
    let Some(server) = Server::start(folder.path(), &tls) else {
        return;
    };
    fs::write(path("password"), "right").unwrap();
    let fleet = |more: &str| {
        format!(
            "nats = {{ urls = ['tls://127.0.0.1:{}'], user = 'tidegate', password_file = '{}'{more} }}",
            server.port,
            path("password").display(),
        )
    };
    let with_ca = fleet(&format!(", ca = '{}'", path("ca.pem").display()));
    let one = Proxy::start(folder.path(), "edge-1", free_port(), &with_ca);
    let two = Proxy::start(folder.path(), "edge-2", free_port(), &with_ca);
    await_half_each(&one, &two);
    let without = Proxy::start(folder.path(), "edge-3", free_port(), &fleet(""));
    let found = without.await_fleet("trouble", |fleet| fleet["trouble"].is_string());
    let text = found["trouble"].as_str().unwrap();
    assert!(text.contains("fleet.nats.ca"), "{text}");
}
