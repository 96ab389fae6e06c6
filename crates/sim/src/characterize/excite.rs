//! The excitation run, the model fitted to it, and the gain (000 §III-A and §III-B).

use tidegate_control::design::{Lqr, Weight, Weights};
use tidegate_control::filter::Ewma;
use tidegate_control::identify::{FitOptions, Series, StateSpaceFit, Structure, fit_state_space};

use super::{CharacterizeError, Drive, Plant, Sample, Settings, Sweep};

/// The record of the excitation run, one entry per step of the controller, in the units of 000:
/// milliseconds, requests per second, tokens per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Excitation {
    /// End of each step.
    pub at_s: Vec<f64>,
    /// Filtered mean response time.
    pub response_ms: Vec<f64>,
    /// Filtered goodput that is missing to the peak: `x2` of 000 eq. 3.
    pub missing_per_s: Vec<f64>,
    /// Admission rate below the peak, in force after the step: `u1` of 000 eq. 3.
    pub withheld_tokens_per_s: Vec<f64>,
    /// The peak goodput, `Lambda_MAX`.
    pub peak_per_s: f64,
}

impl Excitation {
    pub(super) fn measure(
        plant: &mut dyn Plant,
        settings: &Settings,
        sweep: &Sweep,
    ) -> Result<Self, CharacterizeError> {
        let peak = sweep.peak_goodput_per_s;
        let offered = settings.overload * peak;
        let (low, high) = settings.excitation_range;
        let drive = Drive::sine(offered, (low * peak, high * peak), settings);
        let samples = plant.run(&drive)?;
        Ok(Self::of(&samples, peak, settings))
    }

    /// Filters every measurement, and keeps the last of each step of the controller.
    fn of(samples: &[Sample], peak: f64, settings: &Settings) -> Self {
        let per_step = (settings.tuning_interval.as_secs_f64()
            / settings.measurement_interval.as_secs_f64())
        .round()
        .max(1.0) as usize;
        let response = filtered(samples, settings.response_filter, |sample| {
            sample.response_s
        });
        let goodput = filtered(samples, settings.goodput_filter, |sample| {
            sample.goodput_per_s
        });
        let ends: Vec<usize> = (per_step - 1..samples.len()).step_by(per_step).collect();
        // What holds in the step after a measurement is the limit of the samples after it.
        let limit_after = |end: usize| samples.get(end + 1).unwrap_or(&samples[end]).limit_per_s;
        Self {
            at_s: ends.iter().map(|&end| samples[end].at_s).collect(),
            response_ms: ends.iter().map(|&end| response[end] * 1e3).collect(),
            missing_per_s: ends.iter().map(|&end| peak - goodput[end]).collect(),
            withheld_tokens_per_s: ends
                .iter()
                .map(|&end| (peak - limit_after(end)) * settings.tokens_per_request)
                .collect(),
            peak_per_s: peak,
        }
    }
}

/// An interval without a completed request keeps the value before it.
fn filtered(samples: &[Sample], memory: f64, of: fn(&Sample) -> f64) -> Vec<f64> {
    let mut filter = Ewma::new(memory).ok();
    let first = samples.iter().map(of).find(|value| value.is_finite());
    let mut last = first.unwrap_or(0.0);
    samples
        .iter()
        .map(|sample| {
            let value = filter
                .as_mut()
                .and_then(|filter| filter.on_sample(of(sample)));
            last = value.unwrap_or(last);
            last
        })
        .collect()
}

/// The model of a service and the regulator for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Regulator {
    /// `A`, `B` and how well they explain the record.
    pub fit: StateSpaceFit,
    /// `q1`, `q2`, `r1` of 000 eq. 9.
    pub weights: [f64; 3],
    /// `K` of 000 eq. 10: tokens/s per millisecond, and per missing request/s.
    pub gain: [f64; 2],
    /// The closed loop.
    pub lqr: Lqr,
}

impl Regulator {
    pub(super) fn design(
        record: &Excitation,
        settings: &Settings,
    ) -> Result<Self, CharacterizeError> {
        let fit = fit_state_space(
            &[
                Series {
                    name: "response time",
                    values: &record.response_ms,
                },
                Series {
                    name: "missing goodput",
                    values: &record.missing_per_s,
                },
            ],
            &[Series {
                name: "admission rate",
                values: &record.withheld_tokens_per_s,
            }],
            FitOptions {
                structure: Structure::Diagonal,
                offset: true,
            },
        )?;
        let [response, goodput, rate] = settings.costs;
        let weights = Weights::new(
            &[
                Weight {
                    share: response,
                    largest: largest(&record.response_ms),
                },
                Weight {
                    share: goodput,
                    largest: largest(&record.missing_per_s),
                },
            ],
            &[Weight {
                share: rate,
                largest: largest(&record.withheld_tokens_per_s),
            }],
        )?;
        let system = fit
            .system()
            .map_err(tidegate_control::design::DesignError::from)?;
        let lqr = Lqr::solve(&system, &weights.q, &weights.r)?;
        Ok(Self {
            weights: [weights.q[(0, 0)], weights.q[(1, 1)], weights.r[(0, 0)]],
            gain: [lqr.gain[(0, 0)], lqr.gain[(0, 1)]],
            fit,
            lqr,
        })
    }
}

/// The largest value in the operating range, by which 000 §III-B normalises each cost.
fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |largest, value| value.abs().max(largest))
}
