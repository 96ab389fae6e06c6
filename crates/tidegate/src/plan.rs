//! `tidegate plan`: how many replicas a service needs.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_config::{Dur, Rate, Share};
use tidegate_sim::my_service::{ClassOfService, MyService};
use tidegate_sim::plan::{
    Asked, PlanRow, Question, RecordedQuestion, in_words, plan, plan_recorded,
};
use tidegate_sim::whatif::Model;

use crate::admin_client::{Admin, application};
use crate::check::print;
use crate::error::CliError;
use crate::recording;
use crate::runtime;

/// Says how many replicas a service needs, by simulation: goodput, latency, revenue and headroom.
///
/// From a few numbers (`--rate 200/s --service 25ms --cv 1.5 --workers 8`), from a recording
/// (`--recording FILE`), whose arrivals and service times are then those of the plan, or from what
/// a running proxy has measured (`--admin URL`).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests per second.
    #[arg(
        long,
        required_unless_present_any = ["recording", "admin"],
        conflicts_with = "recording"
    )]
    rate: Option<Rate>,
    /// Mean time a worker needs for a request.
    #[arg(
        long,
        value_name = "TIME",
        required_unless_present_any = ["recording", "admin"],
        conflicts_with = "recording"
    )]
    service: Option<Dur>,
    /// How much that time varies: standard deviation over mean [default: 1].
    #[arg(long, value_name = "CV", conflicts_with = "recording")]
    cv: Option<f64>,
    /// Requests a replica works on at full speed at once [default: 4].
    #[arg(long, value_name = "N", conflicts_with = "recording")]
    workers: Option<u32>,
    /// A class, the most important first: its part of the requests, and what an answer is worth.
    #[arg(
        long,
        value_name = "NAME=SHARE[:REVENUE]",
        value_parser = parse_class,
        conflicts_with = "recording"
    )]
    class: Vec<ClassOfService>,
    /// A recording of the service, in place of the numbers above.
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "admin")]
    recording: Option<PathBuf>,
    /// The admin listener of a proxy, for numbers that are not given: rate, times, classes and
    /// replicas are those of its last minute.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The admin listener's token, where it has one.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TIDEGATE_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// Which application, of several in a recording or behind a proxy.
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
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

fn parse_class(text: &str) -> Result<ClassOfService, String> {
    let usage = || "write gold=20%, or gold=20%:5 with what an answer is worth".to_owned();
    let (name, rest) = text.split_once('=').ok_or_else(usage)?;
    let (share, revenue) = rest.split_once(':').unwrap_or((rest, "1"));
    let share: Share = share.parse().map_err(|_| usage())?;
    let revenue: f64 = revenue.parse().map_err(|_| usage())?;
    if revenue >= 0.0 && !name.is_empty() {
        Ok(ClassOfService {
            name: name.to_owned(),
            share,
            revenue,
        })
    } else {
        Err(usage())
    }
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if !(args.growth > 0.0 && args.growth <= 100.0) {
        return Err(usage("--growth is a factor above 0, at most 100"));
    }
    if args.application.is_some() && args.recording.is_none() && args.admin.is_none() {
        return Err(usage(
            "--application is of a recording or of a proxy: add --recording or --admin",
        ));
    }
    match (&args.recording, &args.admin) {
        (Some(path), _) => from_recording(args, path),
        (None, Some(admin)) => {
            let admin = Admin::at(admin, args.token.as_deref());
            let status = runtime::current_thread()?.block_on(admin.get("/api/status"))?;
            let measured = Measured::of(&status, args)?;
            from_numbers(args, measured.service, &measured.notes)
        }
        (None, None) => {
            let usual = MyService::default();
            let service = MyService {
                rate: args.rate.unwrap_or(usual.rate),
                service: args.service.unwrap_or(usual.service),
                service_cv: args.cv.unwrap_or(usual.service_cv),
                workers: args.workers.unwrap_or(usual.workers),
                target: args.target.unwrap_or(usual.target),
                class: args.class.clone(),
                ..usual
            };
            from_numbers(args, service, &[])
        }
    }
}

/// What a proxy knows of its service.
struct Measured {
    service: MyService,
    notes: Vec<String>,
}

