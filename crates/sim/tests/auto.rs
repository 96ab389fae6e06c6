//! The bars of mode `auto`, over eleven services that differ in what is inside them.
//!
//! Goodput within the target is compared with what is possible: of the requests that arrive, or
//! that the capacity allows, those whose bare service fits into the target at the speed of the
//! moment. A request of 200 ms on average, exponential, with a target of 1 s at a quarter of the
//! speed is late in 29 % of the cases with every controller.
//!
//! Runs are deterministic: the margins are there for changes of the code, not for chance.

use tidegate_sentry::ShedReason;
use tidegate_sim::auto_services::{HEAVY, SERVICES, SLOW, STEPS, Service, WIDE, service};
use tidegate_sim::rng::Streams;
use tidegate_sim::scenario::{Outcome, Row, Scenario};

const SEEDS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Samples behind the share of requests that fit into the target.
const SAMPLES: usize = 20_000;

/// When capacity goes and comes back ([`STEPS`]), in seconds, and the speed from then on.
const STEPS_S: [(f64, f64); 6] = [
    (20.0, 0.67),
    (40.0, 1.0),
    (60.0, 0.5),
    (80.0, 1.0),
    (100.0, 0.25),
    (120.0, 1.0),
];
const STEP_S: f64 = 20.0;

/// The loads that each service is put under.
trait Loads {
    fn is(&self, other: &Self) -> bool;
    fn told_target(&self, seconds: u32, warm_up: u32, load: &str, speed: &str) -> Scenario;
    fn protected(
        &self,
        seconds: u32,
        warm_up: u32,
        load: &str,
        speed: &str,
        told: &str,
    ) -> Scenario;
    fn overload(&self, times: f64, clients: &str) -> Scenario;
    fn room(&self) -> Scenario;
    fn steps(&self, times: f64) -> Scenario;
    fn possible(&self, scenario: &Scenario, outcome: &Outcome) -> impl Fn(&Row) -> f64;
}

impl Loads for Service {
    fn is(&self, other: &Self) -> bool {
        self.name == other.name
    }

    fn told_target(&self, seconds: u32, warm_up: u32, load: &str, speed: &str) -> Scenario {
        self.protected(seconds, warm_up, load, speed, &self.target_key())
    }

    /// With what `auto` is told, if anything.
    fn protected(
        &self,
        seconds: u32,
        warm_up: u32,
        load: &str,
        speed: &str,
        told: &str,
    ) -> Scenario {
        let scenario = self.scenario(seconds, warm_up, load, speed, told);
        scenario.expect("the scenario is valid")
    }

    /// `times` the capacity for a minute; for longer where few requests come.
    fn overload(&self, times: f64, clients: &str) -> Scenario {
        let load = format!("rate = '{}/s'\n{clients}", times * self.capacity());
        if self.is(&SLOW) {
            self.told_target(300, 30, &load, "")
        } else {
            self.told_target(60, 5, &load, "")
        }
    }

    /// Ten minutes with room to spare.
    fn room(&self) -> Scenario {
        let load = format!("rate = '{}/s'", 0.8 * self.capacity());
        self.told_target(600, 0, &load, "")
    }

    /// `times` the capacity while that goes and comes back.
    fn steps(&self, times: f64) -> Scenario {
        let load = format!("rate = '{}/s'", times * self.capacity());
        self.told_target(140, 5, &load, STEPS)
    }

    /// Requests of an interval that could be answered in time.
    fn possible(&self, scenario: &Scenario, outcome: &Outcome) -> impl Fn(&Row) -> f64 {
        let mut rng = Streams::new(7).stream("bound");
        let mut samples: Vec<f64> = (0..SAMPLES)
            .map(|_| scenario.service.sample(&mut rng))
            .collect();
        samples.sort_by(f64::total_cmp);
        let (service, interval) = (*self, outcome.interval);
        move |row| {
            let speed = row.capacity / service.cores;
            let fits = samples.partition_point(|work| *work <= service.target_s * speed);
            let served = row.capacity / service.mean_s * interval;
            (row.counts.fresh as f64).min(served) * fits as f64 / SAMPLES as f64
        }
    }
}

/// Answers in time over what is possible, in an outcome after its warm-up.
fn share_of_possible(service: &Service, scenario: &Scenario, outcome: &Outcome) -> f64 {
    let possible = service.possible(scenario, outcome);
    let warm_up = scenario.warm_up.as_secs_f64();
    let rows = outcome.rows.iter().filter(|row| row.at > warm_up + 1e-9);
    outcome.totals.counts.in_target as f64 / rows.map(possible).sum::<f64>()
}

