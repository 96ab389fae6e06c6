//! `tidegate plan`: how many replicas a service needs.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use tidegate_config::{Dur, Rate};
use tidegate_sim::my_service::MyService;
use tidegate_sim::plan::{PlanRow, Question, in_words, plan};
use tidegate_sim::whatif::{Answer, Model, Variant};

use crate::check::print;
use crate::error::CliError;
use crate::recording;

/// Says how many replicas a service needs, by simulation: goodput, latency and headroom.
///
/// From a few numbers (`--rate 200/s --service 25ms --cv 1.5 --workers 8`), or from a recording
/// (`--recording FILE`), whose arrivals and service times are then those of the plan.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests per second.
    #[arg(
        long,
        required_unless_present = "recording",
        conflicts_with = "recording"
    )]
    rate: Option<Rate>,
    /// Mean time a worker needs for a request.
    #[arg(
        long,
        value_name = "TIME",
        required_unless_present = "recording",
        conflicts_with = "recording"
    )]
    service: Option<Dur>,
    /// How much that time varies: standard deviation over mean.
    #[arg(
        long,
        value_name = "CV",
        default_value_t = 1.0,
        conflicts_with = "recording"
    )]
    cv: f64,
    /// Requests a replica works on at full speed at once.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        conflicts_with = "recording"
    )]
    workers: u32,
    /// A recording of the service, in place of the numbers above.
    #[arg(long, value_name = "FILE|DIR")]
    recording: Option<PathBuf>,
    /// Response time within which an answer is worth something; the recorded one if not given.
    #[arg(long, value_name = "TIME")]
    target: Option<Dur>,
    /// Numbers of replicas to look at, such as 2..8; around what the load needs if not given.
    #[arg(long, value_name = "N..M", value_parser = parse_range)]
    replicas: Option<RangeInclusive<u32>>,
    /// Plan for this many times the rate.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    growth: f64,
    /// Also with this many replicas lost.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kill: u32,
    /// Of the simulations.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// More replicas than this are not simulated one by one.
const REPLICAS_MAX: u32 = 200;

fn parse_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let usage = || "write 3, or a range like 2..8".to_owned();
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim_matches('=').parse::<u32>().map_err(|_| usage());
    let (from, to) = (number(from)?, number(to)?);
    if from >= 1 && from <= to && to <= REPLICAS_MAX {
        Ok(from..=to)
    } else {
        Err(format!("{}; from 1 to {REPLICAS_MAX}", usage()))
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if !(args.growth > 0.0 && args.growth <= 100.0) {
        return Err(CliError::Usage(
            "--growth is a factor above 0, at most 100".to_owned(),
        ));
    }
    match &args.recording {
        Some(path) => from_recording(args, path),
        None => from_numbers(args),
    }
}

fn from_numbers(args: &Args) -> Result<ExitCode, CliError> {
    let usual = MyService::default();
    let service = MyService {
        rate: args.rate.unwrap_or(usual.rate),
        service: args.service.unwrap_or(usual.service),
        service_cv: args.cv,
        workers: args.workers,
        target: args.target.unwrap_or(usual.target),
        ..usual
    };
    // Checked before anything is divided by it.
    let checked = service.scenario("auto");
    checked.map_err(|error| CliError::Usage(error.to_string()))?;
    let needed =
        service.rate.0 * args.growth * service.service.as_secs_f64() / f64::from(service.workers);
    let middle = needed.ceil().max(1.0) as u32;
    let range = args.replicas.clone();
    let range = range.unwrap_or_else(|| middle.saturating_sub(1).max(1)..=middle + 2 + args.kill);
    if *range.end() > REPLICAS_MAX {
        return Err(CliError::Usage(format!(
            "about {middle} replicas are needed, more than the {REPLICAS_MAX} that are simulated; \
             plan for a part of the load"
        )));
    }
    let question = Question {
        service,
        replicas: range.collect(),
        growth: args.growth,
        kill: args.kill,
        seed: args.seed,
    };
    let rows = plan(&question).map_err(|error| CliError::Usage(error.to_string()))?;
    let words = in_words(&question, &rows);
    print(&if args.json {
        format!("{}\n", json!({ "rows": rows, "words": words }))
    } else {
        format!("{}\n{words}\n", table(&rows))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[PlanRow]) -> String {
    let mut out = String::from(
        "replicas   load  goodput  in target   shed       p95   kept up to  headroom  after a loss\n",
    );
    for row in rows {
        let after = row.in_target_after_kill;
        let after = after.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:>8} {:>5.0}% {:>6.0}/s {:>8.1} % {:>5.1}% {:>6.0} ms {:>9.0}/s {:>+8.0}% {after:>13}",
            row.replicas,
            row.load * 100.0,
            row.goodput_per_second,
            row.in_target * 100.0,
            row.shed * 100.0,
            row.p95_seconds * 1e3,
            row.kept_per_second,
            row.headroom * 100.0,
        );
    }
    out
}

