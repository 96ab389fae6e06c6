//! Who subscribes where: assigns parents, paces joins, and notices which have died. Pure.
//!
//! A relay registers with its own address and says now and then who its parents are and how many
//! listen to it; a leaf (a browser, a client behind a firewall) only asks. Each one gets two
//! parents where there are two: the ones nearest to the publisher that still have room, never as
//! far from it as the asker, so that there are no circles.
//!
//! **What the publisher pays does not depend on how many there are.** It takes `arity` children
//! itself, and more only where no relay has room, up to a bound. A listener that was sent to it and
//! has had no time to connect counts as its child: a thousand that join together are told to come
//! over five seconds. Registrations are spread such that [`REGISTRATIONS_PER_SECOND`] come, however
//! many relays there are; what dies in between is reported by its children.
//!
//! **Strangers are not believed.** A relay is given to others once the publisher has reached it
//! itself ([`Tracker::next_probe`]) or a member has vouched for it. That a relay is dead is a
//! complaint: the relay is not handed out while the publisher checks it, and goes when the
//! publisher cannot reach it either, or when a second member complains. One that was reached just
//! now is not looked at again at once, so that complaints keep no relay out.
//!
//! **Pacing.** When a thousand clients lose their parent in the same moment, the answers tell them
//! to come one after the other, [`JOINS_PER_SECOND`]. Members have a queue of their own. In the
//! others' one an address has one place a second, and what else it asks for waits behind itself:
//! a client cannot make others wait by asking often, and none waits longer than [`WAIT_MAX`].
//!
//! Decision: docs/decisions/0081-a-tracker-among-strangers.md.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::key::PublicKey;

/// Joins that the tracker lets go ahead per second: a thousand clients are back in five seconds.
pub const JOINS_PER_SECOND: u32 = 200;

/// No client waits longer: those beyond come together with others.
pub const WAIT_MAX: Duration = Duration::from_secs(5);

/// An address takes one place in the common queue within this time.
const PLACE_EVERY: Duration = Duration::from_secs(1);

/// Addresses whose places are remembered.
const ADDRESSES_MAX: usize = 1 << 16;

/// Registrations of all relays together per second.
pub const REGISTRATIONS_PER_SECOND: u32 = 5;

/// A relay need not register more often than this.
pub const REGISTER_EVERY: Duration = Duration::from_secs(30);

/// A relay that has missed this many registrations is not given to anybody.
const MISSED_MAX: u32 = 3;

/// A relay that was never reached is forgotten after this long.
const UNPROVEN_FOR: Duration = Duration::from_secs(30);

/// A relay that was reached is not looked at again for this long, whatever the complaints.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Relays that are known at most.
const RELAYS_MAX: usize = 20_000;

/// Parents that each listener gets.
pub const PARENTS: usize = 2;

/// How long a listener may take to connect where it was sent.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);

/// A listener that finds no room asks again after this long,
const AGAIN_SOON: Duration = Duration::from_millis(500);

/// this often, while relays are being looked at; then the publisher takes it.
const TRIES_MAX: u32 = 3;

/// Members that complain before a relay goes which the publisher still reaches.
const WITNESSES: usize = 2;

/// The answer to a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Where to subscribe, besides the parents that the asker has.
    pub parents: Vec<String>,
    /// How long to wait before that.
    pub wait_ms: u64,
    /// How far a relay is from the publisher, for it to say when it registers again.
    pub depth: usize,
    /// When it should; one without a parent asks again then.
    pub again_ms: u64,
}

/// What a joining listener claims, and what is known of it.
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
    /// How often it has asked and got no parent.
    pub tries: u32,
    /// Where the question came from.
    pub from: Option<IpAddr>,
    /// The member that signed the question.
    pub member: Option<PublicKey>,
    /// Listeners that its address has at the publisher.
    pub listening: usize,
}

/// Whether a relay is given to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It was never reached.
    Unproven,
    /// The publisher has reached it, or a member vouches for it.
    Proven,
    /// A listener complained, and the publisher checks.
    Suspect,
}

