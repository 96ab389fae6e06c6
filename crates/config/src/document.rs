//! One configuration in several files, and all that is wrong with it at once.
//!
//! A [`Source`] is the text of a file with its environment variables replaced. A [`Document`] is
//! the sum of several: lists of tables are joined in order, and any other key may be in one of
//! the files only. Deserializing stops at the first mistake; [`Document::parse`] notes it, leaves
//! that key out and goes on, so that a person sees every mistake after one attempt.
//!
//! Spans count over all sources, one behind the other, so that each leads to its file.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::error::ConfigError;
use crate::substitute::{Substituted, substitute};

/// Mistakes of types and unknown keys that are looked for; beyond it the file is no file of ours.
const MISTAKES_MAX: usize = 50;

/// The text of one file.
#[derive(Debug, Clone)]
pub struct Source {
    file: String,
    text: String,
    substituted: Substituted,
    refused: Vec<ConfigError>,
}

impl Source {
    /// Takes the text of a file; `lookup` knows the values of environment variables.
    #[must_use]
    pub fn new(file: &str, text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        let (substituted, refused) = substitute(text, lookup);
        let at = |(span, why)| ConfigError::at(file, text, span, why);
        Self {
            refused: refused.into_iter().map(at).collect(),
            file: file.to_owned(),
            text: text.to_owned(),
            substituted,
        }
    }

    /// The file's name, as errors show it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The strings under a key of the top, one or a list of them, each with its place; empty where
    /// the text is no TOML, which [`Document::new`] tells.
    #[must_use]
    pub fn strings(&self, key: &str) -> Vec<(String, Range<usize>)> {
        let (table, _) = DeTable::parse_recoverable(&self.substituted.text);
        let Some(value) = table.get_ref().get(key) else {
            return Vec::new();
        };
        let one = std::slice::from_ref(value);
        let all = value.get_ref().as_array().map_or(one, |list| list);
        let string =
            |it: &Spanned<DeValue<'_>>| Some((it.get_ref().as_str()?.to_owned(), it.span()));
        all.iter().filter_map(string).collect()
    }

    /// An error at a place that [`Source::strings`] gave.
    #[must_use]
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        let at = self.substituted.original(span.start);
        ConfigError::at(&self.file, &self.text, at..at, message)
    }

    fn len(&self) -> usize {
        self.substituted.text.len()
    }
}

/// A value that could be read, and what had to be left out for that.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The value; `None` where nothing was left of it.
    pub value: Option<T>,
    /// What was left out, in the order of the files.
    pub mistakes: Vec<Mistake>,
}

/// A key that was left out.
#[derive(Debug)]
pub struct Mistake {
    /// What is wrong with it.
    pub error: ConfigError,
    /// Its path from the top: `upstream.replicas.1`.
    pub path: String,
}

/// The sum of several sources.
#[derive(Debug)]
pub struct Document<'a> {
    sources: &'a [Source],
    table: DeTable<'a>,
}

impl<'a> Document<'a> {
    /// Puts sources together; keys of `alone` may be in each of them and count in the first.
    ///
    /// # Errors
    /// Variables that are not set, texts that are no TOML, and keys that are in two files.
    pub fn new(sources: &'a [Source], alone: &[&str]) -> Result<Self, Vec<ConfigError>> {
        let mut document = Self {
            sources,
            table: DeTable::new(),
        };
        let mut errors = Vec::new();
        let mut start = 0;
        for source in sources {
            errors.extend(source.refused.iter().cloned());
            let (table, wrong) = DeTable::parse_recoverable(&source.substituted.text);
            if source.refused.is_empty() {
                errors.extend(wrong.iter().map(|error| document.syntax(source, error)));
            }
            document.join(shifted(table.into_inner(), start), alone, &mut errors);
            start += source.len() + 1;
        }
        if errors.is_empty() {
            Ok(document)
        } else {
            Err(errors)
        }
    }

    fn syntax(&self, source: &Source, error: &toml::de::Error) -> ConfigError {
        let message = crate::error::remedy(error.message());
        match error.span() {
            Some(span) => source.error(span, message),
            None => ConfigError::new(source.file(), message),
        }
    }

