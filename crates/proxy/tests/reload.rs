//! Reloads: whole or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod operator;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use operator::Desk;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;
use tidegate_proxy::Proxy;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A configuration file in a directory of its own.
struct File {
    dir: TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let file = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tidegate.toml")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }
}

fn config(target: &str, replicas: &str) -> String {
    format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = [{replicas}]\n\
         protect.target = '{target}'\n"
    )
}

/// The target the engine goes by.
fn target_millis(desk: &Desk) -> u128 {
    desk.state
        .first()
        .sentry()
        .config()
        .target
        .unwrap()
        .as_millis()
}

const A: &str = "'http://127.0.0.1:1'";
const B: &str = "'http://127.0.0.1:2'";

#[tokio::test]
async fn included_files_that_come_and_change_are_put_in_force() {
    let file = File::new("listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\ninclude = 'apps/*.toml'");
    let apps = file.dir.path().join("apps");
    fs::create_dir(&apps).unwrap();
    let shop = "[[application]]\nname = 'shop'\nhosts = ['shop.example']\nupstream = 'http://127.0.0.1:1'\n";
    fs::write(apps.join("shop.toml"), shop).unwrap();
    let desk = Desk::start_from(&file.path());
    let put = |line: &serde_json::Value| line["line"].as_str().unwrap().contains("put in force");
    let mut events = desk.events().await;
    fs::write(apps.join("api.toml"), shop.replace("shop", "api")).unwrap();
    events.wait_for("notice", put).await;
    assert!(desk.state.application("api").is_some(), "a new file");
    fs::write(apps.join("shop.toml"), shop.replace("'shop'", "'store'")).unwrap();
    events.wait_for("notice", put).await;
    assert!(desk.state.application("store").is_some(), "a changed file");
    assert!(desk.state.application("shop").is_none());
}

