//! Items on disk, until the server has answered them.
//!
//! redb keeps a copy-on-write tree and syncs before a commit returns, so that after a crash the
//! file holds exactly the commits that returned, and at most one more. An item is accepted when
//! its commit has returned; it is deleted when the server's answer has. Between the two it may be
//! sent more than once, each time with the same number: `(client, number)` names an item for ever,
//! since numbers only grow.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use data_encoding::BASE64;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const ITEMS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("items");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const SEED: &str = "seed";
const NEXT: &str = "next";

/// Why the outbox cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The file cannot be read or written.
    #[error("the outbox cannot be used: {0}; check the file's place and the free space there")]
    Store(#[from] redb::Error),
    /// The file is not ours, or from another version.
    #[error("the outbox holds something unreadable: {0}; move the file away to begin anew")]
    Content(String),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for a key")]
    Random,
}

/// A request on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredItem {
    /// What makes a newer item obsolete it.
    pub key: Option<String>,
    /// When it was made, by the server's clock, in milliseconds since the Unix epoch.
    pub made_ms: u64,
    /// How long it is worth something from then on.
    pub delay_max_ms: u64,
    /// Who made it when, signed.
    pub stamp: String,
    /// Method of the request.
    pub method: String,
    /// Address of the request.
    pub uri: String,
    /// Headers of the request.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub body: Vec<u8>,
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text.as_bytes()).map_err(de::Error::custom)
}

/// Items on disk.
#[derive(Debug)]
pub struct Outbox {
    database: Database,
    seed: [u8; 32],
}

impl Outbox {
    /// Opens the file, or makes it, with a key of its own.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(path: &Path) -> Result<Self, OutboxError> {
        close_to_others(path).map_err(redb::Error::Io)?;
        let database = Database::create(path).map_err(redb::Error::from)?;
        let seed = seed(&database)?;
        Ok(Self { database, seed })
    }

    /// The seed of the client's key, as long as the file lives.
    #[must_use]
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// The number for the next item. It is used up by [`Outbox::accept`].
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next_number(&self) -> Result<u64, OutboxError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let meta = read.open_table(META).map_err(redb::Error::from)?;
        let next = meta.get(NEXT).map_err(redb::Error::from)?;
        Ok(next.map_or(1, |bytes| number(bytes.value())))
    }

    /// Writes an item; it is safe when this returns.
    ///
    /// # Errors
    /// When it cannot be written; then nothing was.
    pub fn accept(&self, number: u64, item: &StoredItem) -> Result<(), OutboxError> {
        let record =
            serde_json::to_vec(item).map_err(|error| OutboxError::Content(error.to_string()))?;
        self.write(|write| {
            write.open_table(ITEMS)?.insert(number, &record[..])?;
            let next = (number + 1).to_be_bytes();
            write.open_table(META)?.insert(NEXT, &next[..])?;
            Ok(())
        })
    }

    /// Deletes items: answered, expired or replaced.
    ///
    /// # Errors
    /// When it cannot be written; then they are still there.
    pub fn delete(&self, numbers: &[u64]) -> Result<(), OutboxError> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.write(|write| {
            let mut items = write.open_table(ITEMS)?;
            for number in numbers {
                items.remove(number)?;
            }
            Ok(())
        })
    }

    /// One item; `None` when it was deleted.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn item(&self, number: u64) -> Result<Option<StoredItem>, OutboxError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let items = read.open_table(ITEMS).map_err(redb::Error::from)?;
        let record = items.get(number).map_err(redb::Error::from)?;
        record.map(|record| parse(record.value())).transpose()
    }

    /// All items in the order of their numbers.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn items(&self) -> Result<Vec<(u64, StoredItem)>, OutboxError> {
        let read = self.database.begin_read().map_err(redb::Error::from)?;
        let items = read.open_table(ITEMS).map_err(redb::Error::from)?;
        let mut all = Vec::new();
        for entry in items.iter().map_err(redb::Error::from)? {
            let (number, record) = entry.map_err(redb::Error::from)?;
            all.push((number.value(), parse(record.value())?));
        }
        Ok(all)
    }

    fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), OutboxError> {
        let write = self.database.begin_write().map_err(redb::Error::from)?;
        change(&write)?;
        write.commit().map_err(redb::Error::from)?;
        Ok(())
    }
}

/// The file holds the client's secret key: only its owner may read it, also one that is there
/// already.
fn close_to_others(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

/// The key's seed; drawn when the file is new.
fn seed(database: &Database) -> Result<[u8; 32], OutboxError> {
    let write = database.begin_write().map_err(redb::Error::from)?;
    let seed = {
        write.open_table(ITEMS).map_err(redb::Error::from)?;
        let mut meta = write.open_table(META).map_err(redb::Error::from)?;
        let stored = meta.get(SEED).map_err(redb::Error::from)?;
        let stored = stored.map(|bytes| bytes.value().to_vec());
        match stored {
            Some(bytes) => bytes
                .try_into()
                .map_err(|_| OutboxError::Content("a key of another length".to_owned()))?,
            None => {
                let mut seed = [0; 32];
                let drawn = SystemRandom::new().fill(&mut seed);
                drawn.map_err(|_| OutboxError::Random)?;
                meta.insert(SEED, &seed[..]).map_err(redb::Error::from)?;
                seed
            }
        }
    };
    write.commit().map_err(redb::Error::from)?;
    Ok(seed)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(1, u64::from_be_bytes)
}

fn parse(record: &[u8]) -> Result<StoredItem, OutboxError> {
    serde_json::from_slice(record).map_err(|error| OutboxError::Content(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(body: &[u8]) -> StoredItem {
        StoredItem {
            key: Some("lot 7".to_owned()),
            made_ms: 5,
            delay_max_ms: 1000,
            stamp: "stamp".to_owned(),
            method: "POST".to_owned(),
            uri: "http://a/b".to_owned(),
            headers: vec![("a".to_owned(), "b".to_owned())],
            body: body.to_vec(),
        }
    }

    #[test]
    fn outbox_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox.redb");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(Outbox::open(&path).unwrap());
        assert_eq!(mode(), 0o600);
        // One that an earlier version has made is closed too.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Outbox::open(&path).unwrap());
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn items_and_the_key_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox.redb");
        let outbox = Outbox::open(&path).unwrap();
        let seed = *outbox.seed();
        for body in [&b"first"[..], b"\xff\x00"] {
            let number = outbox.next_number().unwrap();
            outbox.accept(number, &item(body)).unwrap();
        }
        outbox.delete(&[1]).unwrap();
        drop(outbox);
        let outbox = Outbox::open(&path).unwrap();
        assert_eq!(outbox.seed(), &seed);
        assert_eq!(outbox.items().unwrap(), [(2, item(b"\xff\x00"))]);
        assert_eq!(outbox.item(1).unwrap(), None);
        // A number is never used twice, whatever was deleted.
        assert_eq!(outbox.next_number().unwrap(), 3);
    }
}