/// The recorded traffic, times the growth, against other numbers of replicas.
fn from_recording(args: &Args, path: &std::path::Path) -> Result<ExitCode, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let mut model = Model::learn(&recording::open(path)?).map_err(|error| usage(&error))?;
    if let Some(target) = args.target {
        model.set_target(target.0);
    }
    let now = model.replicas.len() as u32;
    let range = args
        .replicas
        .clone()
        .unwrap_or(now.saturating_sub(1).max(1)..=now + 2);
    let mut variants = Vec::new();
    for count in range.clone() {
        let left = count.saturating_sub(args.kill).max(1);
        let settings = |replicas: u32| {
            let mut settings = vec![
                format!("replicas={replicas}"),
                format!("rate={}", args.growth),
            ];
            settings.extend(args.target.map(|target| format!("target={target}")));
            settings
        };
        for replicas in [count, left] {
            let settings = settings(replicas);
            let variant = Variant::parse(settings.iter().map(String::as_str));
            variants.push(variant.map_err(|error| usage(&error))?);
        }
    }
    let answer = model
        .ask(&variants, 3, args.seed)
        .map_err(|error| usage(&error))?;
    let counts: Vec<u32> = range.collect();
    print(&if args.json {
        format!("{}\n", json!(answer))
    } else {
        recorded_table(args, &answer, &counts, now)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn recorded_table(args: &Args, answer: &Answer, counts: &[u32], now: u32) -> String {
    let mut out = String::from("replicas  goodput  in target   shed       p95  after a loss\n");
    let pairs = answer.rows[1..].chunks(2).zip(counts);
    for (pair, count) in pairs.clone() {
        let figures = pair[0].figures;
        let after = match args.kill {
            0 => "-".to_owned(),
            kill if kill >= *count => "0.0 %".to_owned(),
            _ => format!("{:.1} %", pair[1].figures.in_target * 100.0),
        };
        let _ = writeln!(
            out,
            "{count:>8} {:>6.0}/s {:>8.1} % {:>5.1}% {:>6.0} ms {after:>13}",
            figures.goodput_per_second,
            figures.in_target * 100.0,
            figures.shed * 100.0,
            figures.p95_seconds * 1e3,
        );
    }
    let offered = answer.recorded.offered_per_second * args.growth;
    let enough = pairs
        .filter(|(pair, _)| pair[0].figures.in_target >= 0.99)
        .map(|(_, count)| *count)
        .next();
    let _ = match enough {
        Some(count) => writeln!(
            out,
            "\n{} 99 % of {offered:.0}/s within the target; there were {now}.",
            if count == 1 {
                "1 replica answers".to_owned()
            } else {
                format!("{count} replicas answer")
            }
        ),
        None => writeln!(
            out,
            "\nNone of these numbers of replicas answers 99 % of {offered:.0}/s within the target."
        ),
    };
    if !answer.trustworthy {
        let _ = writeln!(
            out,
            "Not to be trusted: the recorded configuration, replayed, is too far from what \
             happened; see `tidegate whatif`."
        );
    }
    for caution in &answer.cautions {
        let _ = writeln!(out, "note: {caution}");
    }
    out
}
