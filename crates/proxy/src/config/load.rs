//! From a file on disk to a configuration that is known to be good.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use tidegate_config::ConfigError;

use super::{Config, Problem, Severity, place};

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
    let text = fs::read_to_string(path).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::InvalidData => "save it as UTF-8",
            _ => "check the name and who may read it",
        };
        let message = format!("cannot be read: {error}; {remedy}");
        vec![ConfigError::new(&file, message)]
    })?;
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
    let mut config = Config::from_text(file, text).map_err(|error| vec![error])?;
    config.resolve_paths(base);
    flags(&mut config);
    let (errors, warnings): (Vec<_>, Vec<_>) = config
        .problems()
        .into_iter()
        .partition(|problem| problem.severity == Severity::Error);
    match errors.is_empty() {
        true => Ok(Loaded {
            config,
            warnings: placed(file, text, &warnings),
        }),
        false => Err(placed(file, text, &errors)),
    }
}

/// The problems at their places, from top to bottom.
fn placed(file: &str, text: &str, problems: &[Problem]) -> Vec<ConfigError> {
    let mut placed: Vec<_> = problems.iter().map(|p| at(file, text, p)).collect();
    placed.sort_by_key(ConfigError::line);
    placed
}

/// The problem at its place; a key that is not in the file at all is named instead.
fn at(file: &str, text: &str, problem: &Problem) -> ConfigError {
    match place::span(text, &problem.path) {
        Some(span) => ConfigError::at(file, text, span, &problem.message),
        None => ConfigError::new(file, problem.to_string()),
    }
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
