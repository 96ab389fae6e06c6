//! `tidegate whatif`: a recorded time with another configuration.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use tidegate_config::Dur;
use tidegate_sim::chart::{Chart, svg};
use tidegate_sim::report::{Page, Section, write_all};
use tidegate_sim::whatif::self_test::{self, Case};
use tidegate_sim::whatif::{Answer, ClassFigures, Figures, Model, ReasonShare, Variant};

use crate::check::print;
use crate::error::CliError;
use crate::recording;
use crate::sim::origin;

/// Says what a recorded time would have been with another configuration.
///
/// The first rows are what happened and the self-check: the recorded configuration, replayed. Its
/// distance from what happened is part of every interval. A report with a chart is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A recording: a file, or a directory with its files.
    #[arg(value_name = "FILE|DIR", required_unless_present = "self_test")]
    recording: Option<PathBuf>,
    /// Instead: forecasts for this many random services against the truth, both by the simulator,
    /// with the errors by load.
    #[arg(long, value_name = "N", conflicts_with_all = ["recording", "set", "mode", "variant"])]
    self_test: Option<u64>,
    /// What is different, as KEY=VALUE: protect.KEY, target, replicas (+1, -1, 4), kill (1), rate
    /// (1.5), workers (8), speed (50%), optional (30%). Several are one variant.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Another mode; the same as --set mode=MODE.
    #[arg(long)]
    mode: Option<String>,
    /// One more variant, of settings with commas between them; may be given several times.
    #[arg(long, value_name = "KEY=VALUE,...")]
    variant: Vec<String>,
    /// Which application, of a recording of several.
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// What counts as in time, where the recorded configuration has no target.
    #[arg(long, value_name = "TIME")]
    target: Option<Dur>,
    /// Runs of each variant.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Of the simulations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where whatif.html is written.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let Some(path) = &args.recording else {
        return self_test(args);
    };
    let variants = variants(args)?;
    let recording = recording::open(path)?;
    let recording = recording::of_application(recording, args.application.as_deref())?;
    let mut model = Model::learn(&recording).map_err(usage)?;
    if let Some(target) = args.target {
        model.set_target(target.0);
    }
    let answer = model
        .ask(&variants, args.repetitions, args.seed)
        .map_err(usage)?;
    let service = describe(&model);
    let page = page(&answer, &service)?;
    let name = PathBuf::from("whatif.html");
    write_all(&args.out, &[(name.clone(), page)]).map_err(usage)?;
    print(&if args.json {
        format!("{}\n", json!({ "service": service, "answer": answer }))
    } else {
        text(&answer, &service)
    })?;
    eprintln!("report: {}", args.out.join(name).display());
    Ok(ExitCode::SUCCESS)
}

