//! The simulator against queueing theory.
//!
//! Each check runs independent repetitions with fixed seeds and asks two things: that the
//! confidence interval is narrow enough to mean something, and that the exact value lies within
//! it. At 99.9 % a correct simulator fails one check in a thousand, once, when seeds or streams
//! change; a wrong one fails every time.

#![allow(clippy::unwrap_used)] // helpers of tests are not seen as tests

use std::num::NonZeroU32;

use rayon::prelude::*;
use tidegate_sim::queue::{QueueRun, QueueSpec};
use tidegate_sim::rng::Streams;
use tidegate_sim::server::{Bound, StationSpec};
use tidegate_sim::service::{Law, LawSpec};
use tidegate_sim::stats::Estimate;
use tidegate_sim::theory;
use tidegate_sim::workload::Spacing;

const REPETITIONS: u64 = 16;
const LEVEL: f64 = 0.999;

fn repeat(spec: &QueueSpec, seconds: f64) -> Vec<QueueRun> {
    (0..REPETITIONS)
        .into_par_iter()
        .map(|index| {
            let streams = Streams::new(20_030_909).repetition(index);
            spec.run(streams, 0.05 * seconds, seconds)
        })
        .collect()
}

/// Checks that `exact` lies within the interval, and that the interval is at most `precision` of
/// it wide to either side.
#[track_caller]
fn check(runs: &[QueueRun], exact: f64, precision: f64, measure: impl Fn(&QueueRun) -> f64) {
    let samples: Vec<f64> = runs.iter().map(measure).collect();
    let estimate = Estimate::from_samples(&samples, LEVEL);
    assert!(
        estimate.half_width <= precision * exact,
        "{estimate} is too vague to check {exact}"
    );
    assert!(estimate.contains(exact), "{estimate} excludes {exact}");
}

fn response(run: &QueueRun) -> f64 {
    run.response.mean()
}

fn fifo(cores: u32) -> StationSpec {
    StationSpec::fifo(NonZeroU32::new(cores).unwrap())
}

/// `places` in all, service included.
fn finite(cores: u32, places: u32) -> StationSpec {
    fifo(cores).with_queue(Bound::Limited(places - cores))
}

fn law(text: &str) -> Law {
    #[derive(serde::Deserialize)]
    struct File {
        law: LawSpec,
    }
    let file: File = tidegate_config::parse("law.toml", &format!("law = {text}")).unwrap();
    file.law.try_into().unwrap()
}

fn mean_one() -> Law {
    Law::exponential(1.0)
}

#[test]
fn mm1() {
    let runs = repeat(&QueueSpec::poisson(0.8, mean_one(), fifo(1)), 4e5);
    check(&runs, 5.0, 0.03, response);
    check(&runs, 14.979, 0.03, |run| run.histogram.quantile(0.95));
    check(&runs, 0.8, 0.01, |run| run.utilization);
    check(&runs, 0.8, 0.01, QueueRun::delaying);
}

#[test]
fn md1() {
    let runs = repeat(&QueueSpec::poisson(0.8, Law::constant(1.0), fifo(1)), 3e5);
    check(&runs, 3.0, 0.03, response);
}

#[test]
fn mg1_pollaczek_khinchine() {
    let hyper = law("{ law = 'hyper-exponential', mean = '1s', cv2 = 4 }");
    let runs = repeat(&QueueSpec::poisson(0.8, hyper, fifo(1)), 6e5);
    check(&runs, 11.0, 0.05, response);
    let log_normal = law("{ law = 'log-normal', mean = '1s', cv2 = 4 }");
    let runs = repeat(&QueueSpec::poisson(0.8, log_normal, fifo(1)), 6e5);
    check(&runs, 11.0, 0.06, response);
    let erlang = law("{ law = 'erlang', mean = '1s', stages = 4 }");
    let exact = theory::mg1(0.8, 1.0, 0.25).response;
    let runs = repeat(&QueueSpec::poisson(0.8, erlang, fifo(1)), 3e5);
    check(&runs, exact, 0.03, response);
}

