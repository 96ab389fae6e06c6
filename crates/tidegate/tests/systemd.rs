//! The proxy as a service of systemd: what it reports to `NOTIFY_SOCKET`, and its socket units.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;
use tidegate_testing::blocking;
use tidegate_testing::process::{Process, Signal};

/// Where systemd would read.
struct Supervisor {
    socket: UnixDatagram,
    dir: TempDir,
}

impl Supervisor {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
        Self { socket, dir }
    }

    /// A proxy in front of nothing, as the unit starts it.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let line = "run --json --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
                    --upstream http://127.0.0.1:1";
        command
            .args(line.split_whitespace())
            .env("NOTIFY_SOCKET", self.dir.path().join("notify"))
            .stderr(Stdio::null());
        command
    }

    /// The next datagram that names `key`, as its lines.
    fn read(&self, key: &str) -> Vec<String> {
        loop {
            let mut buffer = [0; 4096];
            let length = self.socket.recv(&mut buffer).expect("a datagram");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            if lines.iter().any(|line| line.starts_with(key)) {
                return lines;
            }
        }
    }

    /// Drops what was sent so far.
    fn forget(&self) {
        self.socket.set_nonblocking(true).expect("it is open");
        while self.socket.recv(&mut [0; 4096]).is_ok() {}
        self.socket.set_nonblocking(false).expect("it is open");
    }

    fn main_pid(&self) -> u32 {
        let lines = self.read("MAINPID=");
        assert!(lines.iter().any(|line| line == "READY=1"), "{lines:?}");
        let pid = lines.iter().find_map(|line| line.strip_prefix("MAINPID="));
        pid.and_then(|pid| pid.parse().ok()).expect("a process id")
    }
}

#[test]
fn proxy_reports_that_it_serves_and_that_it_stops() {
    let supervisor = Supervisor::new();
    let mut proxy = Process::spawn(&mut supervisor.command());
    assert_eq!(supervisor.main_pid(), proxy.id());
    proxy.signal(Signal::TERM);
    assert_eq!(supervisor.read("STOPPING="), ["STOPPING=1"]);
    assert!(proxy.wait().success());
}

#[test]
fn watchdog_is_fed_while_the_data_plane_runs() {
    let supervisor = Supervisor::new();
    let mut command = supervisor.command();
    command.env("WATCHDOG_USEC", "2000000");
    let proxy = Process::spawn(&mut command);
    for _ in 0..3 {
        assert_eq!(supervisor.read("WATCHDOG="), ["WATCHDOG=1"]);
    }
    proxy.finish();
}

#[test]
fn successor_names_itself_the_main_process_and_feeds_the_watchdog() {
    let supervisor = Supervisor::new();
    let mut command = supervisor.command();
    let mut old = Process::spawn(command.env("WATCHDOG_USEC", "2000000"));
    assert_eq!(supervisor.main_pid(), old.id());
    old.signal(Signal::USR2);
    let successor = supervisor.main_pid();
    assert_ne!(successor, old.id());
    assert!(old.wait().success(), "the old one ends in order");
    // What the old one sent is taken out: from now on only its successor can feed it.
    supervisor.forget();
    supervisor.read("WATCHDOG=");
    let successor = i32::try_from(successor).ok().and_then(Pid::from_raw);
    kill_process(successor.expect("a process id"), Signal::TERM).expect("it runs");
    assert_eq!(supervisor.read("STOPPING="), ["STOPPING=1"]);
}

/// As `dist/systemd/tidegate.socket` and `tidegate-admin.socket` pass them on.
#[test]
fn sockets_of_units_are_taken_over_by_their_names() {
    let supervisor = Supervisor::new();
    let sockets = ["listen-0", "admin"].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let addrs = [0, 1].map(|at: usize| sockets[at].local_addr().expect("an address").to_string());
    let mappings = sockets.into_iter().zip(3..);
    let mappings = mappings.map(|(socket, child_fd)| FdMapping {
        parent_fd: socket.into(),
        child_fd,
    });
    let mut command = supervisor.command();
    command
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", "listen-0:admin")
        .fd_mappings(mappings.collect())
        .expect("two descriptors");
    let proxy = Process::spawn(&mut command);
    assert_eq!([proxy.addr("listen"), proxy.addr("admin")], addrs);
    assert_eq!(blocking::get(&addrs[1], "/healthz").status, 200);
    proxy.finish();
}

#[test]
fn units_run_commands_that_exist_and_name_sockets_that_are_taken_over() {
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/systemd");
    for entry in std::fs::read_dir(units).expect("the units") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let commands = text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/tidegate "));
        for line in commands {
            let subcommand = line.split(' ').next().expect("a word");
            let help = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args([subcommand, "--help"])
                .output()
                .expect("runs");
            assert!(help.status.success(), "{name}: {line}");
        }
        if name.ends_with(".socket") {
            let named = text
                .lines()
                .find_map(|line| line.strip_prefix("FileDescriptorName="));
            assert!(
                matches!(named, Some("listen-0" | "admin")),
                "{name}: {named:?}"
            );
        }
    }
}

/// What systemd itself says of the units, where it is installed; of a typing error it says a line.
#[test]
fn units_are_what_systemd_knows() {
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/systemd");
    let verify = |path: &std::path::Path| {
        let mut command = Command::new("systemd-analyze");
        let said = command
            .args(["verify", "--man=no"])
            .arg(path)
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&said.stderr).into_owned())
    };
    // The program is not where the package installs it.
    let wrong = |said: &str| said.lines().any(|line| !line.contains("not executable"));
    let misspelt = tempfile::tempdir().expect("a directory");
    let misspelt = misspelt.path().join("misspelt.service");
    std::fs::write(&misspelt, "[Service]\nExecStart=/bin/true\nWatchdogSek=1\n").expect("writes");
    let Some(said) = verify(&misspelt) else {
        return;
    };
    // A machine whose systemd has no units of its own complains of each.
    if !said.contains("WatchdogSek") || said.contains("not found") {
        return;
    }
    for entry in std::fs::read_dir(units).expect("the units") {
        let path = entry.expect("an entry").path();
        if path
            .extension()
            .is_some_and(|it| it == "service" || it == "socket")
        {
            let said = verify(&path).expect("it ran before");
            assert!(!wrong(&said), "{said}");
        }
    }
}
