//! Pools that change while a scenario runs, and applications and proxies of a service in flat keys.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Observer, ReplicaId, Report};
use tidegate_sim::my_service::{MyService, ServiceRow};
use tidegate_sim::scenario::{
    Decision, Orders, Outcome, PoolChange, Protector, RequestId, Scenario, Wakes,
};

/// Notes when each replica got its requests, and how they ended.
#[derive(Debug)]
struct Ledger {
    inner: Box<dyn Protector>,
    admitted: Vec<(f64, ReplicaId)>,
    dropped: u32,
}

impl Ledger {
    fn note(&mut self, now: Timestamp, decision: &Decision) {
        if let Decision::Admit(replica) = decision {
            let at = now.since(Timestamp::ZERO).as_secs_f64();
            self.admitted.push((at, *replica));
        }
    }

    fn noting(
        &mut self,
        now: Timestamp,
        wakes: &mut Wakes,
        call: impl FnOnce(&mut dyn Protector, &mut Wakes),
    ) {
        let before = wakes.len();
        call(self.inner.as_mut(), wakes);
        let woken: Vec<Decision> = wakes.iter().skip(before).map(|(_, it)| *it).collect();
        woken.iter().for_each(|decision| self.note(now, decision));
    }

    /// How many requests a replica got in a span of time.
    fn count(&self, replica: u16, from: f64, until: f64) -> usize {
        let those = self.admitted.iter();
        those
            .filter(|(at, it)| it.0 == replica && (from..until).contains(at))
            .count()
    }
}

impl Protector for Ledger {
    fn on_arrival(&mut self, now: Timestamp, request: RequestId, arrival: &Arrival) -> Decision {
        let decision = self.inner.on_arrival(now, request, arrival);
        self.note(now, &decision);
        decision
    }

    fn orders(&self, request: RequestId) -> Orders {
        self.inner.orders(request)
    }

    fn on_answer(&mut self, now: Timestamp, replica: ReplicaId, report: &Report) {
        self.inner.on_answer(now, replica, report);
    }

    fn reassign(&mut self, now: Timestamp, request: RequestId) -> Option<ReplicaId> {
        self.inner.reassign(now, request)
    }

    fn requeue(
        &mut self,
        now: Timestamp,
        request: RequestId,
        arrival: &Arrival,
        wakes: &mut Wakes,
    ) -> bool {
        self.inner.requeue(now, request, arrival, wakes)
    }

    fn on_stream(&mut self, now: Timestamp, request: RequestId, wakes: &mut Wakes) {
        self.noting(now, wakes, |inner, wakes| {
            inner.on_stream(now, request, wakes);
        });
    }

    fn on_end(&mut self, now: Timestamp, request: RequestId, ending: Ending, wakes: &mut Wakes) {
        self.dropped += u32::from(ending == Ending::Dropped);
        self.noting(now, wakes, |inner, wakes| {
            inner.on_end(now, request, ending, wakes);
        });
    }

    fn on_abandon(&mut self, now: Timestamp, request: RequestId) {
        self.inner.on_abandon(now, request);
    }

    fn on_report(&mut self, now: Timestamp, replica: ReplicaId, utilization: f64) {
        self.inner.on_report(now, replica, utilization);
    }

    fn set_health(&mut self, now: Timestamp, replica: ReplicaId, up: bool, wakes: &mut Wakes) {
        self.noting(now, wakes, |inner, wakes| {
            inner.set_health(now, replica, up, wakes);
        });
    }

    fn change_pool(&mut self, now: Timestamp, change: PoolChange, wakes: &mut Wakes) {
        self.noting(now, wakes, |inner, wakes| {
            inner.change_pool(now, change, wakes);
        });
    }

    fn poll_timeout(&self) -> Timestamp {
        self.inner.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Timestamp, observer: &mut dyn Observer, wakes: &mut Wakes) {
        self.noting(now, wakes, |inner, wakes| {
            inner.handle_timeout(now, observer, wakes);
        });
    }

