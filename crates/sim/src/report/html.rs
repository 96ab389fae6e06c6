//! One self-contained HTML page: no script, no other file, readable in print.
//!
//! A page of several sections has contents. Where comparisons with a paper differ, a box hides all
//! that agrees; it works without a script, by the box's state and the order of elements.

use super::Origin;
use super::number::with_interval;
use super::table::paper;
use crate::experiment::{Finding, Outcome};

/// A page of sections.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Title.
    pub title: String,
    /// Where the results came from.
    pub origin: Origin,
    /// One sentence under the title.
    pub lead: String,
    /// The rest.
    pub sections: Vec<Section>,
}

/// A heading with what belongs to it; the fields are plain text except `figures` and `table`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Small print under the heading: seed, repetitions.
    pub facts: String,
    /// Paragraphs.
    pub paragraphs: Vec<String>,
    /// Rows of a table, the first one its head; a cell that is a verdict gets its colour.
    pub table: Vec<Vec<String>>,
    /// SVG documents.
    pub figures: Vec<String>,
    /// Text to be copied as it is.
    pub code: Option<String>,
}

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;color:#2b2f36;background:#f4f5f7;margin:0}
main{max-width:1300px;margin:0 auto;padding:24px}
section{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:8px 24px 24px;margin:24px 0}
h1{margin:.2em 0}h2{margin:.8em 0 .1em}
.facts{color:#6b7280;font-size:14px;margin:0 0 .8em}
table{border-collapse:collapse;margin:1em 0;font-size:15px}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid #e8eaee;vertical-align:top}
th{font-weight:600}td.why{color:#6b7280;max-width:34em}
.agrees{color:#087f5b;font-weight:600}.differs{color:#c92a2a;font-weight:600}.ours{color:#1864ab;font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:8px}
.figures svg{width:100%;max-width:820px;height:auto}
pre{background:#f4f5f7;padding:12px;border-radius:6px;overflow:auto}
nav ol{columns:22em;padding-left:1.6em;margin:.4em 0}nav li.differs a{color:#c92a2a}
#only:checked~section.same,#only:checked~nav li.same,#only:checked~section tr.same{display:none}
@media (prefers-color-scheme:dark){
body{color:#d8dbe0;background:#16181c}section{background:#1f2228;border-color:#33373f}
th,td{border-color:#33373f}pre{background:#16181c}a{color:#74b0f4}.facts,td.why{color:#9aa1ad}
.agrees{color:#3ec28f}.differs,nav li.differs a{color:#ff8787}.ours{color:#74b0f4}
.figures svg{filter:invert(.88) hue-rotate(180deg)}
}
@media print{#only,#only+label,nav{display:none}}
";

impl Page {
    /// The page as text.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let origin = format!(
            "tidegate {} · commit {}",
            escape(&self.origin.version),
            escape(&self.origin.commit)
        );
        let lead = escape(&self.lead);
        let sections = self.sections.iter().enumerate();
        let sections: String = sections.map(|(index, it)| it.html(index)).collect();
        let (filter, contents) = (self.filter(), self.contents());
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<p class=\"facts\">{origin}</p>\n<p>{lead}</p>\n\
             {filter}{contents}{sections}</main>\n</body>\n</html>\n"
        )
    }

    /// A box that leaves only what differs, where there are comparisons.
    fn filter(&self) -> &'static str {
        if self.sections.iter().any(|it| it.verdict().is_some()) {
            "<input type=\"checkbox\" id=\"only\">\n\
                 <label for=\"only\">only what differs</label>\n"
        } else {
            ""
        }
    }

    /// Links to the sections, where there are enough to get lost.
    fn contents(&self) -> String {
        if self.sections.len() < CONTENTS_MIN {
            return String::new();
        }
        let line = |(index, section): (usize, &Section)| {
            let (class, title) = (section.class(), escape(&section.title));
            format!("<li class=\"{class}\"><a href=\"#s{index}\">{title}</a></li>\n")
        };
        let lines: String = self.sections.iter().enumerate().map(line).collect();
        format!("<nav>\n<h2>Contents</h2>\n<ol>\n{lines}</ol>\n</nav>\n")
    }
}

/// Sections from which on a page has contents.
const CONTENTS_MIN: usize = 5;
/// The verdict of a comparison that does not agree.
const DIFFERS: &str = "differs";

impl Section {
    /// Whether one of its comparisons differs; `None` where it has none.
    fn verdict(&self) -> Option<bool> {
        let cells = || self.table.iter().flatten().map(String::as_str);
        let compares = cells().any(|cell| matches!(cell, "agrees" | DIFFERS | "ours"));
        compares.then(|| cells().any(|cell| cell == DIFFERS))
    }

    /// How the filter treats it.
    fn class(&self) -> &'static str {
        match self.verdict() {
            Some(true) => DIFFERS,
            Some(false) => "same",
            None => "",
        }
    }

    fn html(&self, index: usize) -> String {
        let (class, title) = (self.class(), escape(&self.title));
        let mut text = format!("<section id=\"s{index}\" class=\"{class}\">\n<h2>{title}</h2>\n");
        if !self.facts.is_empty() {
            text += &format!("<p class=\"facts\">{}</p>\n", escape(&self.facts));
        }
        for paragraph in &self.paragraphs {
            text += &format!("<p>{}</p>\n", escape(paragraph));
        }
        text += &table(&self.table);
        if let Some(code) = &self.code {
            text += &format!("<pre>{}</pre>\n", escape(code));
        }
        if !self.figures.is_empty() {
            text += &format!("<div class=\"figures\">\n{}</div>\n", self.figures.concat());
        }
        text + "</section>\n"
    }
}

fn table(rows: &[Vec<String>]) -> String {
    let Some((head, body)) = rows.split_first() else {
        return String::new();
    };
    let head: String = head
        .iter()
        .map(|cell| format!("<th>{}</th>", escape(cell)))
        .collect();
    let body: String = body
        .iter()
        .map(|row| {
            let cells: String = row.iter().map(|cell| cell_html(cell)).collect();
            let same = row.iter().any(|cell| cell == "agrees" || cell == "ours");
            if same {
                format!("<tr class=\"same\">{cells}</tr>\n")
            } else {
                format!("<tr>{cells}</tr>\n")
            }
        })
        .collect();
    format!("<table>\n<tr>{head}</tr>\n{body}</table>\n")
}

fn cell_html(cell: &str) -> String {
    match cell {
        "agrees" | "differs" | "ours" => format!("<td class=\"{cell}\">{cell}</td>"),
        _ => format!("<td>{}</td>", escape(cell)),
    }
}

/// The section of one experiment.
pub(super) fn section(outcome: &Outcome, figures: Vec<String>) -> Section {
    let experiment = &outcome.experiment;
    Section {
        title: format!(
            "{} {}: {}",
            experiment.paper,
            experiment.subject(),
            experiment.title
        ),
        facts: format!(
            "seed {} · {} repetition{} · intervals are 95 % confidence",
            experiment.seed,
            experiment.repetitions,
            if experiment.repetitions == 1 { "" } else { "s" },
        ),
        paragraphs: experiment
            .note
            .iter()
            .flat_map(|note| paragraphs(note))
            .collect(),
        table: rows(&outcome.findings),
        figures,
        code: None,
    }
}

/// Paragraphs of a note are separated by empty lines.
fn paragraphs(note: &str) -> Vec<String> {
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    note.split("\n\n")
        .map(joined)
        .filter(|part| !part.is_empty())
        .collect()
}

fn rows(findings: &[Finding]) -> Vec<Vec<String>> {
    if findings.is_empty() {
        return Vec::new();
    }
    let head = ["metric", "paper", "ours", "allowed", "verdict", ""];
    let body = findings.iter().map(|finding| {
        vec![
            finding.metric.clone(),
            paper(finding.paper_value.as_ref()),
            with_interval(&finding.ours),
            finding.allowed.clone(),
            finding.verdict.as_str().to_owned(),
            finding.because.clone().unwrap_or_default(),
        ]
    });
    std::iter::once(head.map(str::to_owned).to_vec())
        .chain(body)
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_escapes_text_and_refers_to_nothing_outside() {
        let page = Page {
            title: "A < B".into(),
            origin: Origin {
                version: "1".into(),
                commit: "c".into(),
            },
            lead: "lead".into(),
            sections: vec![Section {
                title: "S & T".into(),
                table: vec![vec!["head".into()], vec!["differs".into()]],
                figures: vec!["<svg></svg>".into()],
                code: Some("a > b".into()),
                ..Section::default()
            }],
        };
        let html = page.html();
        for part in [
            "A &lt; B",
            "S &amp; T",
            "class=\"differs\"",
            "<svg></svg>",
            "a &gt; b",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("http") && !html.contains("<script"));
    }

    fn page_of(verdicts: &[&str]) -> String {
        let section = |verdict: &&str| Section {
            title: format!("it {verdict}"),
            table: vec![vec!["head".into()], vec![(*verdict).to_owned()]],
            ..Section::default()
        };
        let page = Page {
            title: "t".into(),
            origin: Origin {
                version: "1".into(),
                commit: "c".into(),
            },
            lead: String::new(),
            sections: verdicts.iter().map(section).collect(),
        };
        page.html()
    }

    #[test]
    fn page_of_comparisons_has_contents_and_a_filter() {
        let html = page_of(&["agrees", "agrees", "differs", "ours", "agrees"]);
        for part in [
            "<li class=\"differs\"><a href=\"#s2\">it differs</a>",
            "<section id=\"s2\" class=\"differs\">",
            "<section id=\"s4\" class=\"same\">",
            "<tr class=\"same\"><td class=\"ours\">",
            "<tr><td class=\"differs\">",
            "prefers-color-scheme:dark",
        ] {
            assert!(html.contains(part), "{part} in\n{html}");
        }
        let order = ["id=\"only\"", "<nav>", "<section"].map(|part| html.find(part));
        assert!(order.is_sorted(), "the box comes before all that it hides");
        let few = page_of(&["what", "else"]);
        assert!(!few.contains("<nav>") && !few.contains("id=\"only\""));
    }

    #[test]
    fn notes_fall_into_paragraphs() {
        assert_eq!(paragraphs("one\ntwo\n\nthree\n"), ["one two", "three"]);
    }
}
