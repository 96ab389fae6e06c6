//! Reports that the proxies of a fleet leave here for each other.
//!
//! A report is a line of text that the plane does not read: it is sealed by the proxies. The newest
//! one of each proxy is kept for the time that it says. An exchange leaves one and takes what has
//! come since the last exchange, by a version that only grows, also from one start of the plane to
//! the next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::json;

/// Longest body of an exchange: a report of the greatest length with its seal.
pub(crate) const BODY_MAX: usize = (4 << 20) + (64 << 10);
/// Bytes of all reports together.
const BYTES_MAX: usize = 64 << 20;
const PROXIES_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 256;
/// No report is kept longer.
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// The first line of an exchange; the second one is the report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    fleet: String,
    proxy: String,
    since: u64,
    hold_seconds: f64,
}

#[derive(Debug)]
struct Report {
    version: u64,
    until: Instant,
    text: Bytes,
}

/// The newest report of each proxy, by fleet and name.
#[derive(Debug)]
pub(crate) struct Reports {
    version: u64,
    all: BTreeMap<(String, String), Report>,
}

impl Reports {
    /// `version` is larger than any of an earlier start: nanoseconds since 1970.
    pub(crate) fn new(version: u64) -> Self {
        Self {
            version,
            all: BTreeMap::new(),
        }
    }

    /// Proxies with a report, by fleet.
    pub(crate) fn proxies(&mut self, now: Instant) -> BTreeMap<&str, Vec<&str>> {
        self.forget(now);
        let mut fleets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (fleet, proxy) in self.all.keys() {
            fleets.entry(fleet).or_default().push(proxy);
        }
        fleets
    }

    fn forget(&mut self, now: Instant) {
        self.all.retain(|_, report| report.until > now);
    }

    /// Takes a report, and gives those of the other proxies of its fleet that are newer than what
    /// it has.
    ///
    /// # Errors
    /// Cause and remedy.
    pub(crate) fn exchange(&mut self, now: Instant, body: &Bytes) -> Result<Bytes, String> {
        let end = body.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or("the body is two lines: who reports, and the report")?;
        let head: Head = serde_json::from_slice(&body[..end])
            .map_err(|error| format!("the first line: {error}; run the release of the proxies"))?;
        let text = body.slice(end + 1..);
        let proper = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
        if !proper(&head.fleet) || !proper(&head.proxy) || text.contains(&b'\n') {
            return Err("names are 1 to 256 bytes long, and a report is one line".to_owned());
        }
        let hold = Duration::try_from_secs_f64(head.hold_seconds);
        let hold = hold.map_err(|error| format!("`hold_seconds`: {error}; give a time"))?;
        self.forget(now);
        let key = (head.fleet.clone(), head.proxy.clone());
        // What is here under its name may be of another proxy, which both have to learn.
        let before = self.all.remove(&key);
        let held: usize = self.all.values().map(|it| it.text.len()).sum();
        if self.all.len() >= PROXIES_MAX || held + text.len() > BYTES_MAX {
            return Err(format!(
                "there is no room: at most {PROXIES_MAX} proxies and {} MiB of reports; let the \
                 proxies share by `fleet.peers` or `fleet.nats`",
                BYTES_MAX >> 20
            ));
        }
        // From one that has seen a later version, this plane was set back: it gets everything.
        let since = if head.since > self.version {
            0
        } else {
            head.since
        };
        let of_fleet = self
            .all
            .iter()
            .filter(|((fleet, _), _)| *fleet == head.fleet);
        let newer = of_fleet.map(|(_, it)| it).chain(&before);
        let newer = newer.filter(|it| it.version > since);
        self.version += 1;
        let mut answer = BytesMut::from(json!({ "version": self.version }).to_string().as_bytes());
        for report in newer {
            answer.extend_from_slice(b"\n");
            answer.extend_from_slice(&report.text);
        }
        let report = Report {
            version: self.version,
            until: now + hold.min(HOLD_MAX),
            text,
        };
        self.all.insert(key, report);
        Ok(answer.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(
        reports: &mut Reports,
        now: Instant,
        proxy: &str,
        since: u64,
        text: &str,
    ) -> Vec<String> {
        let head = json!({ "fleet": "main", "proxy": proxy, "since": since, "hold_seconds": 2.0 });
        let answer = reports.exchange(now, &format!("{head}\n{text}").into());
        let answer = String::from_utf8(answer.unwrap().to_vec()).unwrap();
        answer.lines().map(str::to_owned).collect()
    }

    fn version(answer: &[String]) -> u64 {
        let head: serde_json::Value = serde_json::from_str(&answer[0]).unwrap();
        head["version"].as_u64().unwrap()
    }

    #[test]
    fn proxies_get_what_others_said_since_the_last_time() {
        let now = Instant::now();
        let mut reports = Reports::new(100);
        assert_eq!(exchange(&mut reports, now, "a", 0, "a1").len(), 1);
        let to_b = exchange(&mut reports, now, "b", 0, "b1");
        assert_eq!(to_b[1..], ["a1"]);
        let to_b = exchange(&mut reports, now, "b", version(&to_b), "b2");
        assert_eq!(to_b.len(), 1);
        exchange(&mut reports, now, "a", 0, "a2");
        let to_b = exchange(&mut reports, now, "b", version(&to_b), "b3");
        assert_eq!(to_b[1..], ["a2"]);
        exchange(&mut reports, now, "b", 0, "of another b");
        let to_b = exchange(&mut reports, now, "b", version(&to_b), "b4");
        assert_eq!(to_b[1..], ["of another b"], "two of one name learn it");
        let other = json!({ "fleet": "other", "proxy": "x", "since": 0, "hold_seconds": 2.0 });
        let answer = reports
            .exchange(now, &format!("{other}\nx1").into())
            .unwrap();
        assert!(!answer.contains(&b'\n'), "fleets do not meet");
    }

    #[test]
    fn silent_proxies_are_forgotten_and_a_new_start_gives_everything() {
        let now = Instant::now();
        let mut reports = Reports::new(100);
        exchange(&mut reports, now, "a", 0, "a1");
        let later = now + Duration::from_secs(3);
        assert_eq!(exchange(&mut reports, later, "b", 0, "b1").len(), 1);
        assert_eq!(reports.proxies(later)["main"], ["b"]);
        let answer = exchange(&mut reports, later, "a", u64::MAX, "a2");
        assert_eq!(answer[1..], ["b1"]);
    }

    #[test]
    fn exchanges_that_cannot_be_are_refused() {
        let mut reports = Reports::new(0);
        let now = Instant::now();
        let head = json!({ "fleet": "main", "proxy": "a", "since": 0, "hold_seconds": 2.0 });
        for bad in [
            "".to_owned(),
            "{}".to_owned(),
            "{}\nreport".to_owned(),
            format!("{head}\ntwo\nlines"),
            head.to_string().replace("\"a\"", "\"\"") + "\nreport",
            head.to_string().replace("2.0", "-2.0") + "\nreport",
        ] {
            assert!(reports.exchange(now, &bad.clone().into()).is_err(), "{bad}");
        }
        assert!(
            reports
                .exchange(now, &format!("{head}\nreport").into())
                .is_ok()
        );
        let large = "x".repeat(BODY_MAX);
        for index in 0..20 {
            let head = json!({ "fleet": "main", "proxy": index.to_string(), "since": 0, "hold_seconds": 2 });
            let taken = reports.exchange(now, &format!("{head}\n{large}").into());
            assert_eq!(taken.is_ok(), index < 15, "{index}");
        }
    }
}
