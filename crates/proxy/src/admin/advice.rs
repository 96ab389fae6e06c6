//! What would help while requests are shed, from the figures of the last seconds: the same
//! sentences on the page, in the terminal and in `/api/status`.

use tidegate_sentry::{ModeName, ShedReason};

use super::reasons;
use super::recent::Rates;

/// Refusals per second below which there is nothing to advise.
const SHED_MIN_PER_SECOND: f64 = 0.05;
/// Share of the refusals that a reason must have to be worth a sentence.
const REASON_SHARE_MIN: f64 = 0.1;
/// A replica is slow when its median service time exceeds that of the others by this factor.
const SLOW_FACTOR: f64 = 1.5;

/// One replica, as far as advice goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replica<'a> {
    pub(super) url: &'a str,
    pub(super) state: &'static str,
    pub(super) service_p50_seconds: Option<f64>,
}

/// What the sentences are made of.
#[derive(Debug)]
pub(super) struct Situation<'a> {
    pub(super) capacity_per_second: Option<f64>,
    pub(super) total: &'a Rates,
    pub(super) classes: usize,
    pub(super) mode: ModeName,
    pub(super) replicas: Vec<Replica<'a>>,
}

/// The sentences, the most useful first. A number of replicas by proportion is left out where a
/// forecast has one.
pub(super) fn of(situation: &Situation<'_>, replicas_known: bool) -> Vec<String> {
    let total = situation.total;
    if total.shed_per_second.max(total.would_shed_per_second) < SHED_MIN_PER_SECOND {
        return Vec::new();
    }
    let mut all = Vec::new();
    all.extend(idle_replicas(situation));
    all.extend(slow_replica(situation));
    all.extend(more_replicas(situation).filter(|_| !replicas_known));
    all.extend(reasons_of(total));
    if situation.classes == 1 && situation.mode == ModeName::Auto {
        all.push(ONE_CLASS.to_owned());
    }
    all
}

const ONE_CLASS: &str = "All requests are of one class, so any of them is shed. Name the important \
    ones with `[[classify]]` and `protect.classes`, and the others are shed first.";

/// Replicas that could serve and do not.
fn idle_replicas(of: &Situation<'_>) -> Option<String> {
    let idle: Vec<_> = of.replicas.iter().filter(|it| it.state != "up").collect();
    let list: Vec<_> = idle
        .iter()
        .map(|it| format!("{} ({})", it.url, it.state))
        .collect();
    (!idle.is_empty()).then(|| {
        let all = of.replicas.len();
        format!(
            "Bring back {}: {} of {all} replicas do not carry their part.",
            list.join(", "),
            idle.len()
        )
    })
}

/// The median of the others' service times, where the replica's own exceeds it by far.
pub(super) fn slower_than(
    own: Option<f64>,
    others: impl Iterator<Item = Option<f64>>,
) -> Option<f64> {
    let mut others: Vec<f64> = others.flatten().collect();
    others.sort_by(f64::total_cmp);
    let &median = others.get(others.len().checked_sub(1)? / 2)?;
    (own? > SLOW_FACTOR * median).then_some(median)
}

/// The replica whose requests take far longer than those of the others.
fn slow_replica(of: &Situation<'_>) -> Option<String> {
    let known = |it: &Replica<'_>| it.service_p50_seconds;
    let all = of.replicas.iter().enumerate();
    let (at, replica) = all.max_by(|a, b| {
        let (a, b) = (known(a.1).unwrap_or(0.0), known(b.1).unwrap_or(0.0));
        a.total_cmp(&b)
    })?;
    let others = of.replicas.iter().enumerate();
    let others = others.filter(|(other, _)| *other != at);
    let median = slower_than(known(replica), others.map(|(_, it)| known(it)))?;
    Some(format!(
        "Look at {}: half of its requests take more than {:.0} ms, those of the others {:.0} ms.",
        replica.url,
        known(replica)? * 1e3,
        median * 1e3
    ))
}

/// How many more replicas like those that are up would serve what arrives.
fn more_replicas(of: &Situation<'_>) -> Option<String> {
    let capacity = of.capacity_per_second.filter(|&rate| rate > 0.0)?;
    let up = of.replicas.iter().filter(|it| it.state == "up").count();
    let offered = of.total.offered_per_second;
    let wanted = (up as f64 * offered / capacity).ceil();
    (up > 0 && wanted > up as f64).then(|| {
        let more = wanted - up as f64;
        let replicas = if more > 1.0 { "replicas" } else { "replica" };
        format!(
            "{more} more {replicas} like the {up} there are would serve all: {offered:.0}/s arrive, \
             {capacity:.0}/s are served."
        )
    })
}

/// The remedies of the commonest reasons.
fn reasons_of(total: &Rates) -> Vec<String> {
    let by_reason = if total.shed_per_second < SHED_MIN_PER_SECOND {
        &total.would_shed_per_second_by_reason
    } else {
        &total.shed_per_second_by_reason
    };
    let sum: f64 = by_reason.values().sum();
    let mut common: Vec<_> = by_reason
        .iter()
        .filter(|(_, rate)| **rate >= REASON_SHARE_MIN * sum)
        .collect();
    common.sort_by(|a, b| b.1.total_cmp(a.1));
    let sentence = |(name, rate): (&&'static str, &f64)| {
        let mut reasons = ShedReason::ALL.into_iter();
        let reason = reasons.find(|reason| reason.as_str() == *name)?;
        let (meaning, remedy) = reasons::meaning(reason);
        let share = 100.0 * rate / sum;
        Some(format!(
            "{share:.0} % of the refusals are `{name}`: {meaning} What helps: {remedy}."
        ))
    };
    common.into_iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica<'a>(url: &'a str, state: &'static str, seconds: f64) -> Replica<'a> {
        Replica {
            url,
            state,
            service_p50_seconds: Some(seconds),
        }
    }

    fn overloaded() -> Rates {
        Rates {
            offered_per_second: 250.0,
            shed_per_second: 150.0,
            shed_per_second_by_reason: [("predicted", 148.0), ("expired", 2.0)].into(),
            ..Rates::default()
        }
    }

    fn given(total: &Rates, replicas: Vec<Replica<'_>>) -> Vec<String> {
        let situation = Situation {
            capacity_per_second: Some(100.0),
            total,
            classes: 2,
            mode: ModeName::Auto,
            replicas,
        };
        let all = of(&situation, false);
        // A forecast takes the place of a proportion, and of nothing else.
        let rest = of(&situation, true);
        assert!(
            all.iter()
                .filter(|it| !it.contains(" more replica"))
                .eq(&rest),
            "{all:?}"
        );
        all
    }

    #[test]
    fn overload_is_answered_with_a_number_of_replicas_and_the_commonest_reason() {
        let replicas = vec![replica("a", "up", 0.04), replica("b", "up", 0.04)];
        let said = given(&overloaded(), replicas);
        assert!(said[0].starts_with("3 more replicas"), "{said:?}");
        assert!(said[1].starts_with("99 % of the refusals are `predicted`"));
        assert_eq!(said.len(), 2, "{said:?}");
    }

    #[test]
    fn replicas_that_do_not_serve_or_are_slow_are_named() {
        let replicas = vec![replica("a", "ejected", 0.3), replica("b", "up", 0.04)];
        let said = given(&overloaded(), replicas);
        assert!(said[0].contains("a (ejected)"), "{said:?}");
        assert!(said[1].starts_with("Look at a: "), "{said:?}");
    }

    #[test]
    fn advice_is_absent_while_nothing_is_shed() {
        assert!(given(&Rates::default(), vec![replica("a", "down", 1.0)]).is_empty());
    }
}
