//! Trees of relays when some of them die (001 §4.3, figure 6).
//!
//! Client `p` (by its place in a tree) receives from place `(p - arity)/arity`, the first `arity`
//! places from the server; every further tree has the clients in another random order, so that
//! whoever feeds many in one tree is likely to be a leaf in another. A client passes on what it
//! got from whichever parent was first. What the server sends per message is `arity` copies per
//! tree, whatever the number of clients.
//!
//! After a while an orphan, all of whose parents are dead or cut off, asks the tracker for the
//! nearest living ancestor and is served again: that is the second number.

use rand::RngExt;
use rand::seq::SliceRandom;

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
    let trees: Vec<Tree> = (0..setup.trees)
        .map(|tree| Tree::new(setup, &streams, tree))
        .collect();
    let mut deaths = streams.stream("deaths");
    let alive: Vec<bool> = (0..setup.clients)
        .map(|_| deaths.random::<f64>() >= setup.killed)
        .collect();
    let hops = spread(setup, &trees, &alive);
    let living = alive.iter().filter(|&&alive| alive).count();
    let reached: Vec<f64> = hops
        .iter()
        .filter(|&&hops| hops != u32::MAX)
        .map(|&hops| f64::from(hops) * setup.hop_s)
        .collect();
    Outcome {
        copies: setup.trees * setup.arity.min(setup.clients),
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

/// Hops from the server to each client, breadth first over all trees; the maximum where nothing
/// arrives.
fn spread(setup: &Setup, trees: &[Tree], alive: &[bool]) -> Vec<u32> {
    let mut hops = vec![u32::MAX; alive.len()];
    let mut frontier: Vec<Option<usize>> = vec![None];
    let mut distance = 0;
    while !frontier.is_empty() {
        distance += 1;
        let mut next = Vec::new();
        for &from in &frontier {
            for tree in trees {
                for &child in tree.children(from, setup.arity) {
                    if alive[child] && hops[child] == u32::MAX {
                        hops[child] = distance;
                        next.push(Some(child));
                    }
                }
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
    };

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
