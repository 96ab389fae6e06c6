//! The few numbers that matter at the end of the demo.

use std::fmt;

use serde::Serialize;
use tidegate_lab::app::Stats;
use tidegate_lab::load::{LoadReport, Second};

use super::script::{CAPACITY, Script};
use crate::error::CliError;

/// A run is back to normal once it serves this part of those who come, for some seconds in a row.
const NORMAL: f64 = 0.9;
const NORMAL_FOR: usize = 3;
/// A generator this late says that the machine had no time for the demo.
const LAG_MS_MAX: f64 = 100.0;

/// Both sides of the demo.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    seed: u64,
    duration_s: f64,
    capacity_per_s: f64,
    without: Side,
    with: Side,
    /// Whether the machine was too busy for the numbers to mean much.
    machine_too_busy: bool,
    seconds: Vec<Row>,
}

/// One side of the demo.
#[derive(Debug, Serialize)]
struct Side {
    requests: u64,
    served_in_time: u64,
    /// Of what the replicas could serve while the crowd was there.
    rush_share: f64,
    shed: u64,
    abandoned: u64,
    /// Of the replicas' work, what was done for clients that had left.
    wasted_share: f64,
    /// From the end of the rush until requests are served as usual; none within the run.
    recovery_s: Option<f64>,
    /// Of those served.
    p95_ms: Option<f64>,
    /// Until the client of a request that is shed knows.
    refusal_p95_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    second: u64,
    offered: u64,
    possible: f64,
    without: u64,
    with: u64,
}

impl Summary {
    /// Puts both sides together; each has its load's report and its replicas' counts.
    pub(super) fn new(
        script: Script,
        without: &(LoadReport, Vec<Stats>),
        with: &(LoadReport, Vec<Stats>),
    ) -> Self {
        let late = |report: &LoadReport| report.send_lag.is_some_and(|lag| lag.p99_ms > LAG_MS_MAX);
        Self {
            seed: with.0.seed,
            duration_s: with.0.duration_s,
            capacity_per_s: CAPACITY,
            machine_too_busy: late(&without.0) || late(&with.0),
            seconds: rows(script, &without.0.seconds, &with.0.seconds),
            without: Side::new(script, &without.0, &without.1),
            with: Side::new(script, &with.0, &with.1),
        }
    }

    pub(super) fn json(&self) -> Result<String, CliError> {
        let text =
            serde_json::to_string(self).map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(text + "\n")
    }
}

fn rows(script: Script, without: &[Second], with: &[Second]) -> Vec<Row> {
    let both = without.iter().zip(with);
    let row = |(without, with): (&Second, &Second)| Row {
        second: with.second,
        offered: with.offered,
        possible: script.possible(with.second, with.offered),
        without: without.within_target,
        with: with.within_target,
    };
    both.map(row).collect()
}

impl Side {
    fn new(script: Script, report: &LoadReport, replicas: &[Stats]) -> Self {
        let requests = &report.requests;
        let completions: u64 = replicas.iter().map(|replica| replica.completions).sum();
        let wasted: u64 = replicas.iter().map(|replica| replica.wasted).sum();
        Self {
            requests: requests.total,
            served_in_time: requests.within_target,
            rush_share: rush_share(script, &report.seconds),
            shed: requests.shed,
            abandoned: requests.timeouts,
            wasted_share: wasted as f64 / completions.max(1) as f64,
            recovery_s: recovery_s(script, &report.seconds),
            p95_ms: requests.latency.map(|latency| latency.p95_ms),
            refusal_p95_ms: requests.refusal_latency.map(|latency| latency.p95_ms),
        }
    }
}

/// Served in time over what was possible, while the crowd was there.
fn rush_share(script: Script, seconds: &[Second]) -> f64 {
    let (from, to) = script.rush();
    let in_rush = |second: &&Second| {
        let at = second.second as f64;
        at >= from && at + 1.0 <= to
    };
    let rush = seconds.iter().filter(in_rush);
    let (mut served, mut possible) = (0.0, 0.0);
    for second in rush {
        served += second.within_target as f64;
        possible += script.possible(second.second, second.offered);
    }
    // Those who came just before the rush are served in it, which can make it a little more.
    (served / f64::max(possible, 1.0)).min(1.0)
}

