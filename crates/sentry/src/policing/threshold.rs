//! Threshold policing (003 §3.3): a few arithmetic operations per request.
//!
//! From the arrival rates and service times of all classes a pair (class `i`, fraction `p`) is
//! computed now and then: everything more important than `i` is admitted, `i` with probability
//! `p`, everything less important is refused. It is the pair for which the work admitted just
//! fits into what the guarantees leave over (eq. 5 and 6, with `n` servers instead of one when
//! rates are those of the whole application):
//!
//! ```text
//! p lambda_i s_i + sum_{j<i} lambda_j s_j = n - sum_j min_j s_j
//! ```
//!
//! What breaks it: it believes the rates of the last period. A class that doubles between two
//! computations is admitted twice as much; the queue behind it and the batch test have to catch
//! that.

use std::sync::atomic::{AtomicU64, Ordering};

/// The load of one class, most important class first.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClassLoad {
    /// Requests per second beyond the guarantee.
    pub rate: f64,
    /// Guaranteed requests per second, which are admitted before any threshold.
    pub guaranteed_rate: f64,
    /// Mean service time of a request on an idle server.
    pub service_s: f64,
}

impl ClassLoad {
    /// Servers kept busy by `rate` requests per second; nonsense counts as nothing.
    fn work(self, rate: f64) -> f64 {
        let work = rate * self.service_s;
        if work.is_finite() { work.max(0.0) } else { 0.0 }
    }
}

/// What share of each class fits: 1 above the threshold class, `p` at it, 0 below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// Index of the class that is admitted in part; all classes fit when it is their number.
    pub class: usize,
    /// Share of that class.
    pub fraction: f64,
}

impl Threshold {
    /// Solves eq. 5 and 6 for `servers` servers.
    #[must_use]
    pub fn compute(loads: &[ClassLoad], servers: f64) -> Self {
        let guaranteed: f64 = loads
            .iter()
            .map(|load| load.work(load.guaranteed_rate))
            .sum();
        let mut room = (servers - guaranteed).max(0.0);
        for (class, load) in loads.iter().enumerate() {
            let work = load.work(load.rate);
            if work > room {
                return Self {
                    class,
                    fraction: room / work,
                };
            }
            room -= work;
        }
        Self {
            class: loads.len(),
            fraction: 1.0,
        }
    }

    /// The share of class `class` that is admitted.
    #[must_use]
    pub fn share(&self, class: usize) -> f64 {
        match class.cmp(&self.class) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => self.fraction,
            std::cmp::Ordering::Greater => 0.0,
        }
    }
}

/// Enforces a [`Threshold`]: one atomic addition per request.
///
/// The share is met by error diffusion instead of by chance: each request adds the share to an
/// accumulator and is admitted when it overflows. Of any `n` consecutive requests of a class
/// `n p` are admitted, give or take one, and no random number is needed.
#[derive(Debug)]
pub struct ThresholdGate {
    classes: Box<[ClassGate]>,
}

#[derive(Debug)]
struct ClassGate {
    /// The share in units of 2^-64; `u64::MAX` admits always.
    step: AtomicU64,
    accumulated: AtomicU64,
}

impl ThresholdGate {
    /// Admits everything until told otherwise.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        let open = || ClassGate {
            step: AtomicU64::new(u64::MAX),
            accumulated: AtomicU64::new(0),
        };
        Self {
            classes: (0..classes).map(|_| open()).collect(),
        }
    }

    /// Puts a threshold into force.
    pub fn set(&self, threshold: &Threshold) {
        for (class, gate) in self.classes.iter().enumerate() {
            // `as` saturates: a share of 1 becomes `u64::MAX`.
            let step = (threshold.share(class) * 2f64.powi(64)) as u64;
            gate.step.store(step, Ordering::Relaxed);
        }
    }

    /// The share of `class` in force.
    #[must_use]
    pub fn share(&self, class: usize) -> f64 {
        self.classes.get(class).map_or(0.0, |gate| {
            gate.step.load(Ordering::Relaxed) as f64 / 2f64.powi(64)
        })
    }

    /// Whether the next request of `class` is admitted; a class it does not know is not.
    ///
    /// # Errors
    /// The part of a request that its class has saved up; with 1 it would have been admitted.
    pub fn admit(&self, class: usize) -> Result<(), f64> {
        let Some(gate) = self.classes.get(class) else {
            return Err(0.0);
        };
        match gate.step.load(Ordering::Relaxed) {
            u64::MAX => Ok(()),
            0 => Err(0.0),
            step => diffuse(&gate.accumulated, step),
        }
    }
}

