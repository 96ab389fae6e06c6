//! A finite pool of servers divided among applications by expected revenue (003 §4.1).
//!
//! Each application bids: what it would earn per second with `n` servers, for each target that its
//! agreement allows at the predicted rate. A longer target lets a server do more and may earn less,
//! so that degrading the target, adding servers or both come out of one maximum.
//!
//! Small pools are divided exactly, by dynamic programming over applications. For a large one, the
//! bids are replaced by their concave hulls, servers go one by one to the steepest, and what the
//! hulls would earn is a bound that the status shows beside what the division earns.
//!
//! Guarantees come before revenue: a server that a guarantee needs is worth more than all others
//! together. What is left of a short pool goes by revenue.
//!
//! What breaks it: rates that change between the prediction and its time.

/// Steps of the dynamic programme up to which the division is exact.
const EXACT_STEPS_MAX: u64 = 4_000_000;

/// What it costs to give an application another server, as a share of the most that it can earn
/// there: it earns nothing while it starts, and the rates that speak for it waver. Where less is at
/// stake servers stay where they are.
const MOVE_COST: f64 = 0.1;

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
    /// Servers that its guarantees need.
    pub guaranteed: u32,
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
    /// Requests per second that are admitted before those of any other class.
    pub guarantee: f64,
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

    /// Guaranteed requests first, then the most valuable ones, until the capacity is used up.
    fn earned(&self, capacity: f64) -> f64 {
        let mut classes = self.classes.clone();
        classes.sort_by(|a, b| b.revenue.total_cmp(&a.revenue));
        let mut left = capacity;
        let mut earned = 0.0;
        let mut serve = |rate: f64, revenue: f64| {
            let served = rate.min(left);
            earned += served * revenue;
            left -= served;
        };
        for class in &classes {
            serve(class.rate.min(class.guarantee), class.revenue);
        }
        for class in &classes {
            serve((class.rate - class.guarantee).max(0.0), class.revenue);
        }
        earned
    }

    /// The most that a server can earn.
    fn unit(&self) -> f64 {
        let classes = self.classes.iter().map(|class| class.revenue);
        let options = self.options.iter().map(|option| option.per_server);
        classes.fold(0.0, f64::max) * options.fold(0.0, f64::max)
    }

    /// The most that any number of servers earns.
    fn earns_at_most(&self) -> f64 {
        let classes = self.classes.iter();
        classes.map(|class| class.rate * class.revenue).sum()
    }

    /// What is maximised: revenue less the servers' cost, less what missing guarantees cost, and
    /// what servers that are gained cost.
    fn worth(&self, servers: u32, prices: Prices) -> f64 {
        let (earned, _) = self.earns(servers);
        let gained = f64::from(servers.saturating_sub(self.current));
        let missing = f64::from(self.guaranteed.saturating_sub(servers));
        let costs = prices.server * f64::from(servers) + prices.guarantee * missing;
        earned - costs - prices.moves * self.unit() * gained
    }

    fn most(&self, pool: u32) -> u32 {
        self.max.min(pool).max(self.min)
    }
}

/// What is paid per second.
#[derive(Debug, Clone, Copy)]
struct Prices {
    /// For a server.
    server: f64,
    /// For a server that a guarantee needs and does not have.
    guarantee: f64,
    /// For a server that is gained, as a share of the most that it can earn.
    moves: f64,
}

impl Prices {
    /// A missing guarantee costs more than everything else is worth.
    fn new(pool: u32, bids: &[Bid], cost: f64) -> Self {
        let earned: f64 = bids.iter().map(Bid::earns_at_most).sum();
        let moves: f64 = bids.iter().map(|bid| MOVE_COST * bid.unit()).sum();
        Self {
            server: cost,
            guarantee: 1.0 + 2.0 * earned + (cost + moves) * f64::from(pool),
            moves: MOVE_COST,
        }
    }

    /// Revenue alone.
    const NONE: Self = Self {
        server: 0.0,
        guarantee: 0.0,
        moves: 0.0,
    };
}

