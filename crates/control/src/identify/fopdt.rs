//! First order plus dead time from a recorded excitation.
//!
//! For a trial lag `T` and dead time `L` the response `g` of a plant of gain one to the recorded
//! input is known exactly; then `y = y0 + K g` is linear in `K` and `y0`. The pair `(T, L)` of
//! least residual is found on a grid and then by descent from its best points: the residual has a
//! single valley for a clean step, askew along a constant sum of the two, but ridges for other
//! inputs. The plant is taken to be at rest, at the first input, when the record begins.
//!
//! What breaks it: disturbances of the size of the response, a record that ends before the response
//! does (refused), a plant of higher order (its smaller lags are counted as dead time, which is
//! what a Smith predictor wants).

use std::time::Duration;

use super::simplex::minimise;
use super::{IdentifyError, Series, check_columns, check_moving, mean, r_squared};
use crate::controller::{ProcessModel, SmithConfig};
use crate::system::{Fopdt, positive};

/// Trial values of the lag, by equal ratios.
const LAGS: usize = 24;
/// Trial values of the dead time.
const DEAD_TIMES: usize = 64;
/// Descents from the best trials; with a clean step one would do.
const DESCENTS: usize = 4;
/// Share of explained variance below which the input is not the cause.
const R_SQUARED_MIN: f64 = 0.5;
/// Samples below which a fit of four numbers says nothing.
const SAMPLES_MIN: usize = 8;

/// A fitted plant and how well it explains the record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FopdtFit {
    /// The plant.
    pub plant: Fopdt,
    /// Its output before anything happened.
    pub initial_output: f64,
    /// Share of the variance explained.
    pub r_squared: f64,
    /// Standard deviation of what is left.
    pub residual_sd: f64,
}

impl FopdtFit {
    /// What a Smith predictor that steps every `interval` has to know of this plant.
    #[must_use]
    pub fn smith_config(&self, interval: Duration) -> SmithConfig {
        // `from_secs_f64` cannot fail: a fit has finite times that are not negative.
        SmithConfig {
            model: ProcessModel::FirstOrder {
                gain: self.plant.gain,
                time_constant: Duration::from_secs_f64(self.plant.time_constant_s),
            },
            dead_time: Duration::from_secs_f64(self.plant.dead_time_s),
            interval,
        }
    }
}

/// Fits a plant to a record of its input and output, sampled every `interval_s`.
///
/// ```
/// use tidegate_control::identify::{Series, fit_fopdt};
/// use tidegate_control::system::Fopdt;
///
/// let plant = Fopdt { gain: 2.0, time_constant_s: 5.0, dead_time_s: 1.5 };
/// let input = [vec![0.0; 5], vec![1.0; 60]].concat();
/// let output = plant.simulate(0.5, &input)?;
/// let fit = fit_fopdt(
///     Series { name: "u", values: &input },
///     Series { name: "y", values: &output },
///     0.5,
/// )?;
/// assert!((fit.plant.gain - 2.0).abs() < 1e-3);
/// assert!((fit.plant.dead_time_s - 1.5).abs() < 1e-2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Too few samples, a constant column, values that are not finite, an output that the input does
/// not explain, a response that has not settled.
pub fn fit_fopdt(
    input: Series<'_>,
    output: Series<'_>,
    interval_s: f64,
) -> Result<FopdtFit, IdentifyError> {
    positive("the sampling interval", interval_s)?;
    check_columns(&[input, output])?;
    if input.values.len() < SAMPLES_MIN {
        return Err(IdentifyError::TooShort {
            samples: input.values.len(),
            parameters: 4,
            needed: SAMPLES_MIN,
        });
    }
    check_moving(&input)?;
    check_moving(&output)?;
    let search = Search::new(input.values, output.values, interval_s);
    let best = search.run();
    if best.trial.lag_log >= search.lag_log_max() - 1e-3 {
        return Err(IdentifyError::NotSettled {
            name: output.name.to_owned(),
        });
    }
    search.fit(best, output.name)
}

/// One guess; the lag is searched by its logarithm.
#[derive(Debug, Clone, Copy)]
struct Trial {
    lag_log: f64,
    dead_s: f64,
}