/// Seconds after the rush from which on requests are served as usual.
fn recovery_s(script: Script, seconds: &[Second]) -> Option<f64> {
    let (_, rush_end) = script.rush();
    let end = script.duration().as_secs_f64();
    let after: Vec<&Second> = seconds
        .iter()
        .filter(|second| second.second as f64 >= rush_end && second.second as f64 + 1.0 <= end)
        .collect();
    let usual = |stretch: &&[&Second]| {
        let served: u64 = stretch.iter().map(|second| second.within_target).sum();
        let offered: u64 = stretch.iter().map(|second| second.offered).sum();
        served as f64 >= NORMAL * offered as f64
    };
    let first = after.windows(NORMAL_FOR).find(usual)?;
    Some(first[0].second as f64 - rush_end)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn Fn(&Side) -> String| {
            let (without, with) = (value(&self.without), value(&self.with));
            writeln!(f, "  {name:<42}{without:>14}{with:>14}")
        };
        writeln!(f, "  {:<42}{:>14}{:>14}", "", "without", "with Tidegate")?;
        row(f, "requests", &|side| side.requests.to_string())?;
        row(f, "served in time", &|side| side.served_in_time.to_string())?;
        row(f, "  in the rush, of what was possible", &|side| {
            percent(side.rush_share)
        })?;
        row(f, "shed at once, with Retry-After", &|side| {
            side.shed.to_string()
        })?;
        row(f, "abandoned by their clients", &|side| {
            side.abandoned.to_string()
        })?;
        row(f, "replicas' work done in vain", &|side| {
            percent(side.wasted_share)
        })?;
        row(f, "time to serve, 95 % within", &|side| millis(side.p95_ms))?;
        row(f, "back to normal after the rush", &|side| {
            recovery(side.recovery_s)
        })?;
        writeln!(
            f,
            "\n  {:.0} s, replicas for {:.0} requests/s, seed {}; Tidegate had no tuning.",
            self.duration_s, self.capacity_per_s, self.seed
        )?;
        if self.machine_too_busy {
            writeln!(
                f,
                "  This machine was too busy to send in time: do not trust the numbers."
            )?;
        }
        Ok(())
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn millis(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.0} ms"))
}

fn recovery(seconds: Option<f64>) -> String {
    match seconds {
        None => "not yet".to_owned(),
        Some(seconds) if seconds < 1.0 => "at once".to_owned(),
        Some(seconds) => format!("after {seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A side that serves `share` of what is possible during the rush, and comes back after `late`
    /// s.
    fn seconds(script: Script, share: f64, late: u64) -> Vec<Second> {
        let rate = script.rate();
        let (from, to) = script.rush();
        let second = |second: u64| {
            let at = second as f64;
            let offered = rate.value_at(at) as u64;
            let possible = script.possible(second, offered);
            let in_rush = at >= from && at < to + late as f64;
            Second {
                second,
                offered,
                within_target: (possible * if in_rush { share } else { 1.0 }) as u64,
                ..Second::default()
            }
        };
        (0..45).map(second).collect()
    }

    #[test]
    fn the_rush_is_compared_with_what_was_possible() {
        let script = Script::new(false);
        assert!((rush_share(script, &seconds(script, 0.5, 0)) - 0.5).abs() < 0.01);
        assert!(rush_share(script, &seconds(script, 1.0, 0)) > 0.99);
        assert_eq!(rush_share(script, &[]), 0.0);
    }

    #[test]
    fn recovery_is_when_requests_are_served_as_usual() {
        let script = Script::new(false);
        assert_eq!(recovery_s(script, &seconds(script, 0.5, 0)), Some(0.0));
        assert_eq!(recovery_s(script, &seconds(script, 0.5, 4)), Some(4.0));
        assert_eq!(recovery_s(script, &seconds(script, 0.5, 99)), None);
    }
}
