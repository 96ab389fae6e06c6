//! The status of a `TidegateApplication`: numbers for `kubectl get`, and conditions.
//!
//! | condition | false means |
//! | --- | --- |
//! | `Accepted` | the object, or its newest form, cannot be used |
//! | `Observed` | no proxy reported requests for too long; servers stay |
//! | `Working` | something that the driver needs fails |
//! | `Acting` | decisions are reported only |

use tidegate_planed::Report;

use crate::accept::Verdict;
use crate::resource::{Condition, ResourceStatus};

/// Longest message of a condition; the API server allows 32 KiB.
const MESSAGE_CHARS_MAX: usize = 1024;

/// The status of an object, after `before`; times are RFC 3339.
pub(crate) fn status(
    verdict: &Verdict,
    report: Option<&Report<'_>>,
    before: &ResourceStatus,
    now: &str,
) -> ResourceStatus {
    let mut conditions = vec![accepted(verdict)];
    if let Some(report) = report {
        conditions.extend([observed(report), working(report), acting(verdict, report)]);
    }
    for condition in &mut conditions {
        condition.observed_generation = verdict.generation;
        let old = before
            .conditions
            .iter()
            .find(|it| it.kind == condition.kind);
        let same = old.filter(|it| it.status == condition.status);
        condition.last_transition_time =
            same.map_or_else(|| now.to_owned(), |it| it.last_transition_time.clone());
    }
    let known = report.map(|it| it.status);
    let rate = |rate: f64| format!("{}/s", rounded(rate));
    ResourceStatus {
        observed_generation: verdict.generation,
        servers: known.map(|it| it.servers),
        ready: known.map(|it| it.ready),
        needed: known.and_then(|it| it.needed),
        rate: known.and_then(|it| it.rate).map(rate),
        capacity: known.and_then(|it| it.capacity).map(rate),
        target: known.map(|it| format!("{}ms", (1000.0 * it.target_seconds).round())),
        reason: known.map(|it| it.reason.clone()),
        conditions,
    }
}

/// Two digits that count: a status that changes with every request would be written every second.
fn rounded(rate: f64) -> f64 {
    if !(rate.is_finite() && rate > 0.0) {
        return 0.0;
    }
    let unit = 10_f64.powf(rate.log10().floor() - 1.0);
    let rounded = (rate / unit).round() * unit;
    if rounded < 10.0 {
        (10.0 * rounded).round() / 10.0
    } else {
        rounded.round()
    }
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
        last_transition_time: String::new(),
        observed_generation: None,
    }
}

fn accepted(verdict: &Verdict) -> Condition {
    match &verdict.refused {
        None => condition("Accepted", true, "Valid", "in force"),
        Some(why) => {
            let stays = match verdict.declared {
                Some(_) => "; the form before stays in force",
                None => "",
            };
            condition("Accepted", false, "Invalid", &format!("{why}{stays}"))
        }
    }
}

fn observed(report: &Report<'_>) -> Condition {
    if report.status.blind {
        let message = "no proxy reports requests of this application; its servers stay";
        return condition("Observed", false, "NoObservation", message);
    }
    condition("Observed", true, "Reported", "proxies report requests")
}

fn working(report: &Report<'_>) -> Condition {
    match report.problems {
        [] => condition("Working", true, "Working", "nothing is wrong"),
        problems => condition("Working", false, "Problem", &problems.join("; ")),
    }
}

fn acting(verdict: &Verdict, report: &Report<'_>) -> Condition {
    if report.acts {
        return condition("Acting", true, "Act", "decisions are carried out");
    }
    let acts = |it: &tidegate_planed::Declared| it.mode == tidegate_planed::Mode::Act;
    let message = if verdict.declared.as_ref().is_some_and(acts) {
        "decisions are reported only: the daemon's mode, or its kill switch"
    } else {
        "decisions are reported only: `spec.mode` is `recommend`"
    };
    condition("Acting", false, "Recommend", message)
}

#[cfg(test)]
mod tests {
    use tidegate_control::Timestamp;
    use tidegate_plane::{Plane, PlaneConfig};

    use super::*;

    fn verdict(refused: Option<&str>) -> Verdict {
        Verdict {
            generation: Some(3),
            declared: None,
            refused: refused.map(str::to_owned),
        }
    }

    fn holds<'a>(status: &'a ResourceStatus, kind: &str) -> &'a Condition {
        let found = status.conditions.iter().find(|it| it.kind == kind);
        found.expect("the condition is there")
    }

    #[test]
    fn conditions_say_what_is_wrong_and_keep_the_time_of_their_change() {
        let config: PlaneConfig =
            tidegate_config::parse("p", "[[application]]\nname = 'shop'").expect("valid");
        let plane = Plane::new(config, Timestamp::ZERO).expect("valid");
        let known = plane.status(Timestamp::ZERO);
        let problems = ["shop: deployments.apps \"shop\" not found".to_owned()];
        let mut report = Report {
            status: &known[0],
            acts: false,
            problems: &problems,
        };
        let first = status(
            &verdict(None),
            Some(&report),
            &ResourceStatus::default(),
            "10:00",
        );
        assert_eq!(holds(&first, "Accepted").status, "True");
        assert_eq!(holds(&first, "Observed").reason, "NoObservation");
        let working = holds(&first, "Working");
        assert!(working.status == "False" && working.message.contains("not found"));
        report.problems = &[];
        let second = status(
            &verdict(Some("spec.target: no")),
            Some(&report),
            &first,
            "10:05",
        );
        assert_eq!(holds(&second, "Working").last_transition_time, "10:05");
        assert_eq!(holds(&second, "Acting").last_transition_time, "10:00");
        let accepted = holds(&second, "Accepted");
        assert_eq!(
            (accepted.status.as_str(), accepted.observed_generation),
            ("False", Some(3))
        );
        assert!(accepted.message.contains("spec.target"));
    }

    #[test]
    fn rates_change_only_when_they_change_much() {
        assert_eq!(
            (rounded(312.4), rounded(9.87), rounded(0.123)),
            (310.0, 9.9, 0.1)
        );
        assert_eq!((rounded(0.0), rounded(f64::NAN)), (0.0, 0.0));
    }
}
