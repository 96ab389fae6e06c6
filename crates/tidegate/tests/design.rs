//! `tidegate design` as a user runs it: the real binary, its output and its exit status.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn design(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("design")
        .args(args)
        .output()
        .expect("the binary runs")
}

/// Standard output of a run that must succeed.
fn text(args: &[&str]) -> String {
    let output = design(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&text(&args)).expect("one JSON object")
}

/// The message of a run that must be refused: status 2, nothing on standard output.
fn refusal(args: &[&str]) -> String {
    let output = design(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is not a number"))
}

fn assert_close(value: &Value, expected: f64, tolerance: f64) {
    let found = number(value);
    assert!(
        (found - expected).abs() <= tolerance,
        "{found}, expected {expected}"
    );
}

fn file(content: &str, name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a file in it");
    (folder, path)
}

const APACHE: [&str; 5] = ["pi", "--sigma", "39.2156862745", "--interval", "1"];

fn pi<'a>(more: &[&'a str]) -> Vec<&'a str> {
    APACHE.iter().copied().chain(more.iter().copied()).collect()
}

const PROXY: [&str; 5] = [
    "lqr",
    "--a",
    "[[0.69321,0],[0,0.32734]]",
    "--b",
    "[[-0.0917293],[0.0066773]]",
];

fn lqr<'a>(more: &[&'a str]) -> Vec<&'a str> {
    PROXY.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn pi_shows_the_poles_of_the_good_gains_of_002() {
    let answer = json(&pi(&["--gain", "20", "--integral-time", "2.8"]));
    assert_close(&answer["max_abs"], 0.8198, 5e-5);
    let poles = answer["poles"].as_array().unwrap();
    assert_eq!(poles.len(), 2);
    assert_close(&poles[0]["re"], 0.745, 5e-4);
    assert_close(&poles[0]["im"], 0.342, 5e-4);
    assert_close(&poles[1]["im"], -0.342, 5e-4);
    assert_close(&answer["gain_margin"], 4.774, 1e-3);
    assert_eq!(answer["warning"], Value::Null);
}

#[test]
fn pi_warns_in_words_of_unstable_gains_and_still_answers() {
    for (gain, time, radius) in [("20", "0.1", 2.364), ("5", "0.185", 1.2497)] {
        let args = pi(&["--gain", gain, "--integral-time", time]);
        let answer = json(&args);
        assert_close(&answer["max_abs"], radius, 5e-4);
        assert_eq!(answer["stable"], false);
        assert_eq!(answer["gain_margin"], Value::Null);
        let table = text(&args).replace('\n', " ");
        assert!(table.contains("warning: this loop is unstable"), "{table}");
        assert!(table.contains("simulate it"), "{table}");
    }
}

#[test]
fn pi_finds_gains_for_what_is_wanted() {
    let placed = json(&pi(&["--a1", "-1.49", "--a2", "0.672142857"]));
    assert_close(&placed["gain"], 20.0, 1e-6);
    assert_close(&placed["integral_time_s"], 2.8, 1e-6);
    let settled = json(&pi(&["--settling-time", "12s", "--damping", "0.8"]));
    assert_close(&settled["max_abs"], 0.02_f64.powf(1.0 / 12.0), 1e-6);
    assert_close(&settled["damping"], 0.8, 1e-6);
}

#[test]
fn pi_reads_a_file_and_a_flag_wins() {
    let content = "sigma = 39.2156862745\ninterval = '1s'\ngain = 20\nintegral_time = 0.1\n";
    let (_folder, path) = file(content, "pi.toml");
    let path = path.to_str().unwrap();
    assert_close(&json(&["pi", "--file", path])["max_abs"], 2.364, 5e-4);
    let answer = json(&["pi", "--file", path, "--integral-time", "2.8"]);
    assert_close(&answer["max_abs"], 0.8198, 5e-5);
}

