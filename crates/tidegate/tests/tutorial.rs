//! The tutorial, step by step as its reader goes through it: its own command lines, on ports that
//! are free, with shorter loads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidegate_testing::process::Process;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutorial.md");

/// A fenced block with its language.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n')).collect()
}

/// What the page's reader has done so far.
struct Reader<'a> {
    directory: &'a Path,
    /// Addresses of the page, and those that stand for them here.
    addresses: BTreeMap<&'static str, String>,
    running: Vec<Process>,
    /// The line that starts the service.
    service: String,
    reports: Vec<Value>,
    checked: bool,
}

impl Reader<'_> {
    /// With the addresses of this run.
    fn here(&self, text: &str) -> String {
        let replace = |text: String, (page, here): (&&str, &String)| text.replace(*page, here);
        self.addresses.iter().fold(text.to_owned(), replace)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let words: Vec<_> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        command.args(words).current_dir(self.directory);
        command
    }

    fn start(&mut self, line: &str, listens: &'static str, more: &[&str]) {
        let mut command = self.command(&self.here(&line.replace(listens, "127.0.0.1:0")));
        let process = Process::spawn(command.args(more).arg("--json"));
        let addr = process.addr("listen").to_owned();
        self.addresses.insert(listens, addr);
        self.running.push(process);
    }

    fn load(&mut self, line: &str) {
        assert!(line.contains("--duration 20s"), "{line}");
        let line = self.here(&line.replace("--duration 20s", "--duration 3s"));
        let output = self.command(&line).arg("--json").output().unwrap();
        let report = serde_json::from_slice(&output.stdout);
        self.reports
            .push(report.unwrap_or_else(|e| panic!("{line}: {e}: {output:?}")));
    }

    fn follow(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().take(2).collect();
        match words[..] {
            // Building it is what cargo did before this test; a terminal is looked at by people.
            ["cargo", "install"] | ["tidegate", "top"] => {}
            ["tidegate", "app"] => {
                self.service = line.to_owned();
                self.start(line, "127.0.0.1:3000", &[]);
            }
            ["tidegate", "run"] if line.contains("--upstream") => {
                self.start(line, "127.0.0.1:8080", &["--admin", "127.0.0.1:0"]);
            }
            // The one of the step before is ended, as on the terminal.
            ["tidegate", "run"] => {
                self.running.pop();
                let anywhere = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
                self.start(line, "127.0.0.1:8080", &anywhere);
            }
            ["tidegate", "load"] => {
                self.load(line);
                // "Start it anew", the page says of the service that broke down.
                if line.contains("127.0.0.1:3000") {
                    self.running.pop();
                    let service = self.service.clone();
                    self.start(&service, "127.0.0.1:3000", &[]);
                }
            }
            ["tidegate", "check"] => {
                let output = self.command(line).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                self.checked = true;
            }
            _ => panic!("this test does not know the step `{line}`: teach it"),
        }
    }
}

#[test]
fn tutorial_does_what_it_says() {
    let page = fs::read_to_string(PAGE).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader {
        directory: directory.path(),
        addresses: BTreeMap::new(),
        running: Vec::new(),
        service: String::new(),
        reports: Vec::new(),
        checked: false,
    };
    for (language, text) in blocks(&page) {
        if language == "toml" {
            let file = directory.path().join("tidegate.toml");
            fs::write(file, reader.here(text)).unwrap();
            continue;
        }
        for line in text.lines().filter(|line| !line.is_empty()) {
            reader.follow(line);
        }
    }

    let [alone, protected] = &reader.reports[..] else {
        panic!("the page sends load twice: {:?}", reader.reports);
    };
    let count = |report: &Value, key: &str| report["requests"][key].as_u64().unwrap();
    assert_eq!(count(alone, "shed"), 0, "nothing refuses: {alone}");
    assert!(count(protected, "shed") > 0, "{protected}");
    assert!(count(protected, "within_target") > 0, "{protected}");
    assert!(reader.checked);
    let proxy = reader
        .running
        .pop()
        .expect("the page ends with a proxy that runs");
    proxy.finish();
}
