//! The status shows the phase of each replica's search for its window.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Event, PhaseName, ReplicaId, Sentry, SentryConfig, Verdict};

fn sentry(text: &str) -> Sentry<usize> {
    let config: SentryConfig = tidegate_config::parse("test.toml", text).expect("it parses");
    Sentry::new(&config, 1, Timestamp::ZERO, 1).expect("it is valid")
}

fn phase(sentry: &Sentry<usize>, now: Timestamp) -> Option<PhaseName> {
    sentry.status(now).replicas[0].phase
}

#[test]
fn phase_of_a_replica_follows_its_first_queue() {
    let sentry = sentry("mode = 'auto'");
    assert_eq!(phase(&sentry, Timestamp::ZERO), Some(PhaseName::Idle));
    let arrive = |number| sentry.on_arrival(Timestamp::ZERO, &Arrival::default(), || number);
    let verdicts: Vec<_> = (0..40).map(arrive).collect();
    let waits = |verdict: &&Verdict| matches!(verdict, Verdict::Wait(_));
    assert!(verdicts.iter().filter(waits).count() > 0);
    let now = Timestamp::ZERO + Duration::from_millis(200);
    let mut changes = Vec::new();
    let mut observe = |event: &Event| {
        if let Event::Phase {
            from, to, cause, ..
        } = event
        {
            changes.push((*from, *to, cause.as_str()));
        }
    };
    sentry.handle_timeout(now, &mut observe).for_each(drop);
    assert_eq!(phase(&sentry, now), Some(PhaseName::SlowStart));
    let begins = (PhaseName::Idle, PhaseName::SlowStart, "requests_wait");
    assert_eq!(changes, [begins]);
}

/// Changes of the window in the next tick, with their causes.
fn window_changes(sentry: &Sentry<usize>, now: Timestamp) -> Vec<(u32, u32, &'static str)> {
    let mut changes = Vec::new();
    let mut observe = |event: &Event| {
        if let Event::Window {
            from, to, cause, ..
        } = event
        {
            changes.push((*from, *to, cause.as_str()));
        }
    };
    sentry.handle_timeout(now, &mut observe).for_each(drop);
    changes
}

#[test]
fn window_that_is_resumed_or_confined_is_an_event_with_its_cause() {
    let sentry = sentry("mode = 'auto'");
    let tick = |number: u32| Timestamp::ZERO + number * Duration::from_millis(200);
    sentry.resume(tick(0), &[(ReplicaId(0), 40)]);
    assert_eq!(window_changes(&sentry, tick(1)), [(16, 40, "resumed")]);
    let text = "mode = 'auto'\nlimits = { window_max = 25 }";
    let config = tidegate_config::parse("test.toml", text).expect("it parses");
    let (added, resolutions) = sentry
        .reconfigure(tick(1), &config, &[])
        .expect("it is valid");
    assert!(added.is_empty());
    resolutions.for_each(drop);
    assert_eq!(window_changes(&sentry, tick(2)), [(40, 25, "bounds")]);
    assert_eq!(window_changes(&sentry, tick(3)), []);
}

#[test]
fn mode_without_a_search_has_no_phase() {
    assert_eq!(phase(&sentry("mode = 'off'"), Timestamp::ZERO), None);
}
