//! What a decision costs: nanoseconds of `on_arrival` (admitted or refused) and of the whole way of
//! an admitted request through the engine, `on_arrival` and `on_end`.
//!
//! One thread, and as many threads as the machine has cores on the same engine (contention). The
//! median cost of reading the clock is measured first and taken off. Prints one JSON object per
//! line.

#![expect(
    clippy::disallowed_types,
    reason = "a benchmark measures time; the engine gets it passed in as ever"
)]

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Event, Resolution, Sentry, SentryConfig, Verdict};

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
            sentry.handle_timeout(now, &mut |_: &Event| {}, &mut ignore);
        }
        let start = Instant::now();
        let now = Timestamp::from_nanos(nanos(epoch, start));
        let verdict = black_box(sentry.on_arrival(now, &Arrival::default(), || ()));
        let decided = Instant::now();
        if let Verdict::Admit(permit) = verdict {
            sentry.on_end(now, permit, Ending::Served, &mut ignore);
        }
        let done = Instant::now();
        if round >= WARM_UP {
            samples.arrival.push(nanos(start, decided));
            samples.whole.push(nanos(start, done));
        }
    }
    samples
}

fn ignore((): (), _: Resolution) {}
