//! The picture as lines: one function for the live screen, for `--once` and for tests.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::seen::Seen;
use super::tables::{applications, class_table, heavy_tables, replica_table};
use crate::ctl::show::{ENGINES, clock, millis, number, plane_words, shadow_rows, text};

/// Points in the small charts.
const HISTORY: usize = 120;
/// The last changes that are shown.
const EVENTS_SHOWN: usize = 8;

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

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Importance => "importance",
            Self::Offered => "offered",
            Self::Shed => "shed",
            Self::Slow => "p99",
        }
    }

    pub(super) fn key(self, class: &Value) -> f64 {
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
    /// The next application is to be shown.
    pub(super) next_application: bool,
    colours: bool,
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
            next_application: false,
            colours: !no_color,
        }
    }

    pub(super) fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || name.contains(&self.filter)
    }

    pub(super) fn style(&self, colour: Color) -> Style {
        if self.colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }
}

const HELP: [&str; 10] = [
    "q       quit",
    "?       this help",
    "/       show only classes and replicas whose name contains a text; Esc shows all",
    "a       the next application, where the proxy has several",
    "i       what became of a request: its x-request-id, then Enter",
    "s       sort classes by importance, offered, shed or p99",
    "p       pause",
    "arrows  scroll, also page up and down",
    "",
    "`tidegate ctl` steers the proxy; its admin listener has the same as a web page.",
];

/// The picture.
pub(super) fn lines(seen: &Seen, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let application = seen.application();
    let mut out = wrapped(
        &title(seen, ui),
        columns,
        Style::new().add_modifier(Modifier::DIM),
    );
    out.push(Line::default());
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
    out.extend(episode(application, columns));
    out.extend(wrapped(&figures(application), columns, Style::new()));
    out.extend(charts(&seen.history, ui, columns));
    out.extend(applications(seen, ui));
    out.push(Line::default());
    out.extend(class_table(application, ui, columns));
    out.push(Line::default());
    out.extend(replica_table(application, ui, columns));
    let process = seen.status["warnings"].as_array().into_iter().flatten();
    let its = application["warnings"].as_array().into_iter().flatten();
    for warning in process.chain(its) {
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
    out.extend(heavy_tables(application, ui));
    out.extend(around(seen, ui, columns));
    out.extend(changes(seen, columns));
    out
}

/// What happened in the overload that lasts.
fn episode(application: &Value, columns: u16) -> Vec<Line<'static>> {
    let episode = &application["overload"]["episode"];
    if episode.is_null() || !episode["ended"].is_null() {
        return Vec::new();
    }
    let words = format!(
        "In this overload: {} arrived, {} answered in target, {} shed.",
        episode["arrived"], episode["in_target"], episode["shed"]
    );
    wrapped(&words, columns, Style::new())
}

/// The control plane, the fleet and the channel, where there are any.
fn around(seen: &Seen, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let mut all = Vec::new();
    let plane = &seen.status["plane"];
    let alone = seen.names().len() == 1;
    all.extend(plane_words(plane, &seen.name, alone));
    if let Some(trouble) = plane["trouble"].as_str() {
        all.push(trouble.to_owned());
    }
    let fleet = &seen.status["fleet"];
    if !fleet.is_null() {
        let peers = fleet["peers"].as_array().map_or(0, Vec::len);
        let mine = &fleet["applications"][&seen.name]["share"];
        let share = 100.0 * mine.as_f64().unwrap_or(0.0);
        all.push(format!(
            "fleet {}: {peers} other proxies, {share:.0} % of the windows are this one's",
            text(&fleet["fleet"])
        ));
    }
    let channel = &seen.channel;
    if !channel.is_null() {
        let offenders = channel["offenders"].as_array().map_or(0, Vec::len);
        all.push(format!(
            "channel: {}; {} clients, {offenders} offenders",
            text(&channel["strategy_words"]),
            number(&channel["clients"])
        ));
    }
    let mut out = Vec::new();
    for words in all {
        out.push(Line::default());
        out.extend(wrapped(&words, columns, ui.style(Color::Reset)));
    }
    out
}

/// Whether a line of the log says what another event says.
fn repeats(line: &str) -> bool {
    line.contains("overload") || line.contains(" replica is ")
}

