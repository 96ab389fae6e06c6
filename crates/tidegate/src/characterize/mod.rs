//! `tidegate characterize`: finds the operating point, the target and the regulator of a service.

mod light;
mod live;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde_json::{Value, json};
use tidegate_config::{Dur, Rate, Share};
use tidegate_lab::load::RequestSpec;
use tidegate_sim::characterize::{
    Characterization, CharacterizeError, Plant, Settings, SimPlant, Survey, page, regulate, survey,
};
use tidegate_sim::my_service::MyService;
use tidegate_sim::report::write_all;
use tidegate_sim::scenario::Scenario;

use crate::check::print;
use crate::error::CliError;
use crate::my_service;
use crate::progress::Shown;
use crate::sim::origin;
use light::Inherent;
use live::{Bounds, LivePlant};

/// Finds the operating point, the target and the regulator of a service.
///
/// Sweeps the load, proposes a target for mode `auto` and an operating point, excites the service,
/// fits a model and computes the gain of mode `lqr`. Prints what it found and the configuration to
/// paste, and writes a report. A live service is loaded to its limit and for seconds beyond it:
/// choose one without users, and point it at the service itself, not at a proxy before it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The service, as http://127.0.0.1:3000/path.
    #[arg(
        value_name = "URL",
        required_unless_present = "sim",
        conflicts_with = "sim"
    )]
    target: Option<Uri>,
    /// A file of a service, as `tidegate sim --new` writes it, or a scenario; its load and its
    /// protection are replaced by the characterization's own.
    #[arg(long, value_name = "FILE")]
    sim: Option<PathBuf>,
    #[command(flatten)]
    live: LiveArgs,
    /// Where characterization.html is written.
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Root of all randomness.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Time between two measurements [default: 5s; of a live service 1s].
    #[arg(long, value_name = "TIME")]
    measurement_interval: Option<Dur>,
    /// Time between two steps of the controller [default: 10s; of a live service 2s].
    #[arg(long, value_name = "TIME")]
    tuning_interval: Option<Dur>,
    /// Where the operating point lies between maximum power (0) and peak goodput (1).
    #[arg(long, value_name = "SHARE", default_value_t = Settings::default().balance)]
    balance: f64,
    /// Relative costs of response time, goodput and admission rate.
    #[arg(long, value_name = "R:G:U", default_value = "7:1:1", value_parser = costs)]
    costs: Costs,
    /// Leave out the excitation and the regulator of mode lqr.
    #[arg(long)]
    target_only: bool,
}

/// What a live service may be put to.
#[derive(Debug, clap::Args)]
struct LiveArgs {
    /// Yes, this service may be loaded to its limit and beyond.
    #[arg(long, conflicts_with = "sim")]
    confirm_load: bool,
    /// The load to begin with.
    #[arg(long, value_name = "RATE", default_value = "5/s")]
    from: Rate,
    /// The search for the capacity sends no more than this.
    #[arg(long, value_name = "RATE", default_value = "1000/s")]
    max_rate: Rate,
    /// How long each load is measured.
    #[arg(long, value_name = "TIME", default_value = "8s")]
    level: Dur,
    /// How many loads are measured after the search for the capacity.
    #[arg(long, value_name = "N", default_value_t = 10)]
    points: usize,
    /// How long the service is excited, for the model behind mode lqr.
    #[arg(long, value_name = "TIME", default_value = "3m")]
    excitation: Dur,
    /// Everything ends when this share of the requests of a load fails.
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    stop_errors: Share,
    /// A load ends when the mean response time of a second is longer.
    #[arg(long, value_name = "TIME", default_value = "3s")]
    stop_latency: Dur,
    /// The whole takes no longer.
    #[arg(long, value_name = "TIME", default_value = "20m")]
    max_duration: Dur,
    /// A client leaves when its answer is not complete by then.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: Dur,
    /// A header for every request, like 'accept: text/html'; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = crate::load::parse_header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Determine the weight of I/O for mode sentry too, where a nucleus reports CPU and I/O times.
    #[arg(long, conflicts_with = "sim")]
    sentry: bool,
}

type Costs = [f64; 3];

fn costs(text: &str) -> Result<Costs, String> {
    let numbers: Result<Vec<f64>, _> = text.split(':').map(str::parse).collect();
    let numbers = numbers
        .ok()
        .filter(|numbers| numbers.iter().all(|number| *number > 0.0));
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| "write three numbers above zero, like 7:1:1".to_owned())
}

