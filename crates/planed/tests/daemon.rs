//! The daemon with real processes, in front of an admin API of the shape that a proxy has.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of their functions

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_planed::{Daemon, File};
use tidegate_testing::blocking;

/// Longest wait for anything, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a proxy would know.
#[derive(Default)]
struct Admin {
    /// Requests per look at the status.
    per_look: u64,
    arrived: u64,
    /// In flight at each replica.
    replicas: BTreeMap<String, u32>,
    /// `add URL`, `drain URL`, `remove URL`, `removed busy URL`.
    log: Vec<String>,
}

impl Admin {
    fn status(&mut self) -> Value {
        self.arrived += self.per_look;
        let up: Vec<Value> = self
            .replicas
            .keys()
            .map(|_| json!({ "up": true }))
            .collect();
        json!({
            "classes": { "default": { "rank": 0, "arrived": self.arrived, "served": self.arrived, "shed": {} } },
            "replicas": up,
        })
    }

    fn listed(&mut self) -> Value {
        let replicas: Vec<Value> = self
            .replicas
            .iter()
            .map(|(url, busy)| json!({ "url": url, "weight": 1, "state": "active", "in_flight": busy, "window": 4, "healthy": true }))
            .collect();
        // A drained replica answers what it holds, one request per look.
        let drained = |url: &str| self.log.iter().any(|line| line == &format!("drain {url}"));
        let urls: Vec<String> = self
            .replicas
            .keys()
            .filter(|url| drained(url))
            .cloned()
            .collect();
        for url in urls {
            *self.replicas.get_mut(&url).unwrap() = self.replicas[&url].saturating_sub(1);
        }
        json!({ "application": "shop", "replicas": replicas })
    }

    fn patch(&mut self, change: &Value) {
        for added in change["add"].as_array().into_iter().flatten() {
            let url = added["url"].as_str().unwrap().to_owned();
            self.log.push(format!("add {url}"));
            self.replicas.insert(url, 2);
        }
        for url in change["drain"].as_array().into_iter().flatten() {
            self.log.push(format!("drain {}", url.as_str().unwrap()));
        }
        for url in change["remove"].as_array().into_iter().flatten() {
            let url = url.as_str().unwrap();
            let busy = self.replicas.remove(url).unwrap_or(0);
            let how = if busy > 0 { "removed busy" } else { "remove" };
            self.log.push(format!("{how} {url}"));
        }
    }
}

/// Serves an admin API on a free port until the test ends.
fn admin() -> (Arc<Mutex<Admin>>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let shared = Arc::new(Mutex::new(Admin::default()));
    let state = Arc::clone(&shared);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(&stream, &state);
        }
    });
    (shared, base)
}

fn answer(stream: &TcpStream, state: &Mutex<Admin>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        let lower = header.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut state = state.lock().ok()?;
    let answer = if line.starts_with("PATCH") {
        state.patch(&serde_json::from_slice(&body).ok()?);
        json!({})
    } else if line.contains("/replicas") {
        state.listed()
    } else {
        state.status()
    };
    let text = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    let mut writer = stream;
    writer.write_all((head + &text).as_bytes()).ok()
}

/// A daemon on a thread of its own, ended with the test.
struct Plane {
    api: String,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn parse(file: &Path) -> File {
    let text = std::fs::read_to_string(file).unwrap();
    File::parse("plane.toml", &text).unwrap()
}

impl Plane {
    fn start(file: &Path) -> Self {
        let file = parse(file);
        let (end, ended) = tokio::sync::oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                let daemon = Daemon::start(file).await.unwrap();
                tell.send(daemon.addr().to_string()).unwrap();
                daemon.run(async { drop(ended.await) }).await;
            });
        });
        Self {
            api: told.recv().unwrap(),
            end: Some(end),
            thread: Some(thread),
        }
    }

    fn get(&self, path: &str) -> String {
        self.call("GET", path, "")
    }

    fn call(&self, method: &str, path: &str, body: &str) -> String {
        blocking::call(&self.api, method, path, body).text()
    }

    fn end(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where the servers of all tests hold a connection, by which they see the end of this process: in
/// whichever way it ends, none of them is left behind.
fn lifeline() -> SocketAddr {
    static ADDR: OnceLock<SocketAddr> = OnceLock::new();
    *ADDR.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
        addr
    })
}

/// Ends this process with the one that has the lifeline.
fn hold_lifeline() {
    let addr = std::env::var("TIDEGATE_TEST_LIFELINE").unwrap();
    let mut lifeline = TcpStream::connect(addr).unwrap();
    std::thread::spawn(move || {
        // Nothing is ever sent.
        let _ = lifeline.read(&mut [0]);
        std::process::exit(0);
    });
}

