//! What each proxy needs, and what it gets.
//!
//! The capacity `C` of a pool serves the classes of all proxies in the order of importance, as one
//! queue would: of class `c` the share `f_c` fits, and proxy `i` with arrivals `a_ic` needs
//!
//! ```text
//! n_i = Σ_c f_c a_ic        f_c = min(1, (C - Σ_{b<c} Σ_j f_b a_jb) / Σ_j a_jc)
//! ```
//!
//! so that a proxy with important requests gets more than one with as many unimportant ones. Below
//! capacity, and while it is unknown, `f_c = 1`. With `u_i = n_i / Σ n` its share of the windows is
//!
//! ```text
//! s_i ~ u_i + min(0.1 / N, u_i / 4) + 0.01 / N
//! ```
//!
//! A proxy with few requests has slots for a burst; one without any has next to none, and what it
//! leaves unused is of use to the others. Guarantees are divided like the arrivals of their class,
//! but for a fiftieth that is divided evenly.
//!
//! What breaks it: traffic that moves between proxies faster than once a second.

use std::collections::BTreeMap;

use crate::message::ProxyShare;

/// Even part of a share for bursts, of all proxies together.
const BURST: f64 = 0.1;
/// The same, at most this part of what a proxy needs.
const BURST_OF_NEED: f64 = 0.25;
/// Even part in any case.
const WINDOW_SHARE_EVEN: f64 = 0.01;
/// Even part of a guarantee.
const EVEN_OF_GUARANTEE: f64 = 0.02;

/// Arrivals of a proxy per second, by class.
pub type Demand = BTreeMap<String, f64>;

/// Divides among proxies; `order` names the classes, the most important first. The shares add up
/// to one, and so do those of each class's guarantee.
#[must_use]
pub fn divide(
    demands: &BTreeMap<String, Demand>,
    order: &[String],
    capacity: Option<f64>,
) -> BTreeMap<String, ProxyShare> {
    let count = demands.len().max(1) as f64;
    let fits = fits(demands, order, capacity);
    let need = |demand: &Demand| -> f64 {
        let fit = |class: &String| fits.get(class).copied().unwrap_or(1.0);
        demand.iter().map(|(class, rate)| rate * fit(class)).sum()
    };
    let needs: f64 = demands.values().map(need).sum();
    let weight = |demand: &Demand| {
        let used = if needs > 0.0 {
            need(demand) / needs
        } else {
            1.0 / count
        };
        used + (BURST / count).min(BURST_OF_NEED * used) + WINDOW_SHARE_EVEN / count
    };
    let weights: f64 = demands.values().map(weight).sum();
    let guarantees = |demand: &Demand| {
        let of = |class: &String| (class.clone(), guarantee(demands, demand, class));
        order.iter().map(of).collect()
    };
    let share = |(name, demand): (&String, &Demand)| {
        let share = ProxyShare {
            share: weight(demand) / weights,
            guarantees: guarantees(demand),
        };
        (name.clone(), share)
    };
    demands.iter().map(share).collect()
}

fn rate(demand: &Demand, class: &str) -> f64 {
    demand.get(class).copied().unwrap_or(0.0)
}

/// The part of each class that fits.
fn fits<'a>(
    demands: &BTreeMap<String, Demand>,
    order: &'a [String],
    capacity: Option<f64>,
) -> BTreeMap<&'a String, f64> {
    let mut left = capacity.unwrap_or(f64::INFINITY);
    let mut fits = BTreeMap::new();
    for class in order {
        let all: f64 = demands.values().map(|demand| rate(demand, class)).sum();
        let fit = if all > left { left / all } else { 1.0 };
        left -= fit * all;
        fits.insert(class, fit.max(0.0));
    }
    fits
}

fn guarantee(demands: &BTreeMap<String, Demand>, own: &Demand, class: &str) -> f64 {
    let even = 1.0 / demands.len().max(1) as f64;
    let all: f64 = demands.values().map(|demand| rate(demand, class)).sum();
    let used = if all > 0.0 {
        rate(own, class) / all
    } else {
        even
    };
    (1.0 - EVEN_OF_GUARANTEE) * used + EVEN_OF_GUARANTEE * even
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demands(rates: &[&[f64]]) -> BTreeMap<String, Demand> {
        let demand = |rates: &&[f64]| {
            let class = |(at, &rate): (usize, &f64)| (format!("c{at}"), rate);
            rates.iter().enumerate().map(class).collect()
        };
        let proxies = rates.iter().enumerate();
        proxies
            .map(|(at, rates)| (format!("p{at}"), demand(rates)))
            .collect()
    }

    fn order(classes: usize) -> Vec<String> {
        (0..classes).map(|at| format!("c{at}")).collect()
    }

    #[test]
    fn shares_follow_traffic_of_ninety_to_ten() {
        let shares = divide(&demands(&[&[90.0], &[10.0]]), &order(1), None);
        let share = &shares["p1"];
        assert!((0.1..0.13).contains(&share.share), "{share:?}");
        assert!((share.guarantees["c0"] - 0.108).abs() < 1e-9);
    }

    #[test]
    fn important_requests_take_what_there_is() {
        // 100/s fit: all of p0's gold, and 20 of the 90 bronze.
        let rates: &[&[f64]] = &[&[80.0, 0.0], &[0.0, 90.0]];
        let shares = divide(&demands(rates), &order(2), Some(100.0));
        assert!((shares["p0"].share - 0.78).abs() < 0.02, "{shares:?}");
        let shares = divide(&demands(rates), &order(2), None);
        assert!((shares["p0"].share - 0.47).abs() < 0.02, "{shares:?}");
    }

    #[test]
    fn without_traffic_all_are_alike() {
        let shares = divide(&demands(&[&[0.0], &[0.0], &[]]), &order(1), Some(10.0));
        let alike = |share: &ProxyShare| (share.share - 1.0 / 3.0).abs() < 1e-9;
        assert!(shares.values().all(alike), "{shares:?}");
    }

    proptest! {
        #[test]
        fn shares_add_up_to_one(
            rates in prop::collection::vec(prop::collection::vec(0.0..1e6_f64, 3), 1..12),
            capacity in prop::option::of(0.0..1e6_f64),
        ) {
            let rates: Vec<&[f64]> = rates.iter().map(Vec::as_slice).collect();
            let shares = divide(&demands(&rates), &order(3), capacity);
            let sum: f64 = shares.values().map(|share| share.share).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            for class in order(3) {
                let sum: f64 = shares.values().map(|share| share.guarantees[&class]).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9);
            }
            prop_assert!(shares.values().all(|share| share.share > 0.0));
        }
    }
}
