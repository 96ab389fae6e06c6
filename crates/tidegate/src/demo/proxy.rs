//! Tidegate as a user would start it: this same binary, `run`, with the replicas and nothing else.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::error::CliError;

/// A running proxy; ends when dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    process: Child,
    addr: SocketAddr,
}

/// What `tidegate run --json` says first.
#[derive(Deserialize)]
struct Bound {
    listen: SocketAddr,
}

/// Starts the proxy in front of `replicas` and waits until it listens.
pub(super) fn start(replicas: &[SocketAddr]) -> Result<Proxy, CliError> {
    let failed = |error: io::Error| CliError::Usage(format!("cannot start the proxy: {error}"));
    let mut process = spawn(replicas).map_err(failed)?;
    match first_line(&mut process) {
        Ok(Bound { listen }) => Ok(Proxy {
            process,
            addr: listen,
        }),
        Err(error) => {
            let _ = process.kill();
            let _ = process.wait();
            Err(failed(error))
        }
    }
}

fn spawn(replicas: &[SocketAddr]) -> io::Result<Child> {
    let upstreams = replicas
        .iter()
        .flat_map(|addr| ["--upstream".to_owned(), format!("http://{addr}")]);
    Command::new(std::env::current_exe()?)
        .args([
            "run",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ])
        .args(upstreams)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

fn first_line(process: &mut Child) -> io::Result<Bound> {
    let stdout = process.stdout.take().expect("standard output is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

impl Proxy {
    /// Where it listens.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its only clients are ours: nothing is lost by ending it at once.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