/// What changed last, and why.
fn changes(seen: &Seen, columns: u16) -> Vec<Line<'static>> {
    let mine = seen.events.iter().filter(|event| {
        let of = event["application"].as_str();
        of.is_none_or(|of| of == seen.name)
    });
    let words = |event: &&Value| match text(&event["type"]) {
        // The log repeats what other events say.
        "notice" if repeats(text(&event["line"])) => None,
        "notice" => Some(text(&event["line"]).to_owned()),
        _ => event["words"].as_str().map(str::to_owned),
    };
    let all = mine.filter_map(|event| Some((clock(&event["time"]), words(&event)?)));
    let mut all: Vec<_> = all.collect();
    all.drain(..all.len().saturating_sub(EVENTS_SHOWN));
    let mut out = Vec::new();
    if !all.is_empty() {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        out.extend([
            Line::default(),
            Line::styled("what changed last, and why", bold),
        ]);
    }
    for (time, words) in all.iter().rev() {
        out.extend(wrapped(&format!("{time} {words}"), columns, Style::new()));
    }
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
    if let Some(config) = application["top"]["suggestion"]["config"].as_str() {
        out.extend(config.lines().map(|line| Line::from(format!("    {line}"))));
    }
    if let Some(headline) = application["forecast"]["headline"].as_str() {
        out.push(Line::default());
        let words = format!("Forecast from the last minute: {headline}");
        out.extend(wrapped(&words, columns, Style::new()));
    }
    out
}

/// The picture without colours, for pipes.
pub(super) fn plain(seen: &Seen, ui: &Ui, columns: u16) -> String {
    let lines = lines(seen, ui, columns);
    lines
        .iter()
        .map(|line| format!("{}\n", line.to_string().trim_end()))
        .collect()
}

fn title(seen: &Seen, ui: &Ui) -> String {
    let mut words = format!(
        "tidegate  {}  mode {}",
        ui.admin,
        text(&seen.application()["mode"]["name"])
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
    words + "  ? help"
}

fn figures(application: &Value) -> String {
    let recent = &application["recent"];
    let mut words = format!(
        "goodput {}/s, capacity {}/s, p50/95/99 {}/{}/{} ms, queue {}",
        number(&recent["in_target_per_second"]),
        number(&application["capacity_per_second"]),
        millis(&recent["response_p50_seconds"]),
        millis(&recent["response_p95_seconds"]),
        millis(&recent["response_p99_seconds"]),
        application["queue"]["requests"],
    );
    let revenue = |key: &str| recent[key].as_f64().unwrap_or(0.0);
    let (earned, lost) = (
        revenue("revenue_earned_per_second"),
        revenue("revenue_lost_per_second"),
    );
    if earned + lost > 0.0 {
        words += &format!(", revenue {earned:.1}/s, {lost:.1}/s lost");
    }
    words
}

/// What arrived, was answered in target and was shed in the last minutes, on one scale.
fn charts(history: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let width = usize::from(columns.saturating_sub(11)).min(HISTORY);
    let names = history["columns"].as_array().into_iter().flatten();
    let names: Vec<_> = names.map(text).collect();
    let series = |name: &str| -> Vec<f64> {
        let at = names.iter().position(|column| *column == name);
        let points = history["rings"][0]["points"].as_array();
        let points = points.into_iter().flatten();
        let values = points.map(|point| at.map_or(0.0, |at| point[at].as_f64().unwrap_or(0.0)));
        let all: Vec<_> = values.collect();
        // Ten minutes in as many columns as there are.
        let each = all.len().div_ceil(width.max(1)).max(1);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        all.chunks(each).map(mean).collect()
    };
    let offered = series("offered");
    if offered.len() < 2 {
        return Vec::new();
    }
    let most = offered.iter().copied().fold(1.0, f64::max);
    let chart = |name: &'static str, values: Vec<f64>, colour| {
        let bars: String = values.iter().map(|value| bar(value / most)).collect();
        Line::from(vec![
            Span::from(format!("{name:<11}")),
            Span::styled(bars, ui.style(colour)),
        ])
    };
    vec![
        chart("offered", offered, Color::Blue),
        chart("in target", series("in_target"), Color::Green),
        chart("shed", series("shed"), Color::Red),
    ]
}

fn bar(share: f64) -> char {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BARS[((share * 8.0).ceil() as usize).min(8)]
}

