//! How long messages take to reach clients, by the word of members: the median of the last word of
//! each, so that one that lies moves it by no more than its place among the others.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_channel::ClientId;

/// Members whose word is remembered.
const MEMBERS_MAX: usize = 101;

/// What members said last.
#[derive(Debug, Default)]
pub(super) struct Lags {
    words: VecDeque<(ClientId, Duration)>,
}

impl Lags {
    /// A member's word replaces its last one.
    pub(super) fn on_sample(&mut self, client: ClientId, lag: Duration) {
        self.words.retain(|(known, _)| *known != client);
        self.words.push_back((client, lag));
        if self.words.len() > MEMBERS_MAX {
            self.words.pop_front();
        }
    }

    /// The median; `None` when nobody has said anything.
    pub(super) fn median(&self) -> Option<Duration> {
        let mut lags: Vec<_> = self.words.iter().map(|(_, lag)| *lag).collect();
        lags.sort_unstable();
        lags.get(lags.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_lies_often_counts_once() {
        let mut lags = Lags::default();
        assert_eq!(lags.median(), None);
        for id in 0..20 {
            lags.on_sample(ClientId(id), Duration::from_millis(100 + id));
        }
        for _ in 0..1000 {
            lags.on_sample(ClientId(3), Duration::from_secs(30));
        }
        let median = lags.median().unwrap();
        assert!(median < Duration::from_millis(120), "{median:?}");
    }
}
