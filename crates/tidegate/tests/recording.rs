//! `tidegate recording` as a person calls it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tidegate_record::{Decision, Ending, FileWriter, Meta, Request, Tables};

fn tidegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// A log of 60 seconds with ten requests each.
fn log(dir: &Path) -> String {
    let mut text = String::new();
    for second in 0..60 {
        for number in 0..10 {
            text += &format!(
                "192.0.2.1 - - [10/Oct/2026:13:55:{second:02} +0000] \
                 \"GET /user/{number}/orders HTTP/1.1\" 200 512 \"-\" \"x\" 0.0{number} 0.0{number}\n"
            );
        }
    }
    let path = dir.join("access.log");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn recording_of_a_log_can_be_looked_at_cut_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (all, part) = (file("all.tgrec"), file("part.tgrec"));
    stdout(&tidegate(&["recording", "import", &log, "-o", &all]));
    let info = stdout(&tidegate(&["recording", "info", &all]));
    assert!(info.contains("600 in 1 file"), "{info}");
    assert!(info.contains("/user/:id/orders"), "{info}");
    let bytes = fs::metadata(&all).unwrap().len() as f64;
    let json = stdout(&tidegate(&["recording", "info", &all, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["bytes_per_request"],
        bytes / 600.0,
        "of the whole file"
    );
    assert!(json["row_bytes_per_request"].as_f64() < json["bytes_per_request"].as_f64());
    stdout(&tidegate(&[
        "recording",
        "cut",
        &all,
        "--from",
        "10s",
        "--to",
        "20s",
        "--no-names",
        "-o",
        &part,
    ]));
    let csv = stdout(&tidegate(&["recording", "export", &part]));
    assert_eq!(csv.lines().count(), 1 + 100, "{csv}");
    assert!(csv.starts_with("time,application,class,path,"), "{csv}");
    assert!(!csv.contains("orders"), "names were left out");
    let json = stdout(&tidegate(&[
        "recording",
        "export",
        &part,
        "--format",
        "jsonl",
    ]));
    let row: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(row["status"], 200);
}

#[test]
fn recording_that_is_torn_is_read_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let file = dir.path().join("a.tgrec");
    let shown = file.display().to_string();
    stdout(&tidegate(&["recording", "import", &log, "-o", &shown]));
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, [&bytes[..], &bytes[8..40]].concat()).unwrap();
    let output = tidegate(&["recording", "info", &shown]);
    assert!(stdout(&output).contains("600 in 1 file"));
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    let place = format!("byte {}", bytes.len());
    assert!(
        warning.contains(&place) && warning.contains("torn"),
        "{warning}"
    );
}

#[test]
fn recording_that_is_none_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let output = tidegate(&["recording", "info", &log]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("recording import"), "{message}");
}

/// What nginx writes by default: no times.
fn untimed_log(dir: &Path) -> String {
    let line = "192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"\n";
    let path = dir.join("untimed.log");
    fs::write(&path, line.repeat(300)).unwrap();
    path.display().to_string()
}

fn refused(args: &[&str]) -> String {
    let output = tidegate(args);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn forecast_of_a_log_without_times_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let log = untimed_log(dir.path());
    let file = dir.path().join("a.tgrec").display().to_string();
    let output = tidegate(&["recording", "import", &log, "-o", &file]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("300 of them without a response time"),
        "{said}"
    );
    for command in [
        &["whatif", file.as_str(), "--mode", "auto"][..],
        &["plan", "--recording", &file],
    ] {
        let error = refused(command);
        assert!(
            error.contains("0 of the 300") && error.contains("log response times"),
            "{error}"
        );
    }
}

#[test]
fn export_that_cannot_be_leaves_the_file_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (recording, table) = (file("a.tgrec"), file("table"));
    stdout(&tidegate(&["recording", "import", &log, "-o", &recording]));
    fs::write(&table, "mine").unwrap();
    let export = ["recording", "export", &recording, "-o", &table];
    let error = refused(&[&export[..], &["--events"]].concat());
    assert!(error.contains("--format jsonl"), "{error}");
    if cfg!(not(feature = "parquet")) {
        let error = refused(&[&export[..], &["--format", "parquet"]].concat());
        assert!(error.contains("--features parquet"), "{error}");
    }
    assert_eq!(fs::read_to_string(&table).unwrap(), "mine");
    let cut = ["recording", "cut", &recording, "--from", "9s", "--to", "3s"];
    let error = refused(&[&cut[..], &["-o", &file("part")]].concat());
    assert!(error.contains("later than --from"), "{error}");
}

#[test]
fn export_into_a_pipe_that_closes_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let recording = dir.path().join("a.tgrec").display().to_string();
    stdout(&tidegate(&["recording", "import", &log, "-o", &recording]));
    for format in ["csv", "jsonl"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["recording", "export", &recording, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{format}: {output:?}");
    }
}

