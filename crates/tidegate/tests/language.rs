//! The language of the repository: what a stranger reads is plain, short and in the field's words.
//!
//! Comments and Markdown have at most 100 columns; a type is described where it stands; words that
//! the glossary of ARCHITECTURE.md replaced do not come back. Tables, code and what cannot be
//! broken (a link, a code span) may be longer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of a comment or of Markdown, in characters.
const COLUMNS_MAX: usize = 100;

/// Folders that are built or belong to others.
const SKIPPED: [&str; 7] = [
    "target",
    "node_modules",
    ".git",
    "out",
    "history",
    "corpus",
    "artifacts",
];

/// Phrases of comments, and what stands for them.
const PHRASES: [(&str, &str); 4] = [
    (
        "See the module's description",
        "a sentence on the type itself",
    ),
    ("turned away for load", "shed"),
    ("policed away", "shed"),
    ("is dimmed away", "left out (optional content)"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a folder with this ending.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            files(&path, ending, found);
        } else if name.ends_with(ending) && path.is_file() {
            found.push(path);
        }
    }
}

fn all(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), ending, &mut found);
    assert!(!found.is_empty(), "no {ending} file");
    found
}

/// What a comment says, without its marker.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']))
}

/// Whether the text has a blank, outside of code and links, at which the line could be broken.
fn breaks_before(text: &str, columns: usize) -> bool {
    let body = text.trim_start_matches([' ', '-', '*']);
    let start = text.chars().count() - body.chars().count();
    let (mut code, mut link) = (false, 0_u32);
    for (column, letter) in body.chars().enumerate() {
        match letter {
            '`' => code = !code,
            '[' if !code => link += 1,
            ')' | ']' if !code => link = link.saturating_sub(1),
            ' ' if !code && link == 0 && start + column <= columns => return true,
            _ => {}
        }
    }
    false
}

fn is_long(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX && breaks_before(line, COLUMNS_MAX)
}

/// The lines of Markdown that are prose.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let line = line.trim_start();
        let fence = line.starts_with("```");
        code ^= fence;
        let table = line.starts_with(['|', '#', '<', '>']) || line.starts_with("[^");
        !(code || fence || table)
    })
}

fn report(problems: &[String]) {
    assert!(
        problems.is_empty(),
        "{} places:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

fn place(path: &Path, line: usize, what: &str) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    format!("{}:{}: {what}", path.display(), line + 1)
}

#[test]
fn comments_have_at_most_100_columns() {
    let mut problems = Vec::new();
    for path in all(".rs") {
        let text = fs::read_to_string(&path).unwrap();
        let mut code = false;
        for (number, line) in text.lines().enumerate() {
            let said = comment(line).map(str::trim_start);
            let fence = said.is_some_and(|text| text.starts_with("```"));
            code = said.is_some() && (code ^ fence);
            let prose = said.is_some_and(|text| !text.starts_with('|'));
            if prose && !code && is_long(line) {
                problems.push(place(&path, number, "a comment of more than 100 columns"));
            }
        }
    }
    report(&problems);
}

#[test]
fn markdown_has_at_most_100_columns() {
    let mut problems = Vec::new();
    for path in all(".md") {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in prose(&text) {
            if is_long(line) {
                problems.push(place(&path, number, "a line of more than 100 columns"));
            }
        }
    }
    report(&problems);
}

#[test]
fn comments_use_the_words_of_the_glossary() {
    let mut problems = Vec::new();
    for path in all(".rs") {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let Some(text) = comment(line) else { continue };
            for (phrase, instead) in PHRASES {
                if text.contains(phrase) {
                    let what = format!("`{phrase}`: write {instead}");
                    problems.push(place(&path, number, &what));
                }
            }
        }
    }
    report(&problems);
}

#[test]
fn long_lines_are_found_and_unbreakable_ones_pass() {
    let words = "word ".repeat(30);
    assert!(is_long(&words));
    assert!(!is_long("short"));
    assert!(!is_long(&format!("- [{}](x)", "a b ".repeat(40))));
    assert!(!is_long(&format!("`{}`", "a b ".repeat(40))));
    let fenced = format!("```\n{words}\n```\n| {words} |\n{words}\n");
    assert_eq!(prose(&fenced).filter(|(_, line)| is_long(line)).count(), 1);
}