/// Everything that was found.
struct Found {
    survey: Survey,
    /// The regulator, or why there is none.
    regulated: Option<Result<Characterization, CharacterizeError>>,
    inherent: Option<Inherent>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let settings = args.settings()?;
    let subject = args.subject();
    let origin = origin();
    eprintln!(
        "tidegate {} (commit {}), seed {}",
        origin.version, origin.commit, args.seed
    );
    let found = match (&args.sim, &args.target) {
        (Some(file), _) => {
            let mut plant = SimPlant::new(read(file)?, args.seed);
            args.characterize(&mut plant, &settings)?
        }
        (None, Some(target)) => args.live(target, &settings)?,
        (None, None) => return Err(CliError::Usage("name a URL, or --sim FILE".to_owned())),
    };
    if let Some(Ok(regulated)) = &found.regulated {
        let page = page(regulated, &subject, origin);
        let html = page.map_err(|error| usage(&subject, error))?.html();
        let name = PathBuf::from("characterization.html");
        write_all(&args.out, &[(name.clone(), html)])
            .map_err(|error| CliError::Usage(error.to_string()))?;
        eprintln!("report: {}", args.out.join(name).display());
    }
    print(&if args.json {
        found.json_line()
    } else {
        found.text()
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// What is characterized, in words.
    fn subject(&self) -> String {
        let file = self.sim.as_ref().map(|file| file.display().to_string());
        let target = self.target.as_ref().map(ToString::to_string);
        file.or(target).unwrap_or_default()
    }

    /// Drives the live service, when that was confirmed.
    fn live(&self, target: &Uri, settings: &Settings) -> Result<Found, CliError> {
        let live = &self.live;
        if !live.confirm_load {
            return Err(CliError::Usage(format!(
                "this loads {target} to its limit and beyond, for up to {}: users of the service \
                 would notice; add --confirm-load if that is all right",
                live.max_duration
            )));
        }
        let headers: HeaderMap = live.headers.iter().cloned().collect();
        // Before the load: it needs a service at rest.
        let inherent = if live.sentry {
            Some(light::measure(target, &headers, live.timeout.0)?)
        } else {
            None
        };
        let request = RequestSpec {
            headers,
            ..RequestSpec::default()
        };
        let bounds = Bounds {
            errors: live.stop_errors.0,
            latency: live.stop_latency.0,
            duration: live.max_duration.0,
            timeout: live.timeout.0,
        };
        crate::runtime::raise_file_limit();
        let mut plant = LivePlant::new(target.clone(), request, bounds, self.seed)?;
        let found = self.characterize(&mut plant, settings)?;
        Ok(Found { inherent, ..found })
    }

    fn characterize(&self, plant: &mut dyn Plant, settings: &Settings) -> Result<Found, CliError> {
        let subject = self.subject();
        let progress = Shown::new();
        let found = survey(plant, settings, &progress);
        progress.finish();
        let survey = found.map_err(|error| usage(&subject, error))?;
        let regulated = if self.target_only {
            None
        } else {
            Some(regulate(plant, settings, survey.clone()))
        };
        match regulated {
            // The simulator has no reason to fail here; a live service may be too noisy, and what
            // was found before stays of use.
            Some(Err(error)) if self.sim.is_some() => Err(usage(&subject, error)),
            regulated => Ok(Found {
                survey,
                regulated,
                inherent: None,
            }),
        }
    }

    fn settings(&self) -> Result<Settings, CliError> {
        let refuse = |message: &str| Err(CliError::Usage(message.to_owned()));
        if !(0.0..=1.0).contains(&self.balance) {
            return refuse("--balance: write a number from 0 (maximum power) to 1 (peak goodput)");
        }
        let live = self.sim.is_none();
        let or = |given: Option<Dur>, simulated: u64, real: u64| {
            let default = Duration::from_secs(if live { real } else { simulated });
            given.map_or(default, |given| given.0)
        };
        let measurement = or(self.measurement_interval, 5, 1);
        let tuning = or(self.tuning_interval, 10, 2);
        let whole = !measurement.is_zero() && tuning.as_nanos() % measurement.as_nanos() == 0;
        if !whole || tuning.is_zero() {
            return refuse("--tuning-interval: write a whole multiple of --measurement-interval");
        }
        let settings = Settings {
            measurement_interval: measurement,
            tuning_interval: tuning,
            balance: self.balance,
            costs: self.costs,
            ..Settings::default()
        };
        if live {
            self.live_settings(&settings)
        } else {
            Ok(settings)
        }
    }

    fn live_settings(&self, settings: &Settings) -> Result<Settings, CliError> {
        let refuse = |message: &str| Err(CliError::Usage(message.to_owned()));
        let live = &self.live;
        let (measurement, tuning) = (settings.measurement_interval, settings.tuning_interval);
        if measurement.subsec_nanos() != 0 {
            return refuse("--measurement-interval: write whole seconds for a live service");
        }
        if !(live.from.0 > 0.0 && live.from.0 <= live.max_rate.0) {
            return refuse("--from: write a rate above 0/s, and not above --max-rate");
        }
        if live.points < 3 {
            return refuse("--points: three loads are the least that shows a curve");
        }
        let steps = |time: Dur| time.as_secs_f64() / tuning.as_secs_f64();
        if steps(live.level) < 1.0 {
            return refuse("--level: make it at least as long as --tuning-interval");
        }
        let excitation = steps(live.excitation) as u32;
        if excitation < 20 && !self.target_only {
            return refuse(
                "--excitation: at least 20 steps of --tuning-interval make a model; give more \
                 time, or --target-only",
            );
        }
        Ok(Settings {
            first_load_per_s: live.from.0,
            last_load_per_s: live.max_rate.0,
            sweep_points: live.points,
            sweep_steps: steps(live.level).ceil() as u32,
            settle_steps: 1,
            cycle_steps: (excitation / 2).max(1),
            cycles: 2,
            ..settings.clone()
        })
    }
}

fn read(path: &Path) -> Result<Scenario, CliError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| CliError::File {
        path: name.clone(),
        source,
    })?;
    let parsed: Result<Scenario, _> = tidegate_config::parse(&name, &text);
    let scenario = match (parsed, my_service::is_service(&text)) {
        (Ok(scenario), _) => scenario,
        (Err(_), true) => {
            let service: MyService = tidegate_config::parse(&name, &text)?;
            service
                .scenario("none")
                .map_err(|error| usage(&name, error))?
        }
        (Err(error), false) => return Err(error.into()),
    };
    scenario.check().map_err(|error| usage(&name, error))?;
    Ok(scenario)
}

