//! The last requests that were not served, by their ids, so that "what became of this request?"
//! has an answer.
//!
//! A ring in the order of time, with the index of a dictionary coder: the last entry of each hash,
//! and in each entry the one before it of the same hash. Adding one costs two writes, finding one a
//! few steps, and nothing is moved when the oldest is overwritten.

use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{ClassId, Refusal, ReplicaId};

use super::Outcome;
use crate::trace::TraceId;

/// Requests that all worker threads keep together. Chosen: at 300 refusals per second the last
/// seven minutes, in some 15 MB that are taken when they are needed.
const KEPT: usize = 1 << 17;

/// The least that one worker thread keeps.
const KEPT_PER_THREAD_MIN: usize = 1 << 10;

/// One request that was not served.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// The number of its id.
    pub number: u64,
    /// When it ended.
    pub at: Timestamp,
    /// Its application, by [`Application::key`](crate::application::Application::key).
    pub application: usize,
    /// What became of it.
    pub ending: Ending,
    /// The trace in which it is recorded.
    pub trace: Option<TraceId>,
}

/// What became of a request that was not served.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// The engine refused it.
    Shed(Refusal),
    /// Everything else.
    Other(Failing),
}

/// What became of a request that neither a replica answered nor the engine refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Failing {
    /// What it was to its client.
    pub outcome: Outcome,
    /// The word of the access log.
    pub reason: &'static str,
    /// Its class, where it came so far.
    pub class: Option<ClassId>,
    /// The replica that it was sent to.
    pub replica: Option<ReplicaId>,
    /// What its client was answered; 0 without an answer.
    pub status: u16,
    /// Time from its arrival to its end.
    pub took: Duration,
    /// The quota that it exceeded.
    pub quota: Option<Box<str>>,
}

#[derive(Debug)]
struct Entry {
    request: Remembered,
    /// One more than the place of the entry before it with this hash; 0 without one.
    before: u64,
}

/// The requests of one worker thread that were not served.
#[derive(Debug)]
pub(super) struct RememberedRequests {
    ring: Vec<Entry>,
    /// Entries written since the start: the next has this place, modulo the size of the ring.
    written: u64,
    /// By hash, one more than the place of the last entry; 0 without one.
    last: Vec<u64>,
    kept: usize,
}

impl RememberedRequests {
    /// A part of the memory, for one of this many threads.
    pub(super) fn for_one_of(threads: usize) -> Self {
        Self::new((KEPT / threads.max(1)).max(KEPT_PER_THREAD_MIN))
    }

    fn new(kept: usize) -> Self {
        Self {
            ring: Vec::new(),
            written: 0,
            last: Vec::new(),
            kept: kept.next_power_of_two(),
        }
    }

    fn hash(&self, number: u64) -> usize {
        // The numbers of made ids are mixed, the others are hashes.
        number as usize & (self.kept - 1)
    }

    pub(super) fn remember(&mut self, request: Remembered) {
        if self.last.is_empty() {
            // Neither is touched before it is written, so the memory comes page by page.
            self.last = vec![0; self.kept];
            self.ring.reserve_exact(self.kept);
        }
        let hash = self.hash(request.number);
        let before = std::mem::replace(&mut self.last[hash], self.written + 1);
        let entry = Entry { request, before };
        if self.ring.len() < self.kept {
            self.ring.push(entry);
        } else {
            self.ring[self.written as usize & (self.kept - 1)] = entry;
        }
        self.written += 1;
    }

    pub(super) fn find(&self, number: u64) -> Option<Remembered> {
        let oldest = self.written.saturating_sub(self.kept as u64);
        let mut next = *self.last.get(self.hash(number))?;
        // What is older than the ring was overwritten.
        while let Some(place) = next.checked_sub(1).filter(|&place| place >= oldest) {
            let entry = self.ring.get(place as usize & (self.kept - 1))?;
            if entry.request.number == number {
                return Some(entry.request.clone());
            }
            next = entry.before;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sentry::ShedReason;

    fn request(number: u64, limit: f64) -> Remembered {
        Remembered {
            number,
            at: Timestamp::ZERO,
            application: 0,
            ending: Ending::Shed(Refusal {
                reason: ShedReason::Predicted,
                class: ClassId(1),
                retry_after: Duration::from_secs(1),
                measured: 9.0,
                limit,
            }),
            trace: None,
        }
    }

    fn limit(of: Option<Remembered>) -> Option<f64> {
        match of?.ending {
            Ending::Shed(refusal) => Some(refusal.limit),
            Ending::Other(_) => None,
        }
    }

    #[test]
    fn last_requests_are_found_by_number_and_older_ones_are_forgotten() {
        const KEPT: u64 = 64;
        let mut requests = RememberedRequests::new(KEPT as usize);
        assert_eq!(requests.find(0), None);
        // Every third number has the same hash: chains are followed and end.
        let number = |index: u64| {
            if index.is_multiple_of(3) {
                index * KEPT
            } else {
                index
            }
        };
        for index in 0..1000 {
            requests.remember(request(number(index), index as f64));
            for known in 0..=index {
                let found = limit(requests.find(number(known)));
                let wanted = (known + KEPT > index).then_some(known as f64);
                assert_eq!(found, wanted, "{known} after {index}");
            }
        }
        assert_eq!(requests.ring.len() as u64, KEPT, "the memory is bounded");
    }

    #[test]
    fn request_that_comes_twice_is_found_as_it_ended_last() {
        let mut requests = RememberedRequests::new(8);
        requests.remember(request(7, 1.0));
        requests.remember(request(7, 2.0));
        assert_eq!(limit(requests.find(7)), Some(2.0));
    }

    #[test]
    fn minute_of_a_large_overload_is_remembered_by_two_threads() {
        let requests = RememberedRequests::for_one_of(2);
        assert!(requests.kept >= 300 * 60, "{}", requests.kept);
        assert!(RememberedRequests::for_one_of(1000).kept >= KEPT_PER_THREAD_MIN);
    }
}
