//! Why a request was not served where the engine did not refuse it, in words: the words of the
//! access log with what they mean and what to do. `/api/requests` and `docs/signals.md` have them
//! from here.

use crate::metrics::Outcome;

/// A word of the access log.
#[derive(Debug)]
pub(super) struct EndingReason {
    pub(super) outcome: Outcome,
    pub(super) word: &'static str,
    pub(super) meaning: &'static str,
    pub(super) remedy: &'static str,
}

const fn reason(
    outcome: Outcome,
    word: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> EndingReason {
    EndingReason {
        outcome,
        word,
        meaning,
        remedy,
    }
}

/// Every word, by ending.
pub(super) static ALL: [EndingReason; 26] = [
    reason(
        Outcome::Shed,
        "uploads",
        "Too many bodies that do not fit into memory were on their way.",
        "raise `limits.upload_memory`, or keep uploads smaller",
    ),
    reason(
        Outcome::Shed,
        "told-to-wait",
        "The channel had told its client to wait, and it did not.",
        "mend the client, or let it send through `tidegate client`",
    ),
    reason(
        Outcome::Shed,
        "banned",
        "Its client did not wait when it was told to, too often.",
        "`tidegate ctl channel` shows offenders and pardons them",
    ),
    reason(
        Outcome::Shed,
        "again",
        "The same item had come just before.",
        "nothing; the client repeats it later",
    ),
    reason(
        Outcome::Shed,
        "ahead",
        "The item's time lies in the future.",
        "set the client's clock",
    ),
    reason(
        Outcome::Shed,
        "stranger",
        "Only members of the channel may send this.",
        "give the client a key of `channel.members`",
    ),
    reason(
        Outcome::Shed,
        "unproven",
        "Its stamp is not for this request, or not genuine.",
        "mend the client, or look who imitates it",
    ),
    reason(
        Outcome::Shed,
        "conflict",
        "The number of the item had been used for another one.",
        "mend the client: a number stands for one content",
    ),
    reason(
        Outcome::Shed,
        "too-large",
        "The item is larger than what is read before it is passed on.",
        "raise `channel.item_bytes`",
    ),
    reason(
        Outcome::Shed,
        "late",
        "The item came after its deadline.",
        "nothing, or prolong the deadline by `tidegate ctl channel`",
    ),
    reason(
        Outcome::Rejected,
        "malformed",
        "Its bytes are not HTTP.",
        "mend the client",
    ),
    reason(
        Outcome::Rejected,
        "invalid",
        "It is HTTP, but no request that is passed on: see the answer's text.",
        "mend the client",
    ),
    reason(
        Outcome::Rejected,
        "unrouted",
        "No application has its host and path.",
        "add them to `hosts` or `paths` of an application",
    ),
    reason(
        Outcome::Rejected,
        "forbidden",
        "The network of its client is not served.",
        "see `edge.allow` and `edge.deny`",
    ),
    reason(
        Outcome::Rejected,
        "redirect",
        "It was sent to another address.",
        "nothing; `edge.https_redirect` says so",
    ),
    reason(
        Outcome::Rejected,
        "maintenance",
        "The application was closed for maintenance.",
        "`tidegate ctl maintenance off`",
    ),
    reason(
        Outcome::Rejected,
        "quota",
        "A quota was used up.",
        "raise the quota in `edge.quotas`, or let the client ask less",
    ),
    reason(
        Outcome::Rejected,
        "last-hop",
        "It asked what is on the way, and was to go no further than here.",
        "nothing",
    ),
    reason(
        Outcome::Rejected,
        "resets",
        "Its client cancels requests as fast as it makes them.",
        "mend the client, or shut it out",
    ),
    reason(
        Outcome::Failed,
        "connect",
        "No connection to the replica could be opened.",
        "start the replica, or mend its address",
    ),
    reason(
        Outcome::Failed,
        "reset",
        "The replica closed the connection before its answer was complete.",
        "see the replica's own log; its idle timeout has to be longer than `timeouts.upstream_idle`",
    ),
    reason(
        Outcome::Failed,
        "timeout",
        "The replica did not answer in time.",
        "look at the replica, or raise `timeouts.head`",
    ),
    reason(
        Outcome::Failed,
        "malformed",
        "The replica's answer was not valid HTTP.",
        "see the replica's own log",
    ),
    reason(
        Outcome::Failed,
        "deadline",
        "There was no answer before the request's deadline.",
        "look at the replica, or raise `timeouts.request`",
    ),
    reason(
        Outcome::Failed,
        "response-too-large",
        "The replica's answer is larger than allowed.",
        "raise `edge.response_bytes`, or make the answer smaller",
    ),
    reason(
        Outcome::Abandoned,
        "abandoned",
        "Its client left before the answer was complete.",
        "many of them: answers come later than clients wait; lower the target",
    ),
];

/// What a word means for an ending, and what to do about it.
pub(super) fn meaning(outcome: Outcome, word: &str) -> (&'static str, &'static str) {
    let found = ALL
        .iter()
        .find(|it| it.outcome == outcome && it.word == word);
    found.map_or(("It was not served.", "see the access log"), |it| {
        (it.meaning, it.remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Held;
    use crate::fault::{Fault, Invalid, Overdrawn, QuotaBound};
    use crate::metrics::UpstreamFailure;
    use std::time::Duration;

    /// One of each kind of fault that is no refusal of the engine.
    fn faults() -> Vec<Fault> {
        let second = Duration::from_secs(1);
        let held = [
            Held::Throttled(second),
            Held::Banned(second),
            Held::Again(second),
            Held::Ahead(second),
            Held::Stranger,
            Held::Unproven,
            Held::Conflict,
            Held::TooLarge,
        ];
        let quota = Overdrawn {
            wait: second,
            quota: "a".into(),
            bound: QuotaBound::Concurrency(1),
        };
        let mut all = vec![
            Fault::Invalid(Invalid::Host),
            Fault::Unrouted,
            Fault::Forbidden,
            Fault::Quota(quota),
            Fault::ResponseTooLarge,
            Fault::LastHop,
            Fault::TooManyUploads,
            Fault::TooManyResets,
            Fault::Deadline,
            Fault::Departed,
        ];
        all.extend(held.map(Fault::Held));
        all.extend(UpstreamFailure::ALL.map(Fault::Upstream));
        all
    }

    #[test]
    fn every_fault_is_in_the_table_once() {
        for fault in faults() {
            let (outcome, word) = (fault.outcome(), fault.as_str());
            let same = |it: &&EndingReason| it.outcome == outcome && it.word == word;
            assert_eq!(ALL.iter().filter(same).count(), 1, "{outcome:?} {word}");
        }
        for failure in UpstreamFailure::ALL {
            let (meaning, _) = meaning(Outcome::Failed, failure.as_str());
            assert!(meaning.contains("eplica"), "{meaning}");
        }
    }
}
