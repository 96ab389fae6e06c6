//! Least-squares fit of `x(k+1) = A x(k) + B u(k) + c` (000 §III-A, eq. 4).
//!
//! Each state is one regression over all transitions of the record. With a diagonal `A` (000 eq. 7)
//! a state is explained by its own past and the inputs; with a full one by all states. The offset
//! `c` absorbs the operating point of a record of raw values; leave it out for a record of
//! deviations.
//!
//! What breaks it: data from a closed loop, where the input follows from the state (refused); noise
//! on the state pulls `A` towards zero, because yesterday's noise is taken for yesterday's state.
//! Filter the record with the same filter that the controller will use.

use super::least_squares::{Regressors, Solution};
use super::{IdentifyError, Series, check_columns, check_moving, r_squared};
use crate::system::{DVector, Matrix, StateSpace, SystemError};

/// Which entries of `A` are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Each state depends on itself alone.
    Diagonal,
    /// Each state may depend on every other.
    Full,
}

/// What to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FitOptions {
    /// Which entries of `A`.
    pub structure: Structure,
    /// Whether to fit `c`.
    pub offset: bool,
}

/// How well one state is explained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateFit {
    /// Share of the variance of the next value that the model explains, one step ahead.
    pub r_squared: f64,
    /// The same when the model runs free from the first sample, knowing the inputs alone. A slow
    /// state is predicted well one step ahead by any model; this one is hard to please.
    pub r_squared_free_run: f64,
    /// Standard deviation of what is left.
    pub residual_sd: f64,
    /// Of the regressors, scaled; large means that columns can hardly be told apart.
    pub condition: f64,
}

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSpaceFit {
    /// `A`.
    pub a: Matrix,
    /// `B`.
    pub b: Matrix,
    /// `c`, zero when it was not fitted.
    pub offset: DVector<f64>,
    /// Standard errors of `A`.
    pub a_error: Matrix,
    /// Standard errors of `B`.
    pub b_error: Matrix,
    /// Quality per state.
    pub states: Vec<StateFit>,
    /// Transitions used.
    pub transitions: usize,
}

impl StateSpaceFit {
    /// The model without its offset: deviations from the operating point.
    ///
    /// # Errors
    /// Never for a fit of this module, whose matrices are finite and fit each other.
    pub fn system(&self) -> Result<StateSpace, SystemError> {
        StateSpace::new(self.a.clone(), self.b.clone())
    }

    /// The state at which `u` holds the model still; `None` for an integrating model.
    #[must_use]
    pub fn operating_point(&self, u: &DVector<f64>) -> Option<DVector<f64>> {
        let order = self.a.nrows();
        let left = Matrix::identity(order, order) - &self.a;
        left.lu().solve(&(&self.b * u + &self.offset))
    }
}

/// Fits the model to a record.
///
/// ```
/// use tidegate_control::identify::{FitOptions, Series, Structure, fit_state_space};
///
/// // x(k+1) = 0.8 x(k) + 0.5 u(k), excited by a sine.
/// let u: Vec<f64> = (0..200).map(|k| (0.1 * f64::from(k)).sin()).collect();
/// let mut x = vec![0.0];
/// for k in 0..199 {
///     x.push(0.8 * x[k] + 0.5 * u[k]);
/// }
/// let fit = fit_state_space(
///     &[Series { name: "x", values: &x }],
///     &[Series { name: "u", values: &u }],
///     FitOptions { structure: Structure::Diagonal, offset: false },
/// )?;
/// assert!((fit.a[(0, 0)] - 0.8).abs() < 1e-9);
/// assert!((fit.b[(0, 0)] - 0.5).abs() < 1e-9);
/// assert!(fit.states[0].r_squared > 0.999_999);
/// # Ok::<(), tidegate_control::identify::IdentifyError>(())
/// ```
///
/// # Errors
/// Every way in which a record can fail to identify the model: see [`IdentifyError`].
pub fn fit_state_space(
    states: &[Series<'_>],
    inputs: &[Series<'_>],
    options: FitOptions,
) -> Result<StateSpaceFit, IdentifyError> {
    let record = Record::new(states, inputs, options)?;
    let mut fit = record.empty_fit();
    for state in 0..states.len() {
        record.fit_state(state, &mut fit)?;
    }
    record.run_free(&mut fit);
    Ok(fit)
}

struct Record<'a> {
    states: &'a [Series<'a>],
    inputs: &'a [Series<'a>],
    options: FitOptions,
    transitions: usize,
}

