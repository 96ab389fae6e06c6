//! `tidegate sim`: runs experiments and compares them with the papers.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_sim::experiment::{Experiment, Noticed, Outcome, Verdict, mutate, run_all, unmoved};
use tidegate_sim::papers;
use tidegate_sim::report::{Origin, Report};

use crate::ablate;
use crate::arena;
use crate::check::print;
use crate::error::CliError;
use crate::goldens;
use crate::my_service;
use crate::plane;
use crate::progress::Shown;
use crate::reaction;

/// The word that stands for all papers' experiments.
const PAPERS: &str = "papers";
/// The word that stands for the arena.
const ARENA: &str = "arena";
/// The word that stands for what `auto` decided when it was last recorded.
const GOLDENS: &str = "goldens";
/// The word that stands for the comparison of scalers.
const PLANE: &str = "plane";
/// The word that stands for what each rule and number of `auto` is worth.
const ABLATE: &str = "ablate";
/// The word that stands for the time that contenders take to react to a step.
const REACTION: &str = "reaction";

/// Runs experiments and compares what they find with what the papers have.
///
/// Prints a table and writes a report with figures and data. The exit status is 0 only when
/// nothing differs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A service and its load in a few keys (`--new` writes one), experiment files, `papers` for
    /// the papers' experiments, or `arena` for a race of `auto` against other limiters on many
    /// scenarios, or `plane` for the control plane against other scalers; the last three are built
    /// in. `goldens` compares what `auto` decides with the texts in the repository. `ablate` leaves
    /// out every rule of `auto` in turn and changes every number by a quarter (a build with the
    /// feature `ablation`). `reaction` measures how soon contenders react to a step of the load.
    #[arg(required_unless_present_any = ["new", "keys"],
          value_name = "FILE|papers|arena|plane|reaction|goldens|ablate")]
    what: Vec<String>,
    /// Print a commented file for a service of yours, to be changed and run.
    #[arg(long)]
    pub(crate) new: bool,
    /// Print every key of such a file as a page of Markdown.
    #[arg(long, conflicts_with = "new")]
    pub(crate) keys: bool,
    /// With `arena`: the scenario files of this directory instead of those built in.
    #[arg(long, value_name = "DIR")]
    pub(crate) scenarios: Option<PathBuf>,
    /// With `arena`: this many random services instead of the scenarios built in; `--seed` chooses
    /// which. With `ablate`: beside them.
    #[arg(long, value_name = "N", conflicts_with = "scenarios",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) random: Option<u32>,
    /// With `arena --random`: each service at 0.6 and at 0.85 of its capacity, none of which is
    /// lost; without `--contender` only `auto` with and without the target. The exit status is 0
    /// only when these shed nothing.
    #[arg(long, requires = "random")]
    pub(crate) room: bool,
    /// How requests arrive. With `arena --random`: `any`, an arrival process that is drawn for each
    /// service. With `reaction`: keys of a scenario's `load`, for example `batch = 8`.
    #[arg(long, value_name = "any|KEYS")]
    pub(crate) arrivals: Option<String>,
    /// With `arena` and `reaction`: only this contender; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) contender: Vec<String>,
    /// With `ablate`: only the rules; with `--constants` both, as without either.
    #[arg(long)]
    pub(crate) rules: bool,
    /// With `ablate`: only the numbers, each × 0.8 and × 1.25.
    #[arg(long)]
    pub(crate) constants: bool,
    /// With `ablate`: only changes whose name contains this; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub(crate) change: Vec<String>,
    /// With `ablate`: begin no further change after this time.
    #[arg(long, value_name = "DURATION")]
    pub(crate) budget: Option<tidegate_config::Dur>,
    /// With `ablate`: this many runs at once; as many as there are cores when not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
    /// With `goldens`: rewrite the texts in the repository. Without it the exit status is 0 only
    /// when nothing differs.
    #[arg(long)]
    pub(crate) write: bool,
    /// Where report.html, figures/ and data/ are written.
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub(crate) out: PathBuf,
    /// Print one JSON object per comparison instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Use this seed instead of those in the files.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Repeat each run this often instead of as the files say.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repetitions: Option<u32>,
    /// Run the experiments with each of their faults in turn (a mechanism off, a gain three times
    /// off), and say which comparisons notice. The exit status is 0 only when each fault is
    /// noticed.
    #[arg(long, conflicts_with = "new")]
    pub(crate) mutate: bool,
    /// Only this figure (`002/7`), paper (`002`), scenario of the arena, trace of `plane`, case of
    /// `ablate` or golden; may be given several times.
    #[arg(long, value_name = "PAPER[/FIGURE]|SCENARIO")]
    pub(crate) only: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.new || args.keys {
        return my_service::write_new(args);
    }
    if args.what == [ARENA] {
        return arena::run(args);
    }
    if args.what == [GOLDENS] {
        return goldens::run(args);
    }
    if args.what == [ABLATE] {
        return ablate::run(args);
    }
    if args.what == [REACTION] {
        return reaction::run(args);
    }
    if args.what == [PLANE] {
        return plane::sim::run(args);
    }
    if let [file] = args.what.as_slice()
        && let Some(service) = my_service::read(file)?
    {
        return my_service::run(args, file, &service);
    }
    let experiments = selected(args)?;
    if args.mutate {
        return mutated(args, &experiments);
    }
    let report = Report {
        title: title(args),
        origin: origin(),
        outcomes: simulate(&experiments),
    };
    let page = report
        .write(&args.out)
        .map_err(|error| CliError::Usage(error.to_string()))?;
    print(&if args.json {
        report.json()
    } else {
        report.table()
    })?;
    eprintln!("report: {}", page.display());
    Ok(verdict(&report))
}

