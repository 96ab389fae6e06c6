//! Which bytes of the file a key path belongs to.
//!
//! Validation works on the typed configuration and names what is wrong by its path, such as
//! `listen.0.tls.1.cert`. A person wants the line. The path is followed through the parsed document
//! as far as it goes; what was abbreviated (`listen = ":8080"`) or left out is placed at the
//! nearest key above it that is in the file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The span of the deepest part of `path` that the document contains; `None` when not even its
/// first key is there.
pub(super) fn span(document: &DeTable<'_>, path: &str) -> Option<Range<usize>> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let (mut found, mut value) = entry(document, first)?;
    for key in rest.split('.').filter(|key| !key.is_empty()) {
        let next = match (value.get_ref(), key.parse::<usize>()) {
            (DeValue::Table(table), Err(_)) => entry(table, key),
            (DeValue::Array(items), Ok(index)) => item(items.get(index)),
            // One table in place of a list of them, or a list in place of the table around it.
            (DeValue::Table(_), Ok(_)) | (DeValue::Array(_), Err(_)) => continue,
            _ => None,
        };
        let Some(next) = next else { break };
        (found, value) = next;
    }
    Some(found)
}

type Found<'a, 'i> = (Range<usize>, &'a Spanned<DeValue<'i>>);

/// A scalar is best shown by its value, a table by its name.
fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<Found<'a, 'i>> {
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    let at = match value.get_ref() {
        DeValue::Table(_) => key.span(),
        _ => value.span(),
    };
    Some((at, value))
}

fn item<'a, 'i>(value: Option<&'a Spanned<DeValue<'i>>>) -> Option<Found<'a, 'i>> {
    value.map(|value| (value.span(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
listen = ":8080"
upstream = ["http://a:1", { url = "http://b:2" }]

[admin]
addr = "0.0.0.0:1"

[[classify]]
class = "gold"
[[classify]]
class = "lead"
"#;

    fn at(path: &str) -> Option<&'static str> {
        let document = DeTable::parse(TEXT).unwrap();
        span(document.get_ref(), path).map(|span| &TEXT[span])
    }

    #[test]
    fn a_path_is_followed_through_tables_and_lists() {
        assert_eq!(at("admin.addr"), Some("\"0.0.0.0:1\""));
        assert_eq!(at("classify.1.class"), Some("\"lead\""));
        assert_eq!(at("upstream.replicas.1.url"), Some("\"http://b:2\""));
    }

    #[test]
    fn what_is_abbreviated_or_left_out_is_placed_at_what_is_there() {
        assert_eq!(at("listen.0.addr"), Some("\":8080\""));
        assert_eq!(at("upstream.replicas.0.url"), Some("\"http://a:1\""));
        assert_eq!(at("admin.token"), Some("admin"));
        assert_eq!(at("sticky.cookie"), None);
    }
}
