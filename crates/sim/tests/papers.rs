//! The papers' experiments, on few repetitions: they agree, their trajectories stay what they are,
//! and neither depends on the number of cores.
//!
//! A trajectory is kept as a file under `tests/goldens`, rounded. After a deliberate change of the
//! engine or of a controller run this test with `TIDEGATE_UPDATE_GOLDENS=1` and look at the
//! difference.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

use tidegate_sim::experiment::{Experiment, Outcome, Progress, Verdict, mutate, run_all};
use tidegate_sim::papers;
use tidegate_sim::report::{Origin, Report};

struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

fn experiment(id: &str, repetitions: usize) -> Experiment {
    let parse = |(name, text): &(&str, &str)| Experiment::parse(name, text).ok();
    let mut all = papers::files().iter().filter_map(parse);
    let found = all.find(|experiment| experiment.id() == id);
    let mut experiment = found.unwrap_or_else(|| panic!("{id} is missing or refused"));
    experiment.repetitions = repetitions;
    experiment
}

fn run(id: &str, repetitions: usize) -> Outcome {
    run_all(&[experiment(id, repetitions)], &Silent).remove(0)
}

/// Comparisons that are known to differ; `because` in their files says why.
const DIFFER: [&str; 2] = [
    "`lqr`: largest share shed below the setpoint",
    "log-normal service, cv2 of 4: share of silver denied because of bronze, with delays",
];

/// Every comparison of the experiment comes out, on fewer repetitions than the report has.
fn assert_agrees(id: &str, repetitions: usize) -> Outcome {
    let outcome = run(id, repetitions);
    assert!(!outcome.findings.is_empty());
    for finding in &outcome.findings {
        let (metric, ours, allowed) = (&finding.metric, finding.ours.mean, &finding.allowed);
        if DIFFER.contains(&metric.as_str()) {
            assert!(
                finding.because.is_some(),
                "{id}, {metric}: nothing says why"
            );
            continue;
        }
        assert_ne!(
            finding.verdict,
            Verdict::Differs,
            "{id}, {metric}: {ours} ({allowed})"
        );
    }
    outcome
}

#[test]
fn the_classes_of_003_agree() {
    for id in ["003/3", "003/5", "003/delays", "003/revenue", "003/sizes"] {
        assert_agrees(id, 2);
    }
}

#[test]
fn switch_under_load_costs_gold_nothing() {
    assert_agrees("003/switch", 2);
}

#[test]
fn refusing_takes_no_more_than_the_bound() {
    assert_agrees("001/6.1", 2);
}

#[test]
fn light_load_is_shed_by_no_mode() {
    assert_agrees("002/light load", 1);
}

#[test]
fn gains_of_ilac_show_in_threshold_and_concurrency() {
    assert_agrees("004/3", 3);
    assert_agrees("004/11", 3);
    assert_agrees("001/sensor", 3);
}

#[test]
fn weight_of_io_keeps_a_waiting_service_open() {
    assert_agrees("003/I/O weight", 2);
}

/// The quick ones; `tidegate sim papers --mutate` runs all.
#[test]
fn faults_are_noticed() {
    let ids = [
        "000/3",
        "000/eq. 10",
        "001/6.1",
        "001/8",
        "001/9",
        "001/PID",
        "002/5",
        "002/6",
        "002/8",
        "003/6",
        "003/3",
        "003/5",
        "003/delays",
        "003/sizes",
        "003/I/O weight",
        "003/switch",
        "004/8",
        "004/8, engine",
    ];
    let experiments = ids.map(|id| experiment(id, 1));
    for fault in mutate(&experiments, &Silent) {
        let (id, name) = (&fault.experiment, &fault.mutation);
        assert!(!fault.by.is_empty(), "{id}: nobody notices `{name}`");
    }
}

#[test]
fn experiments_name_faults() {
    for experiment in papers::experiments().unwrap() {
        assert!(experiment.mutation_count() > 0, "{}", experiment.id());
    }
}

#[test]
fn all_files_are_in_order_and_have_names_of_their_own() {
    let experiments = papers::experiments().unwrap();
    let ids: BTreeSet<String> = experiments.iter().map(Experiment::id).collect();
    assert_eq!(ids.len(), experiments.len(), "{ids:?}");
    for id in [
        "002/5",
        "002/6",
        "002/7",
        "002/8",
        "000/2",
        "000/3",
        "000/4",
        "001/2",
        "001/3",
        "001/6",
        "001/7",
        "001/8",
        "001/9",
        "001/10",
        "001/11",
        "001/6.1",
        "001/sensor",
        "003/switch",
    ] {
        assert!(ids.contains(id), "{id} is missing");
    }
}

