//! Secrets that stand in files of their own, so that the configuration can be shown to others.

use std::fs;
use std::path::Path;

use super::validate::{Problem, Severity};
use super::{Config, Secret, Sticky, TokenConfig};

impl Config {
    /// Reads the files of `token.secret_file` and `sticky.secret_file`, of all applications.
    pub(super) fn read_secrets(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        token("", self.token.as_mut(), &mut problems);
        sticky("", self.sticky.as_mut(), &mut problems);
        for (index, application) in self.application.iter_mut().enumerate() {
            let prefix = format!("application.{index}.");
            token(&prefix, application.token.as_mut(), &mut problems);
            sticky(&prefix, application.sticky.as_mut(), &mut problems);
        }
        problems
    }
}

fn token(prefix: &str, token: Option<&mut TokenConfig>, problems: &mut Vec<Problem>) {
    let Some(token) = token else { return };
    let read = secret(&mut token.secret, token.secret_file.as_deref());
    note(format!("{prefix}token.secret_file"), read, problems);
}

fn sticky(prefix: &str, sticky: Option<&mut Sticky>, problems: &mut Vec<Problem>) {
    let Some(sticky) = sticky else { return };
    let read = secret(&mut sticky.secret, sticky.secret_file.as_deref());
    note(format!("{prefix}sticky.secret_file"), read, problems);
}

fn note(path: String, read: Result<(), String>, problems: &mut Vec<Problem>) {
    problems.extend(read.err().map(|message| Problem {
        path,
        severity: Severity::Error,
        message,
        also: None,
    }));
}

fn secret(secret: &mut Option<Secret>, file: Option<&Path>) -> Result<(), String> {
    let Some(file) = file else { return Ok(()) };
    if secret.is_some() {
        return Err("`secret` is given as well; keep one of them".to_owned());
    }
    let text = fs::read_to_string(file).map_err(|error| {
        let (file, why) = (file.display(), super::include::unreadable(&error));
        format!("{file} {why}")
    })?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(format!(
            "{} is empty; write the secret into it",
            file.display()
        ));
    }
    *secret = Some(Secret::new(text));
    Ok(())
}
