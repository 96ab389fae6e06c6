//! Processes as `/proc` shows them (`proc(5)`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `USER_HZ` of every Linux on the architectures we build for; the kernel fixes it in its ABI.
const TICKS_PER_SECOND: f64 = 100.0;

/// All processes, by their directory.
#[derive(Debug)]
pub(super) struct Processes {
    proc: PathBuf,
}

impl Processes {
    pub(super) fn at(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.proc
    }

    pub(super) fn file(&self, pid: u32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }

    /// A process, its children, theirs, and so on; `None` when it does not exist. Only children of
    /// a process's first thread are seen, which is where servers start their workers.
    pub(super) fn family(&self, pid: u32) -> Option<Vec<u32>> {
        self.stat(pid)?;
        let mut family = vec![pid];
        let mut visited = 0;
        while let Some(&member) = family.get(visited) {
            visited += 1;
            let path = self.file(member, &format!("task/{member}/children"));
            let text = fs::read_to_string(path).unwrap_or_default();
            family.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        Some(family)
    }

    /// CPU time that processes have used, with that of children which ended.
    pub(super) fn used(&self, family: &[u32]) -> Option<Duration> {
        let ticks: u64 = family
            .iter()
            .filter_map(|&pid| self.stat(pid))
            .map(|stat| stat.ticks)
            .sum();
        Some(Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND))
    }

    pub(super) fn parent(&self, pid: u32) -> Option<u32> {
        self.stat(pid).map(|stat| stat.parent)
    }

    fn stat(&self, pid: u32) -> Option<Stat> {
        parse_stat(&fs::read_to_string(self.file(pid, "stat")).ok()?)
    }

    /// How many cores a process is allowed to run on.
    pub(super) fn allowed_cores(&self, pid: u32) -> Option<f64> {
        let status = fs::read_to_string(self.file(pid, "status")).ok()?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        parse_list(list.trim())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: u64,
}

/// The parent is the 4th field; user and system time, and those of children waited for, are the
/// 14th to 17th. The second field may contain blanks, but ends with the last closing parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks.sum::<Result<u64, _>>().ok()?,
    })
}

/// The length of a list like "0-3,8".
fn parse_list(text: &str) -> Option<f64> {
    let mut count = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 3 2 20 0 1 0 100 0 0";
        let expected = Stat {
            parent: 1,
            ticks: 205,
        };
        assert_eq!(parse_stat(stat), Some(expected));
        assert_eq!(parse_stat("garbage"), None);
        assert_eq!(parse_list("0-3,8"), Some(5.0));
        assert_eq!(parse_list("0"), Some(1.0));
        assert_eq!(parse_list("3-1"), None);
    }
}