#[test]
fn open_loop_utilization_is_proportional_to_the_load() {
    assert_agrees("002/5", 4);
}

#[test]
fn poles_lie_where_the_design_says() {
    assert_agrees("002/6", 1);
    assert_agrees("000/eq. 10", 1);
}

#[test]
fn utilization_is_distributed_about_the_reference() {
    assert_agrees("002/7", 2);
}

#[test]
fn an_empty_system_settles_with_good_parameters_only() {
    let outcome = assert_agrees("002/8", 4);
    for (title, name) in [
        ("(a), (c) M/D/1, good parameters", "md1-good"),
        ("(b) M/D/1, bad parameters", "md1-bad"),
        ("Flow model", "flow"),
    ] {
        assert_golden(&format!("002-8-{name}"), &trajectory(&outcome, title, 3, 2));
    }
}

#[test]
fn a_fixed_rate_keeps_goodput_in_overload() {
    assert_agrees("000/2", 2);
}

#[test]
fn a_service_is_characterized_without_help() {
    assert_agrees("000/eq. 7", 2);
}

#[test]
fn adaptive_admission_survives_a_cut_of_capacity() {
    let outcome = assert_agrees("000/4", 1);
    let rates = trajectory(&outcome, "Admission rate, capacity halved", 12, 1);
    assert_golden("000-4-admission-rate", &rates);
}

#[test]
fn a_million_clients_hold_back_with_fixed_parameters() {
    assert_agrees("001/2", 1);
    assert_agrees("001/3", 1);
}

#[test]
fn decoupling_and_controllers_of_001_agree() {
    assert_agrees("001/1", 1);
    assert_agrees("001/PID", 10);
}

#[test]
fn figures_of_004_agree_through_the_engine() {
    assert_agrees("004/3, engine", 2);
    assert_agrees("004/8, engine", 2);
}

#[test]
fn messages_reach_clients_over_trees() {
    assert_agrees("001/6", 5);
}

#[test]
fn an_auction_is_held_at_its_setpoint_by_what_clients_are_told() {
    assert_agrees("001/7", 5);
    assert_agrees("001/9", 5);
    assert_agrees("001/8", 5);
}

#[test]
fn the_channel_beats_responses_and_refusals() {
    assert_agrees("001/10", 5);
    let outcome = run("001/11", 40);
    for finding in &outcome.findings {
        let (metric, ours) = (&finding.metric, finding.ours.mean);
        assert_ne!(finding.verdict, Verdict::Differs, "{metric}: {ours}");
    }
    let ours = |metric: &str| {
        let found = outcome.findings.iter().find(|f| f.metric == metric);
        found.map(|finding| finding.ours.mean).unwrap()
    };
    let throughput = [
        "channel: throughput (1/s)",
        "refusing costs nothing: throughput (1/s)",
        "refusing costs 0.1: throughput (1/s)",
        "refusing costs 1: throughput (1/s)",
    ];
    assert!(throughput.map(ours).is_sorted_by(|a, b| a > b));
}

#[test]
fn results_do_not_depend_on_the_number_of_cores() {
    let experiment = experiment("002/8", 3);
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let outcomes = pool.install(|| run_all(std::slice::from_ref(&experiment), &Silent));
        let origin = Origin {
            version: String::new(),
            commit: String::new(),
        };
        let title = String::new();
        Report {
            title,
            origin,
            outcomes,
        }
        .json()
    };
    assert_eq!(with_threads(1), with_threads(3));
}

#[test]
fn another_seed_gives_other_arrivals() {
    let mut other = experiment("002/8", 1);
    other.seed += 1;
    let points = |outcome: &Outcome| outcome.panels[0].layers[0].points.clone();
    let other = run_all(&[other], &Silent).remove(0);
    assert_ne!(points(&run("002/8", 1)), points(&other));
}

/// The lines of one panel at every `stride`th point, to `digits` digits.
fn trajectory(outcome: &Outcome, title: &str, stride: usize, digits: usize) -> String {
    let panel = outcome.panels.iter().find(|panel| panel.title == title);
    let panel = panel.unwrap_or_else(|| panic!("no panel `{title}`"));
    let mut text = format!("{title}\n");
    for layer in &panel.layers {
        writeln!(text, "{}", layer.label).unwrap();
        for spot in layer.points.iter().step_by(stride) {
            writeln!(text, "{:.0} {:.digits$}", spot.x, spot.y).unwrap();
        }
    }
    text
}

fn assert_golden(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let path = folder.join(format!("{name}.txt"));
    if env::var_os("TIDEGATE_UPDATE_GOLDENS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{} has changed; now it is\n{text}",
        path.display()
    );
}
