//! What the book in `docs/`, the README and the other pages say is true: links lead somewhere,
//! configurations are valid, keys, commands and targets of `make` exist, commands that need no
//! server work, and what is packaged has the version of the program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tidegate_proxy::config::{Config, reference};

/// Folders with pages, beside the book.
const FOLDERS: [&str; 6] = ["", "bench", "crates", "dist", "examples", "packages"];

/// Commands that are run: they need no server and are done at once.
const RUN: [&str; 6] = ["check", "completions", "design", "man", "plan", "reference"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page and its text.
struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        Self { path, text }
    }

    fn name(&self) -> String {
        let path = self.path.strip_prefix(root()).unwrap_or(&self.path);
        path.display().to_string()
    }
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect();
    paths.sort();
    paths
}

/// The pages of the book, and the READMEs.
fn pages() -> Vec<Page> {
    let mut paths = markdown_in(&root().join("docs"));
    for folder in FOLDERS {
        let folder = root().join(folder);
        paths.extend(markdown_in(&folder));
        let inner = fs::read_dir(&folder).unwrap();
        let mut inner: Vec<_> = inner.map(|entry| entry.unwrap().path()).collect();
        inner.sort();
        let readmes = inner.iter().map(|path| path.join("README.md"));
        paths.extend(readmes.filter(|path| path.exists()));
    }
    let distinct: BTreeSet<_> = paths.into_iter().collect();
    distinct.into_iter().map(Page::read).collect()
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

/// The text without fenced blocks, line by line.
fn unfenced(page: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// The text without fenced blocks and code spans, in which brackets are no links.
fn prose(page: &str) -> String {
    let mut prose = String::new();
    for line in unfenced(page) {
        let spans = line.split('`').enumerate();
        prose.extend(spans.map(|(index, part)| if index % 2 == 0 { part } else { "code" }));
        prose.push('\n');
    }
    prose
}

/// What stands between backticks in the text, also over the end of a line.
fn spans(page: &str) -> Vec<String> {
    let text: Vec<_> = unfenced(page).collect();
    let text = text.join("\n");
    let mut spans = Vec::new();
    for paragraph in text.split("\n\n") {
        let parts = paragraph.split('`').enumerate();
        let inside = parts.filter(|(index, _)| index % 2 == 1);
        spans.extend(inside.map(|(_, span)| span.replace('\n', " ")));
    }
    spans
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

/// Whether a link of the page leads to a file, and to a heading in it where it names one.
fn leads_somewhere(page: &Page, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.path.clone(),
        file => page.path.parent().unwrap().join(file),
    };
    match fs::read_to_string(&target) {
        Ok(page) => anchor.is_empty() || anchors(&page).contains(anchor),
        Err(_) => target.exists(),
    }
}

fn complain(what: &str, problems: &str) {
    assert!(problems.is_empty(), "{what}:\n{problems}");
}

#[test]
fn book_links_lead_somewhere() {
    let mut all = pages();
    for folder in ["docs/decisions", "docs/history"] {
        all.extend(
            markdown_in(&root().join(folder))
                .into_iter()
                .map(Page::read),
        );
    }
    let mut broken = String::new();
    for page in &all {
        for link in links(&page.text) {
            if !link.contains("://") && !leads_somewhere(page, &link) {
                writeln!(broken, "{}: {link}", page.name()).unwrap();
            }
        }
    }
    complain("these links lead nowhere", &broken);
}

#[test]
fn book_has_every_page_in_its_summary() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut missing = String::new();
    for path in markdown_in(&root().join("docs")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name != "SUMMARY.md" && !summary.contains(&format!("]({name})")) {
            writeln!(missing, "{name}").unwrap();
        }
    }
    complain("docs/SUMMARY.md lacks", &missing);
}

#[test]
fn book_has_the_glossary_of_the_architecture() {
    let rows = |file: &str| {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let table = text.split("| word | meaning |").nth(1).unwrap().to_owned();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let (book, architecture) = (rows("docs/glossary.md"), rows("ARCHITECTURE.md"));
    assert!(!book.is_empty());
    assert_eq!(book, architecture);
}

#[test]
fn book_lists_every_experiment_of_the_papers() {
    let page = fs::read_to_string(root().join("docs/papers.md")).unwrap();
    let mut missing = String::new();
    for entry in fs::read_dir(root().join("experiments/papers")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !page.contains(&format!("](../experiments/papers/{name})")) {
            writeln!(missing, "{name}").unwrap();
        }
    }
    complain("docs/papers.md lacks", &missing);
}

/// The text of a block as a file that can be checked: a part of one gets the service it lacks.
fn as_configuration(text: &str) -> String {
    let indent = text.len() - text.trim_start_matches(' ').len();
    let text: Vec<_> = text
        .lines()
        .map(|line| line.get(indent..).unwrap_or(""))
        .collect();
    let text = text.join("\n");
    let has = |key: &str| {
        let begins =
            |line: &str| line.starts_with(key) || line.trim_start_matches('[').starts_with(key);
        text.lines().any(begins)
    };
    if has("upstream") || has("application") {
        return text;
    }
    format!("upstream = \"http://127.0.0.1:3000\"\n{text}")
}

/// What is wrong with a block, by the reader of the file that it is for.
fn problem(name: &str, text: &str) -> Option<String> {
    if text.lines().any(|line| line == "[daemon]") {
        let read = tidegate_planed::File::parse(name, text);
        return read.err().map(|error| error.to_string());
    }
    if name.starts_with("experiments/") {
        // A mutation is a part of an experiment that stands before it.
        let mutation = text.starts_with("[[mutation]]");
        let read = tidegate_sim::experiment::Experiment::parse(name, text);
        return read
            .err()
            .filter(|_| !mutation)
            .map(|error| error.to_string());
    }
    // Its services are run, all of them, by `documented_services_run` of the simulator.
    if name.starts_with("docs/simulator.md") {
        return None;
    }
    let read = Config::from_text(name, &as_configuration(text));
    read.err().map(|error| error.to_string())
}

#[test]
fn book_configurations_are_valid() {
    let (mut seen, mut wrong) = (0, String::new());
    for page in pages() {
        let blocks = blocks(&page.text).into_iter();
        for block in blocks.filter(|block| block.language == "toml") {
            let name = format!("{}:{}", page.name(), block.line);
            seen += 1;
            if let Some(problem) = problem(&name, &block.text) {
                writeln!(wrong, "{problem}\n").unwrap();
            }
        }
    }
    complain("these configurations are refused", &wrong);
    assert!(seen > 40, "only {seen} configurations were found");
}

#[test]
fn a_wrong_key_in_a_block_is_found() {
    assert!(problem("page", "[protect]\ntarget = \"1s\"\n").is_none());
    assert!(problem("page", "[protect]\ntraget = \"1s\"\n").is_some());
    assert!(problem("page", "[edge]\nhttps_redirekt = true\n").is_some());
    assert!(problem("page", "[daemon]\nmood = \"act\"\n").is_some());
}

/// Every key of the configuration by its path, from the reference.
fn keys() -> BTreeSet<String> {
    let (mut section, mut keys) = (String::new(), BTreeSet::new());
    for line in reference::toml().lines() {
        let Some(line) = line.strip_prefix('#').filter(|line| !line.starts_with(' ')) else {
            continue;
        };
        let header = line.trim_start_matches('[').trim_end_matches(']');
        if line.starts_with('[') {
            section = format!("{header}.");
            keys.insert(header.to_owned());
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.insert(format!("{section}{key}"));
        }
    }
    keys
}

/// Whether a span is written like a key below one of these sections: `limits.headers`.
fn is_key(span: &str, sections: &BTreeSet<String>) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut parts = span.split('.');
    let first = parts.next().unwrap_or_default();
    span.contains('.')
        && sections.contains(first)
        && span
            .split('.')
            .all(|part| !part.is_empty() && part.chars().all(plain))
        && !["rs", "md", "toml", "json", "pem", "py", "html", "svg"]
            .iter()
            .any(|kind| span.ends_with(&format!(".{kind}")))
}

#[test]
fn book_keys_exist() {
    let keys = keys();
    let sections: BTreeSet<_> = keys
        .iter()
        .filter_map(|key| key.split_once('.').map(|(section, _)| section.to_owned()))
        .collect();
    let (mut seen, mut wrong) = (0, String::new());
    for page in pages() {
        // The changelog names keys that are gone.
        if page.name().ends_with("CHANGELOG.md") {
            continue;
        }
        for span in spans(&page.text)
            .iter()
            .filter(|span| is_key(span, &sections))
        {
            seen += 1;
            if !keys.contains(span) {
                writeln!(wrong, "{}: `{span}`", page.name()).unwrap();
            }
        }
    }
    complain("docs/config.md has none of these keys", &wrong);
    assert!(seen > 50, "only {seen} keys were found");
}

/// What is wrong with a shed reason or a metric that the text names.
fn unknown_signal(span: &str, signals: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if let Some(reason) = span.strip_prefix("tidegate-shed: ") {
        // A quota is no load: 429, and no shed reason of the engine.
        let known = signals.contains(&format!("\n| `{reason}` |"));
        let other = reason == "quota" || is_capital(reason);
        return (!known && !other).then(|| format!("no shed reason `{reason}`"));
    }
    let name: String = span.chars().take_while(|c| plain(*c)).collect();
    // The plane's own metrics, and packages whose names begin alike.
    let others = [
        "tidegate_plane_",
        "tidegate_nucleus",
        "tidegate_sentry",
        "tidegate_control",
    ];
    if !name.starts_with("tidegate_") || others.iter().any(|it| name.starts_with(it)) {
        return None;
    }
    // A name that ends in `_` stands for all that begin so; a histogram has parts.
    let part = ["_bucket", "_count", "_sum"];
    let whole = part.iter().find_map(|part| name.strip_suffix(part));
    let known = |name: &str| {
        if name.ends_with('_') {
            signals.contains(&format!("\n| `{name}"))
        } else {
            signals.contains(&format!("\n| `{name}` |"))
        }
    };
    let known = known(&name) || whole.is_some_and(known);
    (!known).then(|| format!("no metric `{name}`"))
}

#[test]
fn book_shed_reasons_and_metrics_exist() {
    let signals = fs::read_to_string(root().join("docs/signals.md")).unwrap();
    let mut wrong = String::new();
    for page in pages() {
        // The changelog names metrics that are gone.
        let current = !page.name().ends_with("CHANGELOG.md");
        for span in spans(&page.text).iter().filter(|_| current) {
            if let Some(problem) = unknown_signal(span, &signals) {
                writeln!(wrong, "{}: {problem}", page.name()).unwrap();
            }
        }
    }
    complain("docs/signals.md has none of these", &wrong);
    assert!(unknown_signal("tidegate-shed: queue_full", &signals).is_some());
    assert!(unknown_signal("tidegate_requests_shedded_total", &signals).is_some());
    assert!(unknown_signal("tidegate_requests_shed_total{class=\"a\"}", &signals).is_none());
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

/// The command of a line, as a shell would read it, if it calls the program.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line
        .trim()
        .trim_start_matches("$ ")
        .trim_start_matches("sudo ");
    let end = line.find(['|', ';', '>', '<', '&']).unwrap_or(line.len());
    // Dots and brackets stand for something else.
    let whole = !line.contains(['…', '[', '{']) && !line.contains("...");
    (line.starts_with("tidegate ") && whole).then(|| words(&line[..end])[1..].to_vec())
}

/// Lines of a block that call the program.
fn commands(block: &Block) -> Vec<Vec<String>> {
    if !["", "sh", "bash", "console"].contains(&block.language.as_str()) {
        return Vec::new();
    }
    let text = block.text.replace("\\\n", " ");
    text.lines().filter_map(command).collect()
}

fn run(directory: &Path, arguments: &[String]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    program.current_dir(directory).args(arguments);
    program.output().unwrap()
}

/// Whether a word stands for a value of the reader, as `FILE` does.
fn is_capital(word: &str) -> bool {
    let mut letters = word.chars().filter(|c| c.is_alphabetic()).peekable();
    letters.peek().is_some() && letters.all(|c| c.is_ascii_uppercase())
}

/// What the program says to these arguments, if they are not what it takes. `--help` keeps it from
/// doing anything.
fn not_understood(directory: &Path, arguments: &[String]) -> Option<String> {
    let mut arguments = arguments.to_vec();
    arguments.push("--help".to_owned());
    let output = run(directory, &arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let placeholder =
        message.contains("error: invalid value") && arguments.iter().any(|word| is_capital(word));
    // A build without the feature does not have the command.
    let feature = arguments.first().is_some_and(|name| name == "envoy");
    (!output.status.success() && !placeholder && !feature).then_some(message)
}

#[test]
fn book_commands_are_understood() {
    let directory = tempfile::tempdir().unwrap();
    let (mut seen, mut wrong) = (0, String::new());
    for page in pages() {
        for line in blocks(&page.text).iter().flat_map(commands) {
            seen += 1;
            if let Some(message) = not_understood(directory.path(), &line) {
                let line = line.join(" ");
                writeln!(wrong, "{}: tidegate {line}\n{message}", page.name()).unwrap();
            }
        }
    }
    complain("these commands are not understood", &wrong);
    assert!(seen > 40, "only {seen} commands were found");
}

#[test]
fn a_wrong_command_or_flag_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = |line: &str| not_understood(directory.path(), &command(line).unwrap()).is_some();
    assert!(!wrong(
        "tidegate run --upstream http://127.0.0.1:3000 # a service"
    ));
    assert!(wrong("tidegate run --upsteam http://127.0.0.1:3000"));
    assert!(wrong("tidegate walk"));
    assert!(wrong("tidegate ctl dry-run perhaps"));
}

/// The options of each command, from the page of commands.
fn options() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("docs/commands.md")).unwrap();
    let sections = page.split("\n## ").skip(1);
    let sections = sections.map(|section| section.split_once('\n').unwrap());
    sections
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

