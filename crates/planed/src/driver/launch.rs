//! Where a server comes from: a process that is started, or the next of a list.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A process is ended for good after this time.
const TERM_TIME: Duration = Duration::from_secs(5);

/// How often a process that is no child of ours is looked at while it ends.
const ENDED_INTERVAL: Duration = Duration::from_millis(50);

/// A server that was started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) url: String,
    pub(crate) process: Option<Process>,
}

/// A process: a child of ours, or one that an earlier daemon started.
#[derive(Debug)]
pub(crate) enum Process {
    Child(Child),
    Adopted(u32),
}

impl Process {
    pub(crate) fn id(&self) -> Option<u32> {
        match self {
            Self::Child(child) => child.id(),
            Self::Adopted(id) => Some(*id),
        }
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self {
            Self::Child(child) => match child.try_wait() {
                Ok(Some(status)) => Some(status.to_string()),
                Ok(None) => None,
                Err(error) => Some(error.to_string()),
            },
            Self::Adopted(id) => command_line(*id).is_none().then(|| "it is gone".to_owned()),
        }
    }

    /// Asks it to end, and ends it if it does not.
    pub(crate) async fn stop(mut self) {
        let Some(pid) = self.id().and_then(|id| Pid::from_raw(id.cast_signed())) else {
            return;
        };
        let _ = kill_process(pid, Signal::TERM);
        if timeout(TERM_TIME, self.wait()).await.is_err() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits for its end; one that is no child of ours is looked at now and then.
    async fn wait(&mut self) {
        match self {
            Self::Child(child) => drop(child.wait().await),
            Self::Adopted(_) => {
                while self.ended().is_none() {
                    tokio::time::sleep(ENDED_INTERVAL).await;
                }
            }
        }
    }
}

/// The command line of a process, where it runs.
fn command_line(id: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    (!line.is_empty()).then_some(line)
}

/// Where servers come from.
#[derive(Debug)]
pub(crate) enum Launcher {
    Processes(Processes),
    List(List),
}

impl Launcher {
    /// Starts one; `used` are the addresses of those there are.
    pub(crate) fn launch(&self, used: &[&str]) -> Result<Launched, String> {
        match self {
            Self::Processes(processes) => processes.launch(),
            Self::List(list) => list.launch(used),
        }
    }

    /// A server of an earlier daemon, if it may be taken over. A process has to be the one that was
    /// started with this port: its number may have been given to another one since.
    pub(crate) fn adopt(&self, url: &str, pid: Option<u32>) -> Option<Launched> {
        let process = match self {
            Self::List(list) => {
                list.urls.iter().find(|known| *known == url)?;
                None
            }
            Self::Processes(_) => {
                let (pid, port) = (pid?, url.rsplit(':').next()?);
                command_line(pid).filter(|line| line.contains(port))?;
                Some(Process::Adopted(pid))
            }
        };
        Some(Launched {
            url: url.to_owned(),
            process,
        })
    }
}

/// Processes of this machine.
#[derive(Debug)]
pub(crate) struct Processes {
    command: Vec<String>,
    /// Where their output goes.
    log: Option<PathBuf>,
}

impl Processes {
    pub(crate) fn new(command: &[String], log: Option<&Path>) -> Self {
        Self {
            command: command.to_vec(),
            log: log.map(Path::to_owned),
        }
    }

    /// The file for a server's output, twice: for both of its streams.
    fn output(&self, port: u16) -> Result<(Stdio, Stdio), String> {
        let Some(log) = &self.log else {
            return Ok((Stdio::null(), Stdio::null()));
        };
        let path = log.to_string_lossy().replace("{port}", &port.to_string());
        let open = || -> std::io::Result<(File, File)> {
            let file = OpenOptions::new().append(true).create(true).open(&path)?;
            Ok((file.try_clone()?, file))
        };
        let (out, error) = open().map_err(|error| {
            format!("cannot write {path}: {error}; choose another `log` for the driver")
        })?;
        Ok((out.into(), error.into()))
    }

    fn launch(&self) -> Result<Launched, String> {
        let port = free_port().map_err(|error| format!("no free port: {error}"))?;
        let parts = self
            .command
            .iter()
            .map(|part| part.replace("{port}", &port.to_string()));
        let parts: Vec<String> = parts.collect();
        let (program, arguments) = parts.split_first().ok_or("`command` is empty")?;
        let (output, errors) = self.output(port)?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0) // ctrl-C in the daemon's terminal is not for servers
            .spawn();
        let child = child.map_err(|error| {
            format!("cannot start `{program}`: {error}; correct `command` of the driver")
        })?;
        Ok(Launched {
            url: format!("http://127.0.0.1:{port}"),
            process: Some(Process::Child(child)),
        })
    }
}

/// A port that was free a moment ago.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Servers that run already.
#[derive(Debug)]
pub(crate) struct List {
    urls: Vec<String>,
}

impl List {
    pub(crate) fn new(urls: &[String]) -> Self {
        Self {
            urls: urls.to_vec(),
        }
    }

    fn launch(&self, used: &[&str]) -> Result<Launched, String> {
        let free = self.urls.iter().find(|url| !used.contains(&url.as_str()));
        let url = free.ok_or_else(|| {
            format!(
                "all {} servers of the list are in use: add `urls`",
                self.urls.len()
            )
        })?;
        Ok(Launched {
            url: url.clone(),
            process: None,
        })
    }
}