/// How good forecasts are, on random services whose truth is known.
fn self_test(args: &Args) -> Result<ExitCode, CliError> {
    let count = args.self_test.unwrap_or_default();
    let cases = self_test::run(count, args.repetitions, args.seed).map_err(usage)?;
    print(&if args.json {
        format!("{}\n", json!({ "seed": args.seed, "cases": cases }))
    } else {
        self_test_text(&cases)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A figure with its name.
type Part = (&'static str, fn(&Figures) -> f64);

/// The figures that forecasts are judged by.
const JUDGED: [Part; 5] = [
    ("goodput", |f| f.goodput_per_second),
    ("admitted", |f| f.admitted_per_second),
    ("shed", |f| f.shed),
    ("p95", |f| f.p95_seconds),
    ("p99", |f| f.p99_seconds),
];

fn self_test_text(cases: &[Case]) -> String {
    let mut text = format!(
        "{} random services; median and nine tenths of the error in percent, of shed in points\n\n\
         {:<22}{:>9}",
        cases.len(),
        "offered / capacity",
        "services"
    );
    for (name, _) in JUDGED {
        let _ = write!(text, "{name:>16}");
    }
    text += "\n";
    let mut below = 0.0;
    for level in self_test::LEVELS {
        let name = if level.is_finite() {
            format!("{below} to {level}")
        } else {
            format!("above {below}")
        };
        let within = |case: &&Case| case.load >= below && case.load < level;
        text += &self_test_row(&name, &cases.iter().filter(within));
        below = level;
    }
    text += &self_test_row("all", &cases.iter());
    text += &self_test_row(
        "called trustworthy",
        &cases.iter().filter(|case| case.trusted),
    );
    text += "\nShare of true figures in their intervals, in percent:\n";
    for (name, part) in JUDGED {
        let covered = cases.iter().filter(|case| case.covers(part)).count();
        let share = 100.0 * covered as f64 / cases.len().max(1) as f64;
        let _ = writeln!(text, "{name:<22}{share:>9.0}");
    }
    text += "\nThe largest errors:\n";
    for (name, part) in JUDGED {
        let error = |case: &Case| part(&case.error).abs();
        let known = cases.iter().filter(|case| !error(case).is_nan());
        if let Some(case) = known.max_by(|a, b| error(a).total_cmp(&error(b))) {
            let _ = writeln!(
                text,
                "{name:<10}{:>+8.1}  number {}, {}: {}{}",
                part(&case.error) * 100.0,
                case.number,
                case.variant,
                case.service,
                if case.trusted { "" } else { " (not trusted)" }
            );
        }
    }
    text
}

fn self_test_row<'a>(name: &str, cases: &(impl Iterator<Item = &'a Case> + Clone)) -> String {
    let mut text = format!("{name:<22}{:>9}", cases.clone().count());
    for (_, part) in JUDGED {
        let errors = cases.clone().map(|case| part(&case.error).abs());
        let mut errors: Vec<f64> = errors.filter(|error| !error.is_nan()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (share * errors.len().saturating_sub(1) as f64).round() as usize;
            errors.get(index).map_or(f64::NAN, |error| error * 100.0)
        };
        let _ = write!(text, "{:>8.1} /{:>6.1}", at(0.5), at(0.9));
    }
    text + "\n"
}

fn variants(args: &Args) -> Result<Vec<Variant>, CliError> {
    let mut first = args.set.clone();
    first.extend(args.mode.iter().map(|mode| format!("mode={mode}")));
    let mut variants = Vec::new();
    if !first.is_empty() {
        variants.push(Variant::parse(first.iter().map(String::as_str)).map_err(usage)?);
    }
    for variant in &args.variant {
        variants.push(Variant::parse(variant.split(',')).map_err(usage)?);
    }
    Ok(variants)
}

/// What was learned of the service, in one line.
fn describe(model: &Model) -> String {
    let replicas: Vec<String> = model
        .replicas
        .iter()
        .map(|replica| {
            let mean = replica.works.iter().sum::<f64>() / replica.works.len().max(1) as f64;
            let least = if replica.capacity_seen {
                ""
            } else {
                "at least "
            };
            format!(
                "{least}{} at once, {:.1} ms each",
                replica.workers,
                mean * 1e3
            )
        })
        .collect();
    format!("{} replica(s): {}", replicas.len(), replicas.join("; "))
}

const HEAD: [&str; 9] = [
    "variant",
    "goodput",
    "in target",
    "shed",
    "admitted",
    "p50",
    "p95",
    "p99",
    "revenue/s",
];

fn cells(name: &str, figures: &Figures, around: Option<&Figures>) -> Vec<String> {
    let cell = |part: fn(&Figures) -> f64, factor: f64, unit: &str, digits: usize| {
        let value = part(figures) * factor;
        if value.is_nan() {
            return "-".to_owned();
        }
        match around {
            Some(around) => {
                format!(
                    "{value:.digits$} ± {:.digits$}{unit}",
                    part(around) * factor
                )
            }
            None => format!("{value:.digits$}{unit}"),
        }
    };
    vec![
        name.to_owned(),
        cell(|f| f.goodput_per_second, 1.0, "/s", 1),
        cell(|f| f.in_target, 100.0, " %", 1),
        cell(|f| f.shed, 100.0, " %", 1),
        cell(|f| f.admitted_per_second, 1.0, "/s", 1),
        cell(|f| f.p50_seconds, 1e3, " ms", 0),
        cell(|f| f.p95_seconds, 1e3, " ms", 0),
        cell(|f| f.p99_seconds, 1e3, " ms", 0),
        cell(|f| f.revenue_per_second, 1.0, "", 1),
    ]
}

fn rows(answer: &Answer) -> Vec<Vec<String>> {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.push(cells("what happened", &answer.recorded, None));
    for (index, row) in answer.rows.iter().enumerate() {
        let name = match index {
            0 => format!("self-check: {}", row.name),
            _ => row.name.clone(),
        };
        rows.push(cells(&name, &row.figures, Some(&row.plus_minus)));
    }
    rows
}

fn verdict(answer: &Answer) -> String {
    let distance = &answer.distance;
    let word = if answer.trustworthy {
        "The self-check is near what happened"
    } else {
        "NOT TO BE TRUSTED: the self-check is far from what happened"
    };
    format!(
        "{word}: goodput {:+.1} %, shed {:+.1} points, p95 {:+.1} %, p99 {:+.1} %.",
        distance.goodput_per_second * 100.0,
        distance.shed * 100.0,
        distance.p95_seconds * 100.0,
        distance.p99_seconds * 100.0
    )
}

/// Every row's name, with its figures by class and its refusals by reason.
fn parts(answer: &Answer) -> Vec<(&str, &[ClassFigures], &[ReasonShare])> {
    let recorded = (
        "what happened",
        &answer.recorded_by_class[..],
        &answer.recorded_by_reason[..],
    );
    let rows = answer.rows.iter();
    let rows = rows.map(|row| (&row.name[..], &row.by_class[..], &row.by_reason[..]));
    std::iter::once(recorded).chain(rows).collect()
}

/// The same figures by class, before and after; nothing where there is one class.
fn rows_by_class(answer: &Answer) -> Vec<Vec<String>> {
    let parts = parts(answer);
    if parts.iter().all(|(_, classes, _)| classes.len() < 2) {
        return Vec::new();
    }
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for (index, (name, classes, _)) in parts.iter().enumerate() {
        for class in *classes {
            let around = (index > 0).then_some(&class.plus_minus);
            rows.push(cells(
                &format!("{name}: {}", class.class),
                &class.figures,
                around,
            ));
        }
    }
    rows
}

/// Refusals by reason, before and after, as shares of all requests.
fn reasons(answer: &Answer) -> Vec<String> {
    let shown = |reason: &ReasonShare| {
        if reason.plus_minus > 0.0 {
            format!(
                "{} {:.1} ± {:.1} %",
                reason.reason,
                reason.share * 100.0,
                reason.plus_minus * 100.0
            )
        } else {
            format!("{} {:.1} %", reason.reason, reason.share * 100.0)
        }
    };
    let line = |(name, _, reasons): (&str, &[ClassFigures], &[ReasonShare])| {
        let parts = reasons.iter().filter(|reason| reason.share > 0.0005);
        let parts: Vec<String> = parts.map(shown).collect();
        (!parts.is_empty()).then(|| format!("{name}: refused {}", parts.join(", ")))
    };
    parts(answer).into_iter().filter_map(line).collect()
}

/// What should be known, of all rows and of single ones.
fn notes(answer: &Answer) -> Vec<String> {
    let own = answer.rows.iter().flat_map(|row| {
        let note = |caution: &String| format!("{}: {caution}", row.name);
        row.cautions.iter().map(note)
    });
    answer.cautions.iter().cloned().chain(own).collect()
}

fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(out, "{cell:<0$}", widths[0]),
                _ => write!(out, "  {cell:>0$}", widths[column]),
            };
        }
        out.push('\n');
    }
    out
}

