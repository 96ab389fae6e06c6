//! `tidegate run` as a user meets it: what it says first, what it serves, how it ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, kill_process};
use tidegate_testing::blocking::Connection;
use tidegate_testing::process::{Process, Signal};
use tidegate_testing::{Answer, blocking};

/// A service that answers every connection's first request.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while head
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            stream
                .write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
                )
                .expect("writes");
        }
    });
    addr
}

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .arg("run")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn refused(args: &[&str]) -> String {
    let Output { status, stderr, .. } = tidegate(args).output().expect("runs");
    assert_eq!(status.code(), Some(2));
    String::from_utf8(stderr).expect("text")
}

fn start(args: &[&str]) -> Process {
    Process::spawn(&mut tidegate(args))
}

fn ask(process: &Process, listener: &str, path: &str) -> Answer {
    blocking::get(process.addr(listener), path)
}

/// What the proxy says about itself.
fn status(process: &Process) -> String {
    let answer = ask(process, "admin", "/api/status");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text()
}

const ANYWHERE: [&str; 5] = [
    "--json",
    "--listen",
    "127.0.0.1:0",
    "--admin",
    "127.0.0.1:0",
];

fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ANYWHERE, more].concat()
}

/// With so few descriptors that clients can use them up.
#[test]
fn admin_api_answers_when_clients_have_used_up_the_descriptors() {
    let upstream = format!("http://{}", service());
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_tidegate"))
        .arg("run")
        .args(flags(&["--upstream", &upstream]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = Process::spawn(&mut limited);
    let addr = running.addr("listen").to_owned();
    // Each has begun a request, so that it is accepted at once.
    let crowd: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&addr).expect("connects");
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
            stream
        })
        .collect();
    for _ in 0..20 {
        status(&running);
    }
    let mut lines = BufReader::new(running.stderr()).lines();
    let said = lines.find_map(|line| line.ok().filter(|line| line.contains("ulimit -n")));
    assert!(said.is_some_and(|line| line.contains("WARN")));
    drop(crowd);
}

#[test]
fn it_says_where_it_listens_serves_and_ends_in_order() {
    let upstream = format!("http://{}", service());
    let running = start(&flags(&["--upstream", &upstream, "--target", "500ms"]));
    assert_eq!(ask(&running, "listen", "/").text(), "hello");
    assert_eq!(ask(&running, "admin", "/healthz").status, 200);
    assert!(status(&running).contains("\"mode\":{\"name\":\"auto\""));
    running.finish();
}

#[test]
fn a_service_that_cannot_be_reached_is_told_of_with_the_cause() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let upstream = format!("http://{}", nobody.unwrap());
    let running = start(&flags(&["--upstream", &upstream]));
    for _ in 0..5 {
        assert_eq!(ask(&running, "listen", "/").status, 503);
    }
    let status = status(&running);
    assert!(
        status.contains("connections to it fail (Connection refused"),
        "{status}"
    );
}

#[test]
fn flags_come_on_top_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let text = "listen = '127.0.0.1:1'\nupstream = 'http://127.0.0.1:2'\nprotect.mode = 'off'";
    std::fs::write(&file, text).unwrap();
    let upstream = format!("http://{}", service());
    let file = file.to_str().unwrap();
    let running = start(&flags(&["-c", file, "--upstream", &upstream]));
    assert_eq!(ask(&running, "listen", "/").text(), "hello");
    assert!(status(&running).contains("\"mode\":{\"name\":\"off\""));
}

#[test]
fn a_file_that_names_a_service_and_nothing_else_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    std::fs::write(&file, "upstream = 'http://127.0.0.1:1'").unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let checked = check.arg("check").arg(&file).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(said.contains("listens on 127.0.0.1:8080"), "{said}");
}

#[test]
fn check_json_lists_every_error_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let checked = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let checked = check.args(["check", "--json"]).arg(&file).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        (checked.status.code(), said)
    };
    let (code, said) = checked("upstream = 'a:1'\nlisten = ':1'\nthread = 1");
    assert_eq!((code, &said["ok"]), (Some(2), &false.into()));
    let lines: Vec<_> = said["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["line"].as_u64())
        .collect();
    assert_eq!(lines, [Some(1), Some(3)]);
    let (code, said) = checked("upstream = 'http://127.0.0.1:1'\nprotect.target = '1m'");
    assert_eq!((code, &said["ok"]), (Some(0), &true.into()));
    assert_eq!(said["warnings"][0]["column"], 18);
}

