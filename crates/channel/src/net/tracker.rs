//! Who subscribes where: assigns parents, paces joins, and notices who has died. Pure.
//!
//! A relay registers with its own address and says now and then how many listen to it; a leaf
//! (a browser, a client behind a firewall) only asks. Everybody gets two parents where there are
//! two: the ones nearest to the publisher that still have room, never below the asker, so that
//! there are no circles. The publisher itself takes `arity` children, and more only when everybody
//! else has more. Whoever was sent to it lately counts as its child, whether already connected or
//! not: a thousand that join together are told to come over five seconds.
//!
//! **Pacing.** When a thousand clients lose their parent in the same moment, the answers tell them
//! to come one after the other, [`JOINS_PER_SECOND`].

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

/// Joins that the tracker lets go ahead per second: a thousand clients are back in five seconds.
pub const JOINS_PER_SECOND: u32 = 200;

/// A relay that has not been heard of for this long is not given to anybody.
pub const SILENCE: Duration = Duration::from_secs(60);

/// How often a relay should register again.
pub const REGISTER_EVERY: Duration = Duration::from_secs(20);

/// Parents that everybody gets.
const PARENTS: usize = 2;

/// The answer to a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Where to subscribe, all of them.
    pub parents: Vec<String>,
    /// How long to wait before that.
    pub wait_ms: u64,
}

/// What somebody who joins says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joining {
    /// Its own address, if it is a relay.
    pub relay: Option<String>,
    /// How many listen to it.
    pub children: usize,
    /// A parent that does not answer.
    pub dead: Option<String>,
}

#[derive(Debug, Clone)]
struct Node {
    address: String,
    depth: usize,
    children: usize,
    seen: Timestamp,
}