#[test]
fn mmc_erlang_c() {
    let runs = repeat(&QueueSpec::poisson(4.0, mean_one(), fifo(5)), 1e5);
    check(&runs, 0.55411, 0.02, QueueRun::delaying);
    check(&runs, 1.55411, 0.02, response);
    let runs = repeat(&QueueSpec::poisson(13.0, mean_one(), fifo(15)), 5e4);
    check(&runs, 0.49568, 0.03, QueueRun::delaying);
    check(&runs, 0.24784, 0.10, QueueRun::waiting);
}

#[test]
fn finite_queues_block() {
    let runs = repeat(&QueueSpec::poisson(0.8, mean_one(), finite(1, 10)), 3e5);
    check(&runs, 0.023493, 0.05, QueueRun::blocking);
    check(&runs, 3.7971, 0.02, response);
    let runs = repeat(&QueueSpec::poisson(1.5, mean_one(), finite(1, 10)), 2e5);
    check(&runs, 0.337232, 0.02, QueueRun::blocking);
    check(&runs, 8.1765, 0.02, response);
    let runs = repeat(&QueueSpec::poisson(6.0, mean_one(), finite(5, 20)), 5e4);
    check(&runs, 0.17269, 0.03, QueueRun::blocking);
}

/// Erlang's loss system: no queue at all; insensitive to the law of service.
#[test]
fn erlang_b() {
    for service in [mean_one(), Law::constant(1.0)] {
        let runs = repeat(&QueueSpec::poisson(8.0, service, finite(10, 10)), 3e4);
        check(&runs, 0.121661, 0.03, QueueRun::blocking);
    }
}

#[test]
fn gim1() {
    let with = |spacing| QueueSpec {
        spacing,
        ..QueueSpec::poisson(0.8, mean_one(), fifo(1))
    };
    let runs = repeat(&with(Spacing::deterministic()), 3e5);
    check(&runs, 2.69273, 0.03, response);
    let erlang = law("{ law = 'erlang', mean = '1s', stages = 2 }");
    let runs = repeat(&with(Spacing::renewal(&erlang)), 3e5);
    check(&runs, 3.84398, 0.03, response);
}

/// Under processor sharing only the mean of the service law counts, and a job's time is in
/// proportion to its work.
#[test]
fn mg1_sharing_is_insensitive() {
    let laws = [
        "{ law = 'exponential', mean = '1s' }",
        "{ law = 'deterministic', mean = '1s' }",
        "{ law = 'hyper-exponential', mean = '1s', cv2 = 4 }",
        "{ law = 'bimodal', fast = '0.5s', slow = '5.5s', slow_share = '10%' }",
    ];
    for service in laws {
        let spec = QueueSpec::poisson(0.8, law(service), StationSpec::sharing(Bound::Unlimited));
        let runs = repeat(&spec, 3e5);
        check(&runs, 5.0, 0.06, response);
        check(&runs, 5.0, 0.06, QueueRun::stretching);
    }
}

/// With exponential service a cap on sharing changes nothing in the mean.
#[test]
fn mm1_with_capped_sharing() {
    for cap in [2, 5, 30] {
        let station = StationSpec::sharing(Bound::Limited(cap));
        let runs = repeat(&QueueSpec::poisson(0.8, mean_one(), station), 2e5);
        check(&runs, 5.0, 0.05, response);
    }
}

/// Batch means of one long run agree with independent repetitions.
#[test]
fn one_long_run_is_as_good() {
    let spec = QueueSpec::poisson(0.8, mean_one(), fifo(1));
    let run = spec.run(Streams::new(3), 1e4, 2e6);
    let estimate = run.batches.estimate(LEVEL);
    assert!(
        estimate.contains(5.0) && estimate.precision() < 0.06,
        "{estimate}"
    );
}
