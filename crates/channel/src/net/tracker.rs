//! Who subscribes where: assigns parents, paces joins, and notices who has died. Pure.
//!
//! A relay registers with its own address and says now and then who its parents are and how many
//! listen to it; a leaf (a browser, a client behind a firewall) only asks. Everybody gets two
//! parents where there are two: the ones nearest to the publisher that still have room, never as
//! far from it as the asker, so that there are no circles.
//!
//! **What the publisher pays does not depend on how many there are.** It takes `arity` children
//! itself, and more only where nobody else is to be had. Whoever was sent to it and has had no time
//! to connect counts as its child: a thousand that join together are told to come over five
//! seconds. Registrations are spread such that [`REGISTRATIONS_PER_SECOND`] come, however many
//! relays there are; what dies in between is reported by its children.
//!
//! **Pacing.** When a thousand clients lose their parent in the same moment, the answers tell them
//! to come one after the other, [`JOINS_PER_SECOND`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

/// Joins that the tracker lets go ahead per second: a thousand clients are back in five seconds.
pub const JOINS_PER_SECOND: u32 = 200;

/// Registrations of all relays together per second.
pub const REGISTRATIONS_PER_SECOND: u32 = 5;

/// A relay need not register more often than this.
pub const REGISTER_EVERY: Duration = Duration::from_secs(30);

/// A relay that has missed so many registrations is not given to anybody.
const MISSED_MAX: u32 = 3;

/// Parents that everybody gets.
pub const PARENTS: usize = 2;

/// How long somebody who was told to connect may take to do so.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// The answer to a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Where to subscribe, besides the parents that the asker has.
    pub parents: Vec<String>,
    /// How long to wait before that.
    pub wait_ms: u64,
    /// How far a relay is from the publisher, for it to say when it registers again.
    pub depth: usize,
    /// When it should.
    pub again_ms: u64,
}

/// What somebody who joins says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joining {
    /// Its own address, if it is a relay.
    pub relay: Option<String>,
    /// How far from the publisher it was put, by a tracker that may have been restarted since.
    pub depth: Option<usize>,
    /// How many listen to it.
    pub children: usize,
    /// The parents it has.
    pub parents: Vec<String>,
    /// A parent that does not answer.
    pub dead: Option<String>,
}

#[derive(Debug, Clone)]
struct Node {
    address: String,
    depth: usize,
    children: usize,
    /// Not given to anybody from then on, unless it registers again.
    expires: Timestamp,
}

/// Children beyond the arity, distance, children: the least is the best parent.
type Rank = (usize, usize, usize);

impl Node {
    /// As a parent of one more.
    fn rank(&self, arity: usize) -> Rank {
        let beyond = (self.children + 1).saturating_sub(arity);
        (beyond, self.depth, self.children)
    }
}

/// Assigns parents.
#[derive(Debug)]
pub struct Tracker {
    root: Node,
    arity: usize,
    relays: Vec<Node>,
    /// How many listened to the publisher when somebody asked last.
    listeners: usize,
    /// Those who were sent to the publisher: until when they may still be on their way.
    coming_to_root: Vec<Timestamp>,
    next_join: Timestamp,
}

impl Tracker {
    /// For a publisher that listens at `root`; everybody takes `arity` children.
    #[must_use]
    pub fn new(root: &str, arity: usize) -> Self {
        Self {
            root: Node {
                address: root.to_owned(),
                depth: 0,
                children: 0,
                expires: Timestamp::MAX,
            },
            arity: arity.max(1),
            relays: Vec::new(),
            listeners: 0,
            coming_to_root: Vec::new(),
            next_join: Timestamp::ZERO,
        }
    }

    /// The publisher is reached at another address.
    pub fn set_root(&mut self, root: &str) {
        root.clone_into(&mut self.root.address);
    }

