//! The picture as lines: one function for the live screen, for `--once` and for tests.

use std::collections::VecDeque;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::Value;

use crate::ctl::show::{ENGINES, classes, clock, millis, number, replica_state, shadow_rows, text};

/// Seconds in the small charts.
const HISTORY: usize = 120;
/// Columns below which the tables leave out what matters least.
const COLUMNS_WIDE_MIN: u16 = 90;

/// By what classes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Importance,
    Offered,
    Shed,
    Slow,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Importance => Self::Offered,
            Self::Offered => Self::Shed,
            Self::Shed => Self::Slow,
            Self::Slow => Self::Importance,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Importance => "importance",
            Self::Offered => "offered",
            Self::Shed => "shed",
            Self::Slow => "p99",
        }
    }

    fn key(self, class: &Value) -> f64 {
        let recent = |name: &str| class["recent"][name].as_f64().unwrap_or(0.0);
        match self {
            Self::Importance => -class["rank"].as_f64().unwrap_or(0.0),
            Self::Offered => recent("offered_per_second"),
            Self::Shed => recent("shed_per_second"),
            Self::Slow => recent("response_p99_seconds"),
        }
    }
}

/// What keys are typed into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typing {
    Filter,
    Request,
}

/// What the operator has chosen, and what was seen.
#[derive(Debug)]
pub(super) struct Ui {
    admin: String,
    pub(super) filter: String,
    pub(super) typing: Option<Typing>,
    /// The id of a request, while it is typed.
    pub(super) request: String,
    /// The id of a request that is to be looked up.
    pub(super) asked: Option<String>,
    /// Why that request was refused.
    pub(super) answer: Option<String>,
    pub(super) help: bool,
    pub(super) paused: bool,
    pub(super) sort: Sort,
    pub(super) scroll: u16,
    pub(super) error: Option<String>,
    colours: bool,
    offered: VecDeque<f64>,
    in_target: VecDeque<f64>,
}