fn text(answer: &Answer, service: &str) -> String {
    let mut out = aligned(&rows(answer));
    let by_class = rows_by_class(answer);
    if !by_class.is_empty() {
        let _ = write!(out, "\n{}", aligned(&by_class));
    }
    let _ = writeln!(out, "\nservice: {service}\n{}", verdict(answer));
    for line in reasons(answer) {
        let _ = writeln!(out, "{line}");
    }
    for note in notes(answer) {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn page(answer: &Answer, service: &str) -> Result<String, CliError> {
    let mut chart = Chart::new("Goodput")
        .x("time (s)")
        .y("answers within the target per second");
    chart = chart.line("what happened", answer.recorded_over_time.clone());
    for row in &answer.rows {
        chart = chart.line(row.name.clone(), row.over_time.clone());
    }
    let figure = svg(&chart).map_err(usage)?;
    let mut paragraphs = vec![verdict(answer), format!("Service: {service}.")];
    paragraphs.extend(reasons(answer));
    paragraphs.extend(notes(answer).iter().map(|note| format!("Note: {note}.")));
    let mut sections = vec![Section {
        title: "Forecasts".to_owned(),
        facts: "Intervals: two standard errors, the self-check's distance, and for variants what \
                forecasts of known services were wrong by."
            .to_owned(),
        paragraphs,
        table: rows(answer),
        figures: vec![figure],
        code: None,
    }];
    let by_class = rows_by_class(answer);
    if !by_class.is_empty() {
        sections.push(Section {
            title: "By class".to_owned(),
            facts: "Intervals: two standard errors.".to_owned(),
            paragraphs: Vec::new(),
            table: by_class,
            figures: Vec::new(),
            code: None,
        });
    }
    let page = Page {
        title: "What if".to_owned(),
        origin: origin(),
        lead: "A recorded time, and what it would have been.".to_owned(),
        sections,
    };
    Ok(page.html())
}
