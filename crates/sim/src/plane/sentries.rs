//! Proxies added while the load climbs (003 §6.4, figure 6).
//!
//! Requests divide equally among proxies; the CPU use of each is `λ · cost / n`, measured once a
//! second with a little noise. [`tidegate_plane::proxies`] decides when another one comes.

use rand_distr::{Distribution, Normal};
use serde::Deserialize;
use tidegate_config::{Dur, Rate};
use tidegate_control::Timestamp;
use tidegate_plane::ProxiesConfig;
use tidegate_plane::proxies::Proxies;

use crate::chart::Point;
use crate::rng::Streams;
use crate::workload::RateFunction;

/// Deviation of a measurement of the CPU use. Chosen: 100 ticks of 10 ms.
const CPU_NOISE: f64 = 0.01;

/// What to simulate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentriesSpec {
    /// How long.
    pub duration: Dur,
    /// Arrivals of the service.
    pub rate: RateFunction,
    /// Requests per second at which a proxy's CPU is full.
    pub capacity: Option<Rate>,
    /// CPU time that a request costs a proxy of one core, in place of `capacity`.
    pub cost: Option<Dur>,
    /// When proxies are added and taken away, as in the file of `tidegate plane`.
    pub proxies: ProxiesConfig,
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SentriesRun {
    /// Arrivals per second.
    pub rate: Vec<Point>,
    /// CPU use of the first proxy.
    pub cpu: Vec<Point>,
    /// Proxies.
    pub proxies: Vec<Point>,
}

impl SentriesSpec {
    /// What keeps it from running.
    ///
    /// # Errors
    /// With the remedy.
    pub fn check(&self) -> Result<(), String> {
        match (self.capacity, self.cost) {
            (Some(_), Some(_)) => Err("`capacity` and `cost` say the same: leave one out".into()),
            _ if self.cost_seconds().is_some_and(|cost| cost > 0.0) => Ok(()),
            _ => Err(
                "no `capacity` above zero: write a rate, like \"19000/s\", or a `cost`, like \
                 \"15us\""
                    .into(),
            ),
        }
    }

    fn cost_seconds(&self) -> Option<f64> {
        let by_capacity = || {
            Some(self.capacity?.0)
                .filter(|rate| *rate > 0.0)
                .map(f64::recip)
        };
        self.cost
            .map(|cost| cost.as_secs_f64())
            .or_else(by_capacity)
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self, seed: u64) -> SentriesRun {
        let mut noise = Streams::new(seed).stream("cpu");
        let law = Normal::new(0.0, CPU_NOISE).ok();
        let cost = self.cost_seconds().unwrap_or(f64::INFINITY);
        let mut proxies = Proxies::default();
        let mut count = self.proxies.min;
        let mut run = SentriesRun::default();
        for second in 1..=self.duration.as_secs() {
            let at = second as f64;
            let rate = self.rate.at(at - 0.5);
            let load = rate * cost / f64::from(count);
            let mut measured = || {
                let noise = law.map_or(0.0, |law| law.sample(&mut noise));
                (load + noise).clamp(0.0, 1.0)
            };
            let uses: Vec<f64> = (0..count).map(|_| measured()).collect();
            run.rate.push((at, rate));
            run.cpu.push((at, uses[0]));
            run.proxies.push((at, f64::from(count)));
            let now = Timestamp::from_nanos(second * 1_000_000_000);
            if let Some(step) = proxies.on_cpu(now, &uses, &self.proxies) {
                count = step.proxies;
            }
        }
        run
    }
}