impl Measured {
    /// From its status; what was given as a flag holds in place of what was measured.
    fn of(status: &Value, args: &Args) -> Result<Self, CliError> {
        let application = application(status, args.application.as_deref())?;
        let moments = &application["moments"];
        let number = |value: &Value| value.as_f64().filter(|it| *it > 0.0);
        let offered = number(&application["recent"]["offered_per_second"]);
        let by_gaps = number(&moments["gaps"]["mean"]).map(|gap| 1.0 / gap);
        let rate = args.rate.or_else(|| offered.or(by_gaps).map(Rate));
        let mean = number(&moments["service"]["mean"]);
        let count = moments["service"]["count"].as_f64().unwrap_or(0.0);
        let few = args.service.is_none() && (mean.is_none() || count < SERVED_MIN);
        let (Some(rate), false) = (rate, few) else {
            return Err(usage(format!(
                "this proxy served {count:.0} requests in the last minute or so, and a plan needs \
                 {SERVED_MIN} to know their times: ask again under traffic, or give --rate and \
                 --service"
            )));
        };
        let mean = args
            .service
            .map_or(mean.unwrap_or(0.0), |it| it.as_secs_f64());
        let square = number(&moments["service"]["square"]);
        let measured_cv = square.map(|square| (square / (mean * mean) - 1.0).max(0.0).sqrt());
        let replicas = application["replicas"].as_array();
        let up = replicas.map_or(0, |all| all.iter().filter(|it| it["up"] == true).count());
        let up = u32::try_from(up).unwrap_or(u32::MAX).max(1);
        let capacity = number(&application["capacity_per_second"]);
        let mut notes = Vec::new();
        // By Little's law: requests that are worked on at once when all is full.
        let by_capacity = capacity.map(|all| (all * mean / f64::from(up)).round().max(1.0) as u32);
        let Some(workers) = args.workers.or(by_capacity) else {
            return Err(usage(
                "this proxy has not seen its replicas full, so that it does not know how many \
                 requests one works on at once: say it by --workers N",
            ));
        };
        if args.workers.is_none() {
            notes.push(
                "the workers are computed from the measured capacity: say what you know by \
                 --workers N"
                    .to_owned(),
            );
        }
        let classes = application["classes"].as_object();
        let mut classes: Vec<(&String, &Value)> = classes.into_iter().flatten().collect();
        classes.sort_by_key(|(_, class)| class["rank"].as_u64());
        let target = classes
            .first()
            .and_then(|(_, it)| number(&it["target_seconds"]));
        let usual = MyService::default();
        let target = args
            .target
            .or_else(|| Some(dur(target?)))
            .unwrap_or_else(|| {
                notes.push(format!(
                    "the proxy has no target yet: {} is taken; give another by --target",
                    usual.target
                ));
                usual.target
            });
        let service = MyService {
            rate,
            service: dur(mean),
            service_cv: args.cv.or(measured_cv).unwrap_or(1.0).min(20.0),
            workers,
            replicas: up,
            target,
            class: if args.class.is_empty() {
                measured_classes(&classes)
            } else {
                args.class.clone()
            },
            ..usual
        };
        notes.insert(
            0,
            format!(
                "{}: {:.1}/s arrive, {:.1} ms each (cv {:.1}), {up} replica(s) with {workers} at \
                 once each",
                args.admin.as_deref().unwrap_or_default(),
                service.rate.0,
                mean * 1e3,
                service.service_cv
            ),
        );
        Ok(Self { service, notes })
    }
}

/// Requests served in the last minute for their times to be known.
const SERVED_MIN: f64 = 50.0;

fn dur(seconds: f64) -> Dur {
    Duration::from_secs_f64(seconds).into()
}

/// Classes with their parts of what arrives; none where there is one, or nothing arrives.
fn measured_classes(classes: &[(&String, &Value)]) -> Vec<ClassOfService> {
    let arrived = |class: &Value| {
        class["recent"]["offered_per_second"]
            .as_f64()
            .unwrap_or(0.0)
    };
    let sum: f64 = classes.iter().map(|(_, class)| arrived(class)).sum();
    if classes.len() < 2 || sum <= 0.0 {
        return Vec::new();
    }
    let class = |(name, class): &(&String, &Value)| ClassOfService {
        name: (*name).clone(),
        share: Share(arrived(class) / sum),
        revenue: class["revenue"].as_f64().unwrap_or(1.0),
    };
    classes.iter().map(class).collect()
}

