//! The page `docs/admin.md`: every call of the admin API with its body, its answer and their types,
//! from the OpenAPI document, which is made from the table that calls are dispatched by.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::openapi;

const HEADER: &str = include_str!("reference.md");

/// Where the schemas of the document stand.
const SCHEMAS: &str = "#/components/schemas/";

/// Longest line, less what an item of a list is indented by.
const COLUMNS_MAX: usize = 98;

/// Types that are the configuration's: `docs/config.md` has them, key by key.
const CONFIGURATION: [&str; 2] = ["Config", "SentryConfig"];

/// The page.
#[must_use]
pub fn markdown() -> String {
    let document = openapi::document();
    let schemas = &document["components"]["schemas"];
    let mut page = Page {
        out: HEADER.to_owned(),
        elsewhere: configuration(schemas),
    };
    let empty = Map::new();
    for (path, methods) in document["paths"].as_object().unwrap_or(&empty) {
        for (method, operation) in methods.as_object().unwrap_or(&empty) {
            page.call(&method.to_ascii_uppercase(), path, operation);
        }
    }
    page.line("\n## Types");
    for (name, schema) in schemas.as_object().unwrap_or(&empty) {
        if !page.elsewhere.contains(name) {
            page.definition(name, schema);
        }
    }
    page.out
}

/// The names of the types that are reached from the configuration.
fn configuration(schemas: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = CONFIGURATION.map(str::to_owned).into();
    while let Some(name) = open.pop() {
        references(&schemas[&name], &mut open);
        if !found.insert(name) {
            open.retain(|name| !found.contains(name));
        }
    }
    found
}

/// Every type that the schema refers to, however deep.
fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(keys) => {
            found.extend(reference(schema).map(str::to_owned));
            keys.values().for_each(|inner| references(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(SCHEMAS)
}

struct Page {
    out: String,
    elsewhere: BTreeSet<String>,
}

impl Page {
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{text}");
    }

    fn call(&mut self, method: &str, path: &str, operation: &Value) {
        let summary = operation["summary"].as_str().unwrap_or_default();
        self.line(&format!("\n### {method} {path}\n"));
        self.line(&wrapped(summary));
        let mut facts = Vec::new();
        if operation["security"].is_null() {
            facts.push("Needs no token.".to_owned());
        }
        if let Some((_, schema)) = content(&operation["requestBody"]) {
            facts.push(format!("Body: {}.", self.kind(schema)));
        }
        match content(&operation["responses"]["200"]) {
            Some(("application/json", schema)) => {
                facts.push(format!("Answer: {}.", self.kind(schema)));
            }
            Some((kind, _)) => facts.push(format!("Answer: `{kind}`.")),
            None => facts.push("Answer: the status alone.".to_owned()),
        }
        self.line(&format!("\n{}", wrapped(&facts.join(" "))));
    }

    fn definition(&mut self, name: &str, schema: &Value) {
        self.line(&format!("\n### {name}"));
        let text = description(schema);
        if !text.is_empty() {
            self.line(&format!("\n{}", wrapped(&text)));
        }
        self.fields(schema);
        let variants = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
        for variant in variants.into_iter().flatten() {
            self.variant(variant);
        }
        if let Some(names) = schema["enum"].as_array() {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            self.line(&format!(
                "\n{}",
                wrapped(&format!("One of {}.", names.join(", ")))
            ));
        }
    }

    /// One of the forms of a type.
    fn variant(&mut self, variant: &Value) {
        let text = description(variant);
        let (form, inner) = match only_field(variant) {
            Some((name, inner)) => (format!("`{name}`: {}", self.kind(inner)), inner),
            None => (self.kind(variant), variant),
        };
        let separator = if text.is_empty() { "" } else { ". " };
        self.line(&format!(
            "\n- {}",
            indented(&format!("{form}{separator}{text}"))
        ));
        self.fields(inner);
    }

    fn fields(&mut self, schema: &Value) {
        let Some(fields) = schema["properties"].as_object() else {
            return;
        };
        self.line("\n| field | type | meaning |\n| --- | --- | --- |");
        for (name, schema) in fields {
            let kind = self.kind(schema).replace('|', "\\|");
            let text = description(schema).replace('|', "\\|");
            self.line(&format!("| `{name}` | {kind} | {text} |"));
        }
    }

    /// The type in a few words, with links.
    fn kind(&self, schema: &Value) -> String {
        if let Some(name) = reference(schema) {
            return self.link(name);
        }
        if let Some(value) = schema.get("const") {
            return format!("`{value}`");
        }
        if let Some(values) = schema["enum"].as_array() {
            let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
            return values.join(" or ");
        }
        for list in ["anyOf", "oneOf", "allOf"] {
            if let Some(forms) = schema[list].as_array() {
                let forms: Vec<_> = forms.iter().map(|form| self.kind(form)).collect();
                return forms.join(" or ");
            }
        }
        match &schema["type"] {
            Value::String(name) => self.plain(name, schema),
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str);
                let names: Vec<_> = names.map(|name| self.plain(name, schema)).collect();
                names.join(" or ")
            }
            _ => "any JSON".to_owned(),
        }
    }

    fn link(&self, name: &str) -> String {
        if self.elsewhere.contains(name) {
            return format!("[{name}](config.md)");
        }
        format!("[{name}](#{})", name.to_ascii_lowercase())
    }

    fn plain(&self, name: &str, schema: &Value) -> String {
        match name {
            "array" if schema["items"].is_object() => {
                format!("list of {}", self.kind(&schema["items"]))
            }
            "array" => match schema["prefixItems"].as_array() {
                Some(items) => {
                    let items: Vec<_> = items.iter().map(|item| self.kind(item)).collect();
                    format!("[{}]", items.join(", "))
                }
                None => "list".to_owned(),
            },
            "object" if schema["additionalProperties"].is_object() => {
                format!("map of {}", self.kind(&schema["additionalProperties"]))
            }
            name => name.to_owned(),
        }
    }
}

