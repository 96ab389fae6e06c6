//! Which requests are alike: a keyed hash of the path with its query removed and its ids folded.
//!
//! `/user/4711/orders?page=2` and `/user/12/orders` cost about the same, so they share an entry. A
//! segment is taken for an id when it is made of digits alone, or when it is at least eight
//! characters of hexadecimal digits and hyphens with a digit among them (hashes, UUIDs). For
//! paths whose ids look like words an operator writes patterns: all paths that fit
//! `/blog/*/comments` are one, and all that begin like `/static/**`.

use std::hash::Hasher;
use std::iter::zip;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// The name of a path for the engine; says nothing about the path without the key it was made
/// with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct PathKey(pub u64);

/// Hashes paths under a key that is not known outside.
///
/// ```
/// use tidegate_sentry::policing::PathHasher;
///
/// let hasher = PathHasher::new((1, 2), &["/blog/*/comments".to_owned()]);
/// assert_eq!(hasher.hash("/user/4711?page=2"), hasher.hash("/user/12"));
/// assert_eq!(hasher.hash("/blog/cats/comments"), hasher.hash("/blog/dogs/comments"));
/// assert_ne!(hasher.hash("/blog/cats"), hasher.hash("/blog/dogs"));
/// ```
#[derive(Debug, Clone)]
pub struct PathHasher {
    key: (u64, u64),
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    segments: Vec<String>,
    /// Ended in `**`: anything may follow.
    open: bool,
}

impl PathHasher {
    /// The driver draws the two halves of the key at start; the first pattern that fits counts.
    #[must_use]
    pub fn new(key: (u64, u64), patterns: &[String]) -> Self {
        let patterns = patterns.iter().map(|pattern| Pattern::new(pattern));
        Self {
            key,
            patterns: patterns.collect(),
        }
    }

    /// The key of a request target's path; query and fragment do not count.
    #[must_use]
    pub fn hash(&self, target: &str) -> PathKey {
        let is_end = |byte| matches!(byte, b'?' | b'#');
        let end = target.bytes().position(is_end).unwrap_or(target.len());
        let path = &target[..end];
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        match self.patterns.iter().position(|pattern| pattern.fits(path)) {
            Some(index) => {
                // No segment holds a slash, so no plain path hashes like this.
                hasher.write(b"//");
                hasher.write_usize(index);
            }
            None => write_folded(&mut hasher, path),
        }
        PathKey(hasher.finish())
    }

    /// What all paths of a key have in common, for people: `/user/:id/orders`, or the pattern.
    #[must_use]
    pub fn name(&self, target: &str) -> String {
        let path = target.split(['?', '#']).next().unwrap_or_default();
        if let Some(pattern) = self.patterns.iter().find(|pattern| pattern.fits(path)) {
            let end = if pattern.open { "/**" } else { "" };
            return pattern.segments.join("/") + end;
        }
        let folded = path
            .split('/')
            .map(|part| if is_id(part) { ":id" } else { part });
        folded.collect::<Vec<_>>().join("/")
    }
}

fn write_folded(hasher: &mut SipHasher13, path: &str) {
    // Without a digit there is no id, and the segments one by one are the whole.
    if !path.bytes().any(|byte| byte.is_ascii_digit()) {
        hasher.write(path.as_bytes());
        return hasher.write_u8(b'/');
    }
    for segment in path.split('/') {
        let folded = if is_id(segment) { ":id" } else { segment };
        hasher.write(folded.as_bytes());
        hasher.write_u8(b'/');
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let (text, open) = match text.strip_suffix("/**") {
            Some(start) => (start, true),
            None => (text, false),
        };
        Self {
            segments: text.split('/').map(str::to_owned).collect(),
            open,
        }
    }

    fn fits(&self, path: &str) -> bool {
        let mut found = path.split('/');
        let alike = zip(&self.segments, found.by_ref().take(self.segments.len()))
            .filter(|(wanted, found)| *wanted == "*" || wanted == found)
            .count();
        alike == self.segments.len() && (self.open || found.next().is_none())
    }
}

fn is_id(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let hex = || {
        bytes
            .iter()
            .all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
    };
    digits > 0 && (digits == bytes.len() || (bytes.len() >= 8 && hex()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_what_the_paths_of_a_key_have_in_common() {
        let patterns = ["/blog/*/comments", "/static/**"].map(str::to_owned);
        let hasher = PathHasher::new((1, 2), &patterns);
        assert_eq!(hasher.name("/user/4711/orders?page=2"), "/user/:id/orders");
        assert_eq!(hasher.name("/blog/cats/comments#x"), "/blog/*/comments");
        assert_eq!(hasher.name("/static/a/b.css"), "/static/**");
        assert_eq!(hasher.name("/"), "/");
    }

    #[test]
    fn queries_and_ids_do_not_count() {
        let hasher = PathHasher::new((1, 2), &[]);
        let same = |a, b| hasher.hash(a) == hasher.hash(b);
        assert!(same("/user/4711/orders?page=2", "/user/12/orders"));
        assert!(same(
            "/a/550e8400-e29b-41d4-a716-446655440000",
            "/a/deadbeef0"
        ));
        assert!(!same("/user/x/orders", "/user/y/orders"));
        assert!(!same("/ab/c", "/a/bc"));
        assert!(
            !same("/feedface", "/facade00"),
            "a word of hex letters alone is no id"
        );
        assert_ne!(
            hasher.hash("/a"),
            PathHasher::new((1, 3), &[]).hash("/a"),
            "the key counts"
        );
    }

    #[test]
    fn patterns_fold_what_does_not_look_like_an_id() {
        let patterns = ["/blog/*/comments".to_owned(), "/static/**".to_owned()];
        let hasher = PathHasher::new((1, 2), &patterns);
        let same = |a, b| hasher.hash(a) == hasher.hash(b);
        assert!(same("/blog/cats/comments?x", "/blog/dogs/comments"));
        assert!(!same("/blog/cats/comments", "/blog/cats/comments/1"));
        assert!(same("/static/a.css", "/static/js/b/c.js"));
        assert!(same("/static", "/static/a.css"));
        assert!(!same("/static/a.css", "/blog/cats/comments"));
        assert!(!same("/statics", "/static"));
    }
}
