//! A proxy that records, under a live overload: what is in the recording is what happened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidegate_record::{Decision, Recording};
use tidegate_testing::blocking;
use tidegate_testing::process::Process;

fn start(args: &[&str]) -> Process {
    Process::start(env!("CARGO_BIN_EXE_tidegate"), args)
}

fn app() -> Process {
    let flags = [
        "app",
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "2",
        "--service",
        "det:20ms",
        "--json",
    ];
    start(&flags)
}

fn proxy(app: &Process, extra: &[&str]) -> Process {
    let upstream = format!("http://{}", app.addr("listen"));
    let mut flags = vec![
        "run",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--json",
    ];
    flags.extend(["--upstream", &upstream, "--target", "300ms"]);
    flags.extend(extra);
    start(&flags)
}

/// Twice what the service can do.
fn overload(proxy: &Process) -> Value {
    let url = format!("http://{}/user/17/orders", proxy.addr("listen"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "load",
            &url,
            "--rate",
            "200/s",
            "--duration",
            "4s",
            "--json",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check(recording: &Recording) {
    assert!(recording.problems.is_empty(), "{:?}", recording.problems);
    assert_eq!(recording.lost(), 0);
    let tables = &recording.meta.tables;
    let mut names = recording
        .requests
        .iter()
        .map(|request| recording.names.path(request.path));
    assert!(names.all(|name| name == "/user/:id/orders"));
    let served = recording
        .requests
        .iter()
        .filter(|request| request.is_served());
    for request in served.clone() {
        assert!(request.service_us >= 1_000, "{request:?}");
        assert!(
            request.response_us >= request.service_us + request.waiting_us,
            "{request:?}"
        );
        assert_eq!((request.status, request.replica), (200, 1));
    }
    for shed in recording
        .requests
        .iter()
        .filter(|request| request.is_shed())
    {
        assert!(!tables.reason(shed).is_empty(), "{shed:?}");
        assert!(shed.retry_after_ms >= 1000, "{shed:?}");
        assert_eq!((shed.service_us, shed.replica), (0, 0));
    }
    assert!(served.count() > 100);
    assert!(
        recording
            .requests
            .iter()
            .any(|request| request.decision == Decision::Shed)
    );
}

#[test]
fn recording_of_a_live_overload_has_every_request() {
    let dir = tempfile::tempdir().unwrap();
    let app = app();
    let proxy = proxy(&app, &["--record", dir.path().to_str().unwrap()]);
    let report = overload(&proxy);
    proxy.finish();
    let recording = Recording::open(dir.path()).unwrap();
    check(&recording);
    let sent = report["totals"]["offered"]
        .as_u64()
        .or(report["offered"].as_u64());
    assert!(
        recording.requests.len() as u64 <= sent.unwrap_or(u64::MAX),
        "{report}"
    );
    assert!(
        recording.requests.len() > 600,
        "{}",
        recording.requests.len()
    );
    let has = |name: &str| {
        recording
            .events
            .iter()
            .any(|event| event.json.contains(name))
    };
    assert!(has("\"event\":\"measured\"") && has("\"event\":\"forecast\""));
    assert_eq!(
        recording.meta.config.as_ref().unwrap()["protect"]["target"],
        "300ms"
    );
}

const MODES: [&str; 9] = [
    "auto", "static", "step", "pi", "pid", "lqr", "ilac", "sentry", "off",
];

/// A proxy with two workers and two classes whose engine's calls are recorded.
fn transcribing(app: &Process, dir: &Path, mode: &str) -> Process {
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nthreads = 2\nupstream = 'http://{}'\n\
         record = {{ dir = 'recording', decisions = true }}\n\
         [protect]\nmode = '{mode}'\ntarget = '300ms'\nstatic = {{ rate = '80/s' }}\n\
         [[protect.classes]]\nname = 'gold'\nguarantee = '5/s'\n\
         [[protect.classes]]\nname = 'free'\n\
         [[classify]]\nclass = 'gold'\npath = '/gold'\n",
        app.addr("listen")
    );
    let file = dir.join("tidegate.toml");
    std::fs::write(&file, text).unwrap();
    start(&["run", "--config", file.to_str().unwrap(), "--json"])
}

fn replay(recording: &Path) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["replay", "--json", "--verify", recording.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), json(&text))
}