    fn gauges(&self, now: Timestamp, gauge: &mut dyn FnMut(&'static str, f64)) {
        self.inner.gauges(now, gauge);
    }
}

fn run(text: &str) -> (Ledger, Outcome) {
    let scenario: Scenario =
        tidegate_config::parse("pool.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let mut ledger = Ledger {
        inner: scenario.protector(5).unwrap(),
        admitted: Vec::new(),
        dropped: 0,
    };
    let outcome = scenario.run_with(5, &mut ledger).unwrap();
    (ledger, outcome)
}

/// 200/s for replicas of 200/s each, requests of 20 ms.
const SERVICE: &str = "
    duration = '60s'
    target = '500ms'
    service = { law = 'exponential', mean = '20ms' }
    load = { rate = '200/s' }
";

const PROTECTIONS: [&str; 4] = [
    "protect = { mode = 'auto', target = '500ms' }",
    "protect = { mode = 'static', static.rate = '1000/s', limits.slots = 8 }",
    "protect = { mode = 'auto', target = '500ms' }\nfleet = { proxies = 3, delay = '2ms' }",
    "protect = 'least-in-flight'",
];

#[test]
fn drained_replica_gets_nothing_new_and_loses_nothing() {
    for protection in PROTECTIONS {
        let text = format!(
            "{SERVICE}{protection}\n[[replica]]\ncores = 4\ncount = 2\n\
             [[replica]]\ncores = 4\ndrained = [{{ from = '20s', until = '40s' }}]\n"
        );
        let (ledger, outcome) = run(&text);
        assert!(ledger.count(2, 0.0, 20.0) > 500, "{protection}");
        assert_eq!(ledger.count(2, 20.0, 40.0), 0, "{protection}");
        assert!(ledger.count(2, 40.0, 60.0) > 500, "{protection}");
        let counts = &outcome.ledger;
        assert_eq!(
            (
                ledger.dropped,
                counts.dropped,
                counts.abandoned,
                counts.shed
            ),
            (0, 0, 0, 0),
            "{protection}"
        );
        assert_eq!(counts.served + outcome.unfinished, counts.offered);
        assert_eq!(outcome.series("replicas").unwrap()[30].1, 2.0);
    }
}

/// Under overload, so that requests wait when the pool changes.
#[test]
fn replicas_that_come_and_go_lose_no_request_and_bring_their_capacity() {
    for protection in &PROTECTIONS[..3] {
        let text = format!(
            "{}{protection}\n[[replica]]\ncores = 4\n[[replica]]\ncores = 4\nremoved = '40s'\n\
             [[replica]]\ncores = 4\nadded = '10s'\nstart_delay = '10s'\n",
            SERVICE.replace("200/s", "900/s")
        );
        let (ledger, outcome) = run(&text);
        assert_eq!(
            ledger.count(2, 0.0, 20.0),
            0,
            "it has not started: {protection}"
        );
        assert_eq!(
            ledger.count(1, 40.0, 60.0),
            0,
            "it is removed: {protection}"
        );
        assert_eq!(outcome.ledger.dropped, 0, "{protection}");
        let goodput = outcome.series("goodput").unwrap();
        let mean = |from: f64, until: f64| {
            let span = goodput.iter().filter(|(at, _)| *at > from && *at <= until);
            span.clone().map(|(_, value)| value).sum::<f64>() / span.count() as f64
        };
        let (two, three, again) = (mean(12.0, 20.0), mean(24.0, 40.0), mean(44.0, 60.0));
        assert!((360.0..420.0).contains(&two), "{two}: {protection}");
        assert!((540.0..630.0).contains(&three), "{three}: {protection}");
        assert!((360.0..420.0).contains(&again), "{again}: {protection}");
    }
}

/// The engine gives numbers of removed replicas again: a driver that takes one for another sends
/// requests to a replica that left.
#[test]
fn numbers_that_the_engine_gives_again_are_not_mistaken() {
    let mut text = format!("{SERVICE}{}\n[[replica]]\ncores = 4\n", PROTECTIONS[0]);
    for turn in 0..10 {
        let added = 2 + 5 * turn;
        text += &format!(
            "[[replica]]\ncores = 4\nadded = '{added}s'\nremoved = '{}s'\n",
            added + 3
        );
    }
    let (ledger, outcome) = run(&text);
    for replica in 1..=10 {
        let added = f64::from(2 + 5 * (replica - 1));
        let inside = ledger.count(replica, added, added + 3.0);
        assert!(inside > 50, "replica {replica}: {inside}");
        assert_eq!(
            ledger.count(replica, 0.0, 60.0),
            inside,
            "replica {replica}"
        );
    }
    assert_eq!(outcome.ledger.dropped, 0);
}

#[test]
fn other_weight_is_another_part_of_the_requests() {
    let text = format!(
        "{SERVICE}protect = {{ mode = 'off', balance = 'round-robin' }}\n[[replica]]\ncores = 8\n\
         [[replica]]\ncores = 8\nreweighted = [{{ at = '30s', weight = 3 }}]\n"
    );
    let (ledger, _) = run(&text);
    let share = |from, until| {
        let (first, second) = (ledger.count(0, from, until), ledger.count(1, from, until));
        second as f64 / (first + second) as f64
    };
    assert!((share(0.0, 30.0) - 0.5).abs() < 0.02);
    assert!((share(30.0, 60.0) - 0.75).abs() < 0.02);
}

/// A proxy that starts anew has the pool of the moment.
#[test]
fn proxy_that_starts_later_knows_which_replicas_are_drained_or_gone() {
    let fleet = "fleet = { proxies = 2, down = [{ proxy = 1, from = '10s', until = '30s' }] }";
    let text = format!(
        "{SERVICE}{}\n{fleet}\n[[replica]]\ncores = 4\n[[replica]]\ncores = 4\n\
         drained = [{{ from = '15s' }}]\n[[replica]]\ncores = 4\nremoved = '20s'\n\
         [[replica]]\ncores = 4\nadded = '20s'\n",
        PROTECTIONS[0]
    );
    let (ledger, outcome) = run(&text);
    assert_eq!(ledger.count(1, 15.0, 60.0) + ledger.count(2, 20.0, 60.0), 0);
    assert!(ledger.count(3, 30.0, 60.0) > 1000);
    assert_eq!(outcome.ledger.dropped, 0);
}

#[test]
fn pools_that_cannot_be_are_refused_by_their_key() {
    for (replica, part) in [
        ("added = '0s'", "`added` is later than 0"),
        (
            "start_delay = '1s'",
            "`start_delay` is for a replica that is `added`",
        ),
        (
            "added = '20s'\nremoved = '10s'",
            "`removed` is later than `added`",
        ),
        (
            "drained = [{ from = '9s' }]\nadded = '10s'",
            "`drained` at 9s",
        ),
        (
            "reweighted = [{ at = '9s', weight = 2 }]\nremoved = '9s'",
            "`reweighted` at 9s",
        ),
        (
            "drained = [{ from = '9s' }, { from = '12s' }]",
            "the times in `drained`",
        ),
    ] {
        let text = format!("{SERVICE}[[replica]]\n[[replica]]\n{replica}\n");
        let scenario: Scenario = tidegate_config::parse("pool.toml", &text).unwrap();
        let error = scenario.run(1).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let text = format!("{SERVICE}[[replica]]\nadded = '10s'\n");
    let scenario: Scenario = tidegate_config::parse("pool.toml", &text).unwrap();
    let error = scenario.run(1).unwrap_err().to_string();
    assert!(error.contains("begins with one"), "{error}");
}

fn rows(text: &str) -> Vec<ServiceRow> {
    let service: MyService =
        tidegate_config::parse("my.toml", text).unwrap_or_else(|error| panic!("{error}"));
    service.run(4).unwrap_or_else(|error| panic!("{error}"))
}

const THREE: &str = "
    duration = '60s'
    warm_up = '20s'
    modes = ['auto', 'none']
    [[application]]
    name = 'busy'
    rate = '1600/s'
    [[application]]
    name = 'calm'
    rate = '80/s'
    service = '10ms'
    class = [{ name = 'gold', share = '50%' }, { name = 'rest', share = '50%' }]
    [[application]]
    name = 'off'
    mode = 'off'
    replicas = 3
    target = '100ms'
";

#[test]
fn applications_have_load_classes_mode_and_pool_of_their_own() {
    let rows = rows(THREE);
    let names: Vec<_> = rows
        .iter()
        .map(|row| (row.application.as_deref().unwrap(), row.mode.as_str()))
        .collect();
    let expected = [
        ("busy", "auto"),
        ("calm", "auto"),
        ("off", "off"),
        ("all", "auto"),
        ("busy", "none"),
        ("calm", "none"),
        ("off", "none"),
        ("all", "none"),
    ];
    assert_eq!(names, expected);
    let [busy, calm, off, all, unprotected, calm_too, ..] = &rows[..] else {
        panic!("eight rows")
    };
    // 320/s is what two replicas of four workers can do at 25 ms.
    assert!(
        (280.0..330.0).contains(&busy.goodput_per_second),
        "{busy:?}"
    );
    assert!(unprotected.goodput_per_second < 60.0, "{unprotected:?}");
    assert!(calm.in_target > 0.999 && calm.shed == 0.0, "{calm:?}");
    assert_eq!(calm.classes.len(), 2);
    assert!((calm.p99_seconds - calm_too.p99_seconds).abs() < 0.3 * calm.p99_seconds);
    assert!(off.in_target > 0.8 && off.shed == 0.0, "{off:?}");
    let sum = busy.goodput_per_second + calm.goodput_per_second + off.goodput_per_second;
    assert!((all.goodput_per_second - sum).abs() < 1e-6 * sum, "{all:?}");
}

/// What happens to one application does not change what another one is given.
#[test]
fn application_is_the_same_beside_others_and_alone() {
    let beside = rows(THREE);
    let alone = rows(&THREE.replace("'1600/s'", "'10/s'"));
    assert_eq!(
        beside[1].p99_seconds.to_bits(),
        alone[1].p99_seconds.to_bits()
    );
    assert_ne!(
        beside[0].p99_seconds.to_bits(),
        alone[0].p99_seconds.to_bits()
    );
}

/// Four replicas of one worker do 200/s of 20 ms; 600/s arrive.
const SHARED: &str = "
    duration = '60s'
    warm_up = '10s'
    rate = '600/s'
    service = '20ms'
    replicas = 4
    workers = 1
    target = '200ms'
    timeout = '1s'
    modes = ['auto']
";

#[test]
fn proxies_lose_goodput_without_exchange_and_none_with_it() {
    let run = |seed: u64, fleet: &str| {
        let text = format!("{SHARED}{fleet}");
        let service: MyService = tidegate_config::parse("shared.toml", &text).unwrap();
        service.run(seed).unwrap().remove(0)
    };
    let mean = |fleet: &str| {
        let rows: Vec<ServiceRow> = (1..=3).map(|seed| run(seed, fleet)).collect();
        let sum = |value: fn(&ServiceRow) -> f64| rows.iter().map(value).sum::<f64>() / 3.0;
        (
            sum(|row| row.goodput_per_second),
            sum(|row| row.p99_seconds),
        )
    };
    let (one, _) = mean("");
    for (proxies, lost) in [(2, 0.975), (4, 0.7)] {
        let (with, p99) = mean(&format!("fleet = {{ proxies = {proxies} }}"));
        let alone = format!("fleet = {{ proxies = {proxies}, exchange = false }}");
        let (without, p99_without) = mean(&alone);
        let found =
            format!("{proxies} proxies: {with} {p99}, alone {without} {p99_without}, one {one}");
        assert!(with > 0.96 * one, "{found}");
        assert!(without < lost * one, "{found}");
        // Replicas hold what each proxy gives them: answers are late.
        assert!(p99_without > 1.2 * p99, "{found}");
    }
}

#[test]
fn flat_changes_of_the_pool_take_effect() {
    let rows = rows(
        "rate = '600/s'
         duration = '120s'
         modes = ['auto']
         start_delay = '10s'
         [[change]]
         at = '30s'
         add = 2
         [[change]]
         at = '70s'
         drain = 1
         [[change]]
         at = '90s'
         replicas = 2",
    );
    let row = &rows[0];
    let at = |second: usize| row.replicas_over_time[second].1;
    assert_eq!((at(35), at(50), at(80), at(100)), (2.0, 4.0, 3.0, 2.0));
    let mean = |from: f64, until: f64| {
        let span = row
            .over_time
            .iter()
            .filter(|(at, _)| *at > from && *at <= until);
        span.clone().map(|(_, value)| value).sum::<f64>() / span.count() as f64
    };
    // A replica does 160/s.
    let (before, more, drained, after) = (
        mean(20.0, 40.0),
        mean(45.0, 70.0),
        mean(75.0, 90.0),
        mean(95.0, 120.0),
    );
    assert!((280.0..330.0).contains(&before), "{before}");
    assert!(more > 570.0, "{more}");
    assert!((420.0..500.0).contains(&drained), "{drained}");
    assert!((280.0..330.0).contains(&after), "{after}");
}

#[test]
fn problems_name_the_application_and_the_change() {
    for (text, parts) in [
        (
            "[[application]]\nname = 'api'\nchange = [{ at = '2m', drain = 3 }]",
            ["application `api`", "120s: `drain` is 3"],
        ),
        (
            "[[application]]\nname = 'a'\n[[application]]\nname = 'a'",
            ["two applications", "`a`"],
        ),
        ("[[application]]\nname = 'all'", ["application 1", "`all`"]),
        (
            "[[application]]\nname = 'a'\nmode = 'fast'",
            ["application `a`", "fast"],
        ),
        (
            "[[application]]\nname = 'a'\nworkers = 0",
            ["application `a`", "workers"],
        ),
        (
            "fleet = { proxies = 2, traffic = [1] }",
            ["fleet.traffic", "1 parts for 2"],
        ),
    ] {
        let service: MyService = tidegate_config::parse("my.toml", text).unwrap();
        let error = service.run(1).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

/// A pool without replicas refuses, and serves again when one has started.
#[test]
fn pool_that_is_empty_for_a_while_refuses_and_recovers() {
    let rows = rows(
        "duration = '60s'\nwarm_up = '1s'\nrate = '50/s'\nreplicas = 1\nmodes = ['auto', 'none']\n\
         change = [{ at = '20s', remove = 1 }, { at = '30s', add = 1 }]",
    );
    for row in rows {
        let empty: f64 = row.over_time[21..29].iter().map(|(_, value)| value).sum();
        let later: f64 = row.over_time[40..59].iter().map(|(_, value)| value).sum();
        assert!(
            empty == 0.0 && later > 700.0,
            "{}: {empty} {later}",
            row.mode
        );
        assert!(row.lost < 0.01, "{row:?}");
    }
}

/// Every example of docs/simulator.md is a file that runs.
#[test]
fn documented_services_run() {
    let page = include_str!("../../../docs/simulator.md");
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    let (scenario, services) = examples.split_last().unwrap();
    assert_eq!(services.len(), 6);
    for example in services {
        let rows = rows(example);
        assert!(
            rows.iter()
                .all(|row| row.mode == "none" || row.goodput_per_second > 0.5),
            "{rows:?}"
        );
    }
    let (_, outcome) = run(&format!(
        "{}{}\n[[replica]]\n{scenario}",
        SERVICE.replace("'60s'", "'160s'"),
        PROTECTIONS[0]
    ));
    assert_eq!(outcome.series("replicas").unwrap()[70].1, 3.0);
}
