//! Tidegate as a user would start it: this same binary, `run`, with the replicas and nothing else.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::error::CliError;

/// A running proxy; ends when dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    _process: Process,
    addr: SocketAddr,
}

impl Proxy {
    /// Starts the proxy in front of `replicas` and waits until it listens.
    pub(super) fn start(replicas: &[SocketAddr]) -> Result<Self, CliError> {
        let failed = |error: io::Error| CliError::Usage(format!("cannot start the proxy: {error}"));
        let mut process = Process::spawn(replicas).map_err(failed)?;
        let Bound { listen } = process.first_line().map_err(failed)?;
        Ok(Self {
            _process: process,
            addr: listen,
        })
    }

    /// Where it listens.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

#[derive(Debug)]
struct Process(Child);

/// What `tidegate run --json` says first.
#[derive(Deserialize)]
struct Bound {
    listen: SocketAddr,
}

impl Process {
    fn spawn(replicas: &[SocketAddr]) -> io::Result<Self> {
        let upstreams = replicas
            .iter()
            .flat_map(|addr| ["--upstream".to_owned(), format!("http://{addr}")]);
        Command::new(std::env::current_exe()?)
            .args(["run", "--json", "--listen", "127.0.0.1:0", "--admin", "off"])
            .args(upstreams)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map(Self)
    }

    fn first_line(&mut self) -> io::Result<Bound> {
        let stdout = self.0.stdout.take().expect("standard output is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its only clients are ours: nothing is lost by ending it at once.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