/// What a column of the regression stands for.
#[derive(Debug, Clone, Copy)]
enum Term {
    State(usize),
    Input(usize),
    Offset,
}

impl<'a> Record<'a> {
    fn new(
        states: &'a [Series<'a>],
        inputs: &'a [Series<'a>],
        options: FitOptions,
    ) -> Result<Self, IdentifyError> {
        let nothing = |what| IdentifyError::Nothing { what };
        let first = states.first().ok_or(nothing("state"))?;
        inputs.first().ok_or(nothing("input"))?;
        let columns: Vec<Series<'_>> = states.iter().chain(inputs).copied().collect();
        check_columns(&columns)?;
        let record = Self {
            states,
            inputs,
            options,
            transitions: first.values.len().saturating_sub(1),
        };
        let parameters = record.terms(0).len();
        if record.transitions <= parameters {
            return Err(IdentifyError::TooShort {
                samples: first.values.len(),
                parameters,
                needed: parameters + 2,
            });
        }
        columns.iter().try_for_each(check_moving)?;
        Ok(record)
    }

    fn terms(&self, state: usize) -> Vec<Term> {
        let states = match self.options.structure {
            Structure::Diagonal => state..state + 1,
            Structure::Full => 0..self.states.len(),
        };
        let mut terms: Vec<Term> = states.map(Term::State).collect();
        terms.extend((0..self.inputs.len()).map(Term::Input));
        terms.extend(self.options.offset.then_some(Term::Offset));
        terms
    }

    fn value(&self, term: Term, sample: usize) -> f64 {
        match term {
            Term::State(i) => self.states[i].values[sample],
            Term::Input(i) => self.inputs[i].values[sample],
            Term::Offset => 1.0,
        }
    }

    fn name(&self, term: Term) -> &str {
        match term {
            Term::State(i) => self.states[i].name,
            Term::Input(i) => self.inputs[i].name,
            Term::Offset => "offset",
        }
    }

    fn empty_fit(&self) -> StateSpaceFit {
        let (n, m) = (self.states.len(), self.inputs.len());
        StateSpaceFit {
            a: Matrix::zeros(n, n),
            b: Matrix::zeros(n, m),
            offset: DVector::zeros(n),
            a_error: Matrix::zeros(n, n),
            b_error: Matrix::zeros(n, m),
            states: Vec::with_capacity(n),
            transitions: self.transitions,
        }
    }

    fn fit_state(&self, state: usize, fit: &mut StateSpaceFit) -> Result<(), IdentifyError> {
        let terms = self.terms(state);
        let solution = self.regress(state, &terms)?;
        for (j, term) in terms.iter().enumerate() {
            let (value, error) = (solution.coefficients[j], solution.standard_errors[j]);
            match *term {
                Term::State(i) => {
                    fit.a[(state, i)] = value;
                    fit.a_error[(state, i)] = error;
                }
                Term::Input(i) => {
                    fit.b[(state, i)] = value;
                    fit.b_error[(state, i)] = error;
                }
                Term::Offset => fit.offset[state] = value,
            }
        }
        let next = &self.states[state].values[1..];
        fit.states.push(StateFit {
            r_squared: r_squared(next, solution.residual_sum_of_squares),
            r_squared_free_run: f64::NAN, // known once every state is fitted
            residual_sd: solution.residual_sd,
            condition: solution.condition,
        });
        Ok(())
    }

    fn regress(&self, state: usize, terms: &[Term]) -> Result<Solution, IdentifyError> {
        let x = Matrix::from_fn(self.transitions, terms.len(), |k, j| {
            self.value(terms[j], k)
        });
        let regressors = Regressors::new(x).map_err(|condition| {
            let names: Vec<String> = terms
                .iter()
                .map(|&t| format!("`{}`", self.name(t)))
                .collect();
            let names = names.join(", ");
            IdentifyError::Collinear { names, condition }
        })?;
        Ok(regressors.solve(&DVector::from_column_slice(&self.states[state].values[1..])))
    }

    /// Simulates the model from the first sample with the recorded inputs.
    fn run_free(&self, fit: &mut StateSpaceFit) {
        let mut x = DVector::from_fn(self.states.len(), |i, _| self.states[i].values[0]);
        let mut squares = vec![0.0; self.states.len()];
        for k in 0..self.transitions {
            let u = DVector::from_fn(self.inputs.len(), |i, _| self.inputs[i].values[k]);
            x = &fit.a * &x + &fit.b * u + &fit.offset;
            for (i, sum) in squares.iter_mut().enumerate() {
                *sum += (self.states[i].values[k + 1] - x[i]).powi(2);
            }
        }
        for ((state, squares), series) in fit.states.iter_mut().zip(squares).zip(self.states) {
            state.r_squared_free_run = r_squared(&series.values[1..], squares);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIAGONAL: FitOptions = FitOptions {
        structure: Structure::Diagonal,
        offset: false,
    };
    const FULL: FitOptions = FitOptions {
        structure: Structure::Full,
        offset: true,
    };

    fn series<'a>(name: &'a str, values: &'a [f64]) -> Series<'a> {
        Series { name, values }
    }

    /// The proxy of 000 eq. 7 under its sinusoidal excitation, around a raw operating point.
    fn proxy_record(offset: bool) -> [Vec<f64>; 3] {
        let origin = if offset {
            [400.0, 2.4, 200.0]
        } else {
            [0.0; 3]
        };
        let (mut r, mut g, mut record) = (0.0, 0.0, [vec![], vec![], vec![]]);
        for k in 0..900 {
            let u = 550.0 * (2.0 * std::f64::consts::PI * f64::from(k) / 300.0).sin();
            for (column, (value, at)) in record.iter_mut().zip([r, g, u].iter().zip(origin)) {
                column.push(value + at);
            }
            r = 0.69321 * r - 0.0917293 * u;
            g = 0.32734 * g + 0.0066773 * u;
        }
        record
    }

    #[test]
    fn proxy_of_000_is_recovered() {
        for (offset, options) in [
            (false, DIAGONAL),
            (
                true,
                FitOptions {
                    offset: true,
                    ..DIAGONAL
                },
            ),
        ] {
            let [r, g, u] = proxy_record(offset);
            let fit = fit_state_space(
                &[series("r", &r), series("g", &g)],
                &[series("u", &u)],
                options,
            );
            let fit = fit.unwrap();
            assert!((fit.a[(0, 0)] - 0.69321).abs() < 1e-6, "{fit:?}");
            assert!((fit.a[(1, 1)] - 0.32734).abs() < 1e-6);
            assert!((fit.b[(0, 0)] + 0.0917293).abs() < 1e-6);
            assert!((fit.b[(1, 0)] - 0.0066773).abs() < 1e-6);
            assert_eq!(fit.a[(0, 1)], 0.0);
            assert!(
                fit.states
                    .iter()
                    .all(|s| s.r_squared > 0.999 && s.r_squared_free_run > 0.999)
            );
        }
    }

    #[test]
    fn operating_point_of_raw_data_is_found() {
        let [r, g, u] = proxy_record(true);
        let options = FitOptions {
            offset: true,
            ..DIAGONAL
        };
        let fit = fit_state_space(
            &[series("r", &r), series("g", &g)],
            &[series("u", &u)],
            options,
        )
        .unwrap();
        let at = fit
            .operating_point(&DVector::from_element(1, 200.0))
            .unwrap();
        assert!(
            (at[0] - 400.0).abs() < 1e-3 && (at[1] - 2.4).abs() < 1e-3,
            "{at}"
        );
    }

    fn refusal(x: &[f64], u: &[f64], options: FitOptions) -> String {
        fit_state_space(&[series("x", x)], &[series("u", u)], options)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn each_refusal_names_its_cause() {
        let ramp: Vec<f64> = (0..50).map(f64::from).collect();
        let wave: Vec<f64> = ramp.iter().map(|t| (t * 0.3).sin()).collect();
        assert!(refusal(&wave, &[1.0; 50], DIAGONAL).contains("`u` never changes"));
        assert!(refusal(&[2.0; 50], &wave, DIAGONAL).contains("`x` never changes"));
        assert!(
            refusal(&wave[..3], &wave[..3], FULL)
                .contains("3 samples are too few for 3 parameters")
        );
        assert!(refusal(&wave, &wave[1..], DIAGONAL).contains("`u` has 49 samples"));
        let mut holed = wave.clone();
        holed[7] = f64::NAN;
        assert_eq!(
            refusal(&holed, &ramp, DIAGONAL),
            "`x` is not a finite number at sample 7"
        );
        let feedback: Vec<f64> = wave.iter().map(|x| -0.4 * x).collect();
        assert!(
            refusal(&wave, &feedback, DIAGONAL).contains("cannot tell the columns `x`, `u` apart")
        );
        assert!(fit_state_space(&[], &[series("u", &wave)], FULL).is_err());
        assert!(fit_state_space(&[series("x", &wave)], &[], FULL).is_err());
    }
}
