//! The daemon with real processes, in front of an admin API of the shape that a proxy has.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of their functions

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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
    /// CPU use of the proxy.
    cpu: Option<f64>,
    replicas: BTreeMap<String, Held>,
    /// `add URL`, `drain URL`, `remove URL`, `removed busy URL`.
    log: Vec<String>,
}

/// A replica as the proxy has it.
#[derive(Default)]
struct Held {
    in_flight: u32,
    draining: bool,
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
            "proxy_cpu_share": self.cpu,
        })
    }

    fn listed(&mut self) -> Value {
        let listed = |(url, held): (&String, &Held)| {
            let state = if held.draining { "draining" } else { "active" };
            let busy = held.in_flight;
            json!({ "url": url, "weight": 1, "state": state, "in_flight": busy, "healthy": true })
        };
        let replicas: Vec<Value> = self.replicas.iter().map(listed).collect();
        // A drained replica answers what it holds, one request per look.
        for held in self.replicas.values_mut().filter(|held| held.draining) {
            held.in_flight = held.in_flight.saturating_sub(1);
        }
        json!({ "application": "shop", "replicas": replicas })
    }

    fn patch(&mut self, change: &Value) {
        for added in change["add"].as_array().into_iter().flatten() {
            let url = added["url"].as_str().unwrap().to_owned();
            self.log.push(format!("add {url}"));
            let held = Held {
                in_flight: 2,
                draining: false,
            };
            self.replicas.insert(url, held);
        }
        for url in change["drain"].as_array().into_iter().flatten() {
            let url = url.as_str().unwrap();
            self.log.push(format!("drain {url}"));
            self.replicas.get_mut(url).unwrap().draining = true;
        }
        for url in change["remove"].as_array().into_iter().flatten() {
            let url = url.as_str().unwrap();
            let held = self.replicas.remove(url).unwrap_or_default();
            let how = if held.in_flight > 0 {
                "removed busy"
            } else {
                "remove"
            };
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

    fn status(&self) -> Value {
        serde_json::from_str(&self.get("/api/status")).unwrap()
    }

    /// Servers of the application that are ready.
    fn ready(&self) -> usize {
        let ready = self.status()["applications"][0]["ready"].as_u64();
        ready.unwrap_or_default() as usize
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
    serve(&TcpListener::bind(("127.0.0.1", port)).unwrap());
}

fn write(folder: &Path, base: &str, daemon: &str, program: &str) -> PathBuf {
    let lifeline = lifeline();
    let driver = format!(
        "[driver.shop.processes]\n\
         command = ['sh', '-c', 'TIDEGATE_TEST_PORT={{port}} TIDEGATE_TEST_LIFELINE={lifeline} \
         exec {program} --exact server --ignored']\n"
    );
    write_with(folder, &[base], daemon, "", &driver)
}

fn write_with(folder: &Path, proxies: &[&str], daemon: &str, plane: &str, driver: &str) -> PathBuf {
    let file = folder.join("plane.toml");
    let state = folder.join("plane.state");
    let text = format!(
        "[daemon]\nlisten = '127.0.0.1:0'\nproxies = {proxies:?}\ninterval = '100ms'\n\
         state_file = '{}'\n{daemon}\n\
         [plane]\nplan_interval = '300ms'\nscale_in = {{ window = '2s' }}\n\
         prediction = {{ enabled = false }}\n{plane}\n\
         [[plane.application]]\nname = 'shop'\nmax = 6\ncapacity = '60/s'\nstart_time = '200ms'\n\
         {driver}",
        state.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// Servers of a list: they answer every request until the test's process ends.
fn servers(count: usize) -> Vec<String> {
    let serve = |_| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || serve(&listener));
        url
    };
    (0..count).map(serve).collect()
}

fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
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
        .insert("http://127.0.0.1:9".into(), Held::default());
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
        .insert("http://127.0.0.1:9".into(), Held::default());
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

/// A daemon that acts, with at least this many servers that are ready.
fn acting(folder: &Path, servers: usize) -> (Arc<Mutex<Admin>>, Plane) {
    let (admin, base) = admin();
    let daemon = "mode = 'act'\non_exit = 'stop'";
    let file = write(folder, &base, daemon, &this_program());
    admin.lock().unwrap().per_look = 20;
    let plane = Plane::start(&file);
    until("servers that are ready", || {
        let ready = plane.ready();
        ready >= servers && ready == admin.lock().unwrap().replicas.len()
    });
    (admin, plane)
}

fn urls(admin: &Mutex<Admin>) -> Vec<String> {
    admin.lock().unwrap().replicas.keys().cloned().collect()
}

#[test]
fn proxy_that_was_started_anew_gets_its_servers_again() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, _plane) = acting(folder.path(), 2);
    let before = urls(&admin);
    {
        let mut admin = admin.lock().unwrap();
        admin.replicas.clear();
        admin.arrived = 0;
    }
    until("the servers are there again", || {
        let now = urls(&admin);
        before.iter().all(|url| now.contains(url))
    });
}

