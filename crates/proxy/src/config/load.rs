//! From files on disk to a configuration that is known to be good.
//!
//! All that is wrong is told at once, the first place first. What cannot be read at all is left out
//! before the rest is checked, and of the rest only those problems are told that what was left out
//! cannot have caused.

use std::fs;
use std::path::Path;

use tidegate_config::{ConfigError, Document, Mistake, Source};

use super::{Config, Problem, Severity, foreign, include, place};

/// A configuration that can be put in force, and what is odd about it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration; relative file names are resolved.
    pub config: Config,
    /// What works, but probably not as meant.
    pub warnings: Vec<ConfigError>,
}

/// Reads and checks the file at `path` and the files it names.
///
/// # Errors
/// Everything that is wrong, each with its place, cause and remedy.
pub fn load(path: &Path) -> Result<Loaded, Vec<ConfigError>> {
    load_with(path, |_| {})
}

/// As [`load`], with what the command line adds; only the sum of both has to be whole.
///
/// # Errors
/// Everything that is wrong, each with its place, cause and remedy.
pub fn load_with(path: &Path, flags: impl FnOnce(&mut Config)) -> Result<Loaded, Vec<ConfigError>> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|error| vec![ConfigError::new(&file, include::unreadable(&error))])?;
    let base = path.parent().unwrap_or(Path::new(""));
    check_with(&file, &text, base, flags)
}

/// Checks a configuration's text; relative file names in it are looked up in `base`.
///
/// # Errors
/// Everything that is wrong, each with its place, cause and remedy.
pub fn check(file: &str, text: &str, base: &Path) -> Result<Loaded, Vec<ConfigError>> {
    check_with(file, text, base, |_| {})
}

fn check_with(
    file: &str,
    text: &str,
    base: &Path,
    flags: impl FnOnce(&mut Config),
) -> Result<Loaded, Vec<ConfigError>> {
    let included = include::gather(&include::source(file, text), base)?;
    let document = Document::new(&included.sources, &["include"])?;
    let mut checked = Checked::new(document);
    let Some(mut config) = checked.config.take() else {
        return Err(checked.in_order(&included.sources));
    };
    config.included = included.watched;
    config.resolve_paths(base);
    let mut problems = config.read_secrets();
    let unread = !problems.is_empty();
    flags(&mut config);
    problems.extend(
        config
            .problems()
            .into_iter()
            .filter(|it| !(unread && is_about_keys(it))),
    );
    let (errors, warnings): (Vec<_>, Vec<_>) = problems
        .into_iter()
        .partition(|problem| problem.severity == Severity::Error);
    checked.add(&errors);
    if checked.errors.is_empty() {
        Ok(Loaded {
            config,
            warnings: checked.placed(&warnings, &included.sources),
        })
    } else {
        Err(checked.in_order(&included.sources))
    }
}

/// Whether it may come from a secret that could not be read.
fn is_about_keys(problem: &Problem) -> bool {
    problem.path.ends_with("token") || problem.path.ends_with("token.secret")
}

/// A document, what could be read of it, and what is wrong with it.
struct Checked<'a> {
    document: Document<'a>,
    config: Option<Config>,
    errors: Vec<ConfigError>,
    /// Paths that were left out.
    left_out: Vec<String>,
}

impl<'a> Checked<'a> {
    fn new(mut document: Document<'a>) -> Self {
        let mut errors = foreign::take_out(&mut document);
        let foreign = !errors.is_empty();
        let parsed = document.parse();
        let path = |it: &Mistake| it.path.clone();
        let mut left_out: Vec<_> = parsed.mistakes.iter().map(path).collect();
        left_out.extend(foreign.then(String::new));
        errors.extend(parsed.mistakes.into_iter().map(|it| it.error));
        Self {
            document,
            config: parsed.value,
            errors,
            left_out,
        }
    }

    /// Adds problems, short of those that may come from what was left out.
    fn add(&mut self, problems: &[Problem]) {
        let own = |problem: &&Problem| self.left_out.is_empty() || self.is_apart(&problem.path);
        let own: Vec<_> = problems.iter().filter(own).collect();
        let errors: Vec<_> = own.into_iter().map(|it| self.at(it)).collect();
        self.errors.extend(errors);
    }

    /// Whether a path of the file has nothing to do with what was left out.
    fn is_apart(&self, path: &str) -> bool {
        let touches = |left_out: &String| {
            let (left_out, path) = (section(left_out), section(path));
            let follows = matches!(path, "classify" | "default_class" | "default_application");
            left_out == path || follows
        };
        place::span(self.document.table(), path).is_some() && !self.left_out.iter().any(touches)
    }

    /// The problem at its place; a key that is not in the file at all is named instead.
    fn at(&self, problem: &Problem) -> ConfigError {
        let span = |path: &str| place::span(self.document.table(), path);
        let mut message = problem.message.clone();
        if let Some(also) = problem.also.as_ref().and_then(|path| span(path)) {
            message += &format!(
                "; the other is at {}",
                self.document.error(also, "").place()
            );
        }
        match span(&problem.path) {
            Some(span) => self.document.error(span, message),
            None => ConfigError::new(self.document.name(), format!("{}: {message}", problem.path)),
        }
    }

    /// The problems at their places, from the first file's top to the last one's bottom.
    fn placed(&self, problems: &[Problem], sources: &[Source]) -> Vec<ConfigError> {
        let placed = problems.iter().map(|problem| self.at(problem)).collect();
        ordered(placed, sources)
    }

    fn in_order(self, sources: &[Source]) -> Vec<ConfigError> {
        ordered(self.errors, sources)
    }
}

fn section(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn ordered(mut errors: Vec<ConfigError>, sources: &[Source]) -> Vec<ConfigError> {
    let number = |file: &str| sources.iter().position(|source| source.file() == file);
    errors.sort_by_key(|error| (number(error.file()), error.line(), error.column()));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let message = |name: &str| {
            let errors = load(&folder.path().join(name)).unwrap_err();
            errors[0].message().to_owned()
        };
        assert!(message("missing.toml").ends_with("check the name and who may read it"));
        fs::write(folder.path().join("latin.toml"), b"# caf\xe9").unwrap();
        assert!(message("latin.toml").ends_with("save it as UTF-8"));
    }
}
