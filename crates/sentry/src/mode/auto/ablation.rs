//! What mode `auto` does with other numbers, for `tidegate sim ablate`.
//!
//! Only with the cargo feature `ablation`: an ordinary build has the numbers of [`Tuning`] as
//! constants. The changes are those of the thread, for as long as [`with`] runs, so that several
//! runs go on beside each other and each is as reproducible as without.
//!
//! [`Tuning`]: super::tuning::Tuning
//!
//! Decision: docs/decisions/0255-ablation-by-numbers.md.

use std::cell::RefCell;
use std::time::Duration;

use super::significance::Significance;
use super::trial::Test;
use super::tuning::names;

/// What is done to a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// It is multiplied; of a number between 0.8 and 1.25 its distance from one is, so that a
    /// quantile stays below one and a factor that lets something fade lets it fade.
    Scale(f64),
    /// It is this instead.
    Set(f64),
}

impl Change {
    fn applied(self, value: f64) -> f64 {
        match self {
            Self::Set(to) => to,
            Self::Scale(factor) if value > 0.8 && value < 1.25 && value != 1.0 => {
                1.0 + (value - 1.0) * factor
            }
            Self::Scale(factor) => value * factor,
        }
    }
}

/// A number of the tuning, or one part of a test that consists of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constant {
    index: usize,
    part: usize,
    /// Its name in docs/tuning.md.
    pub name: &'static str,
    /// Which part of it; nothing where it is one number.
    pub part_name: &'static str,
}

impl Constant {
    /// The number with this name, or this part of it.
    #[must_use]
    pub fn named(name: &str, part_name: &str) -> Option<Self> {
        let all = all().map(|(constant, _)| constant);
        let mut named = all.filter(|c| c.name == name && c.part_name == part_name);
        named.next()
    }
}

/// A changed number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Changed {
    /// Which.
    pub constant: Constant,
    /// What is done to it.
    pub change: Change,
}

thread_local! {
    static CHANGED: RefCell<Vec<Changed>> = const { RefCell::new(Vec::new()) };
}

/// Every number that can be scaled: all of the tuning, but parts that are zero.
#[must_use]
pub fn constants() -> Vec<Constant> {
    let scaled = all().filter(|(_, value)| *value != 0.0);
    scaled.map(|(constant, _)| constant).collect()
}

