//! The last refusals by their ids, so that "why was this request refused?" has an answer.

use std::collections::VecDeque;

use tidegate_control::Timestamp;
use tidegate_sentry::Refusal;

use crate::trace::TraceId;

/// Refusals that each worker thread keeps. Chosen: some 100 KiB, and seconds of a large overload.
const KEPT: usize = 1024;

/// One refusal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remembered {
    /// The number of its id.
    pub number: u64,
    /// When it was refused.
    pub at: Timestamp,
    /// What was decided.
    pub refusal: Refusal,
    /// The trace in which it is recorded.
    pub trace: Option<TraceId>,
}

/// The refusals of one worker thread.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: VecDeque<Remembered>,
}

impl Refusals {
    pub(super) fn remember(&mut self, refused: Remembered) {
        if self.last.len() >= KEPT {
            self.last.pop_front();
        }
        self.last.push_back(refused);
    }

    pub(super) fn find(&self, number: u64) -> Option<Remembered> {
        let mut last = self.last.iter().rev();
        last.find(|kept| kept.number == number).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tidegate_sentry::{ClassId, ShedReason};

    #[test]
    fn last_refusals_are_found_by_number() {
        let mut refusals = Refusals::default();
        for number in 0..2 * KEPT {
            let refusal = Refusal {
                reason: ShedReason::Predicted,
                class: ClassId(1),
                retry_after: Duration::from_secs(1),
                measured: 9.0,
                limit: number as f64,
            };
            refusals.remember(Remembered {
                number: number as u64,
                at: Timestamp::ZERO,
                refusal,
                trace: None,
            });
        }
        let last = refusals.find(2 * KEPT as u64 - 1).expect("it is the last");
        assert_eq!(last.refusal.limit, (2 * KEPT - 1) as f64);
        assert_eq!(refusals.find(0), None, "the memory is bounded");
        assert_eq!(refusals.last.len(), KEPT);
    }
}