fn from_numbers(args: &Args, service: MyService, notes: &[String]) -> Result<ExitCode, CliError> {
    // Checked before anything is divided by it.
    service.scenario("auto").map_err(usage)?;
    let needed =
        service.rate.0 * args.growth * service.service.as_secs_f64() / f64::from(service.workers);
    let middle = needed.ceil().max(1.0) as u32;
    let range = args.replicas.clone();
    let range = range.unwrap_or_else(|| middle.saturating_sub(1).max(1)..=middle + 2 + args.kill);
    if *range.end() > REPLICAS_MAX {
        return Err(usage(format!(
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
    let rows = plan(&question).map_err(usage)?;
    show(args, &rows, &in_words(&question.asked(), &rows), notes)
}

fn show(
    args: &Args,
    rows: &[PlanRow],
    words: &str,
    notes: &[String],
) -> Result<ExitCode, CliError> {
    print(&if args.json {
        format!(
            "{}\n",
            json!({ "rows": rows, "words": words, "notes": notes })
        )
    } else {
        let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
        format!("{}\n{words}\n{notes}", table(rows))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[PlanRow]) -> String {
    let mut out = String::from(
        "replicas   load  goodput  in target   shed       p95  revenue/s   kept up to  headroom  \
         after a loss\n",
    );
    for row in rows {
        let after = row.in_target_after_kill;
        let after = after.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:>8} {:>5.0}% {:>6.0}/s {:>8.1} % {:>5.1}% {:>6.0} ms {:>10.1} {:>10.0}/s {:>+8.0}% \
             {after:>13}",
            row.replicas,
            row.load * 100.0,
            row.goodput_per_second,
            row.in_target * 100.0,
            row.shed * 100.0,
            row.p95_seconds * 1e3,
            row.revenue_per_second,
            row.kept_per_second,
            row.headroom * 100.0,
        );
    }
    out
}

/// The recorded traffic, times the growth, against other numbers of replicas.
fn from_recording(args: &Args, path: &std::path::Path) -> Result<ExitCode, CliError> {
    let recording = recording::open(path)?;
    let recording = recording::of_application(recording, args.application.as_deref())?;
    let mut model = Model::learn(&recording).map_err(usage)?;
    if let Some(target) = args.target {
        model.set_target(target.0);
    }
    let mut notes = Vec::new();
    let mut settings: Vec<String> = Vec::new();
    match (model.config.is_some(), args.target) {
        (true, Some(target)) => settings.push(format!("target={target}")),
        (true, None) => {}
        (false, Some(target)) => {
            settings = vec!["mode=auto".to_owned(), format!("target={target}")];
            notes.push(
                "nothing protected the service in this recording: the plan is with mode auto"
                    .to_owned(),
            );
        }
        (false, None) => notes.push(
            "nothing protected the service in this recording, nor in the plan; with --target it \
             is protected by mode auto"
                .to_owned(),
        ),
    }
    let now = u32::try_from(model.pool_size()).unwrap_or(u32::MAX);
    let range = args
        .replicas
        .clone()
        .unwrap_or(now.saturating_sub(1).max(1)..=now + 2);
    let question = RecordedQuestion {
        replicas: range.collect(),
        growth: args.growth,
        kill: args.kill,
        settings,
        seed: args.seed,
    };
    // The self-check, whose distance says what the rest is worth.
    let answer = model.ask(&[], 3, args.seed).map_err(usage)?;
    let rows = plan_recorded(&model, &question).map_err(usage)?;
    let asked = Asked {
        rate_per_second: answer.recorded.offered_per_second * args.growth,
        target: model.one_target(),
        kill: args.kill,
    };
    let mut words = in_words(&asked, &rows);
    let _ = write!(words, " There were {now}.");
    if !answer.trustworthy {
        notes.push(
            "NOT TO BE TRUSTED: the recorded configuration, replayed, is too far from what \
             happened; see `tidegate whatif`"
                .to_owned(),
        );
    }
    notes.extend(answer.cautions);
    show(args, &rows, &words, &notes)
}
