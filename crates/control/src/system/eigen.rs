//! Eigenvalues of a small real matrix, without the ways in which the iteration can fail.
//!
//! nalgebra's real Schur form does the work: `M = Q T Qᵀ`, eigenvalues on the diagonal blocks
//! of `T`. Its double-shift iteration has no exceptional shifts, so it stands still on matrices
//! like a cyclic permutation; the iteration is therefore bounded, and tried again on a reflected
//! (similar, hence equal in eigenvalues) matrix.

use nalgebra::linalg::{Schur, balancing};

use super::{Complex, Matrix, SystemError, all_finite, sort_slowest_first};

/// QR steps allowed per eigenvalue; LAPACK's dhseqr allows 30.
const STEPS_PER_EIGENVALUE: usize = 60;
/// Reflections tried before giving up.
const ATTEMPTS: usize = 4;

/// All eigenvalues, slowest first.
pub(crate) fn eigenvalues(m: &Matrix) -> Result<Vec<Complex<f64>>, SystemError> {
    all_finite("the matrix", m.as_slice())?;
    // To size one: squares of what is far above 1e150 overflow, and balancing would never end.
    let size = m.amax().max(f64::MIN_POSITIVE);
    let mut balanced = m / size;
    balancing::balance_parlett_reinsch(&mut balanced);
    let schur = (0..ATTEMPTS)
        .find_map(|attempt| triangular(reflected(&balanced, attempt), attempt))
        .ok_or(SystemError::NoConvergence { order: m.nrows() })?;
    let mut values = diagonal_blocks(&schur);
    values.iter_mut().for_each(|value| *value *= size);
    sort_slowest_first(&mut values);
    Ok(values)
}

fn triangular(m: Matrix, attempt: usize) -> Option<Matrix> {
    let steps = STEPS_PER_EIGENVALUE * m.nrows().max(1);
    let tolerance = f64::EPSILON * (attempt + 1) as f64;
    Schur::try_new(m, tolerance, steps).map(|schur| schur.unpack().1)
}

/// `H M H` with the reflection `H = I - 2 v vᵀ`, a different `v` per attempt; the first is as
/// given.
fn reflected(m: &Matrix, attempt: usize) -> Matrix {
    if attempt == 0 {
        return m.clone();
    }
    let v = nalgebra::DVector::from_fn(m.nrows(), |i, _| ((i + attempt) as f64).sqrt()).normalize();
    let h = Matrix::identity(m.nrows(), m.nrows()) - 2.0 * &v * v.transpose();
    &h * m * &h
}

fn diagonal_blocks(t: &Matrix) -> Vec<Complex<f64>> {
    let n = t.nrows();
    let mut values = Vec::with_capacity(n);
    while values.len() < n {
        let i = values.len();
        if i + 1 < n && t[(i + 1, i)] != 0.0 {
            values.extend(block(
                t[(i, i)],
                t[(i, i + 1)],
                t[(i + 1, i)],
                t[(i + 1, i + 1)],
            ));
        } else {
            values.push(Complex::new(t[(i, i)], 0.0));
        }
    }
    values
}

fn block(a: f64, b: f64, c: f64, d: f64) -> [Complex<f64>; 2] {
    let half = 0.5 * (a - d);
    let root = Complex::new(half * half + b * c, 0.0).sqrt();
    let mean = 0.5 * (a + d);
    [mean + root, mean - root]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cyclic(n: usize) -> Matrix {
        Matrix::from_fn(n, n, |i, j| f64::from(u8::from((i + 1) % n == j)))
    }

    #[test]
    fn roots_of_unity_where_the_plain_iteration_stands_still() {
        for n in 1..=9 {
            for value in eigenvalues(&cyclic(n)).unwrap() {
                let error = (value.powu(n as u32) - 1.0).norm();
                assert!(error < 1e-10, "{n}: {value}");
            }
        }
    }

    #[test]
    fn nilpotent_and_zero_matrices() {
        for n in 1..=6 {
            let shift = Matrix::from_fn(n, n, |i, j| f64::from(u8::from(i + 1 == j)));
            for m in [shift, Matrix::zeros(n, n)] {
                assert_eq!(eigenvalues(&m).unwrap(), vec![Complex::new(0.0, 0.0); n]);
            }
        }
    }

    #[test]
    fn badly_scaled_matrix_keeps_its_small_eigenvalue() {
        let m = Matrix::from_row_slice(2, 2, &[1.0, 1e9, 1e-9, 0.5]);
        let product: Complex<f64> = eigenvalues(&m).unwrap().iter().product();
        assert!((product.re + 0.5).abs() < 1e-12, "{product}");
    }

    #[test]
    fn sizes_near_the_ends_of_a_double_are_no_obstacle() {
        for size in [1e-300, 1e-160, 1e160, 1e300] {
            let m = Matrix::from_row_slice(3, 3, &[0.0, 1.0, 0.5, -1.0, 0.0, 0.0, 0.0, 0.0, 0.5]);
            let slowest = eigenvalues(&(m * size)).unwrap()[0];
            assert!((slowest.norm() / size - 1.0).abs() < 1e-12, "{slowest}");
        }
    }

    #[test]
    fn not_a_number_is_refused_instead_of_iterated() {
        assert!(eigenvalues(&Matrix::from_element(3, 3, f64::NAN)).is_err());
    }
}
