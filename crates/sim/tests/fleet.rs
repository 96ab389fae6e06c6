//! Several proxies in front of one pool: the experiments of `experiments/fleet` come out, and they
//! notice when nothing is exchanged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use tidegate_sim::experiment::{Experiment, Progress, Verdict, run_all};
use tidegate_sim::scenario::Scenario;

struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

/// What an experiment finds, line by line, and which of it differs.
fn findings(file: &str, change: impl Fn(&str) -> String) -> Vec<(String, bool)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/fleet");
    let text = change(&fs::read_to_string(folder.join(file)).unwrap());
    let mut experiment = Experiment::parse(file, &text).unwrap_or_else(|e| panic!("{e}"));
    experiment.repetitions = 2;
    let outcome = run_all(&[experiment], &Silent).remove(0);
    let line = |finding: &tidegate_sim::experiment::Finding| {
        let (metric, ours) = (&finding.metric, finding.ours.mean);
        let text = format!("{metric}: {ours:.4} ({})", finding.allowed);
        (text, finding.verdict == Verdict::Differs)
    };
    outcome.findings.iter().map(line).collect()
}

fn assert_agrees(file: &str) {
    let findings = findings(file, str::to_owned);
    let differs: Vec<_> = findings.iter().filter(|(_, differs)| *differs).collect();
    assert!(differs.is_empty(), "{file}: {differs:#?}");
}

#[test]
fn two_and_eight_proxies_do_as_much_as_one() {
    assert_agrees("overload.toml");
}

#[test]
fn proxy_that_dies_or_is_added_costs_nothing_after_five_seconds() {
    assert_agrees("killed.toml");
}

#[test]
fn guarantees_add_up_and_sentry_counts_the_requests_of_others() {
    assert_agrees("guarantees.toml");
}

/// The same experiments with the exchange switched off everywhere.
#[test]
fn experiments_notice_that_nothing_is_exchanged() {
    for file in ["overload.toml", "killed.toml", "guarantees.toml"] {
        let off = |text: &str| {
            let text = text.replace("proxies = 2,", "proxies = 2, exchange = false,");
            text.replace("proxies = 4\n", "proxies = 4\nexchange = false\n")
        };
        let differs = findings(file, off)
            .iter()
            .filter(|(_, differs)| *differs)
            .count();
        assert!(differs >= 1, "{file}");
    }
}

fn problem(fleet: &str) -> String {
    let text = format!(
        "duration = '10s'\nservice = {{ law = 'exponential', mean = '5ms' }}\n\
         load = {{ rate = '10/s' }}\nreplica = {{}}\nprotect = {{ mode = 'auto' }}\n{fleet}"
    );
    let scenario: Scenario = tidegate_config::parse("fleet.toml", &text).unwrap();
    scenario
        .check()
        .map_or_else(|error| error.to_string(), |()| "none".to_owned())
}

#[test]
fn fleets_that_cannot_be_are_refused_with_the_key() {
    assert_eq!(problem("fleet = { proxies = 2 }"), "none");
    let traffic = problem("fleet = { proxies = 2, traffic = [1, 2, 3] }");
    assert!(
        traffic.contains("`fleet.traffic` has 3 parts for 2"),
        "{traffic}"
    );
    let down = problem("fleet = { proxies = 2, down = [{ proxy = 2, from = '1s' }] }");
    assert!(down.contains("`fleet.down` names proxy 2"), "{down}");
    let all = "down = [{ proxy = 0, from = '1s' }, { proxy = 1, from = '5s' }]";
    let all = problem(&format!("fleet = {{ proxies = 2, {all} }}"));
    assert!(all.contains("no proxy that lives"), "{all}");
    let hold = problem("fleet = { proxies = 2, interval = '3s' }");
    assert!(hold.contains("shorter than `fleet.hold`"), "{hold}");
}