/// Assigns parents.
#[derive(Debug)]
pub struct Tracker {
    root: Node,
    arity: usize,
    relays: Vec<Node>,
    /// When somebody was sent to the publisher, within [`SILENCE`].
    sent_to_root: VecDeque<Timestamp>,
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
                seen: Timestamp::MAX,
            },
            arity: arity.max(1),
            relays: Vec::new(),
            sent_to_root: VecDeque::new(),
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
        while self
            .sent_to_root
            .front()
            .is_some_and(|&at| now.since(at) > SILENCE)
        {
            self.sent_to_root.pop_front();
        }
        self.root.children = listeners.max(self.sent_to_root.len());
        let gone = |node: &Node| {
            now.since(node.seen) > SILENCE || joining.dead.as_ref() == Some(&node.address)
        };
        self.relays.retain(|node| !gone(node));
        let own = joining.relay.as_deref();
        let known = self
            .relays
            .iter()
            .position(|node| Some(&*node.address) == own);
        let ceiling = known.map_or(usize::MAX, |index| self.relays[index].depth);
        let parents = self.choose(now, own, ceiling);
        if let Some(address) = own {
            self.register(now, address, joining.children, known, &parents);
        }
        let addresses = parents
            .iter()
            .map(|&index| self.node(index).address.clone());
        Assignment {
            parents: addresses.collect(),
            wait_ms: match known {
                Some(_) => 0,
                None => self.pace(now),
            },
        }
    }

    /// Index 0 is the publisher, the others are relays.
    fn node(&self, index: usize) -> &Node {
        match index.checked_sub(1) {
            None => &self.root,
            Some(index) => &self.relays[index],
        }
    }

    /// The parents nearest to the publisher with room; whoever has least where nobody has.
    fn choose(&mut self, now: Timestamp, own: Option<&str>, ceiling: usize) -> Vec<usize> {
        let mut candidates: Vec<usize> = (0..=self.relays.len())
            .filter(|&index| Some(&*self.node(index).address) != own)
            .filter(|&index| self.node(index).depth < ceiling)
            .collect();
        let arity = self.arity;
        candidates.sort_by_key(|&index| {
            let node = self.node(index);
            let beyond = node.children.saturating_sub(arity - 1);
            (beyond, node.depth, node.children)
        });
        candidates.truncate(PARENTS);
        for &index in &candidates {
            match index.checked_sub(1) {
                None => self.sent_to_root.push_back(now),
                Some(index) => self.relays[index].children += 1,
            }
        }
        candidates
    }

    fn register(
        &mut self,
        now: Timestamp,
        address: &str,
        children: usize,
        known: Option<usize>,
        parents: &[usize],
    ) {
        let deepest = parents.iter().map(|&index| self.node(index).depth).max();
        match known {
            Some(index) => {
                self.relays[index].seen = now;
                self.relays[index].children = children;
            }
            None => self.relays.push(Node {
                address: address.to_owned(),
                depth: deepest.unwrap_or(0) + 1,
                children,
                seen: now,
            }),
        }
    }

    fn pace(&mut self, now: Timestamp) -> u64 {
        let start = self.next_join.max(now);
        self.next_join = start + Duration::from_secs(1) / JOINS_PER_SECOND;
        start.since(now).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn relay(index: usize) -> Joining {
        Joining {
            relay: Some(format!("http://r{index}")),
            ..Joining::default()
        }
    }

    /// A thousand relays join one after the other.
    fn forest() -> (Tracker, HashMap<String, Vec<String>>) {
        let mut tracker = Tracker::new("http://root", 5);
        let mut parents = HashMap::new();
        for index in 0..1000 {
            let joining = relay(index);
            // Nobody has connected to the publisher yet.
            let assignment = tracker.join(at(1.0), 0, &joining);
            parents.insert(joining.relay.unwrap(), assignment.parents);
        }
        (tracker, parents)
    }

    fn depth(parents: &HashMap<String, Vec<String>>, node: &str) -> usize {
        let above = parents.get(node).map(|above| {
            let depths = above.iter().map(|parent| depth(parents, parent));
            1 + depths.max().unwrap_or(0)
        });
        above.unwrap_or(0)
    }

    #[test]
    fn everybody_has_two_parents_and_nobody_too_many_children() {
        let (tracker, parents) = forest();
        assert_eq!(tracker.relays(), 1000);
        let mut children: HashMap<&str, usize> = HashMap::new();
        for (node, above) in &parents {
            let expected = if node == "http://r0" { 1 } else { 2 };
            assert_eq!(above.len(), expected, "{node}");
            for parent in above {
                *children.entry(parent).or_default() += 1;
            }
        }
        // The last to come may find everybody full.
        assert!(children.values().all(|&count| count <= 6), "{children:?}");
        let deepest = parents.keys().map(|node| depth(&parents, node)).max();
        assert!(deepest.unwrap() <= 12, "{deepest:?}");
    }

    #[test]
    fn a_relay_never_gets_a_parent_below_itself() {
        let (mut tracker, parents) = forest();
        for index in [0, 10, 500] {
            let again = tracker.join(at(2.0), 5, &relay(index));
            let own = depth(&parents, &format!("http://r{index}"));
            for parent in again.parents {
                assert!(depth(&parents, &parent) < own);
            }
        }
    }

    #[test]
    fn joins_are_paced() {
        let mut tracker = Tracker::new("http://root", 5);
        let leaf = Joining::default();
        let waits: Vec<u64> = (0..400)
            .map(|_| tracker.join(at(1.0), 0, &leaf).wait_ms)
            .collect();
        assert_eq!((waits[0], waits[200], waits[399]), (0, 1000, 1995));
        assert_eq!(tracker.join(at(10.0), 0, &leaf).wait_ms, 0);
    }

    #[test]
    fn the_dead_and_the_silent_are_not_given_to_anybody() {
        let mut tracker = Tracker::new("http://root", 1);
        tracker.join(at(1.0), 0, &relay(1));
        let complaint = Joining {
            dead: Some("http://r1".to_owned()),
            ..Joining::default()
        };
        assert_eq!(
            tracker.join(at(2.0), 1, &complaint).parents,
            ["http://root"]
        );
        tracker.join(at(3.0), 1, &relay(2));
        assert_eq!(tracker.relays(), 1);
        let later = at(4.0) + SILENCE;
        let assignment = tracker.join(later, 1, &Joining::default());
        assert_eq!(assignment.parents, ["http://root"]);
    }
}
