//! `tidegate load`: sends requests at a rate, whatever the server does.

mod progress;
mod recorded;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde::Serialize;
use tidegate_config::{Dur, Rate};
use tidegate_lab::load::{self, LoadConfig, LoadFile, LoadReport, Protocol, RequestSpec, Retry};
use tidegate_proxy::config::{Http2, UpstreamTls};
use tidegate_sim::workload::{Pattern, RateFunction, Spacing};

use crate::check::print;
use crate::error::CliError;
use crate::runtime;
use progress::Progress;

/// Sends requests at a rate, whatever the server does, and reports how they ended.
///
/// Latency counts from the time a request was due. Requests for which no connection is free are
/// not sent late but counted as unsent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to send; several are taken in turns.
    #[arg(required = true, value_name = "URL")]
    targets: Vec<Uri>,
    /// Requests per second, like 200/s.
    #[arg(
        long,
        required_unless_present_any = ["schedule", "recording"],
        conflicts_with_all = ["schedule", "recording"]
    )]
    rate: Option<Rate>,
    /// For how long requests are sent; of a recording, the part from its beginning.
    #[arg(
        long,
        value_name = "TIME",
        required_unless_present_any = ["schedule", "recording"]
    )]
    duration: Option<Dur>,
    #[command(flatten)]
    recorded: recorded::RecordedArgs,
    /// Requests of this first part are sent but left out of the totals.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    warm_up: Dur,
    /// A TOML file with `rate` (steps, ramps, shapes), `duration` and `[[request]]` kinds.
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Independent arrivals (the default).
    #[arg(long, conflicts_with = "constant")]
    poisson: bool,
    /// Equal gaps between arrivals.
    #[arg(long)]
    constant: bool,
    /// A client leaves when its answer is not complete by then.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: Dur,
    /// What counts as in time.
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    target_time: Dur,
    #[command(flatten)]
    retries: RetryArgs,
    /// HTTP/2 instead of HTTP/1.1: with prior knowledge, or agreed by ALPN where the URL is https.
    #[arg(long)]
    http2: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// At most this many connections per target; 1000 for HTTP/1.1, 4 for HTTP/2.
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// At most this many requests at a time per HTTP/2 connection.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "http2")]
    streams: usize,
    #[command(flatten)]
    request: RequestArgs,
    /// Decides arrivals, choices and jitter.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// Write one row per second to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct TlsArgs {
    /// PEM file with the authorities to trust for https, instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any certificate: for machines under test, whose name nobody vouches for.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
}

#[derive(Debug, clap::Args)]
struct RetryArgs {
    /// How often clients come back after a refusal, an error or a timeout.
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Wait before the first retry, doubled before each further one.
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    retry_backoff: Dur,
    /// The longest such wait.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    retry_backoff_max: Dur,
    /// Wait as long as `retry-after` asks, where that is longer.
    #[arg(long)]
    obey_retry_after: bool,
}

#[derive(Debug, clap::Args)]
struct RequestArgs {
    /// The method of the requests.
    #[arg(long, default_value = "GET")]
    method: Method,
    /// A header for every request, like 'accept: text/html'; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The body of the requests.
    #[arg(long, default_value = "")]
    body: String,
    /// A header whose value differs by class, with weights: 'x-plan: gold=1, bronze=9'.
    #[arg(long, value_name = "NAME: VALUE=WEIGHT, ...", value_parser = parse_classes)]
    class_header: Option<Classes>,
}

/// A header and how often it has which value.
#[derive(Debug, Clone)]
struct Classes {
    name: HeaderName,
    values: Vec<(HeaderValue, f64)>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let config = args.config()?;
    if let Some(path) = &args.csv {
        // Before the load, not after it.
        File::create(path).map_err(|source| file_error(path, source))?;
    }
    runtime::raise_file_limit();
    let mut progress = Progress::new(config.duration);
    let usage = |error: load::LoadError| CliError::Usage(error.to_string());
    let running = load::run(config, |second| progress.on_second(second));
    let report = runtime::current_thread()?.block_on(running);
    progress.finish();
    args.show(report.map_err(usage)?)
}

impl Args {
    fn config(&self) -> Result<LoadConfig, CliError> {
        if let Some(path) = &self.recorded.recording {
            return self.recorded_config(path);
        }
        let file = self.schedule.as_deref().map(read_file).transpose()?;
        let duration = self
            .duration
            .or_else(|| file.as_ref().and_then(|file| file.duration))
            .ok_or_else(|| usage("how long? give --duration, or `duration` in the file"))?;
        let (rate, mut pattern, kinds) = match file {
            Some(file) => (file.rate.clone(), file.pattern(), file.requests),
            None => (
                RateFunction::constant(self.rate.unwrap_or_default().0),
                Pattern::default(),
                Vec::new(),
            ),
        };
        if self.constant {
            pattern.spacing = Spacing::deterministic();
        }
        Ok(LoadConfig {
            requests: self.request.kinds(kinds)?,
            pattern,
            ..self.common(rate, duration.0)?
        })
    }

    /// What does not depend on what is sent when.
    fn common(
        &self,
        rate: RateFunction,
        duration: std::time::Duration,
    ) -> Result<LoadConfig, CliError> {
        Ok(LoadConfig {
            protocol: self.protocol(),
            tls: self.tls()?,
            connections: self
                .connections
                .unwrap_or(if self.http2 { 4 } else { 1000 }),
            timeout: self.timeout.0,
            warm_up: self.warm_up.0,
            retry: self.retries.retry(),
            target_time: self.target_time.0,
            seed: self.seed,
            ..LoadConfig::new(self.targets.clone(), rate, duration)
        })
    }

