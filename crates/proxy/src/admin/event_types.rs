//! Every type of event, with what it means and what to do: validation, history and the generated
//! documentation (`docs/signals.md`) come from this table.

/// One type of event.
#[derive(Debug, PartialEq, Eq)]
pub struct EventType {
    /// The name in the stream.
    pub name: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What an operator does about it.
    pub remedy: &'static str,
    /// Whether the history keeps it. Figures that come every second have the metrics instead.
    pub kept: bool,
}

const fn kept(name: &'static str, meaning: &'static str, remedy: &'static str) -> EventType {
    EventType {
        name,
        meaning,
        remedy,
        kept: true,
    }
}

const fn live(name: &'static str, meaning: &'static str) -> EventType {
    EventType {
        name,
        meaning,
        remedy: "nothing; for charts",
        kept: false,
    }
}

/// Every type.
pub static ALL: [EventType; 19] = [
    kept(
        "overload",
        "More arrives than can be served, or no longer; with both rates.",
        "add replicas, or wait: what is beyond the capacity is shed by class",
    ),
    kept(
        "window",
        "A replica's concurrency limit changed, from, to and cause.",
        "nothing; the limits are found by measurement",
    ),
    kept(
        "phase",
        "The search for a replica's concurrency limit entered another phase (mode `auto`), and why.",
        "nothing; while `searching`, the capacity is unknown and nothing is shed on a forecast",
    ),
    kept(
        "step",
        "A controller took a step: setpoint, measured value, command and its terms.",
        "compare setpoint and measured value; see docs/auto.md and `tidegate design`",
    ),
    kept(
        "mode",
        "The mode changed.",
        "`tidegate ctl reload` goes back to the file",
    ),
    kept(
        "health",
        "A replica gets requests again, or none.",
        "see the replica's own log; the status says what its checks met with",
    ),
    kept(
        "ejected",
        "A replica was ejected because it is far slower than the others, or is back.",
        "look at the replica: disk, garbage collection, a noisy neighbour",
    ),
    kept(
        "standing",
        "A replica behaves differently from the others, or like them again (mode `ilac`).",
        "look at the replica",
    ),
    kept(
        "handover",
        "Leaving optional content out is not enough and requests are shed, or no longer.",
        "add replicas, or make more content optional",
    ),
    kept(
        "target",
        "A class's target followed the arrival rate, by its table of targets.",
        "nothing; `targets` of the class says so",
    ),
    kept(
        "policing",
        "Requests are judged in another way (mode `sentry`): one by one or by a threshold.",
        "nothing; with reason `cpu` give the proxy more cores",
    ),
    kept(
        "switch",
        "Kill switch, dry run or draining was moved.",
        "move it back when the reason is gone",
    ),
    kept(
        "peer_joined",
        "Another proxy of the fleet reports; windows, guarantees and quotas are shared with it.",
        "nothing",
    ),
    kept(
        "peer_lost",
        "A proxy of the fleet left, or reports no longer; the others share what it had.",
        "if it was not stopped on purpose, see its own log",
    ),
    kept(
        "shed",
        "A sample of refusals: class, reason, measured value and limit. At most ten a second.",
        "the table of shed reasons says what each one means",
    ),
    kept(
        "notice",
        "A line of the operator's log.",
        "the line names cause and remedy",
    ),
    live(
        "forecast",
        "What mode `auto` expects of the next requests; at most one a second, and none while idle.",
    ),
    live("measured", "Counts and times of the last second."),
    live("classes", "Figures of the last seconds by class."),
];

/// The type of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static EventType> {
    ALL.iter().find(|kind| kind.name == name)
}
