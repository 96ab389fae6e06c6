//! The questions of an operator at 3 a.m., answered by `tidegate top` alone, on a running overload.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_testing::blocking;
use tidegate_testing::process::Process;

/// Longest wait for something that has to happen on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ends with its test.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn app(service: &str, seed: &str) -> Process {
    let place = ["app", "--listen", "127.0.0.1:0", "--workers", "2", "--json"];
    let what = ["--service", service, "--seed", seed];
    Process::start(
        env!("CARGO_BIN_EXE_tidegate"),
        &[&place[..], &what].concat(),
    )
}

fn load(listen: &str, path: &str, rate: &str) -> Load {
    let url = format!("http://{listen}{path}");
    let flags = ["--rate", rate, "--duration", "300s", "--timeout", "2s"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["load", &url]).args(flags);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Load(command.spawn().unwrap())
}

fn top(admin: &str, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(["top", "--admin", admin, "--once"]).args(more);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The picture of which this holds.
fn until(what: &str, mut picture: impl FnMut() -> String, holds: impl Fn(&str) -> bool) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let picture = picture();
        if holds(&picture) {
            return picture;
        }
        assert!(Instant::now() < end, "it never happened: {what}\n{picture}");
    }
}

/// The id of a request that is refused now.
fn refused_id(listen: &str) -> String {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let answer = blocking::get(listen, "/list");
        if answer.status == 503 {
            return answer.header("x-request-id").unwrap().to_owned();
        }
    }
    panic!("no request is refused");
}

#[test]
fn top_alone_answers_the_questions_of_an_overload() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, slow) = (app("exp:30ms", "1"), app("exp:120ms", "2"));
    let file = dir.path().join("tidegate.toml");
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = ['{}', '{}']\n\
         protect.target = '600ms'\n\
         protect.classes = [{{ name = 'gold', revenue = 5 }}, {{ name = 'bronze' }}]\n\
         classify = [{{ class = 'gold', path = '/gold' }}]\n",
        fast.url("listen"),
        slow.url("listen")
    );
    fs::write(&file, text).unwrap();
    let config = file.display().to_string();
    let run = ["run", "--config", &config, "--json"];
    let proxy = Process::start(env!("CARGO_BIN_EXE_tidegate"), &run);
    let (listen, admin) = (proxy.addr("listen"), proxy.url("admin"));
    let _gold = load(listen, "/gold/basket", "10/s");
    let _bronze = load(listen, "/list", "150/s");
    // Is it overloaded, and since when? Who is shed, and why? What would help?
    let answered = |picture: &str| {
        [
            "Overloaded since ",
            "shed of bronze",
            "In this overload: ",
            "  shed: predicted ",
            "What would help:",
            "/list",
            "overload began: ",
            " because ",
        ]
        .iter()
        .all(|part| picture.contains(part))
    };
    let picture = until("an overload in words", || top(&admin, &[]), answered);
    // What is the capacity?
    let figures = picture.lines().find(|line| line.starts_with("goodput "));
    let capacity = figures.and_then(|line| line.split("capacity ").nth(1));
    let capacity = capacity.and_then(|rest| rest.split("/s").next());
    let capacity: f64 = capacity.unwrap().parse().unwrap();
    assert!((10.0..300.0).contains(&capacity), "{picture}");
    // Which replica is slow?
    let slow = slow.addr("listen").to_owned();
    let is_slow = |picture: &str| {
        let mut rows = picture.lines().filter(|line| line.starts_with(&slow));
        rows.any(|row| row.contains("slow") || row.contains("ejected"))
    };
    until("the slow replica", || top(&admin, &[]), is_slow);
    // What became of the request with this id?
    let id = refused_id(listen);
    let why = top(&admin, &["--why", &id]);
    assert!(why.contains("in class bronze."), "{why}");
    assert!(why.contains("the limit was"), "{why}");
    if std::env::var_os("TIDEGATE_SHOW").is_some() {
        println!("{}", top(&admin, &["--why", &id]));
    }
}

#[test]
fn top_shows_what_is_wrong_with_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    let good = "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nupstream = 'http://127.0.0.1:1'\n";
    fs::write(&file, good).unwrap();
    let config = file.display().to_string();
    let run = ["run", "--config", &config, "--json"];
    let proxy = Process::start(env!("CARGO_BIN_EXE_tidegate"), &run);
    let admin = proxy.url("admin");
    fs::write(&file, format!("{good}protcet = 1\n")).unwrap();
    let ctl = |command: &str| {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = ctl.args(["ctl", "--admin", &admin, command]).output();
        let output = output.unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert!(ctl("reload").contains("protcet"), "the file is refused");
    for words in [top(&admin, &[]), ctl("warnings"), ctl("status")] {
        assert!(words.contains("protcet"), "{words}");
    }
}
