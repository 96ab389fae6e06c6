//! `tidegate channel`: keys, and a look at the messages.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_channel::key::decode;
use tidegate_channel::net::Relay;
use tidegate_channel::net::relay::{Parents, RelayStatus};
use tidegate_channel::receipt::Receipt;
use tidegate_channel::verify::Counts;
use tidegate_channel::{PublicKey, SecretKey};
use tidegate_control::Timestamp;

use crate::check::print;
use crate::error::CliError;
use crate::runtime;

/// Keys of the channel, and a look at its messages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Writes a new secret key to a file that only its owner can read, and prints the public key.
    Keygen {
        /// The file; it must not exist yet.
        file: PathBuf,
    },
    /// Prints the public key of a secret key.
    Public {
        /// The file.
        file: PathBuf,
    },
    /// Listens to the channel and prints the messages that are genuine.
    Listen {
        /// The publisher or a relay: http://HOST:PORT; repeat it for several.
        #[arg(value_name = "URL", required = true)]
        urls: Vec<String>,
        /// The publisher's public key.
        #[arg(long, value_name = "HEX")]
        key: PublicKey,
        /// File with the authorities to believe instead of the system's, for https.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Ends after this many messages.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Checks a receipt: what the proxy has told the service about an item (`tidegate-receipt`).
    Receipt {
        /// The header's value, as it was kept.
        #[arg(value_name = "TEXT")]
        receipt: String,
        /// The public key of the proxy's channel; repeat it for several.
        #[arg(long, value_name = "HEX", required = true)]
        key: Vec<PublicKey>,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match &args.command {
        Command::Keygen { file } => keygen(file),
        Command::Public { file } => {
            let key = SecretKey::from_seed(&read_seed(file)?);
            print(&format!("{}\n", key.public()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Listen {
            urls,
            key,
            ca,
            count,
        } => {
            let dialer = runtime::dialer(ca.as_deref())?;
            let parents = Parents::Fixed(urls.clone());
            let relay = Relay::new(&[*key], parents, std::process::id().into());
            runtime::current_thread()?.block_on(listen(relay.with_dialer(dialer), *count))
        }
        Command::Receipt { receipt, key } => check_receipt(receipt, key),
    }
}

fn check_receipt(text: &str, keys: &[PublicKey]) -> Result<ExitCode, CliError> {
    let receipt = Receipt::read(text, keys).ok_or_else(|| {
        let cause = "the receipt is not genuine: it was changed, or another key signed it; give the key that the proxy had then";
        CliError::Usage(cause.to_owned())
    })?;
    let millis = |time: Timestamp| time.as_nanos() / 1_000_000;
    let said = serde_json::json!({
        "client": receipt.client.to_string(),
        "item": receipt.item,
        "made_ms": millis(receipt.made),
        "error_ms": receipt.error.as_millis() as u64,
        "received_ms": millis(receipt.received),
    });
    print(&format!("{said}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Says on standard error why no messages are accepted, when that changes.
pub(crate) async fn complain(status: impl Fn() -> RelayStatus) {
    let mut said = String::new();
    let mut accepted = 0;
    loop {
        tokio::time::sleep(COMPLAIN_EVERY).await;
        let status = status();
        let heard = status.messages.accepted > accepted;
        accepted = status.messages.accepted;
        let cause = if heard {
            String::new()
        } else {
            complaint(&status)
        };
        if !cause.is_empty() && cause != said {
            eprintln!("tidegate: {cause}");
        }
        said = cause;
    }
}

/// Time between two looks: longer than a keep-alive takes.
const COMPLAIN_EVERY: Duration = Duration::from_secs(3);

/// Why no messages are accepted; empty when they just do not come yet.
fn complaint(status: &RelayStatus) -> String {
    let Counts {
        key,
        forged,
        expired,
        future,
        version,
        malformed,
        ..
    } = status.messages;
    let clock = if status.clock_compared {
        "by the publisher's clock"
    } else {
        "by this machine's clock, since no publisher's could be compared: set it, or name the publisher"
    };
    if key + forged > 0 {
        return "messages arrive, but --key did not sign them; `tidegate channel public FILE` prints the key of the proxy".to_owned();
    }
    if expired + future > 0 {
        return format!("messages arrive, but are expired or from the future {clock}");
    }
    if version + malformed > 0 {
        return "messages arrive, but of another version; use the same on both sides".to_owned();
    }
    if status.messages.accepted > 0 {
        return "the channel has fallen silent".to_owned();
    }
    format!(
        "nothing is heard from {}; check the address, and that the channel listens there",
        if status.parents.is_empty() {
            "the tracker".to_owned()
        } else {
            status.parents.join(", ")
        }
    )
}

/// The seed of the secret key in a file.
pub(crate) fn read_seed(file: &Path) -> Result<[u8; 32], CliError> {
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        let file = file.display();
        eprintln!("tidegate: others can read the secret key in {file}; chmod 600 it");
    }
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    decode(&text).map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Usage(format!("{}: {error}", file.display()))
}

/// A new seed.
pub(crate) fn random_seed() -> Result<[u8; 32], CliError> {
    let mut seed = [0; 32];
    let filled = SystemRandom::new().fill(&mut seed);
    filled.map_err(|_| CliError::Usage("the system gives no random numbers".to_owned()))?;
    Ok(seed)
}

fn keygen(file: &Path) -> Result<ExitCode, CliError> {
    let seed = random_seed()?;
    let hex: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    opened
        .and_then(|mut file| writeln!(file, "{hex}"))
        .map_err(|error| unreadable(file, &error))?;
    print(&format!("{}\n", SecretKey::from_seed(&seed).public()))?;
    Ok(ExitCode::SUCCESS)
}

async fn listen(relay: Relay, count: Option<u64>) -> Result<ExitCode, CliError> {
    let status = relay.status();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let run = relay.run(move |message| {
        // Nobody listens any more when the count is reached.
        let _ = tell.send(message);
    });
    let show = async {
        let mut seen = 0;
        while let Some(message) = told.recv().await {
            let strategy = serde_json::to_string(&message.strategy).unwrap_or_default();
            let issued_ms = message.issued.as_nanos() / 1_000_000;
            let seq = message.seq;
            print(&format!(
                "{{\"seq\":{seq},\"issued_ms\":{issued_ms},\"strategy\":{strategy}}}\n"
            ))?;
            seen += 1;
            if count.is_some_and(|count| seen >= count) {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        () = run => Ok(ExitCode::FAILURE),
        () = complain(status) => Ok(ExitCode::FAILURE),
        shown = show => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(messages: Counts) -> RelayStatus {
        RelayStatus {
            seq: None,
            parents: vec!["http://a:1".to_owned()],
            messages,
            listeners: 0,
            copies: 0,
            clock_compared: false,
            clock_error_ms: 10_000,
        }
    }

    #[test]
    fn a_wrong_key_a_wrong_clock_and_silence_are_told_apart() {
        let none = Counts::default();
        for (counts, word) in [
            (Counts { key: 3, ..none }, "--key"),
            (Counts { forged: 3, ..none }, "--key"),
            (Counts { expired: 3, ..none }, "clock"),
            (Counts { version: 3, ..none }, "version"),
            (
                Counts {
                    accepted: 3,
                    ..none
                },
                "silent",
            ),
            (none, "http://a:1"),
        ] {
            let said = complaint(&status(counts));
            assert!(said.contains(word), "{said}");
        }
    }
}
