//! `tidegate sim FILE` for a service in a few keys, and `tidegate sim --new`.

use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

use serde_json::json;
use tidegate_proxy::config::reference;
use tidegate_sim::chart::{Chart, svg};
use tidegate_sim::my_service::{Change, MyService, ServiceRow};
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
    print(&if args.keys {
        format!("{PAGE}\n```toml\n{file}```\n")
    } else {
        file
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
    if is_service(&text) {
        Ok(Some(tidegate_config::parse(path, &text)?))
    } else {
        Ok(None)
    }
}

pub(crate) fn run(args: &Args, path: &str, service: &MyService) -> Result<ExitCode, CliError> {
    let seed = args.seed.unwrap_or(1);
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(format!("{path}: {error}"));
    let rows = service.run(seed).map_err(|error| usage(&error))?;
    let applications = service.applications().map_err(|error| usage(&error))?;
    let mut sections = Vec::new();
    for (name, its) in &applications {
        let rows: Vec<&ServiceRow> = rows
            .iter()
            .filter(|row| row.application.as_deref() == *name)
            .collect();
        let charts = charts(its, &rows);
        let figures: Result<Vec<_>, _> = charts.iter().map(svg).collect();
        sections.push(Section {
            title: name.unwrap_or("By mode").to_owned(),
            facts: format!("seed {seed}"),
            table: cells(rows),
            figures: figures.map_err(|error| usage(&error))?,
            ..Section::default()
        });
    }
    let lead = lead(&applications, &rows);
    let page = Page {
        title: service.title.clone(),
        origin: origin(),
        lead: lead.clone(),
        sections,
    };
    let name = std::path::PathBuf::from("report.html");
    write_all(&args.out, &[(name.clone(), page.html())]).map_err(|error| usage(&error))?;
    print(&if args.json {
        format!(
            "{}\n",
            json!({ "title": service.title, "seed": seed, "rows": rows })
        )
    } else {
        format!("{}\n{lead}\n", text(service, &rows))
    })?;
    eprintln!("report: {}", args.out.join(name).display());
    Ok(ExitCode::SUCCESS)
}

/// Goodput by mode, and the pool where that changes.
fn charts(service: &MyService, rows: &[&ServiceRow]) -> Vec<Chart> {
    let goodput = Chart::new(service.title.clone())
        .x("time (s)")
        .y("answers within the target per second");
    let goodput = rows.iter().fold(goodput, |chart, row| {
        chart.line(row.mode.clone(), row.over_time.clone())
    });
    let mut charts = vec![goodput];
    if let Some(row) = rows.first()
        && service.change.iter().any(Change::is_of_pool)
    {
        let pool = Chart::new(service.title.clone())
            .x("time (s)")
            .y("replicas that get requests");
        charts.push(pool.line("replicas", row.replicas_over_time.clone()));
    }
    charts
}

const COLUMNS: [&str; 9] = [
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

/// The table; its first column is the application where there are several.
fn cells<'a>(rows: impl IntoIterator<Item = &'a ServiceRow>) -> Vec<Vec<String>> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let millis = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    let mut all = vec![COLUMNS.map(str::to_owned).to_vec()];
    for row in rows {
        if row.application.is_some() && all.len() == 1 {
            all[0].insert(0, "application".to_owned());
        }
        let mut cells: Vec<String> = row.application.iter().cloned().collect();
        cells.extend([
            row.mode.clone(),
            format!("{:.1}/s", row.goodput_per_second),
            percent(row.in_target),
            percent(row.shed),
            percent(row.lost),
            millis(row.p50_seconds),
            millis(row.p95_seconds),
            millis(row.p99_seconds),
            percent(row.utilization),
        ]);
        all.push(cells);
    }
    all
}

/// The load against the capacity, in a sentence for each application.
fn lead(applications: &[(Option<&str>, MyService)], rows: &[ServiceRow]) -> String {
    let sentences: Vec<String> = applications
        .iter()
        .map(|(name, service)| {
            let rows = rows
                .iter()
                .filter(|row| row.application.as_deref() == *name);
            let words = words(service, rows);
            name.map_or_else(|| words.clone(), |name| format!("{name}: {words}"))
        })
        .collect();
    sentences.join("\n")
}

fn words<'a>(service: &MyService, rows: impl Iterator<Item = &'a ServiceRow>) -> String {
    let (rate, capacity) = (service.rate.0, service.capacity());
    let best = rows.max_by(|a, b| a.in_target.total_cmp(&b.in_target));
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
    let names = cells[0].len() - COLUMNS.len() + 1;
    let wide = |column: usize| cells.iter().map(|row| row[column].len()).max();
    let mut out = format!("{}\n\n", service.title);
    for row in &cells {
        for (column, cell) in row.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = if column < names {
                let wide = wide(column).unwrap_or(0).max(8) + 2;
                write!(out, "{cell:<wide$}")
            } else {
                write!(out, "{cell:>12}")
            };
        }
        out.push('\n');
    }
    let with_classes = rows.iter().filter(|row| row.classes.len() > 1);
    for (index, row) in with_classes.enumerate() {
        if index == 0 {
            out.push('\n');
        }
        let classes: Vec<String> = row
            .classes
            .iter()
            .map(|(name, share)| format!("{name} {:.1} %", share * 100.0))
            .collect();
        let label = match &row.application {
            Some(application) => format!("{application} {}", row.mode),
            None => row.mode.clone(),
        };
        let _ = writeln!(out, "{label:<10} in target: {}", classes.join(", "));
    }
    out
}
