//! A live upstream as a plant: our own load generator drives it, open loop, within bounds.
//!
//! A load that the service does not follow ends early, when answers take longer than
//! `--stop-latency`; the search goes on below it. More errors than `--stop-errors` end everything,
//! and so does the end of `--max-duration`. After a load that ended early single requests are sent
//! until they are fast again, so that one load's queue is not charged to the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Uri;
use tidegate_control::Timestamp;
use tidegate_lab::load::{self, LoadConfig, LoadReport, Recorded, RequestSpec, Second};
use tidegate_sentry::gate::TokenBucket;
use tidegate_sim::characterize::{Drive, Limit, Plant, PlantError, Sample};
use tidegate_sim::workload::RateFunction;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::error::CliError;
use crate::runtime;

/// Fewer requests than this say nothing about the share of errors.
const REQUESTS_JUDGED_MIN: u64 = 20;
/// Requests that a full token bucket lets through at once, as in the simulator's plant.
const BURST: f64 = 10.0;
/// Single requests after a load that ended early are sent for at most this long.
const REST_MAX: Duration = Duration::from_secs(60);
/// The service is at rest again when a single request takes at most this many times the fastest.
const REST_FACTOR: f64 = 3.0;
/// Time between two such requests.
const REST_PERIOD: Duration = Duration::from_millis(500);
/// Connections at most: more requests under way than this end a load anyway, by their latency.
const CONNECTIONS: usize = 4000;

/// What the load may do to the service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Share of failed requests at which everything ends.
    pub(super) errors: f64,
    /// Mean response time of a second at which a load ends.
    pub(super) latency: Duration,
    /// The whole characterization.
    pub(super) duration: Duration,
    /// A client leaves when its answer is not complete by then.
    pub(super) timeout: Duration,
}

/// A live upstream.
pub(super) struct LivePlant {
    target: Uri,
    request: RequestSpec,
    bounds: Bounds,
    runtime: Runtime,
    seed: u64,
    runs: u64,
    began: Instant,
    /// The fastest mean response of any second so far.
    fastest_s: f64,
    tail_s: Option<f64>,
}

/// What is noted while a load runs.
#[derive(Debug, Default)]
struct Watch {
    seconds: Vec<Second>,
    total: u64,
    failed: u64,
    stop: Option<Stop>,
}

/// Why a load ended early.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stop {
    Slow,
    Failing,
}

impl Watch {
    /// Takes a second; whether the load ends with it.
    fn on_second(&mut self, second: &Second, bounds: &Bounds) -> bool {
        self.seconds.push(second.clone());
        let failed = second.errors + second.timeouts + second.unsent;
        self.failed += failed;
        self.total += second.ok + second.shed + failed;
        let mean_ms = second.latency.map_or(0.0, |latency| latency.mean_ms);
        self.stop = match self.failed_share() > bounds.errors {
            true if self.total >= REQUESTS_JUDGED_MIN => Some(Stop::Failing),
            _ if mean_ms > bounds.latency.as_secs_f64() * 1e3 => Some(Stop::Slow),
            _ => return false,
        };
        true
    }

    fn failed_share(&self) -> f64 {
        self.failed as f64 / self.total.max(1) as f64
    }
}

impl LivePlant {
    pub(super) fn new(
        target: Uri,
        request: RequestSpec,
        bounds: Bounds,
        seed: u64,
    ) -> Result<Self, CliError> {
        Ok(Self {
            target,
            request,
            bounds,
            runtime: runtime::current_thread()?,
            seed,
            runs: 0,
            began: Instant::now(),
            fastest_s: f64::INFINITY,
            tail_s: None,
        })
    }

    fn config(&self, rate_per_s: f64, duration: Duration) -> LoadConfig {
        let rate = RateFunction::constant(rate_per_s);
        LoadConfig {
            requests: vec![self.request.clone()],
            connections: CONNECTIONS,
            timeout: self.bounds.timeout,
            seed: self.seed.wrapping_add(self.runs),
            ..LoadConfig::new(vec![self.target.clone()], rate, duration)
        }
    }

