//! Linear discrete-time systems: what a loop will do before it is closed.
//!
//! A loop sampled every `h` seconds is described by a ratio of polynomials in `z`
//! ([`TransferFunction`]) or by `x(k+1) = A x(k) + B u(k)` ([`StateSpace`]). Its poles say
//! whether it settles (all inside the unit circle) and how fast; [`Margins`] say how wrong the
//! model may be before it no longer does. Time inside this module counts in samples.
//!
//! ```
//! use tidegate_control::system::{Margins, TransferFunction};
//!
//! // An integrating plant with one sample of delay under proportional control of 0.4.
//! let open = TransferFunction::new(&[0.4], &[1.0, -1.0])?.delayed(1);
//! let closed = open.feedback()?;
//! assert!(closed.is_stable()?);
//!
//! // It would stay stable up to 2.5 times that gain: z² - z + 1 has its roots on the circle.
//! let margins = Margins::of(&open)?;
//! assert!((margins.gain_up.unwrap().factor - 2.5).abs() < 1e-9);
//! # Ok::<(), tidegate_control::system::SystemError>(())
//! ```
//!
//! Everything here is linear. A gate saturates, a queue is never negative, a server has limits:
//! a loop whose linear poles are outside may still behave (002 §6.7), and one whose poles
//! are inside may oscillate when it is started far away. Simulate before trusting either.

mod eigen;
mod fopdt;
mod margins;
mod polynomial;
mod response;
mod state_space;
mod transfer;

pub use fopdt::Fopdt;
pub use margins::{Crossing, Margins};
pub use nalgebra::{Complex, DVector};
pub use polynomial::Polynomial;
pub use response::{Damping, SETTLING_BAND, StepInfo, settling_samples};
pub use state_space::StateSpace;
pub use transfer::TransferFunction;

pub(crate) use eigen::eigenvalues;

/// A matrix of real numbers, rows first in [`matrix`].
pub type Matrix = nalgebra::DMatrix<f64>;

/// Why a system was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SystemError {
    /// NaN or infinite where a number is needed.
    #[error("{what} contains a value that is not finite")]
    NotFinite {
        /// Which matrix, polynomial or number.
        what: &'static str,
    },
    /// Matrices that do not fit each other.
    #[error("{what} is {rows} x {columns}, but must be {expected}")]
    Shape {
        /// Which matrix.
        what: &'static str,
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// What would fit.
        expected: String,
    },
    /// A polynomial with nothing but zeros, where a leading coefficient is needed.
    #[error("{what} is zero")]
    Zero {
        /// Which polynomial.
        what: &'static str,
    },
    /// An output that would depend on inputs to come.
    #[error("numerator of degree {numerator} over denominator of degree {denominator}: not causal")]
    NotCausal {
        /// Degree above.
        numerator: usize,
        /// Degree below.
        denominator: usize,
    },
    /// A number outside its meaning.
    #[error("{what} is {value}, but must be {expected}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// What was given.
        value: f64,
        /// What would be accepted.
        expected: &'static str,
    },
    /// The eigenvalue iteration did not end.
    #[error("the eigenvalues of a {order} x {order} matrix did not converge")]
    NoConvergence {
        /// Its order.
        order: usize,
    },
}

/// A matrix from its rows.
///
/// # Errors
/// No rows, rows of different length, or a value that is not finite; `what` names the matrix
/// in the message.
pub fn matrix(what: &'static str, rows: &[Vec<f64>]) -> Result<Matrix, SystemError> {
    let columns = rows.first().map_or(0, Vec::len);
    let odd = rows.iter().find(|row| row.len() != columns);
    if columns == 0 || odd.is_some() {
        return Err(SystemError::Shape {
            what,
            rows: rows.len(),
            columns: odd.map_or(columns, Vec::len),
            expected: "rows of one and the same length, at least one number".to_owned(),
        });
    }
    let matrix = Matrix::from_row_iterator(rows.len(), columns, rows.iter().flatten().copied());
    all_finite(what, matrix.as_slice())?;
    Ok(matrix)
}

pub(crate) fn all_finite(what: &'static str, values: &[f64]) -> Result<(), SystemError> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(())
    } else {
        Err(SystemError::NotFinite { what })
    }
}

pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, SystemError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(SystemError::OutOfRange {
            what,
            value,
            expected: "a number above zero",
        })
    }
}

/// The largest of the absolute values: below one, everything dies out.
#[must_use]
pub fn spectral_radius(poles: &[Complex<f64>]) -> f64 {
    poles.iter().map(|pole| pole.norm()).fold(0.0, f64::max)
}

/// Slowest (largest absolute value) first, conjugates next to each other, upper one first.
pub(crate) fn sort_slowest_first(roots: &mut [Complex<f64>]) {
    // Conjugates differ in the last bits of their absolute values; compare what is meant.
    let largest = spectral_radius(roots).max(f64::MIN_POSITIVE);
    let key = |root: &Complex<f64>| (root.norm() / largest * 1e12).round();
    roots.sort_by(|a, b| {
        key(b)
            .total_cmp(&key(a))
            .then(b.re.total_cmp(&a.re))
            .then(b.im.total_cmp(&a.im))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ragged_and_empty_matrices_are_refused() {
        assert!(matrix("A", &[vec![1.0, 2.0], vec![3.0]]).is_err());
        assert!(matrix("A", &[]).is_err());
        assert!(matrix("A", &[vec![]]).is_err());
        assert_eq!(
            matrix("A", &[vec![f64::NAN]]).unwrap_err().to_string(),
            "A contains a value that is not finite"
        );
    }

    #[test]
    fn rows_come_first() {
        let m = matrix("A", &[vec![1.0, 2.0], vec![3.0, 4.0]]).unwrap();
        assert_eq!(m[(0, 1)], 2.0);
    }
}