/// Seconds after a step from which on, until the next, all of two seconds bring 90 % of what is
/// possible, taking the runs together and less two chance deviations: of `n` requests served
/// `n cv²` is the variance (renewal theory), with the coefficient of variation of the service time.
fn settling(service: &Service, scenario: &Scenario, runs: &[Outcome], step: f64) -> f64 {
    const WINDOW: usize = 4;
    let possible = service.possible(scenario, &runs[0]);
    let rows_until = |seconds: f64| runs[0].rows.partition_point(|row| row.at <= seconds + 1e-9);
    let (first, end) = (rows_until(step), rows_until(step + STEP_S));
    let mut settled = 0.0;
    for at in first..=end - WINDOW {
        let rows = || runs.iter().flat_map(|run| &run.rows[at..at + WINDOW]);
        let answered: u64 = rows().map(|row| row.counts.in_target).sum();
        let bar = 0.9 * rows().map(&possible).sum::<f64>();
        if (answered as f64) < bar - 2.0 * (bar * service.cv2.max(1.0)).sqrt() {
            settled = (at + 1 - first) as f64 * runs[0].interval;
        }
    }
    settled
}

/// What was measured against what bar; all of them are looked at before any is complained about.
#[derive(Default)]
struct Bars {
    missed: Vec<String>,
}

impl Bars {
    fn at_least(&mut self, what: &str, measured: f64, bar: f64) {
        if measured < bar || measured.is_nan() {
            self.missed.push(format!("{what}: {measured:.3} < {bar}"));
        }
    }

    fn at_most(&mut self, what: &str, measured: f64, bar: f64) {
        if measured > bar || measured.is_nan() {
            self.missed.push(format!("{what}: {measured:.3} > {bar}"));
        }
    }

    /// 95 % of what is possible, and the 99th percentile within this many targets, on the mean of
    /// the runs; says both.
    fn in_time(
        &mut self,
        what: &str,
        service: &Service,
        scenario: &Scenario,
        runs: &[Outcome],
        tail: f64,
    ) -> (f64, f64) {
        let share = |run| share_of_possible(service, scenario, run);
        let shares: Vec<f64> = runs.iter().map(share).collect();
        let over_target = |run: &Outcome| run.totals.histogram.quantile(0.99) / service.target_s;
        let tails: Vec<f64> = runs.iter().map(over_target).collect();
        let (share, p99) = (mean(&shares), mean(&tails));
        self.at_least(what, share, 0.95);
        self.at_most(&format!("{what}, p99"), p99, tail);
        (share, p99)
    }

