//! `tidegate relay`: passes control messages on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::serve::{self, RELAY_LISTENERS_MAX, StatusPage};
use tidegate_channel::net::{Desk, Limits, PerAddress, Relay, unix_now};
use tidegate_channel::{PublicKey, SecretKey};

use crate::channel::{complain, read_seed};
use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Passes a proxy's control messages on, so that the proxy need not serve every client itself.
///
/// Each message is verified before it is passed on. Two parents or more keep the relay fed when one
/// dies; with --tracker the proxy chooses them, and sends others here. `/.tidegate/relay` on its
/// listener says how it is doing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where messages come from: the proxy's channel listener or another relay; repeat it.
    #[arg(long, value_name = "URL", required_unless_present = "tracker")]
    parent: Vec<String>,
    /// The proxy's channel listener; it assigns parents, and sends others here.
    #[arg(long, value_name = "URL", conflicts_with = "parent")]
    tracker: Option<String>,
    /// The publisher's public key; repeat it while keys change.
    #[arg(long, value_name = "HEX", required = true)]
    key: Vec<PublicKey>,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The address by which others reach this relay, if it is another than --listen.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File with the secret key of a member, where the channel is for members alone.
    #[arg(long, value_name = "FILE")]
    member_key: Option<PathBuf>,
    #[cfg(feature = "gossip")]
    #[command(flatten)]
    gossip: crate::gossip::GossipArgs,
    /// File with the authorities to believe instead of the system's, where parents are reached by
    /// https.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Listeners at most.
    #[arg(long, value_name = "N", default_value_t = RELAY_LISTENERS_MAX)]
    listeners_max: usize,
    /// Listeners of one address at most.
    #[arg(long, value_name = "N", default_value_t = 64)]
    listeners_per_address: usize,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    runtime::raise_file_limit();
    runtime::current_thread()?.block_on(relay(args))
}

async fn relay(args: &Args) -> Result<ExitCode, CliError> {
    let (listener, addr) = runtime::listen(args.listen).await?;
    let own = args.url.clone().unwrap_or_else(|| format!("http://{addr}"));
    let parents = match &args.tracker {
        Some(tracker) => Parents::Tracked {
            tracker: tracker.clone(),
            own: Some(own),
        },
        None => Parents::Fixed(args.parent.clone()),
    };
    let seed = unix_now().as_nanos() ^ (u64::from(addr.port()) << 48);
    let member = args.member_key.as_deref().map(read_seed).transpose()?;
    let mut relay =
        Relay::new(&args.key, parents, seed).with_dialer(runtime::dialer(args.ca.as_deref())?);
    if let Some(seed) = &member {
        relay = relay.with_member(Arc::new(SecretKey::from_seed(seed)));
    }
    #[cfg(feature = "gossip")]
    if let Some(gossip) = args.gossip.config()? {
        relay = relay.with_overlay(crate::gossip::start(member, gossip).await?);
    }
    let (status, page) = (relay.status(), relay.status());
    let page: StatusPage =
        Box::new(move || serde_json::to_string(&page()).unwrap_or_default() + "\n");
    let limits = Limits::new(
        PerAddress {
            listeners: args.listeners_per_address,
            ..PerAddress::default()
        },
        args.listeners_max,
        args.listeners_max,
    );
    let desk = Desk::relay(relay.hub()).with_limits(limits);
    let desk = Arc::new(desk.with_status(page));
    print(&if args.json {
        format!("{{\"listen\":\"{addr}\"}}\n")
    } else {
        format!("relaying on http://{addr}\n")
    })?;
    tokio::select! {
        () = relay.run(|_| {}) => {}
        () = complain(status) => {}
        () = serve::serve(listener, desk, std::future::pending()) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}
