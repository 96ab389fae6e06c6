//! Rules and numbers that can be changed.
//!
//! A rule is left out by setting the numbers that it goes by to where it never applies: a threshold
//! that nothing reaches, a pause without length. So the code of `auto` needs no switches.

use tidegate_sentry::ablation::{self, Changed, Constant};

const NEVER: f64 = f64::INFINITY;

/// Seconds without end that are still a duration.
const AGES: f64 = 1e9;

/// A rule: its name, the decision that describes it, and what leaves it out: names of numbers,
/// their parts, and values.
type Rule = (&'static str, &'static str, &'static [Set]);
type Set = (&'static str, &'static str, f64);

#[rustfmt::skip]
const RULES: &[Rule] = &[
    ("alike replicas looked at together", "0062", &[("COHORT_ALIKE", "", 0.0), ("COHORT_NO_MORE", "", 0.0)]),
    ("crowd ends slow start", "0061", &[("CROWD_BASES_FILLING", "", NEVER)]),
    ("room after a wide slow start", "0061", &[("SLOW_START_WIDE", "", NEVER)]),
    ("short queue is no reason to grow", "0061", &[("QUEUE_PRESSING_OF_TARGET", "", 0.0)]),
    ("crowd shows the capacity", "0056", &[("CROWD_BASES", "", NEVER)]),
    ("first trial of a smaller window", "0019", &[("TRIAL_DOWN_FIRST", "reference_seconds", NEVER)]),
    ("first trial of a larger window", "0014", &[("TRIAL_UP_FIRST", "reference_seconds", NEVER)]),
    ("later trial of a larger window", "0010", &[("TRIAL_UP", "reference_seconds", NEVER)]),
    ("trial of a smaller window without a knee", "0018", &[("TRIAL_DOWN", "reference_seconds", NEVER)]),
    ("trial of a smaller window down to the knee", "0018", &[("TRIAL_DOWN_TO_KNEE", "reference_seconds", NEVER)]),
    ("trial down to the knee where answers are late", "0018", &[("TRIAL_DOWN_FROM_LATE", "reference_seconds", NEVER)]),
    ("larger window only after a second of waiting", "0060", &[("TRIAL_UP_ONSET", "", 0.0)]),
    ("gain of a window that is never full", "0058", &[("TRIAL_BRINGS_MORE", "", NEVER)]),
    ("requests of the old window leave first", "0018", &[("LEAVING_UP", "", 0.0), ("LEAVING_DOWN", "", 0.0)]),
    ("refuted window is not tried again", "0018", &[("REFUTED", "", 0.0)]),
    ("base of trials is doubted", "0018", &[("SERVICE_TIME_DOUBTFUL_OF_TARGET", "", NEVER), ("SERVICE_TIME_DOUBTFUL_TAIL_OF_TARGET", "", NEVER)]),
    ("base is doubted by the slowest requests", "0126", &[("SERVICE_TIME_DOUBTFUL_TAIL_OF_TARGET", "", NEVER)]),
    ("doubts become rarer", "0018", &[("TRUST_MAX", "", 5.0)]),
    ("clear loss is believed at once", "0018", &[("THROUGHPUT_KEPT_CLEAR", "", 0.0)]),
    ("knee is not far beyond what was enough", "0018", &[("KNEE_PER_ENOUGH_MAX", "", NEVER)]),
    ("capacity that is outgrown is forgotten", "0058", &[("CAPACITY_OUTGROWN", "", NEVER)]),
    ("window of what is done in a moment", "0060", &[("WINDOW_MIN_SECONDS", "", 0.0)]),
    ("slowest requests bound the window", "0010", &[("SERVICE_TIME_TAIL_OF_TARGET", "", NEVER)]),
    ("long requests call for a smaller window", "0018", &[("WINDOW_OF_BOUND_EXCESS", "", NEVER)]),
    ("late answers are treated apart", "0018", &[("SERVICE_TIME_LATE_OF_TARGET", "", NEVER)]),
    ("no larger window where requests take long", "0019", &[("SERVICE_TIME_LONG_OF_TARGET", "", NEVER)]),
    ("no larger first window where requests take long", "0064", &[("SERVICE_TIME_LONG_FIRST_OF_TARGET", "", NEVER)]),
    ("throughput that lasts bounds the speed", "0056", &[("SPEED_Z", "", NEVER)]),
    ("base only where little is done", "0010", &[("PROFILE_CALM", "", NEVER)]),
    ("change of the throughput cuts its history", "0013", &[("CUT_Z", "", NEVER)]),
    ("dispersion of completions", "0013", &[("DISPERSION_MAX", "", 1.0), ("DISPERSION_UNKNOWN", "", 1.0)]),
    ("work that varies is no change", "0018", &[("DISPERSION_SHARING", "", NEVER)]),
    ("capacity needs time at full window", "0061", &[("CAPACITY_FIRST_SECONDS", "", 0.0)]),
    ("overdue requests give their slots", "0058", &[("OVERDUE_SECONDS_MIN", "", AGES), ("OVERDUE_SECONDS_MAX", "", AGES)]),
    ("most clients abandon", "0058", &[("LEAVING_MOST_OF_OFFERED", "", NEVER)]),
    ("admitted clients abandon", "0061", &[("ANSWERED_OF_ADMITTED", "", 0.0)]),
    ("patience follows what abandons", "0058", &[("PATIENCE_DOWN", "", 1.0)]),
    ("a target of waiting is enough where clients leave", "0014", &[("LEAVING_OF_OFFERED", "", NEVER)]),
    ("batches by gaps", "0110", &[("CLUMP_SHORT_SHARE", "", NEVER), ("CLUMP_VARIATION", "", NEVER)]),
    ("batches by counts", "0110", &[("ARRIVALS_GROUPS_MIN", "", AGES)]),
    ("excess of arrivals is an overload", "0053", &[("OVERLOAD_EXCESS", "z", NEVER)]),
    ("load without room for bursts", "0053", &[("LOAD_WITHOUT_ROOM", "z", NEVER)]),
    ("queue beyond any burst is an overload", "0053", &[("BURST_ONCE_IN_SECONDS", "", NEVER)]),
    ("calm for a while ends an overload", "0011", &[("QUIET_SECONDS", "", 0.0)]),
    ("short queue in overload", "0011", &[("QUEUE_IDLE", "", 0.0), ("QUEUE_BUSY_MAX", "", NEVER)]),
    ("nearly all are in time", "0053", &[("ANSWERED_LATER_OF_TARGET", "", NEVER)]),
    ("late requests let others pass", "0014", &[("YIELD_OF_TARGET_MIN", "", NEVER), ("YIELD_OF_TARGET_MIN_FIRST", "", NEVER)]),
    ("the same while capacity is unknown", "0062", &[("YIELD_OF_TARGET_MIN_FIRST", "", NEVER)]),
    ("capacity left for lower classes", "0010", &[("CAPACITY_LEFT_MIN", "", 0.0)]),
    ("slowest requests in the derived target", "0010", &[("TARGET_TAILS", "", 0.0)]),
    ("queue by chance in the derived target", "0010", &[("TARGET_REQUESTS", "", 0.0)]),
    ("a crowd shows in the typical request too", "0275", &[("TYPICAL_COMPLETIONS", "", NEVER)]),
    ("exceptions are no typical requests", "0275", &[("TYPICAL_LONG", "", NEVER)]),
    ("no trial that costs more than it brings", "0276", &[("TRIAL_DEAR_SECONDS", "", NEVER)]),
    ("trials of slow services last longer", "0276", &[("TRIAL_COMPLETIONS_MAX", "", 0.0)]),
    ("early look at requests in progress", "0276", &[("EARLY_LOOK_COMPLETIONS", "", NEVER)]),
    ("first window cut to what is in time", "0321", &[("FIRST_WINDOW_COMPLETIONS", "", NEVER)]),
    ("no request waits long while capacity is unknown", "0321", &[("WAIT_FIRST_TARGETS", "", AGES)]),
    ("warm-up of a replica", "0006", &[("WARM_UP_MIN", "", 1.0)]),
];

/// Something that is changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    name: String,
    /// The decision behind a rule; nothing for a number.
    pub decision: &'static str,
    changed: Vec<Changed>,
}

