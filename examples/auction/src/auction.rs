//! The rules: who bid what, and who wins. Times come in as arguments.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde::Serialize;

/// A bid as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bid {
    /// What is offered, in cents.
    pub amount: u64,
    /// When it was received, since the beginning.
    pub at: Duration,
}

/// How a bid was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Receipt {
    /// It counts, in place of an earlier one of the bidder if there was any.
    Confirmed,
    /// It was confirmed before.
    Known,
    /// The books are closed.
    Closed,
}

/// The winner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Winner {
    /// Who.
    pub bidder: String,
    /// What they pay: their own bid.
    pub amount: u64,
}

/// One auction.
#[derive(Debug)]
pub struct Auction {
    /// Until when bids are received.
    closes: Duration,
    bids: BTreeMap<String, Bid>,
    seen: HashSet<String>,
    received: u64,
}

impl Auction {
    /// Receives bids until `closes` after the beginning.
    #[must_use]
    pub fn new(closes: Duration) -> Self {
        Self {
            closes,
            bids: BTreeMap::new(),
            seen: HashSet::new(),
            received: 0,
        }
    }

    /// Takes a bid; `item` names it over retransmissions.
    pub fn bid(&mut self, now: Duration, bidder: &str, amount: u64, item: Option<&str>) -> Receipt {
        if item.is_some_and(|item| self.seen.contains(item)) {
            return Receipt::Known;
        }
        if now >= self.closes {
            return Receipt::Closed;
        }
        self.seen.extend(item.map(str::to_owned));
        self.received += 1;
        self.bids.insert(bidder.to_owned(), Bid { amount, at: now });
        Receipt::Confirmed
    }

    /// A bidder's own bid; nobody sees another's.
    #[must_use]
    pub fn own(&self, bidder: &str) -> Option<&Bid> {
        self.bids.get(bidder)
    }

    /// Bids received so far, changes included.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// How long bids are still received.
    #[must_use]
    pub fn left(&self, now: Duration) -> Duration {
        self.closes.saturating_sub(now)
    }

    /// The highest bid, the earlier of two equal ones; only after the end.
    #[must_use]
    pub fn winner(&self, now: Duration) -> Option<Winner> {
        if now < self.closes {
            return None;
        }
        let best = self.bids.iter().max_by(|(_, a), (_, b)| {
            let by_time = b.at.cmp(&a.at);
            a.amount.cmp(&b.amount).then(by_time)
        });
        best.map(|(bidder, bid)| Winner {
            bidder: bidder.clone(),
            amount: bid.amount,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_highest_bid_wins_after_the_end_and_the_earlier_of_two() {
        let mut auction = Auction::new(at(60));
        auction.bid(at(1), "ann", 100, None);
        auction.bid(at(2), "bob", 300, None);
        auction.bid(at(3), "cid", 300, None);
        assert_eq!(auction.winner(at(59)), None);
        assert_eq!(auction.winner(at(60)).unwrap().bidder, "bob");
        assert_eq!(auction.bid(at(60), "ann", 900, None), Receipt::Closed);
    }

    #[test]
    fn a_later_bid_replaces_and_a_repeated_one_changes_nothing() {
        let mut auction = Auction::new(at(60));
        assert_eq!(
            auction.bid(at(1), "ann", 100, Some("ann-1")),
            Receipt::Confirmed
        );
        assert_eq!(
            auction.bid(at(2), "ann", 200, Some("ann-2")),
            Receipt::Confirmed
        );
        assert_eq!(
            auction.bid(at(3), "ann", 100, Some("ann-1")),
            Receipt::Known
        );
        assert_eq!(auction.own("ann").unwrap().amount, 200);
        assert_eq!(auction.received(), 2);
        // What was confirmed stays confirmed after the end.
        assert_eq!(
            auction.bid(at(90), "ann", 200, Some("ann-2")),
            Receipt::Known
        );
    }
}
