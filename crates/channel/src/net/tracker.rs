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
        self.coming_to_root.retain(|&until| until > now);
        self.root.children = listeners + self.coming_to_root.len();
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
            assert_eq!(again.depth, own);
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
        let later = at(4.0) + MISSED_MAX * REGISTER_EVERY;
        let assignment = tracker.join(later, 1, &Joining::default());
        assert_eq!(assignment.parents, ["http://root"]);
    }

    #[test]
    fn the_publisher_takes_its_arity_however_many_come() {
        let mut tracker = Tracker::new("http://root", 5);
        let mut at_root = 0;
        for index in 0..2000 {
            let joining = match index % 10 {
                0 => relay(index),
                _ => Joining::default(),
            };
            // Whoever was sent there has connected at once.
            let assignment = tracker.join(at(index as f64), at_root, &joining);
            at_root += usize::from(assignment.parents.contains(&"http://root".to_owned()));
        }
        assert_eq!(at_root, 5);
    }

    #[test]
    fn an_orphan_gets_what_it_lacks_and_nothing_it_has() {
        let (mut tracker, parents) = forest();
        let mut orphan = relay(500);
        let [kept, lost] = &parents["http://r500"][..] else {
            panic!("two parents")
        };
        orphan.parents = vec![kept.clone()];
        orphan.dead = Some(lost.clone());
        let assignment = tracker.join(at(2.0), 5, &orphan);
        assert_eq!(assignment.parents.len(), 1);
        assert!(![kept, lost].contains(&&assignment.parents[0]));
        orphan.parents.extend(assignment.parents);
        orphan.dead = None;
        assert!(tracker.join(at(3.0), 5, &orphan).parents.is_empty());
    }

    #[test]
    fn a_restarted_tracker_believes_where_a_relay_was() {
        let mut tracker = Tracker::new("http://root", 5);
        tracker.join(at(1.0), 0, &relay(1));
        let returning = Joining {
            depth: Some(7),
            parents: vec!["http://r9".to_owned(), "http://r8".to_owned()],
            ..relay(2)
        };
        assert_eq!(tracker.join(at(1.0), 0, &returning).depth, 7);
        // Nobody above it is put below it.
        let above = Joining {
            depth: Some(7),
            ..relay(3)
        };
        let assignment = tracker.join(at(1.0), 5, &above);
        assert!(!assignment.parents.contains(&"http://r2".to_owned()));
    }

    #[test]
    fn registrations_do_not_grow_with_the_number_of_relays() {
        let (mut tracker, _) = forest();
        let again = tracker.join(at(2.0), 5, &relay(1)).again_ms;
        assert_eq!(again, 200_000);
        let mut few = Tracker::new("http://root", 5);
        assert_eq!(few.join(at(1.0), 0, &relay(1)).again_ms, 30_000);
    }
}
