//! A finite pool of servers divided among applications by expected revenue (003 §4.1).
//!
//! Each application bids: what it would earn per second with `n` servers, for each target that its
//! agreement allows at the predicted rate. A longer target lets a server do more and may earn less,
//! so that degrading the target, adding servers or both come out of one maximum.
//!
//! Small pools are divided exactly, by dynamic programming over applications. For a large one, the
//! bids are replaced by their concave hulls, servers go one by one to the steepest, and what the
//! hulls would earn is a bound that is reported beside what the division earns.
//!
//! What breaks it: rates that change between the prediction and its time.

/// Steps of the dynamic programme up to which the division is exact.
const EXACT_STEPS_MAX: u64 = 4_000_000;

/// What a move of a server costs, as a share of what it earns: between equals nothing is moved.
const MOVE_COST: f64 = 1e-6;

/// A target that may be in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetOption {
    /// The target.
    pub seconds: f64,
    /// Requests per second that one server can do within it.
    pub per_server: f64,
    /// What a request earns under it, as a share of its revenue.
    pub revenue_share: f64,
}

/// What an application would do with servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Bid {
    /// Servers it has now.
    pub current: u32,
    /// Fewest servers.
    pub min: u32,
    /// Most servers that it can use.
    pub max: u32,
    /// Targets, shortest first; at least one.
    pub options: Vec<TargetOption>,
    /// Predicted rates and revenues of its classes.
    pub classes: Vec<ClassRate>,
}

/// A class of a bid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassRate {
    /// Requests per second.
    pub rate: f64,
    /// What one earns.
    pub revenue: f64,
}

/// How the pool is divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Division {
    /// Servers of each bid.
    pub servers: Vec<u32>,
    /// The option in force of each bid.
    pub options: Vec<usize>,
    /// What they earn per second.
    pub revenue: f64,
    /// What no division can exceed.
    pub bound: f64,
}

impl Bid {
    /// What `servers` earn per second, and under which option. Equal options: the shorter target.
    #[must_use]
    pub fn earns(&self, servers: u32) -> (f64, usize) {
        let mut best = (f64::NEG_INFINITY, 0);
        for (index, option) in self.options.iter().enumerate() {
            let earned = option.revenue_share * self.earned(f64::from(servers) * option.per_server);
            if earned > best.0 * (1.0 + 1e-9) + 1e-12 {
                best = (earned, index);
            }
        }
        best
    }

    /// The most valuable requests first, until the capacity is used up.
    fn earned(&self, capacity: f64) -> f64 {
        let mut classes = self.classes.clone();
        classes.sort_by(|a, b| b.revenue.total_cmp(&a.revenue));
        let mut left = capacity;
        let mut earned = 0.0;
        for class in classes {
            let served = class.rate.min(left);
            earned += served * class.revenue;
            left -= served;
        }
        earned
    }

    /// What is maximised: revenue less the servers' cost, and a trifle for each move.
    fn worth(&self, servers: u32, cost: f64) -> f64 {
        let (earned, _) = self.earns(servers);
        let moved = f64::from(servers.abs_diff(self.current));
        let unit = self
            .classes
            .iter()
            .map(|class| class.revenue)
            .fold(0.0, f64::max);
        earned - cost * f64::from(servers) - MOVE_COST * unit * moved
    }

    fn most(&self, pool: u32) -> u32 {
        self.max.min(pool).max(self.min)
    }
}

/// Divides `pool` servers; `cost` is what a server costs per second. Minima come first: where the
/// pool is smaller than they are, it is given in the order of the bids.
#[must_use]
pub fn divide(pool: u32, bids: &[Bid], cost: f64) -> Division {
    let minima: u64 = bids.iter().map(|bid| u64::from(bid.min)).sum();
    let servers = if minima >= u64::from(pool) {
        only_minima(pool, bids)
    } else if steps(pool, bids) <= EXACT_STEPS_MAX {
        exact(pool, bids, cost)
    } else {
        steepest(pool, bids, cost)
    };
    let chosen = || bids.iter().zip(&servers).map(|(bid, &n)| bid.earns(n));
    let revenue = chosen().map(|(earned, _)| earned).sum();
    let is_exact = minima >= u64::from(pool) || steps(pool, bids) <= EXACT_STEPS_MAX;
    Division {
        options: chosen().map(|(_, option)| option).collect(),
        bound: if is_exact {
            revenue
        } else {
            hull_bound(pool, bids).max(revenue)
        },
        revenue,
        servers,
    }
}