    /// Relays that are alive.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.relays.len()
    }

    /// Somebody wants to know where to subscribe; `listeners` is how many the publisher has itself.
    pub fn join(&mut self, now: Timestamp, listeners: usize, joining: &Joining) -> Assignment {
        self.forget(now, joining.dead.as_deref());
        self.count_children_of_root(now, listeners);
        let own = joining.relay.as_deref();
        let known = self
            .relays
            .iter()
            .position(|node| Some(&*node.address) == own);
        let place = known
            .map(|index| self.relays[index].depth)
            .or(joining.depth);
        let parents = self.choose(joining, place.unwrap_or(usize::MAX));
        let wait = match known {
            Some(_) => Duration::ZERO,
            None => self.pace(now),
        };
        for &index in &parents {
            self.expect_child(index, now + wait + CONNECTS_WITHIN);
        }
        let deepest = parents.iter().map(|&index| self.node(index).depth).max();
        let depth = place.unwrap_or(deepest.unwrap_or(0) + 1);
        let addresses = parents
            .iter()
            .map(|&index| self.node(index).address.clone());
        let addresses = addresses.collect();
        let again = self.register_every();
        if let Some(address) = own {
            let node = Node {
                address: address.to_owned(),
                depth,
                children: joining.children,
                expires: now + MISSED_MAX * again,
            };
            match known {
                Some(index) => self.relays[index] = node,
                None => self.relays.push(node),
            }
        }
        Assignment {
            parents: addresses,
            wait_ms: wait.as_millis() as u64,
            depth,
            again_ms: again.as_millis() as u64,
        }
    }

    /// Those who listen, and those who are still on their way. Who has arrived since the last
    /// question is taken for the first who was sent.
    fn count_children_of_root(&mut self, now: Timestamp, listeners: usize) {
        let arrived = listeners.saturating_sub(self.listeners);
        let arrived = arrived.min(self.coming_to_root.len());
        self.coming_to_root.drain(..arrived);
        self.coming_to_root.retain(|&until| until > now);
        self.listeners = listeners;
        self.root.children = listeners + self.coming_to_root.len();
    }

    /// Drops the dead and the silent.
    fn forget(&mut self, now: Timestamp, dead: Option<&str>) {
        let alive = |node: &Node| node.expires > now && dead != Some(&node.address);
        self.relays.retain(alive);
    }

    /// Time between two registrations of a relay.
    fn register_every(&self) -> Duration {
        let all = Duration::from_secs(self.relays.len() as u64) / REGISTRATIONS_PER_SECOND;
        all.max(REGISTER_EVERY)
    }

    /// Index 0 is the publisher, the others are relays.
    fn node(&self, index: usize) -> &Node {
        match index.checked_sub(1) {
            None => &self.root,
            Some(index) => &self.relays[index],
        }
    }

    /// The parents that the asker lacks, nearer to the publisher than `place`: those with room
    /// first, then the nearest, then the least burdened. The publisher, once full, only for those
    /// who would have nobody.
    fn choose(&self, joining: &Joining, place: usize) -> Vec<usize> {
        let own = joining.relay.as_ref();
        let root_is_full = self.root.children >= self.arity;
        let suits = |&index: &usize| {
            let node = self.node(index);
            let has = joining.parents.contains(&node.address) || own == Some(&node.address);
            node.depth < place && !has
        };
        let mut chosen = Vec::new();
        while chosen.len() + joining.parents.len() < PARENTS {
            let left = usize::from(root_is_full)..=self.relays.len();
            let left = left.filter(suits).filter(|index| !chosen.contains(index));
            match left.min_by_key(|&index| self.node(index).rank(self.arity)) {
                Some(index) => chosen.push(index),
                None => break,
            }
        }
        if chosen.is_empty() && joining.parents.is_empty() {
            chosen.push(0);
        }
        chosen
    }

    /// Somebody was sent there, and is to arrive before `until`.
    fn expect_child(&mut self, index: usize, until: Timestamp) {
        match index.checked_sub(1) {
            None => self.coming_to_root.push(until),
            Some(index) => self.relays[index].children += 1,
        }
    }

    fn pace(&mut self, now: Timestamp) -> Duration {
        let start = self.next_join.max(now);
        self.next_join = start + Duration::from_secs(1) / JOINS_PER_SECOND;
        start.since(now)
    }
}

#[cfg(test)]
mod tests;
