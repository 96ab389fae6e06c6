//! `tidegate nucleus`: the replica's side beside a service in any language.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_config::Dur;
use tidegate_nucleus::sidecar::{self, Upstream};
use tidegate_nucleus::{
    CpuMeter, DimmerConfig, DimmerKind, Nucleus, NucleusConfig, UsageError, Whose,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Stands beside a service, measures it and answers the proxy with what it wants.
///
/// Requests and answers pass unchanged, WebSockets too; answers also carry demand, service time,
/// CPU time and utilization. The service reads one header, `tidegate-optional`. On SIGTERM requests
/// in flight finish.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The service: http://HOST:PORT, or h2c://HOST:PORT for one that speaks HTTP/2 (gRPC).
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The service's process, whose CPU time counts; by default, the one that listens on the
    /// upstream's address.
    #[arg(long, value_name = "N", conflicts_with = "cgroup")]
    pid: Option<u32>,
    /// The directory of the service's cgroup, instead of a process.
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Sampling period of the service-time controller.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_period)]
    period: Dur,
    /// Decide about optional content here where the proxy does not: brownout or brownout-cc.
    #[arg(long, value_name = "KIND")]
    dimmer: Option<Kind>,
    /// With --dimmer: wanted response time of the service at the 95th percentile.
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "dimmer")]
    setpoint: Dur,
    /// How long requests in flight may take after SIGTERM.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    drain: Dur,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

/// Names of the dimmers.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    Brownout,
    BrownoutCc,
}

impl Args {
    fn dimmer(&self) -> Option<DimmerConfig> {
        let kind = match self.dimmer? {
            Kind::Brownout => DimmerKind::Brownout,
            Kind::BrownoutCc => DimmerKind::BrownoutCc,
        };
        let setpoint = *self.setpoint;
        Some(DimmerConfig { kind, setpoint })
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let config = NucleusConfig {
        period: *args.period,
        dimmer: args.dimmer(),
        ..NucleusConfig::default()
    };
    let nucleus = Nucleus::new(config, Some(args.meter()?));
    runtime::current_thread()?.block_on(async {
        let (listener, addr) = runtime::listen(args.listen).await?;
        let stop = stop_signal()?;
        print(&args.greeting(addr))?;
        let upstream = args.upstream.clone();
        let cut = sidecar::serve(listener, upstream, nucleus, stop, *args.drain).await;
        if cut > 0 {
            eprintln!("tidegate: {cut} requests were cut after {}", args.drain);
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    /// A process or cgroup that was named must be there; a service that is not started yet is
    /// found when it is.
    fn meter(&self) -> Result<CpuMeter, CliError> {
        let whose = match (self.pid, &self.cgroup) {
            (Some(pid), _) => Whose::Process(pid),
            (None, Some(cgroup)) => Whose::Cgroup(cgroup.clone()),
            (None, None) => Whose::Listener(self.upstream.addrs()),
        };
        match CpuMeter::new(whose.clone()) {
            Ok(meter) => Ok(meter),
            Err(error @ UsageError::NobodyListens(_)) => {
                eprintln!(
                    "tidegate: {error}; CPU time is not reported until it is found (or name it \
                     with --pid or --cgroup)"
                );
                Ok(CpuMeter::later(whose))
            }
            Err(error) => Err(CliError::Usage(error.to_string())),
        }
    }

    fn greeting(&self, addr: SocketAddr) -> String {
        if self.json {
            format!("{{\"listen\":\"{addr}\"}}\n")
        } else {
            format!("listening on http://{addr}\n")
        }
    }
}

/// Done at the first SIGTERM or SIGINT; by then the handlers are in place.
fn stop_signal() -> Result<impl Future<Output = ()>, CliError> {
    let watch = |kind| {
        signal(kind).map_err(|error| CliError::Usage(format!("cannot watch signals: {error}")))
    };
    let mut terminate = watch(SignalKind::terminate())?;
    let mut interrupt = watch(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn parse_period(text: &str) -> Result<Dur, String> {
    match text.parse::<Dur>() {
        Ok(period) if period.is_zero() => Err("a period of 0 has no samples".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}
