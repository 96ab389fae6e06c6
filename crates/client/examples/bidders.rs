//! Many bidders in one process, for measurements of an auction's peak: items at normally
//! distributed times, held back as the channel says or sent at once. Says at the end, as JSON,
//! what became of them.
//!
//! `bidders SERVER CHANNEL KEY CLIENTS ITEMS MEAN_S SPREAD_S FIRST_ID [--at-once]`

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;
use tidegate_channel::net::Dialer;
use tidegate_channel::{ClientId, Variant};
use tidegate_client::{Client, Config, Outcome, Relaying};

type Error = Box<dyn std::error::Error>;

#[derive(Default)]
struct Tally {
    made: AtomicU64,
    answered: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [
        server,
        channel,
        key,
        clients,
        items,
        mean,
        spread,
        first,
        ..,
    ] = &args[..]
    else {
        return Err(
            "usage: bidders SERVER CHANNEL KEY CLIENTS ITEMS MEAN_S SPREAD_S FIRST_ID [--at-once]"
                .into(),
        );
    };
    let at_once = args.iter().any(|arg| arg == "--at-once");
    let folder = std::env::temp_dir().join(format!("bidders-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (mean_s, spread_s): (f64, f64) = (mean.parse()?, spread.parse()?);
    let (clients, items, first): (u64, u64, u64) =
        (clients.parse()?, items.parse()?, first.parse()?);
    let key = key.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tally = Arc::new(Tally::default());
    runtime.block_on(async {
        let mut bids = Vec::new();
        for client in first..first + clients {
            let config = Config {
                variant: Variant::Queue,
                relay: Some(Relaying {
                    listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                    url: None,
                }),
                ..Config::new(channel, key, folder.join(format!("{client}.redb")))
            };
            let sender = if at_once {
                None
            } else {
                Some(Arc::new(Client::open(config)?))
            };
            for item in 0..items {
                let after =
                    Duration::from_secs_f64((mean_s + spread_s * normal(client, item)).max(0.0));
                let (sender, tally) = (sender.clone(), Arc::clone(&tally));
                let bid = Bid {
                    uri: format!("{server}/bids"),
                    form: format!("bidder=number-{client}&amount={}", 100 + item),
                };
                bids.push(tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    tally.made.fetch_add(1, Ordering::Relaxed);
                    match sender {
                        Some(client) => hold_back(&client, &bid, &tally).await,
                        None => insist(&bid, &tally).await,
                    }
                }));
            }
        }
        for bid in bids {
            bid.await?;
        }
        Ok::<(), Error>(())
    })?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let report = json!({
        "made": count(&tally.made),
        "answered": count(&tally.answered),
        "lost": count(&tally.lost),
        "refused": count(&tally.refused),
    });
    serde_json::to_writer(std::io::stdout(), &report)?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// A standard normal number for a client and an item, the same in every run (Box and Muller).
fn normal(client: u64, item: u64) -> f64 {
    let u = ClientId(client * 1000 + 2 * item).phase().max(1e-12);
    let v = ClientId(client * 1000 + 2 * item + 1).phase();
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// A bid as `examples/auction` takes it.
struct Bid {
    uri: String,
    form: String,
}

impl Bid {
    fn request(&self) -> Option<Request<Bytes>> {
        let form = "application/x-www-form-urlencoded";
        let request = Request::post(&self.uri).header("content-type", form);
        request.body(Bytes::from(self.form.clone())).ok()
    }
}

async fn hold_back(client: &Client, bid: &Bid, tally: &Tally) {
    let ticket = bid
        .request()
        .and_then(|request| client.submit(request, None).ok());
    let counter = match ticket {
        Some(ticket) => match ticket.outcome().await {
            Outcome::Answered(response) if response.status().is_success() => &tally.answered,
            _ => &tally.lost,
        },
        None => &tally.lost,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Sends at once; refused, it comes back when it was told to, five times at most, as an impatient
/// person would.
async fn insist(bid: &Bid, tally: &Tally) {
    for _ in 0..6 {
        let Some(request) = bid.request() else { return };
        let mut wait = Duration::from_secs(1);
        let dialer = Dialer::default();
        match dialer.send(request.map(Full::new)).await {
            Ok(response) if response.status().is_success() => {
                tally.answered.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(response) => {
                let after = response.headers().get("retry-after");
                let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
                wait = Duration::from_secs(after.unwrap_or(1));
            }
            Err(_) => {}
        }
        tally.refused.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(wait).await;
    }
    tally.lost.fetch_add(1, Ordering::Relaxed);
}