/// A live run in this mode, replayed.
fn decisions_are_the_recorded_ones(mode: &str) {
    let dir = tempfile::tempdir().unwrap();
    let app = app();
    let proxy = transcribing(&app, dir.path(), mode);
    let url = format!("http://{}/user/17/orders", proxy.addr("listen"));
    let gold = format!("http://{}/gold/1", proxy.addr("listen"));
    let load = [
        "load",
        &url,
        &gold,
        "--rate",
        "250/s",
        "--duration",
        "2s",
        "--json",
    ];
    let sent = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(load)
        .output();
    assert!(sent.unwrap().status.success());
    proxy.finish();
    let (code, report) = replay(&dir.path().join("recording"));
    assert_eq!(code, Some(0), "{mode}: {report:#}");
    let engine = &report["engines"][0];
    assert_eq!(engine["result"], "same");
    assert!(engine["decisions"].as_u64().unwrap() > 250, "{report:#}");
    assert!(engine["ticks"].as_u64().unwrap() >= 2, "{report:#}");
}

#[test]
fn replay_gives_the_decisions_of_live_runs_in_all_modes() {
    let runs = MODES.map(|mode| std::thread::spawn(move || decisions_are_the_recorded_ones(mode)));
    runs.into_iter().for_each(|run| run.join().unwrap());
}

/// `tidegate ctl record …` against a proxy, with its exit code.
fn ctl(proxy: &Process, args: &[&str]) -> (bool, String) {
    let url = format!("http://{}", proxy.addr("admin"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ctl", "--admin", &url, "--json", "record"])
        .args(args)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn recording_is_begun_and_ended_by_operators() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("made/by/it").display().to_string();
    let app = app();
    let proxy = proxy(&app, &[]);
    let (done, answer) = ctl(&proxy, &["start"]);
    assert!(!done && answer.contains("record.dir"), "{answer}");
    let (done, answer) = ctl(&proxy, &["start", &into]);
    assert!(done, "{answer}");
    assert_eq!(json(&answer)["enabled"], true, "{answer}");
    let (done, answer) = ctl(&proxy, &["start", &into]);
    assert!(!done && answer.contains("stop it first"), "{answer}");
    overload(&proxy);
    let (_, ended) = ctl(&proxy, &["stop"]);
    let ended = json(&ended);
    assert_eq!(ended["enabled"], false);
    let recording = Recording::open(Path::new(&into)).unwrap();
    assert_eq!(
        Some(recording.requests.len() as u64),
        ended["requests"].as_u64()
    );
    check(&recording);
    let (_, status) = ctl(&proxy, &["status"]);
    assert_eq!(json(&status)["requests"], ended["requests"]);
    let (done, answer) = ctl(&proxy, &["start", &into]);
    assert!(done, "another recording of the same process: {answer}");
}

/// A request with these header lines; its status.
fn ask(proxy: &Process, head: &str) -> u16 {
    let request = format!("{head}connection: close\r\n\r\n");
    blocking::ask(proxy.addr("listen"), request).status
}

#[test]
fn recording_has_applications_deadlines_sizes_and_rejections() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("recording");
    let app = app();
    let upstream = format!("http://{}", app.addr("listen"));
    let file = dir.path().join("tidegate.toml");
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nrecord.dir = 'recording'\n\
         record.names = false\n[[application]]\nname = 'shop'\nhosts = ['shop.example']\n\
         upstream = '{upstream}'\n[[application]]\nname = 'blog'\nhosts = ['blog.example']\n\
         upstream = '{upstream}'\n[[application.protect.classes]]\nname = 'readers'\n"
    );
    std::fs::write(&file, text).unwrap();
    let proxy = start(&["run", "--config", file.to_str().unwrap(), "--json"]);
    let shop = "POST /a HTTP/1.1\r\nhost: shop.example\r\ncontent-length: 0\r\n\
                tidegate-deadline-ms: 1500\r\n";
    assert_eq!(ask(&proxy, shop), 200);
    assert_eq!(
        ask(&proxy, "GET /b HTTP/1.1\r\nhost: blog.example\r\n"),
        200
    );
    assert_eq!(
        ask(&proxy, "GET /c HTTP/1.1\r\nhost: other.example\r\n"),
        404
    );
    assert_eq!(ask(&proxy, "G@T\r\n"), 400);
    proxy.finish();
    let recording = Recording::open(&into).unwrap();
    assert_eq!(recording.requests.len(), 4, "{:?}", recording.requests);
    let tables = &recording.meta.tables;
    let by = |index: usize| {
        let request = &recording.requests[index];
        (tables.application(request), tables.class(request))
    };
    assert_eq!((by(0), by(1)), (("shop", "default"), ("blog", "readers")));
    assert_eq!(recording.requests[0].deadline_us, 1_500_000);
    assert_eq!(recording.requests[1].deadline_us, 0, "its client said none");
    assert!(recording.requests[1].response_bytes > 0);
    for (rejected, reason) in [(2, "unrouted"), (3, "malformed")] {
        let rejected = &recording.requests[rejected];
        assert_eq!(tables.application(rejected), "");
        assert_eq!(rejected.decision, Decision::Rejected);
        assert_eq!(tables.reason(rejected), reason);
    }
    let named = recording.names.path(recording.requests[0].path);
    assert!(named.starts_with('#'), "names are left out: {named}");
}