/// Options that only builds with a feature have; their pages say so.
const FLAGS_OF_FEATURES: [&str; 2] = ["gossip", "peer"];

/// What is wrong with a command in the text, such as `tidegate load --csv FILE`.
fn unknown(span: &str, options: &BTreeMap<String, String>) -> Option<String> {
    let mut name = "tidegate".to_owned();
    for (index, word) in span.split_whitespace().skip(1).enumerate() {
        let inner = format!("{name} {word}");
        if let Some(flag) = word.strip_prefix("--") {
            let flag = flag.split(['=', '[', ']']).next().unwrap_or_default();
            let has = |text: &String| {
                let mut words = text.split([' ', ',', '=', '[', ']', '\n']);
                words.any(|word| word.strip_prefix("--") == Some(flag))
            };
            let feature = FLAGS_OF_FEATURES.contains(&flag);
            if !feature && !options.get(&name).is_some_and(has) {
                return Some(format!("`{name}` has no --{flag}"));
            }
        } else if options.contains_key(&inner) {
            name = inner;
        } else if index == 0 && word.chars().all(|c| c.is_ascii_lowercase()) && word != "envoy" {
            return Some(format!("there is no `{inner}`"));
        } else if word == "envoy" {
            return None;
        }
    }
    None
}

#[test]
fn book_commands_in_the_text_exist() {
    let options = options();
    let (mut seen, mut wrong) = (0, String::new());
    for page in pages() {
        let spans = spans(&page.text).into_iter();
        for span in spans.filter(|span| span.starts_with("tidegate ")) {
            seen += 1;
            if let Some(problem) = unknown(&span, &options) {
                writeln!(wrong, "{}: `{span}`: {problem}", page.name()).unwrap();
            }
        }
    }
    complain("these commands do not exist", &wrong);
    assert!(seen > 100, "only {seen} commands were found");
    assert!(unknown("tidegate load --cvs FILE", &options).is_some());
    assert!(unknown("tidegate lood", &options).is_some());
    assert!(unknown("tidegate ctl events --since 10m", &options).is_none());
}