#[derive(Debug, Clone)]
struct Node {
    address: String,
    depth: usize,
    children: usize,
    /// Not given to anybody from then on, unless it registers again.
    expires: Timestamp,
    standing: Standing,
    /// When the publisher last reached it.
    reached: Timestamp,
    /// Who registered it.
    from: Option<IpAddr>,
    member: Option<PublicKey>,
    witnesses: Vec<PublicKey>,
}

/// A relay as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RelayStatus {
    /// Where it is reached.
    pub address: String,
    /// How far it is from the publisher.
    pub depth: usize,
    /// How many listen to it, by its own word and what was sent there since.
    pub children: usize,
    /// Whether it is given to others.
    pub standing: Standing,
}

/// Children beyond the arity, distance, children: the least is the best parent.
type Rank = (usize, usize, usize);

impl Node {
    fn root(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            depth: 0,
            children: 0,
            expires: Timestamp::MAX,
            standing: Standing::Proven,
            reached: Timestamp::ZERO,
            from: None,
            member: None,
            witnesses: Vec::new(),
        }
    }

    /// As a parent of one more.
    fn rank(&self, arity: usize) -> Rank {
        let beyond = (self.children + 1).saturating_sub(arity);
        (beyond, self.depth, self.children)
    }
}

/// A relay that the publisher should reach for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Where it is said to be.
    pub address: String,
    /// Not before: a relay that was just told its parents has nothing to show yet.
    pub after: Duration,
}

/// How many children the publisher takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Children that each relay takes.
    pub arity: usize,
    /// Children of the publisher, where no relay has room.
    pub listeners_max: usize,
    /// Children of the publisher from one address.
    pub per_address: usize,
}

impl Room {
    /// As many as there are.
    #[must_use]
    pub fn of_arity(arity: usize) -> Self {
        Self {
            arity,
            listeners_max: usize::MAX,
            per_address: usize::MAX,
        }
    }
}

/// Assigns parents.
#[derive(Debug)]
pub struct Tracker {
    root: Node,
    room: Room,
    relays: Vec<Node>,
    /// Those who were sent to the publisher: until when they may still be on their way, and from
    /// where.
    coming_to_root: Vec<(Timestamp, Option<IpAddr>)>,
    members_queue: Timestamp,
    queue: Timestamp,
    /// When an address next takes a place in the common queue, and in its own.
    places: HashMap<IpAddr, (Timestamp, Timestamp)>,
    probes: VecDeque<Probe>,
}

impl Tracker {
    /// For a publisher that listens at `root`.
    #[must_use]
    pub fn new(root: &str, room: Room) -> Self {
        Self {
            root: Node::root(root),
            room: Room {
                arity: room.arity.max(1),
                ..room
            },
            relays: Vec::new(),
            coming_to_root: Vec::new(),
            members_queue: Timestamp::ZERO,
            queue: Timestamp::ZERO,
            places: HashMap::new(),
            probes: VecDeque::new(),
        }
    }

    /// The publisher is reached at another address.
    pub fn set_root(&mut self, root: &str) {
        root.clone_into(&mut self.root.address);
    }

