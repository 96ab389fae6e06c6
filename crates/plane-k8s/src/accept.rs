//! Which of the cluster's objects are put in force.
//!
//! Each object is judged by itself and together with those before it, the file's applications
//! first, then objects by their name. One that cannot be used leaves the others alone. If an
//! earlier form of it was in force, that stays.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_plane::PlaneConfig;
use tidegate_planed::Declared;

use crate::resource::ApplicationSpec;

/// An object as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) generation: Option<i64>,
    pub(crate) spec: Value,
}

/// What became of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) generation: Option<i64>,
    /// What is in force.
    pub(crate) declared: Option<Declared>,
    /// Why its present form is not.
    pub(crate) refused: Option<String>,
}

/// Judges all objects; `before` is what is in force.
pub(crate) fn accept(
    base: &PlaneConfig,
    objects: &[Object],
    before: &BTreeMap<String, Verdict>,
) -> BTreeMap<String, Verdict> {
    let mut config = base.clone();
    let mut verdicts = BTreeMap::new();
    let mut objects: Vec<&Object> = objects.iter().collect();
    objects.sort_by(|a, b| a.name.cmp(&b.name));
    for object in objects {
        let old = before.get(&object.name);
        let old = old.and_then(|verdict| verdict.declared.clone());
        let (declared, refused) = match read(object).and_then(|it| fits(&config, it)) {
            Ok(declared) => (Some(declared), None),
            Err(refused) => {
                let old = old.and_then(|old| fits(&config, old).ok());
                (old, Some(refused))
            }
        };
        if let Some(declared) = &declared {
            config.applications.push(declared.application.clone());
        }
        let verdict = Verdict {
            generation: object.generation,
            declared,
            refused,
        };
        verdicts.insert(object.name.clone(), verdict);
    }
    verdicts
}

fn read(object: &Object) -> Result<Declared, String> {
    let spec: ApplicationSpec = serde_json::from_value(object.spec.clone())
        .map_err(|error| format!("spec: {error}; `kubectl explain tidegateapplication.spec`"))?;
    spec.declared(&object.name)
}

/// Whether it goes together with those that are in force already.
fn fits(config: &PlaneConfig, declared: Declared) -> Result<Declared, String> {
    declared.driver.check()?;
    let name = &declared.application.name;
    if config.applications.iter().any(|it| it.name == *name) {
        return Err(format!(
            "spec.application: `{name}` is declared already, in the file or by another object; \
             remove one of them"
        ));
    }
    let mut together = config.clone();
    together.applications.push(declared.application.clone());
    together.check_parts().map_err(|error| error.to_string())?;
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn base(text: &str) -> PlaneConfig {
        tidegate_config::parse("plane.toml", text).expect("readable")
    }

    fn object(name: &str, more: &Value) -> Object {
        let mut spec = json!({ "scaleTargetRef": { "name": name } });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        Object {
            name: name.into(),
            generation: Some(1),
            spec,
        }
    }

    fn refused<'a>(verdicts: &'a BTreeMap<String, Verdict>, name: &str) -> &'a str {
        verdicts[name].refused.as_deref().unwrap_or("")
    }

    #[test]
    fn object_that_cannot_be_used_is_refused_and_others_are_not() {
        let objects = [
            object("a", &json!({})),
            object("b", &json!({ "target": "soon" })),
            object("c", &json!({ "scaleTargetRef": 7 })),
            object("d", &json!({ "min": 3, "max": 2 })),
            object("e", &json!({ "application": "a" })),
            object("f", &json!({ "application": "of-file" })),
        ];
        let base = base("[[application]]\nname = 'of-file'");
        let verdicts = accept(&base, &objects, &BTreeMap::new());
        assert_eq!(verdicts["a"].refused, None);
        assert!(verdicts["a"].declared.is_some());
        for (name, why) in [
            ("b", "spec.target"),
            ("c", "spec: "),
            ("d", "`max` = 2 is below `min` = 3"),
            ("e", "`a` is declared already"),
            ("f", "`of-file` is declared already"),
        ] {
            assert!(
                refused(&verdicts, name).contains(why),
                "{name}: {verdicts:#?}"
            );
            assert_eq!(verdicts[name].declared, None);
        }
    }

    #[test]
    fn form_that_was_in_force_stays_when_the_new_one_cannot_be_used() {
        let base = base("");
        let good = [object("a", &json!({ "target": "250ms" }))];
        let before = accept(&base, &good, &BTreeMap::new());
        let mut bad = object("a", &json!({ "target": "never" }));
        bad.generation = Some(2);
        let after = accept(&base, &[bad], &before);
        assert_eq!(after["a"].declared, before["a"].declared);
        assert_eq!(after["a"].generation, Some(2));
        assert!(refused(&after, "a").contains("spec.target"));
        assert!(
            accept(&base, &[], &after).is_empty(),
            "a deleted one is gone"
        );
    }

    #[test]
    fn object_whose_minimum_exceeds_the_pool_is_refused() {
        let objects = [
            object("a", &json!({ "min": 3 })),
            object("b", &json!({ "min": 3 })),
        ];
        let verdicts = accept(&base("pool = 4"), &objects, &BTreeMap::new());
        assert_eq!(verdicts["a"].refused, None);
        assert!(refused(&verdicts, "b").contains("raise `pool`"));
    }
}
