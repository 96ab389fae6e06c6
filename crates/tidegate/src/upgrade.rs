//! One process takes over from another without a connection refused.
//!
//! On SIGUSR2 the proxy starts its own command line again, which by now may be another binary, and
//! passes its listening sockets on, in the way of systemd's socket activation: from descriptor 3
//! on, `LISTEN_FDS` many, `LISTEN_FDNAMES` says which is which. What it has learnt goes with them:
//! in a variable, or through standard input where that would be too long.
//! Once the new process serves it tells the old one by SIGTERM, which finishes what it has and
//! ends. If the new process fails before that, the old one goes on as if nothing had happened.
//!
//! Decision: docs/decisions/0037-upgrade-by-passing-sockets.md.

use std::env;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{self, ExitStatus, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use listenfd::ListenFd;
use rustix::process::{Pid, Signal, getppid, kill_process};
use tidegate_proxy::{Inherited, SavedState, notice};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::systemd::WATCHDOG_PID;

/// Process id of the one that is relieved once this one serves.
const PREDECESSOR: &str = "TIDEGATE_PREDECESSOR";
/// Names of the sockets, separated by colons (sd_listen_fds_with_names(3)).
const NAMES: &str = "LISTEN_FDNAMES";
/// Where passed descriptors begin.
const DESCRIPTOR_FIRST: i32 = 3;

/// What the predecessor has learnt ([`SavedState`]), or [`BY_STDIN`].
const SAVED_STATE: &str = "TIDEGATE_SAVED_STATE";
/// A variable with its name takes less than this (execve(2), `MAX_ARG_STRLEN`).
const VARIABLE_MAX: usize = 128 << 10;
/// What has been learnt is read from standard input.
const BY_STDIN: &str = "stdin";

/// What was passed to this process. To be called first of all: it changes the
/// environment, which other threads may read.
pub(crate) fn inherited() -> Inherited {
    let names = env::var(NAMES).unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let sockets = names.split(':').enumerate().filter_map(|(index, name)| {
        let socket = passed.take_tcp_listener(index).ok().flatten()?;
        Some((name.to_owned(), socket))
    });
    Inherited {
        sockets: sockets.collect(),
        saved_state: env::var(SAVED_STATE).ok().as_deref().and_then(passed_on),
    }
}

/// What the predecessor has learnt; nothing where that is not to be had.
fn passed_on(variable: &str) -> Option<SavedState> {
    let parsed = match variable {
        BY_STDIN => io::read_to_string(io::stdin()).and_then(|it| Ok(SavedState::parse(&it)?)),
        text => SavedState::parse(text).map_err(io::Error::from),
    };
    let lost = |error: &io::Error| {
        notice(format_args!(
            "what was learnt before was not passed on and is learnt again: {error}"
        ));
    };
    parsed.inspect_err(lost).ok()
}

/// Whether this process takes over from one that waits for it.
pub(crate) fn is_successor() -> bool {
    predecessor().is_some()
}

/// Tells the process that this one takes over from to finish.
pub(crate) fn relieve_predecessor() {
    if let Some(pid) = predecessor() {
        // If it has ended meanwhile, all the better.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// It is the parent as long as it lives; nobody else is told to end.
fn predecessor() -> Option<Pid> {
    let named: i32 = env::var(PREDECESSOR).ok()?.parse().ok()?;
    getppid().filter(|parent| parent.as_raw_nonzero().get() == named)
}

/// What is needed to start a successor.
#[derive(Debug)]
pub(crate) struct Handover {
    sockets: Vec<(String, TcpListener)>,
    successor: Option<Child>,
}

impl Handover {
    pub(crate) fn of(sockets: Vec<(String, TcpListener)>) -> Self {
        Self {
            sockets,
            successor: None,
        }
    }

    /// Starts this command line again, with what has been learnt so far.
    pub(crate) fn start(&mut self, saved: &SavedState) -> io::Result<()> {
        if self.has_successor() {
            let busy = "the process started by the last SIGUSR2 has not taken over yet";
            return Err(io::Error::other(busy));
        }
        let mut line = env::args_os();
        let program = line.next().ok_or(io::ErrorKind::NotFound)?;
        let names: Vec<_> = self.sockets.iter().map(|(name, _)| name.as_str()).collect();
        let mut command = process::Command::new(program);
        command
            .args(line)
            .env("LISTEN_FDS", names.len().to_string())
            .env_remove("LISTEN_PID")
            .env(NAMES, names.join(":"))
            .env(PREDECESSOR, process::id().to_string())
            .env_remove(WATCHDOG_PID)
            .fd_mappings(self.mappings()?)
            .map_err(io::Error::other)?;
        let saved = saved.to_string();
        let fits = SAVED_STATE.len() + saved.len() < VARIABLE_MAX;
        if fits {
            command.env(SAVED_STATE, saved);
            self.successor = Some(Command::from(command).spawn()?);
            return Ok(());
        }
        command.env(SAVED_STATE, BY_STDIN).stdin(Stdio::piped());
        let mut successor = Command::from(command).spawn()?;
        if let Some(mut stdin) = successor.stdin.take() {
            // A successor that does not read it has ended, which is noticed elsewhere.
            tokio::spawn(async move { stdin.write_all(saved.as_bytes()).await });
        }
        self.successor = Some(successor);
        Ok(())
    }

    fn mappings(&self) -> io::Result<Vec<FdMapping>> {
        let sockets = self.sockets.iter().zip(DESCRIPTOR_FIRST..);
        let mapping = |((_, socket), child_fd): (&(String, TcpListener), i32)| {
            Ok(FdMapping {
                parent_fd: OwnedFd::from(socket.try_clone()?),
                child_fd,
            })
        };
        sockets.map(mapping).collect()
    }

    /// Whether a process that was started has not ended.
    pub(crate) fn has_successor(&self) -> bool {
        self.successor.is_some()
    }

    /// Waits for the successor to end, which it should not; for ever if there is none.
    pub(crate) async fn successor_ended(&mut self) -> io::Result<ExitStatus> {
        let Some(successor) = &mut self.successor else {
            return std::future::pending().await;
        };
        let ended = successor.wait().await;
        self.successor = None;
        ended
    }
}