#[tokio::test]
async fn a_changed_file_is_put_in_force_by_itself() {
    let file = File::new(&config("500ms", A));
    let desk = Desk::start_from(&file.path());
    let mut events = desk.events().await;
    file.write(&config("300ms", &format!("{A}, {B}")));
    let put = |line: &serde_json::Value| line["line"].as_str().unwrap().contains("put in force");
    events.wait_for("notice", put).await;
    let status = desk.get("/api/status").await.json();
    assert_eq!(target_millis(&desk), 300);
    assert_eq!(
        status["applications"]["default"]["replicas"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(status["reload"]["reloads"], 1);
}

#[tokio::test]
async fn a_hangup_puts_the_file_in_force() {
    let file = File::new(&config("500ms", A));
    let desk = Desk::start_minding_hangups(&file.path());
    let mut events = desk.events().await;
    file.write(&config("200ms", A));
    let hangup = format!("kill -HUP {}", std::process::id());
    let sent = std::process::Command::new("sh")
        .args(["-c", &hangup])
        .status();
    assert!(sent.unwrap().success());
    let put = |line: &serde_json::Value| line["line"].as_str().unwrap().contains("put in force");
    events.wait_for("notice", put).await;
    assert_eq!(target_millis(&desk), 200);
}

#[tokio::test]
async fn what_the_command_line_says_holds_through_reloads() {
    let file = File::new(&format!("upstream = [{A}]\nprotect.target = '500ms'"));
    let desk = Desk::start_from_with(&file.path(), |config| {
        config.listen = vec!["127.0.0.1:0".parse().unwrap()];
        config.admin = "127.0.0.1:0".parse().unwrap();
    });
    file.write(&format!("upstream = [{A}]\nprotect.target = '300ms'"));
    assert_eq!(desk.post("/api/reload", "").await.status, 200);
    assert_eq!(target_millis(&desk), 300);
    assert_eq!(desk.state.config().listen.len(), 1);
}

#[tokio::test]
async fn a_refused_file_leaves_the_old_one_in_force() {
    let file = File::new(&config("500ms", A));
    let desk = Desk::start_from(&file.path());
    file.write(&config("soon", A));
    let answered = desk.post("/api/reload", "").await;
    assert_eq!(answered.status, 422);
    assert!(
        answered.json()["cause"]
            .as_str()
            .unwrap()
            .contains("tidegate.toml:4:18")
    );
    let status = desk.get("/api/status").await.json();
    assert_eq!(target_millis(&desk), 500);
    assert_eq!(status["reload"]["refused"], 1);
    assert!(
        status["reload"]["error"]
            .as_str()
            .unwrap()
            .contains("`soon`")
    );
    let warned = |status: &serde_json::Value| {
        let warnings = status["warnings"].as_array().unwrap().iter();
        let texts = warnings.filter_map(|warning| warning["text"].as_str());
        texts.filter(|text| text.contains("`soon`")).count()
    };
    assert_eq!(warned(&status), 1, "{}", status["warnings"]);
    let metrics = desk.get("/metrics").await.body;
    assert!(metrics.contains("tidegate_config_in_force 0\n"));
    assert!(metrics.contains("tidegate_reloads_total{outcome=\"refused\"} 1\n"));

    file.write(&config("400ms", A));
    assert_eq!(desk.post("/api/reload", "").await.status, 200);
    let status = desk.get("/api/status").await.json();
    assert_eq!(target_millis(&desk), 400);
    assert_eq!(status["reload"]["error"], serde_json::Value::Null);
    assert_eq!(warned(&status), 0);
}

#[tokio::test]
async fn one_bad_part_keeps_out_all_the_others() {
    let file = File::new(&config("500ms", A));
    let desk = Desk::start_from(&file.path());
    let bad_certificate = format!(
        "admin = '127.0.0.1:0'\nupstream = [{B}]\nprotect.target = '300ms'\n\
         refusal.html = 'missing.html'\nlisten = '127.0.0.1:0'"
    );
    file.write(&bad_certificate);
    let answered = desk.post("/api/reload", "").await;
    assert_eq!(answered.status, 422, "{}", answered.body);
    assert!(answered.body.contains("missing.html"));
    let config = desk.state.config();
    assert_eq!(config.upstream.replicas[0].url.port, 1);
    assert_eq!(target_millis(&desk), 500);
}

#[tokio::test]
async fn what_needs_a_restart_is_refused_by_name() {
    let file = File::new(&config("500ms", A));
    let desk = Desk::start_from(&file.path());
    let moved = config("500ms", A).replacen("127.0.0.1:0", "127.0.0.1:9", 1);
    file.write(&format!("threads = 3\n{moved}"));
    let answered = desk.post("/api/reload", "").await;
    assert_eq!(answered.status, 409);
    let cause = answered.json()["cause"].as_str().unwrap().to_owned();
    assert!(cause.contains("`threads` and `listen`"), "{cause}");
}

#[tokio::test]
async fn replicas_that_stay_keep_their_ids() {
    let file = File::new(&config("500ms", &format!("{A}, {B}")));
    let desk = Desk::start_from(&file.path());
    let id_of_b = |status: &serde_json::Value| {
        let replicas = status["applications"]["default"]["replicas"]
            .as_array()
            .unwrap()
            .clone();
        let b = replicas.iter().find(|r| r["url"] == "http://127.0.0.1:2");
        b.map(|b| b["id"].clone())
    };
    let before = id_of_b(&desk.get("/api/status").await.json());
    file.write(&config("500ms", &format!("{B}, 'http://127.0.0.1:3'")));
    assert_eq!(desk.post("/api/reload", "").await.status, 200);
    let after = desk.get("/api/status").await.json();
    assert_eq!(id_of_b(&after), before);
    assert_eq!(
        after["applications"]["default"]["replicas"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn live_changes_last_until_the_file_is_put_in_force() {
    let file = File::new(&config("500ms", A));
    let desk = Desk::start_from(&file.path());
    desk.post("/api/parameters", r#"{ "target": "100ms" }"#)
        .await;
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["reload"]["changed_live"], true);
    assert_eq!(
        desk.post("/api/reload", "").await.json()["changed_live"],
        false
    );
    assert_eq!(target_millis(&desk), 500);
}

#[tokio::test]
async fn a_renewed_file_beside_it_keeps_live_changes() {
    let text = format!("{}refusal.text = 'busy.txt'\n", config("500ms", A));
    let file = File::new("");
    let busy: &Path = &file.dir.path().join("busy.txt");
    fs::write(busy, "busy").unwrap();
    file.write(&text);
    let desk = Desk::start_from(&file.path());
    desk.post("/api/parameters", r#"{ "target": "100ms" }"#)
        .await;
    let mut events = desk.events().await;
    fs::write(busy, "very busy").unwrap();
    let put = |line: &serde_json::Value| line["line"].as_str().unwrap().contains("put in force");
    events.wait_for("notice", put).await;
    assert_eq!(target_millis(&desk), 100);
    assert_eq!(
        desk.get("/api/status").await.json()["reload"]["changed_live"],
        true
    );
}

#[tokio::test]
async fn a_new_token_counts_from_the_reload_on() {
    let file = File::new("");
    let token = file.dir.path().join("token");
    fs::write(&token, "the first token\n").unwrap();
    let text = config("500ms", A).replace(
        "admin = '127.0.0.1:0'",
        "admin = { addr = '127.0.0.1:0', token_file = 'token' }",
    );
    file.write(&text);
    let desk = Desk::start_from(&file.path());
    let with = |token: &str, path: &str| {
        let mut request = desk.request(http::Method::POST, path, "");
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        request
    };
    fs::write(&token, "the second token\n").unwrap();
    assert_eq!(
        desk.call(with("the second token", "/api/reload"))
            .await
            .status,
        401
    );
    assert_eq!(
        desk.call(with("the first token", "/api/reload"))
            .await
            .status,
        200
    );
    assert_eq!(
        desk.call(with("the second token", "/api/reload"))
            .await
            .status,
        200
    );
}

/// Writes a new certificate for `localhost` and returns it.
fn renew_certificate(dir: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// Whether a client that trusts nothing but `certificate` gets a connection.
async fn presents(addr: SocketAddr, certificate: &CertificateDer<'static>) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.is_ok()
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_without_a_restart() {
    let file = File::new("");
    let first = renew_certificate(file.dir.path());
    file.write(
        "upstream = 'http://127.0.0.1:1'\nadmin = '127.0.0.1:0'\n\
         listen = { addr = '127.0.0.1:0', tls = { cert = 'cert.pem', key = 'key.pem' } }\n",
    );
    let config = tidegate_proxy::config::load(&file.path()).unwrap().config;
    let proxy = Proxy::bind(config).unwrap();
    let desk = Desk::beside(&proxy, &file.path());
    let mut events = desk.events().await;
    let running = proxy.start().unwrap();
    assert!(presents(running.local_addr(), &first).await);

    let second = renew_certificate(file.dir.path());
    let put = |line: &serde_json::Value| line["line"].as_str().unwrap().contains("put in force");
    events.wait_for("notice", put).await;
    assert!(presents(running.local_addr(), &second).await);
    assert!(!presents(running.local_addr(), &first).await);
}
