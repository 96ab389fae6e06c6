//! `tidegate run`: the proxy in front of a service.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use tidegate_config::{ConfigError, Dur};
use tidegate_proxy::admin::{Operations, OperationsError};
use tidegate_proxy::config::{
    self, Admin, Config, Listener, Loaded, Log, Problem, Replica, Severity,
};
use tidegate_proxy::record::RecordCommand;
use tidegate_proxy::reload::Source;
use tidegate_proxy::{BindError, Bound, Proxy, Running, SavedState, notice};
use tidegate_sentry::ModeName;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::check::print;
use crate::error::CliError;
use crate::forecaster::Simulator;
use crate::runtime;
use crate::systemd;
use crate::upgrade::{self, Handover};

/// Protects a service: listens, forwards, and refuses what the service cannot do in time.
///
/// SIGHUP reloads the file; SIGTERM ends it when requests in flight are finished; SIGUSR2 starts
/// the binary anew, which takes the listening sockets over without a request lost.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Configuration file; the other options come on top of it. Reloaded on SIGHUP and when it
    /// changes.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where clients connect; port 0 lets the system choose [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Listener>,
    /// A replica of the service, such as http://127.0.0.1:3000; repeat it for more. One that is
    /// to carry twice as much as the others: 'http://127.0.0.1:3000 weight=2'.
    #[arg(long, value_name = "URL")]
    upstream: Vec<Replica>,
    /// Response time within which an answer is worth something; found by itself if not given.
    #[arg(long, value_name = "DURATION")]
    target: Option<Dur>,
    /// Who decides how much is admitted: auto, static, step, pi, pid, lqr, ilac, sentry or off
    /// [default: auto]
    #[arg(long, value_parser = parse_mode)]
    mode: Option<ModeName>,
    /// Where operators connect, or `off` [default: 127.0.0.1:9190]
    #[arg(long, value_name = "ADDR")]
    admin: Option<Admin>,
    /// Record what passes into this directory, for `tidegate whatif` and `tidegate recording`.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// How lines about the proxy are written on standard error: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log: Option<Log>,
    /// Say where it listens as one line of JSON.
    #[arg(long)]
    json: bool,
}

fn parse_mode(text: &str) -> Result<ModeName, String> {
    let read = ModeName::deserialize(text.into_deserializer());
    read.map_err(|error: serde::de::value::Error| error.to_string())
}

impl Args {
    /// What the command line adds to a file.
    fn apply(&self, config: &mut Config) {
        if !self.listen.is_empty() {
            config.listen.clone_from(&self.listen);
        }
        listen_somewhere(config);
        if !self.upstream.is_empty() {
            config.upstream.replicas.clone_from(&self.upstream);
        }
        if let Some(admin) = &self.admin {
            config.admin.enabled = admin.enabled;
            config.admin.addr = admin.addr;
        }
        if let Some(dir) = &self.record {
            config.record.dir = Some(dir.clone());
        }
        config.log = self.log.unwrap_or(config.log);
        config.protect.target = self.target.or(config.protect.target);
        config.protect.mode = self.mode.unwrap_or(config.protect.mode);
    }

    fn load(&self) -> Result<Loaded, CliError> {
        let Some(file) = &self.config else {
            return self.without_file();
        };
        config::load_with(file, |config| self.apply(config)).map_err(|errors| join(&errors))
    }

    fn without_file(&self) -> Result<Loaded, CliError> {
        if self.upstream.is_empty() {
            return Err(CliError::Usage(
                "what to protect? name a replica with `--upstream http://127.0.0.1:3000`, or a \
                 file with `-c FILE`"
                    .to_owned(),
            ));
        }
        let mut config = Config::default();
        self.apply(&mut config);
        let problems = config.problems().into_iter();
        let (errors, odd): (Vec<_>, Vec<_>) =
            problems.partition(|problem| problem.severity == Severity::Error);
        let said = |problem: &Problem| ConfigError::new("command line", problem.to_string());
        if errors.is_empty() {
            Ok(Loaded {
                config,
                warnings: odd.iter().map(said).collect(),
            })
        } else {
            Err(join(&errors))
        }
    }

    fn source(&self) -> Source {
        let args = self.clone();
        Source {
            file: self.config.clone(),
            flags: Some(Box::new(move |config: &mut Config| args.apply(config))),
        }
    }
}

/// Where clients connect if nobody has said.
pub(crate) fn listen_somewhere(config: &mut Config) {
    if config.listen.is_empty() {
        config.listen = vec![Listener::default()];
    }
}

/// One message of several lines.
fn join<T: ToString>(errors: &[T]) -> CliError {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    CliError::Usage(lines.join("\ntidegate: "))
}

