//! How long less important classes are held before they are examined (003 §3.4).
//!
//! A request that is admitted now may occupy a slot that a more important one, arriving a moment
//! later, needs. Holding class `i` for `d_i` before examining it makes that rare. The delays are
//! the smallest for which, by the paper's approximation, the chance stays below `epsilon`:
//!
//! ```text
//! Pr(Z_i) = (1 - p_drop) sum_{j>i} (1 - e^{-lambda_j d_j}) prod_{h<j} e^{-lambda_h d_h}
//!                                  sum_{l>=1} (1 - F_j(l d_j / N))                   (10)-(13)
//! Pr(denied, given that a request of class i arrived) = p_drop Pr(Z_i) < epsilon     (8)
//! ```
//!
//! The paper bounds the chance *per examination* (eq. 8 has the factor `1 - e^{-lambda_i d_i}` that
//! a request of the class arrived at all), and this tends to zero for `d -> 0`, where in fact no
//! class is protected. What an operator cares for, and what an experiment can count, is the share
//! of *requests* that are denied, so that factor is left out; and class 1, for which the paper's
//! chance is zero because its `d` is, is bounded like the others.
//!
//! Service times are taken as exponential with the class's mean, for which the inner sum is
//! geometric: `1 / (e^{d_j / (N s_j)} - 1)`.
//!
//! With room for all (`p_drop = 0`) every delay is zero.

/// What is measured of a class, most important first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassArrivals {
    /// Requests per second.
    pub rate: f64,
    /// Mean service time on an idle server.
    pub service_s: f64,
}

/// What bounds the delays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayBounds {
    /// Share of requests of a class that may be denied because of less important ones.
    pub epsilon: f64,
    /// No class is held longer: it has a response-time target of its own.
    pub delay_max_s: f64,
    /// A class is held this many times longer than the next more important one (`k_i`).
    pub ratio: f64,
}

impl Default for DelayBounds {
    fn default() -> Self {
        Self {
            epsilon: 0.01,
            delay_max_s: 0.25,
            ratio: 2.0,
        }
    }
}

/// Halvings of the search interval: a thousandth of a millisecond at a quarter second.
const BISECTIONS: u32 = 18;

/// The delays of all classes, and what they achieve.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delays {
    /// In seconds, the most important class first; its delay is always zero.
    pub seconds: Vec<f64>,
    /// The largest chance of all classes that a request is denied because of a less important one
    /// (eq. 8). Above `epsilon` where the longest delays that are allowed do not suffice.
    pub chance: f64,
}

/// The delays of all classes.
///
/// `in_service` is how many requests the application serves at once (`N`), `drop_share` the share
/// of examinations that found it full (`p_drop`).
#[must_use]
pub fn delays(
    classes: &[ClassArrivals],
    in_service: f64,
    drop_share: f64,
    bounds: &DelayBounds,
) -> Delays {
    let spread = |first_s: f64| spread_s(classes.len(), first_s, bounds);
    let none = spread(0.0);
    if !drop_share.is_finite() || drop_share <= 0.0 || classes.len() < 2 {
        return Delays {
            seconds: none,
            chance: 0.0,
        };
    }
    let system = System {
        in_service,
        full: drop_share.min(1.0),
    };
    let chance = |delays: &[f64]| system.chance(classes, delays);
    let with = |seconds: Vec<f64>| Delays {
        chance: chance(&seconds),
        seconds,
    };
    let longest = with(spread(bounds.delay_max_s));
    if longest.chance > bounds.epsilon {
        return longest;
    }
    let (mut too_short, mut enough) = (0.0, bounds.delay_max_s);
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (too_short + enough);
        if chance(&spread(middle)) <= bounds.epsilon {
            enough = middle;
        } else {
            too_short = middle;
        }
    }
    with(spread(enough))
}

/// `d_1 = 0`, `d_2 = first_s`, `d_{i+1} = ratio d_i`, none above the maximum.
fn spread_s(classes: usize, first_s: f64, bounds: &DelayBounds) -> Vec<f64> {
    (0..classes)
        .map(|class| match class {
            0 => 0.0,
            _ => (first_s * bounds.ratio.powi(class as i32 - 1)).min(bounds.delay_max_s),
        })
        .collect()
}

/// What the servers are like when a request arrives.
#[derive(Debug, Clone, Copy)]
struct System {
    /// Requests in service at once (`N`).
    in_service: f64,
    /// Chance that they are as many as can be (`p_drop`).
    full: f64,
}

impl System {
    /// The largest chance of all classes that a request is denied because of a less important one:
    /// that of the most important class, for whom all others are less important.
    fn chance(&self, classes: &[ClassArrivals], delays: &[f64]) -> f64 {
        self.full * self.less_important_in_service(classes, delays)
    }

