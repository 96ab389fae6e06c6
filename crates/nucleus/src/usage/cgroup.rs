//! Control groups, version 2 (the kernel's `admin-guide/cgroup-v2`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::Processes;

/// The directory of a process's cgroup, unless it is the root: that one has the whole machine in
/// it. Inside of a container the root of the tree is the container's own, which has a type.
pub(super) fn of(processes: &Processes, cgroups: &Path, pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(processes.file(pid, "cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let cgroup = cgroups.join(path);
    cgroup.join("cgroup.type").exists().then_some(cgroup)
}

/// Whether a cgroup holds the service alone. Process 1 is what starts it in a container.
pub(super) fn belongs_to(cgroup: &Path, family: &[u32]) -> bool {
    let Ok(text) = fs::read_to_string(cgroup.join("cgroup.procs")) else {
        return false;
    };
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .all(|pid: u32| pid == 1 || family.contains(&pid))
}

/// The file that has its CPU time.
pub(super) fn stat(cgroup: &Path) -> PathBuf {
    cgroup.join("cpu.stat")
}

/// CPU time that all its processes have used.
pub(super) fn used(cgroup: &Path) -> io::Result<Duration> {
    parse_used(&fs::read_to_string(stat(cgroup))?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no usage_usec in it"))
}

fn parse_used(text: &str) -> Option<Duration> {
    let usec = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    usec.trim().parse().ok().map(Duration::from_micros)
}

/// How many cores it may use: the tightest quota from it up to the root.
pub(super) fn quota_cores(cgroup: &Path) -> Option<f64> {
    cgroup
        .ancestors()
        .take_while(|level| level.join("cgroup.type").exists())
        .filter_map(|level| parse_quota(&fs::read_to_string(level.join("cpu.max")).ok()?))
        .min_by(f64::total_cmp)
}

/// `cpu.max` is "max 100000" or "quota period" in microseconds.
fn parse_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let cores = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
    (cores.is_finite() && cores > 0.0).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let stat = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n";
        assert_eq!(parse_used(stat), Some(Duration::from_millis(1500)));
        assert_eq!(parse_used("user_usec 1\n"), None);
        assert_eq!(parse_quota("50000 100000\n"), Some(0.5));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert_eq!(parse_quota("0 0\n"), None);
    }

    #[test]
    fn tightest_quota_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("outer/inner");
        fs::create_dir_all(&inner).unwrap();
        for (cgroup, quota) in [(&*inner, "400000"), (inner.parent().unwrap(), "150000")] {
            fs::write(cgroup.join("cgroup.type"), "domain\n").unwrap();
            fs::write(cgroup.join("cpu.max"), format!("{quota} 100000\n")).unwrap();
        }
        assert_eq!(quota_cores(&inner), Some(1.5));
    }
}
