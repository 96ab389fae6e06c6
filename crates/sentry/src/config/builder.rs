//! A configuration step by step, for services in Rust that have no file.

use std::time::Duration;

use tidegate_config::{Dur, Rate};

use super::{ClassConfig, ModeName, SentryConfig};
use crate::error::SentryError;

/// Builds a [`SentryConfig`] and checks it. Needs no serde.
///
/// ```
/// use std::time::Duration;
/// use tidegate_sentry::SentryConfig;
///
/// # fn main() -> Result<(), tidegate_sentry::SentryError> {
/// let config = SentryConfig::builder()
///     .target(Duration::from_millis(500))
///     .class("checkout", |class| class.revenue(10.0).guarantee(20.0))
///     .class("search", |class| class.target(Duration::from_secs(1)))
///     .slots(64)
///     .build()?;
/// assert_eq!(config.classes[0].name, "checkout");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing before `build`"]
pub struct SentryConfigBuilder(SentryConfig);

/// A class as it is built; see [`SentryConfigBuilder::class`].
#[derive(Debug, Clone)]
#[must_use = "return it from the closure"]
pub struct ClassBuilder(ClassConfig);

impl SentryConfig {
    /// A configuration step by step.
    pub fn builder() -> SentryConfigBuilder {
        SentryConfigBuilder::default()
    }
}

impl SentryConfigBuilder {
    /// Who decides how much is admitted; `auto` without this.
    pub fn mode(self, mode: ModeName) -> Self {
        self.with(|config| config.mode = mode)
    }

    /// The response time within which an answer is worth something.
    pub fn target(self, target: Duration) -> Self {
        self.with(|config| config.target = Some(Dur(target)))
    }

    /// Another class, less important than those before it.
    pub fn class(self, name: &str, build: impl FnOnce(ClassBuilder) -> ClassBuilder) -> Self {
        let class = ClassBuilder(ClassConfig {
            name: name.to_owned(),
            target: None,
            revenue: 1.0,
            guarantee: None,
            targets: Vec::new(),
        });
        self.with(|config| config.classes.push(build(class).0))
    }

    /// Requests that a replica has places for, where that is known.
    pub fn slots(self, slots: u32) -> Self {
        self.with(|config| config.limits.slots = Some(slots))
    }

    /// Most requests that wait at a time.
    pub fn queue(self, max_requests: u32) -> Self {
        self.with(|config| config.queue.max_requests = max_requests)
    }

    /// Decide and report, but admit everything.
    pub fn dry_run(self) -> Self {
        self.with(|config| config.dry_run = true)
    }

    /// Whatever else a configuration holds.
    pub fn with(mut self, change: impl FnOnce(&mut SentryConfig)) -> Self {
        change(&mut self.0);
        self
    }

    /// The configuration.
    ///
    /// # Errors
    /// As [`SentryConfig::validate`].
    pub fn build(self) -> Result<SentryConfig, SentryError> {
        self.0.validate()?;
        Ok(self.0)
    }
}

impl ClassBuilder {
    /// Its own target.
    pub fn target(mut self, target: Duration) -> Self {
        self.0.target = Some(Dur(target));
        self
    }

    /// What a request is worth that is answered within its target; 1 without this.
    pub fn revenue(mut self, revenue: f64) -> Self {
        self.0.revenue = revenue;
        self
    }

    /// Requests per second that are admitted whatever the load.
    pub fn guarantee(mut self, per_second: f64) -> Self {
        self.0.guarantee = Some(Rate(per_second));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builder_makes_what_the_fields_say() {
        let built = SentryConfig::builder()
            .mode(ModeName::Static)
            .target(Duration::from_millis(500))
            .class("gold", |class| {
                let target = Duration::from_millis(200);
                class.target(target).revenue(3.0).guarantee(20.0)
            })
            .slots(8)
            .queue(5)
            .dry_run()
            .with(|config| config.fixed.window = Some(4))
            .build()
            .expect("it is valid");
        let mut expected = SentryConfig {
            mode: ModeName::Static,
            target: Some(Dur(Duration::from_millis(500))),
            classes: vec![ClassConfig {
                name: "gold".to_owned(),
                target: Some(Dur(Duration::from_millis(200))),
                revenue: 3.0,
                guarantee: Some(Rate(20.0)),
                targets: Vec::new(),
            }],
            dry_run: true,
            ..SentryConfig::default()
        };
        expected.limits.slots = Some(8);
        expected.queue.max_requests = 5;
        expected.fixed.window = Some(4);
        assert_eq!(built, expected);
    }

    #[test]
    fn builder_refuses_what_a_file_would_not_get() {
        let built = SentryConfig::builder().slots(0).build();
        let refused = built.expect_err("a replica has a place");
        assert!(refused.to_string().contains("limits.slots"), "{refused}");
    }
}