impl Change {
    /// Nothing is changed.
    #[must_use]
    pub fn none() -> Self {
        Self {
            name: "auto as it is".to_owned(),
            decision: "",
            changed: Vec::new(),
        }
    }

    /// For people: the rule that is off, or the number with its factor.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// Whether it is a rule.
    #[must_use]
    pub fn is_rule(&self) -> bool {
        !self.decision.is_empty()
    }

    /// The numbers that it changes.
    #[must_use]
    pub fn changed(&self) -> &[Changed] {
        &self.changed
    }
}

/// Every rule left out in turn.
#[must_use]
pub fn changes_of_rules() -> Vec<Change> {
    let set = |&(name, part, value): &Set| {
        let constant = Constant::named(name, part)?;
        let change = ablation::Change::Set(value);
        Some(Changed { constant, change })
    };
    let off = |(name, decision, sets): &Rule| Change {
        name: format!("{name} off"),
        decision,
        changed: sets.iter().filter_map(set).collect(),
    };
    RULES.iter().map(off).collect()
}

/// Every number × 0.8 and × 1.25 in turn.
#[must_use]
pub fn changes_of_constants() -> Vec<Change> {
    let scaled = |constant: Constant, factor: f64| {
        let part = match constant.part_name {
            "" => String::new(),
            part => format!(".{part}"),
        };
        Change {
            name: format!("{}{part} × {factor}", constant.name),
            decision: "",
            changed: vec![Changed {
                constant,
                change: ablation::Change::Scale(factor),
            }],
        }
    };
    ablation::constants()
        .into_iter()
        .flat_map(|constant| [0.8, 1.25].map(|factor| scaled(constant, factor)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_numbers_that_exist() {
        for (change, (name, _, sets)) in changes_of_rules().iter().zip(RULES) {
            assert_eq!(change.changed().len(), sets.len(), "{name}");
        }
    }

    #[test]
    fn names_of_changes_are_distinct() {
        let all = changes_of_rules().into_iter().chain(changes_of_constants());
        let mut names: Vec<String> = all.map(|change| change.name()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 250, "{count}");
    }
}