#[test]
fn book_targets_of_make_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets: BTreeSet<_> = makefile
        .lines()
        .filter_map(|line| line.split_once(':').map(|(target, _)| target))
        .collect();
    let mut wrong = String::new();
    for page in pages() {
        let in_blocks = blocks(&page.text).into_iter();
        let in_blocks = in_blocks.filter(|block| ["", "sh"].contains(&block.language.as_str()));
        let lines = in_blocks.flat_map(|block| {
            let lines = block.text.lines().map(|line| line.trim().to_owned());
            lines.collect::<Vec<_>>()
        });
        for line in lines.chain(spans(&page.text)) {
            let Some(target) = line.strip_prefix("make ") else {
                continue;
            };
            let target = target.split_whitespace().next().unwrap_or_default();
            if !targets.contains(target) {
                writeln!(wrong, "{}: make {target}", page.name()).unwrap();
            }
        }
    }
    complain("the Makefile has none of these", &wrong);
}

#[test]
fn book_commands_that_need_no_server_work() {
    let (mut seen, mut wrong) = (0, String::new());
    for page in pages() {
        let directory = tempfile::tempdir().unwrap();
        let mut configuration = None;
        for block in blocks(&page.text) {
            if block.language == "toml" {
                configuration = Some(as_configuration(&block.text));
            }
            for line in commands(&block) {
                // Recordings and running proxies are not there; files in capitals are the reader's.
                let absent = ["--recording", "--admin"];
                let given = line.iter().any(|word| absent.contains(&word.as_str()));
                let capital = line.iter().any(|word| is_capital(word));
                if !RUN.contains(&line[0].as_str()) || given || capital {
                    continue;
                }
                if let (Some(text), [command, file]) = (&configuration, line.as_slice())
                    && command == "check"
                {
                    fs::write(directory.path().join(file), text).unwrap();
                }
                seen += 1;
                let output = run(directory.path(), &line);
                if !output.status.success() {
                    let message = String::from_utf8_lossy(&output.stderr);
                    let line = line.join(" ");
                    writeln!(wrong, "{}: tidegate {line}\n{message}", page.name()).unwrap();
                }
            }
        }
    }
    complain("these commands fail", &wrong);
    assert!(seen >= 3, "only {seen} commands were run");
}

/// Files that are packaged, and what stands before the version there.
const VERSIONED: [(&str, &str); 9] = [
    ("dashboard/package.json", "\"version\": \""),
    ("dist/helm/tidegate/Chart.yaml", "appVersion: \""),
    ("dist/helm/tidegate/values.yaml", "image: tidegate:"),
    ("dist/kubernetes/plane.yaml", "image: \"tidegate:"),
    ("dist/kubernetes/proxy.yaml", "image: \"tidegate:"),
    ("dist/kubernetes/sidecar.yaml", "image: tidegate:"),
    ("packages/client/package.json", "\"version\": \""),
    ("packages/node/package.json", "\"version\": \""),
    ("packages/python/pyproject.toml", "version = \""),
];

#[test]
fn packages_have_the_version_of_the_program() {
    for (file, before) in VERSIONED {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let expected = format!("{before}{}", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&expected), "{file} has no {expected}");
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let heading = concat!("\n## [", env!("CARGO_PKG_VERSION"), "]");
    assert!(changelog.contains(heading), "CHANGELOG.md has no {heading}");
}
