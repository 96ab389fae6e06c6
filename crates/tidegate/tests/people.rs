//! `tidegate sim`, `plan` and `whatif` as people call them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_testing::process::Process;

fn tidegate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn new_file_is_valid_as_it_is_and_uncommented() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    let commented = stdout(&tidegate(&["sim", "--new"]));
    let uncommented: Vec<&str> = commented
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest,
            _ => line,
        })
        .filter(|line| !line.starts_with("duration") && !line.starts_with("warm_up"))
        .collect();
    let short = "duration = '30s'\nwarm_up = '5s'\n";
    for (name, text) in [
        ("commented.toml", format!("{short}{commented}")),
        ("all.toml", format!("{short}{}", uncommented.join("\n"))),
    ] {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        let table = stdout(&tidegate(&["sim", file.to_str().unwrap(), "--out", &out]));
        assert!(
            table.contains("auto") && table.contains("in target"),
            "{table}"
        );
    }
}

#[test]
fn misspelt_key_of_a_service_is_answered_with_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    fs::write(&file, "rate = '10/s'\nserivce = '20ms'\n").unwrap();
    let output = tidegate(&["sim", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains(":2:") && message.contains("`service`"),
        "{message}"
    );
}

#[test]
fn plan_says_how_many_replicas_in_words() {
    let flags = [
        "plan",
        "--rate",
        "100/s",
        "--service",
        "20ms",
        "--workers",
        "2",
        "--kill",
        "1",
    ];
    let text = stdout(&tidegate(&flags));
    // A replica does 100/s.
    assert!(
        text.contains("\n2 replicas keep 99 % within 500 ms up to"),
        "{text}"
    );
    assert!(text.contains("With 1 lost, 1 replica keeps"), "{text}");
    let refused = tidegate(&[
        "plan",
        "--rate",
        "100/s",
        "--service",
        "20ms",
        "--replicas",
        "9..2",
    ]);
    assert_eq!(refused.status.code(), Some(2));
}

