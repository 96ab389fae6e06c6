//! `tidegate client`: a local proxy that holds requests back as their server asks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_channel::{PublicKey, Variant};
use tidegate_client::forward::{self, Forward};
use tidegate_client::{Client, Config};
use tidegate_config::Dur;

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Holds a program's requests back as their server asks, without a change to the program.
///
/// Send requests here instead of to the server, or set http_proxy. Requests that change something
/// (POST, PUT, PATCH, DELETE) wait for their turn, on disk; the others pass. With the header
/// `prefer: respond-async` the answer is 202 at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server's channel: http://HOST:PORT.
    #[arg(long, value_name = "URL")]
    channel: String,
    /// The public key of the channel; repeat it while keys change.
    #[arg(long, value_name = "HEX", required = true)]
    key: Vec<PublicKey>,
    /// Where programs connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where requests go that name no server themselves: http://HOST:PORT.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Where items are kept until they are answered.
    #[arg(long, value_name = "FILE", default_value = "outbox.redb")]
    outbox: PathBuf,
    /// Keep every item, instead of the newest of each `tidegate-key`.
    #[arg(long)]
    queue: bool,
    /// How long an item is worth something.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    delay_max: Dur,
    /// One item per so long while the channel is silent.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    fallback: Dur,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    runtime::current_thread()?.block_on(serve(args))
}

async fn serve(args: &Args) -> Result<ExitCode, CliError> {
    let (listener, addr) = runtime::listen(args.listen).await?;
    let client = Client::open(args.config()).map_err(|error| CliError::Usage(error.to_string()))?;
    print(&match args.json {
        true => format!(
            "{{\"listen\":\"{addr}\",\"client\":\"{:016x}\"}}\n",
            client.id().0
        ),
        false => format!(
            "holding back for client {:016x} on http://{addr}\n",
            client.id().0
        ),
    })?;
    let forward = Arc::new(Forward {
        client,
        server: args.to.clone(),
    });
    tokio::select! {
        () = forward::serve(listener, forward) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn config(&self) -> Config {
        let variant = match self.queue {
            true => Variant::Queue,
            false => Variant::Overwrite,
        };
        Config {
            keys: self.key.clone(),
            variant,
            delay_max: *self.delay_max,
            fallback: *self.fallback,
            ..Config::new(&self.channel, self.key[0], &self.outbox)
        }
    }
}
