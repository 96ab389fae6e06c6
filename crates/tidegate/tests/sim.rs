//! `tidegate sim` and `tidegate characterize` as a person or a program meets them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const EXPERIMENT: &str = r#"
paper = "ours"
figure = "1"
title = "A short queue"
seed = 3
repetitions = 3

[model.queue.scenario]
duration = "60s"
service = { law = "exponential", mean = "50ms" }
load = { rate = "10/s" }
replica = { cores = 1 }

[[run]]
name = "queue"
model = "queue"

[[check]]
metric = "mean utilization"
run = "queue"
of = { series = "utilization" }
paper = 0.5
tolerance = 0.1

[[plot]]
title = "Utilization"
x = "time (s)"
y = "utilization"
layers = [{ run = "queue", series = "utilization", draw = "example" }]
"#;

const PLANT: &str = r#"
duration = "60s"
service = "40ms"
load = { rate = "1/s", client = { timeout = "5s" } }
replica = { cores = 2 }
"#;

fn tidegate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn folder_with(name: &str, text: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(name), text).unwrap();
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit status 2, nothing on standard output, nothing written; returns what it says.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = tidegate(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(!folder.join("out").exists());
    text(&output.stderr)
}

#[test]
fn an_experiment_gives_a_table_a_report_figures_and_data() {
    let folder = folder_with("e.toml", EXPERIMENT);
    let output = tidegate(folder.path(), &["sim", "e.toml"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("agrees"));
    let said = text(&output.stderr);
    assert!(
        said.contains("seed 3") && said.contains(env!("CARGO_PKG_VERSION")),
        "{said}"
    );
    assert!(said.contains("3 of 3 done"), "{said}");

    let out = folder.path().join("out");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("seed 3"));
    assert!(
        !page.contains("src=") && !page.contains("href="),
        "a page of its own"
    );
    assert!(
        fs::read_to_string(out.join("figures/ours-figure-1-1.svg"))
            .unwrap()
            .contains("Utilization")
    );
    let data = fs::read_to_string(out.join("data/ours-figure-1-1.csv")).unwrap();
    assert_eq!(data.lines().count(), 61);
}

#[test]
fn json_has_one_object_per_comparison() {
    let folder = folder_with("e.toml", EXPERIMENT);
    let run =
        |seed: &str| tidegate(folder.path(), &["sim", "e.toml", "--json", "--seed", seed]).stdout;
    let line: Value = serde_json::from_slice(&run("3")).unwrap();
    let keys: Vec<&str> = line
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "paper",
        "figure",
        "metric",
        "paper_value",
        "ours",
        "ci",
        "verdict",
    ];
    assert_eq!(BTreeSet::from_iter(keys), BTreeSet::from(expected));
    assert_eq!(line["paper_value"], 0.5);
    assert_eq!(line["verdict"], "agrees");
    let interval = line["ci"].as_array().unwrap();
    let (low, high) = (interval[0].as_f64().unwrap(), interval[1].as_f64().unwrap());
    assert!(low < line["ours"].as_f64().unwrap() && line["ours"].as_f64().unwrap() < high);

    assert_eq!(run("3"), run("3"), "the same seed gives the same result");
    assert_ne!(run("3"), run("4"));
}

#[test]
fn a_difference_is_exit_status_1() {
    let folder = folder_with("e.toml", &EXPERIMENT.replace("paper = 0.5", "paper = 0.9"));
    let output = tidegate(folder.path(), &["sim", "e.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("differs"));
}

#[test]
fn papers_run_in_any_folder() {
    let folder = TempDir::new().unwrap();
    let output = tidegate(
        folder.path(),
        &["sim", "papers", "--only", "002/6", "--json"],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in text(&output.stdout).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["paper"], &line["figure"]),
            (&"002".into(), &"6".into())
        );
    }
    assert!(
        folder
            .path()
            .join("out/figures/002-figure-6-1.svg")
            .exists()
    );
}