/// The media type and schema of a body.
fn content(body: &Value) -> Option<(&str, &Value)> {
    let (kind, body) = body["content"].as_object()?.iter().next()?;
    Some((kind, &body["schema"]))
}

/// The field of an object that has one only, as the forms of a command have.
fn only_field(schema: &Value) -> Option<(&String, &Value)> {
    let fields = schema["properties"].as_object()?;
    let mut fields = fields.iter();
    let first = fields.next()?;
    fields.next().is_none().then_some(first)
}

/// On one line.
fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As an item of a list.
fn indented(text: &str) -> String {
    wrapped(text).replace('\n', "\n  ")
}

/// In lines of at most [`COLUMNS_MAX`] columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= COLUMNS_MAX {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::admin::routes::ROUTES;

    #[test]
    fn page_in_the_book_is_the_one_that_is_generated() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin.md");
        if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
            std::fs::write(&path, markdown()).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == markdown(),
            "docs/admin.md is stale: run this test with TIDEGATE_WRITE_DOCS=1, or `tidegate \
             reference --admin > docs/admin.md`"
        );
    }

    #[test]
    fn page_has_every_route_and_every_type_it_refers_to() {
        let page = markdown();
        for route in &ROUTES {
            let heading = format!("\n### {} {}\n", route.verb.as_str(), route.path);
            assert!(page.contains(&heading), "{heading}");
        }
        for link in page.split("](#").skip(1) {
            let anchor = link.split(')').next().unwrap();
            let mut headings = page.lines().filter_map(|line| line.strip_prefix("### "));
            let found = headings.any(|heading| heading.to_ascii_lowercase() == anchor);
            assert!(found, "nothing describes {anchor}");
        }
    }

    #[test]
    fn every_field_has_a_meaning() {
        let page = markdown();
        let bare: Vec<_> = page.lines().filter(|line| line.ends_with("|  |")).collect();
        assert!(bare.is_empty(), "fields without a word: {bare:#?}");
    }
}