    fn check(self) {
        assert!(self.missed.is_empty(), "{}", self.missed.join("\n"));
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Outcomes of a scenario with every seed.
fn runs(scenario: &Scenario) -> Vec<Outcome> {
    runs_with(scenario, SEEDS.iter().copied())
}

fn runs_with(scenario: &Scenario, seeds: impl Iterator<Item = u64>) -> Vec<Outcome> {
    seeds.map(|seed| run(scenario, seed)).collect()
}

fn run(scenario: &Scenario, seed: u64) -> Outcome {
    scenario.run(seed).expect("the engine takes it")
}

#[test]
fn nothing_is_refused_while_there_is_room() {
    let mut bars = Bars::default();
    for service in &SERVICES {
        for outcome in runs(&service.room()) {
            bars.at_most(service.name, outcome.ledger.shed as f64, 0.0);
        }
    }
    bars.check();
}

/// Runs that refused somebody at 80 % load: a queue that a trial of a smaller window had made
/// (thrashing), a first window that looked full (200 workers), a burst of long requests taken for a
/// loss of capacity (bimodal, slow, and a heavy tail in windows of two while a drain rate was cut
/// with no regard to how much the work varies); and for how many seconds they are looked at.
const ONCE_REFUSED: [(&str, u32, &[u64]); 5] = [
    ("thrashing", 40, &[719, 740, 751, 757, 868, 870, 874, 889]),
    ("200 workers", 40, &[612, 643, 649, 712, 799, 832]),
    ("8 workers, bimodal", 480, &[610, 833, 842, 1016]),
    ("2 workers, slow", 320, &[410, 432, 806]),
    (HEAVY.name, 600, &[1002, 1004, 1010, 1019, 1033]),
];

#[test]
fn bad_luck_is_not_taken_for_an_overload() {
    let mut bars = Bars::default();
    for (name, seconds, seeds) in ONCE_REFUSED {
        let service = SERVICES.iter().find(|service| service.name == name);
        let service = service.expect("it is among them");
        let load = format!("rate = '{}/s'", 0.8 * service.capacity());
        let scenario = service.told_target(seconds, 0, &load, "");
        for seed in seeds {
            let shed = run(&scenario, *seed).ledger.shed;
            bars.at_most(&format!("{name}, seed {seed}"), shed as f64, 0.0);
        }
    }
    bars.check();
}

#[test]
fn long_streams_take_no_room() {
    let mut bars = Bars::default();
    for service in SERVICES.iter().filter(|service| !service.is(&SLOW)) {
        let load = format!(
            "rate = '{}/s'\nclient = [{{ share = 95 }}, \
             {{ share = 5, stream = {{ law = 'exponential', mean = '60s' }} }}]",
            0.8 * service.capacity()
        );
        let outcome = run(&service.told_target(300, 0, &load, ""), SEEDS[0]);
        bars.at_most(service.name, outcome.ledger.shed as f64, 0.0);
    }
    bars.check();
}

#[test]
fn overload_is_served_to_the_full() {
    let mut bars = Bars::default();
    for service in &SERVICES {
        for times in [2.0, 4.0, 10.0] {
            let scenario = service.overload(times, "");
            let what = format!("{}, {times} times", service.name);
            bars.in_time(&what, service, &scenario, &runs(&scenario), 1.2);
        }
    }
    bars.check();
}

/// Nobody said what is in time, and the service was never seen without a crowd.
#[test]
fn overload_from_the_start_is_served_without_a_target() {
    let mut bars = Bars::default();
    for service in SERVICES.iter().filter(|service| !service.is(&SLOW)) {
        for times in [1.5, 4.0] {
            let load = format!("rate = '{}/s'", times * service.capacity());
            let scenario = service.protected(60, 10, &load, "", "");
            let shares: Vec<f64> = runs(&scenario)
                .iter()
                .map(|run| share_of_possible(service, &scenario, run))
                .collect();
            let what = format!("{}, {times} times", service.name);
            bars.at_least(&what, mean(&shares), 0.93);
        }
    }
    bars.check();
}

/// Of those for whom the more important leave nothing over, hardly anybody waits in vain.
#[test]
fn the_least_important_are_refused_at_once() {
    let text = "duration = '60s'\nwarm_up = '10s'\ntarget = '500ms'\n\
        service = { law = 'exponential', mean = '20ms' }\n\
        class = [{ name = 'gold' }, { name = 'bronze' }]\n\
        [load]\nrate = '900/s'\nclient = [{ class = 'gold', share = 2 }, { class = 'bronze' }]\n\
        [replica]\ncount = 2\ncores = 5\n\
        [protect]\nmode = 'auto'\ntarget = '500ms'\nclasses = [{ name = 'gold' }, { name = 'bronze' }]\n";
    let scenario: Scenario = tidegate_config::parse("classes.toml", text).expect("it is valid");
    for outcome in runs(&scenario) {
        let [gold, bronze] = &outcome.class_totals[..] else {
            panic!("two classes")
        };
        let goodput = gold.goodput_in_target();
        assert!(goodput > 0.95 * 500.0, "{goodput}");
        let waited = bronze.counts.shed_by[ShedReason::Expired.index()];
        let shed = bronze.counts.shed;
        assert!(waited * 50 < shed, "{waited} of {shed} waited in vain");
    }
}

/// The 99th percentile over the target that is held while capacity goes and comes back.
///
/// Physics: 200 ms of exponential work at a quarter of the speed takes 3.7 s in one of a hundred,
/// so that a first-come queue that knows the capacity at every moment, and lets nobody wait for
/// more than a tenth of the target, has 1.7 there.
fn tail_over_steps(service: &Service, times: f64) -> f64 {
    match service.name {
        // Who came while a loss of a third could not be told from chance waits until it is over.
        _ if service.is(&SLOW) && times < 1.0 => f64::INFINITY,
        _ if service.is(&SLOW) => 1.3,
        "200 workers" => 1.8,
        // 1.12 with seeds 201 to 216; one of the eight here is at 1.6.
        "thrashing" => 1.25,
        _ => 1.2,
    }
}

#[test]
fn capacity_may_go_and_come_back() {
    let mut bars = Bars::default();
    for service in &SERVICES {
        for times in [0.8, 2.0, 4.0] {
            let scenario = service.steps(times);
            let runs = runs(&scenario);
            let what = format!("{}, {times} times", service.name);
            let tail = tail_over_steps(service, times);
            bars.in_time(&what, service, &scenario, &runs, tail);
            // Where the work alone takes most of the target, what is possible leaves no time to
            // wait.
            let enough = |&(_, speed): &(f64, f64)| {
                speed * service.capacity() >= 100.0
                    && service.mean_s / speed <= 0.5 * service.target_s
            };
            for (step, _) in STEPS_S.into_iter().filter(enough) {
                let settled = settling(service, &scenario, &runs, step);
                let what = format!("{what}, settling after {step} s");
                bars.at_most(&what, settled, 3.0);
            }
        }
    }
    bars.check();
}

/// The table of docs/auto.md:
/// `cargo test --release -p tidegate-sim --test auto -- --ignored --nocapture other_seeds`
#[test]
#[ignore = "takes minutes, and prints a table"]
fn the_bars_hold_on_other_seeds() {
    const OTHERS: std::ops::RangeInclusive<u64> = 2201..=2216;
    let mut bars = Bars::default();
    for service in &SERVICES {
        let room = runs_with(&service.room(), OTHERS);
        let shed: u64 = room.iter().map(|run| run.ledger.shed).sum();
        bars.at_most(service.name, shed as f64, 0.0);
        let mut line = format!("| {} | {shed} shed |", service.name);
        let overload = [2.0, 4.0, 10.0].map(|times| (service.overload(times, ""), 1.2));
        let steps =
            [0.8, 2.0, 4.0].map(|times| (service.steps(times), tail_over_steps(service, times)));
        for (scenario, tail) in overload.iter().chain(&steps) {
            let runs = runs_with(scenario, OTHERS);
            let (share, p99) = bars.in_time(service.name, service, scenario, &runs, *tail);
            line += &format!(" {:.0} · {p99:.2} |", 100.0 * share);
        }
        eprintln!("{line}");
    }
    bars.check();
}

#[test]
fn a_spike_with_retries_is_over_within_ten_seconds() {
    let mut bars = Bars::default();
    for service in SERVICES.iter().filter(|service| !service.is(&SLOW)) {
        let (calm, spike) = (0.8 * service.capacity(), 5.0 * service.capacity());
        let load = format!(
            "rate = [{{ at = '0s', value = '{calm}/s' }}, {{ at = '20s', value = '{spike}/s' }}, \
             {{ at = '30s', value = '{calm}/s' }}]\n\
             client = {{ timeout = '2s', retry = {{ attempts = 3 }} }}"
        );
        let answered_of = |outcome: &Outcome| {
            let rows = outcome.rows.iter().filter(|row| row.at > 40.0 + 1e-9);
            let (answered, fresh) = rows.fold((0, 0), |(answered, fresh), row| {
                (answered + row.counts.in_target, fresh + row.counts.fresh)
            });
            answered as f64 / fresh as f64
        };
        let runs = runs(&service.told_target(60, 5, &load, ""));
        let shares: Vec<f64> = runs.iter().map(answered_of).collect();
        bars.at_least(service.name, mean(&shares), 0.95);
    }
    bars.check();
}

/// What honest clients get of all that is possible at twice the capacity, beside others.
fn honest_share(service: &Service, clients: &str) -> f64 {
    let scenario = service.overload(2.0, clients);
    let shares: Vec<f64> = runs(&scenario)
        .iter()
        .map(|run| share_of_possible(service, &scenario, run))
        .collect();
    mean(&shares)
}

/// One client in twenty asks for a page of twenty times the work, which is half of all the work, at
/// twice the capacity. Told by its path it is refused first, and the others get most of everything,
/// not just of their part.
#[test]
fn a_slow_page_does_not_take_it_all() {
    let clients =
        "client = [{ share = 95, path = '/page' }, { share = 5, path = '/report', work = 20 }]";
    let mut bars = Bars::default();
    for service in SERVICES.iter().filter(|service| !service.is(&SLOW)) {
        let share = honest_share(service, clients);
        bars.at_least(service.name, share, 0.75);
    }
    bars.check();
}

/// Where nothing tells it from others, or `auto` is not to look, the others get most of their part:
/// 0.95 of 1.95. The page stays behind in a smaller window and makes it look too small: where a
/// crowd costs throughput, that does.
#[test]
fn a_slow_page_in_disguise_leaves_the_others_their_part() {
    let clients = "client = [{ share = 95 }, { share = 5, work = 20 }]";
    let mut bars = Bars::default();
    for service in SERVICES.iter().filter(|service| !service.is(&SLOW)) {
        let share = honest_share(service, clients) * 1.95 / 0.95;
        bars.at_least(service.name, share, 0.75);
    }
    bars.check();
}

/// One client in twenty leaves after 50 ms, at twice the capacity.
#[test]
fn clients_that_leave_cost_the_others_little() {
    let clients = "client = [{ share = 95 }, \
        { share = 5, timeout = { law = 'exponential', mean = '50ms' } }]";
    let mut bars = Bars::default();
    for service in SERVICES.iter().filter(|service| !service.is(&SLOW)) {
        let share = honest_share(service, clients);
        bars.at_least(service.name, share, 0.9);
    }
    bars.check();
}

/// The same with answers that take five seconds to read, where the replica has places for them.
/// With four workers, each blocked by a reader for five seconds, nobody could help it.
#[test]
fn slow_readers_hold_no_slot() {
    let reading = "client = [{ share = 95 }, { share = 5, read = '5s' }]";
    let mut bars = Bars::default();
    let with_places = |service: &&Service| service.replica.contains("slots");
    for service in SERVICES.iter().filter(with_places) {
        let share = honest_share(service, reading) / 0.95;
        bars.at_least(service.name, share, 0.93);
    }
    bars.check();
}

/// From the first request on, with nothing known and nobody to say what is in time.
#[test]
fn a_start_in_front_of_many_workers_is_hardly_noticed() {
    let mut bars = Bars::default();
    for service in &WIDE {
        let seconds = if service.mean_s > 0.3 { 60 } else { 20 };
        let target = format!("target = '{}ms'", service.target_s * 1e3);
        for told in ["", &target] {
            for load in [0.5, 0.8] {
                let rate = format!("rate = '{}/s'", load * service.capacity());
                let scenario = service.protected(seconds, 0, &rate, "", told);
                let runs = runs(&scenario);
                let shares: Vec<f64> = runs
                    .iter()
                    .map(|run| {
                        let counts = &run.totals.counts;
                        counts.in_target as f64 / counts.fresh as f64
                    })
                    .collect();
                let what = format!("{}, {load} times, {told:?}", service.name);
                let shed = runs.iter().map(|run| run.ledger.shed).sum::<u64>();
                bars.at_most(&format!("{what}, refused"), shed as f64, 0.0);
                // Some take longer than the target alone in an empty service, and some are not done
                // at the end.
                bars.at_least(&what, mean(&shares), 0.95);
            }
        }
    }
    bars.check();
}

/// Three slow replicas with twice their capacity from the first request on, half of which then goes
/// and comes back: what piles up until a crowd is told from chance has to be worked off within five
/// seconds, with a target and without one.
#[test]
fn slow_replicas_are_looked_at_together() {
    let service = service(
        "3 of one core, slow",
        "{ law = 'exponential', mean = '40ms' }",
        0.04,
        "count = 3\ncores = 1\nslots = 64",
        3.0,
        1.0,
    );
    let speed = "speed = [{ at = '0s', value = 1 }, { at = '20s', value = 0.5 }, { at = '32s', value = 1 }]";
    let load = format!(
        "rate = '{}/s'\nclient = {{ timeout = '4s' }}",
        2.0 * service.capacity()
    );
    let mut bars = Bars::default();
    for told in ["", "target = '1s'"] {
        let scenario = service.protected(45, 5, &load, speed, told);
        let share = |run: &Outcome| share_of_possible(&service, &scenario, run);
        let shares: Vec<f64> = runs(&scenario).iter().map(share).collect();
        bars.at_least(&format!("{told:?}"), mean(&shares), 0.97);
    }
    bars.check();
}

/// Clients that leave after 400 ms, at three times the capacity, while the service goes on working
/// for them. The sixteen of the first window take 160 ms in one service and 640 ms in the other:
/// there nobody would ever be served.
#[test]
fn a_service_does_not_work_for_clients_that_gave_up() {
    let work = "{ law = 'exponential', mean = '40ms' }";
    let shared = |cores: u32| format!("count = 3\ncores = {cores}\nslots = 64");
    let (four, one) = (shared(4), shared(1));
    let mut bars = Bars::default();
    for (replica, cores, target_s, bar) in [(&four, 12.0, 0.3, 0.95), (&one, 3.0, 0.4, 0.85)] {
        let replica = replica.clone().leak();
        let service = service("impatient clients", work, 0.04, replica, cores, target_s);
        let load = format!(
            "rate = '{}/s'\nclient = {{ timeout = '400ms' }}",
            3.0 * service.capacity()
        );
        let scenario = service.protected(60, 10, &load, "", "");
        let share = |run: &Outcome| share_of_possible(&service, &scenario, run);
        let shares: Vec<f64> = runs(&scenario).iter().map(share).collect();
        bars.at_least(&format!("{cores} cores"), mean(&shares), bar);
    }
    bars.check();
}
