//! A variant: what is different from the recording.

use serde_json::Value;
use tidegate_sentry::SentryConfig;

/// Why a variant cannot be understood; the message names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VariantError(String);

/// What is different.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// In words.
    pub name: String,
    /// Changes of `protect`, as a JSON merge patch.
    patch: Value,
    replicas: Replicas,
    /// Traffic, times the recorded one.
    pub rate: f64,
    /// Workers per replica.
    pub workers: Option<u32>,
    /// Speed of all workers, times the recorded one.
    pub speed: f64,
    /// How many replicas, the last ones, die when the measurement begins.
    pub kill: u32,
    /// Share of the work that is optional content, in replicas that can leave it out.
    pub optional: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Replicas {
    More(i64),
    Exactly(usize),
}

const KEYS: &str = "protect.KEY, mode, target, replicas (+1, -1, 4), kill (1), rate (1.5), \
                    workers (8), speed (50%), optional (30%)";

impl Variant {
    /// Nothing is different.
    #[must_use]
    pub fn recorded(protected: bool) -> Self {
        let name = if protected {
            "as recorded"
        } else {
            "as recorded, unprotected"
        };
        Self {
            name: name.to_owned(),
            patch: Value::Object(serde_json::Map::new()),
            replicas: Replicas::More(0),
            rate: 1.0,
            workers: None,
            speed: 1.0,
            kill: 0,
            optional: None,
        }
    }

    /// Whether nothing is different.
    pub(super) fn is_recorded(&self) -> bool {
        let name = self.name.clone();
        *self
            == Self {
                name,
                ..Self::recorded(true)
            }
    }

