//! Every mode recovers: after twenty seconds of three times the capacity, and half a minute to
//! settle, everybody is served in time again.

use tidegate_control::Timestamp;
use tidegate_sentry::ReplicaId;
use tidegate_sim::scenario::{Outcome, Protect, Scenario, SentryProtector};

/// 100 requests/s can be served; 60/s come, from 20 s to 40 s 300/s.
fn spike(protect: &str) -> Outcome {
    let text = format!(
        "duration = '100s'\ntarget = '500ms'\nservice = {{ law = 'exponential', mean = '40ms' }}\n\
         [load]\nrate = [{{ at = '0s', value = '60/s' }}, {{ at = '20s', value = '300/s' }}, {{ at = '40s', value = '60/s' }}]\n\
         client = {{ timeout = '2s', retry = {{ attempts = 2 }} }}\n\
         [replica]\ncores = 4\nslots = 64\n[protect]\n{protect}\n"
    );
    let scenario: Scenario =
        tidegate_config::parse("recovery.toml", &text).expect("the scenario is valid");
    scenario
        .run(11)
        .expect("the engine takes the configuration")
}

/// Answered in time over offered, from `from` to `to` seconds.
fn in_time(outcome: &Outcome, from: f64, to: f64) -> f64 {
    let rows = outcome
        .rows
        .iter()
        .filter(|row| row.at > from && row.at <= to);
    let (served, fresh) = rows.fold((0, 0), |(served, fresh), row| {
        (served + row.counts.in_target, fresh + row.counts.fresh)
    });
    served as f64 / fresh as f64
}

fn assert_recovers(protect: &str, wanted: f64) {
    let outcome = spike(protect);
    let after = in_time(&outcome, 70.0, 100.0);
    assert!(
        after >= wanted,
        "{protect}: {after:.3} in time after the spike"
    );
    assert_eq!(
        outcome.ledger.offered,
        outcome.ledger.ended() + outcome.unfinished
    );
}

#[test]
fn auto_recovers_within_ten_seconds() {
    for protect in ["mode = 'auto'\ntarget = '500ms'", "mode = 'auto'"] {
        assert_recovers(protect, 0.99);
        let outcome = spike(protect);
        let soon = in_time(&outcome, 50.0, 60.0);
        assert!(
            soon >= 0.97,
            "{protect}: {soon:.3} in time ten seconds after the spike"
        );
    }
}

#[test]
fn a_fixed_rate_recovers() {
    assert_recovers(
        "mode = 'static'\nstatic = { rate = '80/s', burst = 20 }",
        0.98,
    );
}

#[test]
fn step_recovers() {
    assert_recovers("mode = 'step'", 0.9);
}

#[test]
fn pi_recovers() {
    assert_recovers("mode = 'pi'", 0.9);
}

#[test]
fn pid_recovers() {
    assert_recovers("mode = 'pid'", 0.9);
}

#[test]
fn lqr_recovers() {
    assert_recovers(
        "mode = 'lqr'\nlqr = { rate = '85/s', rate_max = '100/s', goodput = '85/s', response_time = '100ms', \
         measurement_interval = '1s', tuning_interval = '2s' }",
        0.9,
    );
}

#[test]
fn sentry_recovers() {
    let sentry = "mode = 'sentry'\ntarget = '500ms'";
    assert_recovers(sentry, 0.98);
    let threshold = "sentry = { policing = 'threshold', threshold_interval = '2s' }";
    assert_recovers(&format!("{sentry}\n{threshold}"), 0.95);
}

#[test]
fn many_classes_recover() {
    let classes: String = (0..20)
        .map(|class| format!("[[protect.classes]]\nname = 'class-{class}'\n"))
        .collect();
    for mode in ["auto", "sentry"] {
        assert_recovers(
            &format!("mode = '{mode}'\ntarget = '500ms'\n{classes}"),
            0.98,
        );
    }
}

/// Without optional content there is nothing to leave out: admission does it alone.
#[test]
fn ilac_recovers_within_ten_seconds() {
    let protect = "mode = 'ilac'\ntarget = '500ms'\nilac = { gamma = 0.5 }";
    assert_recovers(protect, 0.99);
    let soon = in_time(&spike(protect), 50.0, 60.0);
    assert!(
        soon >= 0.97,
        "{soon:.3} in time ten seconds after the spike"
    );
}

/// Half a minute at a twentieth of the capacity drives the rate to its minimum, where fewer
/// requests are answered in an interval than `min_samples`. That is no low traffic: the gate turns
/// the others away, and has to find out that it may open again.
#[test]
fn lqr_leaves_its_lowest_rate() {
    let text = "duration = '240s'\nservice = { law = 'exponential', mean = '154ms' }\n\
         load = { rate = '18/s' }\n\
         [replica]\ncores = 2\nspeed = [{ at = '0s', value = 1 }, { at = '60s', value = 0.05 }, { at = '90s', value = 1 }]\n\
         [protect]\nmode = 'lqr'\n";
    let scenario: Scenario =
        tidegate_config::parse("lowest.toml", text).expect("the scenario is valid");
    let outcome = scenario.run(3).expect("the engine takes the configuration");
    let rate = outcome.series("gauge.output").expect("lqr has an output");
    let lowest = rate
        .iter()
        .map(|&(_, rate)| rate)
        .fold(f64::INFINITY, f64::min);
    assert!(lowest < 1.0, "the rate never was at its minimum: {lowest}");
    let (_, last) = rate[rate.len() - 1];
    assert!(last > 6.0, "still at {last} two minutes after");
}

/// Without protection the queue of the spike is worked off for nobody; when it is gone, so is the
/// harm. This is what the others are compared with.
#[test]
fn off_recovers_later_than_auto() {
    let off = in_time(&spike("mode = 'off'"), 40.0, 70.0);
    let auto = in_time(&spike("mode = 'auto'\ntarget = '500ms'"), 40.0, 70.0);
    assert!(off < auto - 0.1, "off {off:.3}, auto {auto:.3}");
}

/// In front of 200 workers, of which four fifths are needed from the first request on, hundreds
/// wait until the first window of sixteen has grown; with the one that was found before, hardly
/// anybody does.
#[test]
fn a_restart_that_knows_the_windows_is_not_noticed() {
    let text = "duration = '20s'\ntarget = '1s'\nservice = { law = 'exponential', mean = '200ms' }\n\
        load.rate = '800/s'\n[replica]\ncores = 200\n[protect]\nmode = 'auto'\ntarget = '1s'\n";
    let scenario: Scenario =
        tidegate_config::parse("workers.toml", text).expect("the scenario is valid");
    let Protect::Sentry(config) = &scenario.protect else {
        panic!("it is protected");
    };
    let run = |windows: &[(ReplicaId, u32)]| {
        let mut protector = SentryProtector::new(config, 1, 1).unwrap();
        protector.sentry().resume(Timestamp::ZERO, windows);
        let outcome = scenario.run_with(1, &mut protector).unwrap();
        (outcome, protector.sentry().windows())
    };
    let (first, found) = run(&[]);
    let (second, _) = run(&found);
    let (before, after) = (in_time(&first, 0.0, 20.0), in_time(&second, 0.0, 20.0));
    // Of 200 ms on average, exponential, one in 150 takes longer than a second, and some are not
    // done at the end.
    assert!(
        after > before && after > 0.98,
        "{before}, {after} with {found:?}"
    );
    assert_eq!(second.totals.counts.shed, 0);
}
