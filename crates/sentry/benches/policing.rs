//! How cheap a refusal is (003, figure 4): decisions per second and core, in batches and by the
//! threshold, with 1, 3 and 64 classes. As in the paper nothing is served: what is measured is the
//! decision alone, from the arrival to the refusal, examinations included.
//!
//! Prints one JSON object per line, with the median of many short stretches: a busy machine blurs
//! single ones. The argument is the number of decisions to measure.

#![expect(
    clippy::disallowed_types,
    reason = "a benchmark measures time; the engine gets it passed in as ever"
)]

use std::io::Write;
use std::time::{Duration, Instant};

use tidegate_control::Timestamp;
use tidegate_sentry::policing::PathHasher;
use tidegate_sentry::{
    Arrival, ClassId, Ending, Event, PathKey, Permit, ReplicaId, Report, Resolution, Sentry,
    SentryConfig, Verdict,
};

const REPLICAS: usize = 3;
const PATHS: usize = 1000;
/// Short against the time slices of a busy machine, and an examination in each.
const STRETCHES: u64 = 2001;
/// Arrivals per second of the engine's time: a thousand to a batch.
const RATE: u64 = 100_000;
/// What everything costs: more than its target allows, so that nothing is admitted.
const SERVICE_S: f64 = 2.0;

fn main() -> std::io::Result<()> {
    // Cargo adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let decisions = arguments
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(2_000_000);
    for classes in [1, 3, 64] {
        let batch = measure("batch", classes, decisions);
        let threshold = measure("threshold", classes, decisions);
        let ratio = batch / threshold;
        writeln!(
            std::io::stdout(),
            r#"{{"classes":{classes},"batch_ns":{batch:.1},"threshold_ns":{threshold:.1},"ratio":{ratio:.2}}}"#
        )?;
    }
    Ok(())
}

/// An engine, the clock it is shown, and what it has decided.
struct Bench {
    sentry: Sentry<u32>,
    paths: Vec<PathKey>,
    classes: u64,
    now: Timestamp,
    refused: u64,
    admitted: Vec<Permit>,
}

/// Nanoseconds of a decision.
fn measure(policing: &str, classes: u64, decisions: u64) -> f64 {
    let mut bench = Bench::new(policing, classes);
    // Half a second of the engine's time, until the threshold is set.
    bench.run(RATE / 2);
    let before = bench.refused;
    let stretch = decisions / STRETCHES;
    let mut nanos: Vec<f64> = (0..STRETCHES)
        .map(|_| {
            let begun = Instant::now();
            bench.run(stretch);
            begun.elapsed().as_secs_f64() * 1e9 / stretch as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    let refused = (bench.refused - before) as f64 / (stretch * STRETCHES) as f64;
    assert!(
        refused > 0.95,
        "only {refused} were refused: this is no overload"
    );
    nanos[nanos.len() / 2]
}

impl Bench {
    fn new(policing: &str, classes: u64) -> Self {
        let hasher = PathHasher::new((1, 2), &[]);
        let bench = Self {
            sentry: Sentry::new(&config(policing, classes), REPLICAS, Timestamp::ZERO, 1)
                .expect("the configuration is valid"),
            paths: (0..PATHS)
                .map(|id| hasher.hash(&format!("/page-{id}x")))
                .collect(),
            classes,
            now: Timestamp::ZERO,
            refused: 0,
            admitted: Vec::new(),
        };
        bench.teach();
        bench
    }

    /// Tells the engine what the paths and classes cost.
    fn teach(&self) {
        for class in 0..self.classes {
            for &path in &self.paths {
                let report = Report {
                    cpu_seconds: Some(SERVICE_S),
                    class: ClassId(class as u16),
                    path: Some(path),
                    ..Report::default()
                };
                self.sentry.on_report(self.now, ReplicaId(0), &report);
            }
        }
    }

    fn run(&mut self, decisions: u64) {
        for number in 0..decisions {
            self.now += Duration::from_nanos(1_000_000_000 / RATE);
            self.arrive(number);
            if self.now >= self.sentry.poll_timeout() {
                self.tick();
            }
        }
    }

    fn arrive(&mut self, number: u64) {
        let arrival = Arrival {
            class: ClassId((number % self.classes) as u16),
            bytes: 1000,
            path: Some(self.paths[number as usize % PATHS]),
            ..Arrival::default()
        };
        match self.sentry.on_arrival(self.now, &arrival, || 0) {
            Verdict::Shed(_) => self.refused += 1,
            Verdict::Admit(permit) => self.admitted.push(permit),
            Verdict::Wait(_) => {}
        }
    }

    fn tick(&mut self) {
        for (_, resolution) in self.sentry.handle_timeout(self.now, &mut |_: &Event| {}) {
            match resolution {
                Resolution::Shed(_) => self.refused += 1,
                Resolution::Admit(permit) => self.admitted.push(permit),
            }
        }
        for permit in self.admitted.drain(..) {
            let ended = self.sentry.on_end(self.now, permit, Ending::Ignored);
            ended.for_each(drop);
        }
    }
}

fn config(policing: &str, classes: u64) -> SentryConfig {
    let names: String = (0..classes)
        .map(|class| format!("[[classes]]\nname = 'class-{class}'\n"))
        .collect();
    let text = format!(
        "mode = 'sentry'\ntarget = '1s'\n\
         sentry = {{ policing = '{policing}', threshold_interval = '100ms', interval = '100ms', delays = ['10ms'] }}\n\
         {names}"
    );
    tidegate_config::parse("bench.toml", &text).expect("the configuration is valid")
}
