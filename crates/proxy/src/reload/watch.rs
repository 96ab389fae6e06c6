//! Notices that files have changed, by looking once a second.
//!
//! Looking beats being told (inotify): it works on network file systems and for the symbolic links
//! that Kubernetes swaps, needs no library, and costs a handful of `stat` calls. A change counts
//! once it has stood still for one look: an editor that truncates and then writes must not have
//! half a file put in force.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time between two looks.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// What tells one version of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    /// Time of change, size, device and number; `None` while it cannot be read.
    version: Option<(SystemTime, u64, u64, u64)>,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Self {
        let version = fs::metadata(path).ok().and_then(|found| {
            Some((
                found.modified().ok()?,
                found.len(),
                found.dev(),
                found.ino(),
            ))
        });
        Self {
            path: path.to_owned(),
            version,
        }
    }
}

/// Tells a settled change from none and from one that is still going on.
#[derive(Debug, Default)]
pub(super) struct Watch {
    known: Vec<Stamp>,
    last: Vec<Stamp>,
}

impl Watch {
    /// Takes the versions `before` a reload as known: they are in force, or were refused. `after`
    /// has the files that count from now on, which may be others; those were not there to look at.
    pub(super) fn know(&mut self, before: &[Stamp], after: Vec<Stamp>) {
        let read = |stamp: Stamp| {
            let same = before.iter().find(|read| read.path == stamp.path);
            same.cloned().unwrap_or(stamp)
        };
        self.known = after.into_iter().map(read).collect();
        self.last.clone_from(&self.known);
    }

    /// Whether the files differ from what is known and have not changed since the last look.
    pub(super) fn look(&mut self, stamps: Vec<Stamp>) -> bool {
        let settled = stamps == self.last;
        let changed = stamps != self.known;
        self.last = stamps;
        changed && settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(size: u64) -> Vec<Stamp> {
        vec![Stamp {
            path: PathBuf::from("f.toml"),
            version: Some((SystemTime::UNIX_EPOCH, size, 0, 0)),
        }]
    }

    #[test]
    fn a_change_counts_once_it_stands_still() {
        let mut watch = Watch::default();
        watch.know(&[], stamps(1));
        assert!(!watch.look(stamps(1)), "no change");
        assert!(!watch.look(stamps(2)), "just changed");
        assert!(!watch.look(stamps(3)), "still changing");
        assert!(watch.look(stamps(3)), "stands still");
        watch.know(&stamps(3), stamps(3));
        assert!(!watch.look(stamps(3)), "known");
    }

    #[test]
    fn a_change_that_is_undone_is_none() {
        let mut watch = Watch::default();
        watch.know(&[], stamps(1));
        assert!(!watch.look(stamps(2)));
        assert!(!watch.look(stamps(1)));
        assert!(!watch.look(stamps(1)));
    }

    #[test]
    fn what_changes_during_a_reload_is_noticed_after_it() {
        let mut watch = Watch::default();
        watch.know(&stamps(1), stamps(2));
        assert!(!watch.look(stamps(2)));
        assert!(watch.look(stamps(2)));
    }

    #[test]
    fn stamps_tell_versions_of_a_file_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let missing = Stamp::of(&path);
        fs::write(&path, "a").unwrap();
        let short = Stamp::of(&path);
        fs::write(&path, "ab").unwrap();
        let long = Stamp::of(&path);
        fs::write(dir.path().join("g"), "cd").unwrap();
        fs::rename(dir.path().join("g"), &path).unwrap();
        let renamed = Stamp::of(&path);
        assert_ne!(missing, short);
        assert_ne!(short, long);
        assert_ne!(long, renamed);
        assert_eq!(renamed, Stamp::of(&path));
    }
}
