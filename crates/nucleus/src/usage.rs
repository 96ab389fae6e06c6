//! CPU time of a service, from outside of it: cgroup v2 where it has one of its own, `/proc`
//! otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why CPU time cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the CPU time of process {pid}: {path}: {source}")]
pub struct UsageError {
    pid: u32,
    path: PathBuf,
    source: std::io::Error,
}

/// Reads how much CPU time a process, or the cgroup it lives in, has used so far.
#[derive(Debug, Clone)]
pub struct CpuMeter {
    source: Source,
    cores: f64,
}

#[derive(Debug, Clone)]
enum Source {
    Cgroup(PathBuf),
    Process(PathBuf),
}

/// `USER_HZ` of every Linux on the architectures we build for; the kernel fixes it in its ABI.
const TICKS_PER_SECOND: f64 = 100.0;

impl CpuMeter {
    /// The meter for a process; `None` means this one.
    ///
    /// # Errors
    /// The process does not exist, or the system has no `/proc`.
    pub fn new(pid: Option<u32>) -> Result<Self, UsageError> {
        let pid = pid.unwrap_or_else(std::process::id);
        let meter = Self::at(Path::new("/proc"), Path::new("/sys/fs/cgroup"), pid);
        let path = match &meter.source {
            Source::Cgroup(path) | Source::Process(path) => path.clone(),
        };
        meter
            .read()
            .map(|_| meter)
            .map_err(|source| UsageError { pid, path, source })
    }

    fn at(proc: &Path, cgroups: &Path, pid: u32) -> Self {
        let all_cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        match own_cgroup(proc, cgroups, pid) {
            Some(cgroup) => Self {
                cores: quota_cores(&cgroup).unwrap_or(all_cores),
                source: Source::Cgroup(cgroup.join("cpu.stat")),
            },
            None => Self {
                cores: all_cores,
                source: Source::Process(proc.join(pid.to_string()).join("stat")),
            },
        }
    }

    /// How many cores it may use: the quota of its cgroup, or all there are.
    #[must_use]
    pub fn cores(&self) -> f64 {
        self.cores
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// The process is gone.
    pub fn read(&self) -> std::io::Result<Duration> {
        let (path, parse): (_, fn(&str) -> Option<Duration>) = match &self.source {
            Source::Cgroup(path) => (path, parse_cgroup),
            Source::Process(path) => (path, parse_process),
        };
        parse(&fs::read_to_string(path)?)
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "unknown format"))
    }
}

/// The cgroup of a process, unless it is the root: that one accounts for the whole machine.
fn own_cgroup(proc: &Path, cgroups: &Path, pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(proc.join(pid.to_string()).join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let cgroup = cgroups.join(path);
    (!path.is_empty() && cgroup.join("cpu.stat").exists()).then_some(cgroup)
}

/// `cpu.max` is "max 100000" or "quota period" in microseconds.
fn quota_cores(cgroup: &Path) -> Option<f64> {
    let text = fs::read_to_string(cgroup.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    let cores = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
    (cores.is_finite() && cores > 0.0).then_some(cores)
}

fn parse_cgroup(text: &str) -> Option<Duration> {
    let usec = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    usec.trim().parse().ok().map(Duration::from_micros)
}

/// User and system time are the 14th and 15th fields; the second may contain blanks, but ends with
/// the last closing parenthesis.
fn parse_process(text: &str) -> Option<Duration> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    Some(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_formats() {
        let cgroup = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n";
        assert_eq!(parse_cgroup(cgroup), Some(Duration::from_millis(1500)));
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(parse_process(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_process("garbage"), None);
    }

    #[test]
    fn this_process_can_be_read_and_only_grows() {
        let meter = CpuMeter::new(None).unwrap();
        let before = meter.read().unwrap();
        assert!(meter.cores() > 0.0);
        assert!(meter.read().unwrap() >= before);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error_that_names_it() {
        let error = CpuMeter::new(Some(u32::MAX)).unwrap_err().to_string();
        assert!(error.contains("process 4294967295"), "{error}");
    }
}
