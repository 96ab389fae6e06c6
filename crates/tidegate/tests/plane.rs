//! `tidegate plane` in front of `tidegate run`, with `tidegate app` as the servers it starts.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of their functions

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};
use serde_json::Value;
use tidegate_testing::blocking;
use tidegate_testing::process::{Process, Signal};

/// Longest wait for anything, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(90);

fn start(args: &[&str]) -> Process {
    Process::start(env!("CARGO_BIN_EXE_tidegate"), args)
}

/// Ends it, and waits until it has.
fn end(process: &mut Process, signal: Signal) {
    process.signal(signal);
    process.wait();
}

fn call(addr: &str, method: &str, path: &str, body: &str) -> Value {
    let answer = blocking::call(addr, method, path, body);
    serde_json::from_str(&answer.text()).unwrap_or_else(|e| panic!("{e}: {answer:?}"))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A proxy, a plane and the folder of their files.
struct Platform {
    folder: tempfile::TempDir,
    proxy: Process,
    plane: Process,
}

fn plane_file(folder: &Path, admin: &str, on_exit: &str) -> PathBuf {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let file = folder.join("plane.toml");
    let state = folder.join("plane.state");
    let text = format!(
        "[daemon]\nmode = 'act'\nlisten = '127.0.0.1:0'\nproxies = ['http://{admin}']\n\
         interval = '100ms'\nstate_file = '{}'\non_exit = '{on_exit}'\n\
         [plane]\nplan_interval = '1s'\nscale_in = {{ window = '3s' }}\n\
         prediction = {{ enabled = false }}\nreaction = {{ window = '1s' }}\n\
         [[plane.application]]\nname = 'shop'\nmax = 4\ntarget = '500ms'\nstart_time = '1s'\n\
         [driver.shop.processes]\ncommand = ['{program}', 'app', '--listen', '127.0.0.1:{{port}}', \
         '--workers', '2', '--service', 'exp:40ms']\n",
        state.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

impl Platform {
    /// Servers do 50/s each. The address in the proxy's file is nobody's.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.toml");
        let text = "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n\
                    [[application]]\nname = 'shop'\nupstream = 'http://127.0.0.1:9'\n\
                    protect.target = '500ms'\n";
        std::fs::write(&file, text).unwrap();
        let proxy = start(&["run", "--json", "-c", file.to_str().unwrap()]);
        let file = plane_file(folder.path(), proxy.addr("admin"), "keep");
        let plane = start(&["plane", "--json", "-c", file.to_str().unwrap()]);
        Self {
            folder,
            proxy,
            plane,
        }
    }

    /// Another daemon with the same state file.
    fn restart_plane(&mut self, on_exit: &str) {
        let file = plane_file(self.folder.path(), self.proxy.addr("admin"), on_exit);
        self.plane = start(&["plane", "--json", "-c", file.to_str().unwrap()]);
    }

    /// Addresses of the servers that the proxy sends requests to, with what each served.
    fn serving(&self) -> Vec<(String, u64)> {
        let path = "/api/applications/shop/replicas";
        let pool = call(self.proxy.addr("admin"), "GET", path, "");
        let replicas = pool["replicas"].as_array().unwrap().iter();
        let well = replicas.filter(|it| it["healthy"] == true && it["state"] == "active");
        let seen = |it: &Value| {
            (
                it["url"].as_str().unwrap().to_owned(),
                it["served"].as_u64(),
            )
        };
        well.map(seen)
            .map(|(url, served)| (url, served.unwrap()))
            .collect()
    }

    fn events(&self) -> String {
        call(self.plane.addr("listen"), "GET", "/api/events", "").to_string()
    }

    fn load(&self, rate: &str, duration: &str) -> Child {
        let url = format!("http://{}/", self.proxy.addr("listen"));
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["load", &url, "--rate", rate, "--duration", duration])
            .args(["--timeout", "30s", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Platform {
    /// Servers outlive the daemon; those in the state file end with the test.
    fn drop(&mut self) {
        let text = std::fs::read(self.folder.path().join("plane.state")).unwrap_or_default();
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        let servers = state["servers"]["shop"].as_array();
        for server in servers.into_iter().flatten() {
            let pid = server["pid"]
                .as_i64()
                .and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = pid.and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Every request was answered by a server, or refused by the proxy for load.
fn none_lost(load: Child) -> Value {
    let out = load.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let count = |what: &str| report["requests"][what].as_u64().unwrap();
    assert_eq!(
        count("ok") + count("shed") + count("unsent"),
        count("total"),
        "{}",
        report["requests"]
    );
    assert!(count("ok") > 0);
    report
}

fn is_open(url: &str) -> bool {
    TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/')).is_ok()
}

#[test]
fn plane_scales_a_live_pool_out_and_in_and_no_request_is_lost() {
    let mut platform = Platform::start();
    until("a first server", || !platform.serving().is_empty());
    let load = platform.load("160/s", "8s");
    until("more servers", || platform.serving().len() >= 3);
    none_lost(load);
    let events = platform.events();
    assert!(events.contains("\"applied\":true"), "{events}");
    assert!(events.contains(" needed"), "{events}");
    let before = platform.serving();

    // A crash: the next daemon takes over what runs, and begins nothing anew.
    end(&mut platform.plane, Signal::KILL);
    platform.restart_plane("stop");
    let light = platform.load("10/s", "8s");
    until("one server", || platform.serving().len() == 1);
    let last = platform.serving().remove(0).0;
    none_lost(light);
    assert!(before.iter().any(|(url, _)| *url == last), "{before:?}");
    until("the others end", || {
        before.iter().filter(|(url, _)| is_open(url)).count() == 1
    });

    // The kill switch: decisions are reported, nothing is done.
    let api = platform.plane.addr("listen").to_owned();
    let servers = |platform: &Platform| {
        let serving = platform.serving().into_iter();
        serving.map(|(url, _)| url).collect::<Vec<_>>()
    };
    let kept = servers(&platform);
    call(&api, "POST", "/api/kill-switch", "{\"enabled\":true}");
    let load = platform.load("160/s", "4s");
    until("a decision that is not carried out", || {
        platform.events().contains("\"applied\":false")
    });
    none_lost(load);
    assert_eq!(servers(&platform), kept);

    end(&mut platform.plane, Signal::TERM);
    until("the servers end", || !kept.iter().any(|url| is_open(url)));
}

#[test]
fn plane_of_an_unknown_application_names_it_and_stops_nothing() {
    let platform = Platform::start();
    until("a first server", || !platform.serving().is_empty());
    let before = platform.serving();
    let file = plane_file(platform.folder.path(), platform.proxy.addr("admin"), "stop");
    let text = std::fs::read_to_string(&file).unwrap();
    let state = platform.folder.path().join("other.state");
    let text = text
        .replace("'shop'", "'shoe'")
        .replace("driver.shop", "driver.shoe");
    let text = text.replace(
        &platform
            .folder
            .path()
            .join("plane.state")
            .display()
            .to_string(),
        &state.display().to_string(),
    );
    std::fs::write(&file, text).unwrap();
    let other = start(&["plane", "--json", "-c", file.to_str().unwrap()]);
    until("the warning", || {
        let status = call(other.addr("listen"), "GET", "/api/status", "").to_string();
        status.contains("there is no application `shoe`")
    });
    let after = platform.serving();
    let serves = |url: &String| after.iter().any(|(other, _)| other == url);
    assert!(
        before.iter().all(|(url, _)| serves(url)),
        "{before:?} {after:?}"
    );
    other.finish();
}
