//! What a configuration can have wrong with it beyond its types.

/// A configuration the engine refuses; the one in force stays.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SentryError {
    /// A key holds a value outside its range.
    #[error("`{key}` is {given}: {remedy}")]
    OutOfRange {
        /// Path of the key, as it is written in the file.
        key: &'static str,
        /// What it holds.
        given: String,
        /// What it should hold.
        remedy: &'static str,
    },
    /// Two classes have the same name.
    #[error("class `{0}` is named twice: give each class its own name")]
    DuplicateClass(String),
    /// A table of targets does not begin at zero and nothing else is given for what is below.
    #[error(
        "class `{class}` has no target below {below}: write one as `target`, of the class or of \
         all, or begin its table with a row `above = 0`"
    )]
    TargetGap {
        /// The class.
        class: String,
        /// Where its table begins.
        below: tidegate_config::Rate,
    },
    /// The mode lacks something it cannot do without.
    #[error("mode `{mode}` is not complete: it needs {what}")]
    Missing {
        /// The mode chosen.
        mode: &'static str,
        /// The keys that are missing and what to write.
        what: &'static str,
    },
    /// A controller refused its parameters.
    #[error("`{table}`: {cause}")]
    Controller {
        /// The table the parameters are in.
        table: &'static str,
        /// What the controller says.
        cause: String,
    },
    /// A change names a replica that does not exist.
    #[error("there is no replica {0}")]
    NoSuchReplica(u16),
    /// More replicas or classes than ids.
    #[error("at most {limit} {what} are supported")]
    TooMany {
        /// Replicas or classes.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

impl SentryError {
    pub(crate) fn out_of_range(
        key: &'static str,
        given: impl std::fmt::Display,
        remedy: &'static str,
    ) -> Self {
        Self::OutOfRange {
            key,
            given: given.to_string(),
            remedy,
        }
    }
}
