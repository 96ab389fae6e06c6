//! The table of names behind hashes. A recording without it is still a recording.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::varint::{put, take, take_bytes};

/// What a hash stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A path with its ids folded.
    Path,
    /// A tenant.
    Tenant,
}

impl NameKind {
    fn code(self) -> u64 {
        match self {
            Self::Path => 0,
            Self::Tenant => 1,
        }
    }
}

/// Names by hash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    paths: HashMap<u64, String>,
    tenants: HashMap<u64, String>,
}

impl Names {
    /// The name behind a hash, where it was recorded.
    #[must_use]
    pub fn get(&self, kind: NameKind, hash: u64) -> Option<&str> {
        self.of(kind).get(&hash).map(String::as_str)
    }

    /// The name of a path, or its hash in hexadecimal digits; empty for none.
    #[must_use]
    pub fn path(&self, hash: u64) -> String {
        self.shown(NameKind::Path, hash)
    }

    /// The name of a tenant, or its hash in hexadecimal digits; empty for none.
    #[must_use]
    pub fn tenant(&self, hash: u64) -> String {
        self.shown(NameKind::Tenant, hash)
    }

    fn shown(&self, kind: NameKind, hash: u64) -> String {
        match (hash, self.get(kind, hash)) {
            (0, _) => String::new(),
            (_, Some(name)) => name.to_owned(),
            (hash, None) => format!("#{hash:016x}"),
        }
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len() + self.tenants.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (NameKind, u64, &str)> {
        let paths = self
            .paths
            .iter()
            .map(|(hash, name)| (NameKind::Path, hash, name));
        let tenants = self.tenants.iter();
        let tenants = tenants.map(|(hash, name)| (NameKind::Tenant, hash, name));
        paths
            .chain(tenants)
            .map(|(kind, &hash, name)| (kind, hash, name.as_str()))
    }

    /// Adds one; false when it is known.
    pub fn insert(&mut self, kind: NameKind, hash: u64, name: &str) -> bool {
        let names = match kind {
            NameKind::Path => &mut self.paths,
            NameKind::Tenant => &mut self.tenants,
        };
        let Entry::Vacant(place) = names.entry(hash) else {
            return false;
        };
        place.insert(name.to_owned());
        true
    }

    fn of(&self, kind: NameKind) -> &HashMap<u64, String> {
        match kind {
            NameKind::Path => &self.paths,
            NameKind::Tenant => &self.tenants,
        }
    }
}

/// Appends one name to a frame of names.
pub(crate) fn put_name(out: &mut Vec<u8>, kind: NameKind, hash: u64, name: &str) {
    put(out, kind.code());
    out.extend_from_slice(&hash.to_le_bytes());
    put(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
}

/// Reads a frame of names; nothing when it is malformed.
pub(crate) fn take_names(mut bytes: &[u8], names: &mut Names) -> Option<()> {
    while !bytes.is_empty() {
        let kind = match take(&mut bytes)? {
            0 => Some(NameKind::Path),
            1 => Some(NameKind::Tenant),
            _ => None,
        };
        let hash = take_bytes(&mut bytes, 8)?.try_into().ok()?;
        let length = take(&mut bytes)?;
        let text = take_bytes(&mut bytes, length)?;
        if let Some(kind) = kind {
            names.insert(
                kind,
                u64::from_le_bytes(hash),
                &String::from_utf8_lossy(text),
            );
        }
    }
    Some(())
}
