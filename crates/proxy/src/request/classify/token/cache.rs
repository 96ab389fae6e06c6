//! Tokens that were verified lately.
//!
//! A table of fixed size in which a token has one place, by a keyed hash; a later one takes
//! it. Only verified tokens come in, so filling it takes as many good ones.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Claims;

/// Tokens kept: with some 600 bytes each about two megabytes at most.
const PLACES: usize = 4096;
/// Longer tokens are verified every time, so that the table stays small.
const BYTES_MAX: usize = 2048;

#[derive(Debug)]
pub(super) struct Cache {
    places: Box<[Mutex<Option<Kept>>]>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Kept {
    token: Box<str>,
    claims: Arc<Claims>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl Cache {
    pub(super) fn get(&self, token: &str) -> Option<Arc<Claims>> {
        let place = self.place(token).lock();
        let kept = place.as_ref().filter(|kept| &*kept.token == token)?;
        Some(Arc::clone(&kept.claims))
    }

    pub(super) fn put(&self, token: &str, claims: &Arc<Claims>) {
        if token.len() <= BYTES_MAX {
            *self.place(token).lock() = Some(Kept {
                token: token.into(),
                claims: Arc::clone(claims),
            });
        }
    }

    fn place(&self, token: &str) -> &Mutex<Option<Kept>> {
        let hash = self.hasher.hash_one(token);
        &self.places[hash as usize % PLACES]
    }
}