    fn join(&mut self, table: DeTable<'a>, alone: &[&str], errors: &mut Vec<ConfigError>) {
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let Some((first, there)) = self.table.get_key_value(name.as_str()) else {
                self.table.insert(key, value);
                continue;
            };
            let both = (list_of_tables(there), list_of_tables(&value));
            if alone.contains(&name.as_str()) {
                continue;
            }
            if both != (true, true) {
                let place = self.error(first.span(), "").place();
                let message = format!(
                    "`{name}` is given in two files, and in {place} first; keep one of them"
                );
                errors.push(self.error(key.span(), message));
            } else if let Some(list) = self.table.get_mut(name.as_str()) {
                append(list, value);
            }
        }
    }

    /// An error at a span of the sum.
    #[must_use]
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        let mut start = 0;
        for source in self.sources {
            if span.start <= start + source.len() {
                return source.error(span.start - start..span.start - start, message);
            }
            start += source.len() + 1;
        }
        ConfigError::new(self.name(), message)
    }

    /// The name of the first file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.sources.first().map_or("", Source::file)
    }

    /// The tables and values.
    #[must_use]
    pub fn table(&self) -> &DeTable<'a> {
        &self.table
    }

    /// Takes a key of the top out, and gives the place of its name.
    pub fn remove(&mut self, key: &str) -> Option<Range<usize>> {
        self.table.remove_entry(key).map(|(key, _)| key.span())
    }

    /// Reads the sum as a `T`. What cannot be read is taken out of the document.
    #[must_use]
    pub fn parse<T: DeserializeOwned>(&mut self) -> Parsed<T> {
        let mut mistakes = Vec::new();
        let value = loop {
            let root = Spanned::new(0..0, self.table.clone());
            let error = match T::deserialize(toml::de::Deserializer::from(root)) {
                Ok(value) => break Some(value),
                Err(error) => error,
            };
            let span = error.span();
            let path = span
                .clone()
                .and_then(|span| take_out(&mut self.table, &span));
            let message = crate::error::remedy(error.message());
            let last = path.is_none() || mistakes.len() + 1 == MISTAKES_MAX;
            mistakes.push(Mistake {
                error: match span.filter(|span| *span != (0..0)) {
                    Some(span) => self.error(span, message),
                    None => ConfigError::new(self.name(), message),
                },
                path: path.unwrap_or_default(),
            });
            if last {
                break None;
            }
        };
        Parsed {
            value,
            mistakes: causes(mistakes),
        }
    }
}

/// Without those that another brought about: a table that lacks a key because that was misspelt.
fn causes(mut mistakes: Vec<Mistake>) -> Vec<Mistake> {
    let paths: Vec<_> = mistakes.iter().map(|it| it.path.clone()).collect();
    let follows = |path: &str| {
        let inside = |other: &String| {
            other
                .strip_prefix(path)
                .is_some_and(|it| it.starts_with('.'))
        };
        paths.iter().any(inside)
    };
    mistakes.retain(|it| !follows(&it.path));
    mistakes
}

fn list_of_tables(value: &Spanned<DeValue<'_>>) -> bool {
    let is_table = |it: &Spanned<DeValue<'_>>| it.get_ref().is_table();
    let list = value.get_ref().as_array();
    list.is_some_and(|list| list.iter().all(is_table))
}

fn append<'a>(list: &mut Spanned<DeValue<'a>>, more: Spanned<DeValue<'a>>) {
    if let (DeValue::Array(list), DeValue::Array(more)) = (list.get_mut(), more.into_inner()) {
        more.into_iter().for_each(|it| list.push(it));
    }
}

fn shifted(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let entry = |(key, value)| (moved(key, by), shifted_value(value, by));
    table.into_iter().map(entry).collect()
}

fn shifted_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = value.span();
    let inner = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(shifted(table, by)),
        DeValue::Array(list) => {
            let list = list.into_iter().map(|it| shifted_value(it, by));
            DeValue::Array(list.collect::<DeArray<'_>>())
        }
        other => other,
    };
    moved(Spanned::new(span, inner), by)
}

fn moved<T>(spanned: Spanned<T>, by: usize) -> Spanned<T> {
    let span = spanned.span();
    Spanned::new(span.start + by..span.end + by, spanned.into_inner())
}

/// Removes the deepest key or item that `span` belongs to, and gives its path.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let mut found = None;
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().to_string();
        if let Some(inside) = take_out_of(value, span) {
            return Some(format!("{name}.{inside}"));
        }
        if holds(&key.span(), span) || holds(&value.span(), span) {
            found = Some(name);
        }
    }
    let name = found?;
    table.remove(name.as_str());
    Some(name)
}

