//! What a run found, as plain data: for people, for JSON and for CSV.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;
use tidegate_config::Dur;

/// The result of one run.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// The seed of the arrivals; the same seed and schedule offer the same requests.
    pub seed: u64,
    /// Length of the schedule that was measured.
    pub duration_s: f64,
    /// What counts as in time.
    pub target_ms: f64,
    /// How many requests the schedule offered, per second.
    pub offered_per_s: f64,
    /// Answers in time, per second of the schedule.
    pub goodput_per_s: f64,
    /// Kleinrock's power: goodput over the mean latency in seconds, where anything was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<f64>,
    /// Requests, each judged by its last try and timed from the first.
    pub requests: Summary,
    /// Single tries, where requests were tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Summary>,
    /// Requests by kind, where the mix has more than one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, Summary>,
    /// Why the first connection that failed did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_error: Option<String>,
    /// How late the generator itself was: large values mean the machine was too busy to trust.
    pub send_lag: Option<Quantiles>,
    /// One row per second, until the last request ended.
    pub seconds: Vec<Second>,
}

/// How a set of requests ended. Every one is in exactly one class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// All of them.
    pub total: u64,
    /// Answered in full, below 400.
    pub ok: u64,
    /// Of those, within the target time.
    pub within_target: u64,
    /// Refused with 503 or 429.
    pub shed: u64,
    /// The refusals by `tidegate-shed` reason, or by status where there is none.
    pub shed_by_reason: BTreeMap<String, u64>,
    /// Other answers of 500 and above.
    pub server_errors: u64,
    /// Other answers of 400 and above.
    pub client_errors: u64,
    /// Given up by the client.
    pub timeouts: u64,
    /// No connection.
    pub connect_errors: u64,
    /// Connection lost before the answer was complete.
    pub broken: u64,
    /// Not sent because every connection was busy.
    pub unsent: u64,
    /// Of the answers counted as ok.
    pub latency: Option<Quantiles>,
    /// Of the refusals.
    pub refusal_latency: Option<Quantiles>,
}

impl Summary {
    /// Everything that went wrong, other than by a deliberate refusal.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.server_errors + self.client_errors + self.timeouts + self.connect_errors + self.broken
    }

    /// Part of the whole, 0 for an empty one.
    #[must_use]
    pub fn share(&self, part: u64) -> f64 {
        part as f64 / self.total.max(1) as f64
    }
}

/// Points of a latency distribution, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Quantiles {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// What happened in one second of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Second {
    /// Counted from the start of the run.
    pub second: u64,
    /// Requests due in it.
    pub offered: u64,
    /// Answered in full.
    pub ok: u64,
    /// Of those, within the target time.
    pub within_target: u64,
    /// Refused with 503 or 429.
    pub shed: u64,
    /// Given up by the client.
    pub timeouts: u64,
    /// Other failures.
    pub errors: u64,
    /// Not sent because every connection was busy.
    pub unsent: u64,
    /// Under way at its end.
    pub in_flight: u64,
    /// Of the answers counted as ok.
    pub latency: Option<Quantiles>,
}

impl Second {
    const CSV_HEADER: &str = "second,offered,ok,within_target,shed,timeouts,errors,unsent,in_flight,p50_ms,p95_ms,p99_ms";

    fn write_csv(&self, out: &mut String) -> fmt::Result {
        let Self {
            second,
            offered,
            ok,
            within_target,
            ..
        } = self;
        let Self {
            shed,
            timeouts,
            errors,
            unsent,
            in_flight,
            ..
        } = self;
        write!(out, "{second},{offered},{ok},{within_target},")?;
        write!(out, "{shed},{timeouts},{errors},{unsent},{in_flight},")?;
        match self.latency {
            Some(at) => writeln!(out, "{:.3},{:.3},{:.3}", at.p50_ms, at.p95_ms, at.p99_ms),
            None => writeln!(out, ",,"),
        }
    }
}

/// Goodput over the mean latency in seconds.
pub(super) fn power(goodput_per_s: f64, requests: &Summary) -> Option<f64> {
    let mean_s = requests.latency?.mean_ms / 1e3;
    (mean_s > 0.0).then(|| goodput_per_s / mean_s)
}

