//! `tidegate characterize` against a live service whose truth is known.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;
use tidegate_testing::process::Process;

/// A service of four workers with 50 ms each: 80 requests per second, whatever the machine.
fn app() -> Process {
    let flags = ["app", "--listen", "127.0.0.1:0", "--workers", "4"];
    let more = ["--service", "det:50ms", "--json"];
    let args = [&flags[..], &more].concat();
    Process::start(env!("CARGO_BIN_EXE_tidegate"), &args)
}

fn characterize(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("characterize")
        .args(args)
        .output()
        .unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = characterize(args);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn live_service_shows_its_capacity_and_its_target() {
    let app = app();
    let flags = [
        "--confirm-load",
        "--from",
        "20/s",
        "--max-rate",
        "400/s",
        "--level",
        "2s",
    ];
    let more = [
        "--points",
        "4",
        "--tuning-interval",
        "1s",
        "--target-only",
        "--json",
    ];
    let output = characterize(&[&[app.url("listen").as_str()], &flags[..], &more[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |name: &str| found[name].as_f64().unwrap();
    // A loaded machine serves less, and chance shows more in a window of two seconds.
    let peak = figure("peak_goodput_per_s");
    assert!((50.0..=100.0).contains(&peak), "{found:#}");
    assert!(
        (0.05..0.3).contains(&figure("light_response_s")),
        "{found:#}"
    );
    let target = figure("target_s");
    assert!(target >= 0.4 && target >= 60.0 / peak - 1e-9, "{found:#}");
    assert!(found["auto"].as_str().unwrap().contains("mode = \"auto\""));
    assert_eq!(found["loads"].as_array().unwrap().len(), 4);
}

#[test]
fn live_service_is_not_loaded_without_a_confirmation() {
    let words = refused(&["http://127.0.0.1:1/"]);
    assert!(words.contains("--confirm-load"), "{words}");
}

#[test]
fn load_stops_when_requests_fail() {
    let flags = ["--confirm-load", "--from", "50/s", "--target-only"];
    let words = refused(&[&["http://127.0.0.1:1/"], &flags[..]].concat());
    assert!(
        words.contains("stopped at 50.0 requests/s: 100 %"),
        "{words}"
    );
}

#[test]
fn search_ends_at_the_largest_rate_allowed() {
    let app = app();
    let flags = [
        "--confirm-load",
        "--from",
        "10/s",
        "--max-rate",
        "20/s",
        "--level",
        "2s",
    ];
    let more = ["--tuning-interval", "1s", "--target-only"];
    let words = refused(&[&[app.url("listen").as_str()], &flags[..], &more[..]].concat());
    assert!(
        words.contains("still no overload at 20 requests/s"),
        "{words}"
    );
}

#[test]
fn weight_of_io_needs_reports() {
    let app = app();
    let words = refused(&[&app.url("listen"), "--confirm-load", "--sentry"]);
    assert!(words.contains("0 of 200 answers reported"), "{words}");
}
