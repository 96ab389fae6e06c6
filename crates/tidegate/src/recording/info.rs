//! `tidegate recording info`: what is in a recording, on one screen.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;
use tidegate_record::{RecordError, Recording, Request};

/// Times of requests, to three digits: enough for quantiles, and little for any number of them.
#[derive(Default)]
struct Times {
    counts: BTreeMap<u64, u64>,
    total: u64,
}

impl Times {
    fn add(&mut self, us: u64) {
        let mut unit = 1;
        while us / unit >= 10_000 {
            unit *= 10;
        }
        *self.counts.entry(us / unit * unit).or_insert(0) += 1;
        self.total += 1;
    }

    fn quantile_ms(&self, share: f64) -> f64 {
        let rank = (share * self.total.saturating_sub(1) as f64).round() as u64;
        let mut before = 0;
        for (&us, count) in &self.counts {
            before += count;
            if before > rank {
                return us as f64 / 1e3;
            }
        }
        f64::NAN
    }
}

/// What is counted in one pass over the requests.
#[derive(Default)]
struct Counted {
    endings: BTreeMap<String, u64>,
    applications: BTreeMap<u16, u64>,
    classes: BTreeMap<(u16, u16), u64>,
    replicas: BTreeMap<u16, u64>,
    paths: BTreeMap<u64, u64>,
    response: Times,
    service: Times,
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    *counts.entry(key).or_insert(0) += 1;
}

impl Counted {
    fn of(recording: &Recording) -> Result<Self, RecordError> {
        let mut all = Self::default();
        recording.each(|request| {
            all.add(recording, request);
            Ok::<(), RecordError>(())
        })?;
        Ok(all)
    }

    fn add(&mut self, recording: &Recording, request: &Request) {
        let reason = recording.meta.tables.reason(request);
        let ending = match (request.is_shed(), reason) {
            (true, "") => "shed".to_owned(),
            (true, reason) => format!("shed: {reason}"),
            (false, _) => match request.decision {
                tidegate_record::Decision::Rejected => "rejected".to_owned(),
                _ => request.ending.as_str().to_owned(),
            },
        };
        count(&mut self.endings, ending);
        count(&mut self.applications, request.application);
        count(&mut self.classes, (request.application, request.class));
        count(&mut self.replicas, request.replica);
        count(&mut self.paths, request.path);
        if request.is_served() {
            self.response.add(request.response_us);
            self.service.add(request.service_us);
        }
    }
}

/// Counts by name, of what was counted by number.
fn by_name<K: Ord>(
    counts: &BTreeMap<K, u64>,
    name: impl Fn(&K) -> String,
) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    for (key, number) in counts {
        *named.entry(name(key)).or_insert(0) += number;
    }
    named
}

/// The table, or one JSON object.
pub(super) fn text(recording: &Recording, as_json: bool) -> Result<String, RecordError> {
    let tables = &recording.meta.tables;
    let Counted {
        endings,
        applications,
        classes,
        replicas,
        paths,
        response,
        service,
    } = Counted::of(recording)?;
    let of = |index: usize, names: &[String]| names.get(index).cloned().unwrap_or_default();
    let several = applications.len() > 1;
    let applications = by_name(&applications, |&at| of(at.into(), &tables.applications));
    let classes = by_name(&classes, |&(application, class)| {
        let class = of(class.into(), &tables.classes);
        if several {
            format!("{}/{class}", of(application.into(), &tables.applications))
        } else {
            class
        }
    });
    let replicas = by_name(&replicas, |&replica| match replica {
        0 => String::new(),
        replica => of(usize::from(replica) - 1, &tables.replicas),
    });
    let paths = by_name(&paths, |&path| recording.names.path(path));
    let requests = recording.len();
    let seconds = recording.seconds();
    let rate = requests as f64 / seconds.max(1e-9);
    // Everything that stands in the files: events, names and configurations too.
    let each = recording.bytes as f64 / requests.max(1) as f64;
    let rows = recording.request_frames_bytes as f64 / requests.max(1) as f64;
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
            "row_bytes_per_request": rows,
            "seconds": seconds,
            "requests": requests,
            "events": recording.event_count,
            "inputs": recording.input_count,
            "lost": recording.lost(),
            "endings": endings,
            "applications": applications,
            "classes": classes,
            "replicas": replicas,
            "paths": paths.len(),
            "response": quantiles(&response),
            "service": quantiles(&service),
            "problems": recording.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        return Ok(format!("{value}\n"));
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
        format!(
            "{} bytes, {each:.1} per request ({rows:.1} without events, names and configurations)",
            recording.bytes
        ),
    );
    line(
        "besides",
        format!(
            "{} events, {} engine inputs, {} lost while recording, {} places unreadable",
            recording.event_count,
            recording.input_count,
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
        ("application", &applications, if several { 10 } else { 0 }),
        ("class", &classes, 10),
        ("replica", &replicas, 10),
        ("path", &paths, 10),
    ] {
        let mut rows: Vec<_> = counts.iter().filter(|(name, _)| !name.is_empty()).collect();
        rows.sort_by_key(|&(_, &count)| std::cmp::Reverse(count));
        for &(name, &count) in rows.iter().take(most) {
            line(title, format!("{count:>10} {:>5.1}%  {name}", share(count)));
        }
        if most > 0 && rows.len() > most {
            line(title, format!("and {} more", rows.len() - most));
        }
    }
    Ok(out)
}
