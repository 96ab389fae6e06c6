//! The annotated reference of the file, generated from the types.
//!
//! The doc comment of a field is its description and the default is what the code really uses,
//! because both come out of the JSON schema that the type derives. Everything is commented out:
//! prose starts with `# `, what can be uncommented with `#` alone, so a test can uncomment it all
//! and parse it.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::Config;

const WIDTH: usize = 96;

const HEADER: &str = "\
# Every key that Tidegate understands, with its default.
#
# Durations, rates, sizes and shares carry their unit: \"250ms\", \"40/s\", \"64KiB\", \"80%\".
# Unknown keys are refused. File names are relative to the directory of this file.
";

/// The reference as TOML.
#[must_use]
pub fn toml() -> String {
    of::<Config>(HEADER)
}

/// The reference of another file's type, under `header`.
#[must_use]
pub fn of<T: schemars::JsonSchema>(header: &str) -> String {
    let schema = schemars::schema_for!(T).to_value();
    let mut page = Page {
        out: header.to_owned(),
        definitions: schema["$defs"].clone(),
    };
    page.table("", &schema);
    page.out
}

/// The reference as the Markdown page `docs/config.md`: a heading for every table of the file.
#[must_use]
pub fn markdown() -> String {
    let mut page = include_str!("reference.md").to_owned();
    let mut heading = "Top of the file".to_owned();
    let mut block = String::new();
    let text = toml();
    let keys = text.strip_prefix(HEADER).unwrap_or(&text);
    for paragraph in keys.split("\n\n") {
        if let Some(table) = table_of(paragraph) {
            page.push_str(&section(&heading, &block));
            table.clone_into(&mut heading);
            block.clear();
        }
        block.push_str(paragraph.trim_matches('\n'));
        block.push_str("\n\n");
    }
    page.push_str(&section(&heading, &block));
    page
}

fn section(heading: &str, block: &str) -> String {
    format!("\n## {heading}\n\n```toml\n{}\n```\n", block.trim_end())
}

/// The table that begins in a paragraph: `protect.queue` for `#[protect.queue]`.
fn table_of(paragraph: &str) -> Option<&str> {
    let mut lines = paragraph.lines();
    let line = lines.find_map(|line| line.strip_prefix("#["))?;
    Some(line.trim_matches(['[', ']']))
}

struct Page {
    out: String,
    definitions: Value,
}

/// What a key holds.
enum Shape<'a> {
    /// One value.
    Plain,
    /// A table with keys of its own.
    Table(&'a Value),
    /// A list of such tables.
    Tables(&'a Value),
}

impl Page {
    /// Plain keys first: in TOML everything after a header belongs to it.
    fn table(&mut self, path: &str, schema: &Value) {
        let empty = Map::new();
        let keys = schema["properties"].as_object().unwrap_or(&empty);
        let required = |key: &String| {
            let required = schema["required"].as_array();
            required.is_some_and(|list| list.iter().any(|name| name == key))
        };
        for (key, schema) in keys {
            if let Shape::Plain = shape(&self.definitions, schema) {
                self.plain(key, schema, required(key));
            }
        }
        for (key, schema) in keys {
            self.section(path, key, schema);
        }
    }

    fn section(&mut self, path: &str, key: &str, schema: &Value) {
        let definitions = self.definitions.clone();
        let path = match path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        };
        let (header, inner) = match shape(&definitions, schema) {
            Shape::Plain => return,
            Shape::Table(inner) => (format!("#[{path}]"), inner),
            Shape::Tables(inner) => (format!("#[[{path}]]"), inner),
        };
        self.out.push('\n');
        self.prose(schema["description"].as_str().unwrap_or_default());
        self.line(&header);
        self.table(&path, inner);
    }

    fn plain(&mut self, key: &str, schema: &Value, required: bool) {
        let target = resolve(&self.definitions, schema).clone();
        self.out.push('\n');
        self.prose(description(schema, &target));
        for choice in target["oneOf"].as_array().into_iter().flatten() {
            self.choice(choice);
        }
        let bound = |key: &str| schema[key].as_u64().or(target[key].as_u64());
        if let Some(min) = bound("minimum").filter(|min| *min > 0) {
            self.prose(&format!("At least {min}."));
        }
        let value = match schema.get("default").filter(|value| !value.is_null()) {
            Some(default) => default.clone(),
            None => {
                self.prose(if required {
                    "Has to be given; for example:"
                } else {
                    "Not set by default; for example:"
                });
                example(schema, &target)
            }
        };
        self.line(&format!("#{key} = {}", in_toml(&value)));
    }

    fn choice(&mut self, choice: &Value) {
        if let Some(name) = choice["const"].as_str() {
            let text = choice["description"].as_str().unwrap_or_default();
            self.prose(&format!("- \"{name}\": {text}"));
        }
    }

    fn prose(&mut self, text: &str) {
        for paragraph in text.split("\n\n").filter(|text| !text.is_empty()) {
            let indent = if paragraph.starts_with("- ") {
                "#  "
            } else {
                "#"
            };
            let mut line = String::from("#");
            for word in paragraph.split_whitespace() {
                if line.len() + 1 + word.len() > WIDTH {
                    self.line(&line);
                    line.clear();
                    line.push_str(indent);
                }
                line.push(' ');
                line.push_str(word);
            }
            self.line(&line);
        }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.out, "{line}").expect("writing to a string cannot fail");
    }
}

