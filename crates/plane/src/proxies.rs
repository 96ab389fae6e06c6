//! How many proxies an application needs (003 §4.2).
//!
//! A proxy whose CPU use stays above a mark for a time needs another one beside it; where the
//! others could carry all of it and stay below a low mark, one is taken away. A server belongs to
//! one proxy (partitioned, as in the paper) or to all (shared).
//!
//! What breaks it: clients that do not spread over the proxies, so that one stays full.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::config::ProxiesConfig;

/// Watches the CPU use of the proxies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Proxies {
    high_since: Option<Timestamp>,
    low_since: Option<Timestamp>,
}

/// Proxies that there should be, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyStep {
    /// How many.
    pub proxies: u32,
    /// Why, in words and numbers.
    pub reason: String,
}

impl Proxies {
    /// Takes the CPU use of each proxy; says when their number should change. A use that is not
    /// known says nothing: both clocks start anew without any.
    pub fn on_cpu(
        &mut self,
        now: Timestamp,
        uses: &[f64],
        config: &ProxiesConfig,
    ) -> Option<ProxyStep> {
        let known: Vec<f64> = uses
            .iter()
            .copied()
            .filter(|use_| use_.is_finite())
            .collect();
        if known.is_empty() {
            *self = Self::default();
            return None;
        }
        let count = uses.len() as u32;
        let highest = known.iter().copied().fold(0.0, f64::max);
        let shared_by_fewer = known.iter().sum::<f64>() / f64::from(count.max(2) - 1);
        let high = since(&mut self.high_since, now, highest > config.high_cpu.0);
        let low = since(&mut self.low_since, now, shared_by_fewer < config.low_cpu.0);
        if held(high, config.high_for.0) && count < config.max {
            return Some(self.step(
                count + 1,
                format!(
                    "CPU use of a proxy at {:.0} % for {:.0} s",
                    100.0 * highest,
                    config.high_for.as_secs_f64()
                ),
            ));
        }
        if held(low, config.low_for.0) && count > config.min {
            return Some(self.step(
                count - 1,
                format!(
                    "one fewer would be at {:.0} %, for {:.0} s",
                    100.0 * shared_by_fewer,
                    config.low_for.as_secs_f64()
                ),
            ));
        }
        None
    }

    /// A step starts both clocks anew: its effect has to be seen first.
    fn step(&mut self, proxies: u32, reason: String) -> ProxyStep {
        *self = Self::default();
        ProxyStep { proxies, reason }
    }
}

fn since(start: &mut Option<Timestamp>, now: Timestamp, holds: bool) -> Option<Duration> {
    *start = holds.then(|| start.unwrap_or(now));
    start.map(|start| now - start)
}

fn held(lasted: Option<Duration>, needed: Duration) -> bool {
    lasted.is_some_and(|lasted| lasted >= needed)
}

/// The proxy of each server, where proxies divide them among themselves: as equal as they can be,
/// and with as few moves as that takes. `homes` are the proxies that servers have now.
#[must_use]
pub fn partition(homes: &[Option<usize>], proxies: usize) -> Vec<usize> {
    let proxies = proxies.max(1);
    let mut sizes = vec![0_usize; proxies];
    let known = |home: &Option<usize>| home.filter(|&home| home < proxies);
    for home in homes.iter().filter_map(known) {
        sizes[home] += 1;
    }
    let smallest = |sizes: &[usize]| (0..proxies).min_by_key(|&proxy| sizes[proxy]).unwrap_or(0);
    let place = |home: &Option<usize>| {
        let to = smallest(&sizes);
        match known(home) {
            Some(home) if sizes[home] <= sizes[to] + 1 => home,
            home => {
                if let Some(home) = home {
                    sizes[home] -= 1;
                }
                sizes[to] += 1;
                to
            }
        }
    };
    homes.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ProxiesConfig {
        ProxiesConfig {
            max: 4,
            ..ProxiesConfig::default()
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn proxy_above_80_percent_for_30_s_gets_help() {
        let mut proxies = Proxies::default();
        for t in 0..30 {
            assert_eq!(proxies.on_cpu(at(t), &[0.9], &config()), None, "{t}");
        }
        let step = proxies.on_cpu(at(30), &[0.9], &config()).unwrap();
        assert_eq!(step.proxies, 2);
        assert!(step.reason.contains("90 %"), "{}", step.reason);
        assert_eq!(proxies.on_cpu(at(31), &[0.9, 0.9], &config()), None);
    }

    #[test]
    fn dip_starts_the_clock_anew_and_the_maximum_holds() {
        let mut proxies = Proxies::default();
        proxies.on_cpu(at(0), &[0.9], &config());
        proxies.on_cpu(at(20), &[0.7], &config());
        assert_eq!(proxies.on_cpu(at(40), &[0.9], &config()), None);
        let full = [0.95; 4];
        assert_eq!(proxies.on_cpu(at(100), &full, &config()), None);
    }

    #[test]
    fn proxy_is_taken_away_only_when_the_others_stay_low() {
        let mut proxies = Proxies::default();
        for t in (0..900).step_by(10) {
            // 0.3 each: one fewer would be at 0.6, above the low mark of 0.5.
            assert_eq!(proxies.on_cpu(at(t), &[0.3, 0.3], &config()), None);
        }
        assert_eq!(proxies.on_cpu(at(1000), &[0.2, 0.2], &config()), None);
        let step = proxies.on_cpu(at(1300), &[0.2, 0.2], &config()).unwrap();
        assert_eq!(step.proxies, 1);
    }

    #[test]
    fn unknown_use_is_no_reason() {
        let mut proxies = Proxies::default();
        for t in 0..2_000 {
            assert_eq!(
                proxies.on_cpu(at(t), &[f64::NAN, f64::NAN], &config()),
                None
            );
        }
    }

    fn sizes(homes: &[usize], proxies: usize) -> Vec<usize> {
        let of = |proxy| homes.iter().filter(|&&home| home == proxy).count();
        (0..proxies).map(of).collect()
    }

    #[test]
    fn partition_is_even_and_moves_few_servers() {
        let first = partition(&[None; 11], 3);
        let mut sorted = sizes(&first, 3);
        sorted.sort_unstable();
        assert_eq!(sorted, [3, 4, 4]);
        let now: Vec<Option<usize>> = first.iter().copied().map(Some).collect();
        assert_eq!(partition(&now, 3), first, "nothing moves without a cause");
        let four = partition(&now, 4);
        let moved = first.iter().zip(&four).filter(|(a, b)| a != b).count();
        assert_eq!(moved, 2, "{first:?} {four:?}");
        assert!(sizes(&four, 4).iter().all(|&size| (2..=4).contains(&size)));
        let two = partition(&now, 2);
        let sizes = sizes(&two, 2);
        assert_eq!(sizes.iter().sum::<usize>(), 11);
        assert!(sizes[0].abs_diff(sizes[1]) <= 1, "{sizes:?}");
    }
}
