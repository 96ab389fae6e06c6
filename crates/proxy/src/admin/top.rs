//! The paths and tenants that cost most and are shed most, and what a class for the cheap ones
//! would bring.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_sentry::SentryConfig;

use crate::metrics::{Heavy, Top};

/// Rows that are shown of each order.
const SHOWN: usize = 10;

/// A path is cheap when it takes at most this share of the mean service time.
const CHEAP_OF_MEAN: f64 = 1.0 / 3.0;

/// Share of the requests that must be shed before a class is suggested.
const SHED_SHARE_MIN: f64 = 0.05;

/// How many times as many requests must be served for a class to be worth a sentence.
const GAIN_MIN: f64 = 1.2;

/// Paths named in a suggestion.
const SUGGESTED_MAX: usize = 5;

/// Paths and tenants of an application.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct TopView {
    /// Paths with ids folded, over about the last two minutes, the costliest first.
    paths: Vec<HeavyView>,
    /// Tenants, where `tenant` is configured.
    tenants: Vec<HeavyView>,
    /// A class that would let more requests be served, while requests are shed.
    suggestion: Option<Suggestion>,
}

/// One path or tenant.
#[derive(Debug, Serialize, JsonSchema)]
struct HeavyView {
    /// The path, ids folded, or the tenant.
    name: String,
    /// Requests that arrive per second.
    offered_per_second: f64,
    /// Requests that are served per second.
    served_per_second: f64,
    /// Requests that are shed per second.
    shed_per_second: f64,
    /// Requests in service at once, on average.
    in_service: f64,
    /// Its share of all requests in service.
    cost_share: f64,
    /// Mean service time.
    service_seconds: Option<f64>,
}

/// What to write into the file, and what it would bring.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Suggestion {
    /// What it would bring, in words.
    pub(super) words: String,
    /// Lines of the configuration.
    config: String,
}

impl TopView {
    pub(super) fn of(top: &Top, protect: &SentryConfig) -> Self {
        Self {
            suggestion: suggest(&top.paths, protect),
            paths: shown(&top.paths),
            tenants: shown(&top.tenants),
        }
    }

    /// In words, for the advice.
    pub(super) fn advice(&self) -> Option<String> {
        self.suggestion.as_ref().map(|it| it.words.clone())
    }
}

/// The heaviest of each order, by cost.
fn shown(all: &[Heavy]) -> Vec<HeavyView> {
    let total: f64 = all.iter().map(|it| it.in_service).sum();
    let mut by_shed: Vec<_> = all.iter().filter(|it| it.shed_per_second > 0.0).collect();
    by_shed.sort_by(|a, b| b.shed_per_second.total_cmp(&a.shed_per_second));
    by_shed.truncate(SHOWN);
    let mut by_cost: Vec<_> = all.iter().collect();
    by_cost.sort_by(|a, b| b.in_service.total_cmp(&a.in_service));
    let among = |it: &Heavy| by_shed.iter().any(|shed| shed.name == it.name);
    let ranked = by_cost.into_iter().enumerate();
    let kept = ranked.filter(|(rank, it)| *rank < SHOWN || among(it));
    kept.map(|(_, it)| view(it, total)).collect()
}

fn view(of: &Heavy, total: f64) -> HeavyView {
    HeavyView {
        name: of.name.clone(),
        offered_per_second: of.arrived_per_second,
        served_per_second: of.served_per_second,
        shed_per_second: of.shed_per_second,
        in_service: of.in_service,
        cost_share: if total > 0.0 {
            of.in_service / total
        } else {
            0.0
        },
        service_seconds: service_s(of),
    }
}

fn service_s(of: &Heavy) -> Option<f64> {
    (of.served_per_second > 0.0).then(|| of.in_service / of.served_per_second)
}

