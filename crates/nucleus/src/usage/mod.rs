//! CPU time of a service, from outside of it.
//!
//! | whose | read from |
//! | --- | --- |
//! | this process | its CPU clock |
//! | a process with a cgroup (v2) to itself | `cpu.stat` of the cgroup |
//! | any other process | `/proc/*/stat` of it and of its children |
//!
//! A cgroup is taken only when it holds nothing else: one shell session is one cgroup, and what
//! the load generator next door uses is not the service's. A service with several processes (a
//! master and its workers) is found whole either way.

mod cgroup;
mod listener;
mod process;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_control::Timestamp;

use process::Processes;

/// How often a service that cannot be found is looked for again: it may be restarting. Chosen:
/// looking takes some milliseconds on a machine with many processes.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Whose CPU time is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// This process.
    This,
    /// The process with this id, and its children.
    Process(u32),
    /// All processes of this cgroup (v2), given by its directory.
    Cgroup(PathBuf),
    /// The processes of this machine that listen on one of these addresses.
    Listener(Vec<SocketAddr>),
}

/// Why CPU time cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// Nothing has that process id.
    #[error("there is no process {0}, or its /proc/{0}/stat cannot be read")]
    NoProcess(u32),
    /// The directory is no cgroup that counts CPU time.
    #[error("{} is no cgroup v2 that counts CPU time: {source}", .path.display())]
    NoCgroup {
        /// Its `cpu.stat`.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing listens there, or a process that we may not see.
    #[error("found no process that listens on {0:?}: it is not started, or another user's")]
    NobodyListens(Vec<SocketAddr>),
}

/// Reads how much CPU time a service has used so far.
#[derive(Debug)]
pub struct CpuMeter {
    whose: Whose,
    found: Option<Found>,
    look_again_at: Timestamp,
}

/// Where the CPU time of a service that runs is to be read.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    source: Source,
    cores: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Clock,
    Cgroup(PathBuf),
    Family(u32),
}

impl CpuMeter {
    /// The meter of a service that runs.
    ///
    /// # Errors
    /// It does not run, or the system does not account for it.
    pub fn new(whose: Whose) -> Result<Self, UsageError> {
        let found = System::default().find(&whose)?;
        Ok(Self {
            found: Some(found),
            ..Self::later(whose)
        })
    }

    /// The meter of a service that may be started later; it is looked for every few seconds.
    #[must_use]
    pub fn later(whose: Whose) -> Self {
        Self {
            whose,
            found: None,
            look_again_at: Timestamp::ZERO,
        }
    }

    /// How many cores the service may use: its CPU affinity, and the quota of its cgroup.
    #[must_use]
    pub fn cores(&self) -> f64 {
        self.found.as_ref().map_or(1.0, |found| found.cores)
    }

    /// CPU time used so far; `None` while the service is not there.
    pub fn read(&mut self, now: Timestamp) -> Option<Duration> {
        let system = System::default();
        if self.found.is_none() && now >= self.look_again_at {
            self.look_again_at = now + LOOK_AGAIN;
            self.found = system.find(&self.whose).ok();
        }
        let used = system.read(&self.found.as_ref()?.source);
        if used.is_none() {
            self.found = None;
        }
        used
    }
}

/// The two trees in which Linux tells about processes.
#[derive(Debug)]
struct System {
    processes: Processes,
    cgroups: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self::at(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }
}

impl System {
    fn at(proc: &Path, cgroups: &Path) -> Self {
        Self {
            processes: Processes::at(proc),
            cgroups: cgroups.to_owned(),
        }
    }

    fn find(&self, whose: &Whose) -> Result<Found, UsageError> {
        match whose {
            Whose::This => Ok(Found {
                source: Source::Clock,
                cores: self.cores(std::process::id()),
            }),
            Whose::Process(pid) => self.find_process(*pid),
            Whose::Cgroup(cgroup) => Self::find_cgroup(cgroup),
            Whose::Listener(addrs) => match listener::owner(&self.processes, addrs) {
                Some(pid) => self.find_process(pid),
                None => Err(UsageError::NobodyListens(addrs.clone())),
            },
        }
    }

    fn find_process(&self, pid: u32) -> Result<Found, UsageError> {
        let family = self
            .processes
            .family(pid)
            .ok_or(UsageError::NoProcess(pid))?;
        let cgroup = cgroup::of(&self.processes, &self.cgroups, pid)
            .filter(|cgroup| cgroup::belongs_to(cgroup, &family) && cgroup::used(cgroup).is_ok());
        Ok(Found {
            source: cgroup.map_or(Source::Family(pid), Source::Cgroup),
            cores: self.cores(pid),
        })
    }