impl Ui {
    pub(super) fn new(admin: &str) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            admin: admin.to_owned(),
            filter: String::new(),
            typing: None,
            request: String::new(),
            asked: None,
            answer: None,
            help: false,
            paused: false,
            sort: Sort::default(),
            scroll: 0,
            error: None,
            colours: !no_color,
            offered: VecDeque::new(),
            in_target: VecDeque::new(),
        }
    }

    /// Remembers a second for the charts.
    pub(super) fn take(&mut self, application: &Value) {
        let recent = &application["recent"];
        let rate = |name: &str| recent[name].as_f64().unwrap_or(0.0);
        for (ring, value) in [
            (&mut self.offered, rate("offered_per_second")),
            (&mut self.in_target, rate("in_target_per_second")),
        ] {
            if ring.len() >= HISTORY {
                ring.pop_front();
            }
            ring.push_back(value);
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || name.contains(&self.filter)
    }

    fn style(&self, colour: Color) -> Style {
        if self.colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

const HELP: [&str; 9] = [
    "q       quit",
    "?       this help",
    "/       show only classes and replicas whose name contains a text; Esc shows all",
    "i       why a request was refused: its x-request-id, then Enter",
    "s       sort classes by importance, offered, shed or p99",
    "p       pause",
    "arrows  scroll, also page up and down",
    "",
    "`tidegate ctl` steers the proxy; its admin listener has the same as a web page.",
];

/// The picture.
pub(super) fn lines(application: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let mut out = vec![title(application, ui), Line::default()];
    if ui.help {
        out.extend(HELP.map(Line::from));
        return out;
    }
    if let Some(error) = &ui.error {
        out.extend(wrapped(error, columns, ui.style(Color::Red)));
        out.push(Line::default());
    }
    if let Some(answer) = &ui.answer {
        out.extend(wrapped(answer, columns, ui.style(Color::Yellow)));
        out.push(Line::default());
    }
    let overloaded = application["overload"]["on"] == true;
    let colour = if overloaded { Color::Red } else { Color::Green };
    let bold = ui.style(colour).add_modifier(Modifier::BOLD);
    out.extend(wrapped(text(&application["headline"]), columns, bold));
    out.push(figures(application));
    out.extend(charts(ui, columns));
    out.push(Line::default());
    out.extend(class_table(application, ui, columns));
    out.push(Line::default());
    out.extend(replica_table(application, ui, columns));
    let warnings = application["warnings"].as_array().into_iter().flatten();
    for warning in warnings {
        out.push(Line::default());
        let words = format!(
            "! since {}: {}",
            clock(&warning["since"]),
            text(&warning["text"])
        );
        out.extend(wrapped(&words, columns, ui.style(Color::Yellow)));
    }
    out.extend(shadow(application, ui, columns));
    out.extend(advice(application, columns));
    out
}

/// Rows of a comparison that are shown here; `tidegate ctl shadow` has all.
const SHADOW_ROWS: [&str; 4] = ["windows", "p95 ms", "in target/s", "shed/s"];

/// What another configuration would do, where there is one.
fn shadow(application: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let shadow = &application["shadow"];
    if shadow.is_null() {
        return Vec::new();
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut head = format!("{:<16}", "shadow");
    for (name, _) in ENGINES {
        head += &format!("{name:>12}");
    }
    let mut out = vec![Line::default(), Line::styled(head, bold)];
    let rows = shadow_rows(shadow).into_iter();
    for (name, values) in rows.filter(|(name, _)| SHADOW_ROWS.contains(&name.as_str())) {
        let [first, second, third] = values;
        out.push(Line::from(format!(
            "{name:<16}{first:>12}{second:>12}{third:>12}"
        )));
    }
    let known = &shadow["limits_known"];
    if known.as_u64() < shadow["replicas_up"].as_u64() {
        let words = text(&shadow["headline"]);
        out.extend(wrapped(words, columns, ui.style(Color::Yellow)));
    }
    out
}

/// What would help, where the proxy knows.
fn advice(application: &Value, columns: u16) -> Vec<Line<'static>> {
    let sentences: Vec<_> = application["advice"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let mut out = Vec::new();
    if !sentences.is_empty() {
        out.extend([Line::default(), Line::from("What would help:")]);
    }
    for sentence in sentences {
        let words = format!("- {}", text(sentence));
        out.extend(wrapped(&words, columns, Style::new()));
    }
    if let Some(headline) = application["forecast"]["headline"].as_str() {
        out.push(Line::default());
        let words = format!("Forecast from the last minute: {headline}");
        out.extend(wrapped(&words, columns, Style::new()));
    }
    out
}

/// The picture without colours, for pipes.
pub(super) fn plain(application: &Value, ui: &Ui, columns: u16) -> String {
    let lines = lines(application, ui, columns);
    lines
        .iter()
        .map(|line| format!("{}\n", line.to_string().trim_end()))
        .collect()
}

fn title(application: &Value, ui: &Ui) -> Line<'static> {
    let mut words = format!(
        "tidegate  {}  mode {}",
        ui.admin,
        text(&application["mode"]["name"])
    );
    if ui.typing == Some(Typing::Filter) || !ui.filter.is_empty() {
        words += &format!("  /{}", ui.filter);
    }
    if ui.typing == Some(Typing::Request) {
        words += &format!("  request {}", ui.request);
    }
    if ui.paused {
        words += "  PAUSED";
    }
    words += "  ? help";
    Line::styled(words, Style::new().add_modifier(Modifier::DIM))
}

fn figures(application: &Value) -> Line<'static> {
    let recent = &application["recent"];
    Line::from(format!(
        "goodput {}/s, capacity {}/s, p50/95/99 {}/{}/{} ms, queue {}",
        number(&recent["in_target_per_second"]),
        number(&application["capacity_per_second"]),
        millis(&recent["response_p50_seconds"]),
        millis(&recent["response_p95_seconds"]),
        millis(&recent["response_p99_seconds"]),
        application["queue"]["requests"],
    ))
}

/// What arrived and what was answered in target, on the same scale.
fn charts(ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let most = ui.offered.iter().copied().fold(1.0, f64::max);
    if ui.offered.len() < 2 {
        return Vec::new();
    }
    let width = usize::from(columns.saturating_sub(11)).min(HISTORY);
    let chart = |name: &'static str, ring: &VecDeque<f64>, colour| {
        let skip = ring.len().saturating_sub(width);
        let bars: String = ring
            .iter()
            .skip(skip)
            .map(|&value| bar(value / most))
            .collect();
        Line::from(vec![
            Span::from(format!("{name:<11}")),
            Span::styled(bars, ui.style(colour)),
        ])
    };
    vec![
        chart("offered", &ui.offered, Color::Blue),
        chart("in target", &ui.in_target, Color::Green),
    ]
}

