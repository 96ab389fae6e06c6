use std::collections::{HashMap, HashSet};

use super::*;
use crate::strategy::ClientId;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_secs_f64(seconds)
}

fn relay(index: usize) -> Joining {
    Joining {
        relay: Some(format!("http://r{index}")),
        ..Joining::default()
    }
}

fn tracker(arity: usize) -> Tracker {
    Tracker::new("http://root", Room::of_arity(arity))
}

/// The publisher reaches for those that it should reach for.
fn probe(tracker: &mut Tracker, now: Timestamp, alive: impl Fn(&str) -> bool) {
    while let Some(probe) = tracker.next_probe() {
        tracker.on_probe(now, &probe.address, alive(&probe.address));
    }
}

/// Joins, and is reached if it is a relay.
fn join(tracker: &mut Tracker, now: Timestamp, listeners: usize, joining: &Joining) -> Assignment {
    let assignment = tracker.join(now, listeners, joining);
    probe(tracker, now, |_| true);
    assignment
}

fn address(last: u8) -> Option<IpAddr> {
    Some(IpAddr::from([192, 0, 2, last]))
}

fn member(seed: u8) -> Option<PublicKey> {
    Some(PublicKey([seed; 32]))
}

/// A thousand relays join one after the other.
fn forest() -> (Tracker, HashMap<String, Vec<String>>) {
    let mut tracker = tracker(5);
    let mut parents = HashMap::new();
    for index in 0..1000 {
        let joining = relay(index);
        // No listener has connected to the publisher yet.
        let assignment = join(&mut tracker, at(1.0), 0, &joining);
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
    // The last to come may find all relays full.
    assert!(children.values().all(|&count| count <= 6), "{children:?}");
    let deepest = parents.keys().map(|node| depth(&parents, node)).max();
    assert!(deepest.unwrap() <= 12, "{deepest:?}");
}

#[test]
fn relay_never_gets_a_parent_below_itself() {
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
    let mut tracker = tracker(5);
    let leaf = Joining::default();
    let waits: Vec<u64> = (0..400)
        .map(|_| tracker.join(at(1.0), 0, &leaf).wait_ms)
        .collect();
    assert_eq!((waits[0], waits[200], waits[399]), (0, 1000, 1995));
    assert_eq!(tracker.join(at(10.0), 0, &leaf).wait_ms, 0);
}

#[test]
fn strangers_cannot_make_others_wait() {
    let room = Room {
        listeners_max: 100,
        ..Room::of_arity(5)
    };
    let mut tracker = Tracker::new("http://root", room);
    // One address asks twenty thousand times.
    let mut insist = Joining {
        from: address(1),
        ..Joining::default()
    };
    for index in 0..20_000 {
        let now = at(1.0 + f64::from(index) / 1700.0);
        let wait = tracker.join(now, 0, &insist).wait_ms;
        assert!(wait <= 5000, "{wait}");
    }
    insist.from = address(2);
    let newcomer = tracker.join(at(13.0), 0, &insist).wait_ms;
    assert!(newcomer <= 100, "{newcomer}");
    // A thousand addresses do, and others wait no longer than all do.
    for index in 0..20_000_u32 {
        let [_, _, a, b] = index.to_be_bytes();
        insist.from = Some(IpAddr::from([10, 0, a, b]));
        assert!(tracker.join(at(14.0), 0, &insist).wait_ms <= 5000);
    }
    // Members have a queue of their own.
    insist.from = address(3);
    insist.member = member(1);
    assert_eq!(tracker.join(at(14.0), 0, &insist).wait_ms, 0);
}

#[test]
fn relay_that_nobody_has_reached_is_not_given_to_anybody() {
    let mut tracker = tracker(1);
    for index in 0..100 {
        tracker.join(at(1.0), 0, &relay(index));
    }
    assert_eq!(tracker.relays(), 0);
    let leaf = Joining {
        from: address(1),
        ..Joining::default()
    };
    // They may be about to be reached: it asks again, and then the publisher takes it.
    let first = tracker.join(at(1.0), 1, &leaf);
    assert_eq!((first.parents.len(), first.again_ms), (0, 500));
    let patient = Joining { tries: 3, ..leaf };
    assert_eq!(tracker.join(at(2.0), 1, &patient).parents, ["http://root"]);
    // None is there: they are forgotten. One is, and is given.
    probe(&mut tracker, at(3.0), |address| address == "http://r7");
    assert_eq!(tracker.relays(), 1);
    assert_eq!(tracker.join(at(4.0), 1, &patient).parents, ["http://r7"]);
}

#[test]
fn members_relay_is_given_at_once() {
    let mut tracker = tracker(1);
    let vouched = Joining {
        member: member(1),
        ..relay(1)
    };
    tracker.join(at(1.0), 0, &vouched);
    assert_eq!(tracker.next_probe(), None);
    assert_eq!(
        tracker.join(at(1.0), 1, &Joining::default()).parents,
        ["http://r1"]
    );
}

#[test]
fn dead_go_when_the_publisher_cannot_reach_them_either() {
    let mut tracker = tracker(1);
    join(&mut tracker, at(1.0), 0, &relay(1));
    let complaint = Joining {
        dead: Some("http://r1".to_owned()),
        ..Joining::default()
    };
    // It was reached just now.
    tracker.join(at(2.0), 1, &complaint);
    assert_eq!(tracker.next_probe(), None);
    // Later the publisher looks, and does not hand it out meanwhile.
    assert_eq!(
        tracker.join(at(9.0), 1, &complaint).parents,
        ["http://root"]
    );
    assert_eq!(
        tracker.join(at(9.0), 1, &Joining::default()).parents,
        ["http://root"]
    );
    probe(&mut tracker, at(9.1), |_| true);
    assert_eq!(
        tracker.join(at(9.2), 1, &Joining::default()).parents,
        ["http://r1"]
    );
    // However often strangers complain.
    for tenth in 0..1000 {
        let now = at(20.0 + f64::from(tenth) / 10.0);
        join(&mut tracker, now, 1, &complaint);
        join(&mut tracker, now, 1, &relay(1));
        assert_eq!(tracker.relays(), 1);
    }
    tracker.join(at(130.0), 1, &complaint);
    probe(&mut tracker, at(130.0), |_| false);
    assert_eq!(tracker.relays(), 0);
}

#[test]
fn two_members_are_believed_about_a_relay_that_only_the_publisher_reaches() {
    let mut tracker = tracker(1);
    join(&mut tracker, at(1.0), 0, &relay(1));
    let mut complaint = Joining {
        dead: Some("http://r1".to_owned()),
        member: member(1),
        ..Joining::default()
    };
    for _ in 0..5 {
        join(&mut tracker, at(2.0), 1, &complaint);
    }
    assert_eq!(tracker.relays(), 1);
    complaint.member = member(2);
    join(&mut tracker, at(2.0), 1, &complaint);
    assert_eq!(tracker.relays(), 0);
}

#[test]
fn silent_are_not_given_to_anybody() {
    let mut tracker = tracker(1);
    join(&mut tracker, at(3.0), 0, &relay(2));
    assert_eq!(tracker.relays(), 1);
    let later = at(4.0) + MISSED_MAX * REGISTER_EVERY;
    let assignment = tracker.join(later, 1, &Joining::default());
    assert_eq!(assignment.parents, ["http://root"]);
}

#[test]
fn publisher_takes_its_arity_however_many_come() {
    let mut tracker = tracker(5);
    let mut at_root = 0;
    for index in 0..2000 {
        let joining = match index % 10 {
            0 => relay(index),
            _ => Joining::default(),
        };
        let now = at(index as f64);
        let assignment = join(&mut tracker, now, at_root, &joining);
        // Each listener connects at once where it was sent.
        if assignment.parents.contains(&"http://root".to_owned()) {
            assert!(tracker.arrive(now, None));
            at_root += 1;
        }
    }
    assert_eq!(at_root, 5);
    assert!(
        !tracker.arrive(at(2001.0), None),
        "no other listener was sent"
    );
}

#[test]
fn publisher_takes_no_more_than_its_bound_and_a_share_of_it_from_one_address() {
    let room = Room {
        arity: 2,
        listeners_max: 10,
        per_address: 3,
    };
    let mut tracker = Tracker::new("http://root", room);
    let mut ask = |last| {
        let joining = Joining {
            from: address(last),
            tries: 9,
            ..Joining::default()
        };
        tracker.join(at(1.0), 0, &joining).parents.len()
    };
    let one: usize = (0..50).map(|_| ask(1)).sum();
    assert_eq!(one, 3);
    let others: usize = (2..50).map(&mut ask).sum();
    assert_eq!(others, 7);
}

#[test]
fn who_has_arrived_at_the_publisher_is_not_expected_any_more() {
    let mut tracker = tracker(2);
    let first = join(&mut tracker, at(1.0), 0, &relay(1));
    assert_eq!(first.parents, ["http://root"]);
    assert!(tracker.arrive(at(1.2), None));
    // One place is taken, one is free; the relay is the other parent.
    let second = tracker.join(at(1.5), 1, &Joining::default()).parents;
    assert_eq!(second, ["http://root", "http://r1"]);
    // The second is still on its way: the publisher is full.
    let third = tracker.join(at(1.6), 1, &Joining::default()).parents;
    assert_eq!(third, ["http://r1"]);
}

#[test]
fn orphan_gets_what_it_lacks_and_nothing_it_has() {
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

type Family = HashMap<String, Vec<String>>;

/// How many of the living are reached by what the publisher says.
fn reached(parents: &Family) -> usize {
    let mut hear = HashSet::from(["http://root"]);
    loop {
        let before = hear.len();
        let next = parents.iter().filter(|(_, above)| {
            let mut above = above.iter();
            above.any(|parent| hear.contains(parent.as_str()))
        });
        hear.extend(next.map(|(node, _)| node.as_str()).collect::<Vec<_>>());
        if hear.len() == before {
            return before - 1;
        }
    }
}

/// In a round each listener finds out which of its parents are dead, and asks for others. The
/// number of rounds until all the living are reached.
fn rounds_to_repair(is_dead: impl Fn(usize) -> bool) -> u32 {
    let (mut tracker, mut parents) = forest();
    let dead: HashSet<_> = (0..1000).filter(|&index| is_dead(index)).collect();
    let dead: HashSet<_> = dead
        .iter()
        .map(|index| format!("http://r{index}"))
        .collect();
    parents.retain(|node, _| !dead.contains(node));
    for round in 0.. {
        if reached(&parents) == parents.len() {
            return round;
        }
        for index in 0..1000 {
            let mut joining = relay(index);
            let now = at(10.0 + 0.2 * f64::from(round));
            let at_root = |above: &&Vec<String>| above.iter().any(|it| it == "http://root");
            let listeners = parents.values().filter(at_root).count();
            let Some(above) = parents.get_mut(&format!("http://r{index}")) else {
                continue;
            };
            let (lost, kept): (Vec<_>, Vec<_>) = std::mem::take(above)
                .into_iter()
                .partition(|p| dead.contains(p));
            *above = kept;
            for lost in lost {
                joining.parents.clone_from(above);
                joining.dead = Some(lost);
                above.extend(tracker.join(now, listeners, &joining).parents);
                probe(&mut tracker, now, |address| !dead.contains(address));
            }
        }
    }
    unreachable!("rounds have no end")
}

#[test]
fn rest_is_reached_again_within_a_few_questions_whoever_dies() {
    for percent in [10, 30, 50] {
        let random = |index| ClientId(index as u64).phase() < f64::from(percent) / 100.0;
        let rounds = rounds_to_repair(random);
        assert!(rounds <= 4, "{percent} % of all: {rounds}");
        // Those who came first are nearest to the publisher: no other relay is connected to it.
        let rounds = rounds_to_repair(|index| index < 10 * percent as usize);
        assert!(rounds <= 8, "the first {percent} %: {rounds}");
    }
}

#[test]
fn restarted_tracker_believes_where_a_relay_was() {
    let mut tracker = tracker(5);
    join(&mut tracker, at(1.0), 0, &relay(1));
    let returning = Joining {
        depth: Some(7),
        parents: vec!["http://r9".to_owned(), "http://r8".to_owned()],
        ..relay(2)
    };
    assert_eq!(tracker.join(at(1.0), 0, &returning).depth, 7);
    // No relay above it is put below it.
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
    let mut few = Tracker::new("http://root", Room::of_arity(5));
    assert_eq!(few.join(at(1.0), 0, &relay(1)).again_ms, 30_000);
}
