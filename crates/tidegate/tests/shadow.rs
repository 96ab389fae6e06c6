//! A second configuration beside the one in force, as an operator meets it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_testing::blocking;
use tidegate_testing::process::Process;

fn start(args: &[&str]) -> Process {
    Process::start(env!("CARGO_BIN_EXE_tidegate"), args)
}

fn tidegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let both = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8(both).unwrap()
}

/// A file for a proxy before `upstream`, with a shadow that admits 20 requests per second.
fn config(dir: &Path, upstream: &str, shadow: &str) -> String {
    let file = dir.join("tidegate.toml");
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = '{upstream}'\n\
         protect.target = '300ms'\n{shadow}"
    );
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

const SHADOW: &str = "[shadow.protect]\nmode = 'static'\nstatic.rate = '20/s'\n";

fn app() -> Process {
    start(&["app", "--listen", "127.0.0.1:0", "--workers", "8", "--json"])
}

fn load(proxy: &Process) -> Value {
    let url = format!("{}/", proxy.url("listen"));
    let flags = ["--rate", "80/s", "--duration", "4s", "--timeout", "10s"];
    let output = tidegate(&[&["load", &url, "--json"], &flags[..]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn shadow_of(admin: &str) -> Value {
    let output = tidegate(&["ctl", "--admin", admin, "--json", "shadow"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn page(admin: &str) -> String {
    blocking::get(admin.trim_start_matches("http://"), "/metrics").text()
}

#[test]
fn shadow_sheds_on_paper_what_is_served_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let app = app();
    let file = config(dir.path(), &app.url("listen"), SHADOW);
    let proxy = start(&["run", "--config", &file, "--json"]);
    let admin = proxy.url("admin");
    let report = load(&proxy);
    assert_eq!(
        report["requests"]["ok"], report["requests"]["total"],
        "{report}"
    );
    let shadow = shadow_of(&admin);
    let arrived = |engine: &str| shadow[engine]["total"]["arrived"].as_u64().unwrap();
    // The requests before its first tick are not its own.
    assert!(arrived("shadow") > 200, "{shadow:#}");
    assert_eq!(arrived("shadow"), arrived("modelled"), "the same arrivals");
    assert!(
        shadow["shadow"]["total"]["shed"]["rate"].as_u64() > Some(100),
        "{shadow:#}"
    );
    assert_eq!(shadow["in_force"]["total"]["shed"], serde_json::json!({}));
    assert_eq!(shadow["left_out"], 0);
    let metrics = page(&admin);
    let shed = "tidegate_shadow_shed_total{application=\"default\",class=\"default\",\
                engine=\"shadow\",reason=\"rate\"}";
    assert!(metrics.contains(shed), "{metrics}");
    let words = text(&tidegate(&["ctl", "--admin", &admin, "shadow"]));
    for part in [
        "protect.mode = \"static\" instead of \"auto\"",
        "default: rate/s",
        "in force",
    ] {
        assert!(words.contains(part), "{part} in\n{words}");
    }
    let top = text(&tidegate(&["top", "--admin", &admin, "--once"]));
    assert!(top.contains("by models"), "{top}");
}

#[test]
fn shadow_comes_and_goes_with_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let app = app();
    let file = config(dir.path(), &app.url("listen"), "");
    let proxy = start(&["run", "--config", &file, "--json"]);
    let admin = proxy.url("admin");
    let none = tidegate(&["ctl", "--admin", &admin, "shadow"]);
    assert!(!none.status.success());
    assert!(text(&none).contains("[shadow.protect]"), "{}", text(&none));
    fs::write(
        dir.path().join("tomorrow.toml"),
        "[protect]\ntarget = '100ms'\n",
    )
    .unwrap();
    config(
        dir.path(),
        &app.url("listen"),
        "[shadow]\nfile = 'tomorrow.toml'\n",
    );
    let reloaded = tidegate(&["ctl", "--admin", &admin, "reload"]);
    assert!(reloaded.status.success(), "{}", text(&reloaded));
    load(&proxy);
    let shadow = shadow_of(&admin);
    assert_eq!(
        shadow["differences"][0],
        "target = \"100ms\" instead of \"300ms\""
    );
    assert_eq!(
        shadow["shadow"]["total"]["arrived"],
        shadow["modelled"]["total"]["arrived"]
    );
    assert_eq!(shadow["shadow"]["classes"][0]["target_seconds"], 0.1);
}

#[test]
fn check_says_what_the_shadow_has_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let file = config(dir.path(), "http://127.0.0.1:1", SHADOW);
    let words = text(&tidegate(&["check", &file]));
    assert!(words.contains("compares it with a shadow"), "{words}");
    assert!(words.contains("protect.static.rate = \"20/s\""), "{words}");
    let file = config(
        dir.path(),
        "http://127.0.0.1:1",
        "[shadow.protect]\nmood = 'auto'\n",
    );
    let refused = tidegate(&["check", &file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused).contains("did you mean `mode`"),
        "{}",
        text(&refused)
    );
    let file = config(
        dir.path(),
        "http://127.0.0.1:1",
        "[shadow]\nfile = 'none.toml'\n",
    );
    let refused = text(&tidegate(&["check", &file]));
    assert!(refused.contains("check the name"), "{refused}");
}