/// Words in lines of at most this many columns.
pub(super) fn wrapped(words: &str, columns: u16, style: Style) -> Vec<Line<'static>> {
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

    fn seen() -> Seen {
        Seen {
            status: status(),
            name: "shop".to_owned(),
            events: vec![
                json!({ "type": "window", "time": "2026-01-02T03:04:05.678Z", "application": "shop",
                        "words": "window of r1: 4 → 2, because a smaller window is tried" }),
                json!({ "type": "window", "time": "2026-01-02T03:04:05.678Z", "application": "search",
                        "words": "of another application" }),
            ],
            history: json!({ "columns": ["time", "offered", "in_target", "shed"], "rings": [{
                "seconds": 1,
                "points": (0..600).map(|at| json!([at, at, 100, 50])).collect::<Vec<_>>(),
            }] }),
            channel: json!({ "strategy_words": "all clients may send", "clients": 3, "offenders": [{}] }),
        }
    }

    fn status() -> Value {
        json!({
            "warnings": [{ "since": "2026-01-02T03:04:05.678Z", "text": "the file was refused" }],
            "plane": { "applications": { "shop": {
                "wanted": 5, "servers": 3, "ready": 3, "reason": "more will arrive",
                "forecast": { "rate_per_second": 400, "low_per_second": 350, "high_per_second": 450 },
            } } },
            "applications": { "search": {}, "shop": application() },
        })
    }

    fn application() -> Value {
        let recent = json!({
            "offered_per_second": 222.0, "in_target_per_second": 58.0, "shed_per_second": 164.0,
            "shed_per_second_by_reason": { "predicted": 164.0 }, "response_p99_seconds": 0.31,
        });
        json!({
            "top": {
                "paths": [{ "name": "/report/:id", "cost_share": 0.8, "shed_per_second": 20 }],
                "suggestion": { "config": "[[classify]]\nclass = \"cheap\"" },
            },
            "headline": "Overloaded since 21:14 UTC: 312/s arrive, 148/s can be served; 164/s \
                         shed of bronze, gold untouched.",
            "mode": { "name": "auto" }, "overload": { "on": true, "episode": { "arrived": 900, "in_target": 400, "shed": 480 } },
            "capacity_per_second": 148.0, "queue": { "requests": 3 }, "recent": recent,
            "classes": {
                "bronze": { "rank": 1, "target_seconds": 0.5, "recent": recent },
                "gold": { "rank": 0, "target_seconds": 0.5, "recent": {} },
            },
            "replicas": [{
                "url": "http://127.0.0.1:3002", "state": "up", "slow": true, "window": 2, "phase": "settled", "knee": 1.6,
                "trouble": "replica http://127.0.0.1:3002: it answered 500",
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
            let picture = plain(&seen(), &Ui::new("http://127.0.0.1:9190"), columns);
            let widest = picture.lines().map(|line| line.chars().count()).max();
            assert!(
                widest <= Some(usize::from(columns)),
                "{widest:?}\n{picture}"
            );
            // Sentences are wrapped.
            let words: Vec<_> = picture.split_whitespace().collect();
            let words = words.join(" ");
            for part in [
                "Overloaded since 21:14",
                "148",
                "predicted 164/s",
                "ejected",
                "slow",
                "remedy",
                "164         160          87",
                "would shed less",
                "480 shed",
                "the file was refused",
                "/report/:id",
                "class = \"cheap\"",
                "a smaller window is tried",
                "it answered 500",
                "wants 5",
                "1 offenders",
                "search",
                "▃",
            ] {
                assert!(
                    picture.contains(part) || words.contains(part),
                    "{part} in\n{picture}"
                );
            }
            assert!(!picture.contains("of another application"), "{picture}");
        }
        let wide = plain(&seen(), &Ui::new("a"), 120);
        assert!(wide.contains("settled, knee 1.6"), "{wide}");
    }

    #[test]
    fn applications_are_shown_in_turn() {
        let mut seen = seen();
        assert_eq!(seen.next_name(), "search");
        seen.name = seen.next_name();
        assert_eq!(seen.next_name(), "shop");
    }

    #[test]
    fn classes_are_sorted_and_filtered() {
        let mut ui = Ui::new("a");
        let order = |ui: &Ui| {
            let picture = plain(&seen(), ui, 100);
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