/// A class for the cheap paths, if it would let far more requests be served. The replicas give as
/// many seconds of service per second as now, first to the cheap paths.
fn suggest(paths: &[Heavy], protect: &SentryConfig) -> Option<Suggestion> {
    let sum = |of: fn(&Heavy) -> f64, among: &[&Heavy]| among.iter().map(|it| of(it)).sum::<f64>();
    let all: Vec<_> = paths.iter().collect();
    let (offered, shed) = (
        sum(|it| it.arrived_per_second, &all),
        sum(|it| it.shed_per_second, &all),
    );
    let (served, seconds) = (
        sum(|it| it.served_per_second, &all),
        sum(|it| it.in_service, &all),
    );
    if shed < SHED_SHARE_MIN * offered || served <= 0.0 {
        return None;
    }
    let limit = CHEAP_OF_MEAN * seconds / served;
    let is_cheap = |it: &&Heavy| service_s(it).is_some_and(|time| time <= limit);
    let (mut cheap, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| is_cheap(it));
    cheap.sort_by(|a, b| b.arrived_per_second.total_cmp(&a.arrived_per_second));
    cheap.truncate(SUGGESTED_MAX);
    let cheap_s = sum(|it| it.in_service, &cheap) / sum(|it| it.served_per_second, &cheap);
    let first = sum(|it| it.arrived_per_second, &cheap).min(seconds / cheap_s);
    let rest_served = sum(|it| it.served_per_second, &rest);
    let rest_s = sum(|it| it.in_service, &rest) / rest_served;
    let others = ((seconds - first * cheap_s) / rest_s).clamp(0.0, rest_served);
    let better = first + others;
    (better >= GAIN_MIN * served).then(|| Suggestion {
        words: words(&cheap, (cheap_s, seconds / served), (better, served)),
        config: config(&cheap, protect),
    })
}

fn words(cheap: &[&Heavy], (cheap_s, mean_s): (f64, f64), (better, served): (f64, f64)) -> String {
    let names: Vec<_> = cheap.iter().map(|it| it.name.as_str()).collect();
    format!(
        "Let the cheap requests in first: {} take {:.1} ms, all together {:.1} ms on average. A \
         class for them would serve about {better:.0}/s instead of {served:.0}/s; the lines are \
         under `top.suggestion`.",
        names.join(", "),
        cheap_s * 1e3,
        mean_s * 1e3,
    )
}

/// The lines for the file: the class above those there are, and a rule for each path.
fn config(cheap: &[&Heavy], protect: &SentryConfig) -> String {
    let mut lines = "[[protect.classes]]\nname = \"cheap\"\n".to_owned();
    let names = protect.classes.iter().map(|class| class.name.as_str());
    let mut names: Vec<_> = names.filter(|name| *name != "cheap").collect();
    if names.is_empty() {
        names.push("default");
    }
    for name in names {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "[[protect.classes]]\nname = {}", quoted(name));
    }
    for path in cheap {
        let path = path.name.replace("/:id", "/*");
        let _ = writeln!(
            lines,
            "\n[[classify]]\nclass = \"cheap\"\npath = {}",
            quoted(&path)
        );
    }
    lines
}

/// A string as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn path(name: &str, offered: f64, served: f64, millis: f64) -> Heavy {
        Heavy {
            name: name.into(),
            arrived_per_second: offered,
            shed_per_second: offered - served,
            served_per_second: served,
            in_service: served * millis / 1e3,
        }
    }

    #[test]
    fn cheap_paths_get_a_class_that_is_valid_and_doubles_what_is_served() {
        let paths = [
            path("/user/:id", 200.0, 60.0, 5.0),
            path("/report", 100.0, 30.0, 50.0),
        ];
        let view = TopView::of(
            &Top {
                paths: paths.to_vec(),
                tenants: Vec::new(),
            },
            &SentryConfig::default(),
        );
        let suggestion = view.suggestion.expect("far more would be served");
        assert!(
            suggestion.words.contains("about 216/s instead of 90/s"),
            "{}",
            suggestion.words
        );
        let file = format!("upstream = 'http://127.0.0.1:1'\n{}", suggestion.config);
        let config = Config::from_text("t.toml", &file).expect("the lines are valid");
        assert_eq!(config.protect.classes.len(), 2);
        assert_eq!(config.classify.len(), 1);
        assert!(suggestion.config.contains("path = \"/user/*\""));
    }

    #[test]
    fn nothing_is_suggested_where_nothing_is_shed_or_all_cost_alike() {
        let protect = SentryConfig::default();
        let calm = [path("/a", 60.0, 60.0, 5.0), path("/b", 30.0, 30.0, 50.0)];
        assert_eq!(suggest(&calm, &protect), None);
        let alike = [path("/a", 200.0, 60.0, 50.0), path("/b", 100.0, 30.0, 50.0)];
        assert_eq!(suggest(&alike, &protect), None);
        assert_eq!(suggest(&[], &protect), None);
    }

    #[test]
    fn path_that_is_shed_most_is_shown_though_it_costs_least() {
        let mut paths: Vec<_> = (0..30)
            .map(|number| path(&format!("/{number}"), 10.0, 10.0, 10.0))
            .collect();
        paths.push(path("/shed", 100.0, 0.0, 0.0));
        let shown = shown(&paths);
        assert_eq!(shown.len(), SHOWN + 1);
        assert!(shown.iter().any(|it| it.name == "/shed"));
    }
}