#[test]
fn the_help_knows_the_signals() {
    let help = tidegate(&["--help"]).output().expect("runs").stdout;
    let help = String::from_utf8_lossy(&help).into_owned();
    for signal in ["SIGHUP", "SIGTERM", "SIGUSR2"] {
        assert!(help.contains(signal), "{help}");
    }
}

#[test]
fn mistakes_are_named_with_their_remedy() {
    assert!(refused(&[]).contains("--upstream http://"));
    assert!(refused(&["--upstream", "localhost:3000"]).contains("http://localhost:3000"));
    assert!(refused(&["--upstream", "http://a:1", "--mode", "fast"]).contains("auto"));
    assert!(refused(&["-c", "missing.toml"]).contains("missing.toml"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let message = refused(&["--upstream", "http://a:1", "--listen", &addr]);
    assert!(
        message.contains(&addr) && message.contains("choose another port"),
        "{message}"
    );
}

/// Ends a process that the test did not start itself.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Another process with this upstream, which no other process has, in its command line.
fn successor_of(old: u32, upstream: &str) -> Option<Successor> {
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_successor = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        pid.cast_unsigned() != old && words.any(|word| word == upstream.as_bytes())
    };
    pids.find(is_successor)
        .and_then(Pid::from_raw)
        .map(Successor)
}

/// Asks again and again, on one connection as long as it may, or on a new one each time.
fn visit(addr: String, reuse: bool, stop: Arc<AtomicBool>) -> thread::JoinHandle<(u32, u32)> {
    let close = if reuse { "" } else { "connection: close\r\n" };
    let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{close}\r\n");
    thread::spawn(move || {
        let (mut answered, mut lost) = (0, 0);
        let mut kept: Option<Connection> = None;
        while !stop.load(Ordering::Relaxed) {
            let connection = kept.take().map_or_else(|| Connection::open(&addr), Ok);
            let asked = connection.and_then(|mut it| Ok((it.ask(&request)?, it)));
            match asked {
                Ok((answer, connection)) if answer.status == 200 && answer.body == b"hello" => {
                    answered += 1;
                    let goes_on = reuse && answer.header("connection") != Some("close");
                    kept = goes_on.then_some(connection);
                }
                _ => lost += 1,
            }
        }
        (answered, lost)
    })
}

#[test]
fn a_new_process_takes_over_without_a_request_lost() {
    let upstream = format!("http://{}", service());
    let mut old = start(&flags(&["--upstream", &upstream, "--mode", "off"]));
    let addr = old.addr("listen").to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let visitors =
        [true, true, false, false].map(|reuse| visit(addr.clone(), reuse, Arc::clone(&stop)));
    assert_eq!(ask(&old, "listen", "/").text(), "hello");
    let pid = old.id();
    old.signal(Signal::USR2);
    let successor = loop {
        match successor_of(pid, &upstream) {
            Some(successor) => break successor,
            None => thread::yield_now(),
        }
    };
    assert!(old.wait().success(), "the old one ends in order");
    for _ in 0..20 {
        assert_eq!(ask(&old, "listen", "/").text(), "hello");
    }
    assert_eq!(ask(&old, "admin", "/healthz").status, 200);
    stop.store(true, Ordering::Relaxed);
    for visitor in visitors {
        let (answered, lost) = visitor.join().unwrap();
        assert_eq!(lost, 0, "of {answered}");
        assert!(answered > 0);
    }
    drop(successor);
}

#[test]
fn a_new_process_that_cannot_start_leaves_the_old_one_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let upstream = format!("upstream = 'http://{}'", service());
    std::fs::write(&file, &upstream).unwrap();
    let mut old = start(&flags(&["-c", file.to_str().unwrap()]));
    std::fs::write(&file, "upstream = 'nonsense'").unwrap();
    let stderr = old.stderr();
    old.signal(Signal::USR2);
    let mut lines = BufReader::new(stderr).lines();
    let failed = lines.any(|line| line.is_ok_and(|line| line.contains("this one goes on")));
    assert!(failed);
    assert_eq!(ask(&old, "listen", "/").text(), "hello");
}

