//! Linear-quadratic regulator: the state feedback of least cost (000 §III-B).
//!
//! `u = -K x` that minimises `J = Σ xᵀQx + uᵀRu` (000 eq. 8) for `x(k+1) = A x + B u`:
//!
//! ```text
//! K = (R + BᵀPB)⁻¹ BᵀPA,    P from the Riccati equation (module `riccati`)
//! ```
//! It exists when the input can calm every mode that does not die by itself (stabilisable) and the
//! cost sees every such mode (detectable); both are tested by Popov, Belevitch and Hautus: full
//! rank of `[λI - A, B]` and of `[λI - A; Q]` at every eigenvalue with `|λ| >= 1`.
//!
//! What breaks it: limits. The gain is optimal while the gate is not saturated, near the
//! operating point at which `A` and `B` were identified.

use super::DesignError;
use super::riccati::{Problem, Solution};
use crate::system::{
    Complex, Matrix, StateSpace, SystemError, all_finite, eigenvalues, spectral_radius,
};

/// Relative size below which a singular value or a difference is rounding.
const ROUNDING: f64 = 1e-12;
/// The same for an eigenvalue that is itself uncertain because it is multiple.
const ROUNDING_COARSE: f64 = 1e-6;

/// A solved regulator.
///
/// ```
/// use tidegate_control::design::Lqr;
/// use tidegate_control::system::{StateSpace, matrix, spectral_radius};
///
/// // The proxy of 000: eq. 7 with the weights of eq. 9.
/// let a = matrix("A", &[vec![0.69321, 0.0], vec![0.0, 0.32734]])?;
/// let b = matrix("B", &[vec![-0.0917293], vec![0.0066773]])?;
/// let q = matrix("Q", &[vec![8.75e-6, 0.0], vec![0.0, 5e-3]])?;
/// let r = matrix("R", &[vec![7.69e-7]])?;
/// let lqr = Lqr::solve(&StateSpace::new(a, b)?, &q, &r)?;
///
/// // The paper prints [-0.81782, 10.27185], from inputs with more digits than it prints.
/// assert!((lqr.gain[(0, 0)] + 0.81797).abs() < 5e-6);
/// assert!((lqr.gain[(0, 1)] - 10.27376).abs() < 5e-6);
/// assert!(spectral_radius(&lqr.poles) < 1.0);
/// # Ok::<(), tidegate_control::design::DesignError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Lqr {
    /// `K`, inputs x states, for `u = -K x`.
    pub gain: Matrix,
    /// `P`: `xᵀPx` is what the way back from `x` costs.
    pub cost: Matrix,
    /// Of `A - B K`, slowest first; all inside the circle.
    pub poles: Vec<Complex<f64>>,
    /// What is left of the Riccati equation, relative to its terms: rounding.
    pub residual: f64,
}

impl Lqr {
    /// Finds the gain.
    ///
    /// # Errors
    /// Shapes that do not fit, weights that are not symmetric, `Q` with a negative or `R` with a
    /// non-positive eigenvalue, a pair that is not stabilisable, a cost that is not detectable.
    pub fn solve(system: &StateSpace, q: &Matrix, r: &Matrix) -> Result<Self, DesignError> {
        check_weight("Q", q, system.order())?;
        check_weight("R", r, system.b().ncols())?;
        check_definite("Q", q, false)?;
        check_definite("R", r, true)?;
        check_modes(system, q, ROUNDING)?;
        let solution = solve_scaled(system, q, r);
        // What the fine test let pass and still has no solution gets its cause from the coarse one.
        solution.or_else(|error| check_modes(system, q, ROUNDING_COARSE).and(Err(error)))
    }
}

fn solve_scaled(system: &StateSpace, q: &Matrix, r: &Matrix) -> Result<Lqr, DesignError> {
    // The gain does not change when all costs change alike; P does.
    let scale = q.norm().max(r.norm());
    let (q, r) = (q / scale, r / scale);
    let problem = Problem {
        a: system.a(),
        b: system.b(),
        q: &q,
        r: &r,
    };
    let Solution { p, gain, residual } = problem.solve()?;
    let poles = system.with_feedback(&gain)?.poles()?;
    if spectral_radius(&poles) >= 1.0 {
        return Err(DesignError::Unsolved { residual });
    }
    Ok(Lqr {
        gain,
        cost: p * scale,
        poles,
        residual,
    })
}

fn check_weight(what: &'static str, weight: &Matrix, order: usize) -> Result<(), DesignError> {
    all_finite(what, weight.as_slice())?;
    if weight.shape() != (order, order) {
        return Err(DesignError::System(SystemError::Shape {
            what,
            rows: weight.nrows(),
            columns: weight.ncols(),
            expected: format!("{order} x {order}"),
        }));
    }
    let difference = (weight - weight.transpose()).amax();
    if difference > ROUNDING * weight.amax() {
        return Err(DesignError::NotSymmetric { what, difference });
    }
    Ok(())
}

