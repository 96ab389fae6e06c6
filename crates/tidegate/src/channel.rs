//! `tidegate channel`: keys, and a look at the messages.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_channel::key::decode;
use tidegate_channel::net::Relay;
use tidegate_channel::net::relay::Parents;
use tidegate_channel::{PublicKey, SecretKey};

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
        /// Ends after so many messages.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
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
    }
}

/// The seed of the secret key in a file.
pub(crate) fn read_seed(file: &Path) -> Result<[u8; 32], CliError> {
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
        shown = show => shown,
    }
}