#[test]
fn what_was_learnt_goes_from_the_file_to_one_process_and_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (file, learnt) = (dir.path().join("tidegate.toml"), dir.path().join("state"));
    // Beside the file that names it, wherever the proxy is started from.
    std::fs::write(&file, "state_file = 'state'").unwrap();
    let upstream = format!("http://{}", service());
    std::fs::write(&learnt, format!(r#"{{"windows":{{"{upstream}":77}}}}"#)).unwrap();
    let line = ["-c", file.to_str().unwrap(), "--upstream", &upstream];
    let mut old = start(&flags(&line));
    assert!(status(&old).contains(r#""window":77"#));

    // The next one has it from the process.
    std::fs::write(&learnt, "{").unwrap();
    let pid = old.id();
    old.signal(Signal::USR2);
    assert!(old.wait().success());
    let successor = successor_of(pid, &upstream).unwrap();
    assert!(status(&old).contains(r#""window":77"#));
    drop(successor);
}

/// What an application discovers goes with the rest, however much that is.
#[test]
fn new_process_has_the_replicas_that_were_discovered_when_the_source_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let upstream = format!("http://{}", service());
    let many: String = (1..4000)
        .map(|port| format!("http://a.test:{port}\n"))
        .collect();
    std::fs::write(dir.path().join("shop"), &upstream).unwrap();
    std::fs::write(dir.path().join("other"), &many).unwrap();
    let application = |name: &str| {
        format!(
            "[[application]]\nname = '{name}'\nhosts = ['{name}.test']\n\
             upstream.discover = [{{ file = '{name}' }}]\n"
        )
    };
    let text = format!(
        "default_application = 'shop'\n{}{}",
        application("shop"),
        application("other")
    );
    std::fs::write(&file, text).unwrap();
    let mut old = start(&flags(&["-c", file.to_str().unwrap()]));
    assert_eq!(ask(&old, "listen", "/").text(), "hello");
    std::fs::remove_file(dir.path().join("shop")).unwrap();
    std::fs::remove_file(dir.path().join("other")).unwrap();
    let pid = old.id();
    old.signal(Signal::USR2);
    assert!(old.wait().success());
    let successor = successor_of(pid, file.to_str().unwrap()).unwrap();
    assert_eq!(ask(&old, "listen", "/").text(), "hello");
    let pool = ask(&old, "admin", "/api/applications/other/replicas").text();
    assert_eq!(pool.matches("http://a.test:").count(), 3999);
    drop(successor);
}

#[test]
fn kill_switch_goes_to_the_next_process() {
    let upstream = format!("http://{}", service());
    let mut old = start(&flags(&["--upstream", &upstream]));
    let admin = old.addr("admin").to_owned();
    let enabled = r#"{ "enabled": true }"#;
    let switched = blocking::call(&admin, "POST", "/api/kill-switch", enabled);
    assert_eq!(switched.status, 200, "{switched:?}");
    let is_on = r#""kill_switch":{"on":true"#;
    assert!(status(&old).contains(is_on), "{}", status(&old));
    let pid = old.id();
    old.signal(Signal::USR2);
    assert!(old.wait().success());
    let successor = successor_of(pid, &upstream).unwrap();
    let answer = ask(&old, "admin", "/api/status").text();
    assert!(answer.contains(is_on), "{answer}");
    drop(successor);
}

/// Waits until the process has written a line with this to its operator.
fn wait_for_line(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) {
    let said = lines.any(|line| line.is_ok_and(|line| line.contains(what)));
    assert!(said, "it writes `{what}`");
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("runs");
    assert!(made.success());
}

/// A pipe is read at the start and never again: a reload that waited for somebody to write to it
/// would keep later ones waiting.
#[test]
fn configuration_from_a_pipe_is_read_once_and_reloads_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("tidegate.toml");
    make_pipe(&pipe);
    let text = format!("upstream = 'http://{}'", service());
    let writer = thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, text)
    });
    let mut running = start(&flags(&["-c", pipe.to_str().unwrap()]));
    writer.join().unwrap().unwrap();
    let mut lines = BufReader::new(running.stderr()).lines();
    for _ in 0..2 {
        running.signal(Signal::HUP);
        wait_for_line(&mut lines, "is no regular file");
    }
    assert_eq!(ask(&running, "listen", "/").text(), "hello");
    running.finish();
}

#[test]
fn second_signal_ends_requests_in_flight() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let upstream = format!("http://{}", silent.local_addr().expect("an address"));
    let mut running = start(&flags(&["--upstream", &upstream]));
    let mut client = Connection::open(running.addr("listen")).expect("connects");
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.send(request).expect("sends");
    let held = silent.accept().expect("the request is sent to the service");
    let mut lines = BufReader::new(running.stderr()).lines();
    running.signal(Signal::TERM);
    wait_for_line(&mut lines, "a second signal ends them");
    running.signal(Signal::TERM);
    // A shutdown that waits for its grace period ends in success.
    assert_eq!(running.wait().code(), Some(1));
    drop((held, client));
}
