//! `tidegate ctl --application`: what is asked of one application happens to that one alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_testing::blocking;
use tidegate_testing::process::Process;

const FILE: &str = "
listen = '127.0.0.1:0'
admin = '127.0.0.1:0'

[[application]]
name = 'shop'
hosts = ['shop.example']
upstream = ['http://127.0.0.1:1', 'http://127.0.0.1:2']

[[application]]
name = 'api'
hosts = ['api.example']
upstream.discover = [{ file = 'api-replicas' }]
";

struct Proxy {
    process: Process,
    dir: TempDir,
}

impl Proxy {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("api-replicas"), "http://127.0.0.1:3\n").unwrap();
        let file = dir.path().join("tidegate.toml");
        fs::write(&file, FILE).unwrap();
        let file = file.to_str().unwrap();
        let program = env!("CARGO_BIN_EXE_tidegate");
        let process = Process::start(program, &["run", "--json", "-c", file]);
        Self { process, dir }
    }

    fn ctl(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["ctl", "--admin", &self.process.url("admin")])
            .args(args)
            .output()
            .unwrap()
    }

    /// What a command prints that succeeds.
    fn done(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command says that is refused.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(!output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        let answer = blocking::get(self.process.addr("admin"), path);
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// A figure of the status of shop and of api.
    fn both(&self, show: impl Fn(&Value) -> String) -> [String; 2] {
        let status = self.get("/api/status");
        ["shop", "api"].map(|name| show(&status["applications"][name]))
    }
}

#[test]
fn switches_and_changes_reach_the_application_that_is_named_and_no_other() {
    let proxy = Proxy::start();
    let on = |switch: &'static str| move |it: &Value| it[switch]["on"].to_string();
    for (command, switch) in [
        ("kill-switch", "kill_switch"),
        ("drain", "draining"),
        ("dry-run", "dry_run"),
    ] {
        let said = proxy.done(&["--application", "shop", command, "on"]);
        assert!(said.starts_with("application shop: "), "{said}");
        assert_eq!(proxy.both(on(switch)), ["true", "false"], "{command}");
        proxy.done(&["--application", "shop", command, "off"]);
        assert_eq!(proxy.both(on(switch)), ["false", "false"], "{command}");
    }
    // Without a name all of them are meant.
    proxy.done(&["kill-switch", "on"]);
    assert_eq!(proxy.both(on("kill_switch")), ["true", "true"]);
    proxy.done(&["kill-switch", "off"]);

    let mode = |it: &Value| it["mode"]["name"].to_string();
    proxy.done(&["mode", "off", "--application", "api"]);
    assert_eq!(proxy.both(mode), ["\"auto\"", "\"off\""]);
    let protect = |name: &str, key: &str| {
        let config = proxy.get("/api/config");
        let all = config["application"].as_array().unwrap();
        let one = all.iter().find(|it| it["name"] == name).unwrap();
        one["protect"][key].clone()
    };
    proxy.done(&["target", "300ms", "--application", "api"]);
    let patch = r#"{"limits":{"window_max":64}}"#;
    proxy.done(&["set", patch, "--application", "api"]);
    assert_eq!(protect("api", "target"), "300ms");
    assert_eq!(protect("api", "limits")["window_max"], 64);
    assert_eq!(protect("shop", "target"), Value::Null);
    let maintenance = |name: &str| {
        let config = proxy.get("/api/config");
        let all = config["application"].as_array().unwrap();
        let one = all.iter().find(|it| it["name"] == name).unwrap();
        one["edge"]["maintenance"]["enabled"] == true
    };
    proxy.done(&["maintenance", "on", "--application", "shop"]);
    assert!(maintenance("shop") && !maintenance("api"));

    proxy.done(&["reload", "--application", "shop"]);
    assert!(!maintenance("shop"));
    assert_eq!(
        proxy.both(mode),
        ["\"auto\"", "\"off\""],
        "api keeps its own"
    );
    proxy.done(&["reload"]);
    assert_eq!(proxy.both(mode), ["\"auto\"", "\"auto\""]);
}

#[test]
fn application_is_asked_for_where_it_is_missing_and_refused_where_it_means_nothing() {
    let proxy = Proxy::start();
    for command in [&["mode", "off"][..], &["target", "1s"], &["dry-run", "on"]] {
        let said = proxy.refused(command);
        assert!(said.contains("--application"), "{command:?}: {said}");
    }
    for command in [
        &["config"][..],
        &["events"],
        &["record", "status"],
        &["channel"],
        &["fleet"],
    ] {
        let said = proxy.refused(&[&["--application", "shop"], command].concat());
        assert!(
            said.contains("leave --application out"),
            "{command:?}: {said}"
        );
    }
    let said = proxy.refused(&["--application", "none", "kill-switch", "on"]);
    assert!(said.contains("there is no application `none`"), "{said}");
}

#[test]
fn pool_is_changed_set_and_reset_by_commands() {
    let proxy = Proxy::start();
    let shop = |command: &[&str]| proxy.done(&[&["--application", "shop"], command].concat());
    let [one, two, three] = [
        "http://127.0.0.1:1",
        "http://127.0.0.1:2",
        "http://127.0.0.1:9",
    ];
    shop(&["replica", "drain", one, two]);
    let shown = shop(&["replicas"]);
    assert_eq!(shown.matches("drained").count(), 2, "{shown}");
    shop(&["replica", "undrain", one, two]);
    let change = format!(r#"{{"add":[{{"url":"{three}"}}],"remove":["{one}"]}}"#);
    shop(&["replica", "change", &change]);
    let shown = shop(&["replicas"]);
    assert!(shown.contains(three) && !shown.contains(one), "{shown}");
    shop(&["replica", "set", &format!("{three} weight=4")]);
    let shown = shop(&["replicas"]);
    assert!(
        shown.contains("weight 4") && !shown.contains(two),
        "{shown}"
    );
    assert!(shown.contains("tidegate ctl replica reset"), "{shown}");
    shop(&["replica", "reset"]);
    let shown = shop(&["replicas"]);
    assert!(
        shown.contains(one) && shown.contains("named by the file\n"),
        "{shown}"
    );

    // What is drained of a pool that is discovered stays drained, and discovery goes on.
    let api = |command: &[&str]| proxy.done(&[&["--application", "api"], command].concat());
    api(&["replica", "drain", "http://127.0.0.1:3"]);
    let list = proxy.dir.path().join("api-replicas");
    fs::write(list, "http://127.0.0.1:3\nhttp://127.0.0.1:4\n").unwrap();
    let shown = loop {
        let shown = api(&["replicas"]);
        if shown.contains("http://127.0.0.1:4") {
            break shown;
        }
    };
    assert!(shown.contains("http://127.0.0.1:3: drained"), "{shown}");
    assert!(
        shown.contains("named by discovery, with live changes"),
        "{shown}"
    );
}