#[derive(Debug, Clone, Copy)]
struct Scored {
    trial: Trial,
    gain: f64,
    initial: f64,
    residual: f64,
}

struct Search<'a> {
    /// Deviations from the first input.
    moves: Vec<f64>,
    output: &'a [f64],
    interval_s: f64,
}

impl<'a> Search<'a> {
    fn new(input: &[f64], output: &'a [f64], interval_s: f64) -> Self {
        let first = input[0];
        Self {
            moves: input.iter().map(|u| u - first).collect(),
            output,
            interval_s,
        }
    }

    /// From the first change of the input to the end.
    fn span_s(&self) -> f64 {
        let at_rest = self.moves.iter().take_while(|&&u| u == 0.0).count();
        (self.moves.len() - at_rest).max(2) as f64 * self.interval_s
    }

    /// A lag as long as the record: by its end the response has done 63 %.
    fn lag_log_max(&self) -> f64 {
        self.span_s().ln()
    }

    fn lag_log_min(&self) -> f64 {
        (0.05 * self.interval_s).ln()
    }

    /// A plant that has not begun to answer after three quarters of the record is not identified.
    fn dead_max_s(&self) -> f64 {
        0.75 * self.span_s()
    }

    fn run(&self) -> Scored {
        let mut trials = self.grid();
        trials.sort_by(|a, b| a.residual.total_cmp(&b.residual));
        trials
            .iter()
            .take(DESCENTS)
            .map(|start| self.descend(start.trial))
            .chain(trials.first().copied())
            .min_by(|a, b| a.residual.total_cmp(&b.residual))
            .expect("the grid is not empty")
    }

    fn cell(&self) -> [f64; 2] {
        let lags = self.lag_log_max() - self.lag_log_min();
        [lags / LAGS as f64, self.dead_max_s() / DEAD_TIMES as f64]
    }

    fn grid(&self) -> Vec<Scored> {
        let [lag, dead] = self.cell();
        let trials = (0..=LAGS).flat_map(|i| (0..=DEAD_TIMES).map(move |j| (i, j)));
        let trial = |(i, j): (usize, usize)| Trial {
            lag_log: self.lag_log_min() + lag * i as f64,
            dead_s: dead * j as f64,
        };
        trials.map(|at| self.score(trial(at))).collect()
    }

    fn descend(&self, start: Trial) -> Scored {
        let folded = |[lag_log, dead_s]: [f64; 2]| Trial {
            lag_log: fold(lag_log, self.lag_log_min(), self.lag_log_max()),
            dead_s: fold(dead_s, 0.0, self.dead_max_s()),
        };
        let residual = |at: [f64; 2]| self.score(folded(at)).residual;
        let first = minimise(residual, [start.lag_log, start.dead_s], self.cell());
        // A simplex can collapse on a slope; a fresh one from there tells.
        self.score(folded(minimise(residual, first, self.cell())))
    }

    fn unit_plant(trial: Trial) -> Fopdt {
        Fopdt {
            gain: 1.0,
            time_constant_s: trial.lag_log.exp(),
            dead_time_s: trial.dead_s,
        }
    }

    /// The best gain and level for this pair of times.
    fn score(&self, trial: Trial) -> Scored {
        let response = Self::unit_plant(trial)
            .simulate(self.interval_s, &self.moves)
            .unwrap_or_default(); // times beyond all bounds respond with nothing
        let worthless = Scored {
            trial,
            gain: 0.0,
            initial: mean(self.output),
            residual: f64::INFINITY,
        };
        if response.is_empty() {
            return worthless;
        }
        let (g_mean, y_mean) = (mean(&response), mean(self.output));
        let pairs = || {
            response
                .iter()
                .zip(self.output)
                .map(|(g, y)| (g - g_mean, y - y_mean))
        };
        let square: f64 = pairs().map(|(g, _)| g * g).sum();
        if square <= 0.0 {
            return worthless;
        }
        let gain = pairs().map(|(g, y)| g * y).sum::<f64>() / square;
        Scored {
            trial,
            gain,
            initial: y_mean - gain * g_mean,
            residual: pairs().map(|(g, y)| (y - gain * g).powi(2)).sum(),
        }
    }

