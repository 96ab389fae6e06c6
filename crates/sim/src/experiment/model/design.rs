//! Controller design as a model: what [`tidegate_control::design`] finds, as series and values.

use serde::Deserialize;
use tidegate_config::Dur;
use tidegate_control::design::{Lqr, PiGains, UtilizationLoop};
use tidegate_control::system::{Complex, StateSpace, matrix, spectral_radius};

use super::ModelError;
use crate::chart::Point;
use crate::experiment::Record;

pub(super) const PI_SERIES: [&str; 3] = ["branch_1", "branch_2", "poles"];
pub(super) const PI_VALUES: [&str; 4] = ["max_abs", "pole_re", "pole_im", "gain_max"];

/// The linear utilization loop of 002 with a PI controller.
///
/// Series: `poles` of the gains given, and `branch_1`, `branch_2` of the root locus (x is the real
/// part, y the imaginary one). Values: `max_abs`, `pole_re` and `pole_im` of the slowest pole, and
/// `gain_max`, the gain at which the loop becomes unstable (infinite when it does not).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PiDesign {
    /// Mean service time: the server completes one request in it.
    pub service_time: Dur,
    /// Control interval.
    pub interval: Dur,
    /// `K`.
    pub gain: f64,
    /// `Ti`.
    pub integral_time: Dur,
    /// Range of gains of the root locus.
    pub gains: (f64, f64),
}

impl PiDesign {
    pub(super) fn run(&self) -> Result<Record, ModelError> {
        let sigma = 1.0 / self.service_time.as_secs_f64();
        let server =
            UtilizationLoop::new(sigma, self.interval.as_secs_f64()).map_err(ModelError::from)?;
        let gains = PiGains {
            gain: self.gain,
            integral_time_s: self.integral_time.as_secs_f64(),
        };
        let poles = server.poles(gains).map_err(ModelError::from)?;
        let locus = server
            .root_locus(gains.integral_time_s, self.gains.0..=self.gains.1)
            .map_err(ModelError::from)?;
        let branch = |index: usize| locus.branches.get(index).map_or(Vec::new(), |b| plane(b));
        let leaves = locus.crossings.iter().find(|crossing| crossing.outwards);
        Ok(Record::default()
            .with_series("branch_1", branch(0))
            .with_series("branch_2", branch(1))
            .with_series("poles", plane(&poles))
            .with_value("max_abs", spectral_radius(&poles))
            .with_value("pole_re", poles[0].re)
            .with_value("pole_im", poles[0].im.abs())
            .with_value(
                "gain_max",
                leaves.map_or(f64::INFINITY, |crossing| crossing.gain),
            ))
    }
}

fn plane(points: &[Complex<f64>]) -> Vec<Point> {
    points.iter().map(|point| (point.re, point.im)).collect()
}

/// The linear-quadratic regulator of a model `x(k+1) = A x(k) + B u(k)` with diagonal weights.
///
/// Values: `gain_1` and so on, row by row, and `max_abs` of the closed-loop poles.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LqrDesign {
    /// Rows of `A`.
    pub a: Vec<Vec<f64>>,
    /// Rows of `B`.
    pub b: Vec<Vec<f64>>,
    /// Diagonal of `Q`.
    pub q: Vec<f64>,
    /// Diagonal of `R`.
    pub r: Vec<f64>,
}

impl LqrDesign {
    pub(super) fn values(&self) -> Vec<String> {
        let gains = (1..=self.q.len() * self.r.len()).map(|index| format!("gain_{index}"));
        gains.chain(["max_abs".to_owned()]).collect()
    }

    pub(super) fn run(&self) -> Result<Record, ModelError> {
        let lqr = self.solve().map_err(ModelError::from)?;
        let record = Record::default().with_value("max_abs", spectral_radius(&lqr.poles));
        let gains = lqr.gain.transpose();
        Ok(gains
            .iter()
            .enumerate()
            .fold(record, |record, (index, gain)| {
                record.with_value(format!("gain_{}", index + 1), *gain)
            }))
    }

    fn solve(&self) -> Result<Lqr, tidegate_control::design::DesignError> {
        let system = StateSpace::new(matrix("a", &self.a)?, matrix("b", &self.b)?)?;
        let (q, r) = (
            matrix("q", &diagonal(&self.q))?,
            matrix("r", &diagonal(&self.r))?,
        );
        Lqr::solve(&system, &q, &r)
    }
}

fn diagonal(entries: &[f64]) -> Vec<Vec<f64>> {
    let row = |at: usize| {
        let mut row = vec![0.0; entries.len()];
        row[at] = entries[at];
        row
    };
    (0..entries.len()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_good_gains_of_002_have_their_poles() {
        let model: PiDesign = toml::from_str(
            "service_time = '25.5ms'\ninterval = '1s'\ngain = 20\nintegral_time = '2.8s'\ngains = [0, 40]",
        )
        .unwrap();
        let record = model.run().unwrap();
        assert!((record.value("max_abs") - 0.8198).abs() < 1e-4);
        assert!((record.value("pole_im") - 0.342).abs() < 1e-3);
        assert!(record.series("branch_1").len() > 50);
        assert_eq!(record.series("poles").len(), 2);
    }

    #[test]
    fn a_regulator_that_cannot_be_is_refused_with_its_cause() {
        let model: LqrDesign =
            toml::from_str("a = [[2.0]]\nb = [[0.0]]\nq = [1.0]\nr = [1.0]").unwrap();
        assert!(model.run().unwrap_err().to_string().contains("stabilis"));
        assert_eq!(model.values(), ["gain_1", "max_abs"]);
    }
}
