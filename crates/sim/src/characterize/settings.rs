//! How a service is characterized.

use std::time::Duration;

/// Lengths, ranges and wishes. The defaults are 000's where it has any.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Time between two measurements of the monitor (000 §IV: 5 s).
    pub measurement_interval: Duration,
    /// Time between two steps of the controller (000 §IV: 10 s); a multiple of the above.
    pub tuning_interval: Duration,
    /// Weight of the past in the filter of the response time (000 §IV).
    pub response_filter: f64,
    /// Weight of the past in the filter of the goodput (000 §IV).
    pub goodput_filter: f64,
    /// Tokens that a request costs (000 §II).
    pub tokens_per_request: f64,
    /// The load with which the search for the capacity starts.
    pub first_load_per_s: f64,
    /// The search gives up above this load.
    pub last_load_per_s: f64,
    /// Loads of the sweep.
    pub sweep_points: usize,
    /// Controller steps that a load of the sweep is held for.
    pub sweep_steps: u32,
    /// Controller steps that are left out at the beginning of every run.
    pub settle_steps: u32,
    /// Where the operating point lies between maximum power (0) and peak goodput (1). The paper
    /// chooses 10 requests/s with maximum power near 10 and the peak at 12.
    pub balance: f64,
    /// Length of a cycle of the excitation in controller steps (000 §III-A: 3000 s of 10 s).
    pub cycle_steps: u32,
    /// Cycles of the excitation (000 §III-A: 3).
    pub cycles: u32,
    /// Range of the excitation as shares of the peak goodput (000 §III-A: 0.5 to 11.5 of 12/s).
    pub excitation_range: (f64, f64),
    /// Random-looking steps on top of the excitation, as a share of its range.
    pub dither: f64,
    /// Offered load while the gate is tried, as a multiple of the peak (000 §III-A: 18 of 12/s).
    pub overload: f64,
    /// Relative costs of response time, goodput and admission rate (000 §III-B: 7:1:1).
    pub costs: [f64; 3],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            measurement_interval: Duration::from_secs(5),
            tuning_interval: Duration::from_secs(10),
            response_filter: 0.5,
            goodput_filter: 0.4,
            tokens_per_request: 100.0,
            first_load_per_s: 1.0,
            last_load_per_s: 1e6,
            sweep_points: 16,
            sweep_steps: 60,
            settle_steps: 6,
            balance: 0.25,
            cycle_steps: 300,
            cycles: 3,
            excitation_range: (0.04, 0.96),
            dither: 0.05,
            overload: 1.5,
            costs: [7.0, 1.0, 1.0],
        }
    }
}

impl Settings {
    /// The length of `steps` steps of the controller.
    #[must_use]
    pub fn time_of(&self, steps: u32) -> Duration {
        self.tuning_interval * steps
    }
}