fn shape<'a>(definitions: &'a Value, schema: &'a Value) -> Shape<'a> {
    let target = resolve(definitions, schema);
    if target["properties"].is_object() {
        return Shape::Table(target);
    }
    let item = resolve(definitions, &target["items"]);
    if item["properties"].is_object() {
        Shape::Tables(item)
    } else {
        Shape::Plain
    }
}

/// Follows `$ref`, and `anyOf` of something and null, which is how an optional value is described.
fn resolve<'a>(definitions: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return resolve(definitions, &definitions[name]);
    }
    let choices = schema["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
    match choices {
        [some, null] if null["type"] == "null" => resolve(definitions, some),
        _ => schema,
    }
}

fn description<'a>(schema: &'a Value, target: &'a Value) -> &'a str {
    let text = schema["description"].as_str();
    text.or(target["description"].as_str()).unwrap_or_default()
}

/// What a key without a default may look like: the example at its field, else one of its type.
fn example(schema: &Value, target: &Value) -> Value {
    let given = schema["examples"].as_array().and_then(|list| list.first());
    let unit = target["description"].as_str().unwrap_or_default();
    let by_type = || match &target["type"] {
        _ if unit.starts_with("A duration") => "250ms".into(),
        _ if unit.starts_with("A rate") => "40/s".into(),
        _ if unit.starts_with("A size") => "10MiB".into(),
        _ if unit.starts_with("A share") => "80%".into(),
        of if is(of, "integer") => 1.into(),
        of if is(of, "number") => 1.0.into(),
        of if is(of, "boolean") => true.into(),
        of if is(of, "array") => Value::Array(Vec::new()),
        _ => first_choice(target).unwrap_or_else(|| "...".into()),
    };
    given.cloned().unwrap_or_else(by_type)
}

fn is(of: &Value, name: &str) -> bool {
    of == name
        || of
            .as_array()
            .is_some_and(|types| types.contains(&name.into()))
}

fn first_choice(target: &Value) -> Option<Value> {
    let first = |list: &str| target[list].as_array()?.first().cloned();
    first("oneOf")
        .map(|choice| choice["const"].clone())
        .or_else(|| first("enum"))
}

fn in_toml(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(in_toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let pairs: Vec<_> = table
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{key} = {}", in_toml(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        // Strings, numbers and booleans are written alike in JSON and TOML.
        value => value.to_string(),
    }
}
