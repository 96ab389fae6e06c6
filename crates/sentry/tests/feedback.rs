//! Controllers of utilization on reports that come with answers, or do not come.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, Ending, Event, Permit, ReplicaId, Report, Sentry, SentryConfig, Verdict,
};

const PI: &str = "mode = 'pi'\n[pi]\ngain = 50\nintegral_time = '3s'\nsetpoint = 0.9\n\
                  initial = 100\nmin = 0\nmax = 200\n";

/// Lets ten requests in, ends them all in the same way, with or without a report, and gives the
/// controller a second; returns how many per second it lets in then.
fn second(sentry: &Sentry<()>, from: Timestamp, ending: Ending, report: Option<f64>) -> f64 {
    let permits: Vec<Permit> = (0..10)
        .filter_map(
            |_| match sentry.on_arrival(from, &Arrival::default(), || ()) {
                Verdict::Admit(permit) => Some(permit),
                _ => None,
            },
        )
        .collect();
    for permit in permits {
        sentry.on_end(from, permit, ending).for_each(drop);
    }
    if report.is_some() {
        let report = Report {
            utilization: report,
            ..Report::default()
        };
        sentry.on_report(from, ReplicaId(0), &report);
    }
    let until = from + Duration::from_secs(1);
    while sentry.poll_timeout() <= until {
        let ticked = sentry.handle_timeout(sentry.poll_timeout(), &mut |_: &Event| {});
        ticked.for_each(drop);
    }
    let controller = sentry.status(until).controller;
    controller.expect("a mode with a controller").output
}

fn sentry() -> Sentry<()> {
    let config: SentryConfig = tidegate_config::parse("test.toml", PI).expect("it parses");
    Sentry::new(&config, 1, Timestamp::ZERO, 1).expect("it is valid")
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

/// After a second with `first`, and ten more in which every client leaves before its answer.
fn after_silence(first: Option<f64>) -> f64 {
    let sentry = sentry();
    second(&sentry, at(0), Ending::Served, first);
    (1..=10).fold(f64::NAN, |_, seconds| {
        second(&sentry, at(seconds), Ending::Abandoned, None)
    })
}

#[test]
fn where_everybody_leaves_unanswered_less_is_let_in() {
    let admitted = after_silence(Some(0.9));
    assert!(admitted < 85.0, "{admitted}");
}

#[test]
fn gate_that_is_shut_opens_again_without_reports() {
    let sentry = sentry();
    second(&sentry, at(0), Ending::Served, Some(0.9));
    let mut seconds = 1..200;
    let shut = seconds.find(|&s| second(&sentry, at(s), Ending::Abandoned, None) == 0.0);
    assert!(shut.is_some(), "it never shuts");
    let open = seconds.find(|&s| second(&sentry, at(s), Ending::Abandoned, None) > 0.0);
    assert!(open.is_some(), "it stays shut");
}

#[test]
fn service_that_never_reports_is_left_alone() {
    assert_eq!(after_silence(None), 100.0);
}

fn of_mode(mode: &str) -> Sentry<()> {
    let text = format!("mode = '{mode}'\n");
    let config: SentryConfig = tidegate_config::parse("test.toml", &text).expect("it parses");
    Sentry::new(&config, 1, Timestamp::ZERO, 1).expect("it is valid")
}

fn is_admitted(sentry: &Sentry<()>, now: Timestamp) -> bool {
    let verdict = sentry.on_arrival(now, &Arrival::default(), || ());
    let Verdict::Admit(permit) = verdict else {
        return false;
    };
    sentry.on_end(now, permit, Ending::Served).for_each(drop);
    true
}

#[test]
fn first_request_to_an_idle_service_is_admitted() {
    for mode in ["step", "pi", "pid"] {
        let sentry = of_mode(mode);
        assert!(is_admitted(&sentry, at(0)), "{mode}: at once");
        assert!(is_admitted(&of_mode(mode), at(3600)), "{mode}: later");
    }
}

#[test]
fn service_that_never_reports_is_admitted_whole_and_status_shows_it() {
    for mode in ["step", "pi", "pid"] {
        let sentry = of_mode(mode);
        assert!(!sentry.status(at(0)).blind, "{mode}: nothing is known yet");
        for s in 0..20 {
            let all = (0..50).all(|_| is_admitted(&sentry, at(s)));
            assert!(all, "{mode}: shed at {s} s");
            second(&sentry, at(s), Ending::Served, None);
        }
        assert!(sentry.status(at(20)).blind, "{mode}");
        second(&sentry, at(20), Ending::Served, Some(0.5));
        assert!(!sentry.status(at(21)).blind, "{mode}");
    }
}

fn tick_until(sentry: &Sentry<()>, now: Timestamp) {
    while sentry.poll_timeout() <= now {
        let ticked = sentry.handle_timeout(sentry.poll_timeout(), &mut |_: &Event| {});
        ticked.for_each(drop);
    }
}

/// Ten requests a second, and utilization that jumps around a mean of a half: the noise of the
/// proportional term must not lower the command for good.
#[test]
fn noise_below_the_setpoint_sheds_nothing() {
    for mode in ["step", "pi", "pid"] {
        let sentry = of_mode(mode);
        for tenth in 0..3000 {
            let now = Timestamp::ZERO + Duration::from_millis(100 * tenth);
            tick_until(&sentry, now);
            assert!(is_admitted(&sentry, now), "{mode}: shed at {now:?}");
            let busy = if tenth % 20 < 10 { 0.1 } else { 0.95 };
            let report = Report {
                utilization: Some(busy),
                ..Report::default()
            };
            sentry.on_report(now, ReplicaId(0), &report);
        }
    }
}