/// Divides `pool` servers; `cost` is what a server costs per second. Minima come first: where the
/// pool is smaller than they are, it is given in the order of the bids.
#[must_use]
pub fn divide(pool: u32, bids: &[Bid], cost: f64) -> Division {
    let minima: u64 = bids.iter().map(|bid| u64::from(bid.min)).sum();
    let prices = Prices::new(pool, bids, cost);
    let servers = if minima >= u64::from(pool) {
        only_minima(pool, bids)
    } else if steps(pool, bids) <= EXACT_STEPS_MAX {
        exact(pool, bids, prices)
    } else {
        steepest(pool, bids, prices)
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

/// Dynamic programming: the best that the first bids can do with this many servers.
fn exact(pool: u32, bids: &[Bid], prices: Prices) -> Vec<u32> {
    let size = pool as usize + 1;
    let mut best = vec![f64::NEG_INFINITY; size];
    best[0] = 0.0;
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(bids.len());
    for bid in bids {
        let worth: Vec<f64> = (0..=bid.most(pool)).map(|n| bid.worth(n, prices)).collect();
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
fn slopes(bid: &Bid, pool: u32, prices: Prices) -> Vec<(f64, u32)> {
    let points: Vec<(u32, f64)> = (bid.min..=bid.most(pool))
        .map(|n| (n, bid.worth(n, prices)))
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
fn pieces(pool: u32, bids: &[Bid], prices: Prices) -> Vec<(usize, f64, u32)> {
    let of = |(index, bid): (usize, &Bid)| {
        let pieces = slopes(bid, pool, prices).into_iter();
        pieces.map(move |(slope, servers)| (index, slope, servers))
    };
    let mut all: Vec<_> = bids.iter().enumerate().flat_map(of).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

fn steepest(pool: u32, bids: &[Bid], prices: Prices) -> Vec<u32> {
    let mut servers: Vec<u32> = bids.iter().map(|bid| bid.min).collect();
    let mut left = pool - servers.iter().sum::<u32>();
    for (index, slope, wanted) in pieces(pool, bids, prices) {
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
    for (_, slope, wanted) in pieces(pool, bids, Prices::NONE) {
        let given = f64::from(wanted).min(left);
        bound += slope.max(0.0) * given;
        left -= given;
    }
    bound * (1.0 + 1e-9)
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
            guaranteed: min,
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
            classes: vec![ClassRate {
                rate,
                revenue,
                guarantee: 0.0,
            }],
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
    fn guarantee_comes_before_revenue_and_the_rest_goes_by_revenue() {
        let guaranteed = |servers: u32| Bid {
            guaranteed: servers,
            ..bid(400.0, 1.0, 1, 11)
        };
        let dear = bid(1600.0, 50.0, 1, 11);
        let without = divide(11, &[guaranteed(1), dear.clone()], 0.0);
        assert_eq!(without.servers, [1, 10]);
        let with = divide(11, &[guaranteed(4), dear.clone()], 0.0);
        assert_eq!(with.servers, [4, 7]);
        assert_eq!(
            steepest(11, &[guaranteed(4), dear.clone()], {
                Prices::new(11, &[guaranteed(4), dear], 0.0)
            }),
            [4, 7]
        );
    }

    #[test]
    fn guaranteed_requests_are_served_before_dearer_ones() {
        let mut mixed = bid(0.0, 0.0, 1, 1);
        let class = |rate, revenue, guarantee| ClassRate {
            rate,
            revenue,
            guarantee,
        };
        mixed.classes = vec![class(100.0, 10.0, 0.0), class(50.0, 1.0, 20.0)];
        // 58/s: 20 that are guaranteed, and 38 that earn ten times as much.
        assert!((mixed.earned(58.0) - (20.0 + 380.0)).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn guarantees_are_missed_only_where_the_pool_is_used_up_by_guarantees(
            bids in proptest::collection::vec(any_bid(), 1..4), pool in 9..14u32, cost in 0.0..20.0f64,
        ) {
            let division = divide(pool, &bids, cost);
            let missing: u32 = bids.iter().zip(&division.servers)
                .map(|(bid, &n)| bid.guaranteed.saturating_sub(n)).sum();
            let beyond: u32 = bids.iter().zip(&division.servers)
                .map(|(bid, &n)| n.saturating_sub(bid.guaranteed)).sum();
            let free = pool - division.servers.iter().sum::<u32>();
            prop_assert!(missing == 0 || beyond + free == 0, "{division:?}");
        }
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
            0..6u32,
        )
            .prop_map(|(rate, revenue, min, more, current, share, guaranteed)| {
                let mut bid = bid(rate, revenue, min, min + more);
                bid.current = current;
                bid.guaranteed = guaranteed.clamp(min, min + more);
                bid.options[1].per_server = 90.0;
                bid.options[1].revenue_share = share;
                bid
            })
    }

    /// All divisions, one by one.
    fn best_by_force(pool: u32, bids: &[Bid], prices: Prices) -> f64 {
        match bids {
            [] => 0.0,
            [first, rest @ ..] => (first.min..=first.most(pool).min(pool))
                .map(|n| first.worth(n, prices) + best_by_force(pool - n, rest, prices))
                .fold(f64::NEG_INFINITY, f64::max),
        }
    }

    proptest! {
        #[test]
        fn small_pools_are_divided_exactly(
            bids in proptest::collection::vec(any_bid(), 1..4), pool in 9..14u32, cost in 0.0..20.0f64,
        ) {
            let division = divide(pool, &bids, cost);
            let prices = Prices::new(pool, &bids, cost);
            let worth = |bid: &Bid, n: u32| bid.worth(n, prices);
            let worth: f64 = bids.iter().zip(&division.servers).map(|(b, &n)| worth(b, n)).sum();
            prop_assert!((worth - best_by_force(pool, &bids, prices)).abs() < 1e-6);
            prop_assert!(division.servers.iter().sum::<u32>() <= pool);
            for (bid, &n) in bids.iter().zip(&division.servers) {
                prop_assert!(n >= bid.min && n <= bid.most(pool));
            }
        }

        #[test]
        fn steepest_keeps_to_pool_and_bounds(
            bids in proptest::collection::vec(any_bid(), 1..6), pool in 18..30u32,
        ) {
            let servers = steepest(pool, &bids, Prices::NONE);
            let earned: f64 = bids.iter().zip(&servers).map(|(b, &n)| b.earns(n).0).sum();
            let best = exact(pool, &bids, Prices::NONE);
            let best: f64 = bids.iter().zip(&best).map(|(b, &n)| b.earns(n).0).sum();
            prop_assert!(servers.iter().sum::<u32>() <= pool);
            prop_assert!(earned <= best * (1.0 + 1e-3) + 1e-2);
            prop_assert!(hull_bound(pool, &bids) + 1e-2 >= best);
        }
    }
}
