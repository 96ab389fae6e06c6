//! Opens the shop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidegate_config::Dur;
use tidegate_example_shop::{Shop, ShopConfig, VirtualCost, router};
use tidegate_nucleus::{CpuMeter, DimmerConfig, DimmerKind, Nucleus, NucleusConfig, Whose};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// A web shop with recommendations that it can leave out when it is busy.
#[derive(Debug, Parser)]
#[command(name = "shop")]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// The database, made when it is not there; replicas on one machine can share it. Without it
    /// the shop forgets everything when it closes.
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// Orders of the past in a new database; recommendations are computed from them.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    past_orders: u32,
    /// CPU time that recommendations should take on average, like 14ms: their query is repeated
    /// as often as that needs on this machine.
    #[arg(long, value_name = "TIME")]
    recommendation_cost: Option<Dur>,
    /// For experiments on a busy machine: pages also take turns on a server that exists only on
    /// paper, for this long with recommendations.
    #[arg(long, value_name = "TIME", conflicts_with = "recommendation_cost")]
    virtual_full: Option<Dur>,
    /// With --virtual-full: the same for a page without recommendations.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        requires = "virtual_full"
    )]
    virtual_reduced: Dur,
    /// Decide about recommendations here, by brownout-cc with this response time, where no proxy
    /// does.
    #[arg(long, value_name = "TIME")]
    dim_at: Option<Dur>,
    /// How many requests are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    threads: usize,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("shop: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let shop = Shop::open(&ShopConfig {
        database: args.database.clone(),
        past_orders: args.past_orders,
        recommendation_cost: args.recommendation_cost.map(|cost| *cost),
        virtual_cost: args.virtual_full.map(|full| VirtualCost {
            product: *args.virtual_reduced,
            recommendations: full.saturating_sub(*args.virtual_reduced),
        }),
    })
    .map_err(|error| error.to_string())?;
    let runtime = runtime(args.threads).map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(serve(args, shop))
}

fn runtime(threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(threads.max(1))
        .build()
}

async fn serve(args: &Args, shop: Shop) -> Result<(), String> {
    let listen = args.listen;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| format!("cannot listen on {listen}: {error}; choose another --listen"))?;
    let failed = |error: io::Error| error.to_string();
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let addr = listener.local_addr().map_err(failed)?;
    greet(args, addr, shop.passes()).map_err(failed)?;

    let config = NucleusConfig {
        dimmer: args.dim_at.map(|setpoint| DimmerConfig {
            kind: DimmerKind::BrownoutCc,
            setpoint: *setpoint,
        }),
        ..NucleusConfig::default()
    };
    let nucleus = Nucleus::new(config, CpuMeter::new(Whose::This).ok());
    axum::serve(listener, router(shop, nucleus))
        .with_graceful_shutdown(stop)
        .await
        .map_err(failed)
}

fn greet(args: &Args, addr: SocketAddr, passes: u32) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match (args.json, args.recommendation_cost) {
        (true, _) => writeln!(out, "{{\"listen\":\"{addr}\",\"passes\":{passes}}}"),
        (false, Some(cost)) => writeln!(
            out,
            "open at http://{addr}, recommendations take {cost} ({passes} passes)"
        ),
        (false, None) => writeln!(out, "open at http://{addr}"),
    }
}