#[test]
fn server_taken_out_from_elsewhere_is_reported_and_not_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, plane) = acting(folder.path(), 3);
    let gone = urls(&admin).remove(0);
    {
        let mut admin = admin.lock().unwrap();
        admin.replicas.remove(&gone);
        admin.log.clear();
    }
    until("the change is noticed", || {
        plane.get("/api/events").contains("\"event\":\"foreign\"")
    });
    assert_eq!(plane.status()["applications"][0]["foreign"], true);
    let looked = admin.lock().unwrap().arrived;
    until("it was looked at again and again", || {
        admin.lock().unwrap().arrived > looked + 20 * 20
    });
    let log = admin.lock().unwrap().log.clone();
    assert!(log.iter().all(|line| !line.contains(&gone)), "{log:?}");
}

#[test]
fn server_that_does_not_answer_any_more_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, plane) = acting(folder.path(), 2);
    let state = || -> Value {
        let text = std::fs::read(folder.path().join("plane.state")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let hung = state()["servers"]["shop"][0].clone();
    let url = hung["url"].as_str().unwrap().to_owned();
    let pid = i32::try_from(hung["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    until("another one in its place", || {
        !admin.lock().unwrap().replicas.contains_key(&url)
    });
    let events = plane.get("/api/events");
    assert!(events.contains("fails its health check"), "{events}");
    let log = admin.lock().unwrap().log.clone();
    let at = |line: &str| log.iter().position(|it| it == line).unwrap();
    let drained = at(&format!("drain {url}"));
    let added = log[..drained]
        .iter()
        .filter(|line| line.starts_with("add "));
    assert!(added.count() >= 3, "the other one serves first: {log:#?}");
}

#[test]
fn kill_switch_wants_the_token_and_no_web_page_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (_admin, base) = admin();
    let token = folder.path().join("token");
    std::fs::write(&token, "open sesame\n").unwrap();
    let daemon = format!("mode = 'act'\ntoken_file = '{}'", token.display());
    let file = write(folder.path(), &base, &daemon, &this_program());
    let mut plane = Plane::start(&file);
    let post = |plane: &Plane, headers: &str| {
        let body = "{\"enabled\":true}";
        let length = body.len();
        let request = format!(
            "POST /api/kill-switch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             {headers}content-length: {length}\r\n\r\n{body}"
        );
        blocking::ask(&plane.api, request).status
    };
    let (json, bearer) = (
        "content-type: application/json\r\n",
        "authorization: Bearer open sesame\r\n",
    );
    assert_eq!(post(&plane, json), 401);
    assert_eq!(
        post(&plane, &format!("{json}authorization: Bearer x\r\n")),
        401
    );
    assert_eq!(post(&plane, bearer), 415);
    assert_eq!(
        post(
            &plane,
            &format!("{json}{bearer}origin: http://evil.example\r\n")
        ),
        403
    );
    assert_eq!(plane.status()["kill_switch"], false);
    assert_eq!(post(&plane, &format!("{json}{bearer}")), 200);
    plane.end();
    let again = Plane::start(&file);
    assert_eq!(again.status()["kill_switch"], true);
}

#[test]
fn servers_of_a_list_are_used_first_to_last_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, base) = admin();
    let listed = servers(3);
    let driver = format!("[driver.shop.list]\nurls = {listed:?}\n");
    let file = write_with(folder.path(), &[&base], "mode = 'act'", "", &driver);
    admin.lock().unwrap().per_look = 20;
    let plane = Plane::start(&file);
    until("all of the list", || {
        listed
            .iter()
            .all(|url| admin.lock().unwrap().replicas.contains_key(url))
    });
    until("that the list is too short", || {
        plane
            .get("/api/events")
            .contains("all 3 servers of the list are in use")
    });
    admin.lock().unwrap().per_look = 0;
    until("one of the list", || urls(&admin).len() == 1);
    let log = admin.lock().unwrap().log.clone();
    assert!(
        !log.iter().any(|line| line.starts_with("removed busy")),
        "{log:#?}"
    );
    for url in &listed {
        TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    }
}

/// A daemon whose hook is a command of the shell, in front of a proxy that needs four servers.
fn hooked(folder: &Path, command: &str) -> (Arc<Mutex<Admin>>, Plane) {
    let (admin, base) = admin();
    let driver =
        format!("[driver.shop.hook]\ncommand = ['sh', '-c', '{command}']\ntimeout = '2s'\n");
    let file = write_with(folder, &[&base], "mode = 'act'", "", &driver);
    {
        let mut admin = admin.lock().unwrap();
        admin.per_look = 20;
        admin
            .replicas
            .insert("http://127.0.0.1:9".into(), Held::default());
    }
    let plane = Plane::start(&file);
    (admin, plane)
}