fn bar(share: f64) -> char {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BARS[((share * 8.0).ceil() as usize).min(8)]
}

fn class_table(application: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let wide = columns >= COLUMNS_WIDE_MIN;
    let mut out = vec![Line::styled(
        if wide {
            format!(
                "{:<19}{:>9}{:>10}{:>11}{:>8}{:>9}{:>8}{:>8}{:>8}",
                format!("class ({})", ui.sort.words()),
                "offered/s",
                "admitted",
                "in target",
                "shed",
                "p50 ms",
                "p95",
                "p99",
                "target"
            )
        } else {
            format!(
                "{:<14}{:>8}{:>9}{:>8}{:>8}{:>8}",
                "class", "offered", "in targ", "shed", "p99", "target"
            )
        },
        Style::new().add_modifier(Modifier::BOLD),
    )];
    let mut all = classes(application);
    all.retain(|(name, _)| ui.wants(name));
    all.sort_by(|a, b| ui.sort.key(b.1).total_cmp(&ui.sort.key(a.1)));
    for (name, class) in all {
        out.push(class_row(name, class, ui, wide));
        out.extend(reasons(class, ui));
    }
    out
}

fn class_row(name: &str, class: &Value, ui: &Ui, wide: bool) -> Line<'static> {
    let recent = &class["recent"];
    let rate = |name: &str| number(&recent[name]);
    let time = |name: &str| millis(&recent[name]);
    let target = millis(&class["target_seconds"]);
    let words = if wide {
        format!(
            "{name:<19.18}{:>9}{:>10}{:>11}{:>8}{:>9}{:>8}{:>8}{target:>8}",
            rate("offered_per_second"),
            rate("admitted_per_second"),
            rate("in_target_per_second"),
            rate("shed_per_second"),
            time("response_p50_seconds"),
            time("response_p95_seconds"),
            time("response_p99_seconds"),
        )
    } else {
        format!(
            "{name:<14.13}{:>8}{:>9}{:>8}{:>8}{target:>8}",
            rate("offered_per_second"),
            rate("in_target_per_second"),
            rate("shed_per_second"),
            time("response_p99_seconds"),
        )
    };
    let shed = recent["shed_per_second"].as_f64().unwrap_or(0.0) > 0.0;
    Line::styled(
        words,
        if shed {
            ui.style(Color::Red)
        } else {
            Style::new()
        },
    )
}

/// Why requests of the class are shed.
fn reasons(class: &Value, ui: &Ui) -> Option<Line<'static>> {
    let reasons = class["recent"]["shed_per_second_by_reason"].as_object()?;
    let words: Vec<_> = reasons
        .iter()
        .map(|(reason, rate)| format!("{reason} {}/s", number(rate)))
        .collect();
    (!words.is_empty()).then(|| {
        Line::styled(
            format!("  shed: {}", words.join(", ")),
            ui.style(Color::Red),
        )
    })
}

