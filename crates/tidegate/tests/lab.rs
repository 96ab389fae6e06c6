//! `tidegate app` and `tidegate load` as people start them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;
use tidegate_testing::process::Process;

/// A running `tidegate app`.
fn app(flags: &[&str]) -> Process {
    let args = [&["app", "--listen", "127.0.0.1:0", "--json"], flags].concat();
    Process::start(env!("CARGO_BIN_EXE_tidegate"), &args)
}

fn url(app: &Process) -> String {
    format!("{}/", app.url("listen"))
}

fn load(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("load")
        .args(flags)
        .output()
        .expect("runs")
}

fn report(flags: &[&str]) -> Value {
    let output = load(&[flags, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_load_is_served_and_reported() {
    let app = app(&["--workers", "20", "--service", "det:5ms"]);
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("seconds.csv");
    let flags = [
        "--rate",
        "100/s",
        "--duration",
        "1s",
        "--constant",
        "--timeout",
        "60s",
    ];
    let report = report(&[&flags[..], &["--csv", csv.to_str().unwrap(), &url(&app)]].concat());
    assert_eq!(report["requests"]["total"], 99);
    assert_eq!(report["requests"]["ok"], 99);
    assert_eq!(report["seed"], 1);
    assert!(report["requests"]["latency"]["p50_ms"].as_f64().unwrap() >= 5.0);
    let rows = fs::read_to_string(csv).unwrap();
    assert!(rows.starts_with("second,offered,ok,"), "{rows}");
    assert!(rows.lines().count() >= 2, "{rows}");
}

#[test]
fn a_schedule_with_kinds_is_read_from_a_file() {
    let app = app(&[
        "--workers",
        "20",
        "--service",
        "det:1ms",
        "--slow-path",
        "/slow=5x",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("load.toml");
    let text = "duration = '1s'\nspacing = 'deterministic'\n\
                rate = [{ at = '0s', value = '50/s' }, { at = '1s', value = '150/s', ramp = true }]\n\
                [[request]]\nname = 'fast'\n[[request]]\nname = 'slow'\npath = '/slow'\n";
    fs::write(&file, text).unwrap();
    let report = report(&[
        "--schedule",
        file.to_str().unwrap(),
        "--timeout",
        "60s",
        &url(&app),
    ]);
    // The ramp from 50/s to 150/s holds 100 requests; the last one is due as it ends.
    assert_eq!(report["requests"]["total"], 99);
    let kinds = report["kinds"].as_object().unwrap();
    assert_eq!(kinds.keys().collect::<Vec<_>>(), ["fast", "slow"]);
}

#[test]
fn classes_differ_in_one_header() {
    let app = app(&["--workers", "20", "--service", "det:1ms"]);
    let classes = ["--class-header", "x-plan: gold=1, bronze=3"];
    let flags = ["--rate", "100/s", "--duration", "1s", "--timeout", "60s"];
    let report = report(&[&flags[..], &classes, &[&url(&app)]].concat());
    let total = |kind: &str| report["kinds"][kind]["total"].as_u64().unwrap();
    assert_eq!(
        total("gold") + total("bronze"),
        report["requests"]["total"].as_u64().unwrap()
    );
}

#[test]
fn people_get_text_and_progress_goes_to_standard_error() {
    let app = app(&["--workers", "20", "--service", "det:1ms"]);
    let output = load(&["--rate", "50/s", "--duration", "1s", &url(&app)]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("offered"), "{text}");
    assert!(text.contains("answered within 500ms"), "{text}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("1 s  offered"), "{progress}");
}

#[test]
fn mistakes_are_refused_with_their_remedy_and_no_output() {
    for (flags, message) in [
        (
            &["--rate", "5", "--duration", "1s", "http://x/"][..],
            "is not a rate",
        ),
        (&["--rate", "5/s", "http://127.0.0.1/"], "--duration"),
        (
            &["--rate", "5/s", "--duration", "1s", "ftp://x/"],
            "write http://",
        ),
        (&["--schedule", "nowhere.toml", "http://x/"], "nowhere.toml"),
        (
            &[
                "--rate",
                "1/s",
                "--duration",
                "1s",
                "--class-header",
                "x",
                "http://x/",
            ],
            "WEIGHT",
        ),
        (
            &[
                "--rate",
                "9000000/s",
                "--duration",
                "1h",
                "http://127.0.0.1/",
            ],
            "lower the rate",
        ),
        (
            &[
                "--rate",
                "1/s",
                "--duration",
                "20s",
                "--csv",
                "nowhere/seconds.csv",
                "http://127.0.0.1/",
            ],
            "nowhere/seconds.csv",
        ),
    ] {
        let begun = Instant::now();
        let output = load(flags);
        assert!(
            begun.elapsed().as_secs() < 15,
            "{flags:?}: nothing is sent before"
        );
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(message), "{flags:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
}

#[test]
fn a_port_in_use_is_said_plainly() {
    let app = app(&[]);
    let addr = app.addr("listen");
    let second = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["app", "--listen", addr])
        .output()
        .unwrap();
    let stderr = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr.contains("cannot listen on"), "{stderr}");
}

/// A proxy with TLS in front of `app`.
fn secured(app: &Process, folder: &Path) -> Process {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let certified = certified.expect("makes a certificate");
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("writes");
    write("own.crt", &certified.cert.pem());
    write("own.key", &certified.signing_key.serialize_pem());
    let upstream = app.url("listen");
    write(
        "tidegate.toml",
        &format!(
            "listen = {{ addr = '127.0.0.1:0', tls = {{ cert = 'own.crt', key = 'own.key' }} }}\n\
             admin = 'off'\nupstream = '{upstream}'"
        ),
    );
    let file = folder.join("tidegate.toml").display().to_string();
    Process::start(
        env!("CARGO_BIN_EXE_tidegate"),
        &["run", "--json", "-c", &file],
    )
}

#[test]
fn a_load_goes_over_tls_in_either_protocol() {
    let app = app(&["--workers", "20", "--service", "det:1ms"]);
    let folder = tempfile::tempdir().unwrap();
    let proxy = secured(&app, folder.path());
    let url = format!("https://{}/", proxy.addr("listen"));
    let ca = folder.path().join("own.crt");
    let ca = ca.to_str().unwrap();
    let ended = |flags: &[&str], how: &str| {
        let common = [
            "--rate",
            "50/s",
            "--duration",
            "1s",
            "--constant",
            "--timeout",
            "60s",
        ];
        let report = report(&[&common, flags, &[&url]].concat());
        assert_eq!(report["requests"]["total"], 49);
        report["requests"][how].as_u64().unwrap()
    };
    assert_eq!(ended(&["--ca", ca], "ok"), 49);
    assert_eq!(ended(&["--ca", ca, "--http2"], "ok"), 49);
    assert_eq!(ended(&["--insecure"], "ok"), 49);
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let other = folder.path().join("other.crt");
    fs::write(&other, stranger.cert.pem()).unwrap();
    assert_eq!(
        ended(&["--ca", other.to_str().unwrap()], "connect_errors"),
        49
    );
    let missing = load(&[
        "--rate",
        "1/s",
        "--duration",
        "1s",
        "--ca",
        "missing.pem",
        &url,
    ]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("missing.pem"));
}
