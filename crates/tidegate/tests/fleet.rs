//! Two proxies in front of one service, as people start them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_testing::blocking;

const TOKEN: &str = "0123456789abcdef";

/// Longer than any of it takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Proxy {
    process: Child,
    admin: u16,
}

impl Proxy {
    fn start(folder: &Path, name: &str, admin: u16, peers: &[u16]) -> Self {
        let peers: Vec<String> = peers
            .iter()
            .map(|port| format!("'127.0.0.1:{port}'"))
            .collect();
        let text = format!(
            "listen = '127.0.0.1:0'\nupstream = 'http://127.0.0.1:9'\n\
             protect = {{ target = '500ms', classes = [{{ name = 'gold', guarantee = '10/s' }}] }}\n\
             admin = {{ addr = '127.0.0.1:{admin}', token = '{TOKEN}' }}\n\
             fleet = {{ proxy = '{name}', peers = [{}] }}\n",
            peers.join(", ")
        );
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["run", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, admin }
    }

    /// What the admin listener answers; `None` while there is none.
    fn get(&self, path: &str) -> Option<Value> {
        let port = self.admin;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n\
             connection: close\r\n\r\n"
        );
        let answer = blocking::try_ask(("127.0.0.1", port), request).ok()?;
        serde_json::from_slice(&answer.body).ok()
    }

    /// Asks until the fleet is as it should be.
    fn await_fleet(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < PATIENCE {
            last = self.get("/api/fleet");
            if let Some(fleet) = last.as_ref().filter(|fleet| is_so(fleet)) {
                return fleet.clone();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{what}: {last:?}");
    }

    fn command(&self, args: &[&str]) -> String {
        let admin = format!("http://127.0.0.1:{}", self.admin);
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["ctl", "--admin", &admin, "--token", TOKEN])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ports that are free together; they are taken again by the proxies.
fn free_ports() -> [u16; 2] {
    let held = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|it| it.local_addr().unwrap().port())
}

fn peers(fleet: &Value) -> usize {
    fleet["peers"].as_array().map_or(0, Vec::len)
}

fn share(fleet: &Value) -> f64 {
    fleet["applications"]["default"]["share"]
        .as_f64()
        .unwrap_or(0.0)
}

#[test]
fn two_proxies_share_and_the_one_that_is_left_has_all() {
    let folder = tempfile::tempdir().unwrap();
    let ports = free_ports();
    // Both have the same peers: their own address is among them.
    let one = Proxy::start(folder.path(), "edge-1", ports[0], &ports);
    let alone = one.await_fleet("alone", |fleet| share(fleet) > 0.0);
    assert_eq!((peers(&alone), share(&alone)), (0, 1.0));
    let mut two = Proxy::start(folder.path(), "edge-2", ports[1], &ports);
    let half = |fleet: &Value| peers(fleet) == 1 && (share(fleet) - 0.5).abs() < 0.01;
    for proxy in [&one, &two] {
        let fleet = proxy.await_fleet("half each", half);
        let application = &fleet["applications"]["default"];
        assert_eq!(application["leader"], "edge-1");
        assert!((application["guarantees"]["gold"].as_f64().unwrap() - 0.5).abs() < 0.01);
    }
    let shown = one.command(&["fleet"]);
    assert!(
        shown.contains("peer edge-2") && shown.contains("50 % of the windows"),
        "{shown}"
    );
    two.process.kill().unwrap();
    two.process.wait().unwrap();
    let left = one.await_fleet("left", |fleet| peers(fleet) == 0);
    assert_eq!(share(&left), 1.0);
    let events = one.command(&["events", "--types", "peer_joined,peer_lost"]);
    assert!(
        events.contains("peer_joined") && events.contains("peer_lost"),
        "{events}"
    );
}

#[test]
fn proxy_with_another_token_is_refused_and_both_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let ports = free_ports();
    let one = Proxy::start(folder.path(), "edge-1", ports[0], &ports);
    one.await_fleet("alone", |fleet| share(fleet) > 0.0);
    let body = "{\"version\":1}";
    let request = format!(
        "POST /api/fleet/report HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer wrong\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = blocking::ask(("127.0.0.1", ports[0]), request);
    assert_eq!(answer.status, 401, "{answer:?}");
    assert_eq!(peers(&one.get("/api/fleet").unwrap()), 0);
}

fn check(fleet: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let text = format!(
        "listen = '127.0.0.1:0'\nupstream = 'http://127.0.0.1:9'\nadmin.addr = '127.0.0.1:9190'\n\
         {fleet}\n"
    );
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("check")
        .arg(&file)
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn check_tells_what_a_fleet_will_do_and_refuses_what_cannot_be() {
    let good = check("fleet = { proxy = 'a', peers = ['127.0.0.1:9191'] }");
    assert!(good.contains("in fleet tidegate, as a"), "{good}");
    let none = check("fleet = { proxy = 'a' }");
    assert!(none.contains("without the others' addresses"), "{none}");
    let url = check("fleet = { peers = ['http://10.0.0.1:9190'] }");
    assert!(url.contains("without http://"), "{url}");
    let hold = check("fleet = { peers = ['127.0.0.1:9191'], hold = '150ms' }");
    assert!(hold.contains("three intervals"), "{hold}");
}
