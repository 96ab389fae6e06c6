//! Many listeners in one process, for measurements of delivery: each verifies and applies what it
//! hears, and with `--relay` passes it on. Says at the end, as JSON, when each message reached each
//! of them.
//!
//! `swarm TRACKER KEY NODES SECONDS [--relay]`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::net::{Desk, Relay, serve, unix_now};
use tidegate_channel::{ClientId, Pacer, PublicKey};
use tokio::net::TcpListener;

type Error = Box<dyn std::error::Error>;

/// Delays in milliseconds by number and time of issue.
type Heard = Arc<Mutex<BTreeMap<(u64, u64), Vec<u64>>>>;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tracker, key, nodes, seconds, ..] = &args[..] else {
        return Err("usage: swarm TRACKER KEY NODES SECONDS [--relay]".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let heard = Heard::default();
    let (nodes, key): (usize, PublicKey) = (nodes.parse()?, key.parse()?);
    runtime.block_on(async {
        for index in 0..nodes {
            let passes_on = args.iter().any(|arg| arg == "--relay");
            start(tracker, key, index as u64, passes_on, &heard).await?;
        }
        tokio::time::sleep(Duration::from_secs(seconds.parse()?)).await;
        Ok::<(), Error>(())
    })?;
    let heard = heard.lock();
    let messages: Vec<_> = heard
        .iter()
        .map(|((seq, issued_ms), delays_ms)| {
            json!({ "seq": seq, "issued_ms": issued_ms, "delays_ms": delays_ms })
        })
        .collect();
    let report = json!({ "nodes": nodes, "messages": messages });
    serde_json::to_writer(std::io::stdout(), &report)?;
    Ok(())
}

async fn start(
    tracker: &str,
    key: PublicKey,
    index: u64,
    passes_on: bool,
    heard: &Heard,
) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let own = format!("http://{}", listener.local_addr()?);
    let parents = Parents::Tracked {
        tracker: tracker.to_owned(),
        own: passes_on.then_some(own),
    };
    let seed = unix_now().as_nanos() ^ (index << 40);
    let relay = Relay::new(&[key], parents, seed);
    if passes_on {
        let desk = Arc::new(Desk::relay(relay.hub()));
        tokio::spawn(serve::serve(listener, desk, std::future::pending()));
    }
    let heard = Arc::clone(heard);
    let mut pacer = Pacer::new(ClientId(seed));
    // Not in the order of processes: who dies together shall not have come together.
    let after = Duration::from_secs(2).mul_f64(ClientId(seed).phase());
    let run = relay.run(move |message| {
        pacer.apply(unix_now(), message.strategy.clone());
        let delay_ms = unix_now().since(message.issued).as_millis() as u64;
        let issued_ms = message.issued.as_nanos() / 1_000_000;
        let mut heard = heard.lock();
        heard
            .entry((message.seq, issued_ms))
            .or_default()
            .push(delay_ms);
    });
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        run.await;
    });
    Ok(())
}
