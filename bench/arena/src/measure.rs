//! What one bout was worth.

use tidegate_lab::load::{Second, Summary};
use tidegate_sim::arena::{Clairvoyant, Entry};

use crate::bout::Bout;
use crate::visitors::kind_name;

/// A generator that was this late at its 99th percentile was kept from its work by the machine.
const LAG_MAX_MS: f64 = 25.0;

/// Served like a clairvoyant, as far as settling is concerned.
const SETTLED: f64 = 0.9;

/// Seconds over which that has to hold.
const SETTLED_FOR: usize = 3;

/// The figures of a bout; NaN where there is nothing to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measures {
    /// Goodput within the target over what a clairvoyant would have served.
    pub(crate) goodput: f64,
    /// 95th percentile of what was answered, over the target.
    pub(crate) p95: f64,
    /// 99th percentile of what was answered, over the target.
    pub(crate) p99: f64,
    /// The longest answer, over the target.
    pub(crate) max: f64,
    /// Kleinrock's power: goodput over capacity, over the mean response time in units of work.
    pub(crate) power: f64,
    /// Revenue within the target over what a clairvoyant would have earned.
    pub(crate) revenue: f64,
    /// Share of tries that were refused.
    pub(crate) refused: f64,
    /// Answered per second.
    pub(crate) answered: f64,
    /// Seconds from the beginning of overload until the goodput is there, the longest.
    pub(crate) settle_s: f64,
    /// Seconds from the end of overload until the goodput is there, the longest.
    pub(crate) recover_s: f64,
    /// The contender's processor time per try, in microseconds.
    pub(crate) cpu_us: f64,
    /// Median time to a refusal, in milliseconds.
    pub(crate) refusal_ms: f64,
    /// 99th percentile of how late the generator was, in milliseconds.
    pub(crate) lag_ms: f64,
}

impl Measures {
    pub(crate) fn of(entry: &Entry, bout: &Bout) -> Self {
        let scenario = &entry.scenario;
        let mut clairvoyant = Clairvoyant::of(scenario);
        clairvoyant.work_s *= bout.luck;
        let load = &bout.load;
        let tries = load.attempts.as_ref().unwrap_or(&load.requests);
        let latency = tries.latency.unwrap_or(NOTHING);
        let target_ms = load.target_ms;
        let warm_up = scenario.warm_up.as_secs_f64();
        let expected = Expected::of(entry, &clairvoyant, &load.seconds);
        let ideal: f64 = expected.served_from(warm_up);
        let capacity = scenario.nominal_capacity() / clairvoyant.work_s;
        let answered = tries.ok as f64 / load.duration_s;
        Self {
            goodput: honest_in_target(entry, &clairvoyant, bout, tries) / ideal,
            p95: latency.p95_ms / target_ms,
            p99: latency.p99_ms / target_ms,
            max: latency.max_ms / target_ms,
            power: (answered / capacity) / (latency.mean_ms / 1e3 / clairvoyant.work_s),
            revenue: revenue(entry, bout, &expected),
            refused: tries.share(tries.shed),
            answered,
            settle_s: expected.slowest(&load.seconds, Turn::IntoOverload),
            recover_s: expected.slowest(&load.seconds, Turn::OutOfOverload),
            cpu_us: bout.cpu.as_secs_f64() * 1e6 / sent(bout).max(1.0),
            refusal_ms: tries
                .refusal_latency
                .map_or(f64::NAN, |latency| latency.p50_ms),
            lag_ms: load.send_lag.map_or(0.0, |lag| lag.p99_ms),
        }
    }

    /// Whether the machine had time for the experiment.
    pub(crate) fn is_trustworthy(&self) -> bool {
        self.lag_ms <= LAG_MAX_MS
    }
}

#[cfg(test)]
impl Measures {
    /// Nothing was measured.
    pub(crate) const NOTHING: Self = Self {
        goodput: f64::NAN,
        p95: f64::NAN,
        p99: f64::NAN,
        max: f64::NAN,
        power: f64::NAN,
        revenue: f64::NAN,
        refused: f64::NAN,
        answered: f64::NAN,
        settle_s: f64::NAN,
        recover_s: f64::NAN,
        cpu_us: f64::NAN,
        refusal_ms: f64::NAN,
        lag_ms: f64::NAN,
    };
}