fn steps(pool: u32, bids: &[Bid]) -> u64 {
    let choices: u64 = bids
        .iter()
        .map(|bid| u64::from(bid.most(pool).saturating_sub(bid.min)) + 1)
        .sum();
    choices * (u64::from(pool) + 1)
}

fn only_minima(pool: u32, bids: &[Bid]) -> Vec<u32> {
    let mut left = pool;
    let give = |bid: &Bid| {
        let given = bid.min.min(left);
        left -= given;
        given
    };
    bids.iter().map(give).collect()
}

/// Dynamic programming: the best that the first bids can do with so many servers.
fn exact(pool: u32, bids: &[Bid], cost: f64) -> Vec<u32> {
    let size = pool as usize + 1;
    let mut best = vec![f64::NEG_INFINITY; size];
    best[0] = 0.0;
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(bids.len());
    for bid in bids {
        let worth: Vec<f64> = (0..=bid.most(pool)).map(|n| bid.worth(n, cost)).collect();
        let mut next = vec![f64::NEG_INFINITY; size];
        let mut choice = vec![0; size];
        for used in (0..size).filter(|&used| best[used].is_finite()) {
            for n in bid.min..=bid.most(pool) {
                let all = used + n as usize;
                if all < size && best[used] + worth[n as usize] > next[all] {
                    next[all] = best[used] + worth[n as usize];
                    choice[all] = n;
                }
            }
        }
        best = next;
        choices.push(choice);
    }
    let mut used = (0..size)
        .rev()
        .max_by(|&a, &b| best[a].total_cmp(&best[b]))
        .unwrap_or(0);
    let mut servers = vec![0; bids.len()];
    for (index, choice) in choices.iter().enumerate().rev() {
        servers[index] = choice[used];
        used -= choice[used] as usize;
    }
    servers
}