#[test]
fn recording_that_cannot_be_written_is_refused_with_cause_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let upstream = "http://127.0.0.1:1";
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["run", "--listen", "127.0.0.1:0", "--admin", "off"])
        .args(["--upstream", upstream, "--record", file.to_str().unwrap()])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        message.contains("cannot record into") && message.contains("check the directory"),
        "{message}"
    );
}

/// `tidegate load --recording` to a service, as JSON.
fn send_again(recording: &Path, to: &Process, more: &[&str]) -> Value {
    let url = format!("http://{}/", to.addr("listen"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["load", &url, "--json", "--timeout", "30s", "--recording"])
        .arg(recording)
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn recorded_requests_are_sent_again_at_their_times() {
    let dir = tempfile::tempdir().unwrap();
    let app = app();
    let first = proxy(&app, &["--record", dir.path().to_str().unwrap()]);
    overload(&first);
    first.finish();
    let recording = Recording::open(dir.path()).unwrap();
    let again = tempfile::tempdir().unwrap();
    let second = proxy(&app, &["--record", again.path().to_str().unwrap()]);
    let report = send_again(dir.path(), &second, &["--speed", "2"]);
    second.finish();
    let count = recording.requests.len() as u64;
    assert_eq!(
        report["requests"]["total"].as_u64(),
        Some(count),
        "{report}"
    );
    assert!(report["send_lag"]["p99_ms"].is_f64(), "{report}");
    let duration = report["duration_s"].as_f64().unwrap();
    assert!(
        (duration - recording.seconds() / 2.0).abs() < 0.01,
        "{duration}"
    );
    let repeated = Recording::open(again.path()).unwrap();
    assert_eq!(repeated.requests.len() as u64, count);
    let mut names = repeated
        .requests
        .iter()
        .map(|it| repeated.names.path(it.path));
    assert!(names.all(|name| name == "/user/:id/orders"));
    // The gaps are the recorded ones, at twice the speed. At another speed half of them would be
    // off by a second; a loaded machine sends some later.
    let gaps = |from: &Recording| -> Vec<f64> {
        let at = from
            .requests
            .iter()
            .map(|it| (it.at_us - from.requests[0].at_us) as f64);
        at.collect()
    };
    let mut errors: Vec<f64> = gaps(&recording)
        .iter()
        .zip(gaps(&repeated))
        .map(|(was, is)| (was / 2.0 - is).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    assert!(
        errors[errors.len() / 2] < 250_000.0,
        "{} us",
        errors[errors.len() / 2]
    );
}
