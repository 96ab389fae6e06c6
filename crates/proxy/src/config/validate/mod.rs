//! What a type alone cannot refuse: keys that contradict each other, files that cannot be read,
//! names that lead nowhere. Every message gives the cause and the remedy.

mod applications;
mod channel;
mod classes;
mod companions;
mod cover;
mod edge;
mod fleet;
mod network;
mod operate;
mod plausible;
mod policy;
mod shadow;

use std::fmt::{self, Display};

use super::Config;

/// Shorter tokens and keys can be guessed; 16 characters of hex are 64 bits.
pub(super) const SECRET_CHARS_MIN: usize = 16;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It works, but probably not as meant.
    Warning,
}

/// Something wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, as a path from the top: `listen.0.tls.1.cert`.
    pub path: String,
    /// How bad it is.
    pub severity: Severity,
    /// Cause and remedy.
    pub message: String,
    /// The key that it contradicts, where that is another one.
    pub also: Option<String>,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Everything wrong with `config`, in the order of the file's sections. Reads the files it names.
pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let mut report = Report::default();
    network::listeners(config, &mut report);
    if config.application.is_empty() {
        own(config, &mut report);
    } else {
        applications::applications(config, &mut report);
    }
    report.error_if(
        config.application.is_empty() && config.default_application.is_some(),
        "default_application",
        "the file has no [[application]], so it is one application that gets everything; remove it",
    );
    operate::admin(config, &mut report);
    fleet::fleet(config, &mut report);
    operate::access_log(&config.access_log, &mut report);
    if let Some(path) = &config.state_file {
        operate::written("state_file", path, &mut report);
    }
    report.0
}

/// What is wrong with protection and classes alone.
pub(super) fn class_problems(config: &Config) -> Vec<Problem> {
    let mut report = Report::default();
    policy::protect(config, &mut report);
    classes::classes(config, &mut report);
    report.0
}

/// What every application has of its own.
fn own(config: &Config, report: &mut Report) {
    network::upstream(config, report);
    policy::protect(config, report);
    classes::classes(config, report);
    plausible::protect(config, report);
    policy::timeouts(&config.timeouts, report);
    policy::limits(&config.limits, report);
    if let Some(sticky) = &config.sticky {
        policy::sticky(sticky, report);
    }
    operate::health(&config.health, report);
    edge::edge(config, report);
    operate::refusal(&config.refusal, report);
    shadow::shadow(config, report);
    if let Some(section) = &config.channel {
        channel::channel(section, report);
        channel::beside(section, config.protect.target, report);
    }
}

/// Collects problems under their paths.
#[derive(Default)]
struct Report(Vec<Problem>);

impl Report {
    fn add(&mut self, severity: Severity, path: impl Display, message: impl Into<String>) {
        self.0.push(Problem {
            path: path.to_string(),
            severity,
            message: message.into(),
            also: None,
        });
    }

    /// An error that two places make.
    fn conflict(&mut self, path: impl Display, also: String, message: String) {
        self.error(path, message);
        if let Some(last) = self.0.last_mut() {
            last.also = Some(also);
        }
    }

    fn error(&mut self, path: impl Display, message: impl Into<String>) {
        self.add(Severity::Error, path, message);
    }

    fn warn(&mut self, path: impl Display, message: impl Into<String>) {
        self.add(Severity::Warning, path, message);
    }

    fn error_if(&mut self, wrong: bool, path: impl Display, message: &str) {
        if wrong {
            self.error(path, message);
        }
    }

    fn warn_if(&mut self, odd: bool, path: impl Display, message: &str) {
        if odd {
            self.warn(path, message);
        }
    }

    fn check<T>(&mut self, path: impl Display, outcome: Result<T, String>) {
        if let Err(message) = outcome {
            self.error(path, message);
        }
    }
}
