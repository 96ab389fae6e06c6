//! Every shed reason in words, for people: the generated documentation, the event stream and the
//! page have them from here.

use tidegate_sentry::ShedReason;

/// What a reason means, and what an operator does about it.
#[must_use]
pub fn meaning(reason: ShedReason) -> (&'static str, &'static str) {
    match reason {
        ShedReason::Predicted => (
            "With the requests ahead of it, it would not be answered within its target or deadline.",
            "add replicas, raise the target, or let the class be shed",
        ),
        ShedReason::Expired => (
            "It waited so long that it can no longer be answered within its target or deadline.",
            "as for `predicted`; many of them mean that the capacity fell suddenly",
        ),
        ShedReason::Rate => (
            "The rate that the mode admits is used up.",
            "raise the rate (`static.rate`), or look at the controller's setpoint",
        ),
        ShedReason::Blocked => (
            "The mode admits a share of the requests, and this one was not in it.",
            "look at the controller's setpoint and what it measures",
        ),
        ShedReason::Window => (
            "As many requests are inside as the mode allows.",
            "look at the controller's setpoint and what it measures",
        ),
        ShedReason::Policed => (
            "What is in service and its own cost leave it no time (mode `sentry`).",
            "add replicas, or raise the class's target",
        ),
        ShedReason::Threshold => (
            "The share of its class that fits is used up (mode `sentry`).",
            "add replicas, or move requests to a more important class",
        ),
        ShedReason::Costly => (
            "In overload, its path costs far more than others, so it counts as many requests.",
            "make the path cheaper, give it a class of its own, or `auto.path_costs = false`",
        ),
        ShedReason::CostShare => (
            "In overload, the share of requests that cost as much is used up (`auto.cost_fairness`).",
            "make the path cheaper, give it a class of its own, or lower `auto.cost_fairness`",
        ),
        ShedReason::QueueFull => (
            "As many requests wait as `queue.max_requests` allows.",
            "raise it, if waiting that long makes sense",
        ),
        ShedReason::QueueBytes => (
            "Requests that wait hold as many bytes as `queue.max_bytes` allows.",
            "raise it, or keep uploads smaller",
        ),
        ShedReason::NoReplica => (
            "No replica is up.",
            "start the replicas; `tidegate ctl replicas` says what their checks met with",
        ),
        ShedReason::Draining => ("The operator drains the proxy.", "`tidegate ctl drain off`"),
    }
}

/// One refusal in words: what was compared with what.
#[must_use]
pub fn words(reason: ShedReason, measured: f64, limit: f64) -> String {
    let figures = match reason.unit() {
        "" => String::new(),
        "seconds" => format!(
            " ({:.0} ms, the limit was {:.0} ms)",
            measured * 1e3,
            limit * 1e3
        ),
        unit => format!(
            " ({} {unit}, the limit was {})",
            short(measured),
            short(limit)
        ),
    };
    let (meaning, _) = meaning(reason);
    format!("{}{figures}.", meaning.trim_end_matches('.'))
}

fn short(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_told_with_what_was_compared() {
        let said = words(ShedReason::Predicted, 12.0, 8.0);
        assert!(
            said.ends_with("(12 requests ahead, the limit was 8)."),
            "{said}"
        );
        let said = words(ShedReason::Expired, 0.61, 0.5);
        assert!(said.ends_with("(610 ms, the limit was 500 ms)."), "{said}");
        assert_eq!(words(ShedReason::NoReplica, 0.0, 0.0), "No replica is up.");
    }
}
