//! What a decision costs: nanoseconds of `on_arrival` (admitted or refused) and of the whole way of
//! an admitted request through the engine, `on_arrival` and `on_end`.
//!
//! One thread, and as many threads as the machine has cores on the same engine (contention). The
//! median cost of reading the clock is measured first and taken off. Prints one JSON object per
//! line.
//!
//! With `scale` as an argument instead: one thread, 30 to 10 000 replicas, of which all have room
//! (`free`) or only a few slots are free (`full`), by balancing policy; and what a tick costs per
//! replica while a tenth of them has done something.

#![expect(
    clippy::disallowed_types,
    reason = "a benchmark measures time; the engine gets it passed in as ever"
)]

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Event, Sentry, SentryConfig, Verdict};

const ROUNDS: usize = 500_000;
const WARM_UP: usize = 20_000;
/// Ticks run on one thread, between two measured requests.
const TICK_EVERY: usize = 1_000;
const REPLICAS: usize = 3;

/// A case: its name and the configuration.
const CASES: [(&str, &str); 3] = [
    ("auto", "mode = 'auto'\ntarget = '500ms'"),
    ("off", "mode = 'off'"),
    (
        "refused",
        "mode = 'static'\nstatic = { rate = '1/s', burst = 1 }",
    ),
];

fn main() -> std::io::Result<()> {
    if std::env::args().any(|argument| argument == "scale") {
        return scale();
    }
    let clock = clock_nanos();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for (name, config) in CASES {
        for threads in [1, cores] {
            let mut samples = run(config, threads);
            let arrival = Quantiles::of(&mut samples.arrival, clock);
            let whole = Quantiles::of(&mut samples.whole, clock);
            let line = format!(
                r#"{{"case":"{name}","threads":{threads},"arrival_ns":{},"arrival_and_end_ns":{}}}"#,
                arrival.json(),
                whole.json()
            );
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}

/// The policies of the scaling table.
const POLICIES: [&str; 5] = [
    "peak-ewma",
    "power-of-two",
    "round-robin",
    "random",
    "least-in-flight",
];

fn scale() -> std::io::Result<()> {
    let clock = clock_nanos();
    for replicas in [30, 300, 3_000, 10_000] {
        for policy in POLICIES {
            let text = format!("mode = 'auto'\ntarget = '500ms'\nbalance = '{policy}'");
            let mut free = one_by_one(&text, replicas, false);
            let mut full = one_by_one(&text, replicas, true);
            let line = format!(
                r#"{{"replicas":{replicas},"balance":"{policy}","free_ns":{},"full_ns":{}}}"#,
                Quantiles::of(&mut free, clock).json(),
                Quantiles::of(&mut full, clock).json(),
            );
            writeln!(std::io::stdout(), "{line}")?;
        }
        let line = format!(
            r#"{{"replicas":{replicas},"tick_ns_per_replica":{:.0}}}"#,
            tick_nanos(replicas)
        );
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}

fn engine(text: &str, replicas: usize) -> Sentry<()> {
    let config: SentryConfig =
        tidegate_config::parse("decision.toml", text).expect("the configuration is valid");
    Sentry::new(&config, replicas, Timestamp::ZERO, 1).expect("the engine takes it")
}

/// A request comes and goes, with every slot free, or with nearly all taken.
fn one_by_one(text: &str, replicas: usize, full: bool) -> Vec<u64> {
    let sentry = engine(text, replicas);
    let now = Timestamp::ZERO;
    let admit = || match sentry.on_arrival(now, &Arrival::default(), || ()) {
        Verdict::Admit(permit) => Some(permit),
        Verdict::Wait(ticket) => {
            sentry.on_abandon(now, ticket);
            None
        }
        Verdict::Shed(_) => None,
    };
    let mut held: Vec<_> = std::iter::from_fn(admit)
        .take(if full { usize::MAX } else { 0 })
        .collect();
    // One slot in a hundred replicas is free.
    for _ in 0..(held.len() / 1600).max(1) {
        if let Some(permit) = held.pop() {
            sentry.on_end(now, permit, Ending::Served).for_each(drop);
        }
    }
    let step = || {
        let start = Instant::now();
        if let Some(permit) = black_box(admit()) {
            sentry.on_end(now, permit, Ending::Served).for_each(drop);
        }
        nanos(start, Instant::now())
    };
    (0..20_000).map(|_| step()).collect()
}

/// Median of a tick over the number of replicas.
fn tick_nanos(replicas: usize) -> f64 {
    let sentry = engine("mode = 'auto'\ntarget = '500ms'", replicas);
    let tick = |round: u64| {
        let now = Timestamp::from_nanos(round * 100_000_000);
        for _ in 0..replicas / 10 {
            if let Verdict::Admit(permit) = sentry.on_arrival(now, &Arrival::default(), || ()) {
                sentry.on_end(now, permit, Ending::Served).for_each(drop);
            }
        }
        let start = Instant::now();
        let ticked = sentry.handle_timeout(now, &mut |_: &Event| {});
        ticked.for_each(drop);
        nanos(start, Instant::now())
    };
    let mut ticks: Vec<u64> = (1..=40).map(tick).collect();
    ticks.sort_unstable();
    ticks[ticks.len() / 2] as f64 / replicas as f64
}

/// Nanoseconds of every request.
#[derive(Default)]
struct Samples {
    arrival: Vec<u64>,
    whole: Vec<u64>,
}

struct Quantiles {
    p50: u64,
    p99: u64,
}

impl Quantiles {
    fn of(samples: &mut [u64], clock: u64) -> Self {
        samples.sort_unstable();
        let at = |share: usize| samples[(samples.len() - 1) * share / 100].saturating_sub(clock);
        Self {
            p50: at(50),
            p99: at(99),
        }
    }

    fn json(&self) -> String {
        format!(r#"{{"p50":{},"p99":{}}}"#, self.p50, self.p99)
    }
}

/// Median of two readings of the clock in a row.
fn clock_nanos() -> u64 {
    let mut samples: Vec<u64> = (0..100_000)
        .map(|_| nanos(Instant::now(), Instant::now()))
        .collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX)
}

fn run(config: &str, threads: usize) -> Samples {
    let config: SentryConfig =
        tidegate_config::parse("decision.toml", config).expect("the configuration is valid");
    let sentry: Sentry<()> =
        Sentry::new(&config, REPLICAS, Timestamp::ZERO, 1).expect("the engine takes it");
    let epoch = Instant::now();
    let parts: Vec<Samples> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let sentry = &sentry;
                scope.spawn(move || measure(sentry, epoch, thread == 0))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker does not panic"))
            .collect()
    });
    parts.into_iter().fold(Samples::default(), |mut all, part| {
        all.arrival.extend(part.arrival);
        all.whole.extend(part.whole);
        all
    })
}

fn measure(sentry: &Sentry<()>, epoch: Instant, ticks: bool) -> Samples {
    let mut samples = Samples::default();
    for round in 0..WARM_UP + ROUNDS {
        if ticks && round % TICK_EVERY == 0 {
            let now = Timestamp::from_nanos(nanos(epoch, Instant::now()));
            let ticked = sentry.handle_timeout(now, &mut |_: &Event| {});
            ticked.for_each(drop);
        }
        let start = Instant::now();
        let now = Timestamp::from_nanos(nanos(epoch, start));
        let verdict = black_box(sentry.on_arrival(now, &Arrival::default(), || ()));
        let decided = Instant::now();
        if let Verdict::Admit(permit) = verdict {
            sentry.on_end(now, permit, Ending::Served).for_each(drop);
        }
        let done = Instant::now();
        if round >= WARM_UP {
            samples.arrival.push(nanos(start, decided));
            samples.whole.push(nanos(start, done));
        }
    }
    samples
}
