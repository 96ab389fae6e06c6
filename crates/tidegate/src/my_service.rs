//! `tidegate sim FILE` for a service in a few keys, and `tidegate sim --new`.

use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

use serde_json::json;
use tidegate_proxy::config::reference;
use tidegate_sim::chart::{Chart, svg};
use tidegate_sim::my_service::{MyService, ServiceRow};
use tidegate_sim::report::{Page, Section, write_all};

use crate::check::print;
use crate::error::CliError;
use crate::sim::{Args, origin};

const HEADER: &str = "\
# A service and its load, for `tidegate sim FILE`. Every key with its default: change what is
# different in your service and remove the `#` before it.
#
# Durations, rates and shares carry their unit: \"250ms\", \"40/s\", \"80%\".
";

const PAGE: &str = "\
# A service of your own in the simulator

`tidegate sim --new > my-service.toml` writes the file below, `tidegate sim my-service.toml` runs
it and prints a row per mode. `tidegate sim arena --scenarios DIR` races all contenders on the
files of a directory. This page is generated: `tidegate sim --keys`.
";

/// Prints the commented file, or the page about its keys.
pub(crate) fn write_new(args: &Args) -> Result<ExitCode, CliError> {
    let file = reference::of::<MyService>(HEADER);
    print(&match args.keys {
        true => format!("{PAGE}\n```toml\n{file}```\n"),
        false => file,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is a service in a few keys: an experiment has a `paper`, a scenario a `load`.
pub(crate) fn is_service(text: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else {
        // Read as one, so that what is wrong is said in its terms.
        return !text.contains("paper");
    };
    !["paper", "figure", "load", "replica"]
        .iter()
        .any(|key| table.contains_key(*key))
}

/// The service of a file; none if it is something else.
pub(crate) fn read(path: &str) -> Result<Option<MyService>, CliError> {
    if matches!(path, "papers" | "arena" | "plane") {
        return Ok(None);
    }
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        path: path.to_owned(),
        source,
    })?;
    match is_service(&text) {
        true => Ok(Some(tidegate_config::parse(path, &text)?)),
        false => Ok(None),
    }
}

pub(crate) fn run(args: &Args, service: &MyService) -> Result<ExitCode, CliError> {
    let seed = args.seed.unwrap_or(1);
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let rows = service.run(seed).map_err(|error| usage(&error))?;
    let figure = svg(&chart(service, &rows)).map_err(|error| usage(&error))?;
    let page = Page {
        title: service.title.clone(),
        origin: origin(),
        lead: words(service, &rows),
        sections: vec![Section {
            title: "By mode".to_owned(),
            facts: format!("seed {seed}"),
            table: cells(&rows),
            figures: vec![figure],
            ..Section::default()
        }],
    };
    let name = std::path::PathBuf::from("report.html");
    write_all(&args.out, &[(name.clone(), page.html())]).map_err(|error| usage(&error))?;
    print(&match args.json {
        true => format!(
            "{}\n",
            json!({ "title": service.title, "seed": seed, "rows": rows })
        ),
        false => text(service, &rows),
    })?;
    eprintln!("report: {}", args.out.join(name).display());
    Ok(ExitCode::SUCCESS)
}

fn chart(service: &MyService, rows: &[ServiceRow]) -> Chart {
    let chart = Chart::new(service.title.clone())
        .x("time (s)")
        .y("answers within the target per second");
    rows.iter().fold(chart, |chart, row| {
        chart.line(row.mode.clone(), row.over_time.clone())
    })
}

fn cells(rows: &[ServiceRow]) -> Vec<Vec<String>> {
    let head = [
        "mode",
        "goodput",
        "in target",
        "shed",
        "lost",
        "p50",
        "p95",
        "p99",
        "utilization",
    ];
    let mut all = vec![head.map(str::to_owned).to_vec()];
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let millis = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    all.extend(rows.iter().map(|row| {
        vec![
            row.mode.clone(),
            format!("{:.1}/s", row.goodput_per_second),
            percent(row.in_target),
            percent(row.shed),
            percent(row.lost),
            millis(row.p50_seconds),
            millis(row.p95_seconds),
            millis(row.p99_seconds),
            percent(row.utilization),
        ]
    }));
    all
}

/// The load against the capacity, in a sentence.
fn words(service: &MyService, rows: &[ServiceRow]) -> String {
    let (rate, capacity) = (service.rate.0, service.capacity());
    let best = rows
        .iter()
        .max_by(|a, b| a.in_target.total_cmp(&b.in_target));
    let best = best.map_or_else(String::new, |row| {
        format!(
            " With {} {:.1} % of the attempts are answered within {}.",
            row.mode,
            row.in_target * 100.0,
            service.target
        )
    });
    format!(
        "{rate:.0}/s arrive at first where {} replicas with {} workers can do {capacity:.0}/s \
         ({:.0} %).{best}",
        service.replicas,
        service.workers,
        100.0 * rate / capacity
    )
}

fn text(service: &MyService, rows: &[ServiceRow]) -> String {
    let cells = cells(rows);
    let mut out = format!("{}\n\n", service.title);
    for row in &cells {
        for (column, cell) in row.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(out, "{cell:<10}"),
                _ => write!(out, "{cell:>12}"),
            };
        }
        out.push('\n');
    }
    if !service.class.is_empty() {
        out.push('\n');
        for row in rows {
            let classes: Vec<String> = row
                .classes
                .iter()
                .map(|(name, share)| format!("{name} {:.1} %", share * 100.0))
                .collect();
            let _ = writeln!(out, "{:<10} in target: {}", row.mode, classes.join(", "));
        }
    }
    let _ = writeln!(out, "\n{}", words(service, rows));
    out
}