const NOTHING: tidegate_lab::load::Quantiles = tidegate_lab::load::Quantiles {
    mean_ms: f64::NAN,
    p50_ms: f64::NAN,
    p90_ms: f64::NAN,
    p95_ms: f64::NAN,
    p99_ms: f64::NAN,
    p999_ms: f64::NAN,
    max_ms: f64::NAN,
};

/// Everything that reached the contender, warm-up included: what its processor time was spent on.
fn sent(bout: &Bout) -> f64 {
    let load = &bout.load;
    let offered: u64 = load.seconds.iter().map(|second| second.offered).sum();
    let tries = load
        .attempts
        .as_ref()
        .map_or(load.requests.total, |tries| tries.total);
    offered as f64 * tries as f64 / load.requests.total.max(1) as f64
}

/// Answers within the target to clients who mean no harm.
fn honest_in_target(entry: &Entry, clairvoyant: &Clairvoyant, bout: &Bout, tries: &Summary) -> f64 {
    if bout.load.kinds.is_empty() {
        return tries.within_target as f64;
    }
    let clients = entry
        .scenario
        .load
        .iter()
        .flat_map(|load| load.client.iter())
        .enumerate();
    clients
        .filter(|(_, client)| clairvoyant.serves(client))
        .filter_map(|(index, client)| bout.load.kinds.get(&kind_name(index, client)))
        .map(|kind| kind.within_target as f64)
        .sum()
}

/// Revenue within the target over the optimum: in every second the most valuable of what arrived,
/// as much of it as the capacity allows. NaN without classes.
fn revenue(entry: &Entry, bout: &Bout, expected: &Expected) -> f64 {
    let scenario = &entry.scenario;
    if scenario.class.is_empty() {
        return f64::NAN;
    }
    let clients: Vec<_> = scenario
        .load
        .iter()
        .flat_map(|load| load.client.iter())
        .collect();
    let all: f64 = clients.iter().map(|client| client.share).sum();
    let mut kinds: Vec<(f64, f64, f64)> = clients
        .iter()
        .enumerate()
        .map(|(index, client)| {
            let class = scenario
                .class
                .iter()
                .find(|class| Some(&class.name) == client.class.as_ref());
            let worth = class.map_or(0.0, |class| class.revenue);
            let kind = bout.load.kinds.get(&kind_name(index, client));
            let served = kind.map_or(0.0, |kind| kind.within_target as f64);
            (worth, client.share / all, served)
        })
        .collect();
    kinds.sort_by(|one, other| other.0.total_cmp(&one.0));
    let earned: f64 = kinds.iter().map(|(worth, _, served)| worth * served).sum();
    let optimum: f64 = expected
        .measured(scenario.warm_up.as_secs_f64())
        .map(|second| {
            let mut room = second.capacity;
            kinds
                .iter()
                .map(|(worth, share, _)| {
                    let served = (share * second.offered).min(room);
                    room -= served;
                    worth * served
                })
                .sum::<f64>()
        })
        .sum();
    earned / optimum
}

/// What a clairvoyant would have done with what arrived, second by second.
struct Expected {
    seconds: Vec<ExpectedSecond>,
}

#[derive(Debug, Clone, Copy)]
struct ExpectedSecond {
    start: f64,
    /// Honest requests that arrived.
    offered: f64,
    /// Requests that could be served.
    capacity: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    IntoOverload,
    OutOfOverload,
}

impl Expected {
    fn of(entry: &Entry, clairvoyant: &Clairvoyant, seconds: &[Second]) -> Self {
        let scenario = &entry.scenario;
        let whole = scenario.duration.as_secs_f64();
        let seconds = seconds
            .iter()
            .map(|second| second.second as f64)
            .zip(seconds);
        let seconds = seconds.take_while(|(start, _)| start + 1.0 <= whole + 1e-9);
        Self {
            seconds: seconds
                .map(|(start, second)| ExpectedSecond {
                    start,
                    offered: second.offered as f64 * clairvoyant.share,
                    capacity: scenario.capacity_at(start + 0.5) / clairvoyant.work_s,
                })
                .collect(),
        }
    }

    fn measured(&self, from: f64) -> impl Iterator<Item = &ExpectedSecond> {
        self.seconds
            .iter()
            .filter(move |second| second.start >= from - 1e-9)
    }