    /// Runs a load; its report where it was not ended early.
    fn load(&self, config: LoadConfig) -> Result<(Watch, Option<LoadReport>), PlantError> {
        let watch = Arc::new(Mutex::new(Watch::default()));
        let stopped = Arc::new(Notify::new());
        let bounds = self.bounds;
        let (its, notify) = (Arc::clone(&watch), Arc::clone(&stopped));
        let observer = move |second: &Second| {
            let mut watch = its.lock().unwrap_or_else(PoisonError::into_inner);
            if watch.on_second(second, &bounds) {
                notify.notify_one();
            }
        };
        let report = self.runtime.block_on(async {
            tokio::select! {
                report = load::run(config, observer) => report.map(Some),
                () = stopped.notified() => Ok(None),
            }
        });
        let report = report.map_err(|error| PlantError(error.to_string()))?;
        let watch = std::mem::take(&mut *watch.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((watch, report))
    }

    fn check_time(&self, next: Duration) -> Result<(), PlantError> {
        let bound = self.bounds.duration;
        if self.began.elapsed() + next > bound {
            return Err(PlantError(format!(
                "the next load would go beyond {:.0} s (--max-duration); allow more time, or \
                 shorten --level",
                bound.as_secs_f64()
            )));
        }
        Ok(())
    }

    fn failing(&self, watch: &Watch, rate_per_s: f64) -> PlantError {
        PlantError(format!(
            "stopped at {rate_per_s:.1} requests/s: {:.0} % of {} requests failed, more than \
             --stop-errors allows; nothing is sent any more. See what the service says, or lower \
             --max-rate",
            100.0 * watch.failed_share(),
            watch.total
        ))
    }

    /// Sends single requests until they are fast again.
    fn rest(&mut self) -> Result<(), PlantError> {
        let began = Instant::now();
        while began.elapsed() < REST_MAX {
            std::thread::sleep(REST_PERIOD);
            let single = LoadConfig {
                replay: Some(vec![Recorded {
                    at: Timestamp::ZERO,
                    kind: 0,
                }]),
                ..self.config(1.0, Duration::from_millis(1))
            };
            let (_, report) = self.load(single)?;
            let latency = report.and_then(|report| report.requests.latency);
            let calm = |mean_ms: f64| mean_ms / 1e3 <= REST_FACTOR * self.fastest_s;
            if latency.is_some_and(|latency| calm(latency.mean_ms)) {
                return Ok(());
            }
        }
        Err(PlantError(format!(
            "{:.0} s after an overload a single request is still slow: the service does not \
             recover by itself; see what it says",
            REST_MAX.as_secs_f64()
        )))
    }

    fn samples(&self, drive: &Drive, watch: &Watch, offered: &[u64]) -> Vec<Sample> {
        let interval = drive.measurement_interval.as_secs_f64();
        let per_interval = (interval.round() as usize).max(1);
        let rows = watch.seconds.chunks_exact(per_interval).enumerate();
        let samples = rows.map(|(index, rows)| {
            let ok: u64 = rows.iter().map(|row| row.ok).sum();
            let begin = index as f64 * interval;
            let sent: u64 = rows.iter().map(|row| row.offered).sum();
            let offered = offered.get(index).copied().unwrap_or(sent);
            Sample {
                at_s: begin + interval,
                limit_per_s: drive.limit.at(begin),
                offered_per_s: offered as f64 / interval,
                goodput_per_s: ok as f64 / interval,
                response_s: mean_response_s(rows),
            }
        });
        let end = drive.duration.as_secs_f64() + 1e-6;
        samples.filter(|sample| sample.at_s <= end).collect()
    }
}

/// Of what was answered in these seconds; NaN when nothing was.
fn mean_response_s(rows: &[Second]) -> f64 {
    let ok: u64 = rows.iter().map(|row| row.ok).sum();
    let answered = rows.iter().filter_map(|row| Some((row.ok, row.latency?)));
    let sum_ms: f64 = answered
        .map(|(ok, latency)| ok as f64 * latency.mean_ms)
        .sum();
    sum_ms / 1e3 / ok as f64
}

/// Which arrivals a gate lets through that follows the limit, and how many arrive per interval.
fn gated(drive: &Drive, arrivals: impl Iterator<Item = Timestamp>) -> (Vec<Recorded>, Vec<u64>) {
    let step = drive.measurement_interval;
    let bucket = TokenBucket::new(Timestamp::ZERO, drive.limit.at(0.0), BURST);
    let (mut sent, mut offered) = (Vec::new(), Vec::new());
    let mut interval = usize::MAX;
    for at in arrivals {
        let now = (at.as_secs_f64() / step.as_secs_f64()) as usize;
        if now != interval {
            interval = now;
            let begin = now as f64 * step.as_secs_f64();
            bucket.set_rate(at, drive.limit.at(begin), BURST);
            offered.resize(now + 1, 0);
        }
        offered[now] += 1;
        if bucket.try_take(at) {
            sent.push(Recorded { at, kind: 0 });
        }
    }
    (sent, offered)
}

impl Plant for LivePlant {
    fn run(&mut self, drive: &Drive) -> Result<Vec<Sample>, PlantError> {
        self.check_time(drive.duration)?;
        self.runs += 1;
        let mut config = self.config(drive.offered_per_s, drive.duration);
        let mut offered = Vec::new();
        if drive.limit != Limit::None {
            let (sent, arrived) = gated(drive, config.arrival_times());
            (config.replay, offered) = (Some(sent), arrived);
        }
        let (watch, report) = self.load(config)?;
        if watch.stop == Some(Stop::Failing) {
            return Err(self.failing(&watch, drive.offered_per_s));
        }
        let fastest = watch.seconds.iter().filter_map(|second| second.latency);
        let fastest_ms = fastest.map(|latency| latency.mean_ms).reduce(f64::min);
        self.fastest_s = self
            .fastest_s
            .min(fastest_ms.unwrap_or(f64::INFINITY) / 1e3);
        let latency = report.and_then(|report| report.requests.latency);
        self.tail_s = latency.map(|latency| latency.p99_ms / 1e3);
        if watch.stop == Some(Stop::Slow) {
            self.rest()?;
        }
        let samples = self.samples(drive, &watch, &offered);
        if samples.is_empty() {
            return Err(PlantError(format!(
                "at {:.1} requests/s answers took longer than --stop-latency at once; begin \
                 lower (--from), or allow more",
                drive.offered_per_s
            )));
        }
        Ok(samples)
    }

