//! What clients may do (001 §3): groups that take turns, or one item per interval.
//!
//! **Group.** A client with number `n` and phase `f` in `[0, 1)` may send at time `t` when
//!
//! ```text
//! (n - k) mod d = m   for one (d, m) of the list,        k = floor(t/slot - f)
//! ```
//!
//! so the active group advances every `slot` by itself, and messages are needed only for a new
//! size. A list of pairs gives any share of clients to 1/256 (001 §5.4: single pairs are too
//! coarse for the controller). The phase spreads the starts of the clients of one group over the
//! slot; without it they would all send in the same instant.
//!
//! **Interval.** At most one item per interval, which begins at another time in each client; see
//! [`Pacer`](crate::Pacer).
//!
//! What breaks it: clients whose clocks differ from the server's by more than the slack that
//! compliance grants (see [`clock`](crate::clock)).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

/// A client's number; any 64 bits that differ between clients.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The client's place within a slot or an interval, in `[0, 1)`: the same for server and
    /// client, and unrelated to the group (finalizer of SplitMix64, Steele, Lea, Flood 2014).
    #[must_use]
    pub fn phase(self) -> f64 {
        let z = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// One congruence class of clients: those whose number leaves `modulo` when divided by `divisor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Class {
    /// How many groups there are.
    pub divisor: u16,
    /// Which of them.
    pub modulo: u16,
}

/// Longest list that a message carries.
pub const CLASSES_MAX: usize = 8;

/// Groups that take turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Groups {
    /// How long a group is active.
    pub slot: Duration,
    /// Who is active in slot 0; disjoint.
    pub classes: Vec<Class>,
}

/// Who may send when.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// All clients, at any time.
    Open,
    /// Groups take turns.
    Group(Groups),
    /// All clients, one item per interval.
    Interval(Duration),
}

impl Groups {
    /// Groups so that the share `share` of all clients is active at a time, to 1/256 and at least
    /// that: the binary digits of the share, each a class of its own.
    #[must_use]
    pub fn with_share(share: f64, slot: Duration) -> Self {
        let of_256 = (share * 256.0).round().clamp(1.0, 256.0) as u16;
        if of_256 == 256 {
            let all = Class {
                divisor: 1,
                modulo: 0,
            };
            let classes = vec![all];
            return Self { slot, classes };
        }
        // Digit i (1/2, 1/4, ..) is the class of numbers that end in i-1 ones and a zero.
        let classes = (1..=8_u16)
            .filter(|digit| of_256 & (256 >> digit) != 0)
            .map(|digit| Class {
                divisor: 1 << digit,
                modulo: (1 << (digit - 1)) - 1,
            })
            .collect();
        Self { slot, classes }
    }

    /// One of `count` groups at a time, as in 001 §3.1.
    #[must_use]
    pub fn one_of(count: u16, slot: Duration) -> Self {
        let class = Class {
            divisor: count.max(1),
            modulo: 0,
        };
        let classes = vec![class];
        Self { slot, classes }
    }

    /// The share of clients that is active at a time.
    #[must_use]
    pub fn share(&self) -> f64 {
        let shares = self.classes.iter().map(|c| 1.0 / f64::from(c.divisor));
        shares.sum()
    }

    /// When a client may next send, `now` included; `None` with an empty list.
    #[must_use]
    pub fn next_turn(&self, id: ClientId, now: Timestamp) -> Option<Timestamp> {
        let slot_ns = self.slot_ns();
        let offset_ns = (id.phase() * slot_ns as f64) as u64;
        // One slot further than the client's own, so that a phase never reaches below zero.
        let shifted = now.as_nanos().saturating_add(slot_ns - offset_ns);
        let slot = shifted / slot_ns;
        let wait = self.slots_to_wait(id, slot)?;
        if wait == 0 {
            return Some(now);
        }
        let start = (slot + wait - 1).saturating_mul(slot_ns);
        Some(Timestamp::from_nanos(start.saturating_add(offset_ns)))
    }

    fn slots_to_wait(&self, id: ClientId, slot: u64) -> Option<u64> {
        let wait = |class: &Class| {
            let divisor = u64::from(class.divisor.max(1));
            let active = (u64::from(class.modulo) + slot) % divisor;
            (id.0 % divisor + divisor - active) % divisor
        };
        self.classes.iter().map(wait).min()
    }

    fn slot_ns(&self) -> u64 {
        u64::try_from(self.slot.as_nanos())
            .unwrap_or(u64::MAX / 4)
            .clamp(1, u64::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Duration = Duration::from_secs(4);

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn active(groups: &Groups, id: u64, now: Timestamp) -> bool {
        groups.next_turn(ClientId(id), now) == Some(now)
    }

    #[test]
    fn any_share_is_met_to_one_256th() {
        for wanted in [0.004, 0.1, 0.37, 0.5, 0.75, 0.999, 1.0] {
            let groups = Groups::with_share(wanted, SLOT);
            assert!((groups.share() - wanted).abs() <= 0.5 / 256.0, "{wanted}");
            assert!(groups.classes.len() <= CLASSES_MAX);
            let now = at(1234.5);
            let count = (0..25_600).filter(|&id| active(&groups, id, now)).count();
            let share = count as f64 / 25_600.0;
            assert!((share - groups.share()).abs() < 0.01, "{wanted}: {share}");
        }
    }

    #[test]
    fn every_client_gets_its_turn_once_a_cycle() {
        let groups = Groups::one_of(20, SLOT);
        for id in 0..100 {
            let turns = (0..20).filter(|k| active(&groups, id, at(400.0 + 4.0 * f64::from(*k))));
            assert_eq!(turns.count(), 1, "client {id}");
        }
    }

    #[test]
    fn next_turn_is_the_first_moment_at_which_sending_is_allowed() {
        for share in [0.05, 0.3, 0.6] {
            let groups = Groups::with_share(share, SLOT);
            for id in 0..200 {
                let now = at(77.0 + id as f64);
                let turn = groups.next_turn(ClientId(id), now).unwrap();
                assert!(active(&groups, id, turn));
                if turn > now {
                    let before = Timestamp::from_nanos(turn.as_nanos() - 1);
                    assert!(!active(&groups, id, before));
                    assert!(!active(&groups, id, now));
                }
            }
        }
    }

    #[test]
    fn phases_spread_evenly() {
        let mean = (0..10_000).map(|id| ClientId(id).phase()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02);
        assert!((0..1000).all(|id| (0.0..1.0).contains(&ClientId(id).phase())));
    }

    #[test]
    fn empty_list_lets_nobody_send() {
        let none = Groups {
            slot: SLOT,
            classes: Vec::new(),
        };
        assert_eq!(none.next_turn(ClientId(1), at(1.0)), None);
    }
}