#[test]
fn bad_input_is_one_message_with_its_place() {
    let folder = folder_with("e.toml", &EXPERIMENT.replace("repetitions", "repetitoins"));
    assert_eq!(
        refused(folder.path(), &["sim", "e.toml"]),
        "tidegate: e.toml:6:1: unknown key `repetitoins`; did you mean `repetitions`?\n"
    );
    let deep = EXPERIMENT.replace("cores = 1", "croes = 1");
    fs::write(folder.path().join("e.toml"), deep).unwrap();
    let said = refused(folder.path(), &["sim", "e.toml"]);
    assert!(
        said.starts_with("tidegate: e.toml:12:") && said.contains("did you mean `cores`"),
        "{said}"
    );

    let said = refused(folder.path(), &["sim", "missing.toml"]);
    assert!(said.starts_with("tidegate: missing.toml: "), "{said}");
    let said = refused(folder.path(), &["sim", "papers", "--only", "002/99"]);
    assert!(
        said.contains("no such figure") && said.contains("002/7"),
        "{said}"
    );
    refused(folder.path(), &["sim"]);
}

#[test]
fn one_bad_file_among_good_ones_keeps_all_from_running() {
    let folder = folder_with("good.toml", EXPERIMENT);
    fs::write(folder.path().join("bad.toml"), "paper = 1").unwrap();
    let said = refused(folder.path(), &["sim", "good.toml", "bad.toml"]);
    assert!(said.contains("bad.toml:1:"), "{said}");
}