    fn find_cgroup(cgroup: &Path) -> Result<Found, UsageError> {
        match cgroup::used(cgroup) {
            Ok(_) => Ok(Found {
                source: Source::Cgroup(cgroup.to_owned()),
                cores: cgroup::quota_cores(cgroup).unwrap_or_else(online_cores),
            }),
            Err(source) => Err(UsageError::NoCgroup {
                path: cgroup::stat(cgroup),
                source,
            }),
        }
    }

    fn cores(&self, pid: u32) -> f64 {
        let allowed = self.processes.allowed_cores(pid);
        let allowed = allowed.unwrap_or_else(online_cores);
        cgroup::of(&self.processes, &self.cgroups, pid)
            .and_then(|cgroup| cgroup::quota_cores(&cgroup))
            .map_or(allowed, |quota| quota.min(allowed))
    }

    fn read(&self, source: &Source) -> Option<Duration> {
        match source {
            Source::Clock => clock_gettime(ClockId::ProcessCPUTime).try_into().ok(),
            Source::Cgroup(cgroup) => cgroup::used(cgroup).ok(),
            Source::Family(pid) => self.processes.used(&self.processes.family(*pid)?),
        }
    }
}

fn online_cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::fs;
    use std::net::TcpListener;

    #[test]
    fn this_process_can_be_read_and_only_grows() {
        let mut meter = CpuMeter::new(Whose::This).unwrap();
        let before = meter.read(Timestamp::ZERO).unwrap();
        assert!(meter.cores() > 0.0);
        assert!(meter.read(Timestamp::ZERO).unwrap() >= before);
    }

    #[test]
    fn process_that_does_not_exist_is_an_error_that_names_it() {
        let error = CpuMeter::new(Whose::Process(u32::MAX)).unwrap_err();
        assert!(
            error.to_string().contains("no process 4294967295"),
            "{error}"
        );
        let error = CpuMeter::new(Whose::Cgroup("/nowhere".into())).unwrap_err();
        assert!(error.to_string().contains("/nowhere/cpu.stat"), "{error}");
    }

    #[test]
    fn whoever_listens_is_found_and_after_that_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let whose = Whose::Listener(vec![listener.local_addr().unwrap()]);
        let mut meter = CpuMeter::new(whose.clone()).unwrap();
        assert!(meter.read(Timestamp::ZERO).is_some());
        drop(listener);
        assert!(matches!(
            CpuMeter::new(whose),
            Err(UsageError::NobodyListens(_))
        ));
    }

    #[test]
    fn service_that_starts_late_is_found_when_it_is_looked_for_again() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let mut meter = CpuMeter::later(Whose::Listener(vec![addr]));
        assert_eq!(meter.read(Timestamp::ZERO), None);
        socket.listen(1).unwrap();
        assert_eq!(meter.read(Timestamp::from_secs_f64(4.9)), None);
        assert!(meter.read(Timestamp::from_secs_f64(5.0)).is_some());
    }

    /// A machine with one service (process 7, worker 8) in a cgroup with a quota.
    fn machine(members: &str) -> (tempfile::TempDir, System) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (pid, parent, children) in [(1, 0, "7 9 "), (7, 1, "8 "), (8, 7, ""), (9, 1, "")] {
            let times = format!("{pid} (a) S {parent} 0 0 0 0 0 0 0 0 0 100 50 0 0 0 0");
            write(&format!("proc/{pid}/stat"), &times);
            write(&format!("proc/{pid}/task/{pid}/children"), children);
        }
        write("proc/7/cgroup", "0::/shop\n");
        write("proc/7/status", "Name:\ta\nCpus_allowed_list:\t0-3,8\n");
        write("cgroup/shop/cgroup.type", "domain\n");
        write("cgroup/shop/cgroup.procs", members);
        write("cgroup/shop/cpu.stat", "usage_usec 9000000\n");
        write("cgroup/shop/cpu.max", "150000 100000\n");
        let system = System::at(&root.path().join("proc"), &root.path().join("cgroup"));
        (root, system)
    }

    #[test]
    fn cgroup_of_its_own_is_read_and_a_shared_one_is_not() {
        for (members, used_s) in [("7\n8\n", 9), ("1\n7\n", 9), ("7\n8\n9\n", 3)] {
            let (_root, system) = machine(members);
            let found = system.find(&Whose::Process(7)).unwrap();
            let used = system.read(&found.source);
            assert_eq!(used, Some(Duration::from_secs(used_s)), "{members:?}");
            assert_eq!(found.cores, 1.5);
        }
    }

    #[test]
    fn without_a_quota_the_affinity_counts() {
        let (root, system) = machine("7\n");
        fs::write(root.path().join("cgroup/shop/cpu.max"), "max 100000\n").unwrap();
        let found = system.find(&Whose::Process(7)).unwrap();
        assert_eq!(found.cores, 5.0);
    }
}
