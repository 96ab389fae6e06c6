//! A plan in words.

use std::fmt::Write;
use std::time::Duration;

use super::{ClassShare, ENOUGH, PlanRow};

/// What was asked, as far as the words speak of it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Requests per second.
    pub rate_per_second: f64,
    /// The target, where there is one for all.
    pub target: Option<Duration>,
    /// Replicas that are lost.
    pub kill: u32,
}

fn replicas_keep(count: u32) -> String {
    match count {
        1 => "1 replica keeps".to_owned(),
        count => format!("{count} replicas keep"),
    }
}

/// The table in words.
#[must_use]
pub fn in_words(asked: &Asked, rows: &[PlanRow]) -> String {
    let rate = asked.rate_per_second;
    let within = match asked.target {
        Some(target) => format!("within {:.0} ms", target.as_secs_f64() * 1e3),
        None => "within the target".to_owned(),
    };
    let percent = ENOUGH * 100.0;
    let is_enough = |row: &&PlanRow| row.kept_per_second >= rate || row.in_target >= ENOUGH;
    let Some(first) = rows.iter().find(is_enough) else {
        let Some(most) = rows.last() else {
            return String::new();
        };
        let mut words = format!(
            "No number of replicas up to {} keeps {percent:.0} % of {rate:.0}/s {within}: {} keep \
             it up to {:.0}/s.",
            most.replicas, most.replicas, most.kept_per_second
        );
        if let Some(kept) = kept_classes(&most.classes) {
            let _ = write!(
                words,
                " At {rate:.0}/s {} {kept}.",
                replicas_keep(most.replicas)
            );
        }
        return words;
    };
    let mut words = format!(
        "{} {percent:.0} % {within} up to {:.0}/s; at {rate:.0}/s p95 is {:.0} ms.",
        replicas_keep(first.replicas),
        first.kept_per_second,
        first.p95_seconds * 1e3
    );
    if let Some(after) = first.in_target_after_kill {
        words += &after_loss(asked, first, after);
        let survives = |row: &&PlanRow| row.in_target_after_kill >= Some(ENOUGH);
        if after < ENOUGH
            && let Some(enough) = rows.iter().find(survives)
        {
            let _ = write!(words, " {} would lose nothing by that.", enough.replicas);
        }
    }
    words
}

fn after_loss(asked: &Asked, row: &PlanRow, in_target: f64) -> String {
    let left = row.replicas.saturating_sub(asked.kill);
    if left == 0 {
        return format!(" With {} lost, none is left.", asked.kill);
    }
    let mut words = format!(
        " With {} lost, {} {:.0} % of the requests within the target",
        asked.kill,
        replicas_keep(left),
        in_target * 100.0
    );
    if in_target < ENOUGH
        && let Some(kept) = kept_classes(&row.classes_after_kill)
    {
        let _ = write!(words, ": {kept}");
    }
    words + "."
}

/// Which classes are kept and which are not; nothing where there is one class.
fn kept_classes(classes: &[ClassShare]) -> Option<String> {
    if classes.is_empty() {
        return None;
    }
    let list = |kept: bool| {
        let those = classes.iter().filter(|it| (it.in_target >= ENOUGH) == kept);
        let shown = |it: &ClassShare| format!("{} ({:.0} %)", it.class, it.in_target * 100.0);
        let shown: Vec<String> = those.map(shown).collect();
        shown.join(" and ")
    };
    let (kept, lost) = (list(true), list(false));
    Some(match (kept.is_empty(), lost.is_empty()) {
        (true, _) => format!("no class whole, {lost}"),
        (_, true) => kept,
        _ => format!("{kept}, not {lost}"),
    })
}
