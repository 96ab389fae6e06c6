//! The language of the repository: what a stranger reads is plain, short and in the field's words.
//!
//! Comments and Markdown have at most 100 columns; a type is described where it stands; words that
//! the glossary of ARCHITECTURE.md replaced do not come back, as far as a word shows that it means
//! what the glossary says. Tables, code and what cannot be broken (a link, a code span) may be
//! longer. Records of the past (`docs/decisions`, `docs/history`, CHANGELOG.md) keep their words.

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

/// Phrases of comments and Markdown in lower case, and what stands for them.
const PHRASES: [(&str, &str); 14] = [
    (
        "see the module's description",
        "a sentence on the type itself",
    ),
    ("turned away", "shed, or refused"),
    ("turns away", "sheds, or refuses"),
    ("turn away", "shed, or refuse"),
    ("sent away", "shed, or closed"),
    ("policed away", "shed"),
    ("dimmed away", "left out (optional content)"),
    ("dismissed", "shed, or closed"),
    ("set aside", "ejected"),
    ("residence", "service time"),
    ("visitor", "client"),
    ("whoever", "the thing's name, or anyone who"),
    ("so many", "this many, or the quantity's name"),
    ("heard", "received, read or reported"),
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

/// The lines of Markdown that are no code.
fn without_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !(code || fence)
    })
}

/// Whether a page says what was, in the words of its time.
fn is_record(path: &Path) -> bool {
    path.ends_with("CHANGELOG.md") || path.parent().is_some_and(|at| at.ends_with("decisions"))
}

/// What to write instead of phrases of a line, outside of its code spans.
fn replaced(line: &str) -> impl Iterator<Item = String> {
    let plain: Vec<&str> = line.split('`').step_by(2).collect();
    let plain = plain.join("`").to_lowercase();
    let found = PHRASES
        .iter()
        .filter(move |(phrase, _)| plain.contains(phrase));
    found.map(|(phrase, instead)| format!("`{phrase}`: write {instead}"))
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
            if let Some(text) = comment(line) {
                let phrases = replaced(text).map(|what| place(&path, number, &what));
                problems.extend(phrases);
            }
        }
    }
    report(&problems);
}

#[test]
fn markdown_uses_the_words_of_the_glossary() {
    let mut problems = Vec::new();
    for path in all(".md").iter().filter(|path| !is_record(path)) {
        let text = fs::read_to_string(path).unwrap();
        for (number, line) in without_code(&text) {
            let phrases = replaced(line).map(|what| place(path, number, &what));
            problems.extend(phrases);
        }
    }
    report(&problems);
}

#[test]
fn replaced_words_are_found_outside_of_code_whatever_their_case() {
    let found = |text: &str| replaced(text).count();
    assert_eq!(found("Whoever waits, by its residence."), 2);
    assert_eq!(found("a `residence` and `whoever`"), 0);
    assert_eq!(found("the residences"), 1);
    let fenced = "```\nwhoever\n```\nwhoever";
    let lines: Vec<_> = without_code(fenced).collect();
    assert_eq!(lines, [(3, "whoever")]);
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
