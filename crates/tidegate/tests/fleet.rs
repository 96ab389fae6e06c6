//! Two proxies in front of one service, as people start them. Their reports go to each other's
//! admin listeners, through the control plane, or through NATS (`tests/fleet_nats.rs`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fleet_support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fleet_support::{Proxy, TOKEN, await_half_each, peers, share};
use tidegate_testing::blocking;

/// Ports that are free together; they are taken again by the proxies.
fn free_ports() -> [u16; 2] {
    let held = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|it| it.local_addr().unwrap().port())
}

/// `[fleet]` of a proxy, by the admin listeners of all.
fn listed(ports: &[u16]) -> String {
    let peers: Vec<String> = ports
        .iter()
        .map(|port| format!("'127.0.0.1:{port}'"))
        .collect();
    format!("peers = [{}]", peers.join(", "))
}

#[test]
fn two_proxies_share_and_the_one_that_is_left_has_all() {
    let folder = tempfile::tempdir().unwrap();
    let ports = free_ports();
    // Both have the same peers: their own address is among them.
    let one = Proxy::start(folder.path(), "edge-1", ports[0], &listed(&ports));
    let alone = one.await_fleet("alone", |fleet| share(fleet) > 0.0);
    assert_eq!((peers(&alone), share(&alone)), (0, 1.0));
    let mut two = Proxy::start(folder.path(), "edge-2", ports[1], &listed(&ports));
    await_half_each(&one, &two);
    let shown = one.command(&["fleet"]);
    assert!(
        shown.contains("peer edge-2") && shown.contains("50 % of the windows"),
        "{shown}"
    );
    two.kill();
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
    let one = Proxy::start(folder.path(), "edge-1", ports[0], &listed(&ports));
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

/// A control plane that only carries reports.
struct Plane(Child);

impl Plane {
    fn start(folder: &Path, port: u16) -> Self {
        let file = folder.join("plane.toml");
        let token = folder.join("token");
        fs::write(&token, TOKEN).unwrap();
        let text = format!(
            "[daemon]\nlisten = '127.0.0.1:{port}'\nproxies = ['http://127.0.0.1:9']\n\
             token_file = '{}'\n[plane]\n[[plane.application]]\nname = 'shop'\n",
            token.display()
        );
        fs::write(&file, text).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["plane", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(process)
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn proxies_share_through_the_control_plane_and_go_on_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let [port, first] = free_ports();
    let [second, third] = free_ports();
    let fleet = format!("plane = 'http://127.0.0.1:{port}'");
    let one = Proxy::start(folder.path(), "edge-1", first, &fleet);
    // A control plane that is started later is found.
    let alone = one.await_fleet("trouble", |fleet| fleet["trouble"].is_string());
    let trouble = alone["trouble"].as_str().unwrap();
    assert!(trouble.contains("nothing listens there"), "{trouble}");
    let mut plane = Plane::start(folder.path(), port);
    let mut two = Proxy::start(folder.path(), "edge-2", second, &fleet);
    await_half_each(&one, &two);
    // It does not know the token of the fleet: the control plane refuses it, and so do the others.
    let stranger = format!("{fleet}, token = 'another-token-0123'");
    let stranger = Proxy::start(folder.path(), "edge-0", third, &stranger);
    stranger.await_fleet("refused", |fleet| {
        let trouble = fleet["trouble"].as_str().unwrap_or_default();
        trouble.contains("token is missing or wrong")
    });
    await_half_each(&one, &two);
    // Without it the last known shares stay, and the next one is found.
    plane.kill();
    let left = one.await_fleet("cut off", |fleet| fleet["cut_off"] == true);
    assert_eq!((peers(&left), share(&left)), (1, 0.5));
    let _plane = Plane::start(folder.path(), port);
    one.await_fleet("again", |fleet| {
        fleet["cut_off"] == false && fleet["trouble"].is_null() && peers(fleet) == 1
    });
    await_half_each(&one, &two);
    let events = one.command(&["events", "--types", "peer_lost"]);
    assert!(!events.contains("peer_lost"), "{events}");
    two.kill();
    let left = one.await_fleet("left", |fleet| peers(fleet) == 0);
    assert_eq!(share(&left), 1.0);
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
    let both = check("fleet = { peers = ['127.0.0.1:9191'], plane = 'http://127.0.0.1:9192' }");
    assert!(both.contains("give one of"), "{both}");
    let plane = check("fleet = { plane = 'http://127.0.0.1:9192' }");
    assert!(plane.contains("through the control plane at"), "{plane}");
    let plane = check("fleet = { plane = '127.0.0.1:9192' }");
    assert!(plane.contains("http://127.0.0.1:9191"), "{plane}");
    let open = check("fleet = { plane = 'http://10.0.0.7:9192' }");
    assert!(open.contains("give `fleet.token`"), "{open}");
    let nats = check("fleet = { nats = '10.0.0.7:4222' }");
    assert!(nats.contains("not the address of a NATS server"), "{nats}");
    let open = check("fleet = { nats = 'nats://10.0.0.7:4222' }");
    assert!(open.contains("give `fleet.token`"), "{open}");
    assert_eq!(
        open.contains("this build leaves NATS out"),
        !cfg!(feature = "nats"),
        "{open}"
    );
    let nobody = check("fleet.nats = { urls = ['nats://h'], password_file = '/dev/null' }");
    assert!(nobody.contains("password of nobody"), "{nobody}");
    let hold = check("fleet = { peers = ['127.0.0.1:9191'], hold = '150ms' }");
    assert!(hold.contains("three intervals"), "{hold}");
}
