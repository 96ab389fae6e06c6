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
    /// When it was made and by whom, where a proxy has secured that.
    pub secured: Option<Secured>,
}

/// What the proxy's receipt says, and the receipt itself for the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Secured {
    /// The client's public key.
    pub client: String,
    /// Milliseconds since the Unix epoch.
    pub made_ms: u64,
    /// As it was received; `tidegate channel receipt` checks it.
    pub receipt: String,
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
    /// Another client has bid under this name.
    Taken,
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

    /// Takes a bid; `item` names it over retransmissions. A name belongs to the key that has bid
    /// under it first.
    pub fn bid(
        &mut self,
        now: Duration,
        bidder: &str,
        amount: u64,
        item: Option<&str>,
        secured: Option<Secured>,
    ) -> Receipt {
        let key = |secured: &Option<Secured>| secured.as_ref().map(|it| it.client.clone());
        let earlier = self.bids.get(bidder);
        if earlier.is_some_and(|earlier| key(&earlier.secured) != key(&secured)) {
            return Receipt::Taken;
        }
        if item.is_some_and(|item| self.seen.contains(item)) {
            return Receipt::Known;
        }
        if now >= self.closes {
            return Receipt::Closed;
        }
        self.seen.extend(item.map(str::to_owned));
        self.received += 1;
        let bid = Bid {
            amount,
            at: now,
            secured,
        };
        self.bids.insert(bidder.to_owned(), bid);
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

    /// The highest bid, of two equal ones that which was made earlier; only after the end.
    #[must_use]
    pub fn winner(&self, now: Duration) -> Option<Winner> {
        if now < self.closes {
            return None;
        }
        let best = self.bids.iter().max_by(|(_, a), (_, b)| {
            let made = |bid: &Bid| bid.secured.as_ref().map(|it| it.made_ms);
            let by_time = made(b).cmp(&made(a)).then(b.at.cmp(&a.at));
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
        auction.bid(at(1), "ann", 100, None, None);
        auction.bid(at(2), "bob", 300, None, None);
        auction.bid(at(3), "cid", 300, None, None);
        assert_eq!(auction.winner(at(59)), None);
        assert_eq!(auction.winner(at(60)).unwrap().bidder, "bob");
        assert_eq!(auction.bid(at(60), "ann", 900, None, None), Receipt::Closed);
    }

    #[test]
    fn a_later_bid_replaces_and_a_repeated_one_changes_nothing() {
        let mut auction = Auction::new(at(60));
        assert_eq!(
            auction.bid(at(1), "ann", 100, Some("ann-1"), None),
            Receipt::Confirmed
        );
        assert_eq!(
            auction.bid(at(2), "ann", 200, Some("ann-2"), None),
            Receipt::Confirmed
        );
        assert_eq!(
            auction.bid(at(3), "ann", 100, Some("ann-1"), None),
            Receipt::Known
        );
        assert_eq!(auction.own("ann").unwrap().amount, 200);
        assert_eq!(auction.received(), 2);
        // What was confirmed stays confirmed after the end.
        assert_eq!(
            auction.bid(at(90), "ann", 200, Some("ann-2"), None),
            Receipt::Known
        );
    }

    #[test]
    fn a_name_belongs_to_the_key_that_bid_first_and_time_is_that_of_making() {
        let by = |client: &str, made_ms| {
            Some(Secured {
                client: client.to_owned(),
                made_ms,
                receipt: String::new(),
            })
        };
        let mut auction = Auction::new(at(60));
        auction.bid(at(1), "ann", 100, None, by("a", 500));
        assert_eq!(
            auction.bid(at(2), "ann", 1, None, by("b", 600)),
            Receipt::Taken
        );
        // Received later, and made earlier.
        auction.bid(at(3), "bob", 100, None, by("b", 400));
        assert_eq!(auction.winner(at(60)).unwrap().bidder, "bob");
    }
}