    /// Pr(Z_1): the chance that a less important request is still in service, eq. 10 to 13.
    fn less_important_in_service(&self, classes: &[ClassArrivals], delays: &[f64]) -> f64 {
        // A system that refuses all the time still admits one now and then: without the floor a
        // complete overload would need no delays at all.
        let admits = (1.0 - self.full).max(0.01);
        let mut no_better_arrived = 1.0;
        let mut sum = 0.0;
        for (other, (arrivals, &delay_s)) in classes.iter().zip(delays).enumerate() {
            if other > 0 {
                let there = still_there(arrivals, delay_s, self.in_service);
                sum += admits * no_better_arrived * there;
            }
            no_better_arrived *= (-arrivals.rate.max(0.0) * delay_s).exp();
        }
        sum.min(1.0)
    }
}

/// `(1 - e^{-lambda d}) / (e^{d / (N s)} - 1)`, and its limit `lambda N s` for `d -> 0`.
fn still_there(arrivals: &ClassArrivals, delay_s: f64, in_service: f64) -> f64 {
    let stay_s = (in_service * arrivals.service_s).max(0.0);
    let rate = arrivals.rate.max(0.0);
    if stay_s == 0.0 {
        return 0.0;
    }
    if delay_s <= 0.0 {
        return rate * stay_s;
    }
    -(-rate * delay_s).exp_m1() / (delay_s / stay_s).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(
        classes: &[ClassArrivals],
        in_service: f64,
        drop_share: f64,
        bounds: &DelayBounds,
    ) -> Vec<f64> {
        delays(classes, in_service, drop_share, bounds).seconds
    }

    use proptest::prelude::*;

    const SHOP: [ClassArrivals; 3] = [
        ClassArrivals {
            rate: 100.0,
            service_s: 0.016,
        },
        ClassArrivals {
            rate: 100.0,
            service_s: 0.016,
        },
        ClassArrivals {
            rate: 200.0,
            service_s: 0.016,
        },
    ];

    #[test]
    fn no_delay_while_nothing_is_refused() {
        assert_eq!(
            seconds(&SHOP, 3.0, 0.0, &DelayBounds::default()),
            vec![0.0; 3]
        );
    }

    #[test]
    fn chance_is_met_by_the_smallest_delays() {
        let bounds = DelayBounds {
            epsilon: 0.02,
            ..DelayBounds::default()
        };
        let delays = seconds(&SHOP, 3.0, 0.5, &bounds);
        let system = System {
            in_service: 3.0,
            full: 0.5,
        };
        let chance = |delays: &[f64]| system.chance(&SHOP, delays);
        assert!(delays[1] > 0.0 && delays[2] >= delays[1]);
        assert!(chance(&delays) <= 0.02);
        let shorter: Vec<f64> = delays.iter().map(|delay_s| 0.9 * delay_s).collect();
        assert!(chance(&shorter) > 0.02);
    }

    #[test]
    fn bound_that_cannot_be_met_gives_the_longest_delays() {
        let bounds = DelayBounds {
            epsilon: 1e-9,
            delay_max_s: 0.01,
            ..DelayBounds::default()
        };
        assert_eq!(seconds(&SHOP, 3.0, 0.5, &bounds), vec![0.0, 0.01, 0.01]);
    }

    #[test]
    fn epsilon_that_cannot_be_kept_is_told() {
        let tight = DelayBounds {
            epsilon: 1e-6,
            delay_max_s: 0.01,
            ratio: 2.0,
        };
        assert!(delays(&SHOP, 3.0, 0.5, &tight).chance > tight.epsilon);
        let loose = DelayBounds {
            epsilon: 0.02,
            delay_max_s: 3600.0,
            ..tight
        };
        assert!(delays(&SHOP, 3.0, 0.5, &loose).chance <= loose.epsilon);
    }

    proptest! {
        #[test]
        fn delays_are_ordered_bounded_and_finite(
            classes in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..8),
            in_service in any::<f64>(),
            drop_share in any::<f64>(),
        ) {
            let classes: Vec<_> =
                classes.into_iter().map(|(rate, service_s)| ClassArrivals { rate, service_s }).collect();
            let bounds = DelayBounds::default();
            let delays = seconds(&classes, in_service, drop_share, &bounds);
            prop_assert_eq!(delays.len(), classes.len());
            prop_assert!(delays.iter().all(|d| (0.0..=bounds.delay_max_s).contains(d)));
            prop_assert!(delays.is_sorted());
            prop_assert!(delays.first().is_none_or(|&first| first == 0.0));
        }
    }
}
