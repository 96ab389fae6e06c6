//! `include`: a configuration in several files.
//!
//! A pattern is relative to the file that names it. It may fit no file at all; a plain name has to
//! be there. No file may be included twice, which also ends circles.
//!
//! Decision: docs/decisions/0130-several-files-one-document.md.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidegate_config::{ConfigError, Source};

/// Files are nested at most this deep, and are at most this many: beyond it a pattern is wrong.
const FILES_MAX: usize = 10_000;

/// The first file and all that it includes, in the order in which they count.
pub(super) struct Included {
    pub(super) sources: Vec<Source>,
    /// Files that were included, and directories of patterns.
    pub(super) watched: Vec<PathBuf>,
}

/// Reads what `first` includes; `base` is its directory.
pub(super) fn gather(first: &Source, base: &Path) -> Result<Included, Vec<ConfigError>> {
    let mut gathered = Gathered::default();
    gathered.follow(first, base);
    if gathered.errors.is_empty() {
        Ok(gathered.included)
    } else {
        Err(gathered.errors)
    }
}

/// The text of a file with the environment's variables.
pub(super) fn source(file: &str, text: &str) -> Source {
    Source::new(file, text, &|name| std::env::var(name).ok())
}

struct Gathered {
    included: Included,
    /// By canonical name, with the place that included it.
    seen: BTreeMap<PathBuf, String>,
    errors: Vec<ConfigError>,
}

impl Default for Gathered {
    fn default() -> Self {
        Self {
            included: Included {
                sources: Vec::new(),
                watched: Vec::new(),
            },
            seen: BTreeMap::new(),
            errors: Vec::new(),
        }
    }
}

impl Gathered {
    fn follow(&mut self, source: &Source, base: &Path) {
        let wanted = source.strings("include");
        if let Ok(own) = fs::canonicalize(base.join(file_name(source.file()))) {
            let itself = || "this file itself".to_owned();
            self.seen.entry(own).or_insert_with(itself);
        }
        self.included.sources.push(source.clone());
        for (pattern, span) in wanted {
            for path in self.matching(source, base, &pattern, &span) {
                self.take(source, &path, &span);
            }
        }
    }

    /// The files that a pattern fits, in order of their names.
    fn matching(
        &mut self,
        source: &Source,
        base: &Path,
        pattern: &str,
        span: &Range<usize>,
    ) -> Vec<PathBuf> {
        let whole = base.join(pattern);
        if !pattern.contains(['*', '?', '[']) {
            return vec![whole];
        }
        let parent = whole.parent().unwrap_or(base);
        self.included.watched.push(parent.to_owned());
        match glob::glob(&whole.to_string_lossy()) {
            Ok(paths) => paths
                .filter_map(Result::ok)
                .filter(|it| it.is_file())
                .collect(),
            Err(error) => {
                let message =
                    format!("`{pattern}` is no pattern: {error}; write \"conf.d/*.toml\"");
                self.errors.push(source.error(span.clone(), message));
                Vec::new()
            }
        }
    }

    fn take(&mut self, by: &Source, path: &Path, span: &Range<usize>) {
        let place = by.error(span.clone(), "").place();
        let refuse = |why: String| by.error(span.clone(), format!("{}: {why}", path.display()));
        let canonical = match fs::canonicalize(path) {
            Ok(canonical) => canonical,
            Err(error) => return self.errors.push(refuse(unreadable(&error))),
        };
        if let Some(first) = self.seen.get(&canonical) {
            let why = format!("it is included twice, by {first} first; remove one");
            return self.errors.push(refuse(why));
        }
        if self.seen.len() >= FILES_MAX {
            return self
                .errors
                .push(refuse("too many files are included".to_owned()));
        }
        self.seen.insert(canonical, place);
        self.included.watched.push(path.to_owned());
        match fs::read_to_string(path) {
            Ok(text) => {
                let base = path.parent().unwrap_or(Path::new(""));
                self.follow(&source(&path.display().to_string(), &text), base);
            }
            Err(error) => self.errors.push(refuse(unreadable(&error))),
        }
    }
}

fn file_name(file: &str) -> PathBuf {
    Path::new(file)
        .file_name()
        .map_or_else(PathBuf::new, PathBuf::from)
}

/// Why a file cannot be read, and what to do.
pub(super) fn unreadable(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "check the name and who may read it",
    };
    format!("cannot be read: {error}; {remedy}")
}