    fn served_from(&self, from: f64) -> f64 {
        self.measured(from)
            .map(|second| second.offered.min(second.capacity))
            .sum()
    }

    /// The longest time from a turn until the goodput is there, in seconds; NaN when there is no
    /// such turn. A goodput that is not there when the next turn comes counts until then.
    fn slowest(&self, seconds: &[Second], turn: Turn) -> f64 {
        let turns = self.turns();
        let ends = turns
            .iter()
            .skip(1)
            .map(|(at, _)| *at)
            .chain([self.seconds.len()]);
        turns
            .iter()
            .zip(ends)
            .filter(|((_, kind), _)| *kind == turn)
            .map(|((at, _), end)| self.time_to_settle(&seconds[*at..end.min(seconds.len())], *at))
            .fold(f64::NAN, f64::max)
    }

    /// Index of the second and kind of each turn. Overload is smoothed over a few seconds, because
    /// arrivals at the capacity itself cross it by chance all the time.
    fn turns(&self) -> Vec<(usize, Turn)> {
        let mut overloaded = false;
        let mut turns = Vec::new();
        for (index, window) in self.seconds.windows(SETTLED_FOR).enumerate() {
            let offered: f64 = window.iter().map(|second| second.offered).sum();
            let capacity: f64 = window.iter().map(|second| second.capacity).sum();
            let now = if overloaded {
                offered > 0.95 * capacity
            } else {
                offered > 1.2 * capacity
            };
            if now != overloaded {
                let turn = if now {
                    Turn::IntoOverload
                } else {
                    Turn::OutOfOverload
                };
                turns.push((index, turn));
                overloaded = now;
            }
        }
        turns
    }

    fn time_to_settle(&self, seconds: &[Second], from: usize) -> f64 {
        let ratio = |window: (&[Second], &[ExpectedSecond])| {
            let served: f64 = window
                .0
                .iter()
                .map(|second| second.within_target as f64)
                .sum();
            let expected: f64 = window
                .1
                .iter()
                .map(|second| second.offered.min(second.capacity))
                .sum();
            served / expected
        };
        let windows = seconds
            .windows(SETTLED_FOR)
            .zip(self.seconds[from..].windows(SETTLED_FOR));
        let settled = windows.map(ratio).position(|ratio| ratio >= SETTLED);
        settled.unwrap_or(seconds.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(offered: &[f64], capacity: &[f64]) -> Expected {
        let pairs = offered.iter().zip(capacity).enumerate();
        Expected {
            seconds: pairs
                .map(|(index, (&offered, &capacity))| ExpectedSecond {
                    start: index as f64,
                    offered,
                    capacity,
                })
                .collect(),
        }
    }

    fn served(each: &[u64]) -> Vec<Second> {
        let row = |(second, &within_target): (usize, &u64)| Second {
            second: second as u64,
            within_target,
            ..Second::default()
        };
        each.iter().enumerate().map(row).collect()
    }

    #[test]
    fn settling_counts_from_the_turn_into_overload() {
        let expected = expected(
            &[100.0; 12],
            &[
                200.0, 200.0, 200.0, 200.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0,
            ],
        );
        let seconds = served(&[100, 100, 100, 100, 0, 0, 50, 50, 50, 50, 50, 50]);
        let settle = expected.slowest(&seconds, Turn::IntoOverload);
        // The window of three that first holds the fall begins two seconds before it.
        assert!((2.0..=4.0).contains(&settle), "{settle}");
        assert!(expected.slowest(&seconds, Turn::OutOfOverload).is_nan());
    }

    #[test]
    fn who_never_settles_is_charged_until_the_next_turn() {
        let mut capacity = [50.0; 12];
        capacity[8..].fill(300.0);
        let expected = expected(&[100.0; 12], &capacity);
        let seconds = served(&[0; 12]);
        assert!(expected.slowest(&seconds, Turn::IntoOverload) >= 6.0);
        assert!(expected.slowest(&seconds, Turn::OutOfOverload) >= 3.0);
    }

    #[test]
    fn the_ideal_is_the_load_or_the_capacity() {
        let expected = expected(&[10.0, 100.0, 30.0], &[50.0, 50.0, 50.0]);
        assert_eq!(expected.served_from(0.0), 90.0);
        assert_eq!(expected.served_from(1.0), 80.0);
    }
}