#[test]
fn plan_of_a_recording_has_nothing_left_where_all_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(dir.path());
    let recording = dir.path().join("a.tgrec").display().to_string();
    stdout(&tidegate(&["recording", "import", &log, "-o", &recording]));
    let plan = ["plan", "--recording", &recording, "--replicas", "1..2"];
    let table = stdout(&tidegate(&[&plan[..], &["--kill", "1"]].concat()));
    let last = |row: usize| {
        table
            .lines()
            .nth(row)
            .unwrap()
            .rsplit("  ")
            .next()
            .unwrap()
            .trim()
    };
    assert_eq!(last(1), "0.0 %", "{table}");
    assert_ne!(last(2), "0.0 %", "{table}");
    assert!(
        table.contains("1 replica keeps 99 % within the target"),
        "{table}"
    );
    assert!(
        table.contains("note: nothing protected the service"),
        "{table}"
    );
    for column in ["revenue/s", "kept up to", "headroom"] {
        assert!(table.contains(column), "{table}");
    }
    let protected = stdout(&tidegate(&[&plan[..], &["--target", "300ms"]].concat()));
    assert!(
        protected.contains("the plan is with mode auto"),
        "{protected}"
    );
    let error = refused(&["whatif", &recording, "--set", "target=300ms"]);
    assert!(error.contains("say with which mode"), "{error}");
    let error = refused(&[&plan[..], &["--service", "9ms"]].concat());
    assert!(error.contains("cannot be used with"), "{error}");
    let error = refused(&["whatif", &recording, "--set", "replicas=-1"]);
    assert!(error.contains("at least one has to be left"), "{error}");
}

/// A recording of two applications, each with a replica of its own: the shop's is slow.
fn two_applications(dir: &Path) -> String {
    let texts = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let protect = |target: &str| serde_json::json!({ "target": target });
    let meta = Meta {
        tables: Tables {
            applications: texts(["shop", "blog"]),
            classes: texts(["default", "default"]),
            replicas: texts(["http://a", "http://b"]),
            class_applications: vec![0, 1],
            replica_applications: vec![0, 1],
            ..Tables::default()
        },
        config: Some(serde_json::json!({
            "protect": protect("5s"),
            "application": [
                { "name": "shop", "protect": protect("400ms") },
                { "name": "blog" },
            ],
        })),
        ..Meta::default()
    };
    let path = dir.join("two.tgrec");
    let mut writer = FileWriter::create_file(&path, meta).unwrap();
    for number in 0..3000_u64 {
        let blog = number % 3 == 0;
        let took = if blog { 5_000 } else { 80_000 };
        writer.request(Request {
            at_us: number * 20_000,
            application: u16::from(blog),
            class: u16::from(blog),
            replica: if blog { 2 } else { 1 },
            decision: Decision::Admitted,
            ending: Ending::Served,
            status: 200,
            service_us: took + number % 7 * 100,
            response_us: took + 1000,
            ..Request::default()
        });
    }
    writer.finish().unwrap();
    path.display().to_string()
}

#[test]
fn one_of_several_applications_is_forecast_and_cut_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let recording = two_applications(dir.path());
    let out = dir.path().join("out").display().to_string();
    let whatif = ["whatif", &recording, "--out", &out, "--json"];
    for command in [&whatif[..], &["plan", "--recording", &recording]] {
        let error = refused(command);
        assert!(
            error.contains("shop (2000 requests), blog (1000"),
            "{error}"
        );
        assert!(error.contains("--application NAME"), "{error}");
        let error = refused(&[command, &["--application", "shob"]].concat());
        assert!(error.contains("shop, blog"), "{error}");
    }
    let json = stdout(&tidegate(
        &[&whatif[..], &["--application", "shop"]].concat(),
    ));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let recorded = &json["answer"]["recorded"];
    assert!(
        (recorded["p50_seconds"].as_f64().unwrap() - 0.08).abs() < 0.01,
        "{recorded}"
    );
    let service = json["service"].as_str().unwrap();
    assert!(service.starts_with("1 replica(s)"), "{service}");
    let blog = dir.path().join("blog.tgrec").display().to_string();
    let cut = [
        "recording",
        "cut",
        &recording,
        "--application",
        "blog",
        "-o",
        &blog,
    ];
    stdout(&tidegate(&cut));
    let csv = stdout(&tidegate(&["recording", "export", &blog]));
    assert_eq!(csv.lines().count(), 1 + 1000);
    assert!(!csv.contains("shop"), "{csv}");
    // Alone in its recording it needs no name, and keeps its protection.
    let plan = stdout(&tidegate(&["whatif", &blog, "--out", &out, "--json"]));
    assert!(plan.contains("\"1 replica(s)"), "{plan}");
}
