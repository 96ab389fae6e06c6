//! Replicas in a file that something else writes: JSON, or one per line.
//!
//! JSON is a list of URLs or of tables as the admin API takes them, or a table with such a list as
//! `replicas`. Lines are as in the configuration, `http://10.0.0.7:3000 weight=2`; `#` begins a
//! comment. A file that names no replica says nothing: it may just be written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::Found;
use crate::config::Replica;
use crate::pool::{self, Member, MemberState};

/// How often the file is looked at.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// A larger file is no list of replicas.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    List(Vec<Item>),
    Table { replicas: Vec<Item> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Item {
    Url(String),
    Member(Member),
}

impl Item {
    fn member(self) -> Result<Member, String> {
        match self {
            Self::Url(text) => text.parse().map(plain),
            Self::Member(member) => Ok(member),
        }
    }
}

fn plain(replica: Replica) -> Member {
    Member {
        url: replica.url,
        weight: replica.weight,
        state: MemberState::Active,
    }
}

/// Reads the replicas in a file.
pub(super) fn read(path: &Path) -> Result<Found, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > BYTES_MAX {
        return Err("it is too large for a list of replicas".to_owned());
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let members = parse(&text)?;
    pool::check(&members)?;
    if members.is_empty() {
        Err("it names no replica".to_owned())
    } else {
        Ok(Found {
            members,
            ttl: Some(FILE_INTERVAL),
        })
    }
}

fn parse(text: &str) -> Result<Vec<Member>, String> {
    if text.trim_start().starts_with(['[', '{']) {
        let document: Document = serde_json::from_str(text)
            .map_err(|_| "it is no JSON list of URLs or replicas".to_owned())?;
        let (Document::List(items) | Document::Table { replicas: items }) = document;
        return items.into_iter().map(Item::member).collect();
    }
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let lines = lines.map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| line.parse().map(plain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        let members = parse(text)?;
        let shown = members.iter().map(|it| format!("{} {}", it.url, it.weight));
        Ok(shown.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn lines_and_json_say_the_same() {
        let expected = Ok("http://a:1 1, http://b:2 3".to_owned());
        for text in [
            "# two\nhttp://a:1\n\n  http://b:2 weight=3 # big\n",
            r#"["http://a:1", {"url": "http://b:2", "weight": 3}]"#,
            r#" {"replicas": [{"url": "http://a:1"}, "http://b:2 weight=3"]}"#,
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert!(shown("a:1").unwrap_err().contains("scheme is missing"));
        assert!(shown("[1]").unwrap_err().contains("no JSON list"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        assert!(read(&path).is_err(), "missing");
        for (text, why) in [
            ("", "names no replica"),
            ("http://a:1\nhttp://a:1", "twice"),
        ] {
            fs::write(&path, text).unwrap();
            assert!(read(&path).unwrap_err().contains(why), "{text}");
        }
    }
}
