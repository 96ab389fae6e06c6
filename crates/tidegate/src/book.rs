//! What the book in `docs/` says is true: its links lead somewhere, its configurations are valid
//! and its commands exist.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;
use tidegate_proxy::config::Config;

use crate::Cli;

/// Pages that `make book` prints by `tidegate reference`.
const MADE: [&str; 1] = ["commands.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the book, and the README, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<_> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect();
    paths.sort();
    paths.push(root().join("README.md"));
    let text = |path: PathBuf| (path.clone(), std::fs::read_to_string(path).unwrap());
    paths.into_iter().map(text).collect()
}

/// A fenced block: where it begins, its language and its text.
struct Block {
    line: usize,
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                inside = true;
                blocks.push(Block {
                    line: index + 1,
                    language: language.trim().to_owned(),
                    text: String::new(),
                });
            }
            None if inside => {
                let block = blocks.last_mut().unwrap();
                block.text += line;
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

/// The text without fenced blocks and code spans, in which brackets are no links.
fn prose(page: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            let spans = line.split('`').enumerate();
            let outside = spans.map(|(index, part)| if index % 2 == 0 { part } else { "code" });
            prose.extend(outside);
            prose.push('\n');
        }
    }
    prose
}

fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let targets = prose.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut anchors = BTreeSet::new();
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if let Some(title) = line.strip_prefix('#').filter(|_| !fenced) {
            let title = title.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    anchors
}

#[test]
fn book_links_lead_somewhere() {
    let mut broken = String::new();
    for (path, page) in pages() {
        for link in links(&page) {
            if link.contains("://") || MADE.contains(&link.as_str()) {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let found = match std::fs::read_to_string(&target) {
                Ok(page) => anchor.is_empty() || anchors(&page).contains(anchor),
                Err(_) => target.exists(),
            };
            if !found {
                writeln!(broken, "{}: {link}", path.display()).unwrap();
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{broken}");
}

/// Whether a block is a configuration of the proxy; the plane and scenarios have others.
fn is_configuration(block: &Block) -> bool {
    let begins = [
        "listen",
        "upstream",
        "protect",
        "[protect",
        "[[protect",
        "[[classify",
        "[channel]",
    ];
    let proxy = |line: &str| begins.iter().any(|begin| line.starts_with(begin));
    block.language == "toml" && block.text.lines().any(proxy) && !block.text.contains("[daemon]")
}

#[test]
fn book_configurations_are_valid() {
    let mut seen = 0;
    for (path, page) in pages() {
        for block in blocks(&page).iter().filter(|block| is_configuration(block)) {
            let name = format!("{}:{}", path.display(), block.line);
            if let Err(error) = Config::from_text(&name, &block.text) {
                panic!("{error}");
            }
            seen += 1;
        }
    }
    assert!(seen > 5, "only {seen} configurations were found");
}

/// The words of a command line; quotes hold words together, `#` ends the line.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Lines of blocks that call the program, as a shell would read them.
fn commands(page: &str) -> Vec<String> {
    let shell = ["", "sh", "bash", "console"];
    let blocks = blocks(page).into_iter();
    let blocks = blocks.filter(|block| shell.contains(&block.language.as_str()));
    let joined = blocks.map(|block| block.text.replace("\\\n", " "));
    let lines: Vec<_> = joined
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let command = |line: &String| {
        let line = line
            .trim()
            .trim_start_matches("$ ")
            .trim_start_matches("sudo ");
        let end = line.find(['|', ';', '>', '<', '&']).unwrap_or(line.len());
        // Dots and brackets stand for something else.
        let whole = !line.contains(['…', '[', '{']) && !line.contains("...");
        (line.starts_with("tidegate ") && whole).then(|| line[..end].trim().to_owned())
    };
    lines.iter().filter_map(command).collect()
}

#[test]
fn book_commands_exist() {
    let mut seen = 0;
    for (path, page) in pages() {
        for line in commands(&page) {
            seen += 1;
            let Err(error) = Cli::command().try_get_matches_from(words(&line)) else {
                continue;
            };
            // Words in capitals stand for values of the reader.
            let fits = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::ValueValidation
            );
            assert!(fits, "{}: {line}\n{error}", path.display());
        }
    }
    assert!(seen > 10, "only {seen} commands were found");
}
