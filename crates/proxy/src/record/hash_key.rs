//! The key of the hashes in a recording, beside its files.
//!
//! A proxy that is restarted and goes on with a recording gives a path and a tenant the hashes that
//! they had before. The file is no part of the recording: without the key nobody can find out by
//! trial which tenant a hash stands for.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Its name in the directory of the recording.
const FILE: &str = "hash-key";

/// The key of the recording in `dir`, if there is one.
pub(crate) fn read(dir: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(dir.join(FILE)).ok()?;
    let (a, b) = text.trim().split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(a)?, number(b)?))
}

/// Keeps the key, unless the recording has one already.
pub(super) fn keep(dir: &Path, (a, b): (u64, u64)) -> io::Result<()> {
    let mut options = File::options();
    match options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(FILE))
    {
        Ok(mut file) => writeln!(file, "{a:016x}-{b:016x}"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_recording_is_kept_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None);
        keep(dir.path(), (7, u64::MAX)).unwrap();
        keep(dir.path(), (8, 9)).unwrap();
        assert_eq!(read(dir.path()), Some((7, u64::MAX)));
        fs::write(dir.path().join(FILE), "nothing").unwrap();
        assert_eq!(read(dir.path()), None);
    }
}
