//! An M/M/c queue by formula, over its whole range of loads.

use std::num::NonZeroU32;

use serde::Deserialize;
use tidegate_config::Rate;

use super::ModelError;
use crate::chart::Point;
use crate::experiment::Record;
use crate::theory;

pub(super) const SERIES: [&str; 3] = ["response", "power", "max_power"];
pub(super) const VALUES: [&str; 3] = ["max_power_load", "max_power_response", "service_time"];

/// `c` servers of rate `mu` behind one queue.
///
/// Series over the load in requests per second: `response` in seconds, `power` (000 eq. 1), and
/// `max_power`, the one point of `response` where power is largest. Values: where that is, and
/// the mean service time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueTheory {
    /// `c`.
    pub servers: NonZeroU32,
    /// `mu`, of each server.
    pub service_rate: Rate,
}

/// Loads of a curve, as shares of the capacity: fine enough for the maximum of power, which is
/// flat.
const LOADS: u32 = 500;

impl QueueTheory {
    pub(super) fn run(&self) -> Result<Record, ModelError> {
        let mu = self.service_rate.0;
        if mu <= 0.0 {
            return Err(ModelError("`service_rate` must be above zero".to_owned()));
        }
        let servers = self.servers.get();
        let capacity = mu * f64::from(servers);
        let curve = |of: fn(&theory::Steady, f64) -> f64| -> Vec<Point> {
            (1..LOADS)
                .map(|step| capacity * f64::from(step) / f64::from(LOADS))
                .map(|load| (load, of(&theory::mmc(load, mu, servers), mu)))
                .collect()
        };
        let power = curve(theory::Steady::power);
        let best = power.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let load = best.map_or(f64::NAN, |&(load, _)| load);
        let response = theory::mmc(load, mu, servers).response;
        Ok(Record::default()
            .with_series("response", curve(|steady, _| steady.response))
            .with_series("power", power)
            .with_series("max_power", vec![(load, response)])
            .with_value("max_power_load", load)
            .with_value("max_power_response", response)
            .with_value("service_time", 1.0 / mu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For M/M/1 power is `rho (1 - rho)`, largest at half load with twice the service time.
    #[test]
    fn the_maximum_of_power_of_one_server_is_at_half_load() {
        let model: QueueTheory = toml::from_str("servers = 1\nservice_rate = '10/s'").unwrap();
        let record = model.run().unwrap();
        assert!((record.value("max_power_load") - 5.0).abs() < 1e-9);
        assert!((record.value("max_power_response") - 0.2).abs() < 1e-9);
    }
}
