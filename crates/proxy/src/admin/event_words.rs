//! What an event of the engine says, in one sentence: the same on the page, in `tidegate top` and
//! in `tidegate ctl events`.

use tidegate_sentry::{Cause, ClassId, Event, PhaseName, ReplicaId, Standing};

/// The sentence; nothing for events that are figures.
pub(super) fn words(
    event: &Event,
    url: impl Fn(ReplicaId) -> String,
    class: impl Fn(ClassId) -> String,
) -> Option<String> {
    Some(match *event {
        Event::Overload {
            on: true,
            offered_per_second: offered,
            drain_per_second: capacity,
            ..
        } => {
            let (offered, capacity) = (rate(offered), rate(capacity));
            format!("overload began: {offered}/s arrive, {capacity}/s can be served")
        }
        Event::Overload { .. } => "overload ended".to_owned(),
        Event::Window {
            replica,
            from,
            to,
            cause,
            ..
        } => {
            let (url, why) = (url(replica), because(cause));
            format!("window of {url}: {from} → {to}, because {why}")
        }
        Event::Phase {
            replica, to, cause, ..
        } => {
            let (url, now, why) = (url(replica), phase(to), because(cause));
            format!("{url}: {now}, because {why}")
        }
        Event::Step {
            controller,
            setpoint,
            measured,
            output,
            ..
        } => format!(
            "{controller} measured {} where {} is wanted; its command is now {}",
            figure(measured),
            figure(setpoint),
            figure(output)
        ),
        Event::Mode { from, to, .. } => format!("mode {} → {}", from.as_str(), to.as_str()),
        Event::Health { replica, up, .. } => {
            let now = if up {
                "gets requests again"
            } else {
                "gets no requests"
            };
            format!("{} {now}", url(replica))
        }
        Event::Ejected {
            replica,
            on,
            seconds,
            others_seconds,
            ..
        } => {
            let now = if on { "is ejected" } else { "is back" };
            let (its, others) = (millis(seconds), millis(others_seconds));
            format!(
                "{} {now}: a request takes {its} there, {others} elsewhere",
                url(replica)
            )
        }
        Event::Standing {
            replica, standing, ..
        } => format!("{} {}", url(replica), behaves(standing)),
        Event::Handover { refusing: true, .. } => {
            "leaving optional content out is not enough: requests are shed as well".to_owned()
        }
        Event::Handover { .. } => {
            "leaving optional content out is enough: no request is shed".to_owned()
        }
        Event::Target {
            class: of,
            seconds,
            offered_per_second: offered,
            ..
        } => {
            let (class, target, offered) = (class(of), millis(seconds), rate(offered));
            format!("target of class {class} is {target}, since {offered}/s arrive")
        }
        Event::Policing { kind, reason, .. } => {
            let how = match kind {
                "threshold" => "by the share of each class that fits",
                _ => "one by one",
            };
            let why = match reason {
                "configured" => "the configuration says so",
                "cpu" => "the proxy is short of CPU",
                _ => "the proxy has CPU to spare",
            };
            format!("requests are judged {how}, because {why}")
        }
        Event::Switch { name, on, .. } => {
            let now = if on { "on" } else { "off" };
            format!("{} {now}", name.replace('_', " "))
        }
        _ => return None,
    })
}

/// The rest of a sentence that ends in "because".
fn because(cause: Cause) -> &'static str {
    match cause {
        Cause::RequestsWait => "requests wait for the first time",
        Cause::BaseSeen => "its service time was seen before any request waited",
        Cause::SlowStart => "each completion makes room for two requests in slow start",
        Cause::Fast => "it is so fast that a larger window delays no request",
        Cause::FirstWindowEnough => "the first window is enough to begin with",
        Cause::Wide => "it serves more requests at once than the first window holds",
        Cause::NoCrowd => "requests hold each other up too little for this to be its capacity",
        Cause::Crowd => "requests hold each other up, so this is its capacity",
        Cause::AtBound => "the configuration allows no other window",
        Cause::Outgrown => "a larger window did far more than was taken for its capacity",
        Cause::BelowKnee => "the window is below the knee",
        Cause::AboveKnee => "the window is far above the knee, and no request waits",
        Cause::AdmittedAbandon => "clients leave while the replica works for them",
        Cause::TryLarger => "a larger window is tried",
        Cause::TrySmaller => "a smaller window is tried",
        Cause::CheckGain => "it is checked whether the larger window brought the gain",
        Cause::Gain => "a larger window brings more throughput",
        Cause::NoGain => "a larger window brought no more throughput",
        Cause::NoLoss => "a smaller window brought as much throughput",
        Cause::Loss => "a smaller window cost throughput",
        Cause::LoadGone => "no request waits any longer, so nothing more can be seen",
        Cause::Bounds => "the configuration, or the fleet, allows no other window",
        Cause::Resumed => "it was found before a restart",
        Cause::Leader => "the proxy of the fleet that searches has found it",
        _ => "of what was measured",
    }
}

fn phase(name: PhaseName) -> &'static str {
    match name {
        PhaseName::Idle => "no request has waited for it yet",
        PhaseName::SlowStart => "its first window grows",
        PhaseName::Searching => "its capacity is being searched",
        PhaseName::Settled => "its capacity is found",
    }
}

fn behaves(standing: Standing) -> &'static str {
    match standing {
        Standing::Good => "behaves like the others",
        Standing::Suspect => "is much slower than the others and gets one request at a time",
        Standing::Silent => "holds requests and answers none, so it gets none",
        Standing::Returning => "behaves again and gets more bit by bit",
        _ => "behaves differently",
    }
}

fn rate(per_second: f64) -> String {
    if per_second < 9.95 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

fn millis(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

/// Three digits: what a controller measures may be seconds, requests or a share.
fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "nothing".to_owned(),
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::Timestamp;

    fn said(event: &Event) -> String {
        let url = |id: ReplicaId| format!("http://r{}", id.0);
        words(event, url, |_| "gold".to_owned()).expect("it has words")
    }

    #[test]
    fn causes_are_sentences_and_no_words_of_the_code() {
        let at = Timestamp::ZERO;
        let window = said(&Event::Window {
            at,
            replica: ReplicaId(1),
            from: 4,
            to: 2,
            cause: Cause::TrySmaller,
        });
        assert_eq!(
            window,
            "window of http://r1: 4 → 2, because a smaller window is tried"
        );
        let phase = said(&Event::Phase {
            at,
            replica: ReplicaId(0),
            from: PhaseName::Searching,
            to: PhaseName::Settled,
            cause: Cause::Crowd,
        });
        assert!(phase.starts_with("http://r0: its capacity is found, because requests"));
        let switch = said(&Event::Switch {
            at,
            name: "kill_switch",
            on: true,
        });
        assert_eq!(switch, "kill switch on");
        for text in [window, phase, switch] {
            assert!(!text.contains('_'), "{text}");
        }
    }
}
