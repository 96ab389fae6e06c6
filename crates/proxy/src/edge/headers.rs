//! Headers that are removed, set and added.

use http::{HeaderName, HeaderValue};

use crate::config::HeaderChanges;
use crate::message::Fields;
use crate::request::classify::field::is_twin;

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

    /// Changes a request's headers. What a client sends under a name that some services cannot tell
    /// from one of these (`x_env` beside `x-env`) is removed.
    pub(super) fn apply_to_request(&self, headers: &mut Fields) {
        let ours = |name: &HeaderName| {
            let mut names = (self.remove.iter()).chain(self.set.iter().map(|(name, _)| name));
            names.any(|it| it != name && is_twin(it, name))
        };
        headers.retain(|name| !name.as_str().contains('_') || !ours(name));
        self.apply(headers);
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