    /// What `KEY=VALUE` settings say, together one variant.
    ///
    /// # Errors
    /// A key that is not known, or a value that does not fit.
    pub fn parse<'a>(settings: impl IntoIterator<Item = &'a str>) -> Result<Self, VariantError> {
        let mut variant = Self::recorded(true);
        let mut names = Vec::new();
        for setting in settings {
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                VariantError(format!("`{setting}`: write KEY=VALUE; keys: {KEYS}"))
            })?;
            let (key, value) = (key.trim(), value.trim());
            variant.set(key, value)?;
            names.push(format!("{key}={value}"));
        }
        variant.name = names.join(" ");
        Ok(variant)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), VariantError> {
        let bad = |what: &str| VariantError(format!("`{key}={value}`: {what}"));
        match key {
            "replicas" => {
                let number: i64 = value.parse().map_err(|_| bad("write +1, -1 or 4"))?;
                let relative = value.starts_with(['+', '-']);
                self.replicas = match (relative, usize::try_from(number)) {
                    (true, _) => Replicas::More(number),
                    (false, Ok(count)) if count > 0 => Replicas::Exactly(count),
                    _ => return Err(bad("at least one replica is left")),
                };
            }
            "rate" => self.rate = factor(value).ok_or_else(|| bad("write a factor, like 1.5"))?,
            "speed" => self.speed = factor(value).ok_or_else(|| bad("write a share, like 50%"))?,
            "kill" => {
                let count: u32 = value.parse().map_err(|_| bad("write a whole number"))?;
                self.kill = count;
            }
            "optional" => {
                let share = factor(value).filter(|share| *share < 1.0);
                self.optional = Some(share.ok_or_else(|| bad("write a share below 1, like 30%"))?);
            }
            "workers" => {
                let workers: u32 = value.parse().map_err(|_| bad("write a whole number"))?;
                self.workers = Some(workers);
            }
            "mode" | "target" => self.patch(&[key], value),
            key => match key.strip_prefix("protect.") {
                Some(path) => self.patch(&path.split('.').collect::<Vec<_>>(), value),
                None => return Err(bad(&format!("no such key; keys: {KEYS}"))),
            },
        }
        Ok(())
    }

    fn patch(&mut self, path: &[&str], value: &str) {
        let mut place = &mut self.patch;
        for key in path {
            if !place.is_object() {
                *place = Value::Object(serde_json::Map::new());
            }
            place = &mut place[*key];
        }
        // Numbers, booleans and lists as they are written; anything else is text.
        *place = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    }

    /// The protection of the variant; none where the recording had none and nothing is set.
    ///
    /// # Errors
    /// What the configuration's types refuse.
    pub fn config(
        &self,
        recorded: Option<&SentryConfig>,
    ) -> Result<Option<SentryConfig>, VariantError> {
        let unchanged = self.patch.as_object().is_none_or(serde_json::Map::is_empty);
        if unchanged {
            return Ok(recorded.cloned());
        }
        let base = recorded.cloned().unwrap_or_default();
        let mut value = serde_json::to_value(base).map_err(|e| VariantError(e.to_string()))?;
        merge(&mut value, &self.patch);
        config_of(value)
            .map(Some)
            .map_err(|error| VariantError(format!("{}: {error}", self.name)))
    }

    /// Refuses to take away more replicas than there are.
    pub(super) fn check_replicas(&self, recorded: usize) -> Result<(), VariantError> {
        match self.replicas {
            Replicas::More(more) if more.unsigned_abs() >= recorded as u64 && more < 0 => {
                Err(VariantError(format!(
                    "`replicas={more}`: {recorded} are recorded, and at least one has to be left"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Without a recorded protection the mode has to be said: any default would be a guess.
    pub(super) fn check_protected(&self, is_protected: bool) -> Result<(), VariantError> {
        let patch = self.patch.as_object();
        let sets = patch.is_some_and(|patch| !patch.is_empty());
        if is_protected || !sets || patch.is_some_and(|patch| patch.contains_key("mode")) {
            return Ok(());
        }
        Err(VariantError(format!(
            "{}: nothing protected the service in this recording; say with which mode, like \
             mode=auto",
            self.name
        )))
    }

    pub(super) fn replicas(&self, recorded: usize) -> usize {
        match self.replicas {
            Replicas::Exactly(count) => count,
            Replicas::More(more) => {
                let count = i64::try_from(recorded)
                    .unwrap_or(i64::MAX)
                    .saturating_add(more);
                usize::try_from(count).unwrap_or(1).max(1)
            }
        }
    }
}

fn factor(text: &str) -> Option<f64> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (number > 0.0 && number <= 100.0).then_some(number)
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => target.clone_from(patch),
    }
}

/// A protection read like a file, so that a misspelt key is answered with the nearest.
pub(super) fn config_of(mut value: Value) -> Result<SentryConfig, String> {
    remove_nulls(&mut value);
    let text = toml::to_string(&value).map_err(|error| error.to_string())?;
    tidegate_config::parse("protect", &text).map_err(|error| error.message().to_owned())
}

/// TOML has none: what is not set is not there.
fn remove_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(remove_nulls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_together_are_one_variant() {
        let variant = Variant::parse(["protect.target=300ms", "replicas=+1", "mode=lqr"]).unwrap();
        let config = variant.config(None).unwrap().unwrap();
        assert_eq!(config.target.unwrap().as_millis(), 300);
        assert_eq!(config.mode.as_str(), "lqr");
        assert_eq!(variant.replicas(2), 3);
        assert_eq!(Variant::parse(["replicas=4"]).unwrap().replicas(2), 4);
        let fewer = |text| Variant::parse([text]).unwrap().check_replicas(2);
        assert!(fewer("replicas=-1").is_ok());
        let error = fewer("replicas=-2").unwrap_err().to_string();
        assert!(error.contains("2 are recorded"), "{error}");
    }

    #[test]
    fn what_is_not_known_is_answered_with_what_is() {
        for (setting, part) in [
            ("replica=1", "no such key; keys:"),
            ("replicas", "write KEY=VALUE"),
            ("replicas=0", "at least one"),
            ("rate=fast", "a factor"),
            ("optional=120%", "a share below 1"),
        ] {
            let error = Variant::parse([setting]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let unprotected = Variant::parse(["target=1s"]).unwrap();
        let error = unprotected.check_protected(false).unwrap_err().to_string();
        assert!(error.contains("mode=auto"), "{error}");
        assert!(unprotected.check_protected(true).is_ok());
        let told = Variant::parse(["target=1s", "mode=auto"]).unwrap();
        assert!(told.check_protected(false).is_ok());
        let misspelt = Variant::parse(["protect.traget=1s"]).unwrap();
        let error = misspelt.config(None).unwrap_err().to_string();
        assert!(error.contains("did you mean `target`"), "{error}");
    }
}