fn take_out_of(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<String> {
    let list = match value.get_mut() {
        DeValue::Table(table) => return take_out(table, span),
        DeValue::Array(list) => list,
        _ => return None,
    };
    for (index, item) in list.iter_mut().enumerate() {
        if let Some(inside) = take_out_of(item, span) {
            return Some(format!("{index}.{inside}"));
        }
    }
    let index = list.iter().position(|item| holds(&item.span(), span))?;
    let kept = list.iter().cloned().enumerate();
    let kept = kept.filter(|(at, _)| *at != index).map(|(_, item)| item);
    *list = kept.collect();
    Some(index.to_string())
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && outer.start < outer.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct File {
        name: String,
        number: u8,
        list: Vec<Item>,
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Item {
        size: u8,
    }

    #[derive(Debug, Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        sizes: Vec<u8>,
    }

    fn sources(texts: &[(&str, &str)]) -> Vec<Source> {
        let source = |&(file, text): &(&str, &str)| Source::new(file, text, &|_| None);
        texts.iter().map(source).collect()
    }

    fn mistakes(text: &str) -> Vec<String> {
        let sources = sources(&[("f", text)]);
        let parsed = Document::new(&sources, &[]).unwrap().parse::<File>();
        let shown = |it: &Mistake| format!("{} {}", it.error.place(), it.path);
        parsed.mistakes.iter().map(shown).collect()
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let text = "numbr = 1\nnumber = 300\n[[list]]\nsize = 1\n[[list]]\nsiz = 1\n[inner]\nsizes = [1, 'x', 2]";
        let mut found = mistakes(text);
        found.sort();
        assert_eq!(
            found,
            [
                "f:1:1 numbr",
                "f:2:10 number",
                "f:6:1 list.1.siz",
                "f:8:13 inner.sizes.1"
            ]
        );
    }

    #[test]
    fn what_is_left_is_read() {
        let sources = sources(&[("f", "name = 'a'\nnumber = 'x'")]);
        let parsed = Document::new(&sources, &[]).unwrap().parse::<File>();
        assert_eq!(parsed.value.unwrap().name, "a");
        assert_eq!(parsed.mistakes.len(), 1);
    }

    #[test]
    fn lists_of_tables_are_joined_and_errors_name_their_file() {
        let first = ("a", "name = 'a'\n[[list]]\nsize = 1\n");
        let good = sources(&[first, ("b", "[[list]]\nsize = 2\n"), ("c", "number = 3")]);
        let mut document = Document::new(&good, &[]).unwrap();
        let file: File = document.parse().value.unwrap();
        assert_eq!((file.list.len(), file.number), (2, 3));
        let bad = sources(&[first, ("b", "\n[[list]]\nsize = 'x'\n")]);
        let parsed = Document::new(&bad, &[]).unwrap().parse::<File>();
        assert_eq!(parsed.mistakes[0].error.place(), "b:3:8");
        assert_eq!(parsed.mistakes[0].path, "list.1.size");
    }

    #[test]
    fn key_in_two_files_names_both_places() {
        let texts = [("a", "\nname = 'a'"), ("b", "name = 'b'")];
        let two = sources(&texts);
        let errors = Document::new(&two, &[]).unwrap_err();
        let shown = errors[0].to_string();
        assert!(
            shown.starts_with("b:1:1: `name` is given in two files, and in a:2:1"),
            "{shown}"
        );
        let mut document = Document::new(&two, &["name"]).unwrap();
        assert_eq!(document.parse::<File>().value.unwrap().name, "a");
    }

    #[test]
    fn every_error_of_syntax_is_told_at_once() {
        let wrong = sources(&[("f", "a = \nb = 1\nc = 'x\n"), ("g", "= 1")]);
        let errors = Document::new(&wrong, &[]).unwrap_err();
        let places: Vec<_> = errors.iter().map(ConfigError::place).collect();
        assert!(places.iter().any(|it| it.starts_with("f:1:")), "{places:?}");
        assert!(places.iter().any(|it| it.starts_with("f:3:")), "{places:?}");
        assert!(places.iter().any(|it| it.starts_with("g:1:")), "{places:?}");
    }
}
