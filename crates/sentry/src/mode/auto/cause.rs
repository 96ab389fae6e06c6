//! Why the search of mode `auto` changed a window or its phase.

#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::Serialize;

/// The causes, each with its word.
macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
        /// Why the search of mode `auto` changed a window or its phase.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum Cause {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Cause {
            /// The word in events and goldens.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }

        /// The rows of the table in docs/auto.md.
        #[cfg(test)]
        fn rows() -> Vec<String> {
            vec![$(format!("| `{}` | {} |", $word, concat!($($doc),+).trim())),+]
        }
    };
}

causes! {
    /// Requests wait for the first time.
    RequestsWait = "requests_wait",
    /// The service time without a crowd was seen before any request waited.
    BaseSeen = "base_seen",
    /// Slow start: each completion makes room for two requests.
    SlowStart = "slow_start",
    /// The service is so fast that a larger window delays no request.
    Fast = "fast",
    /// Slow start found a crowd, long service times or clients that leave: the first window is
    /// enough to begin with.
    FirstWindowEnough = "first_window_enough",
    /// Slow start found a crowd in a service that is wider than the first window.
    Wide = "wide",
    /// Requests hold each other up too little for throughput to be capacity.
    NoCrowd = "no_crowd",
    /// Requests hold each other up, so throughput is capacity.
    Crowd = "crowd",
    /// The window is as large, or as small, as the configuration allows.
    AtBound = "at_bound",
    /// Far more was done with a larger window than was taken for capacity.
    Outgrown = "outgrown",
    /// The window is below the knee.
    BelowKnee = "below_knee",
    /// The window is far above the knee, and no request waits.
    AboveKnee = "above_knee",
    /// Clients abandon inside the replica.
    AdmittedAbandon = "admitted_abandon",
    /// A trial of a larger window begins.
    TryLarger = "try_larger",
    /// A trial of a smaller window begins.
    TrySmaller = "try_smaller",
    /// A larger window brought more throughput: is it the window, or has capacity returned?
    CheckGain = "check_gain",
    /// A larger window brings more throughput.
    Gain = "gain",
    /// A larger window brought no more throughput.
    NoGain = "no_gain",
    /// A smaller window brought as much throughput.
    NoLoss = "no_loss",
    /// A smaller window cost throughput.
    Loss = "loss",
    /// No request waits any longer, so nothing more can be seen.
    LoadGone = "load_gone",
    /// The proxy of the fleet that searches has found it.
    Leader = "leader",
    /// The configuration, or the fleet, allows no other window.
    Bounds = "bounds",
    /// The window was found before a restart (`state_file`).
    Resumed = "resumed",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_has_every_cause() {
        let page = include_str!("../../../../../docs/auto.md");
        let is_row = |line: &&str| line.starts_with("| `");
        let missing: Vec<_> = rows()
            .into_iter()
            .filter(|row| !page.lines().any(|line| line == row))
            .collect();
        assert!(missing.is_empty(), "docs/auto.md lacks {missing:#?}");
        let heading = "| cause | meaning |";
        let table = page.split(heading).nth(1).unwrap_or_default();
        let causes = table.lines().skip(2).take_while(is_row).count();
        assert_eq!(
            causes,
            rows().len(),
            "docs/auto.md has a cause that is none"
        );
    }
}