#[test]
fn a_service_is_characterized_and_its_configuration_is_accepted() {
    let folder = folder_with("plant.toml", PLANT);
    let arguments = ["characterize", "--sim", "plant.toml", "--json"];
    let arguments = [
        &arguments[..],
        &["--measurement-interval", "1s", "--tuning-interval", "2s"],
    ]
    .concat();
    let output = tidegate(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let peak = found["peak_goodput_per_s"].as_f64().unwrap();
    assert!((peak - 50.0).abs() < 3.0, "two workers of 25/s: {peak}");
    assert!(
        found["gain"][0][0].as_f64().unwrap() < 0.0,
        "slower answers admit less"
    );
    assert!(
        found["gain"][0][1].as_f64().unwrap() > 0.0,
        "missing goodput admits more"
    );
    assert!(folder.path().join("out/characterization.html").exists());

    let protect = found["protect"].as_str().unwrap();
    let file = format!("listen = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:1\"\n{protect}");
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let checked = tidegate(folder.path(), &["check", "tidegate.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn a_service_that_cannot_be_characterized_says_why() {
    let dead = format!("{PLANT}down = [{{ from = \"0s\" }}]")
        .replace("cores = 2 }\ndown", "cores = 2, down");
    let folder = folder_with("plant.toml", &dead.replace("}]", "}] }"));
    let said = refused(folder.path(), &["characterize", "--sim", "plant.toml"]);
    assert!(said.contains("nothing was served"), "{said}");
    let said = refused(
        folder.path(),
        &["characterize", "--sim", "plant.toml", "--balance", "2"],
    );
    assert!(said.contains("--balance"), "{said}");
    fs::write(
        folder.path().join("plant.toml"),
        "duration = '1s'\nservcie = '1s'",
    )
    .unwrap();
    let said = refused(folder.path(), &["characterize", "--sim", "plant.toml"]);
    assert!(
        said.contains("plant.toml:2:1: unknown key `servcie`; did you mean `service`?"),
        "{said}"
    );
}

#[test]
fn arena_races_on_services_drawn_at_random() {
    let dir = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", "arena", "--random", "2", "--seed", "17", "--json"])
        .args(["--repetitions", "1", "--contender", "fixed", "--out"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    let names: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["scenario"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["random-17-00", "random-17-01"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("random-17-01: "), "{said}");
}

/// An idle service with room for all: nothing is shed, and the exit status says so.
#[test]
fn arena_says_whether_random_services_with_room_shed_anything() {
    let folder = tempfile::tempdir().unwrap();
    let run = |contender: &str| {
        let args = ["sim", "arena", "--random", "1", "--seed", "17", "--room"];
        let more = [
            "--repetitions",
            "1",
            "--arrivals",
            "any",
            "--contender",
            contender,
        ];
        tidegate(folder.path(), &[&args[..], &more[..]].concat())
    };
    let output = run("auto+target");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = ["random-17-00-at-0.6 ", "random-17-00-at-0.85 "];
    assert!(rows.iter().all(|row| table.contains(row)), "{table}");
    assert!(table.contains("auto+target: mean "), "{table}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.success(),
        !said.contains("auto+target sheds"),
        "{said}"
    );
    let refused = tidegate(folder.path(), &["sim", "arena", "--arrivals", "any"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("use it with `--random N`"), "{said}");
}

#[test]
fn plane_takes_seeds_and_shows_intervals() {
    let folder = tempfile::tempdir().unwrap();
    let run = |seed: &str| {
        let args = ["sim", "plane", "--only", "one-or-two", "--json"];
        let more = ["--repetitions", "2", "--seed", seed];
        let output = tidegate(folder.path(), &[&args[..], &more[..]].concat());
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run("5");
    assert_eq!(first.lines().count(), 7, "{first}");
    assert!(first.contains("\"late_or_shed_half_width\":"), "{first}");
    assert_eq!(run("5"), first);
    assert_ne!(run("9"), first);
}

#[test]
fn arena_races_on_a_folder_of_scenarios_with_irregular_arrivals() {
    let folder = tempfile::tempdir().unwrap();
    let scenarios = folder.path().join("scenarios");
    fs::create_dir(&scenarios).unwrap();
    let rest = "client = { timeout = '2s' }\n[replica]\ncores = 4\nslots = 64\n";
    for (name, arrivals) in [
        ("batches", "batch = 8"),
        (
            "pages",
            "fan_out = { requests = 4, after = '20ms', over = '5ms' }",
        ),
        (
            "phases",
            "phases = [{ times = 1, lasts = '1s' }, { times = 0, lasts = '1s' }]",
        ),
    ] {
        let text = format!(
            "duration = '20s'\nwarm_up = '5s'\ntarget = '500ms'\nservice = '20ms'\n\
             [load]\nrate = '60/s'\n{arrivals}\n{rest}"
        );
        fs::write(scenarios.join(format!("{name}.toml")), text).unwrap();
    }
    let args = [
        "sim",
        "arena",
        "--scenarios",
        "scenarios",
        "--repetitions",
        "1",
    ];
    let only = ["--contender", "auto", "--contender", "breakwater"];
    let output = tidegate(folder.path(), &[&args[..], &only[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    for name in ["batches", "pages", "phases", "mean", "auto", "breakwater"] {
        assert!(table.contains(name), "{name}: {table}");
    }
    let page = fs::read_to_string(folder.path().join("out/arena.html")).unwrap();
    assert!(page.contains(">batches</text>"), "the heat map has names");
    assert!(page.contains(">batches</td>"), "and so has the table");
}

#[test]
fn reaction_has_a_row_for_every_step_and_the_trap() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "sim",
        "reaction",
        "--contender",
        "none",
        "--repetitions",
        "2",
        "--json",
    ];
    let output = tidegate(folder.path(), &args);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[3]["scenario"], "retry-trap");
    assert!(lines.iter().all(|line| line["contender"] == "none"));
}

/// Only a build with the feature can change numbers; the other one says so.
#[test]
fn ablate_shows_what_a_rule_is_worth_or_names_the_feature() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "sim",
        "ablate",
        "--only",
        "arena-half",
        "--repetitions",
        "2",
    ];
    let only = ["--change", "warm-up of a replica off"];
    let output = tidegate(folder.path(), &[&args[..], &only[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if cfg!(feature = "ablation") {
        assert!(output.status.success(), "{said}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("warm-up of a replica off  0006"), "{table}");
        assert!(folder.path().join("out/ablation.csv").exists());
    } else {
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--features ablation"), "{said}");
    }
}
