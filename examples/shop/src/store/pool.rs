//! Connections to one database file: as many as are used at once, kept for the next.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// How long to wait for somebody else's transaction. Chosen: all of ours take milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Pool {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(file: PathBuf) -> Self {
        let idle = Mutex::new(Vec::new());
        Self { file, idle }
    }

    /// Lends a connection to `work`.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let idle = self.idle().pop();
        let mut connection = idle.map_or_else(|| self.open(), Ok)?;
        let outcome = work(&mut connection);
        self.idle().push(connection);
        outcome
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        write_ahead(&connection)?;
        connection.pragma_update(None, "synchronous", "normal")?;
        Ok(connection)
    }
}

/// With a write-ahead log readers and the one writer do not wait for each other. The thread that
/// opens a new file turns it on; others that do so at the same moment are refused without the wait
/// that every other statement has, and so wait here.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let began = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error) if is_busy(&error) && began.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}