    /// Relays that are given to others.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.proven().count()
    }

    fn proven(&self) -> impl Iterator<Item = &Node> {
        let proven = |node: &&Node| node.standing != Standing::Unproven;
        self.relays.iter().filter(proven)
    }

    /// The relays that are known, the nearest first, at most `max`.
    #[must_use]
    pub fn list(&self, max: usize) -> Vec<RelayStatus> {
        let mut relays: Vec<_> = self.relays.iter().collect();
        relays.sort_by_key(|node| (node.depth, &node.address));
        let status = |node: &Node| RelayStatus {
            address: node.address.clone(),
            depth: node.depth,
            children: node.children,
            standing: node.standing,
        };
        relays.into_iter().take(max).map(status).collect()
    }

    /// Relays that an address has registered, this one apart.
    #[must_use]
    pub fn relays_of(&self, from: IpAddr, but: &str) -> usize {
        let of = |node: &&Node| node.from == Some(from) && node.address != but;
        self.relays.iter().filter(of).count()
    }

    /// A listener asks where to subscribe; `listeners` is how many of those that were sent
    /// to the publisher listen there.
    pub fn join(&mut self, now: Timestamp, listeners: usize, joining: &Joining) -> Assignment {
        self.relays.retain(|node| node.expires > now);
        self.coming_to_root.retain(|(until, _)| *until > now);
        self.root.children = listeners + self.coming_to_root.len();
        if let Some(dead) = &joining.dead {
            self.complain(now, dead, joining.member);
        }
        let own = joining.relay.as_deref();
        let known = own.and_then(|own| self.position(own));
        let claimed = joining.depth.map(|depth| depth.max(1));
        let place = known.map(|index| self.relays[index].depth).or(claimed);
        let parents = self.choose(joining, place.unwrap_or(usize::MAX));
        let wait = match known {
            Some(_) => Duration::ZERO,
            None => self.pace(now, joining),
        };
        for &index in &parents {
            self.expect_child(index, now + wait + CONNECTS_WITHIN, joining.from);
        }
        let deepest = parents.iter().map(|&index| self.node(index).depth).max();
        let depth = place.unwrap_or(deepest.unwrap_or(0) + 1);
        let addresses = parents
            .iter()
            .map(|&index| self.node(index).address.clone());
        let addresses: Vec<_> = addresses.collect();
        let orphan = addresses.is_empty() && joining.parents.is_empty();
        if let Some(address) = own {
            self.register(now, wait, depth, address, joining);
        }
        let again = if orphan {
            AGAIN_SOON * 2_u32.pow(joining.tries.min(4))
        } else {
            self.register_every()
        };
        Assignment {
            parents: addresses,
            wait_ms: wait.as_millis() as u64,
            depth,
            again_ms: again.as_millis() as u64,
        }
    }

    /// A listener has connected to the publisher; true when it was sent there.
    pub fn arrive(&mut self, now: Timestamp, from: Option<IpAddr>) -> bool {
        let coming = &mut self.coming_to_root;
        let sent = |(until, whence): &(Timestamp, Option<IpAddr>)| *until > now && *whence == from;
        let position = coming.iter().position(sent);
        position.map(|index| coming.remove(index)).is_some()
    }

    /// A relay that the publisher should reach for; the outcome goes to [`Tracker::on_probe`].
    pub fn next_probe(&mut self) -> Option<Probe> {
        self.probes.pop_front()
    }

    /// The publisher has reached a relay that speaks with its voice, or has not.
    pub fn on_probe(&mut self, now: Timestamp, address: &str, reached: bool) {
        let Some(index) = self.position(address) else {
            return;
        };
        if !reached {
            self.relays.swap_remove(index);
            return;
        }
        let again = MISSED_MAX * self.register_every();
        let node = &mut self.relays[index];
        node.reached = now;
        if node.standing == Standing::Unproven {
            node.expires = now + again;
        }
        node.standing = Standing::Proven;
    }

    fn position(&self, address: &str) -> Option<usize> {
        let mut relays = self.relays.iter();
        relays.position(|node| node.address == address)
    }

    /// A listener reports a relay as dead.
    fn complain(&mut self, now: Timestamp, dead: &str, member: Option<PublicKey>) {
        let Some(index) = self.position(dead) else {
            return;
        };
        let node = &mut self.relays[index];
        if let Some(member) = member.filter(|member| Some(*member) != node.member)
            && !node.witnesses.contains(&member)
        {
            node.witnesses.push(member);
        }
        if node.witnesses.len() >= WITNESSES {
            self.relays.swap_remove(index);
            return;
        }
        let due = now.since(node.reached) > PROBE_EVERY;
        if node.standing == Standing::Proven && due {
            node.standing = Standing::Suspect;
            let address = node.address.clone();
            let after = Duration::ZERO;
            self.probes.push_back(Probe { address, after });
        }
    }

    /// A relay says where it is.
    fn register(
        &mut self,
        now: Timestamp,
        wait: Duration,
        depth: usize,
        address: &str,
        joining: &Joining,
    ) {
        let proven_for = MISSED_MAX * self.register_every();
        if let Some(index) = self.position(address) {
            let node = &mut self.relays[index];
            (node.depth, node.children) = (depth, joining.children);
            node.witnesses.clear();
            if node.standing != Standing::Unproven {
                node.expires = now + proven_for;
            }
            return;
        }
        if self.relays.len() >= RELAYS_MAX {
            return;
        }
        let vouched = joining.member.is_some();
        self.relays.push(Node {
            address: address.to_owned(),
            depth,
            children: joining.children,
            expires: now + if vouched { proven_for } else { UNPROVEN_FOR },
            standing: if vouched {
                Standing::Proven
            } else {
                Standing::Unproven
            },
            reached: Timestamp::ZERO,
            from: joining.from,
            member: joining.member,
            witnesses: Vec::new(),
        });
        if !vouched {
            let address = address.to_owned();
            let after = wait;
            self.probes.push_back(Probe { address, after });
        }
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
    /// first, then the nearest, then the least burdened.
    fn choose(&self, joining: &Joining, place: usize) -> Vec<usize> {
        let own = joining.relay.as_ref();
        let root_has_room =
            self.root.children < self.room.arity && self.root_takes(joining, joining.from);
        let suits = |&index: &usize| {
            let node = self.node(index);
            let has = joining.parents.contains(&node.address) || own == Some(&node.address);
            let dead = joining.dead.as_ref() == Some(&node.address);
            node.standing == Standing::Proven && node.depth < place && !has && !dead
        };
        let mut chosen = Vec::new();
        while chosen.len() + joining.parents.len() < PARENTS {
            let left = usize::from(!root_has_room)..=self.relays.len();
            let left = left.filter(suits).filter(|index| !chosen.contains(index));
            match left.min_by_key(|&index| self.node(index).rank(self.room.arity)) {
                Some(index) => chosen.push(index),
                None => break,
            }
        }
        if chosen.is_empty() && joining.parents.is_empty() && self.is_last_resort(joining) {
            chosen.push(0);
        }
        chosen
    }

    /// Whether the publisher takes a listener beyond its arity: no relay has room, and no relay
    /// about to be.
    fn is_last_resort(&self, joining: &Joining) -> bool {
        let own = joining.relay.as_ref();
        let pending =
            |node: &Node| node.standing == Standing::Unproven && Some(&node.address) != own;
        let patient = joining.tries < TRIES_MAX && self.relays.iter().any(pending);
        !patient && self.root_takes(joining, joining.from)
    }

    fn root_takes(&self, joining: &Joining, from: Option<IpAddr>) -> bool {
        let coming = self.coming_to_root.iter();
        let coming = coming.filter(|(_, whence)| from.is_some() && *whence == from);
        self.root.children < self.room.listeners_max
            && joining.listening + coming.count() < self.room.per_address
    }

    /// A listener was sent there, and is to arrive before `until`.
    fn expect_child(&mut self, index: usize, until: Timestamp, from: Option<IpAddr>) {
        match index.checked_sub(1) {
            None => self.coming_to_root.push((until, from)),
            Some(index) => self.relays[index].children += 1,
        }
    }

    fn pace(&mut self, now: Timestamp, joining: &Joining) -> Duration {
        if joining.member.is_some() {
            return take_place(&mut self.members_queue, now);
        }
        let Some(from) = joining.from else {
            return take_place(&mut self.queue, now);
        };
        if self.places.len() >= ADDRESSES_MAX {
            self.places
                .retain(|_, (common, own)| *common.max(own) > now);
        }
        let (common, mut own) = self.places.get(&from).copied().unwrap_or((now, now));
        let behind_itself = take_place(&mut own, now);
        if common > now {
            self.places.insert(from, (common, own));
            return behind_itself;
        }
        self.places.insert(from, (now + PLACE_EVERY, own));
        behind_itself.max(take_place(&mut self.queue, now))
    }
}

/// Takes the next place of a queue. One that is full is begun anew: those beyond come together with
/// those before, instead of ever later.
fn take_place(queue: &mut Timestamp, now: Timestamp) -> Duration {
    let place = if queue.since(now) > WAIT_MAX {
        now
    } else {
        (*queue).max(now)
    };
    *queue = place + Duration::from_secs(1) / JOINS_PER_SECOND;
    place.since(now)
}

#[cfg(test)]
mod tests;
