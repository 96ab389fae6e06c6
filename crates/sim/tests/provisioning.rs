//! Figures 6 and 7 of paper 003, and that their checks notice what they are about.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidegate_sim::experiment::{Experiment, Progress, Verdict, run_all};
use tidegate_sim::papers;

struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

/// Metrics that differ from the paper's, after `change` of the file's text.
fn differing(file: &str, change: impl Fn(&str) -> String) -> Vec<String> {
    let (name, text) = papers::files()
        .iter()
        .find(|(name, _)| name.contains(file))
        .unwrap();
    let mut experiment = Experiment::parse(name, &change(text)).unwrap();
    experiment.repetitions = 2;
    let outcome = run_all(&[experiment], &Silent).remove(0);
    let findings = outcome.findings.into_iter();
    findings
        .filter(|finding| finding.verdict == Verdict::Differs)
        .map(|finding| format!("{}: {}", finding.metric, finding.ours.mean))
        .collect()
}

/// The text with `from`, which it has, replaced.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

#[test]
fn figures_6_and_7_agree() {
    for file in ["003-6", "003-7"] {
        assert_eq!(differing(file, str::to_owned), [""; 0], "{file}");
    }
}

#[test]
fn figure_7_differs_when_a_rule_is_removed() {
    for (from, to) in [
        (
            "start_time = \"5s\"\ncapacity",
            "provisioning = false\nstart_time = \"5s\"\ncapacity",
        ),
        ("step_max = 1", "step_max = 64"),
        ("step_interval = \"5m\"", "step_interval = \"1s\""),
        ("drop_fraction = \"50%\"", "drop_fraction = \"1%\""),
        ("plan_interval = \"30m\"", "plan_interval = \"10h\""),
    ] {
        let differ = differing("003-7", |text| replaced(text, from, to));
        assert!(!differ.is_empty(), "{to} changes nothing");
    }
}

#[test]
fn figure_7_differs_when_revenues_are_swapped() {
    let swap = |text: &str| {
        let text = replaced(text, "revenue = 2.0", "revenue = X");
        let text = replaced(&text, "revenue = 1.0", "revenue = 2.0");
        replaced(&text, "revenue = X", "revenue = 1.0")
    };
    let differ = differing("003-7", swap);
    assert!(
        differ.iter().any(|metric| metric.contains("1810 s")),
        "{differ:?}"
    );
}

#[test]
fn figure_6_differs_when_a_rule_is_removed() {
    for (from, to) in [
        ("max = 3", "max = 1"),
        ("high_for = \"30s\"", "high_for = \"1s\""),
        ("high_cpu = \"80%\"", "high_cpu = \"60%\""),
    ] {
        let differ = differing("003-6", |text| replaced(text, from, to));
        assert!(!differ.is_empty(), "{to} changes nothing");
    }
}
