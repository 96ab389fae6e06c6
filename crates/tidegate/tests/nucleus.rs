//! `tidegate nucleus` as people start it, in front of `tidegate app`.

use std::net::TcpListener;
use std::process::{Command, Output};

use tidegate_testing::process::{Process, Signal};
use tidegate_testing::{Answer, blocking};

fn start(arguments: &[&str]) -> Process {
    Process::spawn(command(arguments).args(["--listen", "127.0.0.1:0", "--json"]))
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

fn get(server: &Process) -> Answer {
    blocking::get(server.addr("listen"), "/")
}

#[test]
fn answers_are_measured_with_the_cpu_time_of_the_process_that_listens() {
    let app = start(&["app", "--service", "det:1ms"]);
    let nucleus = start(&[
        "nucleus",
        "--upstream",
        &app.url("listen"),
        "--period",
        "1us",
    ]);
    get(&nucleus);
    let answer = get(&nucleus);
    assert_eq!(answer.status, 200, "{answer:?}");
    for name in ["demand", "service-ms", "cpu-ms", "io-ms", "utilization"] {
        let header = format!("tidegate-{name}");
        assert!(answer.header(&header).is_some(), "{name}: {answer:?}");
    }
}

#[test]
fn a_process_can_be_named() {
    let app = start(&["app", "--service", "det:1ms"]);
    let pid = app.id().to_string();
    let url = app.url("listen");
    let flags = ["nucleus", "--upstream", &url, "--pid", &pid];
    let nucleus = start(&flags);
    assert_eq!(get(&nucleus).header("tidegate-demand"), Some("1"));
}

#[test]
fn a_service_that_is_not_there_is_a_bad_gateway() {
    let nucleus = start(&["nucleus", "--upstream", "http://127.0.0.1:1"]);
    let answer = get(&nucleus);
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.header("tidegate-demand"), None);
}

#[test]
fn sigterm_finishes_the_request_in_flight() {
    let app = start(&["app", "--service", "det:500ms"]);
    let mut nucleus = start(&["nucleus", "--upstream", &app.url("listen")]);
    let addr = nucleus.addr("listen").to_owned();
    let client = std::thread::spawn(move || blocking::get(addr, "/"));
    // The app counts the request as soon as the sidecar has sent it on.
    let stats = || blocking::get(app.addr("listen"), "/_app/stats").text();
    while !stats().contains("\"arrivals\":1") {}
    nucleus.signal(Signal::TERM);
    let answer = client.join().expect("the client does not panic");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(nucleus.wait().success());
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
