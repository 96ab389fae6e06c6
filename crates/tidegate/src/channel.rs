//! `tidegate channel`: keys, and a look at the messages.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ring::rand::{SecureRandom, SystemRandom};
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
        /// Ends after so many messages.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match &args.command {
        Command::Keygen { file } => keygen(file),
        Command::Public { file } => {
            let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
            let key: SecretKey = text.parse().map_err(|error| unreadable(file, &error))?;
            print(&format!("{}\n", key.public()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Listen { urls, key, count } => {
            runtime::current_thread()?.block_on(listen(urls, *key, *count))
        }
    }
}

fn unreadable(file: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError::Usage(format!("{}: {error}", file.display()))
}

fn keygen(file: &Path) -> Result<ExitCode, CliError> {
    let mut seed = [0; 32];
    SystemRandom::new()
        .fill(&mut seed)
        .map_err(|_| CliError::Usage("the system gives no random numbers".to_owned()))?;
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

async fn listen(urls: &[String], key: PublicKey, count: Option<u64>) -> Result<ExitCode, CliError> {
    let relay = Relay::new(
        &[key],
        Parents::Fixed(urls.to_vec()),
        std::process::id().into(),
    );
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