impl LoadReport {
    /// The time series as CSV with a header line.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = format!("{}\n", Second::CSV_HEADER);
        for second in &self.seconds {
            // Writing into a String cannot fail.
            let _ = second.write_csv(&mut out);
        }
        out
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = Dur(Duration::from_secs_f64(self.target_ms / 1e3));
        writeln!(
            f,
            "offered   {:>9}  {:.1}/s for {:.1} s, seed {}",
            self.requests.total, self.offered_per_s, self.duration_s, self.seed
        )?;
        writeln!(
            f,
            "goodput   {:>9}  {:.1}/s answered within {target}",
            self.requests.within_target, self.goodput_per_s
        )?;
        self.requests.write_rows(f)?;
        if let Some(cause) = &self.connect_error {
            writeln!(f, "the first connection that failed: {cause}")?;
        }
        write_latency(f, "latency", self.requests.latency)?;
        if let Some(power) = self.power {
            writeln!(f, "power     {power:>9.1}  goodput over mean latency, 1/s²")?;
        }
        write_latency(f, "refusals", self.requests.refusal_latency)?;
        write_latency(f, "send lag", self.send_lag)?;
        if let Some(attempts) = &self.attempts {
            writeln!(f, "\nsingle tries: {} in all", attempts.total)?;
            attempts.write_rows(f)?;
        }
        for (name, kind) in &self.kinds {
            writeln!(
                f,
                "\n{name}: {} of {} in time",
                kind.within_target, kind.total
            )?;
            kind.write_rows(f)?;
            write_latency(f, "latency", kind.latency)?;
        }
        Ok(())
    }
}

impl Summary {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("ok", self.ok, String::new()),
            ("shed", self.shed, self.reasons()),
            ("5xx", self.server_errors, String::new()),
            ("4xx", self.client_errors, String::new()),
            ("timeout", self.timeouts, String::new()),
            ("connect", self.connect_errors, "no connection".to_owned()),
            ("broken", self.broken, "connection lost".to_owned()),
            (
                "unsent",
                self.unsent,
                "every connection was busy".to_owned(),
            ),
        ];
        for (name, count, remark) in rows.into_iter().filter(|row| row.0 == "ok" || row.1 > 0) {
            let percent = 100.0 * self.share(count);
            writeln!(
                f,
                "{}",
                format!("{name:<9} {count:>9}  {percent:.1}%  {remark}").trim_end()
            )?;
        }
        Ok(())
    }

    fn reasons(&self) -> String {
        let named = |(reason, count): (&String, &u64)| format!("{reason} {count}");
        self.shed_by_reason
            .iter()
            .map(named)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn write_latency(f: &mut fmt::Formatter<'_>, name: &str, at: Option<Quantiles>) -> fmt::Result {
    let Some(at) = at else { return Ok(()) };
    writeln!(
        f,
        "{name:<9} p50 {:.1} ms, p95 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
        at.p50_ms, at.p95_ms, at.p99_ms, at.p999_ms, at.max_ms
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> LoadReport {
        LoadReport {
            seed: 7,
            duration_s: 2.0,
            target_ms: 500.0,
            offered_per_s: 2.0,
            goodput_per_s: 1.0,
            power: None,
            requests: Summary {
                total: 4,
                ok: 2,
                within_target: 2,
                shed: 2,
                shed_by_reason: BTreeMap::from([("predicted".to_owned(), 2)]),
                ..Summary::default()
            },
            attempts: None,
            kinds: BTreeMap::new(),
            connect_error: None,
            send_lag: None,
            seconds: vec![Second {
                second: 0,
                offered: 4,
                ok: 2,
                ..Second::default()
            }],
        }
    }

    #[test]
    fn people_see_only_what_happened() {
        let text = report().to_string();
        assert!(
            text.contains("shed              2  50.0%  predicted 2"),
            "{text}"
        );
        assert!(text.contains("1.0/s answered within 500ms"), "{text}");
        assert!(!text.contains("timeout"), "{text}");
    }

    #[test]
    fn power_is_goodput_over_mean_latency() {
        let requests = Summary {
            latency: Some(Quantiles {
                mean_ms: 20.0,
                ..Quantiles::default()
            }),
            ..Summary::default()
        };
        let power = power(95.0, &requests);
        assert_eq!(power, Some(4750.0));
        assert_eq!(super::power(0.0, &Summary::default()), None);
        let text = LoadReport { power, ..report() }.to_string();
        assert!(text.contains("power        4750.0"), "{text}");
    }

    #[test]
    fn csv_has_one_line_per_second() {
        let csv = report().csv();
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert_eq!(lines[1], "0,4,2,0,0,0,0,0,0,,,");
    }
}