impl From<BindError> for CliError {
    fn from(error: BindError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<OperationsError> for CliError {
    fn from(error: OperationsError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Runs until SIGTERM or SIGINT, then finishes what is in flight; a second signal ends it at once.
pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut inherited = upgrade::inherited();
    let Loaded { config, warnings } = args.load()?;
    tidegate_proxy::set_log_format(config.log.format);
    warn(&warnings);
    runtime::raise_file_limit();
    let runtime = runtime::current_thread()?;
    // Before anybody can know that it runs: a signal that is not caught yet would end it.
    let signals = runtime.block_on(async { Signals::listen() });
    let signals = signals.map_err(|e| CliError::Usage(format!("signals cannot be caught: {e}")))?;
    let bound = Proxy::take_over(config, &mut inherited)?;
    let state = Arc::clone(bound.state());
    let operations = Operations::take_over(state, args.source(), &mut inherited)?;
    operations.forecast_by(Arc::new(Simulator));
    // What was passed on and is not listened on any more.
    drop(inherited);
    let handover = Handover::of(sockets(&bound, &operations)?);
    match announce(args, &bound, &operations) {
        // The reader of the predecessor's first line may have stopped listening.
        Err(_) if upgrade::is_successor() => {}
        announced => announced?,
    }
    // Ends last: what was recorded until then is sent.
    let _exporter = export(&operations)?;
    runtime.block_on(operations.find_replicas());
    let running = bound.start()?;
    let state = Arc::clone(running.state());
    systemd::ready();
    upgrade::relieve_predecessor();
    let code = runtime.block_on(operate(running, operations, handover, signals));
    // A file that hangs must not keep the process.
    runtime.shutdown_background();
    // What passed until the end belongs to the recording.
    let stopped = state.record(&RecordCommand::default());
    stopped.map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(code)
}

/// Sends spans and metrics, if the environment says where to.
#[cfg(feature = "otlp")]
fn export(operations: &Operations) -> Result<Option<tidegate_otlp::Exporter>, CliError> {
    let (environment, warnings) = tidegate_otlp::Environment::of_process();
    warnings.iter().for_each(tidegate_proxy::warn);
    if !environment.is_used() {
        return Ok(None);
    }
    let exporter = tidegate_otlp::Exporter::start(environment, operations.telemetry());
    exporter
        .map(Some)
        .map_err(|e| CliError::Usage(e.to_string()))
}

/// Says so where the environment asks for what this build has not.
#[cfg(not(feature = "otlp"))]
fn export(_: &Operations) -> Result<Option<()>, CliError> {
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        tidegate_proxy::warn(
            "OTEL_EXPORTER_OTLP_ENDPOINT is ignored: this binary was built without the feature \
             `otlp`",
        );
    }
    Ok(None)
}

/// All listening sockets, to be passed on.
fn sockets(bound: &Bound, operations: &Operations) -> Result<Vec<(String, TcpListener)>, CliError> {
    let refused = |error: io::Error| CliError::Usage(format!("sockets cannot be kept: {error}"));
    let mut all = bound.sockets().map_err(refused)?;
    all.extend(operations.sockets().map_err(refused)?);
    Ok(all)
}

fn warn(warnings: &[ConfigError]) {
    for warning in warnings {
        tidegate_proxy::warn(warning);
    }
}

/// What `--json` says.
#[derive(Serialize)]
struct Announcement {
    listen: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<SocketAddr>,
}

fn announce(args: &Args, bound: &Bound, operations: &Operations) -> Result<(), CliError> {
    let listen = bound.local_addr();
    let (admin, channel) = (operations.admin_addr(), operations.channel_addr());
    let line = if args.json {
        let announcement = Announcement {
            listen,
            admin,
            channel,
        };
        serde_json::to_string(&announcement).unwrap_or_default()
    } else {
        let config = bound.state().config();
        let listen: Vec<_> = bound
            .local_addrs()
            .iter()
            .map(ToString::to_string)
            .collect();
        let listen = listen.join(" and ");
        let admin = admin.map_or("off".to_owned(), |addr| format!("http://{addr}"));
        let protected = protected(&config);
        format!("tidegate listens on {listen} and protects {protected}, admin {admin})")
    };
    print(&format!("{line}\n"))
}

/// What is protected and how, in a few words.
fn protected(config: &Config) -> String {
    if !config.application.is_empty() {
        let names: Vec<_> = config.application_names().collect();
        return format!("{} (applications", names.join(", "));
    }
    let replicas = config.upstream.replicas.iter();
    let replicas: Vec<_> = replicas.map(ToString::to_string).collect();
    let mode = config.protect.mode.as_str();
    format!("{} (mode {mode}", replicas.join(", "))
}

/// Looks after a running proxy. The engine keeps being driven while the proxy drains.
async fn operate(
    running: Running,
    operations: Operations,
    handover: Handover,
    signals: Signals,
) -> ExitCode {
    let hangups = operations.reload_on(signals.hangup);
    let relieve = operations.relieve();
    let state = Arc::clone(running.state());
    tokio::select! {
        code = until_stopped(running, signals.stop, signals.upgrade, handover, relieve) => code,
        () = operations.run(hangups) => ExitCode::FAILURE,
        () = systemd::keep_watchdog_quiet(state) => ExitCode::FAILURE,
    }
}

/// The signals that mean something to a proxy.
struct Signals {
    stop: Stop,
    hangup: Signal,
    upgrade: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            stop: Stop::listen()?,
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }
}

async fn until_stopped(
    mut running: Running,
    mut stop: Stop,
    mut upgrades: Signal,
    mut handover: Handover,
    relieve: impl Fn(),
) -> ExitCode {
    loop {
        tokio::select! {
            () = stop.requested() => break,
            _ = upgrades.recv() => match handover.start(&SavedState::for_successor(running.state())) {
                Ok(()) => notice(format_args!(
                    "process {} started a new one, which will take over",
                    std::process::id()
                )),
                Err(error) => notice(format_args!("no new process was started: {error}")),
            },
            ended = handover.successor_ended() => {
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                notice(format_args!("the new process failed ({how}); this one goes on"));
            }
        }
    }
    if handover.has_successor() {
        relieve();
        running.hand_over();
    } else {
        systemd::stopping();
    }
    // Nobody is to wait in the queue of a socket that is not listened on.
    drop(handover);
    running.shut_down();
    notice(format_args!(
        "process {} shuts down when requests in flight are finished; a second signal ends them",
        std::process::id()
    ));
    tokio::select! {
        () = running.finished() => ExitCode::SUCCESS,
        () = stop.requested() => ExitCode::FAILURE,
    }
}

/// The signals that end the process.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
