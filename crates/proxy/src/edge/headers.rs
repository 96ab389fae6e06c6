//! Headers that are removed, set and added.

use http::{HeaderName, HeaderValue};

use crate::config::HeaderChanges;
use crate::message::Fields;

/// Changes of headers, ready to be made. Names and values have been checked before.
#[derive(Debug)]
pub(super) struct Changes {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
    add: Vec<(HeaderName, HeaderValue)>,
}

impl Changes {
    pub(super) fn new(config: &HeaderChanges) -> Self {
        let field =
            |(name, value): (&String, &String)| Some((name.parse().ok()?, value.parse().ok()?));
        Self {
            remove: config
                .remove
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect(),
            set: config.set.iter().filter_map(field).collect(),
            add: config.add.iter().filter_map(field).collect(),
        }
    }

    pub(super) fn apply(&self, headers: &mut Fields) {
        for name in &self.remove {
            headers.remove(name.clone());
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), value.clone());
        }
    }
}
