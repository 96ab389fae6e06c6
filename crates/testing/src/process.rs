//! Processes that say where they listen, ended with the test that started them.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, kill_process};
use serde_json::Value;

pub use rustix::process::Signal;

/// A running program whose first line of output is a JSON object with the addresses of its
/// listeners.
#[derive(Debug)]
pub struct Process {
    child: Child,
    announced: Value,
    /// Open as long as the process runs: it, or its successor, may write more.
    _stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a program and waits until it listens. What it writes for its operator is dropped.
    ///
    /// # Panics
    /// When it does not start, or says something else first.
    pub fn start(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).stderr(Stdio::null());
        Self::spawn(&mut command)
    }

    /// The same, for a command that is ready but for its input and output.
    ///
    /// # Panics
    /// As [`Process::start`].
    pub fn spawn(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("its output is piped");
        let (mut stdout, mut line) = (BufReader::new(stdout), String::new());
        stdout.read_line(&mut line).expect("its output is text");
        let announced = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        Self {
            child,
            announced,
            _stdout: stdout,
        }
    }

    /// The address of a listener.
    ///
    /// # Panics
    /// When it has no such listener.
    #[must_use]
    pub fn addr(&self, listener: &str) -> &str {
        self.announced[listener].as_str().expect("it listens there")
    }

    /// The same, as the beginning of a URL, without a slash at its end.
    ///
    /// # Panics
    /// As [`Process::addr`].
    #[must_use]
    pub fn url(&self, listener: &str) -> String {
        format!("http://{}", self.addr(listener))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it writes for its operator, of a command that pipes it.
    ///
    /// # Panics
    /// When it was taken before, or is not piped.
    pub fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("it is piped")
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When the system does not tell.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("its end is seen")
    }

    /// Ends it as an operator does.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn finish(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
