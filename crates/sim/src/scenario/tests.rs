use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, ReplicaId};

use super::*;
use crate::theory;

fn scenario(text: &str) -> Scenario {
    tidegate_config::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn run(text: &str) -> Outcome {
    let outcome = scenario(text).run(1).unwrap();
    assert_balanced(&outcome);
    outcome
}

/// Every attempt ended exactly once or is still under way, and all books say the same.
fn assert_balanced(outcome: &Outcome) {
    let ledger = &outcome.ledger;
    assert_eq!(ledger.offered, ledger.ended() + outcome.unfinished);
    assert_eq!(ledger.shed, ledger.shed_by.iter().sum::<u64>());
    assert!(ledger.in_target <= ledger.served && ledger.fresh <= ledger.offered);
    let rows: u64 = outcome.rows.iter().map(|row| row.counts.offered).sum();
    assert!(rows <= ledger.offered);
    for row in &outcome.rows {
        let classes: u64 = row.classes.iter().map(|class| class.ended()).sum();
        assert_eq!(classes, row.counts.ended());
        assert!((0.0..=1.0).contains(&row.utilization));
        assert!(row.in_flight >= 0.0 && row.queued >= 0.0);
    }
}

const MM1: &str = "
    duration = '2000s'
    warm_up = '200s'
    service = { law = 'exponential', mean = '10ms' }
    load = { rate = '80/s' }
";

#[test]
fn an_unprotected_replica_is_an_mm1_queue() {
    let outcome = run(MM1);
    let theory = theory::mm1(80.0, 100.0);
    let response = outcome.totals.response.mean();
    assert!(
        (response / theory.response - 1.0).abs() < 0.05,
        "{response}"
    );
    assert!((outcome.utilization - 0.8).abs() < 0.02);
    assert!((outcome.totals.goodput() - 80.0).abs() < 1.0);
    let in_flight: f64 = outcome.rows[200..].iter().map(|row| row.in_flight).sum();
    let little = outcome.totals.goodput() * response;
    assert!(
        (in_flight / 1800.0 / little - 1.0).abs() < 0.01,
        "Little's law"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = scenario(MM1);
    let run = |seed| scenario.run(seed).unwrap();
    assert_eq!(run(5).rows.last(), run(5).rows.last());
    assert_ne!(run(5).ledger, run(6).ledger);
}

const OVERLOAD: &str = "
    duration = '60s'
    warm_up = '10s'
    target = '500ms'
    service = { law = 'exponential', mean = '10ms' }
    load = { rate = '200/s', client = { timeout = '1s' } }
";

#[test]
fn without_protection_overload_wastes_the_capacity() {
    let outcome = run(OVERLOAD);
    assert!(
        outcome.totals.goodput() < 10.0,
        "{}",
        outcome.totals.goodput()
    );
    assert!(outcome.wasted > 4000);
    assert!(outcome.utilization > 0.99);
    let cancelled = run(&format!("{OVERLOAD}\n[replica]\nabandoned = 'cancel'"));
    assert_eq!(cancelled.wasted, 0);
    assert!(cancelled.totals.goodput() > 90.0);
}

#[test]
fn two_protections_face_the_same_requests() {
    let plain = scenario(OVERLOAD).run(3).unwrap();
    let guarded = scenario(&format!("{OVERLOAD}\n[protect]\nmode = 'off'"));
    let guarded = guarded.run(3).unwrap();
    assert_balanced(&guarded);
    let arrivals = |outcome: &Outcome| -> Vec<u64> {
        outcome.rows.iter().map(|row| row.counts.fresh).collect()
    };
    assert_eq!(arrivals(&plain), arrivals(&guarded));
    assert_eq!(plain.ledger, guarded.ledger, "mode off is no protection");
}

/// Sources have streams of their own: a second load leaves the first as it was.
#[test]
fn a_second_load_does_not_disturb_the_first() {
    let gold = "
        duration = '20s'
        service = { law = 'exponential', mean = '1ms' }
        class = [{ name = 'gold' }, { name = 'bronze' }]
        [[load]]
        rate = '30/s'
        client = { class = 'gold' }
    ";
    let both = format!("{gold}\n[[load]]\nrate = '60/s'\nclient = {{ class = 'bronze' }}");
    let arrivals = |outcome: &Outcome| outcome.series("class.gold.offered");
    let (alone, together) = (run(gold), run(&both));
    assert_eq!(arrivals(&alone), arrivals(&together));
    assert!(together.ledger.offered > alone.ledger.offered);
}

#[test]
fn recorded_arrivals_are_played_back() {
    let outcome = run("
        duration = '10s'
        service = '2s'
        load = { times = ['1s', '1.5s', '8.5s'] }
    ");
    let offered: Vec<u64> = outcome.rows.iter().map(|row| row.counts.offered).collect();
    assert_eq!(offered, [1, 1, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(
        outcome.totals.response.max(),
        3.5,
        "the second waits for the first"
    );
    assert_eq!(outcome.unfinished, 1);
}

#[test]
fn retries_multiply_the_load() {
    let outcome = run("
        duration = '60s'
        service = '10ms'
        load = { rate = '200/s', client = { timeout = '500ms', retry = { attempts = 3 } } }
    ");
    let amplification = outcome.ledger.offered as f64 / outcome.ledger.fresh as f64;
    assert!((3.0..=4.0).contains(&amplification), "{amplification}");
    assert!(outcome.ledger.given_up > 0);
}

#[test]
fn capacity_follows_its_schedule() {
    let outcome = run("
        duration = '40s'
        service = '10ms'
        load = { rate = '500/s' }
        [replica]
        count = 2
        speed = [{ at = '0s', value = 1 }, { at = '20s', value = 0.5 }]
    ");
    let goodput = outcome.series("goodput").unwrap();
    assert!((goodput[10].1 - 200.0).abs() <= 2.0 && (goodput[30].1 - 100.0).abs() <= 2.0);
    assert_eq!(outcome.rows[10].capacity, 2.0);
    assert_eq!(outcome.rows[30].capacity, 1.0);
}

#[test]
fn a_dead_replica_loses_what_it_has_and_the_rest_goes_elsewhere() {
    let outcome = run("
        duration = '30s'
        service = { law = 'exponential', mean = '100ms' }
        load = { rate = '20/s' }
        replica = [
            { cores = 4, down = [{ from = '10s', until = '20s' }] },
            { cores = 4 },
        ]
    ");
    let dropped = outcome.ledger.dropped;
    assert!((1..=8).contains(&dropped), "{dropped} were in it");
    assert_eq!(outcome.ledger.shed, 0);
    assert!(outcome.ledger.served + dropped + outcome.unfinished == outcome.ledger.offered);
    assert_eq!(outcome.rows[15].capacity, 4.0);
}

#[test]
fn what_a_dead_replica_never_saw_waits_for_another() {
    let outcome = run("
        duration = '20s'
        health_delay = '500ms'
        service = '10ms'
        load = { rate = '150/s' }
        protect = { mode = 'static', static.window = 100, limits.slots = 1, target = '10s' }
        replica = [{ down = [{ from = '10s', until = '11s' }] }, {}]
    ");
    let ledger = &outcome.ledger;
    assert!(ledger.dropped <= 1, "{} were lost", ledger.dropped);
    assert_eq!(ledger.shed, 0);
    assert_eq!(ledger.admitted, ledger.offered, "each is admitted once");
}

#[test]
fn streams_use_no_capacity_and_are_no_samples() {
    let outcome = run("
        duration = '100s'
        service = '10ms'
        [load]
        rate = '50/s'
        client = [{ share = 0.9 }, { share = 0.1, stream = '20s', timeout = '1s' }]
    ");
    assert!(outcome.ledger.streamed > 300);
    assert_eq!(
        outcome.ledger.abandoned, 0,
        "patience ends with the first byte"
    );
    assert!((outcome.utilization - 0.5).abs() < 0.05);
    assert!(outcome.totals.response.max() < 1.0);
    assert!(outcome.unfinished > 50, "streams are still running");
}

#[test]
fn slow_readers_keep_slots_taken() {
    let text = "
        duration = '100s'
        service = '10ms'
        [load]
        rate = '50/s'
        client = [{ share = 0.9, timeout = '1s' }, { share = 0.1, read = '10s' }]
        [replica]
        slots = 20
    ";
    let outcome = run(text);
    assert!(
        outcome.utilization < 0.3,
        "slots run out long before the core"
    );
    assert!(outcome.totals.counts.abandoned > 1000);
    let roomy = run(&text.replace("slots = 20", "slots = 'unlimited'"));
    assert_eq!(roomy.totals.counts.abandoned, 0);
}

#[test]
fn a_dying_replica_breaks_its_streams() {
    let outcome = run("
        duration = '20s'
        service = '10ms'
        load = { rate = '10/s', client = { stream = '1h' } }
        replica = { down = [{ from = '10s' }] }
    ");
    assert!(outcome.ledger.dropped > 80);
    assert_eq!(outcome.ledger.streamed, 0);
    assert!(outcome.ledger.shed_by[tidegate_sentry::ShedReason::NoReplica.index()] > 50);
}

/// The interactive response time law: users = throughput · (response + think).
#[test]
fn a_closed_loop_obeys_the_response_time_law() {
    let outcome = run("
        duration = '1000s'
        warm_up = '100s'
        service = { law = 'exponential', mean = '50ms' }
        load = { users = 30, think = { law = 'exponential', mean = '1s' } }
    ");
    let users = outcome.totals.goodput() * (outcome.totals.response.mean() + 1.0);
    assert!((users - 30.0).abs() < 0.5, "{users}");
    assert!(outcome.totals.goodput() < 20.0);
}

#[test]
fn classes_are_counted_apart() {
    let outcome = run("
        duration = '20s'
        service = '1ms'
        class = [{ name = 'gold', target = '1us' }, { name = 'bronze' }]
        [[load]]
        rate = '30/s'
        client = { class = 'gold' }
        [[load]]
        rate = '60/s'
        client = { class = 'bronze', work = 2 }
    ");
    let [gold, bronze] = &outcome.class_totals[..] else {
        panic!("two classes");
    };
    assert_eq!(gold.counts.in_target, 0);
    assert_eq!(bronze.counts.in_target, bronze.counts.served);
    assert!(bronze.counts.served > gold.counts.served);
    assert!(gold.response.mean() < bronze.response.mean());
    let series = outcome.series("class.gold.goodput").unwrap();
    assert_eq!(series.len(), 20);
    assert!(outcome.series("class.gold.shed.predicted").is_some());
    assert!(outcome.series("class.tin.goodput").is_none());
}

#[test]
fn every_listed_series_exists() {
    let outcome = run(&format!("{OVERLOAD}\n[protect]\nmode = 'off'"));
    for name in Outcome::SERIES {
        assert_eq!(
            outcome.series(name).map(|points| points.len()),
            Some(60),
            "{name}"
        );
    }
    assert!(outcome.series("gauge.window").is_some());
    assert!(outcome.series("gauge.nonsense").is_none() && outcome.series("x").is_none());
}

#[test]
fn contradictions_are_refused() {
    for (text, part) in [
        ("load = { }", "one of `rate`, `times` and `users`"),
        ("load = { users = 3 }", "both `users` and `think`"),
        (
            "load = { users = 3, think = '0s' }",
            "both `users` and `think`",
        ),
        (
            "load = { rate = '1/s', client = { class = 'tin' } }",
            "known: default",
        ),
        (
            "load = { rate = '1/s', client = { share = 0 } }",
            "all be 0",
        ),
        (
            "load = { rate = '1/s' }\nwarm_up = '10s'",
            "longer than `warm_up`",
        ),
        ("load = { rate = '1/s' }\ninterval = '0s'", "longer than 0"),
        (
            "load = { rate = '1/s' }\nreplica = { down = [{ from = '3s', until = '2s' }] }",
            "in order",
        ),
        (
            "load = { rate = '1/s' }\nclass = [{ name = 'a' }]\n[protect]\nclasses = [{ name = 'b' }]",
            "leave one of them out",
        ),
    ] {
        let text = format!("duration = '5s'\nservice = '1ms'\n{text}");
        let error = scenario(&text).run(1).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let misspelt = "duration = '5s'\nservice = '1ms'\nload = { rate = '1/s' }\nprotect = 'nine'";
    let error = tidegate_config::parse::<Scenario>("t.toml", misspelt).unwrap_err();
    assert_eq!(error.line(), Some(4), "{error}");
}

/// Admits everything to the one replica; writes down when it was told what.
#[derive(Debug, Default)]
struct Diary {
    next: Timestamp,
    told: Vec<(Timestamp, &'static str, f64)>,
}

impl Protector for Diary {
    fn on_arrival(&mut self, _: Timestamp, _: RequestId, _: &Arrival) -> Decision {
        Decision::Admit(ReplicaId(0))
    }
    fn reassign(&mut self, _: Timestamp, _: RequestId) -> Option<ReplicaId> {
        None
    }
    fn on_stream(&mut self, _: Timestamp, _: RequestId, _: &mut Wakes) {}
    fn on_end(&mut self, _: Timestamp, _: RequestId, _: Ending, _: &mut Wakes) {}
    fn on_abandon(&mut self, _: Timestamp, _: RequestId) {}
    fn on_report(&mut self, now: Timestamp, _: ReplicaId, utilization: f64) {
        self.told.push((now, "report", utilization));
    }
    fn set_health(&mut self, _: Timestamp, _: ReplicaId, _: bool, _: &mut Wakes) {}
    fn poll_timeout(&self) -> Timestamp {
        self.next
    }
    fn handle_timeout(&mut self, now: Timestamp, _: &mut dyn Observer, _: &mut Wakes) {
        self.told.push((now, "tick", 0.0));
        self.next = now + std::time::Duration::from_secs(1);
    }
    fn gauges(&self, _: Timestamp, _: &mut dyn FnMut(&'static str, f64)) {}
}

#[test]
fn a_controller_sees_the_interval_that_just_ended() {
    let mut diary = Diary::default();
    let text = "
        duration = '10s'
        service = '30ms'
        load = { rate = '10/s', spacing = 'deterministic' }
    ";
    scenario(text).run_with(1, &mut diary).unwrap();
    let ticks = diary.told.iter().filter(|told| told.1 == "tick");
    assert_eq!(ticks.count(), 11);
    for pair in diary.told[1..].chunks(2) {
        assert_eq!((pair[0].1, pair[1].1), ("report", "tick"));
        assert_eq!(pair[0].0, pair[1].0);
        assert!((pair[0].2 - 0.3).abs() < 0.031, "{}", pair[0].2);
    }
}

fn any_protection() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("protect = 'none'"),
        Just("protect = 'least-in-flight'"),
        Just("[protect]\nmode = 'off'"),
        Just("[protect]\nmode = 'off'\n[protect.limits]\nslots = 3"),
        Just("[protect]\nmode = 'auto'\ntarget = '300ms'"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever clients and replicas do, every attempt ends exactly once.
    #[test]
    fn every_attempt_ends_exactly_once(
        seed in any::<u64>(),
        rate in 1u32..400,
        timeout in 20u32..2000,
        attempts in 1u32..4,
        count in 1u32..4,
        queue in 0u32..20,
        kill in 1u32..9,
        cancel in any::<bool>(),
        protection in any_protection(),
    ) {
        let abandoned = if cancel { "cancel" } else { "finish" };
        let text = format!("
            duration = '10s'
            health_delay = '500ms'
            service = {{ law = 'exponential', mean = '20ms' }}
            load = {{ rate = '{rate}/s', client = [
                {{ timeout = '{timeout}ms', retry = {{ attempts = {attempts} }} }},
                {{ share = 0.1, stream = '2s' }},
                {{ share = 0.1, read = '1s', timeout = '100ms' }},
                {{ share = 0.1, work = 20 }},
            ] }}
            replica = [
                {{ count = {count}, slots = 8, queue = {queue}, abandoned = '{abandoned}' }},
                {{ slots = 'unlimited', down = [{{ from = '{kill}s', until = '{kill}.7s' }}] }},
            ]
            {protection}
        ");
        assert_balanced(&scenario(&text).run(seed).unwrap());
    }
}

#[test]
fn weights_send_a_fast_replica_its_part() {
    let response = |weight: u32| {
        let text = format!(
            "duration = '120s'\nwarm_up = '20s'\nservice = {{ law = 'exponential', mean = '10ms' }}\n\
             load = {{ rate = '300/s' }}\nprotect = {{ mode = 'off', balance = 'round-robin' }}\n\
             [[replica]]\nspeed = 1.0\n[[replica]]\nspeed = 3.0\nweight = {weight}\n"
        );
        run(&text).totals.response.mean()
    };
    let (even, weighted) = (response(1), response(3));
    assert!(
        weighted < 0.1 && even > 10.0 * weighted,
        "{even} s evenly, {weighted} s by weight"
    );
}

/// Every example of the table of arrivals in experiments/README.md is a load that runs.
#[test]
fn documented_arrivals_run() {
    let page = include_str!("../../../../experiments/README.md");
    let table = page.split("## Arrivals").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut examples = 0;
    for row in rows {
        let example = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let keys = example.trim_matches('`').replace("`, `", "\n");
        let rate = if keys.contains("users") {
            ""
        } else {
            "rate = '40/s'"
        };
        let text = format!(
            "duration = '20s'\nservice = '10ms'\n[load]\n{rate}\n{keys}\n[replica]\ncores = 4\n"
        );
        let scenario: Scenario = tidegate_config::parse("example.toml", &text).unwrap();
        let outcome = scenario.run(1).unwrap();
        assert!(outcome.totals.counts.offered > 100, "{keys}: {outcome:?}");
        examples += 1;
    }
    assert_eq!(examples, 8, "every process has an example");
}
