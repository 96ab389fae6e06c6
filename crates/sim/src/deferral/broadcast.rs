//! Trees of relays when some of them die (001 §4.3, figure 6).
//!
//! Client `p` (by its place in a tree) receives from place `(p - arity)/arity`, the first `arity`
//! places from the server; every further tree has the clients in another random order, so that
//! a node that feeds many in one tree is likely to be a leaf in another. A client passes on what it
//! got from whichever parent was first. These are the paper's trees.
//!
//! The channel's own are formed by its [`Tracker`]: every client is a relay, joins after the one
//! before it, and gets two parents. What the server sends is then what the tracker has sent to it.

use std::collections::HashMap;

use rand::RngExt;
use rand::seq::SliceRandom;
use tidegate_channel::tracker::{Joining, Room, Tracker};
use tidegate_control::Timestamp;

use crate::rng::Streams;

/// Which trees, and what dies.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How many clients.
    pub clients: usize,
    /// Children of each.
    pub arity: usize,
    /// Trees, each with the clients in another order.
    pub trees: usize,
    /// Share of clients that die at once.
    pub killed: f64,
    /// Time from a parent to its child.
    pub hop_s: f64,
    /// Whether the channel's tracker forms the trees.
    pub tracker: bool,
}

/// What one message reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Copies that the server sent.
    pub copies: usize,
    /// Share of the living clients that had it without any repair.
    pub reached: f64,
    /// When the last of them had it, in seconds.
    pub delay_s_max: f64,
    /// Their mean delay in seconds.
    pub delay_s_mean: f64,
}

/// Sends one message right after the kill.
#[must_use]
pub fn run(setup: &Setup, seed: u64) -> Outcome {
    let streams = Streams::new(seed);
    let network = if setup.tracker {
        tracked(setup)
    } else {
        planted(setup, &streams)
    };
    let mut deaths = streams.stream("deaths");
    let alive: Vec<bool> = (0..setup.clients)
        .map(|_| deaths.random::<f64>() >= setup.killed)
        .collect();
    let hops = spread(&network, &alive);
    let living = alive.iter().filter(|&&alive| alive).count();
    let reached: Vec<f64> = hops
        .iter()
        .filter(|&&hops| hops != u32::MAX)
        .map(|&hops| f64::from(hops) * setup.hop_s)
        .collect();
    Outcome {
        copies: network.roots.len(),
        reached: reached.len() as f64 / living.max(1) as f64,
        delay_s_max: reached.iter().copied().fold(0.0, f64::max),
        delay_s_mean: reached.iter().sum::<f64>() / reached.len().max(1) as f64,
    }
}

/// The clients of one tree by place, and the place of each client.
struct Tree {
    client_at: Vec<usize>,
    place_of: Vec<usize>,
}

impl Tree {
    fn new(setup: &Setup, streams: &Streams, index: usize) -> Self {
        let mut client_at: Vec<usize> = (0..setup.clients).collect();
        client_at.shuffle(&mut streams.indexed("tree", index));
        let mut place_of = vec![0; setup.clients];
        for (place, &client) in client_at.iter().enumerate() {
            place_of[client] = place;
        }
        Self {
            client_at,
            place_of,
        }
    }

    /// The children of a client; those of the server when there is none.
    fn children(&self, client: Option<usize>, arity: usize) -> &[usize] {
        let first = match client {
            None => 0,
            Some(client) => arity + self.place_of[client] * arity,
        };
        let last = (first + arity).min(self.client_at.len());
        self.client_at.get(first..last).unwrap_or_default()
    }
}

/// Who passes a message on to whom.
struct Network {
    /// Those to whom the server sends, one entry per copy.
    roots: Vec<usize>,
    children: Vec<Vec<usize>>,
}

/// The paper's trees.
fn planted(setup: &Setup, streams: &Streams) -> Network {
    let mut network = Network {
        roots: Vec::new(),
        children: vec![Vec::new(); setup.clients],
    };
    for index in 0..setup.trees {
        let tree = Tree::new(setup, streams, index);
        network.roots.extend(tree.children(None, setup.arity));
        for (client, children) in network.children.iter_mut().enumerate() {
            children.extend(tree.children(Some(client), setup.arity));
        }
    }
    network
}

/// The channel's own.
fn tracked(setup: &Setup) -> Network {
    let mut network = Network {
        roots: Vec::new(),
        children: vec![Vec::new(); setup.clients],
    };
    let mut tracker = Tracker::new("root", Room::of_arity(setup.arity));
    let mut numbers = HashMap::new();
    for client in 0..setup.clients {
        // All within a second: who was sent to the server is still on its way.
        let now = Timestamp::from_secs_f64(1.0);
        let joining = Joining {
            relay: Some(client.to_string()),
            ..Joining::default()
        };
        let assignment = tracker.join(now, 0, &joining);
        while let Some(probe) = tracker.next_probe() {
            tracker.on_probe(now, &probe.address, true);
        }
        for parent in assignment.parents {
            match numbers.get(&parent) {
                Some(&parent) => network.children[parent as usize].push(client),
                None => network.roots.push(client),
            }
        }
        numbers.insert(client.to_string(), client as u32);
    }
    network
}

/// Hops from the server to each client, breadth first; the maximum where nothing arrives.
fn spread(network: &Network, alive: &[bool]) -> Vec<u32> {
    let mut hops = vec![u32::MAX; alive.len()];
    let mut frontier = network.roots.clone();
    let mut distance = 0;
    while !frontier.is_empty() {
        distance += 1;
        let mut next = Vec::new();
        for client in frontier {
            if alive[client] && hops[client] == u32::MAX {
                hops[client] = distance;
                next.extend(&network.children[client]);
            }
        }
        frontier = next;
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: Setup = Setup {
        clients: 1000,
        arity: 5,
        trees: 2,
        killed: 0.0,
        hop_s: 0.1,
        tracker: false,
    };

    #[test]
    fn the_trackers_trees_reach_everybody_at_the_arity_of_the_server() {
        for clients in [1, 10, 1000] {
            let tracker = true;
            let setup = Setup {
                clients,
                tracker,
                ..SETUP
            };
            let outcome = run(&setup, 1);
            assert_eq!(outcome.reached, 1.0);
            assert!(outcome.copies <= 5, "{outcome:?}");
            assert!(outcome.delay_s_max <= 1.3, "{outcome:?}");
        }
    }

    #[test]
    fn everybody_is_reached_and_the_cost_does_not_depend_on_their_number() {
        for clients in [10, 1000, 30_000] {
            let outcome = run(&Setup { clients, ..SETUP }, 1);
            assert_eq!((outcome.copies, outcome.reached), (10, 1.0));
            assert!(outcome.delay_s_max < 0.8);
        }
    }

    #[test]
    fn more_trees_reach_more_of_those_left() {
        let reached = |trees| {
            let killed = 0.3;
            run(
                &Setup {
                    trees,
                    killed,
                    ..SETUP
                },
                3,
            )
            .reached
        };
        assert!(reached(1) < 0.6 && reached(2) > 0.8 && reached(4) > 0.98);
    }
}
