//! `tidegate client`: a local proxy that holds requests back as their server asks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "gossip")]
use tidegate_channel::net::relay::Parents;
use tidegate_channel::stamp::Stamper;
use tidegate_channel::{PublicKey, SecretKey, Variant};
use tidegate_client::forward::{self, Forward};
use tidegate_client::{Client, Config, Relaying};
use tidegate_config::Dur;

use crate::channel::read_seed;
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
    /// The server's channel: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    channel: String,
    /// The public key of the channel; repeat it while keys change.
    #[arg(long, value_name = "HEX", required = true)]
    key: Vec<PublicKey>,
    /// Where programs connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where requests go that name no server themselves: http://HOST:PORT or https://HOST:PORT.
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
    /// An item that was not sent in time is kept for so much longer: the server may prolong.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    grace: Dur,
    /// File with the secret key that stamps items, instead of the outbox's own.
    #[arg(long, value_name = "FILE")]
    member_key: Option<PathBuf>,
    /// One item per so long while the channel is silent.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    fallback: Dur,
    /// Pass the channel's messages on to others, listening here; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    relay: Option<SocketAddr>,
    /// The address by which others reach it, if it is another than --relay.
    #[arg(long, value_name = "URL", requires = "relay")]
    relay_url: Option<String>,
    #[cfg(feature = "gossip")]
    #[command(flatten)]
    gossip: crate::gossip::GossipArgs,
    /// File with the authorities to believe instead of the system's, where server or channel are
    /// reached by https.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Print the address as a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    runtime::raise_file_limit();
    runtime::current_thread()?.block_on(serve(args))
}

async fn serve(args: &Args) -> Result<ExitCode, CliError> {
    let (listener, addr) = runtime::listen(args.listen).await?;
    let client =
        Client::open(args.config()?).map_err(|error| CliError::Usage(error.to_string()))?;
    let (id, relay, key) = (client.id().0, client.relay_url(), client.public_key());
    print(&match (args.json, relay) {
        (true, _) => {
            let relay = serde_json::json!(relay);
            format!(
                "{{\"listen\":\"{addr}\",\"client\":\"{id:016x}\",\"public_key\":\"{key}\",\"relay\":{relay}}}\n"
            )
        }
        (false, None) => {
            format!("holding back for client {id:016x} on http://{addr}\npublic key {key}\n")
        }
        (false, Some(relay)) => format!(
            "holding back for client {id:016x} on http://{addr}, passing on at {relay}\npublic key {key}\n"
        ),
    })?;
    let forward = Arc::new(Forward {
        client,
        server: args.to.clone(),
    });
    tokio::select! {
        () = forward::serve(listener, Arc::clone(&forward)) => {}
        () = tell_owner(&forward.client) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Says on standard error when the proxy holds items, and when the channel is not believed.
async fn tell_owner(client: &Client) {
    let mut said = String::new();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = client.status();
        let counts = status.messages;
        let now = match status.held {
            Some(held) => format!(
                "the server holds item {} ({}) for {} s, and it stays here: {}",
                held.item, held.reason, held.for_s, held.remedy
            ),
            None if status.partitioned && counts.key + counts.forged > 0 => {
                "the channel's messages are not signed by --key: going at the fallback rate"
                    .to_owned()
            }
            None => String::new(),
        };
        if !now.is_empty() && now != said {
            eprintln!("tidegate: {now}");
        }
        said = now;
    }
}

impl Args {
    fn stamper(&self) -> Result<Option<Arc<dyn Stamper>>, CliError> {
        let seed = self.member_key.as_deref().map(read_seed).transpose()?;
        let stamper = |seed| Arc::new(SecretKey::from_seed(&seed)) as Arc<dyn Stamper>;
        Ok(seed.map(stamper))
    }

    fn config(&self) -> Result<Config, CliError> {
        let variant = if self.queue {
            Variant::Queue
        } else {
            Variant::Overwrite
        };
        let relaying = |listen| Relaying {
            listen,
            url: self.relay_url.clone(),
        };
        let usual = Config::new(&self.channel, self.key[0], &self.outbox);
        // Who gossips needs no place in the trees.
        #[cfg(feature = "gossip")]
        let usual = match self.gossip.config()? {
            Some(gossip) => Config {
                gossip: Some(gossip),
                parents: Parents::Fixed(Vec::new()),
                ..usual
            },
            None => usual,
        };
        Ok(Config {
            keys: self.key.clone(),
            variant,
            delay_max: *self.delay_max,
            grace: *self.grace,
            stamper: self.stamper()?,
            fallback: *self.fallback,
            dialer: runtime::dialer(self.ca.as_deref())?,
            relay: self.relay.map(relaying),
            ..usual
        })
    }
}
