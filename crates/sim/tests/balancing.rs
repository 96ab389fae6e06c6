//! Who gets which request when replicas differ: the experiments of `experiments/balancing` come
//! out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidegate_sim::experiment::{Experiment, Progress, Verdict, run_all};

struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

#[test]
fn a_slow_replica_does_not_make_the_service_slow() {
    let text = include_str!("../../../experiments/balancing/slow-replica.toml");
    let experiment = Experiment::parse("slow-replica.toml", text).unwrap();
    let outcome = run_all(&[experiment], &Silent).remove(0);
    assert!(!outcome.findings.is_empty());
    for finding in &outcome.findings {
        let ours = finding.ours.mean;
        assert_ne!(
            finding.verdict,
            Verdict::Differs,
            "{}: {ours} ({})",
            finding.metric,
            finding.allowed
        );
    }
}
