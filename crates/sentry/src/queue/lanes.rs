//! Where the waiters of one class stand, and which of them is next.
//!
//! Waiters that take any replica stand in *shards* by tenant, those of a sticky session in a lane
//! of their replica, those that wait to be examined in *held* lanes by what they cost. Preferred
//! ones (of a session that was admitted) have lanes of their own and go first; before all of them
//! go those that were admitted once and *returned* because their replica was dead. These do not
//! take every replica, so a newcomer does not wait behind them for a slot that they do not want.
//! After all of them go those that are *late*: an answer in time is out of reach for them, and a
//! request that waits behind them can still get one. They take any replica: one that waited for a
//! certain one would hold up the others in that lane.
//!
//! Among the others it is the turn of the one with the smallest *tag* (start-time fair queueing,
//! Goyal 1996, with requests of equal weight): a waiter gets
//!
//! ```text
//! tag = max(tag of the last served, smaller of the last tags of its two shards) + 1
//! ```
//!
//! so that tenants take turns, and without tenants it is first come first served. A tenant is
//! dealt two shards by its hash, stands in the shorter one and writes its tag down at both
//! (shuffle sharding, with the tags as a count-min sketch): who shares one of them with a flooder
//! is not held back by it, and two tenants share both only once in thousands of pairs.

use super::NONE;
use crate::api::ReplicaId;
use crate::policing::buckets::BUCKETS;

/// One bit for each bucket.
const _: () = assert!(BUCKETS as u32 <= u64::BITS);

/// Ranks of those that are not preferred begin here.
const NOT_PREFERRED: u64 = 1 << 63;

/// The rank of those that are late: after all others.
pub(super) const LAST: u64 = u64::MAX;

/// A doubly linked list through the queue's slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) len: u32,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

/// Which lane of its class a waiter stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Preferred,
    Shard(u16),
    Sticky { replica: ReplicaId, preferred: bool },
    Held(u8),
    Returned,
    Late,
}

/// The two shards that a tenant is dealt.
pub(super) type Hand = (u16, u16);

/// Deals a tenant its shards; without a tenant it is always the first.
pub(super) fn hand(tenant: Option<u64>, shards: u16) -> Hand {
    let shards = u64::from(shards.max(1));
    tenant.map_or((0, 0), |tenant| {
        ((tenant % shards) as u16, (tenant / shards % shards) as u16)
    })
}

/// One class's lanes; they come into being with their first waiter.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    returned: Lane,
    late: Lane,
    preferred: Lane,
    shards: Vec<Lane>,
    sticky: Vec<Lane>,
    held: Vec<Lane>,
    /// One bit for each held lane that has a waiter.
    held_in_use: u64,
    /// Last tag written down at each shard.
    last_tags: Vec<u64>,
    served_tag: u64,
}

impl Lanes {
    pub(super) fn at(&mut self, place: Place) -> &mut Lane {
        match place {
            Place::Returned => &mut self.returned,
            Place::Late => &mut self.late,
            Place::Preferred => &mut self.preferred,
            Place::Shard(shard) => grown(&mut self.shards, usize::from(shard)),
            Place::Sticky { replica, preferred } => {
                grown(&mut self.sticky, sticky_lane(replica, preferred))
            }
            Place::Held(bucket) => grown(&mut self.held, usize::from(bucket)),
        }
    }

    /// A waiter came into a lane, or left it.
    pub(super) fn changed(&mut self, place: Place) {
        if let Place::Held(bucket) = place {
            let bit = 1 << bucket;
            match self.held(bucket).len {
                0 => self.held_in_use &= !bit,
                _ => self.held_in_use |= bit,
            }
        }
    }

    /// The shorter of two shards.
    pub(super) fn shorter(&self, (one, other): Hand) -> u16 {
        let len = |shard: u16| {
            self.shards
                .get(usize::from(shard))
                .map_or(0, |lane| lane.len)
        };
        if len(other) < len(one) { other } else { one }
    }

    /// The rank of a newcomer with these shards: the smaller, the sooner it is served. `sequence`
    /// orders those that are preferred.
    pub(super) fn rank(&self, (one, other): Hand, preferred: bool, sequence: u64) -> u64 {
        if preferred {
            return sequence;
        }
        let last = |shard: u16| self.last_tags.get(usize::from(shard)).copied().unwrap_or(0);
        NOT_PREFERRED | (last(one).min(last(other)).max(self.served_tag) + 1)
    }

    /// A waiter with these shards got this rank.
    pub(super) fn ranked(&mut self, (one, other): Hand, rank: u64) {
        if rank < NOT_PREFERRED {
            return;
        }
        for shard in [one, other] {
            let last = grown(&mut self.last_tags, usize::from(shard));
            *last = (*last).max(rank ^ NOT_PREFERRED);
        }
    }

    /// A waiter of this rank got a slot.
    pub(super) fn served(&mut self, rank: u64) {
        if (NOT_PREFERRED..LAST).contains(&rank) {
            self.served_tag = self.served_tag.max(rank ^ NOT_PREFERRED);
        }
    }

    /// Lanes of those that wait for a slot.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Lane> {
        let others = self.any().chain(&self.sticky);
        [&self.returned, &self.late].into_iter().chain(others)
    }

    /// Waiters that are late.
    pub(super) fn len_late(&self) -> u32 {
        self.late.len
    }

    /// Lanes of those that take any replica.
    pub(super) fn any(&self) -> impl Iterator<Item = &Lane> {
        std::iter::once(&self.preferred).chain(&self.shards)
    }

    /// Waiters that take any replica.
    pub(super) fn len_any(&self) -> u32 {
        self.any().map(|lane| lane.len).sum()
    }

    /// Waiters for one replica.
    pub(super) fn len_for(&self, replica: ReplicaId) -> u32 {
        let len = |preferred| {
            self.sticky
                .get(sticky_lane(replica, preferred))
                .map_or(0, |l| l.len)
        };
        len(false) + len(true)
    }

    pub(super) fn held(&self, bucket: u8) -> Lane {
        let lane = self.held.get(usize::from(bucket));
        lane.copied().unwrap_or_default()
    }

    /// Buckets that hold a waiter, those of cheap requests first.
    pub(super) fn buckets(&self) -> impl Iterator<Item = u8> + use<> {
        let mut left = self.held_in_use;
        std::iter::from_fn(move || {
            let bucket = (left != 0).then(|| left.trailing_zeros() as u8);
            left &= left.wrapping_sub(1);
            bucket
        })
    }

    /// Where the last of the most expensive held ones stands.
    pub(super) fn last_held(&self) -> Option<u32> {
        let dearest = self.held_in_use.checked_ilog2()?;
        Some(self.held(dearest as u8).tail)
    }

    /// Held waiters, over all buckets.
    pub(super) fn len_held(&self) -> u32 {
        self.buckets().map(|bucket| self.held(bucket).len).sum()
    }

    pub(super) fn len(&self) -> u32 {
        self.waiting().map(|lane| lane.len).sum::<u32>() + self.len_held()
    }
}

fn sticky_lane(replica: ReplicaId, preferred: bool) -> usize {
    2 * usize::from(replica.0) + usize::from(preferred)
}

fn grown<V: Clone + Default>(values: &mut Vec<V>, index: usize) -> &mut V {
    if values.len() <= index {
        values.resize(index + 1, V::default());
    }
    &mut values[index]
}
