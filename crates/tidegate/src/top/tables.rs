//! The tables of the picture: applications, classes, replicas, paths and tenants.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use serde_json::Value;

use super::seen::Seen;
use super::view::Ui;
use crate::ctl::show::{
    classes, clock, count, millis, number, replica_search, replica_state, text,
};

/// Columns below which the tables leave out what matters least.
const COLUMNS_WIDE_MIN: u16 = 100;

/// Rows of paths and of tenants.
const HEAVY_SHOWN: usize = 5;

fn head(words: String) -> Line<'static> {
    Line::styled(words, Style::new().add_modifier(Modifier::BOLD))
}

/// All applications, where there are several.
pub(super) fn applications(seen: &Seen, ui: &Ui) -> Vec<Line<'static>> {
    let names = seen.names();
    if names.len() < 2 {
        return Vec::new();
    }
    let mut out = vec![
        Line::default(),
        head(format!(
            "{:<18}{:>10}{:>9}{:>9}{:>8}{:>6}",
            "application (a)", "state", "offered", "in targ", "shed", "p99"
        )),
    ];
    for name in names {
        let of = &seen.status["applications"][name];
        let overloaded = of["overload"]["on"] == true;
        let state = if overloaded { "overload" } else { "-" };
        let recent = &of["recent"];
        let mark = if name == seen.name { ">" } else { " " };
        let words = format!(
            "{mark} {name:<16.15}{state:>10}{:>9}{:>9}{:>8}{:>6}",
            number(&recent["offered_per_second"]),
            number(&recent["in_target_per_second"]),
            number(&recent["shed_per_second"]),
            millis(&recent["response_p99_seconds"]),
        );
        let style = if overloaded {
            ui.style(Color::Red)
        } else {
            Style::new()
        };
        out.push(Line::styled(words, style));
    }
    out
}

pub(super) fn class_table(application: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let wide = columns >= COLUMNS_WIDE_MIN;
    let mut out = vec![head(if wide {
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
    })];
    let mut all = classes(application);
    all.retain(|(name, _)| ui.wants(name));
    all.sort_by(|a, b| ui.sort.key(b.1).total_cmp(&ui.sort.key(a.1)));
    for (name, class) in all {
        out.push(class_row(name, class, ui, wide));
        out.extend(class_details(class, ui));
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

/// Why requests of the class are shed, and what else became of them, as far as there is any.
fn class_details(class: &Value, ui: &Ui) -> Vec<Line<'static>> {
    let recent = &class["recent"];
    let mut out = Vec::new();
    for (label, key) in [
        ("shed", "shed_per_second_by_reason"),
        ("would be shed", "would_shed_per_second_by_reason"),
    ] {
        let reasons = recent[key].as_object().into_iter().flatten();
        let words: Vec<_> = reasons
            .map(|(reason, rate)| format!("{reason} {}/s", number(rate)))
            .collect();
        if !words.is_empty() {
            let words = format!("  {label}: {}", words.join(", "));
            out.push(Line::styled(words, ui.style(Color::Red)));
        }
    }
    let others = [
        ("browned out", "browned_out_per_second"),
        ("failed", "failed_per_second"),
        ("abandoned", "abandoned_per_second"),
        ("earned", "revenue_earned_per_second"),
        ("lost", "revenue_lost_per_second"),
    ];
    let positive = |key: &str| recent[key].as_f64().is_some_and(|rate| rate > 0.0);
    let words: Vec<_> = others
        .iter()
        .filter(|(_, key)| positive(key))
        .map(|(name, key)| format!("{name} {}/s", number(&recent[key])))
        .collect();
    if !words.is_empty() {
        out.push(Line::from(format!("  {}", words.join(", "))));
    }
    out
}

pub(super) fn replica_table(application: &Value, ui: &Ui, columns: u16) -> Vec<Line<'static>> {
    let wide = columns >= COLUMNS_WIDE_MIN;
    let mut out = vec![head(if wide {
        format!(
            "{:<28}{:>9}{:>8}{:>8}{:>9}{:>8}{:>6}  {}",
            "replica", "state", "window", "inside", "served/s", "p50 ms", "p99", "search"
        )
    } else {
        format!(
            "{:<24}{:>8}{:>8}{:>8}{:>8}",
            "replica", "state", "window", "inside", "p50 ms"
        )
    })];
    for replica in application["replicas"].as_array().into_iter().flatten() {
        let url = text(&replica["url"]);
        if !ui.wants(url) {
            continue;
        }
        out.push(replica_row(replica, ui, wide));
        if let Some(trouble) = replica["trouble"].as_str() {
            let words = trouble.replace(&format!("replica {url}: "), "");
            let line = format!("  since {}: {words}", clock(&replica["since"]));
            out.extend(super::view::wrapped(
                &line,
                columns,
                ui.style(Color::Yellow),
            ));
        }
    }
    out
}

fn replica_row(replica: &Value, ui: &Ui, wide: bool) -> Line<'static> {
    let state = replica_state(replica);
    let short = text(&replica["url"]).trim_start_matches("http://");
    let recent = &replica["recent"];
    let (window, inside) = (count(&replica["window"]), count(&replica["in_flight"]));
    let p50 = millis(&recent["service_p50_seconds"]);
    let words = if wide {
        format!(
            "{short:<28.27}{state:>9}{window:>8}{inside:>8}{:>9}{p50:>8}{:>6}  {:.22}",
            number(&recent["served_per_second"]),
            millis(&recent["service_p99_seconds"]),
            replica_search(replica),
        )
    } else {
        format!("{short:<24.23}{state:>8}{window:>8}{inside:>8}{p50:>8}")
    };
    let colour = if state == "up" {
        Color::Reset
    } else {
        Color::Yellow
    };
    Line::styled(words, ui.style(colour))
}

/// Paths and tenants: the few that cost most.
pub(super) fn heavy_tables(application: &Value, ui: &Ui) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for (name, key) in [("path", "paths"), ("tenant", "tenants")] {
        let all = application["top"][key].as_array().into_iter().flatten();
        let mut all: Vec<_> = all.filter(|it| ui.wants(text(&it["name"]))).collect();
        all.truncate(HEAVY_SHOWN);
        if all.is_empty() {
            continue;
        }
        out.push(Line::default());
        out.push(head(format!(
            "{name:<24}{:>9}{:>8}{:>8}{:>10}",
            "offered/s", "shed/s", "of work", "mean ms"
        )));
        for it in all {
            let share = 100.0 * it["cost_share"].as_f64().unwrap_or(0.0);
            let words = format!(
                "{:<24.23}{:>9}{:>8}{share:>6.0} %{:>10}",
                text(&it["name"]),
                number(&it["offered_per_second"]),
                number(&it["shed_per_second"]),
                millis(&it["service_seconds"]),
            );
            let shed = it["shed_per_second"]
                .as_f64()
                .is_some_and(|rate| rate > 0.05);
            let style = if shed {
                ui.style(Color::Red)
            } else {
                Style::new()
            };
            out.push(Line::styled(words, style));
        }
    }
    out
}