/// Error diffusion: adds a share to what is saved up, both in units of 2^-64. An overflow admits;
/// otherwise what is saved up now comes back.
pub(super) fn diffuse(accumulated: &AtomicU64, step: u64) -> Result<(), f64> {
    let before = accumulated.fetch_add(step, Ordering::Relaxed);
    match before.checked_add(step) {
        None => Ok(()),
        Some(saved) => Err(saved as f64 / 2f64.powi(64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(rate: f64, service_s: f64) -> ClassLoad {
        ClassLoad {
            rate,
            guaranteed_rate: 0.0,
            service_s,
        }
    }

    #[test]
    fn admits_all_when_all_fits() {
        let threshold = Threshold::compute(&[load(10.0, 0.1), load(10.0, 0.1)], 3.0);
        assert_eq!(
            threshold,
            Threshold {
                class: 2,
                fraction: 1.0
            }
        );
        assert_eq!(threshold.share(1), 1.0);
    }

    #[test]
    fn cuts_the_least_important_first() {
        // Three servers of 60/s, as in figure 5: 180/s fit.
        let loads = [
            load(60.0, 1.0 / 60.0),
            load(90.0, 1.0 / 60.0),
            load(300.0, 1.0 / 60.0),
        ];
        let threshold = Threshold::compute(&loads, 3.0);
        assert_eq!(threshold.class, 2);
        assert!((threshold.fraction - 0.1).abs() < 1e-9);
    }

    #[test]
    fn guarantees_come_out_of_the_capacity_first() {
        let mut bronze = load(100.0, 0.01);
        bronze.guaranteed_rate = 50.0;
        let threshold = Threshold::compute(&[load(100.0, 0.01), bronze], 1.0);
        assert_eq!(
            threshold,
            Threshold {
                class: 0,
                fraction: 0.5
            }
        );
    }

    #[test]
    fn gate_meets_its_share_within_one_request() {
        let gate = ThresholdGate::new(3);
        gate.set(&Threshold {
            class: 1,
            fraction: 0.3,
        });
        let admitted = |class| (0..1000).filter(|_| gate.admit(class).is_ok()).count();
        assert_eq!(admitted(0), 1000);
        assert!(admitted(1).abs_diff(300) <= 1);
        assert_eq!(admitted(2), 0);
        assert_eq!(gate.admit(3), Err(0.0));
    }

    proptest! {
        #[test]
        fn admitted_work_never_exceeds_the_servers(
            loads in proptest::collection::vec(
                (0.0..1e4f64, 0.0..100.0f64, 0.0..1.0f64), 0..20),
            servers in 0.0..100.0f64,
        ) {
            let loads: Vec<_> = loads
                .into_iter()
                .map(|(rate, guaranteed_rate, service_s)| ClassLoad { rate, guaranteed_rate, service_s })
                .collect();
            let threshold = Threshold::compute(&loads, servers);
            prop_assert!((0.0..=1.0).contains(&threshold.fraction));
            let work: f64 = loads
                .iter()
                .enumerate()
                .map(|(class, load)| threshold.share(class) * load.rate * load.service_s)
                .sum();
            prop_assert!(work <= servers + 1e-6);
        }

        #[test]
        fn nonsense_loads_do_not_panic(rate in any::<f64>(), service_s in any::<f64>(), servers in any::<f64>()) {
            let threshold = Threshold::compute(&[load(rate, service_s)], servers);
            prop_assert!((0.0..=1.0).contains(&threshold.share(0)));
        }
    }
}
