//! The auction house as a process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use tidegate_config::Dur;
use tidegate_example_auction::pages::{Settings, router};

/// A first-price sealed-bid auction whose bidders hold back.
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// Bids may be made for so long.
    #[arg(long, default_value = "2m")]
    open_for: Dur,
    /// Bids made in time are received for so much longer.
    #[arg(long, default_value = "1m")]
    grace: Dur,
    /// Work for each bid.
    #[arg(long, default_value = "100ms")]
    work: Dur,
    /// Where bidders' browsers find the proxy's channel: http://HOST:PORT.
    #[arg(long, requires = "key")]
    channel: Option<String>,
    /// The channel's public key.
    #[arg(long)]
    key: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let settings = Settings {
        open_for: *args.open_for,
        grace: *args.grace,
        work: *args.work,
        channel: args.channel.zip(args.key),
    };
    let serve = async {
        let listener = tokio::net::TcpListener::bind(args.listen).await?;
        let deadline = SystemTime::now() + settings.open_for;
        let deadline = deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
        eprintln!(
            "the auction is open on http://{}, until {} (seconds since 1970)",
            listener.local_addr()?,
            deadline.as_secs()
        );
        axum::serve(listener, router(settings)).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(serve)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "cannot listen on {}: {error}; choose another --listen",
                args.listen
            );
            ExitCode::FAILURE
        }
    }
}
