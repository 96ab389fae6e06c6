//! The state of one application in one sentence, the same on the page, in the terminal and in
//! `/api/status`.

use std::time::SystemTime;

use super::recent::{Rates, Recent};
use crate::wall_clock::in_words;

/// Refusals per second of a class below which it counts as untouched.
const SHED_MIN_PER_SECOND: f64 = 0.05;

/// What the sentence is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) now: SystemTime,
    pub(super) overloaded: bool,
    pub(super) overload_since: SystemTime,
    pub(super) kill_switch_since: Option<SystemTime>,
    pub(super) draining_since: Option<SystemTime>,
    pub(super) dry_run_since: Option<SystemTime>,
    pub(super) replicas_up: usize,
    pub(super) replicas: usize,
    pub(super) capacity_per_second: Option<f64>,
    pub(super) recent: &'a Recent,
    /// Names of the classes, the most important first.
    pub(super) classes: &'a [String],
}

/// The sentence.
pub(super) fn headline(of: &Situation<'_>) -> String {
    let since = |at| in_words(at, of.now);
    if let Some(at) = of.draining_since {
        return format!(
            "Draining since {}: every new request is refused.",
            since(at)
        );
    }
    if of.replicas_up == 0 {
        return format!(
            "None of the {} replicas is up: every request is shed.",
            of.replicas
        );
    }
    let state = load(of);
    match (of.kill_switch_since, of.dry_run_since) {
        (Some(at), _) => format!(
            "The kill switch is on since {}: everything is admitted. {state}.",
            since(at)
        ),
        (None, Some(at)) => format!(
            "Dry run since {}: nothing is shed, {} would be. {state}.",
            since(at),
            rate(of.recent.total.would_shed_per_second)
        ),
        (None, None) => format!("{state}{}.", sheds(of)),
    }
}

fn load(of: &Situation<'_>) -> String {
    let total = &of.recent.total;
    let arrive = rate(total.offered_per_second);
    match (of.overloaded, of.capacity_per_second) {
        (true, capacity) => format!(
            "Overloaded since {}: {arrive} arrive, {} can be served",
            in_words(of.overload_since, of.now),
            capacity.map_or("an unknown rate".to_owned(), rate)
        ),
        (false, _) if total.offered_per_second <= 0.0 => {
            "Idle: no request arrived in the last seconds".to_owned()
        }
        (false, Some(capacity)) => format!(
            "Not overloaded: {arrive} arrive, {} can be served{}",
            rate(capacity.max(total.served_per_second)),
            response(total)
        ),
        (false, None) => format!(
            "Not overloaded: {arrive} arrive; the capacity is not known yet{}",
            response(total)
        ),
    }
}

fn response(total: &Rates) -> String {
    total
        .response_p99_seconds
        .map_or_else(String::new, |seconds| {
            format!("; 99 of 100 answers take less than {:.0} ms", seconds * 1e3)
        })
}

/// Which classes are shed and which are not.
fn sheds(of: &Situation<'_>) -> String {
    let shed_of = |name: &String| {
        let rates = of.recent.classes.get(name);
        rates.map_or(0.0, |rates| rates.shed_per_second)
    };
    let (shed, untouched): (Vec<&String>, Vec<&String>) = of
        .classes
        .iter()
        .partition(|name| shed_of(name) >= SHED_MIN_PER_SECOND);
    let list = |names: &[&String]| {
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        names.join(", ")
    };
    match (shed.as_slice(), untouched.as_slice()) {
        ([], _) if of.overloaded => "; nothing is shed yet".to_owned(),
        ([], _) => String::new(),
        ([_], []) => format!("; {} shed", rate(of.recent.total.shed_per_second)),
        (shed, []) => {
            let each = |name: &&String| format!("{} {name}", rate(shed_of(name)));
            let each: Vec<_> = shed.iter().rev().map(each).collect();
            format!("; shed are {}", each.join(", "))
        }
        (shed, untouched) => format!(
            "; {} shed of {}, {} untouched",
            rate(of.recent.total.shed_per_second),
            list(shed),
            list(untouched)
        ),
    }
}

/// `148/s`, with a digit after the point below ten.
fn rate(per_second: f64) -> String {
    if per_second < 9.95 {
        format!("{per_second:.1}/s")
    } else {
        format!("{per_second:.0}/s")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rates(offered: f64, shed: f64) -> Rates {
        Rates {
            offered_per_second: offered,
            shed_per_second: shed,
            ..Rates::default()
        }
    }

    fn said(change: impl FnOnce(&mut Situation<'_>), shed: [f64; 2]) -> String {
        let mut recent = Recent {
            total: rates(312.0, shed[0] + shed[1]),
            ..Recent::default()
        };
        let classes = ["gold".to_owned(), "bronze".to_owned()];
        for (name, shed) in classes.iter().zip(shed) {
            recent.classes.insert(name.clone(), rates(1.0, shed));
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(21 * 3600 + 14 * 60);
        let mut situation = Situation {
            now: at,
            overloaded: true,
            overload_since: at,
            kill_switch_since: None,
            draining_since: None,
            dry_run_since: None,
            replicas_up: 1,
            replicas: 2,
            capacity_per_second: Some(148.2),
            recent: &recent,
            classes: &classes,
        };
        change(&mut situation);
        headline(&situation)
    }

    #[test]
    fn overload_is_told_with_its_start_its_rates_and_its_classes() {
        assert_eq!(
            said(|_| {}, [0.0, 164.0]),
            "Overloaded since 21:14 UTC: 312/s arrive, 148/s can be served; 164/s shed of bronze, \
             gold untouched."
        );
        assert_eq!(
            said(|_| {}, [2.0, 164.0]),
            "Overloaded since 21:14 UTC: 312/s arrive, 148/s can be served; shed are 164/s bronze, \
             2.0/s gold."
        );
        assert_eq!(
            said(|of| of.overloaded = false, [0.0, 0.0]),
            "Not overloaded: 312/s arrive, 148/s can be served."
        );
    }

    #[test]
    fn states_that_an_operator_made_come_first() {
        let at = SystemTime::UNIX_EPOCH;
        assert!(
            said(|of| of.kill_switch_since = Some(at), [0.0; 2]).starts_with("The kill switch")
        );
        assert!(said(|of| of.dry_run_since = Some(at), [0.0; 2]).starts_with("Dry run since"));
        assert!(said(|of| of.draining_since = Some(at), [0.0; 2]).starts_with("Draining since"));
        assert!(said(|of| of.replicas_up = 0, [0.0; 2]).starts_with("None of the 2 replicas"));
    }
}
