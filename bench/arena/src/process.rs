//! Child processes: started, waited for, measured, and ended with the value that stands for them.

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// How long a server may take until it accepts connections.
const START_MAX: Duration = Duration::from_secs(20);

/// Linux takes ports from 32768 on for outgoing connections.
const PORT_MIN: u16 = 12_000;
const PORTS: u32 = 20_000;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    addr: SocketAddr,
    process: Child,
}

impl Server {
    /// Starts `command`, which will listen on `addr`, and waits until it does.
    pub(crate) fn start(
        name: &str,
        addr: SocketAddr,
        command: &mut Command,
    ) -> Result<Self, Failure> {
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Failure::system(format!("cannot start {name}")))?;
        let mut server = Self {
            name: name.to_owned(),
            addr,
            process,
        };
        server.wait_until_ready()?;
        server.forget_messages();
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect_timeout(&self.addr, Duration::from_secs(1)).is_err() {
            let ended = self.process.try_wait();
            let ended = ended.map_err(Failure::system(self.name.clone()))?;
            if let Some(status) = ended {
                let messages = self.messages();
                return Err(Failure::said(format!("{} {status}: {messages}", self.name)));
            }
            if Instant::now() > deadline {
                return Err(Failure::said(format!(
                    "{} does not listen on {}",
                    self.name, self.addr
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What an ended process wrote to standard error.
    fn messages(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            // Whatever could be read is better than nothing.
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    /// Reads standard error so that the pipe never fills.
    fn forget_messages(&mut self) {
        if let Some(mut stderr) = self.process.stderr.take() {
            thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// User and system time of the process and its children so far.
    pub(crate) fn cpu(&self) -> Duration {
        tree(self.process.id()).into_iter().map(cpu_of).sum()
    }

    /// Ends it as a crash would, and waits for its end.
    pub(crate) fn kill(&mut self) {
        // A process that has ended already is what we want.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    /// A master process takes its workers with it when asked politely, not when killed.
    fn drop(&mut self) {
        let id = i32::try_from(self.process.id()).ok();
        if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }
}

/// A free port, below those that the system gives to outgoing connections: with thousands of these,
/// one that was free a moment ago would not be when its server comes to listen.
pub(crate) fn free_addr() -> Result<SocketAddr, Failure> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Another arena on the same machine begins elsewhere.
    let first = std::process::id().wrapping_mul(61);
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORT_MIN + (first.wrapping_add(step) % PORTS) as u16;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(addr).is_ok() {
            return Ok(addr);
        }
    }
    Err(Failure::said("no free port"))
}

/// A process and its descendants.
fn tree(id: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    std::iter::once(id).chain(children.flat_map(tree)).collect()
}

fn cpu_of(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    ticks(&stat).map_or(Duration::ZERO, |ticks| {
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    })
}

/// User and system time of a line of `/proc/ID/stat`; the name before them may contain spaces.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 30 12 13 14";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn our_own_time_is_found() {
        assert!(fs::read_to_string("/proc/self/stat").is_ok_and(|stat| ticks(&stat).is_some()));
    }
}