fn replica_table(application: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let wide = columns >= COLUMNS_WIDE_MIN;
    let name_width = if wide { 34 } else { 24 };
    let head = if wide {
        format!(
            "{:<34}{:>9}{:>8}{:>8}{:>9}{:>8}{:>8}",
            "replica", "state", "window", "inside", "served/s", "p50 ms", "p99"
        )
    } else {
        format!(
            "{:<24}{:>8}{:>8}{:>8}{:>8}",
            "replica", "state", "window", "inside", "p50 ms"
        )
    };
    let mut out = vec![Line::styled(
        head,
        Style::new().add_modifier(Modifier::BOLD),
    )];
    for replica in application["replicas"].as_array().into_iter().flatten() {
        let url = text(&replica["url"]);
        if !ui.wants(url) {
            continue;
        }
        let state = replica_state(replica);
        let short = url.trim_start_matches("http://");
        let recent = &replica["recent"];
        let (window, inside) = (number(&replica["window"]), number(&replica["in_flight"]));
        let p50 = millis(&recent["service_p50_seconds"]);
        let words = if wide {
            format!(
                "{short:<name_width$.33}{state:>9}{window:>8}{inside:>8}{:>9}{p50:>8}{:>8}",
                number(&recent["served_per_second"]),
                millis(&recent["service_p99_seconds"]),
            )
        } else {
            format!("{short:<name_width$.23}{state:>8}{window:>8}{inside:>8}{p50:>8}")
        };
        let colour = if state == "up" {
            Color::Reset
        } else {
            Color::Yellow
        };
        out.push(Line::styled(words, ui.style(colour)));
    }
    out
}

/// Words in lines of at most this many columns.
fn wrapped(words: &str, columns: u16, style: Style) -> Vec<Line<'static>> {
    let columns = usize::from(columns.max(20));
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > columns {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
        .into_iter()
        .map(|line| Line::styled(line, style))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn application() -> Value {
        let recent = json!({
            "offered_per_second": 222.0, "in_target_per_second": 58.0, "shed_per_second": 164.0,
            "shed_per_second_by_reason": { "predicted": 164.0 }, "response_p99_seconds": 0.31,
        });
        json!({
            "headline": "Overloaded since 21:14 UTC: 312/s arrive, 148/s can be served; 164/s \
                         shed of bronze, gold untouched.",
            "mode": { "name": "auto" }, "overload": { "on": true },
            "capacity_per_second": 148.0, "queue": { "requests": 3 }, "recent": recent,
            "classes": {
                "bronze": { "rank": 1, "target_seconds": 0.5, "recent": recent },
                "gold": { "rank": 0, "target_seconds": 0.5, "recent": {} },
            },
            "replicas": [{
                "url": "http://127.0.0.1:3002", "state": "up", "slow": true, "window": 2,
                "in_flight": 2, "recent": { "service_p50_seconds": 0.2 },
            }, {
                "url": "http://127.0.0.1:3001", "state": "ejected", "window": 12, "in_flight": 11,
                "recent": { "service_p50_seconds": 0.04 },
            }],
            "advice": ["2 more replicas would serve all."],
            "shadow": {
                "headline": "The shadow would shed less.", "limits_known": 0, "replicas_up": 1,
                "in_force": { "total": { "shed_per_second": 164.0 } },
                "modelled": { "total": { "shed_per_second": 160.0 } },
                "shadow": { "total": { "shed_per_second": 87.0 } },
            },
            "warnings": [{ "since": "2026-01-02T03:04:05.678Z", "text": "a cause; a remedy" }],
        })
    }

    #[test]
    fn picture_fits_sixty_columns_and_answers_the_questions() {
        for columns in [60, 80, 100, 200] {
            let picture = plain(&application(), &Ui::new("http://127.0.0.1:9190"), columns);
            let widest = picture.lines().map(|line| line.chars().count()).max();
            assert!(
                widest <= Some(usize::from(columns)),
                "{widest:?}\n{picture}"
            );
            for part in [
                "Overloaded since 21:14",
                "148",
                "predicted 164/s",
                "ejected",
                "slow",
                "remedy",
                "164         160          87",
                "would shed less",
            ] {
                assert!(picture.contains(part), "{part} in\n{picture}");
            }
        }
    }

    #[test]
    fn classes_are_sorted_and_filtered() {
        let mut ui = Ui::new("a");
        let order = |ui: &Ui| {
            let picture = plain(&application(), ui, 100);
            (picture.find("\ngold"), picture.find("\nbronze"))
        };
        let (gold, bronze) = order(&ui);
        assert!(gold < bronze, "importance first");
        ui.sort = Sort::Shed;
        let (gold, bronze) = order(&ui);
        assert!(bronze < gold);
        ui.filter = "gold".into();
        assert_eq!(order(&ui).1, None);
    }
}
