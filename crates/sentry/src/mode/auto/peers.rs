//! What replicas of a weight have found out so far.
//!
//! A first trial rests on twenty requests, and chance decides some the wrong way. Then a slow
//! replica goes on to larger windows, while its neighbours do as much with smaller ones. So as long
//! as nothing is known of it, a window that is enough for most of them is tried: tried and not
//! taken, because a replica may do as much as others with more workers, each of them slower.
//!
//! It ends there. To go by the others later too brought a little in the mean, and now and then a
//! window that was found too small by one was found so by all (docs/decisions/0064).

use std::collections::BTreeMap;

use super::tuning::Tuning;

/// The window of a replica whose throughput is known to be capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SettledWindow {
    pub(super) window: u32,
    /// Requests per second.
    pub(super) rate: f64,
}

/// What replicas of a weight have found out so far.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<u32, Kind>);

/// Replicas of one weight.
#[derive(Debug, Default)]
struct Kind {
    count: usize,
    /// By window.
    known: Vec<SettledWindow>,
}

impl Peers {
    /// Takes of each replica its weight and what it has found.
    pub(super) fn of(all: impl Iterator<Item = (u32, Option<SettledWindow>)>) -> Self {
        let mut kinds: BTreeMap<u32, Kind> = BTreeMap::new();
        for (weight, found) in all {
            let kind = kinds.entry(weight).or_default();
            kind.count += 1;
            kind.known.extend(found);
        }
        for kind in kinds.values_mut() {
            kind.known.sort_by_key(|found| found.window);
        }
        Self(kinds)
    }

    /// The window with which most of the others do as much as one that does `rate` and has found
    /// nothing. Nothing if fewer than half of them have.
    pub(super) fn window_for(&self, weight: u32, rate: f64) -> Option<u32> {
        let kind = self.0.get(&weight)?;
        if kind.known.len() * 2 < kind.count - 1 {
            return None;
        }
        let found = kind.known.get(kind.known.len() / 2)?;
        let as_much = rate < Tuning::PEERS_NO_MORE.get() * found.rate
            && found.rate < Tuning::PEERS_NOT_FAR_LESS.get() * rate;
        as_much.then_some(found.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(window: u32, rate: f64) -> Option<SettledWindow> {
        Some(SettledWindow { window, rate })
    }

    /// What most of the others need to do 25 requests a second.
    fn enough(others: &[Option<SettledWindow>]) -> Option<u32> {
        let all = others.iter().copied().chain([None]);
        Peers::of(all.map(|found| (1, found))).window_for(1, 25.0)
    }

    #[test]
    fn most_of_the_others_show_what_is_enough() {
        let [two, three, wide] = [found(2, 25.0), found(3, 26.0), found(57, 25.0)];
        assert_eq!(enough(&[two]), Some(2));
        assert_eq!(enough(&[three, two]), Some(3));
        assert_eq!(enough(&[two, None]), Some(2));
        assert_eq!(enough(&[wide, two]), Some(57));
        assert_eq!(enough(&[wide, two, three]), Some(3));
    }

    #[test]
    fn few_of_them_show_nothing() {
        assert_eq!(enough(&[]), None);
        assert_eq!(enough(&[None]), None);
        assert_eq!(enough(&[found(2, 25.0), None, None]), None);
    }

    #[test]
    fn who_does_more_or_far_less_is_not_compared() {
        let peers = Peers::of([(1, None), (1, found(2, 25.0))].into_iter());
        assert_eq!(peers.window_for(1, 30.0), None);
        assert_eq!(peers.window_for(1, 20.0), Some(2));
        assert_eq!(peers.window_for(1, 10.0), None);
    }

    #[test]
    fn another_weight_is_another_kind() {
        let all = [
            (1, None),
            (1, found(2, 25.0)),
            (4, None),
            (4, found(8, 25.0)),
        ];
        let peers = Peers::of(all.into_iter());
        assert_eq!(peers.window_for(1, 25.0), Some(2));
        assert_eq!(peers.window_for(4, 25.0), Some(8));
        assert_eq!(peers.window_for(2, 25.0), None);
    }
}