    /// How https targets are verified, if there are any.
    fn tls(&self) -> Result<Option<Arc<rustls::ClientConfig>>, CliError> {
        let https = |target: &Uri| target.scheme_str() == Some("https");
        if !self.targets.iter().any(https) {
            return Ok(None);
        }
        let options = UpstreamTls {
            ca: self.tls.ca.clone(),
            insecure: self.tls.insecure,
            ..UpstreamTls::default()
        };
        let http2 = if self.http2 {
            Http2::Always
        } else {
            Http2::Never
        };
        let made = tidegate_proxy::client_tls(&options, http2);
        let made = made.map_err(|error| usage(&error.to_string()))?;
        Ok(Some(Arc::new(made)))
    }

    fn protocol(&self) -> Protocol {
        if self.http2 {
            Protocol::Http2 {
                streams: self.streams,
            }
        } else {
            Protocol::Http1
        }
    }

    fn show(&self, report: LoadReport) -> Result<ExitCode, CliError> {
        if let Some(path) = &self.csv {
            fs::write(path, report.csv()).map_err(|source| file_error(path, source))?;
        }
        let costed = Costed {
            cpu_us_per_request: runtime::cpu_us()
                .map(|cpu_us| cpu_us / report.requests.total.max(1) as f64),
            report,
        };
        print(&if self.json {
            costed.json()?
        } else {
            costed.text()
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The report, with what it cost to find out.
#[derive(Serialize)]
struct Costed {
    #[serde(flatten)]
    report: LoadReport,
    cpu_us_per_request: Option<f64>,
}

impl Costed {
    fn json(&self) -> Result<String, CliError> {
        let text = serde_json::to_string(self).map_err(|error| usage(&error.to_string()))?;
        Ok(text + "\n")
    }

    fn text(&self) -> String {
        match self.cpu_us_per_request {
            Some(cpu) => format!("{}generator {cpu:.0} µs CPU per request\n", self.report),
            None => self.report.to_string(),
        }
    }
}

impl RetryArgs {
    fn retry(&self) -> Retry {
        Retry {
            retries_max: self.retries,
            backoff: self.retry_backoff.0,
            backoff_max: self.retry_backoff_max.0,
            obey_retry_after: self.obey_retry_after,
        }
    }
}

impl RequestArgs {
    /// The kinds of the file with the common headers, or those that the flags describe.
    fn kinds(&self, from_file: Vec<RequestSpec>) -> Result<Vec<RequestSpec>, CliError> {
        let common: HeaderMap = self.headers.iter().cloned().collect();
        if !from_file.is_empty() {
            if self.class_header.is_some() || !self.body.is_empty() {
                return Err(usage(
                    "the file says what to send: leave out --class-header and --body",
                ));
            }
            return Ok(from_file
                .into_iter()
                .map(|kind| merge(kind, &common))
                .collect());
        }
        let plain = RequestSpec {
            method: self.method.clone(),
            headers: common,
            body: self.body.clone().into(),
            ..RequestSpec::default()
        };
        Ok(match &self.class_header {
            Some(classes) => classes.kinds(&plain),
            None => vec![plain],
        })
    }
}

fn merge(mut kind: RequestSpec, common: &HeaderMap) -> RequestSpec {
    for (name, value) in common {
        kind.headers.entry(name).or_insert_with(|| value.clone());
    }
    kind
}

impl Classes {
    fn kinds(&self, plain: &RequestSpec) -> Vec<RequestSpec> {
        let kind = |(value, weight): &(HeaderValue, f64)| {
            let mut kind = plain.clone();
            kind.name = String::from_utf8_lossy(value.as_bytes()).into_owned();
            kind.weight = *weight;
            kind.headers.insert(self.name.clone(), value.clone());
            kind
        };
        self.values.iter().map(kind).collect()
    }
}

pub(crate) fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parts = text.split_once(':').ok_or("write NAME: VALUE")?;
    let name = parts.0.trim().parse().map_err(|_| "not a header name")?;
    let value = parts.1.trim().parse().map_err(|_| "not a header value")?;
    Ok((name, value))
}

fn parse_classes(text: &str) -> Result<Classes, String> {
    const FORM: &str = "write NAME: VALUE=WEIGHT, VALUE=WEIGHT";
    let (name, values) = text.split_once(':').ok_or(FORM)?;
    let class = |text: &str| {
        let (value, weight) = text.split_once('=')?;
        Some((value.trim().parse().ok()?, weight.trim().parse().ok()?))
    };
    Ok(Classes {
        name: name.trim().parse().map_err(|_| "not a header name")?,
        values: values
            .split(',')
            .map(class)
            .collect::<Option<_>>()
            .ok_or(FORM)?,
    })
}

fn read_file(path: &Path) -> Result<LoadFile, CliError> {
    let text = fs::read_to_string(path).map_err(|source| file_error(path, source))?;
    Ok(LoadFile::parse(&path.display().to_string(), &text)?)
}

fn file_error(path: &Path, source: std::io::Error) -> CliError {
    CliError::File {
        path: path.display().to_string(),
        source,
    }
}

fn usage(message: &str) -> CliError {
    CliError::Usage(message.to_owned())
}
