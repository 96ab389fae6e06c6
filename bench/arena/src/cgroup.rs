//! A limit on the processor time of a process, by a control group of its own.
//!
//! Both generations of the interface are understood: `cpu.max` of version 2 and `cpu.cfs_quota_us`
//! of version 1. Making a group takes root, or a parent group that was delegated to us.
//!
//! Decision: docs/decisions/0312-computing-replica-on-one-processor.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Short, so that a process that has used up its share is stopped for milliseconds, not for a tenth
/// of a second.
const PERIOD_US: u64 = 20_000;

/// The kernel refuses less.
const QUOTA_MIN_US: u64 = 1_000;

/// Keeps this thread, and those it starts from now on, on one processor, the `index`th of those it
/// may run on.
///
/// The kernel hands a group's time out to each processor in slices as long as our whole quota.
/// Threads on two processors leave parts of a slice on the one they are not on: of a quota that is
/// used up in every period, 3 to 8 % are never used (measured with two to eight requests at once).
/// On one processor a group gets all of it.
pub(crate) fn stay_on_one_processor(index: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&processor| allowed.is_set(processor))
        .collect();
    let mut one = CpuSet::new();
    one.set(processors[index % processors.len()]);
    Ok(sched_setaffinity(None, &one)?)
}

/// A group with one process in it; removed when dropped, which has to be after the end of the
/// process.
#[derive(Debug)]
pub(crate) struct CpuLimit {
    folder: PathBuf,
    interface: Interface,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    Quota,
    Max,
}

impl CpuLimit {
    /// Moves a process into a new group that may use `share` of one processor.
    pub(crate) fn of(process: u32, share: f64) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let (parent, interface) = controller(&mounts).ok_or_else(|| {
            io::Error::other("no control groups with a limit on processor time are mounted")
        })?;
        let folder = parent.join(format!("tidegate-arena-{process}"));
        if interface == Interface::Max {
            // Refused where it is on already, or where the parent has processes of its own; the
            // limit itself says then what is wrong.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
        }
        fs::create_dir(&folder).map_err(|error| named(&error, &folder))?;
        let limit = Self { folder, interface };
        limit.set(share)?;
        limit.write("cgroup.procs", &process.to_string())?;
        Ok(limit)
    }

    /// Changes the share of one processor.
    pub(crate) fn set(&self, share: f64) -> io::Result<()> {
        let quota = quota_us(share);
        match self.interface {
            Interface::Quota => {
                self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                self.write("cpu.cfs_quota_us", &quota.to_string())
            }
            Interface::Max => self.write("cpu.max", &format!("{quota} {PERIOD_US}")),
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(|error| named(&error, &path))
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        // A group that stays behind limits nobody.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn quota_us(share: f64) -> u64 {
    ((share * PERIOD_US as f64).round() as u64).max(QUOTA_MIN_US)
}

/// Where groups with a limit on processor time are made: version 1 where its `cpu` controller is
/// mounted, because version 2 has no such controller then.
fn controller(mounts: &str) -> Option<(PathBuf, Interface)> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?, words.next()?))
    });
    let first = mounts
        .clone()
        .find(|(_, kind, options)| *kind == "cgroup" && options.split(',').any(|o| o == "cpu"));
    let second = || mounts.clone().find(|(_, kind, _)| *kind == "cgroup2");
    match first {
        Some((path, ..)) => Some((path.into(), Interface::Quota)),
        None => second().map(|(path, ..)| (path.into(), Interface::Max)),
    }
}

fn named(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_in_both_generations() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                   cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                   cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n\
                   cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(
            controller(one),
            Some(("/sys/fs/cgroup/cpu".into(), Interface::Quota))
        );
        assert_eq!(
            controller(two),
            Some(("/sys/fs/cgroup".into(), Interface::Max))
        );
        assert_eq!(controller("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn a_thread_stays_where_it_was_put() {
        let allowed = sched_getaffinity(None).unwrap().count() as usize;
        // In a thread of its own, which ends with the test.
        let seen = std::thread::spawn(move || {
            stay_on_one_processor(allowed + 1).unwrap();
            sched_getaffinity(None).unwrap().count()
        });
        assert_eq!(seen.join().unwrap(), 1);
    }

    #[test]
    fn a_share_is_a_part_of_the_period() {
        assert_eq!(quota_us(0.25), 5_000);
        assert_eq!(quota_us(2.0), 40_000);
        assert_eq!(quota_us(0.0), QUOTA_MIN_US);
    }
}
