//! Mode `ilac` in the simulator: the experiments of `experiments/brownout` come out, and replicas
//! that misbehave are noticed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use tidegate_sentry::{Event, ReplicaId, Standing};
use tidegate_sim::experiment::{Experiment, Progress, Verdict, run_all};
use tidegate_sim::scenario::Scenario;

struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

fn assert_agrees(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/brownout");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let mut experiment = Experiment::parse(file, &text).unwrap_or_else(|e| panic!("{e}"));
    experiment.repetitions = 1;
    let outcome = run_all(&[experiment], &Silent).remove(0);
    let differs: Vec<String> = outcome
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Differs)
        .map(|finding| {
            let (metric, ours) = (&finding.metric, finding.ours.mean);
            format!("{metric}: {ours} ({})", finding.allowed)
        })
        .collect();
    assert!(differs.is_empty(), "{file}: {differs:#?}");
}

#[test]
fn content_is_left_out_before_anybody_is_refused() {
    assert_agrees("handover.toml");
}

#[test]
fn content_and_shedding_do_not_take_turns_around_the_reduced_capacity() {
    assert_agrees("handover-grid.toml");
}

#[test]
fn a_faulty_replica_does_no_harm() {
    assert_agrees("faulty-replica.toml");
}

/// A service without optional content, or one that starts in the middle of a rush: nobody is ever
/// served in full, and the replicas are used all the same.
#[test]
fn replicas_are_filled_when_nothing_can_be_left_out() {
    let text = "duration = '60s'\nwarm_up = '20s'\ntarget = '500ms'\nload = { rate = '900/s' }\n\
                service = { law = 'exponential', mean = '40ms' }\n\
                replica = { count = 3, cores = 4, slots = 64 }\n\
                protect = { mode = 'ilac', target = '500ms', ilac = { setpoint = '300ms', gamma = '50%' } }";
    let scenario: Scenario = tidegate_config::parse("mandatory.toml", text).unwrap();
    let ledger = scenario.run(3).unwrap().ledger;
    let share = ledger.in_target as f64 / (300.0 * 40.0);
    assert!(share > 0.9, "{share:.2} of what can be served");
}

/// How each replica came to stand, and when. With a `gamma` of 90 % replicas hold several requests,
/// so that a return has steps; by default they hold about one.
fn standings(gamma: &str, replicas: &str) -> Vec<(f64, ReplicaId, Standing)> {
    standings_by_seed(3, gamma, replicas)
}

fn standings_by_seed(seed: u64, gamma: &str, replicas: &str) -> Vec<(f64, ReplicaId, Standing)> {
    let text = format!(
        "duration = '100s'\ntarget = '1s'\nload = {{ rate = '400/s' }}\n\
         service = {{ law = 'exponential', mean = '2ms' }}\n\
         optional = {{ law = 'exponential', mean = '14ms' }}\n\
         protect = {{ mode = 'ilac', target = '1s', ilac = {{ gamma = '{gamma}' }} }}\n{replicas}"
    );
    let scenario: Scenario = tidegate_config::parse("faults.toml", &text).unwrap();
    let mut protector = scenario.protector(seed).unwrap();
    let mut seen = Vec::new();
    let mut observe = |event: &Event| {
        if let Event::Standing {
            at,
            replica,
            standing,
            ..
        } = *event
        {
            seen.push((at.as_secs_f64(), replica, standing));
        }
    };
    scenario
        .run_observed(seed, protector.as_mut(), &mut observe)
        .unwrap();
    seen
}

fn kinds(seen: &[(f64, ReplicaId, Standing)]) -> Vec<(u16, Standing)> {
    seen.iter()
        .map(|&(_, replica, standing)| (replica.0, standing))
        .collect()
}

#[test]
fn a_replica_that_leaves_the_pack_is_reported_and_returns_bit_by_bit() {
    for nucleus in [false, true] {
        let seen = standings(
            "90%",
            &format!(
                "[[replica]]\nslots = 50\nnucleus = {nucleus}\n\
             speed = [{{ at = '0s', value = 1 }}, {{ at = '30s', value = 0.05 }}, {{ at = '60s', value = 1 }}]\n\
             [[replica]]\ncount = 3\nslots = 50\nnucleus = {nucleus}\n"
            ),
        );
        let expected = [
            (0, Standing::Suspect),
            (0, Standing::Returning),
            (0, Standing::Good),
        ];
        assert_eq!(kinds(&seen), expected, "{seen:?}");
        assert!((30.0..36.0).contains(&seen[0].0), "{seen:?}");
        assert!((60.0..80.0).contains(&seen[1].0), "{seen:?}");
    }
}

#[test]
fn a_replica_that_stopped_answering_gets_nothing_until_it_answers() {
    let seen = standings(
        "95%",
        "[[replica]]\nslots = 50\n\
         speed = [{ at = '0s', value = 1 }, { at = '30s', value = 0.000001 }, { at = '60s', value = 1 }]\n\
         [[replica]]\ncount = 3\nslots = 50\n",
    );
    let first = kinds(&seen);
    assert_eq!(first[0], (0, Standing::Silent), "{seen:?}");
    assert_eq!(first.last(), Some(&(0, Standing::Good)), "{seen:?}");
    assert!((35.0..37.0).contains(&seen[0].0), "{seen:?}");
}

#[test]
fn a_dead_replica_returns_bit_by_bit() {
    let seen = standings(
        "95%",
        "[[replica]]\nslots = 50\ndown = [{ from = '30s', until = '50s' }]\n\
         [[replica]]\ncount = 3\nslots = 50\n",
    );
    assert_eq!(kinds(&seen).last(), Some(&(0, Standing::Good)), "{seen:?}");
    assert!(
        seen.iter().all(|&(_, replica, _)| replica.0 == 0),
        "{seen:?}"
    );
}

#[test]
fn replicas_of_different_speed_are_no_fault() {
    for seed in 1..=12 {
        let seen = standings_by_seed(
            seed,
            "95%",
            "[[replica]]\nslots = 50\nspeed = 0.5\n[[replica]]\ncount = 3\nslots = 50\n\
             [[replica]]\nslots = 50\nspeed = 2\n",
        );
        assert!(seen.is_empty(), "seed {seed}: {seen:?}");
    }
}