    fn fit(&self, best: Scored, name: &str) -> Result<FopdtFit, IdentifyError> {
        let r_squared = r_squared(self.output, best.residual);
        if r_squared < R_SQUARED_MIN {
            let name = name.to_owned();
            return Err(IdentifyError::Unrelated { name, r_squared });
        }
        let freedom = (self.output.len() - 4) as f64;
        Ok(FopdtFit {
            plant: Fopdt {
                gain: best.gain,
                ..Self::unit_plant(best.trial)
            },
            initial_output: best.initial,
            r_squared,
            residual_sd: (best.residual / freedom).sqrt(),
        })
    }
}

/// Mirrors what lies beyond a bound back inside, so that a minimum on the bound is a minimum.
fn fold(x: f64, low: f64, high: f64) -> f64 {
    let mirrored = if x > high { 2.0 * high - x } else { x };
    let mirrored = if mirrored < low {
        2.0 * low - mirrored
    } else {
        mirrored
    };
    mirrored.clamp(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANT: Fopdt = Fopdt {
        gain: -3.0,
        time_constant_s: 8.0,
        dead_time_s: 2.7,
    };

    fn fit(input: &[f64], output: &[f64]) -> Result<FopdtFit, IdentifyError> {
        let series = |name, values| Series { name, values };
        fit_fopdt(series("u", input), series("y", output), 0.5)
    }

    fn step(samples: usize) -> Vec<f64> {
        (0..samples)
            .map(|k| if k < 10 { 5.0 } else { 7.0 })
            .collect()
    }

    /// The plant around a raw operating point (5, 40).
    fn record(input: &[f64]) -> Vec<f64> {
        let moves: Vec<f64> = input.iter().map(|u| u - 5.0).collect();
        PLANT
            .simulate(0.5, &moves)
            .unwrap()
            .iter()
            .map(|y| y + 40.0)
            .collect()
    }

    fn assert_found(found: FopdtFit, tolerance: f64) {
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < tolerance;
        assert!(close(found.plant.gain, PLANT.gain), "{found:?}");
        assert!(
            close(found.plant.time_constant_s, PLANT.time_constant_s),
            "{found:?}"
        );
        assert!(
            close(found.plant.dead_time_s, PLANT.dead_time_s),
            "{found:?}"
        );
    }

    #[test]
    fn clean_step_gives_all_three_numbers() {
        let input = step(150);
        let found = fit(&input, &record(&input)).unwrap();
        assert_found(found, 1e-3);
        assert!((found.initial_output - 40.0).abs() < 1e-3);
    }

    #[test]
    fn any_excitation_will_do() {
        let input: Vec<f64> = (0..400).map(|k| 5.0 + f64::from((k / 23) % 3)).collect();
        assert_found(fit(&input, &record(&input)).unwrap(), 1e-3);
    }

    #[test]
    fn noise_moves_the_numbers_a_little() {
        let input = step(300);
        let mut output = record(&input);
        for (k, y) in output.iter_mut().enumerate() {
            *y += 0.15 * ((k * k) as f64).sin(); // as good as random: sd 0.1 on a step of 6
        }
        let found = fit(&input, &output).unwrap();
        assert_found(found, 0.1);
        assert!((0.08..0.13).contains(&found.residual_sd), "{found:?}");
    }

    #[test]
    fn what_the_record_cannot_tell_is_refused() {
        let message = |input: &[f64], output: &[f64]| fit(input, output).unwrap_err().to_string();
        let input = step(150);
        assert!(message(&[5.0; 150], &record(&input)).contains("`u` never changes"));
        assert!(message(&input[..5], &input[..5]).contains("too few"));
        let noise: Vec<f64> = (0..150).map(|k| f64::from(k * k).sin()).collect();
        assert!(
            message(&input, &noise).contains("explains only"),
            "{}",
            message(&input, &noise)
        );
        let short = step(22); // six seconds after the step, three after the dead time
        assert!(message(&short, &record(&short)).contains("not settled"));
        let mut holed = record(&input);
        holed[3] = f64::INFINITY;
        assert!(message(&input, &holed).contains("`y` is not a finite number at sample 3"));
    }
}
