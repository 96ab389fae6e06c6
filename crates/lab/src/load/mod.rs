//! The open-loop load generator.
//!
//! Requests leave at the times of an arrival process, whatever the server does: real users do
//! not wait for each other. Three things follow.
//! - Latency counts from the time a request was meant to leave (see `tally`).
//! - The generator never blocks. When every connection it may open is busy the request is counted
//!   as unsent, and shown.
//! - A run is bounded by construction: by the end of the schedule, plus the patience of the
//!   last client, and by the number of connections.
//!
//! One task paces, one short-lived task per request carries it; a single-threaded runtime is
//! enough and is what the command line uses. Pacing wakes at the runtime's granularity of 1 ms and
//! never early; how late it was is part of the report. Requests of a recording are paced exactly,
//! at the price of CPU.

mod client;
mod config;
mod file;
mod http1;
mod http2;
mod mix;
mod outcome;
mod report;
mod tally;
mod transport;
mod wire;

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sim::rng::{SimRng, Streams};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout_at};

pub use config::{LoadConfig, LoadError, Protocol, Recorded, RequestSpec, Retry};
pub use file::LoadFile;
pub use outcome::Ending;
pub use report::{LoadReport, Quantiles, Second, Summary};

use crate::clock::Clock;
use client::Client;
use mix::Mix;
use outcome::{Attempt, Outcome};
use tally::Recorder;

/// How late a timer of the runtime may be: it rounds up to milliseconds, and so does its wait for
/// the system.
const TIMER_GRANULARITY: Duration = Duration::from_millis(2);

/// Is told each second of a run as it closes.
type Observer<'a> = &'a mut (dyn FnMut(&Second) + Send);

/// Offers the load and waits for the last answer; `observer` is told each second as it closes.
///
/// # Errors
/// A configuration that makes no sense, or a host that cannot be found.
pub async fn run(
    config: LoadConfig,
    mut observer: impl FnMut(&Second) + Send,
) -> Result<LoadReport, LoadError> {
    config.validate()?;
    let mix = Mix::resolve(&config).await?;
    let mut arrivals = config.due().peekable();
    let mut run = Run::start(config, mix, &mut observer);
    while let Some(&(next, _)) = arrivals.peek() {
        run.wait_until(next).await;
        let now = run.clock.now();
        while let Some((due, kind)) = arrivals.next_if(|(due, _)| *due <= now) {
            run.dispatch(due, kind);
        }
    }
    run.drain().await;
    Ok(run.report())
}

/// A run under way.
struct Run<'a> {
    config: LoadConfig,
    mix: Mix,
    clock: Clock,
    choices: SimRng,
    streams: Streams,
    /// Requests offered so far, which also numbers their generators.
    offered: usize,
    under_way: JoinSet<Outcome>,
    recorder: Recorder,
    observer: Observer<'a>,
}

impl<'a> Run<'a> {
    fn start(config: LoadConfig, mix: Mix, observer: Observer<'a>) -> Self {
        let streams = Streams::new(config.seed);
        Self {
            recorder: Recorder::new(config.target_time, config.requests.len(), config.warm_up),
            choices: streams.stream("load/mix"),
            streams,
            mix,
            clock: Clock::start(),
            offered: 0,
            under_way: JoinSet::new(),
            observer,
            config,
        }
    }

    /// Sleeps until `at`, closing the seconds that pass meanwhile.
    async fn wait_until(&mut self, at: Timestamp) {
        while self.second_end() <= at {
            sleep_until(self.clock.instant(self.second_end())).await;
            self.collect();
            self.close_second();
        }
        if self.config.replay.is_some() {
            self.wait_exactly(at).await;
        } else {
            sleep_until(self.clock.instant(at)).await;
        }
        // An overdue sleep returns without yielding; those on their way must not starve.
        tokio::task::yield_now().await;
        self.collect();
    }

    /// The last stretch, by which a timer may be late, is not slept through, so that a recording's
    /// requests leave at its own times.
    async fn wait_exactly(&mut self, at: Timestamp) {
        let at = self.clock.instant(at);
        if let Some(early) = at.checked_sub(TIMER_GRANULARITY) {
            sleep_until(early).await;
        }
        while tokio::time::Instant::now() < at {
            tokio::task::yield_now().await;
        }
    }

    /// Sends one request, or counts it as unsent.
    fn dispatch(&mut self, due: Timestamp, kind: Option<usize>) {
        self.recorder.on_offered();
        self.offered += 1;
        let (kind_index, kind) = match kind {
            Some(index) => (index, self.mix.kind(index)),
            None => self.mix.draw(&mut self.choices),
        };
        let Some(lease) = kind.lease() else {
            self.recorder.on_outcome(&unsent(kind_index, due));
            return;
        };
        let client = Client {
            clock: self.clock,
            kind_index,
            kind,
            due,
            retry: self.config.retry,
            rng: self.streams.indexed("load/backoff", self.offered),
        };
        self.under_way.spawn(client.run(lease));
    }

    fn collect(&mut self) {
        while let Some(ended) = self.under_way.try_join_next() {
            self.recorder.on_outcome(&expect_ended(ended));
        }
    }

    fn close_second(&mut self) {
        let row = self.recorder.close_second(self.under_way.len());
        (self.observer)(row);
    }

    fn second_end(&self) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(self.recorder.open_second() + 1)
    }

    /// Waits for those still under way; each has a bounded patience.
    async fn drain(&mut self) {
        while !self.under_way.is_empty() {
            let second_end = self.clock.instant(self.second_end());
            match timeout_at(second_end, self.under_way.join_next()).await {
                Ok(Some(ended)) => self.recorder.on_outcome(&expect_ended(ended)),
                Ok(None) => break,
                Err(_) => self.close_second(),
            }
        }
        self.close_second();
    }

    fn report(&self) -> LoadReport {
        let requests = self.recorder.requests.summary();
        let measured = self.config.duration - self.config.warm_up;
        let duration_s = measured.as_secs_f64();
        let kinds = self.config.requests.iter().zip(&self.recorder.kinds);
        let goodput_per_s = requests.within_target as f64 / duration_s;
        LoadReport {
            power: report::power(goodput_per_s, &requests),
            seed: self.config.seed,
            duration_s,
            target_ms: self.config.target_time.as_secs_f64() * 1e3,
            offered_per_s: requests.total as f64 / duration_s,
            goodput_per_s,
            attempts: (self.config.retry.retries_max > 0).then(|| self.recorder.attempts.summary()),
            kinds: kinds
                .map(|(spec, tally)| (spec.name.clone(), tally.summary()))
                .collect(),
            connect_error: self.mix.trouble(),
            send_lag: self.recorder.lag.quantiles(),
            seconds: self.recorder.seconds.clone(),
            requests,
        }
    }
}

fn unsent(kind: usize, due: Timestamp) -> Outcome {
    Outcome {
        kind,
        lag: Duration::ZERO,
        attempts: vec![Attempt {
            due,
            finished: due,
            ending: Ending::Unsent,
            retry_after: None,
        }],
    }
}

fn expect_ended(ended: Result<Outcome, tokio::task::JoinError>) -> Outcome {
    ended.expect("a client neither panics nor is aborted while its run lives")
}