fn check_definite(what: &'static str, weight: &Matrix, strictly: bool) -> Result<(), DesignError> {
    // Scaled to a diagonal of ones, which changes no sign: units must not decide.
    let size = |i: usize| match weight[(i, i)].abs().sqrt() {
        0.0 => 1.0,
        size => size,
    };
    let scaled = Matrix::from_fn(weight.nrows(), weight.ncols(), |i, j| {
        weight[(i, j)] / (size(i) * size(j))
    });
    let smallest = smallest_eigenvalue(&scaled);
    let (fine, required) = if strictly {
        (smallest > ROUNDING, "positive definite")
    } else {
        (smallest >= -ROUNDING, "positive semidefinite")
    };
    if fine {
        return Ok(());
    }
    Err(DesignError::Indefinite {
        what,
        required,
        eigenvalue: smallest_eigenvalue(weight),
    })
}

/// Of a symmetric matrix, computed at size one so that nothing overflows on the way.
fn smallest_eigenvalue(m: &Matrix) -> f64 {
    let size = m.amax().max(f64::MIN_POSITIVE);
    (m / size).symmetric_eigenvalues().min() * size
}

fn check_modes(system: &StateSpace, q: &Matrix, tolerance: f64) -> Result<(), DesignError> {
    let lasting = |mode: &Complex<f64>| mode.norm() >= 1.0 - tolerance;
    for eigenvalue in eigenvalues(system.a())?.into_iter().filter(lasting) {
        if !reaches(system.a(), system.b(), eigenvalue, tolerance) {
            return Err(DesignError::NotStabilisable { eigenvalue });
        }
        // The modes that Q sees are those that Q as an input of the transposed system reaches.
        if !reaches(&system.a().transpose(), q, eigenvalue, tolerance) {
            return Err(DesignError::NotDetectable { eigenvalue });
        }
    }
    Ok(())
}

/// Whether `[λI - A, B]` has full rank, with `A` and every column of `B` scaled to size one.
fn reaches(a: &Matrix, b: &Matrix, eigenvalue: Complex<f64>, tolerance: f64) -> bool {
    let n = a.nrows();
    let size = a.amax().max(eigenvalue.norm());
    let pencil = nalgebra::DMatrix::from_fn(n, n + b.ncols(), |i, j| {
        if j >= n {
            let length = b.column(j - n).amax().max(f64::MIN_POSITIVE);
            return Complex::new(b[(i, j - n)] / length, 0.0);
        }
        let diagonal = if i == j {
            eigenvalue
        } else {
            Complex::new(0.0, 0.0)
        };
        (diagonal - a[(i, j)]) / size
    });
    let singular = pencil.singular_values();
    singular.min() > tolerance * singular.max()
}

/// How much one deviation matters: its share of the cost when it is at its largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// Relative to the others: 7 in 000's 7:1:1.
    pub share: f64,
    /// Largest deviation in the operating range, in the unit of the state or input.
    pub largest: f64,
}

/// Weights of a regulator from wanted relative costs (000 §III-B).
///
/// Each term of the cost is normalised by its maximum in the operating range:
/// `q_i = share_i / largest_i²`, so that at their largest deviations the terms stand in
/// the ratio of the shares. With 7:1:1 and maxima of 894.43 ms, 14.142 requests/s and
/// 1140.2 tokens/s this gives 000 eq. 9.
///
/// ```
/// use tidegate_control::design::{Weight, Weights};
///
/// let weights = Weights::new(
///     &[Weight { share: 7.0, largest: 894.43 }, Weight { share: 1.0, largest: 14.142 }],
///     &[Weight { share: 1.0, largest: 1140.2 }],
/// )?;
/// assert!((weights.q[(0, 0)] / 8.75e-6 - 1.0).abs() < 1e-4);
/// assert!((weights.q[(1, 1)] / 5e-3 - 1.0).abs() < 1e-3);
/// assert!((weights.r[(0, 0)] / 7.69e-7 - 1.0).abs() < 1e-3);
/// # Ok::<(), tidegate_control::design::DesignError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// State weights, diagonal.
    pub q: Matrix,
    /// Input weights, diagonal.
    pub r: Matrix,
}

impl Weights {
    /// From one [`Weight`] per state and per input.
    ///
    /// # Errors
    /// A negative share, a share of zero for an input, a maximum that is not positive.
    pub fn new(states: &[Weight], inputs: &[Weight]) -> Result<Self, DesignError> {
        Ok(Self {
            q: diagonal(states, 0.0)?,
            r: diagonal(inputs, f64::MIN_POSITIVE)?,
        })
    }
}