#[test]
fn lqr_gives_the_gain_of_000() {
    let answer = json(&lqr(&["--q", "[8.75e-6,5e-3]", "--r", "[7.69e-7]"]));
    let rows = answer["gain"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_close(&rows[0][0], -0.81797, 5e-6);
    assert_close(&rows[0][1], 10.27376, 5e-6);
    assert_eq!(answer["poles"].as_array().unwrap().len(), 2);
    assert!(number(&answer["max_abs"]) < 1.0);
    assert!(number(&answer["riccati_residual"]) < 1e-12);
}

#[test]
fn lqr_takes_relative_costs_and_files() {
    let answer = json(&lqr(&[
        "--cost",
        "7,1,1",
        "--largest",
        "894.427,14.1421,1140.3",
    ]));
    assert_close(&answer["gain"][0][0], -0.818, 5e-3);
    let content = "a = [[0.69321, 0], [0, 0.32734]]\nb = [-0.0917293, 0.0066773]\n\
                   q = [8.75e-6, 5e-3]\nr = [7.69e-7]\n";
    let (_folder, path) = file(content, "lqr.toml");
    let from_file = json(&["lqr", "--file", path.to_str().unwrap()]);
    assert_close(&from_file["gain"][0][1], 10.27376, 5e-6);
    let (_folder, matrix) = file("0.69321, 0\n0, 0.32734\n", "a.csv");
    let a = matrix.to_str().unwrap();
    let b = "[-0.0917293, 0.0066773]";
    let weights = ["--q", "[8.75e-6,5e-3]", "--r", "[7.69e-7]"];
    let from_csv = json(&[&["lqr", "--a", a, "--b", b][..], &weights].concat());
    assert_close(&from_csv["gain"][0][1], 10.27376, 5e-6);
}

#[test]
fn zn_agrees_both_ways_and_shows_what_the_gains_do() {
    let plant = [
        "--plant-gain",
        "2",
        "--time-constant",
        "10",
        "--dead-time",
        "2",
    ];
    let args = [&["zn", "--interval", "100ms"][..], &plant].concat();
    let answer = json(&args);
    let methods = answer["methods"].as_array().unwrap();
    let names: Vec<&str> = methods
        .iter()
        .map(|m| m["method"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["raise", "relay"]);
    let gain = |i: usize| number(&methods[i]["ultimate_gain"]);
    // Continuous time: atan(10 w) + 2 w = pi at w = 0.8445, so Ku = sqrt(1 + 71.3)/2.
    assert!((gain(0) / 4.25 - 1.0).abs() < 0.05, "{}", gain(0));
    assert!(
        (gain(1) / gain(0) - 1.0).abs() < 0.2,
        "{} {}",
        gain(0),
        gain(1)
    );
    let tunings = methods[0]["tunings"].as_array().unwrap();
    assert_eq!(tunings.len(), 5);
    assert!(
        tunings.iter().all(|tuning| tuning["stable"] == true),
        "{tunings:?}"
    );
    assert!(text(&args).contains("tyreus-luyben PI"));
}

#[test]
fn zn_finds_the_oscillation_of_a_plant_that_is_unstable_by_itself() {
    // z - 1.5 + K: stable from 0.5 to 2.5, where the pole leaves at -1.
    let args = ["zn", "--interval", "1", "--num", "1", "--den", "1,-1.5"];
    let answer = json(&args);
    let methods = answer["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 1, "a relay does not hold it: {methods:?}");
    assert_close(&methods[0]["ultimate_gain"], 2.5, 1e-3);
    assert_close(&methods[0]["ultimate_period_s"], 2.0, 1e-3);
}

#[test]
fn zn_warns_when_only_the_sampling_oscillates() {
    let args = ["zn", "--interval", "1", "--a", "[[0.5]]", "--b", "[1]"];
    let table = text(&args).replace('\n', " ");
    assert!(
        table.contains("it is the sampling that oscillates"),
        "{table}"
    );
}

#[test]
fn rootlocus_of_figure_6_is_drawn_listed_and_tabled() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (svg, csv) = (path("locus.svg"), path("locus.csv"));
    let range = ["--integral-time", "2.8", "--gain-max", "120"];
    let server = ["rootlocus", "--sigma", "39.2156862745", "--interval", "1"];
    let files = ["--svg", &svg, "--csv", &csv];
    let answer = json(&[&server[..], &range, &files].concat());
    let gains = answer["gains"].as_array().unwrap().len();
    for branch in answer["branches"].as_array().unwrap() {
        assert_eq!(branch.as_array().unwrap().len(), gains);
    }
    let leaves = answer["crossings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["outwards"] == true);
    assert_close(
        &leaves.unwrap()["gain"],
        4.0 / (2.0 - 1.0 / 2.8) * 39.2156862745,
        1e-6,
    );
    assert!(
        std::fs::read_to_string(&svg)
            .unwrap()
            .contains("unit circle")
    );
    assert_eq!(
        std::fs::read_to_string(&csv).unwrap().lines().count(),
        2 * gains + 1
    );
    let table = text(&[&server[..], &range].concat());
    assert!(
        table.contains("a pole leaves the unit circle at gain 95.48"),
        "{table}"
    );
}

/// The proxy of 000 eq. 7 under a sine, in raw values around its operating point.
fn recorded_run() -> String {
    let (mut r, mut g) = (0.0, 0.0);
    let mut text = String::from("time,r,g,u\n");
    for k in 0..600 {
        let u = 550.0 * (f64::from(k) * 0.021).sin();
        text += &format!("{},{},{},{}\n", 10 * k, 400.0 + r, 2.4 + g, 200.0 + u);
        (r, g) = (0.69321 * r - 0.0917293 * u, 0.32734 * g + 0.0066773 * u);
    }
    text
}

#[test]
fn identify_recovers_the_model_of_a_record() {
    let (_folder, path) = file(&recorded_run(), "run.csv");
    let file = path.to_str().unwrap();
    let args = ["identify", "--file", file, "--state", "r,g", "--input", "u"];
    let answer = json(&args);
    assert_close(&answer["a"][0][0], 0.69321, 1e-6);
    assert_close(&answer["a"][1][1], 0.32734, 1e-6);
    assert_close(&answer["b"][0][0], -0.0917293, 1e-6);
    assert_close(&answer["b"][1][0], 0.0066773, 1e-6);
    assert!(number(&answer["states"][0]["r_squared_free_run"]) > 0.999);
    assert!(text(&args).contains("state g"));
}

#[test]
fn identify_fits_a_lag_with_dead_time() {
    let mut content = String::from("u,y\n");
    for k in 0..200 {
        let since = f64::from(k) * 0.5 - 5.0 - 3.0;
        let y = if since < 0.0 {
            0.0
        } else {
            4.0 * (1.0 - (-since / 6.0).exp())
        };
        content += &format!("{},{y}\n", u8::from(k >= 10));
    }
    let (_folder, path) = file(&content, "step.csv");
    let columns = ["--state", "y", "--input", "u", "--interval", "500ms"];
    let answer = json(
        &[
            &["identify", "--fopdt", "--file", path.to_str().unwrap()][..],
            &columns,
        ]
        .concat(),
    );
    assert_close(&answer["gain"], 4.0, 1e-2);
    assert_close(&answer["time_constant_s"], 6.0, 5e-2);
    assert_close(&answer["dead_time_s"], 3.0, 5e-2);
}

#[test]
fn bad_numbers_are_refused_with_their_cause() {
    let weights = |q| lqr(&["--q", q, "--r", "[7.69e-7]"]);
    assert!(refusal(&weights("[-1,1]")).contains("Q must be positive semidefinite"));
    assert!(refusal(&weights("[1,1,1]")).contains("Q is 3 x 3, but must be 2 x 2"));
    assert!(refusal(&weights("[1,")).contains("--q"));
    let unreachable = [
        "lqr",
        "--a",
        "[[1.2,0],[0,0.5]]",
        "--b",
        "[0,1]",
        "--q",
        "[1,1]",
        "--r",
        "[1]",
    ];
    assert!(refusal(&unreachable).contains("not stabilisable"));
    let unseen = [
        "lqr",
        "--a",
        "[[1.2,0],[0,0.5]]",
        "--b",
        "[1,1]",
        "--q",
        "[0,1]",
        "--r",
        "[1]",
    ];
    assert!(refusal(&unseen).contains("not detectable"));
    assert!(refusal(&pi(&["--gain", "-3", "--integral-time", "1"])).contains("the gain is -3"));
    assert!(refusal(&pi(&["--gain", "3"])).contains("--gain with --integral-time"));
    assert!(refusal(&["pi", "--sigma", "1", "--gain", "1"]).contains("--interval is missing"));
    assert!(
        refusal(&[
            "rootlocus",
            "--num",
            "1",
            "--den",
            "1,-1",
            "--gain-max",
            "-1"
        ])
        .contains("gain range")
    );
    assert!(refusal(&lqr(&["--q", "[1,1]", "--r", "1", "--interval", "0"])).contains("--r"));
    assert!(
        refusal(&lqr(&["--q", "[1,1]", "--r", "[1]", "--interval", "0"]))
            .contains("--interval is 0")
    );
    let slow = [
        "--plant-gain",
        "1",
        "--time-constant",
        "1",
        "--dead-time",
        "9",
    ];
    let dense = [&["zn", "--interval", "1ms"][..], &slow].concat();
    assert!(refusal(&dense).contains("9000 sampling intervals"));
    assert!(refusal(&["zn", "--interval", "1"]).contains("give the plant one way"));
}

#[test]
fn bad_files_are_refused_with_their_place() {
    let missing = refusal(&["pi", "--file", "no-such.toml"]);
    assert!(missing.contains("no-such.toml"), "{missing}");
    let (_folder, path) = file("sigma = 1\nintervall = 1\n", "pi.toml");
    let misspelt = refusal(&["pi", "--file", path.to_str().unwrap()]);
    assert!(
        misspelt.contains("pi.toml:2:1: unknown key `intervall`; did you mean `interval`?"),
        "{misspelt}"
    );
    let record = |content: &str, state: &str| {
        let (_folder, path) = file(content, "run.csv");
        refusal(&[
            "identify",
            "--file",
            path.to_str().unwrap(),
            "--state",
            state,
            "--input",
            "u",
        ])
    };
    assert!(
        record("x,u\n1,2\n3,what\n", "x").contains("line 3, column `u`: `what` is not a number")
    );
    assert!(record("x,u\n1,2\n", "y").contains("no column `y`; the columns are `x`, `u`"));
    let constant = (0..40).fold(String::from("x,u\n"), |text, k| {
        text + &format!("{},1\n", k % 7)
    });
    assert!(record(&constant, "x").contains("`u` never changes"));
    let feedback = (0..40).fold(String::from("x,u\n"), |text, k| {
        text + &format!("{},{}\n", k % 7, k % 7 * 2)
    });
    assert!(record(&feedback, "x").contains("cannot tell the columns"));
    assert!(record("x,u\n1,2\n2,1\n", "x").contains("too few"));
}
