//! A second configuration that runs beside the one in force.

use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_sentry::{ModeName, SentryConfig};

use super::Config;

/// Another protection beside the one in force, on the same arrivals: what it would admit and shed
/// stands in the status, in metrics, in `tidegate ctl shadow` and on the web page. It decides about
/// no request. None by default; see `docs/shadow.md`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shadow {
    /// A configuration file whose `[protect]` it has; without one it starts from the `[protect]` in
    /// force. The rest of that file is not looked at.
    #[schemars(example = &"tomorrow.toml")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Keys of `[protect]` that it has otherwise.
    #[schemars(example = &serde_json::json!({ "target": "300ms" }))]
    #[serde(skip_serializing_if = "Overrides::is_empty")]
    pub protect: Overrides,
}

/// Keys of `[protect]`, with values as they are written there.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Overrides(Map<String, Value>);

impl Overrides {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl JsonSchema for Overrides {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Overrides".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "Keys of `[protect]`, with values as they are written there.",
        })
    }
}

impl Shadow {
    /// Whether there is one.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.file.is_some() || !self.protect.is_empty()
    }

    /// Its protection, beside this one. Reads its file. `None` where there is no shadow.
    ///
    /// # Errors
    /// The key that is wrong, with cause and remedy.
    pub fn config(
        &self,
        in_force: &SentryConfig,
    ) -> Result<Option<SentryConfig>, (&'static str, String)> {
        if !self.is_set() {
            return Ok(None);
        }
        let base = match &self.file {
            Some(path) => protect_of(path).map_err(|message| ("shadow.file", message))?,
            None => in_force.clone(),
        };
        let patch = Value::Object(self.protect.0.clone());
        let config = patched(&base, &patch).map_err(|message| ("shadow.protect", message))?;
        config
            .validate()
            .map_err(|error| ("shadow.protect", error.to_string()))?;
        Ok(Some(config))
    }

    /// What differs from the protection in force, key by key.
    #[must_use]
    pub fn differences(&self, in_force: &SentryConfig) -> Vec<String> {
        let Ok(Some(config)) = self.config(in_force) else {
            return Vec::new();
        };
        let value = |config: &SentryConfig| serde_json::to_value(config).unwrap_or_default();
        let mut found = Vec::new();
        differences("", &value(in_force), &value(&config), &mut found);
        found
    }

    /// Why its forecasts are worth less than they look, if they are.
    pub(super) fn caution(&self, in_force: &SentryConfig) -> Option<&'static str> {
        let config = self.config(in_force).ok()??;
        match config.mode {
            _ if config == *in_force => Some(
                "it is the protection in force, so both will decide alike; change a key, or remove \
                 [shadow]",
            ),
            ModeName::Ilac | ModeName::Sentry => Some(
                "this mode decides by what replicas report about single requests, which models of \
                 replicas do not; `tidegate whatif` on a recording answers it better",
            ),
            _ => None,
        }
    }
}

/// The protection in a file, or cause and remedy.
fn protect_of(path: &Path) -> Result<SentryConfig, String> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("cannot read {shown}: {error}; check the name and who may read it")
    })?;
    let config = Config::from_text(&shown, &text).map_err(|error| error.to_string())?;
    Ok(config.protect)
}

/// A JSON merge patch (RFC 7396) over a protection. What comes out is read like a file, so a
/// misspelt key is answered with the nearest.
pub(crate) fn patched(protect: &SentryConfig, patch: &Value) -> Result<SentryConfig, String> {
    let mut value = serde_json::to_value(protect).map_err(|error| error.to_string())?;
    merge(&mut value, patch);
    remove_nulls(&mut value); // TOML has none: what is not set is not there
    let text = toml::to_string(&value).map_err(|error| error.to_string())?;
    tidegate_config::parse("parameters", &text).map_err(|error| error.message().to_owned())
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key).or_insert(Value::Null), value),
        }
    }
}

fn remove_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(remove_nulls);
    }
}

/// `protect.target = "300ms" instead of "500ms"`, for every key that differs.
fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let place = format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
            let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
            differences(&place, &of(old), &of(new), found);
        }
    } else if old != new {
        let shown = |value: &Value| match value {
            Value::Null => "nothing".to_owned(),
            value => value.to_string(),
        };
        found.push(format!("{path} = {} instead of {}", shown(new), shown(old)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patch_changes_adds_and_removes() {
        let mut value = json!({ "a": 1, "b": { "c": 2, "d": 3 } });
        merge(
            &mut value,
            &json!({ "a": null, "b": { "c": 4 }, "e": { "f": 5 } }),
        );
        assert_eq!(value, json!({ "b": { "c": 4, "d": 3 }, "e": { "f": 5 } }));
    }

    fn parsed(text: &str) -> Config {
        Config::from_text("a.toml", text).unwrap()
    }

    #[test]
    fn shadow_has_the_protection_in_force_with_its_own_keys() {
        let config = parsed(
            "upstream = 'http://127.0.0.1:1'\nprotect.target = '500ms'\n\
             [shadow.protect]\ntarget = '300ms'\nlimits.window_max = 8",
        );
        let shadow = config.shadow.config(&config.protect).unwrap().unwrap();
        assert_eq!(shadow.target.unwrap().as_millis(), 300);
        assert_eq!(shadow.limits.window_max, 8);
        assert_eq!(shadow.queue, config.protect.queue);
        let differences = config.shadow.differences(&config.protect);
        assert_eq!(differences.len(), 2, "{differences:?}");
        assert_eq!(differences[1], "target = \"300ms\" instead of \"500ms\"");
        let none = parsed("upstream = 'http://127.0.0.1:1'");
        assert_eq!(none.shadow.config(&none.protect), Ok(None));
    }

    #[test]
    fn shadow_of_a_file_has_its_protection() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tomorrow.toml");
        std::fs::write(&path, "[protect]\nmode = 'static'\nstatic.rate = '9/s'").unwrap();
        let mut shadow = Shadow {
            file: Some(path),
            ..Shadow::default()
        };
        let in_force = SentryConfig::default();
        let config = shadow.config(&in_force).unwrap().unwrap();
        assert_eq!(config.mode, ModeName::Static);
        shadow.file = Some(dir.path().join("missing.toml"));
        let (key, message) = shadow.config(&in_force).unwrap_err();
        assert_eq!(key, "shadow.file");
        assert!(message.contains("check the name"), "{message}");
    }

    #[test]
    fn misspelt_key_is_answered_with_the_nearest() {
        let config = parsed("[shadow]\nprotect.traget = '1s'");
        let problems = config.problems();
        let problem = problems.iter().find(|it| it.path == "shadow.protect");
        let message = &problem.unwrap().message;
        assert!(message.contains("did you mean `target`"), "{message}");
    }

    #[test]
    fn shadow_that_changes_nothing_is_warned_about() {
        let config = parsed("protect.target = '1s'\n[shadow]\nprotect.target = '1s'");
        let problems = config.problems();
        let mut all = problems.iter().map(|it| (it.path.as_str(), &it.message));
        let (_, message) = all.find(|(path, _)| *path == "shadow").unwrap();
        assert!(message.contains("decide alike"), "{message}");
    }
}