fn diagonal(weights: &[Weight], least: f64) -> Result<Matrix, DesignError> {
    let values = weights.iter().map(|weight| {
        let largest = crate::system::positive("the largest deviation", weight.largest)?;
        if weight.share.is_finite() && weight.share >= least {
            return Ok(weight.share / (largest * largest));
        }
        Err(SystemError::OutOfRange {
            what: "the share of a cost",
            value: weight.share,
            expected: "not negative, and above zero for an input",
        })
    });
    let values: Vec<f64> = values.collect::<Result<_, _>>()?;
    Ok(Matrix::from_diagonal(&nalgebra::DVector::from_vec(values)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::matrix;

    fn system(a: &[Vec<f64>], b: &[Vec<f64>]) -> StateSpace {
        StateSpace::new(matrix("A", a).unwrap(), matrix("B", b).unwrap()).unwrap()
    }

    fn identity(n: usize) -> Matrix {
        Matrix::identity(n, n)
    }

    #[test]
    fn double_integrator_matches_an_independent_solver() {
        // scipy.linalg.solve_discrete_are(A, B, I, 1)
        let plant = system(&[vec![1.0, 1.0], vec![0.0, 1.0]], &[vec![0.0], vec![1.0]]);
        let lqr = Lqr::solve(&plant, &identity(2), &identity(1)).unwrap();
        assert!(
            (lqr.gain[(0, 0)] - 0.422_082_4).abs() < 1e-6,
            "{}",
            lqr.gain
        );
        assert!(
            (lqr.gain[(0, 1)] - 1.243_928_9).abs() < 1e-6,
            "{}",
            lqr.gain
        );
        assert!(lqr.residual < 1e-14);
    }

    #[test]
    fn more_weight_on_the_input_moves_it_less() {
        let plant = system(&[vec![1.1]], &[vec![1.0]]);
        let gain = |r: f64| {
            let lqr = Lqr::solve(&plant, &identity(1), &(identity(1) * r)).unwrap();
            assert!(spectral_radius(&lqr.poles) < 1.0);
            lqr.gain[(0, 0)]
        };
        assert!(gain(0.1) > gain(1.0) && gain(1.0) > gain(100.0));
        // Dear control of an unstable mode only mirrors it: 1.1 becomes 1/1.1.
        assert!((gain(1e9) - (1.1 - 1.0 / 1.1)).abs() < 1e-6);
    }

    #[test]
    fn unreachable_unstable_mode_is_refused_by_name() {
        let plant = system(&[vec![1.2, 0.0], vec![0.0, 0.5]], &[vec![0.0], vec![1.0]]);
        let error = Lqr::solve(&plant, &identity(2), &identity(1)).unwrap_err();
        assert!(error.to_string().contains("not stabilisable"), "{error}");
        assert!(error.to_string().contains("1.200000"), "{error}");
    }

    #[test]
    fn unreachable_mode_that_dies_by_itself_is_fine() {
        let plant = system(&[vec![0.9, 0.0], vec![0.0, 0.5]], &[vec![0.0], vec![1.0]]);
        assert!(Lqr::solve(&plant, &identity(2), &identity(1)).is_ok());
    }

    #[test]
    fn unstable_mode_that_costs_nothing_is_refused() {
        let plant = system(&[vec![1.0, 0.0], vec![0.0, 0.5]], &[vec![1.0], vec![1.0]]);
        let q = matrix("Q", &[vec![0.0, 0.0], vec![0.0, 1.0]]).unwrap();
        let error = Lqr::solve(&plant, &q, &identity(1)).unwrap_err();
        assert!(error.to_string().contains("not detectable"), "{error}");
    }

    #[test]
    fn weights_are_checked() {
        let plant = system(&[vec![0.5]], &[vec![1.0]]);
        let solve = |q: f64, r: f64| {
            Lqr::solve(&plant, &(identity(1) * q), &(identity(1) * r))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            solve(-1.0, 1.0),
            "Q must be positive semidefinite, but has the eigenvalue -1"
        );
        assert_eq!(
            solve(1.0, 0.0),
            "R must be positive definite, but has the eigenvalue 0"
        );
        assert_eq!(
            solve(f64::NAN, 1.0),
            "Q contains a value that is not finite"
        );
        let skew = matrix("Q", &[vec![1.0, 2.0], vec![0.0, 1.0]]).unwrap();
        let plant = system(&[vec![0.5, 0.0], vec![0.0, 0.5]], &[vec![1.0], vec![1.0]]);
        assert!(matches!(
            Lqr::solve(&plant, &skew, &identity(1)),
            Err(DesignError::NotSymmetric { .. })
        ));
        assert!(Lqr::solve(&plant, &identity(3), &identity(1)).is_err());
    }

    #[test]
    fn units_do_not_decide_reachability() {
        // A state in nanoseconds beside one in requests per second.
        let plant = system(&[vec![1.0, 0.0], vec![0.0, 1.1]], &[vec![1e9], vec![-0.3]]);
        let q = matrix("Q", &[vec![1e-18, 0.0], vec![0.0, 1.0]]).unwrap();
        let lqr = Lqr::solve(&plant, &q, &identity(1)).unwrap();
        assert!(
            spectral_radius(&lqr.poles) < 1.0 && lqr.residual < 1e-10,
            "{lqr:?}"
        );
    }

    #[test]
    fn costs_that_cannot_be_are_refused() {
        let one = |share, largest| [Weight { share, largest }];
        assert!(Weights::new(&one(1.0, 0.0), &one(1.0, 1.0)).is_err());
        assert!(Weights::new(&one(-1.0, 1.0), &one(1.0, 1.0)).is_err());
        assert!(Weights::new(&one(1.0, 1.0), &one(0.0, 1.0)).is_err());
        assert!(Weights::new(&one(0.0, 1.0), &one(1.0, 1.0)).is_ok());
    }
}
