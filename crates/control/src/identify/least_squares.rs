//! Ordinary least squares with what is needed to judge it.
//!
//! `min |X b - y|²` by the singular value decomposition of `X` with its columns scaled to length
//! one, so that the condition number speaks of the data and not of their units. Standard errors are
//! `s sqrt((XᵀX)⁻¹_ii)` with `s² = |X b - y|² / (N - p)`. They hold for residuals that are
//! independent; filtered measurements are not, quite, and true errors are then somewhat larger.

use nalgebra::{DVector, SVD};

use crate::system::Matrix;

/// Beyond this, less than four digits of a double are left: the columns are the same for all
/// practical purposes.
pub(super) const CONDITION_MAX: f64 = 1e10;

pub(super) struct Solution {
    pub(super) coefficients: DVector<f64>,
    pub(super) standard_errors: DVector<f64>,
    pub(super) residual_sum_of_squares: f64,
    pub(super) residual_sd: f64,
    pub(super) condition: f64,
}

/// The regressors, decomposed once for all right sides.
pub(super) struct Regressors {
    x: Matrix,
    lengths: DVector<f64>,
    svd: SVD<f64, nalgebra::Dyn, nalgebra::Dyn>,
}

impl Regressors {
    /// `Err` with the condition number when the columns cannot be told apart.
    pub(super) fn new(x: Matrix) -> Result<Self, f64> {
        let lengths = DVector::from_fn(x.ncols(), |j, _| {
            let size = x.column(j).amax();
            if size == 0.0 {
                0.0
            } else {
                (x.column(j) / size).norm() * size
            }
        });
        let scaled = Matrix::from_fn(x.nrows(), x.ncols(), |i, j| x[(i, j)] / lengths[j]);
        if lengths.min() == 0.0 {
            return Err(f64::INFINITY);
        }
        let svd = SVD::new(scaled, true, true);
        let regressors = Self { x, lengths, svd };
        let condition = regressors.condition();
        if condition < CONDITION_MAX {
            Ok(regressors)
        } else {
            Err(condition)
        }
    }

    fn condition(&self) -> f64 {
        self.svd.singular_values.max() / self.svd.singular_values.min()
    }

    pub(super) fn solve(&self, y: &DVector<f64>) -> Solution {
        let u = self.svd.u.as_ref().expect("computed with u");
        let v_t = self.svd.v_t.as_ref().expect("computed with v");
        let turned = (u.transpose() * y).component_div(&self.svd.singular_values);
        let coefficients = (v_t.transpose() * turned).component_div(&self.lengths);
        let residual_sum_of_squares = (&self.x * &coefficients - y).norm_squared();
        let freedom = (self.x.nrows() - self.x.ncols()).max(1) as f64;
        let residual_sd = (residual_sum_of_squares / freedom).sqrt();
        let spread = DVector::from_fn(self.x.ncols(), |j, _| {
            v_t.column(j)
                .component_div(&self.svd.singular_values)
                .norm()
                / self.lengths[j]
        });
        Solution {
            coefficients,
            standard_errors: spread * residual_sd,
            residual_sum_of_squares,
            residual_sd,
            condition: self.condition(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_with_textbook_errors() {
        // y = 1 + 2 t with residuals (+1, -2, +1): s² = 6, var(slope) = s²/2, var(level) = s²/3.
        let x = Matrix::from_row_slice(3, 2, &[1.0, -1.0, 1.0, 0.0, 1.0, 1.0]);
        let y = DVector::from_vec(vec![0.0, -1.0, 4.0]);
        let fit = Regressors::new(x)
            .unwrap_or_else(|c| panic!("condition {c}"))
            .solve(&y);
        assert!((fit.coefficients[0] - 1.0).abs() < 1e-12);
        assert!((fit.coefficients[1] - 2.0).abs() < 1e-12);
        assert!((fit.residual_sum_of_squares - 6.0).abs() < 1e-12);
        assert!((fit.standard_errors[0] - 2.0_f64.sqrt()).abs() < 1e-12);
        assert!((fit.standard_errors[1] - 3.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn units_do_not_change_the_condition() {
        let x =
            |unit: f64| Matrix::from_fn(10, 2, |i, j| if j == 0 { 1.0 } else { unit * i as f64 });
        let condition = |unit| {
            Regressors::new(x(unit))
                .map(|r| r.condition())
                .unwrap_or(0.0)
        };
        assert!((condition(1.0) / condition(1e9) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn equal_columns_are_refused() {
        let x = Matrix::from_fn(10, 2, |i, j| {
            i as f64 * (j + 1) as f64 + 1.0 * (j + 1) as f64
        });
        assert!(Regressors::new(x).is_err_and(|condition| condition > CONDITION_MAX));
        assert!(Regressors::new(Matrix::zeros(5, 1)).is_err());
    }
}
