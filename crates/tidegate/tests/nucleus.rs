//! `tidegate nucleus` as people start it, in front of `tidegate app`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running command that said where it listens; ended with the test.
struct Server {
    process: Child,
    addr: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut process = command(arguments)
            .args(["--listen", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdout = process.stdout.take().expect("is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("reads");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        let addr = said["listen"].as_str().expect("an address").to_owned();
        Self { process, addr }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.addr).expect("listens");
        stream.write_all(request.as_bytes()).expect("reads");
        stream
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments);
    command
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = command(arguments).output().expect("runs");
    assert_eq!(status.code(), Some(2), "{arguments:?}");
    String::from_utf8(stderr).expect("text")
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn answers_are_measured_with_the_cpu_time_of_whoever_listens() {
    let app = Server::start(&["app", "--service", "det:1ms"]);
    let nucleus = Server::start(&["nucleus", "--upstream", &app.url(), "--period", "1us"]);
    read(nucleus.send(GET));
    let answer = read(nucleus.send(GET));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for name in ["demand", "service-ms", "cpu-ms", "io-ms", "utilization"] {
        assert!(
            answer.contains(&format!("\r\ntidegate-{name}: ")),
            "{name}: {answer}"
        );
    }
}

#[test]
fn a_process_can_be_named() {
    let app = Server::start(&["app", "--service", "det:1ms"]);
    let pid = app.process.id().to_string();
    let url = app.url();
    let flags = ["nucleus", "--upstream", &url, "--pid", &pid];
    let nucleus = Server::start(&flags);
    assert!(read(nucleus.send(GET)).contains("\r\ntidegate-demand: 1\r\n"));
}

#[test]
fn a_service_that_is_not_there_is_a_bad_gateway() {
    let nucleus = Server::start(&["nucleus", "--upstream", "http://127.0.0.1:1"]);
    let answer = read(nucleus.send(GET));
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(!answer.contains("tidegate-demand"), "{answer}");
}

#[test]
fn sigterm_finishes_the_request_in_flight() {
    let app = Server::start(&["app", "--service", "det:500ms"]);
    let mut nucleus = Server::start(&["nucleus", "--upstream", &app.url()]);
    let client = nucleus.send(GET);
    // The app counts the request as soon as the sidecar has sent it on.
    let stats = "GET /_app/stats HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    while !read(app.send(stats)).contains("\"arrivals\":1") {}
    kill_process(nucleus.pid(), Signal::TERM).expect("runs");
    let answer = read(client);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(nucleus.process.wait().expect("ends").success());
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let nobody = "4194305"; // above the largest process id of Linux
    let upstream = ["nucleus", "--upstream", "http://127.0.0.1:1"];
    let pid = refused(&[&upstream[..], &["--pid", nobody]].concat());
    assert!(pid.contains("no process 4194305"), "{pid}");

    let bad = refused(&["nucleus", "--upstream", "https://shop.example/a"]);
    assert!(bad.contains("write http://HOST:PORT"), "{bad}");

    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = taken.local_addr().expect("bound").to_string();
    let busy = refused(&[&upstream[..], &["--listen", &addr]].concat());
    assert!(busy.contains("choose another --listen"), "{busy}");

    let period = refused(&[&upstream[..], &["--period", "0s"]].concat());
    assert!(period.contains("a period of 0"), "{period}");
}