/// A log of a service with two workers of 20 ms at 90 % of what it can do.
fn log() -> String {
    let (mut text, mut state, mut free) = (String::new(), 1_u64, [0.0_f64; 2]);
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        -(((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64).ln()
    };
    let mut at = 0.0;
    for _ in 0..8000 {
        at += draw() / 90.0;
        let first = usize::from(free[1] < free[0]);
        free[first] = free[first].max(at) + 0.02 * draw();
        let took = free[first] - at;
        let (minute, second) = ((at / 60.0) as u64, at % 60.0);
        text += &format!(
            "10.0.0.1:1 [06/Feb/2026:12:{minute:02}:{second:06.3}] in web/a 0/0/0/{0}/{0} 200 9 - - \
             ---- 1/1/1/1/0 0/0 \"GET /a HTTP/1.1\"\n",
            (took * 1000.0).round().max(1.0)
        );
    }
    text
}

#[test]
fn whatif_checks_itself_and_sees_what_a_replica_brings() {
    let dir = tempfile::tempdir().unwrap();
    let (log_file, file) = (dir.path().join("a.log"), dir.path().join("a.tgrec"));
    let out = dir.path().join("out");
    fs::write(&log_file, log()).unwrap();
    let (log_file, file) = (log_file.to_str().unwrap(), file.to_str().unwrap());
    stdout(&tidegate(&["recording", "import", log_file, "-o", file]));
    let flags = [
        "whatif",
        file,
        "--target",
        "300ms",
        "--variant",
        "replicas=+1",
        "--json",
    ];
    let more = ["--repetitions", "2", "--out", out.to_str().unwrap()];
    let answer = stdout(&tidegate(&[&flags[..], &more[..]].concat()));
    let value: Value = serde_json::from_str(&answer).unwrap();
    let answer = &value["answer"];
    let distance = |name: &str| answer["distance"][name].as_f64().unwrap().abs();
    assert!(distance("goodput_per_second") < 0.02, "{value:#}");
    assert!(distance("p95_seconds") < 0.05, "{value:#}");
    assert!(distance("p99_seconds") < 0.10, "{value:#}");
    let p95 = |row: usize| {
        answer["rows"][row]["figures"]["p95_seconds"]
            .as_f64()
            .unwrap()
    };
    assert!(p95(1) < 0.7 * p95(0), "{value:#}");
    assert!(out.join("whatif.html").exists());
    let refused = tidegate(&["whatif", file, "--set", "replica=1"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn applications_have_rows_and_errors_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let file = dir.path().join("my.toml");
    let path = file.to_str().unwrap();
    let text = "duration = '30s'\nwarm_up = '10s'\nmodes = ['auto']\nfleet = { proxies = 2 }\n\
                [[application]]\nname = 'shop'\nchange = [{ at = '15s', add = 1 }]\n\
                [[application]]\nname = 'api'\nrate = '640/s'\n";
    fs::write(&file, text).unwrap();
    let args = ["sim", path, "--out", out.to_str().unwrap()];
    let table = stdout(&tidegate(&args));
    for part in [
        "application",
        "shop",
        "api",
        "all",
        "api: 640/s arrive at first",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(
        page.contains("replicas that get requests"),
        "the pool has a figure"
    );
    let json: Value =
        serde_json::from_str(&stdout(&tidegate(&[&args[..], &["--json"]].concat()))).unwrap();
    let names = json["rows"].as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|row| row["application"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["shop", "api", "all"]);
    fs::write(&file, text.replace("add = 1", "remove = 9")).unwrap();
    let output = tidegate(&args);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        path,
        "application `shop`",
        "change at 15s",
        "`remove` is 9, and 2 replicas",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn plan_reads_what_a_running_proxy_has_measured() {
    let start = |args: &[&str]| Process::start(env!("CARGO_BIN_EXE_tidegate"), args);
    let local = ["--listen", "127.0.0.1:0", "--json"];
    let app = ["app", "--workers", "4", "--service", "det:20ms"];
    let app = start(&[&app[..], &local].concat());
    let upstream = format!("http://{}", app.addr("listen"));
    let run = ["run", "--admin", "127.0.0.1:0", "--upstream", &upstream];
    let more = ["--target", "700ms"];
    let proxy = start(&[&run[..], &more, &local].concat());
    let admin = format!("http://{}", proxy.addr("admin"));
    // Nothing was served yet: a plan would be made of nothing.
    let plan = [
        "plan",
        "--admin",
        &admin,
        "--workers",
        "4",
        "--replicas",
        "1..2",
    ];
    let refused = tidegate(&plan);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("ask again under traffic"), "{error}");
    let url = format!("http://{}/", proxy.addr("listen"));
    let load = ["load", &url, "--rate", "60/s", "--duration", "5s", "--json"];
    stdout(&tidegate(&load));
    let text = stdout(&tidegate(&[&plan[..], &["--json"]].concat()));
    let answer: Value = serde_json::from_str(&text).unwrap();
    let note = answer["notes"][0].as_str().unwrap();
    assert!(note.contains("1 replica(s) with 4 at once each"), "{note}");
    let words = answer["words"].as_str().unwrap();
    assert!(
        words.contains("within 700 ms"),
        "the proxy's target: {words}"
    );
    // 4 workers of 20 ms and more, on a machine that may be busy.
    let kept = answer["rows"][0]["kept_per_second"].as_f64().unwrap();
    assert!((20.0..210.0).contains(&kept), "{answer}");
    let error = tidegate(&["plan", "--admin", &admin, "--application", "shop"]);
    let error = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(error.contains("no application `shop`"), "{error}");
}

#[test]
fn plan_from_flags_knows_classes() {
    let flags = [
        "plan",
        "--rate",
        "180/s",
        "--service",
        "20ms",
        "--workers",
        "2",
    ];
    let classes = ["--class", "gold=20%:5", "--class", "free=80%"];
    let more = ["--replicas", "2", "--kill", "1"];
    let text = stdout(&tidegate(&[&flags[..], &classes, &more].concat()));
    assert!(text.contains("gold (") && text.contains("free ("), "{text}");
    let refused = tidegate(&[&flags[..], &["--class", "gold"]].concat());
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("write gold=20%"), "{error}");
}

#[test]
fn characterize_reads_the_file_of_a_service() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("my-service.toml");
    fs::write(
        &file,
        "rate = '50/s'\nservice = '20ms'\nworkers = 2\nreplicas = 1\n",
    )
    .unwrap();
    let out = dir.path().join("out").display().to_string();
    let flags = [
        "characterize",
        "--sim",
        file.to_str().unwrap(),
        "--target-only",
    ];
    let text = stdout(&tidegate(
        &[&flags[..], &["--out", &out, "--json"]].concat(),
    ));
    let found: Value = serde_json::from_str(&text).unwrap();
    assert!(found.is_object(), "{text}");
    fs::write(&file, "rate = '50/s'\nserivce = '20ms'\n").unwrap();
    let error = tidegate(&flags);
    let error = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(error.contains("did you mean `service`"), "{error}");
}
