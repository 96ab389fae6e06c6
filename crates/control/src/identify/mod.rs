//! Models from recorded runs.
//!
//! - [`fit_state_space`]: `x(k+1) = A x(k) + B u(k)` by least squares (000 §III-A), for [`Lqr`].
//! - [`fit_fopdt`]: first order plus dead time from a step or any other excitation, for a Smith
//!   predictor or the tuning tables.
//!
//! Both say how good the fit is, and refuse data that cannot answer: an input that never
//! moved, two columns that move together, a response that has not arrived by the end.
//!
//! [`Lqr`]: crate::design::Lqr

mod fopdt;
mod least_squares;
mod simplex;
mod state_space;

pub use fopdt::{FopdtFit, fit_fopdt};
pub use state_space::{FitOptions, StateFit, StateSpaceFit, Structure, fit_state_space};

/// One recorded quantity, sampled at a fixed interval.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// What a message calls it.
    pub name: &'a str,
    /// One value per sample.
    pub values: &'a [f64],
}

/// Why a record does not identify the model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum IdentifyError {
    /// Nothing to fit, or nothing to fit it with.
    #[error("no {what} given")]
    Nothing {
        /// State or input.
        what: &'static str,
    },
    /// Columns of different length.
    #[error("`{name}` has {samples} samples, the others have {expected}")]
    Length {
        /// The odd one.
        name: String,
        /// Its length.
        samples: usize,
        /// The length of the first.
        expected: usize,
    },
    /// NaN or infinite.
    #[error("`{name}` is not a finite number at sample {sample}")]
    NotFinite {
        /// Which column.
        name: String,
        /// Counted from 0.
        sample: usize,
    },
    /// More unknowns than equations.
    #[error("{samples} samples are too few for {parameters} parameters; record at least {needed}")]
    TooShort {
        /// How many there are.
        samples: usize,
        /// Unknowns per equation.
        parameters: usize,
        /// How many it takes at the very least.
        needed: usize,
    },
    /// A column that never changes.
    #[error("`{name}` never changes: without excitation nothing can be learnt from it")]
    Constant {
        /// Which column.
        name: String,
    },
    /// Columns that cannot be told apart.
    #[error(
        "the record cannot tell the columns {names} apart (condition number {condition:.1e}): they \
         move together, as they do when a controller computed the input from the state; \
         excite the input by itself"
    )]
    Collinear {
        /// Which columns.
        names: String,
        /// Of the scaled regressors.
        condition: f64,
    },
    /// The record ends before the response does.
    #[error(
        "the response of `{name}` has not settled by the end of the record: \
         gain and time constant cannot be told apart; record longer"
    )]
    NotSettled {
        /// Which output.
        name: String,
    },
    /// The output does what it likes.
    #[error("the input explains only {:.0} % of the movement of `{name}`", .r_squared * 100.0)]
    Unrelated {
        /// Which output.
        name: String,
        /// Share of variance explained.
        r_squared: f64,
    },
    /// A number outside its meaning.
    #[error(transparent)]
    System(#[from] crate::system::SystemError),
}

/// Checks what both fits need of their columns.
fn check_columns(columns: &[Series<'_>]) -> Result<(), IdentifyError> {
    let expected = columns.first().map_or(0, |first| first.values.len());
    for column in columns {
        let name = || column.name.to_owned();
        if column.values.len() != expected {
            let samples = column.values.len();
            return Err(IdentifyError::Length {
                name: name(),
                samples,
                expected,
            });
        }
        if let Some(sample) = column.values.iter().position(|value| !value.is_finite()) {
            return Err(IdentifyError::NotFinite {
                name: name(),
                sample,
            });
        }
    }
    Ok(())
}

fn check_moving(column: &Series<'_>) -> Result<(), IdentifyError> {
    let first = column.values.first();
    if column.values.iter().all(|value| Some(value) == first) {
        return Err(IdentifyError::Constant {
            name: column.name.to_owned(),
        });
    }
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// `1 - residual / total` sums of squares about the mean; 0 for an output that does not move.
fn r_squared(values: &[f64], residual_sum_of_squares: f64) -> f64 {
    let mean = mean(values);
    let total: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if total == 0.0 {
        0.0
    } else {
        1.0 - residual_sum_of_squares / total
    }
}