    fn tail_s(&self) -> Option<f64> {
        self.tail_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::characterize::Settings;

    fn bounds() -> Bounds {
        Bounds {
            errors: 0.05,
            latency: Duration::from_secs(2),
            duration: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
        }
    }

    fn second(ok: u64, errors: u64, mean_ms: f64) -> Second {
        Second {
            ok,
            errors,
            latency: Some(load::Quantiles {
                mean_ms,
                ..load::Quantiles::default()
            }),
            ..Second::default()
        }
    }

    #[test]
    fn load_ends_when_answers_are_slow_or_fail() {
        let mut watch = Watch::default();
        assert!(!watch.on_second(&second(100, 0, 50.0), &bounds()));
        assert!(watch.on_second(&second(100, 0, 2100.0), &bounds()));
        assert_eq!(watch.stop, Some(Stop::Slow));
        let mut watch = Watch::default();
        assert!(!watch.on_second(&second(3, 1, 50.0), &bounds()), "too few");
        assert!(!watch.on_second(&second(100, 1, 50.0), &bounds()));
        assert!(watch.on_second(&second(50, 50, 50.0), &bounds()));
        assert_eq!(watch.stop, Some(Stop::Failing));
    }

    #[test]
    fn gate_lets_the_limit_through_and_counts_what_arrives() {
        let second = Duration::from_secs(1);
        let settings = Settings {
            measurement_interval: second,
            tuning_interval: second,
            ..Settings::default()
        };
        let drive = Drive::gated(100.0, 20.0, &settings);
        let config = LoadConfig::new(Vec::new(), RateFunction::constant(100.0), drive.duration);
        let (sent, offered) = gated(&drive, config.arrival_times());
        let seconds = drive.duration.as_secs_f64();
        let (sent, offered) = (sent.len() as f64, offered.iter().sum::<u64>() as f64);
        assert!((sent / seconds - 20.0).abs() < 1.0, "{sent}");
        assert!((offered / seconds - 100.0).abs() < 10.0, "{offered}");
    }
}
