//! Decision records: each has a line in the index, and says its status itself as the index does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/decisions")
}

/// A line of the index: the file and its status.
fn row(line: &str) -> Option<(String, String)> {
    let cells: Vec<&str> = line.strip_prefix("| [")?.split(" | ").collect();
    let file = cells.first()?.split_once("](")?.1.strip_suffix(')')?;
    let status = cells.last()?.strip_suffix(" |")?;
    Some((file.to_owned(), status.to_owned()))
}

/// The text with the words of its links and without their targets.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let linked = after.split_once("](").and_then(|(words, target)| {
            let (_, after) = target.split_once(')')?;
            Some((words, after))
        });
        let Some((words, after)) = linked else {
            plain.push('[');
            rest = after;
            continue;
        };
        plain.push_str(words);
        rest = after;
    }
    plain + rest
}

#[test]
fn record_has_a_line_in_the_index_and_its_status() {
    let index = fs::read_to_string(folder().join("README.md")).unwrap();
    let rows: BTreeMap<String, String> = index.lines().filter_map(row).collect();
    let mut problems = Vec::new();
    let mut records = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if file == "README.md" {
            continue;
        }
        records += 1;
        let text = fs::read_to_string(&path).unwrap();
        let number = &file[..4];
        if !text.starts_with(&format!("# {number}: ")) {
            problems.push(format!("{file}: its title begins with `# {number}: `"));
        }
        let paragraph = text.lines().skip(2).take_while(|line| !line.is_empty());
        let status = paragraph.collect::<Vec<_>>().join(" ");
        match rows.get(&file) {
            None => problems.push(format!("{file}: README.md has no line for it")),
            Some(said) if without_links(&status) != format!("Status: {said}.") => {
                problems.push(format!("{file}: its first paragraph is `Status: {said}.`"));
            }
            Some(_) => {}
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(rows.len(), records, "README.md names files that are gone");
}

/// All sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn decision_that_a_source_names_exists() {
    let root = folder().join("../..");
    let mut paths = Vec::new();
    sources(&root.join("crates"), &mut paths);
    sources(&root.join("bench"), &mut paths);
    let mut links = 0;
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for named in text.split("docs/decisions/0").skip(1) {
            let Some((record, _)) = named.split_once(".md") else {
                continue;
            };
            if !record.starts_with(|digit: char| digit.is_ascii_digit()) {
                continue;
            }
            links += 1;
            let file = folder().join(format!("0{record}.md"));
            assert!(file.is_file(), "{} names 0{record}", path.display());
        }
    }
    assert!(links > 70, "{links} links from sources to decisions");
}

#[test]
fn links_are_read_as_their_words() {
    assert_eq!(without_links("a [b](c.md) d [e"), "a b d [e");
}
