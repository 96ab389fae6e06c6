//! What an operator may say about classes of requests: what they are worth, what they are
//! promised, and how fast their answers have to be.

use std::time::Duration;

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate};

use super::{CLASSES_MAX, DEFAULT_CLASS, SentryConfig};
use crate::api::ClassId;
use crate::error::SentryError;

/// A class of requests.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ClassConfig {
    /// Its name in metrics, events and the `tidegate-class` header.
    pub name: String,
    /// Its own target, where it differs from the application's.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub target: Option<Dur>,
    /// What a request is worth that is answered within its target, in a currency of your choice.
    #[cfg_attr(feature = "serde", serde(default = "one"))]
    pub revenue: f64,
    /// Requests of the class that are admitted before anything else is asked, whatever the load:
    /// its minimum rate. All guarantees together should stay well below what the service can do.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub guarantee: Option<Rate>,
    /// Targets for a crowd (the table of a service level agreement): from an arrival rate of
    /// `above` on, over all classes, `target` applies instead. In ascending order of `above`.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub targets: Vec<TargetBand>,
}

/// A row of a class's table of targets.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TargetBand {
    /// Requests per second, of all classes together, from which on the target applies.
    pub above: Rate,
    /// The target there.
    pub target: Dur,
}

/// How tenants of a class share it: they take turns in the queue.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct FairnessConfig {
    /// Queues that tenants are spread over; each stands in the shorter of two.
    pub shards: u16,
}

impl Default for FairnessConfig {
    fn default() -> Self {
        Self { shards: 64 }
    }
}

/// Sessions: once a request that may open one was admitted, later requests of the session are
/// preferred within their class, because half a checkout earns nothing.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SessionConfig {
    /// How long after it was opened; 0 for no sessions.
    pub lifetime: Dur,
    /// Sessions that are remembered; each takes eight bytes.
    pub max: usize,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            lifetime: Dur(Duration::from_secs(600)),
            max: 16_384,
        }
    }
}

impl SessionConfig {
    pub(super) fn validate(&self) -> Result<(), SentryError> {
        const MAX: usize = 1 << 24;
        if self.max > MAX {
            Err(SentryError::out_of_range(
                "sessions.max",
                self.max,
                "write at most 16777216, which takes 130 MB",
            ))
        } else {
            Ok(())
        }
    }
}

#[cfg(feature = "serde")]
fn one() -> f64 {
    1.0
}

impl ClassConfig {
    /// A class with nothing but a name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            target: None,
            revenue: 1.0,
            guarantee: None,
            targets: Vec::new(),
        }
    }

    fn validate(&self) -> Result<(), SentryError> {
        positive_target("classes.target", self.target)?;
        if !(self.revenue.is_finite() && self.revenue >= 0.0) {
            return Err(SentryError::out_of_range(
                "classes.revenue",
                self.revenue,
                "write what a request in time is worth, zero or more",
            ));
        }
        for band in &self.targets {
            positive_target("classes.targets.target", Some(band.target))?;
        }
        for pair in self.targets.windows(2) {
            if pair[1].above.0 <= pair[0].above.0 {
                return Err(SentryError::out_of_range(
                    "classes.targets.above",
                    pair[1].above,
                    "the rows of a table of targets go up: write more than in the row before",
                ));
            }
        }
        Ok(())
    }
}

impl SentryConfig {
    pub(super) fn validate_classes(&self) -> Result<(), SentryError> {
        if self.classes.len() > CLASSES_MAX {
            return Err(SentryError::TooMany {
                what: "classes",
                limit: CLASSES_MAX,
            });
        }
        positive_target("target", self.target)?;
        for (index, class) in self.classes.iter().enumerate() {
            if self.classes[..index].iter().any(|c| c.name == class.name) {
                return Err(SentryError::DuplicateClass(class.name.clone()));
            }
            class.validate()?;
            if !class.targets.is_empty() && self.target_of(ClassId(index as u16)).is_none() {
                return Err(SentryError::TargetGap {
                    class: class.name.clone(),
                    below: class.targets[0].above,
                });
            }
        }
        Ok(())
    }

    /// Number of classes, never zero.
    #[must_use]
    pub fn class_count(&self) -> usize {
        self.classes.len().max(1)
    }

    /// What is configured for a class, if anything is.
    #[must_use]
    pub fn class(&self, class: ClassId) -> Option<&ClassConfig> {
        self.classes.get(usize::from(class.0))
    }

    /// A class's name; what is out of range is called like the last class.
    #[must_use]
    pub fn class_name(&self, class: ClassId) -> &str {
        self.class(class)
            .or(self.classes.last())
            .map_or(DEFAULT_CLASS, |class| &class.name)
    }

    /// The id of a class by its name.
    #[must_use]
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        if self.classes.is_empty() {
            return (name == DEFAULT_CLASS).then_some(ClassId(0));
        }
        let index = self.classes.iter().position(|class| class.name == name)?;
        u16::try_from(index).ok().map(ClassId)
    }

    /// The target configured for a class without a crowd: its own, that of a row from zero on, or
    /// the application's.
    #[must_use]
    pub fn target_of(&self, class: ClassId) -> Option<Duration> {
        let own = self.class(class).and_then(|class| {
            let first = class.targets.first().filter(|band| band.above.0 == 0.0);
            class.target.or(first.map(|band| band.target))
        });
        own.or(self.target).map(|target| target.0)
    }

    /// The target of a class in a row of its table, counted from 1; 0 is before the first.
    pub(crate) fn target_in_band(&self, class: ClassId, band: usize) -> Option<Duration> {
        let rows = self.class(class).map_or(&[][..], |class| &class.targets);
        match band.min(rows.len()).checked_sub(1) {
            Some(row) => Some(rows[row].target.0),
            None => self.target_of(class),
        }
    }
}

fn positive_target(key: &'static str, target: Option<Dur>) -> Result<(), SentryError> {
    match target {
        Some(target) if target.is_zero() => Err(SentryError::out_of_range(
            key,
            target,
            "nothing is answered in no time: write a duration above zero, or leave it out",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        let config: SentryConfig = tidegate_config::parse("test.toml", text).unwrap();
        config.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn table_of_targets_has_no_gap_and_goes_up() {
        let gap = "classes = [{ name = 'a', targets = [{ above = '10/s', target = '1s' }] }]";
        let error = check(gap).unwrap_err();
        assert!(error.contains("below 10/s"), "{error}");
        assert_eq!(check(&format!("target = '1s'\n{gap}")), Ok(()));
        let from_zero = "classes = [{ name = 'a', targets = [{ above = 0, target = '1s' }, \
                         { above = '10/s', target = '2s' }] }]";
        assert_eq!(check(from_zero), Ok(()));
        let down = from_zero.replace("above = '10/s'", "above = 0");
        assert!(check(&down).unwrap_err().contains("go up"));
    }

    #[test]
    fn revenue_is_a_number_and_not_negative() {
        assert!(check("classes = [{ name = 'a', revenue = -1.0 }]").is_err());
        assert!(check("classes = [{ name = 'a', revenue = nan }]").is_err());
        assert_eq!(check("classes = [{ name = 'a', revenue = 0.0 }]"), Ok(()));
    }
}
