//! `tidegate recording info`: what is in a recording, on one screen.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;
use tidegate_record::{Recording, Request};

/// Times of requests in order, for quantiles.
struct Times(Vec<u64>);

impl Times {
    fn of<'a>(requests: impl Iterator<Item = &'a Request>, time: fn(&Request) -> u64) -> Self {
        let mut times: Vec<u64> = requests.map(time).collect();
        times.sort_unstable();
        Self(times)
    }

    fn quantile_ms(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1) as f64;
        let at = (share * last).round() as usize;
        self.0.get(at).map_or(f64::NAN, |&us| us as f64 / 1e3)
    }
}

fn count_by<K: Ord>(recording: &Recording, key: impl Fn(&Request) -> K) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    for request in &recording.requests {
        *counts.entry(key(request)).or_insert(0) += 1;
    }
    counts
}

/// The table, or one JSON object.
pub(super) fn text(recording: &Recording, as_json: bool) -> String {
    let tables = &recording.meta.tables;
    let endings = count_by(recording, |request| {
        match (request.is_shed(), tables.reason(request)) {
            (true, "") => "shed".to_owned(),
            (true, reason) => format!("shed: {reason}"),
            (false, _) => match request.decision {
                tidegate_record::Decision::Rejected => "rejected".to_owned(),
                _ => request.ending.as_str().to_owned(),
            },
        }
    });
    let classes = count_by(recording, |request| tables.class(request).to_owned());
    let replicas = count_by(recording, |request| tables.replica(request).to_owned());
    let paths = count_by(recording, |request| recording.names.path(request.path));
    let served = || {
        recording
            .requests
            .iter()
            .filter(|request| request.is_served())
    };
    let response = Times::of(served(), |request| request.response_us);
    let service = Times::of(served(), |request| request.service_us);
    let requests = recording.requests.len();
    let seconds = recording.seconds();
    let rate = requests as f64 / seconds.max(1e-9);
    let each = recording.request_frames_bytes as f64 / requests.max(1) as f64;
    if as_json {
        let quantiles = |times: &Times| {
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| times.quantile_ms(share));
            json!({ "p50_ms": p50, "p95_ms": p95, "p99_ms": p99 })
        };
        let value = json!({
            "program": recording.meta.program,
            "detail": recording.meta.detail,
            "begun_unix_seconds": recording.meta.epoch_unix_us as f64 / 1e6,
            "files": recording.files.len(),
            "bytes": recording.bytes,
            "bytes_per_request": each,
            "seconds": seconds,
            "requests": requests,
            "events": recording.events.len(),
            "inputs": recording.inputs.len(),
            "lost": recording.lost(),
            "endings": endings,
            "classes": classes,
            "replicas": replicas,
            "paths": paths.len(),
            "response": quantiles(&response),
            "service": quantiles(&service),
            "problems": recording.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        return format!("{value}\n");
    }
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<12} {value}");
    };
    line("written by", recording.meta.program.clone());
    line("length", format!("{seconds:.1} s, {rate:.1} requests/s"));
    line(
        "requests",
        format!("{requests} in {} file(s)", recording.files.len()),
    );
    line(
        "size",
        format!("{} bytes, {each:.1} per request", recording.bytes),
    );
    line(
        "besides",
        format!(
            "{} events, {} engine inputs, {} lost while recording, {} places unreadable",
            recording.events.len(),
            recording.inputs.len(),
            recording.lost(),
            recording.problems.len()
        ),
    );
    for (name, times) in [("response", &response), ("service", &service)] {
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| times.quantile_ms(share));
        line(
            name,
            format!("p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms (served)"),
        );
    }
    let share = |count: u64| 100.0 * count as f64 / requests.max(1) as f64;
    for (title, counts, most) in [
        ("ending", &endings, usize::MAX),
        ("class", &classes, 10),
        ("replica", &replicas, 10),
        ("path", &paths, 10),
    ] {
        let mut rows: Vec<_> = counts.iter().filter(|(name, _)| !name.is_empty()).collect();
        rows.sort_by_key(|&(_, &count)| std::cmp::Reverse(count));
        for &(name, &count) in rows.iter().take(most) {
            line(title, format!("{count:>10} {:>5.1}%  {name}", share(count)));
        }
        if rows.len() > most {
            line(title, format!("and {} more", rows.len() - most));
        }
    }
    out
}
