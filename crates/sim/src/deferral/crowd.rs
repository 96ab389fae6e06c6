//! Very many clients that were told once what to do (001 §3.3).
//!
//! Nothing connects the clients but their sum, so there is no calendar: each client is run from
//! its first item to its last, and only the counts per second are kept. Memory does not depend on
//! the number of clients.

use std::ops::Range;

use rand_distr::{Distribution, Normal};
use tidegate_channel::{Backlog, ClientId, Pacer, Permit, Strategy, Variant};
use tidegate_control::Timestamp;

use crate::rng::{SimRng, Streams};

/// The clients' own clocks begin this long before the peak, so that no time is negative.
const BEFORE_PEAK_S: f64 = 10_000.0;
/// When they were told what to do, by these clocks: after the beginning, so that each client's
/// first window can have begun before.
const TOLD_S: f64 = 5_000.0;

/// Who sends what.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many clients.
    pub clients: u64,
    /// Items that each of them makes, at normally distributed times about zero.
    pub items: usize,
    /// Standard deviation of these times.
    pub spread_s: f64,
    /// What they were told.
    pub strategy: Strategy,
    /// What a newer item does to an older one.
    pub variant: Variant,
    /// While nothing reaches the server.
    pub outage_s: Option<Range<f64>>,
}

/// Items per second.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The second at which the counts begin.
    pub from_s: i64,
    /// Items made, second by second.
    pub made: Vec<u32>,
    /// Items that reached the server, second by second.
    pub sent: Vec<u32>,
    /// Items that a newer one replaced.
    pub replaced: u64,
    /// The longest time from making an item to its arrival.
    pub delay_s_max: f64,
}

/// Runs all clients; counts cover the seconds of `window`.
#[must_use]
pub fn run(setup: &Setup, window: Range<i64>, seed: u64) -> Outcome {
    let mut times = Streams::new(seed).stream("items");
    let seconds = usize::try_from(window.end - window.start).unwrap_or(0);
    let mut run = Run {
        setup,
        outcome: Outcome {
            from_s: window.start,
            made: vec![0; seconds],
            sent: vec![0; seconds],
            replaced: 0,
            delay_s_max: 0.0,
        },
    };
    let mut made = Vec::with_capacity(setup.items);
    for id in 0..setup.clients {
        setup.draw(&mut times, &mut made);
        run.client(ClientId(id), &made);
    }
    run.outcome
}

impl Setup {
    /// One client's times, in order.
    fn draw(&self, rng: &mut SimRng, made: &mut Vec<f64>) {
        let law = Normal::new(0.0, self.spread_s).expect("the spread was checked to be positive");
        made.clear();
        made.extend(law.sample_iter(rng).take(self.items));
        made.sort_unstable_by(f64::total_cmp);
    }

    fn is_out(&self, at_s: f64) -> bool {
        let outage = self.outage_s.as_ref();
        outage.is_some_and(|outage| outage.contains(&at_s))
    }
}

struct Run<'a> {
    setup: &'a Setup,
    outcome: Outcome,
}

impl Run<'_> {
    /// One client from its first item to its last.
    fn client(&mut self, id: ClientId, made: &[f64]) {
        let mut pacer = Pacer::new(id);
        pacer.apply(
            Timestamp::from_secs_f64(TOLD_S),
            self.setup.strategy.clone(),
        );
        let mut backlog = Backlog::new(self.setup.variant);
        let mut wake = f64::INFINITY;
        let mut items = made.iter().copied().peekable();
        loop {
            let next_item = items.peek().copied().unwrap_or(f64::INFINITY);
            let now_s = next_item.min(wake);
            if now_s.is_infinite() {
                return;
            }
            if next_item <= wake {
                items.next();
                self.outcome.count_made(now_s);
                let older = backlog.add((), now_s);
                self.outcome.replaced += u64::from(older.is_some());
                // A client that waits for a retry does not try again for a new item.
                if wake.is_finite() {
                    continue;
                }
            }
            wake = self.send(&mut pacer, &mut backlog, now_s);
        }
    }

    /// Sends what may go; when to try again, infinite when nothing is left.
    fn send(&mut self, pacer: &mut Pacer, backlog: &mut Backlog<(), f64>, now_s: f64) -> f64 {
        let now = Timestamp::from_secs_f64(now_s + BEFORE_PEAK_S);
        while let Some(&made_s) = backlog.first() {
            if let Permit::NotBefore(time) = pacer.permit(now) {
                return time.as_secs_f64() - BEFORE_PEAK_S;
            }
            pacer.on_sent(now);
            if self.setup.is_out(now_s) {
                return pacer.retry_at(now).as_secs_f64() - BEFORE_PEAK_S;
            }
            backlog.take_first();
            self.outcome.count_sent(made_s, now_s);
        }
        f64::INFINITY
    }
}

impl Outcome {
    fn count_made(&mut self, at_s: f64) {
        let second = at_s.floor() as i64 - self.from_s;
        if let Some(count) = usize::try_from(second)
            .ok()
            .and_then(|second| self.made.get_mut(second))
        {
            *count += 1;
        }
    }

    fn count_sent(&mut self, made_s: f64, at_s: f64) {
        self.delay_s_max = self.delay_s_max.max(at_s - made_s);
        let second = at_s.floor() as i64 - self.from_s;
        if let Some(count) = usize::try_from(second)
            .ok()
            .and_then(|second| self.sent.get_mut(second))
        {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_channel::strategy::Groups;

    use super::*;

    fn setup(strategy: Strategy, variant: Variant) -> Setup {
        Setup {
            clients: 2000,
            items: 10,
            spread_s: 150.0,
            strategy,
            variant,
            outage_s: None,
        }
    }

    fn sum(counts: &[u32]) -> u64 {
        counts.iter().copied().map(u64::from).sum()
    }

    #[test]
    fn nothing_is_lost_and_what_is_replaced_is_counted() {
        let slot = Duration::from_secs(4);
        for strategy in [
            Strategy::Open,
            Strategy::Interval(Duration::from_secs(80)),
            Strategy::Group(Groups::one_of(20, slot)),
        ] {
            for variant in [Variant::Queue, Variant::Overwrite] {
                for outage_s in [None, Some(0.0..180.0)] {
                    let setup = Setup {
                        outage_s,
                        ..setup(strategy.clone(), variant)
                    };
                    let outcome = run(&setup, -2000..4000, 1);
                    assert_eq!(sum(&outcome.made), 20_000);
                    assert_eq!(sum(&outcome.sent) + outcome.replaced, 20_000);
                    assert_eq!(
                        outcome.replaced == 0,
                        variant == Variant::Queue
                            || strategy == Strategy::Open && setup.outage_s.is_none()
                    );
                }
            }
        }
    }

    #[test]
    fn an_interval_bounds_what_a_client_sends() {
        let strategy = Strategy::Interval(Duration::from_secs(80));
        let outcome = run(&setup(strategy, Variant::Queue), -2000..4000, 1);
        let most = outcome.sent.iter().max().copied().unwrap();
        // 2000 clients, one item in 80 s each, and Poisson noise.
        assert!(most < 25 + 30, "{most} in a second");
    }
}