/// A line for each fault: the comparisons that notice it.
fn mutated(args: &Args, experiments: &[Experiment]) -> Result<ExitCode, CliError> {
    let progress = Shown::new();
    let faults = mutate(experiments, &progress);
    progress.finish();
    let lines = faults.iter().map(|fault| {
        if args.json {
            format!("{}\n", json_of(fault))
        } else {
            text_of(fault)
        }
    });
    print(&lines.collect::<String>())?;
    let silent = unmoved(experiments, &faults);
    if !silent.is_empty() {
        eprintln!("{} comparisons that no fault makes differ:", silent.len());
    }
    for (experiment, metric) in silent {
        eprintln!("{experiment:12} {metric}");
    }
    let unnoticed = faults.iter().filter(|fault| fault.by.is_empty()).count();
    if unnoticed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{unnoticed} of {} faults go unnoticed", faults.len());
    Ok(ExitCode::FAILURE)
}

fn text_of(fault: &Noticed) -> String {
    let Noticed {
        experiment,
        mutation,
        by,
        of,
    } = fault;
    let head = format!("{experiment:12} {mutation}: {} of {of} notice\n", by.len());
    let by = by.iter().map(|metric| format!("{:15}{metric}\n", ""));
    head + &by.collect::<String>()
}

fn json_of(fault: &Noticed) -> serde_json::Value {
    serde_json::json!({
        "experiment": fault.experiment,
        "mutation": fault.mutation,
        "noticed_by": fault.by,
        "comparisons": fault.of,
    })
}

/// Everything is read and checked before anything runs.
fn selected(args: &Args) -> Result<Vec<Experiment>, CliError> {
    let mut experiments = Vec::new();
    for what in &args.what {
        if what == PAPERS {
            experiments.extend(papers::experiments()?);
        } else {
            experiments.push(read(what)?);
        }
    }
    for only in &args.only {
        if !experiments
            .iter()
            .any(|experiment| matches(experiment, only))
        {
            let known: Vec<String> = experiments.iter().map(Experiment::id).collect();
            let known = known.join(", ");
            return Err(CliError::Usage(format!(
                "--only {only}: no such figure; there are: {known}"
            )));
        }
    }
    if !args.only.is_empty() {
        experiments.retain(|experiment| args.only.iter().any(|only| matches(experiment, only)));
    }
    for experiment in &mut experiments {
        experiment.seed = args.seed.unwrap_or(experiment.seed);
        if let Some(repetitions) = args.repetitions {
            experiment.repetitions = repetitions as usize;
        }
    }
    Ok(experiments)
}

fn read(path: &str) -> Result<Experiment, CliError> {
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        path: path.to_owned(),
        source,
    })?;
    Ok(Experiment::parse(path, &text)?)
}

/// `002` is a whole paper, `002/7` one of its figures.
fn matches(experiment: &Experiment, only: &str) -> bool {
    experiment.id() == only || experiment.paper == only
}

fn simulate(experiments: &[Experiment]) -> Vec<Outcome> {
    let origin = origin();
    eprintln!(
        "tidegate {} (commit {}), {}",
        origin.version,
        origin.commit,
        seeds(experiments)
    );
    let progress = Shown::new();
    let outcomes = run_all(experiments, &progress);
    progress.finish();
    for failure in outcomes.iter().flat_map(|outcome| &outcome.failures) {
        eprintln!("tidegate: {failure}");
    }
    outcomes
}

fn seeds(experiments: &[Experiment]) -> String {
    let seeds: Vec<String> = experiments
        .iter()
        .map(|experiment| format!("{} seed {}", experiment.id(), experiment.seed))
        .collect();
    seeds.join(", ")
}

/// Version and commit of this binary.
pub(crate) fn origin() -> Origin {
    Origin {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("TIDEGATE_COMMIT").to_owned(),
    }
}

fn title(args: &Args) -> String {
    match args.what.as_slice() {
        [only] if only == PAPERS => "The papers, reproduced".to_owned(),
        _ => "Experiments".to_owned(),
    }
}

fn verdict(report: &Report) -> ExitCode {
    match report.count(Verdict::Differs) {
        0 => ExitCode::SUCCESS,
        differing => {
            eprintln!("{differing} of the comparisons differ");
            ExitCode::FAILURE
        }
    }
}