/// Not a test: the server that the driver starts, which is this program again.
#[test]
#[ignore = "started by the driver under test"]
fn server() {
    hold_lifeline();
    let port: u16 = std::env::var("TIDEGATE_TEST_PORT")
        .unwrap()
        .parse()
        .unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    for mut stream in listener.incoming().flatten() {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
}

fn write(folder: &Path, base: &str, daemon: &str, program: &str) -> std::path::PathBuf {
    let file = folder.join("plane.toml");
    let (state, lifeline) = (folder.join("plane.state"), lifeline());
    let text = format!(
        "[daemon]\nlisten = '127.0.0.1:0'\nproxies = ['{base}']\ninterval = '100ms'\n\
         state_file = '{}'\n{daemon}\n\
         [plane]\nplan_interval = '300ms'\nscale_in = {{ window = '2s' }}\n\
         prediction = {{ enabled = false }}\n\
         [[plane.application]]\nname = 'shop'\nmax = 6\ncapacity = '60/s'\nstart_time = '200ms'\n\
         [driver.shop.processes]\n\
         command = ['sh', '-c', 'TIDEGATE_TEST_PORT={{port}} TIDEGATE_TEST_LIFELINE={lifeline} \
         exec {program} --exact server --ignored']\n",
        state.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::yield_now();
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn this_program() -> String {
    std::env::current_exe().unwrap().display().to_string()
}

#[test]
fn servers_follow_the_load_and_are_drained_before_they_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, base) = admin();
    let file = write(
        folder.path(),
        &base,
        "mode = 'act'\non_exit = 'stop'",
        &this_program(),
    );
    admin.lock().unwrap().per_look = 20; // about 200/s where looks are on time
    let plane = Plane::start(&file);
    until("more servers", || admin.lock().unwrap().replicas.len() >= 2);
    let events = plane.get("/api/events");
    assert!(events.contains(" needed"), "{events}");
    let metrics = plane.get("/metrics");
    assert!(
        metrics.contains("tidegate_plane_servers{application=\"shop\"}"),
        "{metrics}"
    );
    admin.lock().unwrap().per_look = 0;
    until("one server", || {
        let admin = admin.lock().unwrap();
        admin.replicas.len() == 1 && admin.log.iter().any(|line| line.starts_with("remove "))
    });
    let log = admin.lock().unwrap().log.clone();
    for line in log.iter().filter(|line| line.starts_with("remove")) {
        assert!(!line.starts_with("removed busy"), "{log:#?}");
        let url = line.strip_prefix("remove ").unwrap();
        assert!(log.contains(&format!("drain {url}")), "{log:#?}");
    }
}

#[test]
fn daemon_that_ends_leaves_servers_that_the_next_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, base) = admin();
    let file = write(
        folder.path(),
        &base,
        "mode = 'act'\non_exit = 'keep'",
        &this_program(),
    );
    admin.lock().unwrap().per_look = 20;
    let mut first = Plane::start(&file);
    until("servers", || admin.lock().unwrap().replicas.len() >= 2);
    let refused = runtime().block_on(Daemon::start(parse(&file)));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("another control plane"), "{message}");
    first.end();
    let before: Vec<String> = admin.lock().unwrap().replicas.keys().cloned().collect();
    for url in &before {
        TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    }
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("'keep'", "'stop'");
    std::fs::write(&file, text).unwrap();
    let second = Plane::start(&file);
    until("servers are taken over", || {
        let status: Value = serde_json::from_str(&second.get("/api/status")).unwrap();
        status["applications"][0]["ready"].as_u64() >= Some(before.len() as u64)
    });
    let after = admin.lock().unwrap();
    assert!(
        before.iter().all(|url| after.replicas.contains_key(url)),
        "{:#?}",
        after.log
    );
}

#[test]
fn recommend_and_kill_switch_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, base) = admin();
    admin.lock().unwrap().per_look = 20;
    admin
        .lock()
        .unwrap()
        .replicas
        .insert("http://127.0.0.1:9".into(), 0);
    let file = write(folder.path(), &base, "", &this_program());
    let plane = Plane::start(&file);
    until("a recommendation", || {
        plane.get("/api/events").contains("\"applied\":false")
    });
    assert!(admin.lock().unwrap().log.is_empty());
    let answer = plane.call("POST", "/api/kill-switch", "{\"enabled\":true}");
    assert!(answer.contains("true"), "{answer}");
    assert!(plane.get("/api/status").contains("\"kill_switch\":true"));
    let refused = plane.call("POST", "/api/kill-switch", "yes");
    assert!(refused.contains("remedy"), "{refused}");
}

#[test]
fn start_command_that_does_not_exist_is_said_and_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, base) = admin();
    admin.lock().unwrap().per_look = 20;
    admin
        .lock()
        .unwrap()
        .replicas
        .insert("http://127.0.0.1:9".into(), 0);
    let file = write(folder.path(), &base, "mode = 'act'", "x");
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("'sh'", "'/no/such/program'");
    std::fs::write(&file, text).unwrap();
    let plane = Plane::start(&file);
    until("the problem", || {
        plane
            .get("/api/events")
            .contains("cannot start `/no/such/program`")
    });
    assert!(admin.lock().unwrap().log.is_empty());
}

#[test]
fn proxy_that_is_away_is_said_and_decides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let file = write(
        folder.path(),
        &format!("http://{gone}"),
        "",
        &this_program(),
    );
    let plane = Plane::start(&file);
    until("the warning", || {
        plane.get("/api/status").contains("gives no status")
    });
    assert!(!plane.get("/api/events").contains("\"decision\""));
}