/// Upper concave hull of a bid's worth, as slopes of the next servers from its minimum on.
fn slopes(bid: &Bid, pool: u32, cost: f64) -> Vec<(f64, u32)> {
    let points: Vec<(u32, f64)> = (bid.min..=bid.most(pool))
        .map(|n| (n, bid.worth(n, cost)))
        .collect();
    let mut hull: Vec<(u32, f64)> = Vec::new();
    let slope = |a: (u32, f64), b: (u32, f64)| (b.1 - a.1) / f64::from(b.0 - a.0);
    for point in points {
        while let [.., before, last] = hull.as_slice() {
            if slope(*before, *last) > slope(*last, point) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull.windows(2)
        .map(|pair| (slope(pair[0], pair[1]), pair[1].0 - pair[0].0))
        .collect()
}

/// Pieces of all hulls, steepest first: bid, slope, servers.
fn pieces(pool: u32, bids: &[Bid], cost: f64) -> Vec<(usize, f64, u32)> {
    let of = |(index, bid): (usize, &Bid)| {
        let pieces = slopes(bid, pool, cost).into_iter();
        pieces.map(move |(slope, servers)| (index, slope, servers))
    };
    let mut all: Vec<_> = bids.iter().enumerate().flat_map(of).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

fn steepest(pool: u32, bids: &[Bid], cost: f64) -> Vec<u32> {
    let mut servers: Vec<u32> = bids.iter().map(|bid| bid.min).collect();
    let mut left = pool - servers.iter().sum::<u32>();
    for (index, slope, wanted) in pieces(pool, bids, cost) {
        if slope <= 0.0 {
            break;
        }
        let given = wanted.min(left);
        servers[index] += given;
        left -= given;
    }
    servers
}

fn hull_bound(pool: u32, bids: &[Bid]) -> f64 {
    let minima: u32 = bids.iter().map(|bid| bid.min).sum();
    let mut left = f64::from(pool - minima);
    let mut bound: f64 = bids.iter().map(|bid| bid.earns(bid.min).0).sum();
    let free = |bid: &Bid| Bid {
        classes: bid.classes.clone(),
        options: bid.options.clone(),
        ..*bid
    };
    let bids: Vec<Bid> = bids.iter().map(free).collect();
    for (_, slope, wanted) in pieces(pool, &bids, 0.0) {
        let given = f64::from(wanted).min(left);
        bound += slope.max(0.0) * given;
        left -= given;
    }
    // The trifle for moves is no revenue lost.
    bound * (1.0 + 1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bid(rate: f64, revenue: f64, min: u32, max: u32) -> Bid {
        Bid {
            current: min,
            min,
            max,
            options: vec![
                TargetOption {
                    seconds: 1.0,
                    per_server: 58.0,
                    revenue_share: 1.0,
                },
                TargetOption {
                    seconds: 2.0,
                    per_server: 59.0,
                    revenue_share: 1.0,
                },
            ],
            classes: vec![ClassRate { rate, revenue }],
        }
    }

    #[test]
    fn scarce_servers_go_where_they_earn_more() {
        let division = divide(11, &[bid(400.0, 1.0, 3, 11), bid(1600.0, 2.0, 3, 11)], 0.0);
        assert_eq!(division.servers, [3, 8]);
        let swapped = divide(11, &[bid(400.0, 2.0, 3, 11), bid(1600.0, 1.0, 3, 11)], 0.0);
        assert_eq!(swapped.servers, [7, 4]);
    }

    #[test]
    fn target_is_degraded_only_where_that_earns_more() {
        let scarce = divide(4, &[bid(1600.0, 1.0, 3, 11)], 0.0);
        assert_eq!((scarce.servers[0], scarce.options[0]), (4, 1));
        let enough = divide(11, &[bid(100.0, 1.0, 3, 11)], 0.0);
        assert_eq!((enough.servers[0], enough.options[0]), (3, 0));
    }

    #[test]
    fn server_that_costs_more_than_it_earns_is_not_used() {
        let cheap = divide(10, &[bid(500.0, 1.0, 1, 10)], 1.0);
        let dear = divide(10, &[bid(500.0, 1.0, 1, 10)], 60.0);
        assert_eq!((cheap.servers[0], dear.servers[0]), (9, 1));
    }

    #[test]
    fn pool_below_the_minima_is_given_out_all_the_same() {
        let division = divide(4, &[bid(1.0, 1.0, 3, 9), bid(1.0, 1.0, 3, 9)], 0.0);
        assert_eq!(division.servers, [3, 1]);
    }

    #[test]
    fn large_pool_is_within_its_bound() {
        let bids: Vec<Bid> = (1..=60)
            .map(|i| {
                bid(
                    f64::from(i * 37 % 101) * 100.0,
                    f64::from(i % 7 + 1),
                    1,
                    4_000,
                )
            })
            .collect();
        let division = divide(3_000, &bids, 0.0);
        assert!(division.servers.iter().sum::<u32>() <= 3_000);
        assert!(division.revenue <= division.bound);
        assert!(division.revenue > 0.99 * division.bound, "{division:?}");
    }

    fn any_bid() -> impl Strategy<Value = Bid> {
        (
            0.0..900.0f64,
            0.0..9.0f64,
            0..3u32,
            0..6u32,
            0..8u32,
            0.3..1.0f64,
        )
            .prop_map(|(rate, revenue, min, more, current, share)| {
                let mut bid = bid(rate, revenue, min, min + more);
                bid.current = current;
                bid.options[1].per_server = 90.0;
                bid.options[1].revenue_share = share;
                bid
            })
    }

    /// All divisions, one by one.
    fn best_by_force(pool: u32, bids: &[Bid], cost: f64) -> f64 {
        match bids {
            [] => 0.0,
            [first, rest @ ..] => (first.min..=first.most(pool).min(pool))
                .map(|n| first.worth(n, cost) + best_by_force(pool - n, rest, cost))
                .fold(f64::NEG_INFINITY, f64::max),
        }
    }

    proptest! {
        #[test]
        fn small_pools_are_divided_exactly(
            bids in proptest::collection::vec(any_bid(), 1..4), pool in 9..14u32, cost in 0.0..20.0f64,
        ) {
            let division = divide(pool, &bids, cost);
            let worth: f64 = bids.iter().zip(&division.servers).map(|(b, &n)| b.worth(n, cost)).sum();
            prop_assert!((worth - best_by_force(pool, &bids, cost)).abs() < 1e-6);
            prop_assert!(division.servers.iter().sum::<u32>() <= pool);
            for (bid, &n) in bids.iter().zip(&division.servers) {
                prop_assert!(n >= bid.min && n <= bid.most(pool));
            }
        }

        #[test]
        fn steepest_keeps_to_pool_and_bounds(
            bids in proptest::collection::vec(any_bid(), 1..6), pool in 18..30u32,
        ) {
            let servers = steepest(pool, &bids, 0.0);
            let earned: f64 = bids.iter().zip(&servers).map(|(b, &n)| b.earns(n).0).sum();
            let best: f64 = divide(pool, &bids, 0.0).revenue;
            prop_assert!(servers.iter().sum::<u32>() <= pool);
            prop_assert!(earned <= best * (1.0 + 1e-3) + 1e-2);
            prop_assert!(hull_bound(pool, &bids) + 1e-2 >= best);
        }
    }
}