#[test]
fn hook_gets_the_decision_as_json_and_a_foreign_change_is_noticed_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("decision");
    let shown = file.display();
    let (admin, plane) = hooked(
        folder.path(),
        &format!("cat > {shown}.new && mv {shown}.new {shown}"),
    );
    until("the decision", || file.exists());
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap() };
    assert_eq!(
        (&read()["application"], &read()["from"]),
        (&json!("shop"), &json!(1))
    );
    assert!(read()["reason"].as_str().unwrap().contains("needed"));
    // What the command would have started gets into the pool.
    until("as many as were ordered", || {
        let wanted = read()["to"].as_u64().unwrap() as usize;
        for port in 10..9 + wanted {
            let url = format!("http://127.0.0.1:{port}");
            admin.lock().unwrap().replicas.entry(url).or_default();
        }
        let status = plane.status();
        let servers = status["applications"][0]["servers"].as_u64();
        servers == Some(urls(&admin).len() as u64) && plane.ready() == wanted
    });
    assert!(!plane.get("/api/events").contains("\"event\":\"foreign\""));
    admin.lock().unwrap().replicas.remove("http://127.0.0.1:9");
    until("the change is noticed", || {
        plane.get("/api/events").contains("\"event\":\"foreign\"")
    });
}

#[test]
fn hook_that_fails_or_does_not_end_is_said_and_nothing_counts_as_done() {
    let folder = tempfile::tempdir().unwrap();
    let (_admin, plane) = hooked(folder.path(), "exit 3");
    until("the exit status", || {
        plane
            .get("/api/events")
            .contains("ended with exit status: 3")
    });
    assert_eq!(plane.status()["applications"][0]["servers"], 1);
    let folder = tempfile::tempdir().unwrap();
    let (_admin, plane) = hooked(folder.path(), "exec sleep 600");
    until("the limit", || {
        plane.get("/api/events").contains("was ended after 2s")
    });
    assert_eq!(plane.status()["applications"][0]["servers"], 1);
}

#[test]
fn busy_proxy_gets_another_one_by_the_hook() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, base) = admin();
    admin.lock().unwrap().cpu = Some(0.95);
    let file = folder.path().join("proxies");
    let shown = file.display();
    let driver = format!(
        "[driver.shop.list]\nurls = {:?}\n[proxies.hook]\n\
         command = ['sh', '-c', 'cat > {shown}.new && mv {shown}.new {shown}']\n",
        servers(1)
    );
    let rule = "proxies = { max = 3, high_for = '300ms' }";
    let config = write_with(folder.path(), &[&base], "mode = 'act'", rule, &driver);
    let plane = Plane::start(&config);
    until("the decision", || file.exists());
    let text = std::fs::read(&file).unwrap();
    let decision: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&decision["from"], &decision["to"]), (&json!(1), &json!(2)));
    assert!(
        decision["reason"].as_str().unwrap().contains("95 %"),
        "{decision}"
    );
    until("the event", || {
        let events = plane.get("/api/events");
        events.contains("\"event\":\"proxies\"") && events.contains("\"applied\":true")
    });
}

#[test]
fn partitioned_servers_belong_to_one_proxy_each() {
    let folder = tempfile::tempdir().unwrap();
    let ((first, first_base), (second, second_base)) = (admin(), admin());
    let listed = servers(4);
    let driver = format!("[driver.shop.list]\nurls = {listed:?}\n");
    let rule = "proxies = { servers = 'partitioned' }";
    let proxies = [first_base.as_str(), second_base.as_str()];
    let file = write_with(folder.path(), &proxies, "mode = 'act'", rule, &driver);
    for admin in [&first, &second] {
        admin.lock().unwrap().per_look = 12;
    }
    let _plane = Plane::start(&file);
    until("two servers each", || {
        urls(&first).len() == 2 && urls(&second).len() == 2
    });
    let both = urls(&first).into_iter().chain(urls(&second));
    let both: std::collections::BTreeSet<String> = both.collect();
    assert_eq!(both, listed.into_iter().collect());
}

#[test]
fn name_stands_for_each_of_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let (_admin, base) = admin();
    let port = base.rsplit(':').next().unwrap();
    let name = format!("http://localhost:{port}");
    let file = write_with(folder.path(), &[&name], "each_address = true", "", "");
    let plane = Plane::start(&file);
    until("the proxy behind the name", || {
        plane.status()["proxies"] == json!([format!("http://127.0.0.1:{port}")])
    });
    until("a rate", || {
        plane.status()["applications"][0]["rate"].is_number()
    });
}

#[test]
fn applications_are_looked_at_together_where_a_proxy_swallows_what_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    // Connections that are open now, and the most at once.
    let open = Arc::new(Mutex::new((0_u32, 0_u32)));
    let counted = Arc::clone(&open);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                {
                    let mut open = counted.lock().unwrap();
                    open.0 += 1;
                    open.1 = open.1.max(open.0);
                }
                // Until the caller gives up.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                counted.lock().unwrap().0 -= 1;
            });
        }
    });
    let more = (0..8).map(|index| format!("[[plane.application]]\nname = 'app-{index}'\n"));
    let file = write_with(folder.path(), &[&base], "", "", &more.collect::<String>());
    let _plane = Plane::start(&file);
    until("all applications at once", || open.lock().unwrap().1 >= 9);
}