fn usage(subject: &str, error: impl std::fmt::Display) -> CliError {
    CliError::Usage(format!("{subject}: {error}"))
}

impl Found {
    fn text(&self) -> String {
        let mut facts = match &self.regulated {
            Some(Ok(found)) => found.facts(),
            _ => self.survey.facts(),
        };
        facts.extend(self.inherent.iter().flat_map(Inherent::facts));
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text: String = facts
            .iter()
            .map(|(name, value)| format!("{name:width$}  {value}\n"))
            .collect();
        text += &format!("\n# Mode auto\n{}", self.survey.snippet());
        match &self.regulated {
            Some(Ok(found)) => text += &format!("\n# Or mode lqr\n{}", found.snippet()),
            Some(Err(error)) => text += &format!("\nno regulator for mode lqr: {error}\n"),
            None => {}
        }
        if let Some(inherent) = &self.inherent {
            text += &format!("\n# Or mode sentry\n{}", inherent.snippet());
        }
        text
    }

    fn json_line(&self) -> String {
        let Survey {
            sweep,
            operating_point: point,
        } = &self.survey;
        let mut value = json!({
            "peak_goodput_per_s": sweep.peak_goodput_per_s,
            "max_power_load_per_s": sweep.max_power_load_per_s,
            "light_response_s": sweep.lightest_response_s,
            "target_s": sweep.recommended_target_s(),
            "operating_point": {
                "rate_per_s": point.rate_per_s,
                "goodput_per_s": point.goodput_per_s,
                "response_s": point.response_s,
            },
            "loads": sweep.points.iter().map(|point| json!({
                "offered_per_s": point.offered_per_s,
                "goodput_per_s": point.goodput_per_s,
                "response_s": point.response_s,
                "response_p99_s": point.response_p99_s,
            })).collect::<Vec<_>>(),
            "auto": self.survey.snippet(),
        });
        match &self.regulated {
            Some(Ok(found)) => add(&mut value, regulator(found)),
            Some(Err(error)) => value["no_regulator"] = error.to_string().into(),
            None => {}
        }
        if let Some(inherent) = &self.inherent {
            value["sentry"] = json!({
                "io_weight": inherent.io_weight,
                "service_s": inherent.service_s,
                "r_squared": inherent.r_squared,
                "reports": inherent.reports,
                "protect": inherent.snippet(),
            });
        }
        format!("{value}\n")
    }
}

fn add(to: &mut Value, more: Value) {
    if let (Value::Object(to), Value::Object(more)) = (to, more) {
        to.extend(more);
    }
}

/// The model and the regulator for mode `lqr`.
fn regulator(found: &Characterization) -> Value {
    let fit = &found.regulator.fit;
    json!({
        "a": [fit.a[(0, 0)], fit.a[(1, 1)]],
        "b": [fit.b[(0, 0)], fit.b[(1, 0)]],
        "r_squared": [fit.states[0].r_squared, fit.states[1].r_squared],
        "weights": found.regulator.weights,
        "gain": [found.regulator.gain],
        "protect": found.snippet(),
    })
}

impl Inherent {
    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "weight of I/O (alpha)",
                format!("{:.3} from {} reports", self.io_weight, self.reports),
            ),
            (
                "its share of variance explained",
                format!("{:.3}", self.r_squared),
            ),
            (
                "service time of a single request",
                format!("{:.4} s", self.service_s),
            ),
        ]
    }

    fn snippet(&self) -> String {
        let service = Dur(Duration::from_micros((self.service_s * 1e6) as u64));
        format!(
            "[protect]\nmode = \"sentry\"\n\n[protect.sentry]\nio_weight = {:.3}\n\
             service_time = \"{service}\"\n",
            self.io_weight
        )
    }
}
