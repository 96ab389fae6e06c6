//! The last refusals by their ids, so that "why was this request refused?" has an answer.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use tidegate_control::Timestamp;
use tidegate_sentry::Refusal;

/// Refusals that each worker thread keeps. Chosen: some 100 KiB, and seconds of a large overload.
const KEPT: usize = 1024;

/// The id of a refused request: what its answer has as `x-request-id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId(u64);

impl RequestId {
    /// Reads what [`RequestId`] prints.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| hex).map(Self)
    }

    /// Its sixteen digits.
    #[must_use]
    pub fn digits(self) -> [u8; 16] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        std::array::from_fn(|place| HEX[(self.0 >> (60 - 4 * place)) as usize & 15])
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One refusal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remembered {
    /// Its id.
    pub id: RequestId,
    /// When it was refused.
    pub at: Timestamp,
    /// What was decided.
    pub refusal: Refusal,
}

/// The refusals of one worker thread.
#[derive(Debug)]
pub(super) struct Refusals {
    last: VecDeque<Remembered>,
    next: u64,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self {
            last: VecDeque::new(),
            next: RandomState::new().hash_one("request ids"),
        }
    }

    pub(super) fn remember(&mut self, at: Timestamp, refusal: Refusal) -> RequestId {
        self.next = self.next.wrapping_add(1);
        let id = RequestId(mixed(self.next));
        if self.last.len() >= KEPT {
            self.last.pop_front();
        }
        self.last.push_back(Remembered { id, at, refusal });
        id
    }

    pub(super) fn find(&self, id: RequestId) -> Option<Remembered> {
        self.last.iter().rev().find(|kept| kept.id == id).copied()
    }
}

/// Ids that do not tell how many there were: the finalizer of splitmix64 (Steele, Lea and Flood
/// 2014), which maps different numbers to different numbers.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tidegate_sentry::{ClassId, ShedReason};

    #[test]
    fn last_refusals_are_found_by_what_the_client_read() {
        let mut refusals = Refusals::new();
        let refusal = |limit| Refusal {
            reason: ShedReason::Predicted,
            class: ClassId(1),
            retry_after: Duration::from_secs(1),
            measured: 9.0,
            limit,
        };
        let ids: Vec<_> = (0..2 * KEPT)
            .map(|number| refusals.remember(Timestamp::ZERO, refusal(number as f64)))
            .collect();
        let read = |id: RequestId| {
            let digits = id.digits();
            assert_eq!(digits, *id.to_string().as_bytes());
            RequestId::parse(std::str::from_utf8(&digits).unwrap()).unwrap()
        };
        let last = refusals.find(read(ids[2 * KEPT - 1])).unwrap();
        assert_eq!(last.refusal.limit, (2 * KEPT - 1) as f64);
        assert_eq!(refusals.find(read(ids[0])), None, "the memory is bounded");
        assert_eq!(refusals.last.len(), KEPT);
        for wrong in [
            "",
            "12",
            "zzzzzzzzzzzzzzzz",
            "+000000000000001",
            "00000000000000001",
        ] {
            assert_eq!(RequestId::parse(wrong), None, "{wrong}");
        }
    }
}