/// Every number with its value.
fn all() -> impl Iterator<Item = (Constant, f64)> {
    let parts_of = |(index, (name, parts)): (usize, (&'static str, Parts))| {
        let constant = move |(part, (part_name, value))| {
            let constant = Constant {
                index,
                part,
                name,
                part_name,
            };
            (constant, value)
        };
        parts.into_iter().enumerate().map(constant)
    };
    names().into_iter().enumerate().flat_map(parts_of)
}

/// Runs something on this thread with these numbers changed.
pub fn with<R>(changed: &[Changed], run: impl FnOnce() -> R) -> R {
    /// Puts back what was, should `run` panic too.
    struct Back(Vec<Changed>);

    impl Drop for Back {
        fn drop(&mut self) {
            CHANGED.set(std::mem::take(&mut self.0));
        }
    }

    let _back = Back(CHANGED.replace(changed.to_vec()));
    run()
}

/// The value in force of the number with this index.
pub(super) fn in_force<T: Ablated>(index: usize, value: T) -> T {
    CHANGED.with_borrow(|changed| {
        changed
            .iter()
            .filter(|changed| changed.constant.index == index)
            .fold(value, |value, changed| {
                value.changed(changed.constant.part, changed.change)
            })
    })
}

/// Parts of a number by name, with their values.
pub(super) type Parts = Vec<(&'static str, f64)>;

/// A type of a number.
pub(super) trait Ablated: Copy {
    /// Its parts; one without a name where it is one number.
    fn parts(&self) -> Parts;
    /// With one part changed.
    fn changed(self, part: usize, change: Change) -> Self;
}

impl Ablated for f64 {
    fn parts(&self) -> Parts {
        vec![("", *self)]
    }

    fn changed(self, _: usize, change: Change) -> Self {
        change.applied(self)
    }
}

impl Ablated for usize {
    fn parts(&self) -> Parts {
        vec![("", *self as f64)]
    }

    /// By one at least, where it is scaled.
    fn changed(self, _: usize, change: Change) -> Self {
        let to = change.applied(self as f64).round().max(0.0) as usize;
        match change {
            Change::Scale(factor) if to == self && factor > 1.0 => self + 1,
            Change::Scale(factor) if to == self && factor < 1.0 => self.saturating_sub(1).max(1),
            _ => to,
        }
    }
}

impl Ablated for Duration {
    fn parts(&self) -> Parts {
        vec![("", self.as_secs_f64())]
    }

    fn changed(self, _: usize, change: Change) -> Self {
        // Seconds between 0.8 and 1.25 are no factor.
        let seconds = match change {
            Change::Scale(factor) => self.as_secs_f64() * factor,
            Change::Set(seconds) => seconds,
        };
        Self::try_from_secs_f64(seconds).unwrap_or(self)
    }
}

impl Ablated for Test {
    fn parts(&self) -> Parts {
        vec![
            ("alternative", self.alternative),
            ("reference", self.reference),
            ("reference_seconds", self.reference_seconds),
            ("seconds", self.seconds),
        ]
    }

    fn changed(mut self, part: usize, change: Change) -> Self {
        let parts = [
            &mut self.alternative,
            &mut self.reference,
            &mut self.reference_seconds,
            &mut self.seconds,
        ];
        if let Some(value) = parts.into_iter().nth(part) {
            *value = change.applied(*value);
        }
        self
    }
}

impl Ablated for Significance {
    fn parts(&self) -> Parts {
        vec![
            ("share", self.share),
            ("reference", self.reference),
            ("z", self.z),
        ]
    }

    fn changed(mut self, part: usize, change: Change) -> Self {
        let parts = [&mut self.share, &mut self.reference, &mut self.z];
        if let Some(value) = parts.into_iter().nth(part) {
            *value = change.applied(*value);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::tuning::Tuning;
    use super::*;

    fn scaled(name: &str, part_name: &str, factor: f64) -> Changed {
        let constant = constants()
            .into_iter()
            .find(|constant| constant.name == name && constant.part_name == part_name);
        Changed {
            constant: constant.unwrap(),
            change: Change::Scale(factor),
        }
    }

    #[test]
    fn changed_number_is_in_force_only_while_it_is_changed() {
        let before = Tuning::WINDOW_SHRINK.get();
        let inside = with(&[scaled("WINDOW_SHRINK", "", 1.25)], || {
            Tuning::WINDOW_SHRINK.get()
        });
        assert_eq!(inside, 1.25 * before);
        assert_eq!(Tuning::WINDOW_SHRINK.get(), before);
    }

    #[test]
    fn part_of_a_test_is_changed_alone() {
        let before = Tuning::TRIAL_UP_FIRST.get();
        let changed = [scaled("TRIAL_UP_FIRST", "reference", 0.8)];
        let inside = with(&changed, || Tuning::TRIAL_UP_FIRST.get());
        assert_eq!(inside.reference, 0.8 * before.reference);
        assert_eq!(inside.alternative, before.alternative);
    }

    #[test]
    fn quantile_stays_below_one_and_whole_numbers_change_by_one_at_least() {
        let quantile = with(&[scaled("ANSWERED_MOST", "", 1.25)], || {
            Tuning::ANSWERED_MOST.get()
        });
        assert!((quantile - 0.9375).abs() < 1e-12, "{quantile}");
        let samples = [scaled("DISPERSION_GROUP_SAMPLES", "", 1.05)];
        let group = with(&samples, || Tuning::DISPERSION_GROUP_SAMPLES.get());
        assert_eq!(group, 6);
    }

    #[test]
    fn every_number_can_be_changed_and_none_that_is_zero() {
        let constants = constants();
        assert!(constants.len() > names().len());
        for part in ["reference_seconds", "seconds"] {
            assert!(
                !constants
                    .iter()
                    .any(|c| c.name == "TRIAL_UP" && c.part_name == part)
            );
        }
    }
}
