//! The discrete algebraic Riccati equation.
//!
//! ```text
//! P = AᵀPA - AᵀPB (R + BᵀPB)⁻¹ BᵀPA + Q
//! ```
//! solved by structure-preserving doubling (Chu, Fan, Lin, Wang, *Int. J. Control* 77, 2004): from
//! `G = B R⁻¹ Bᵀ`, `H = Q`,
//!
//! ```text
//! A' = A (I + GH)⁻¹ A     G' = G + A (I + GH)⁻¹ G Aᵀ     H' = H + Aᵀ H (I + GH)⁻¹ A
//! ```
//! which squares the closed loop in every step, so `H → P` quadratically. Newton's method (Hewer:
//! one Lyapunov equation a step) then removes what rounding left. Converges for every stabilisable
//! pair with a detectable cost; `R` must be positive definite.

use super::DesignError;
use crate::system::Matrix;

/// Doublings: 2^60 steps of the closed loop, enough for a pole at 1 - 1e-16.
const DOUBLINGS_MAX: usize = 60;
/// Newton steps: each doubles the correct digits, rounding ends it.
const NEWTON_STEPS_MAX: usize = 6;
/// Change at which an iteration has arrived.
const ARRIVED: f64 = 1e-15;
/// Residual beyond which a solution is none. `BᵀPB` loses `eps |K|²` to cancellation when the input
/// hardly reaches an unstable mode; a gain with less than six digits is no design.
const RESIDUAL_MAX: f64 = 1e-6;

/// The problem: `x(k+1) = A x + B u` with cost `Σ xᵀQx + uᵀRu`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) a: &'a Matrix,
    pub(super) b: &'a Matrix,
    pub(super) q: &'a Matrix,
    pub(super) r: &'a Matrix,
}

/// `P`, the gain it gives, and what is left of the equation relative to its terms.
#[derive(Debug, Clone)]
pub(super) struct Solution {
    pub(super) p: Matrix,
    pub(super) gain: Matrix,
    pub(super) residual: f64,
}

impl Problem<'_> {
    pub(super) fn solve(&self) -> Result<Solution, DesignError> {
        let unsolved = |residual| DesignError::Unsolved { residual };
        let start = self.doubling().ok_or(unsolved(f64::NAN))?;
        let mut best = self.assess(start).ok_or(unsolved(f64::NAN))?;
        for _ in 0..NEWTON_STEPS_MAX {
            match self.newton_step(&best).and_then(|p| self.assess(p)) {
                Some(next) if next.residual < best.residual => best = next,
                _ => break,
            }
        }
        if best.residual <= RESIDUAL_MAX {
            Ok(best)
        } else {
            Err(unsolved(best.residual))
        }
    }

    fn doubling(&self) -> Option<Matrix> {
        let n = self.a.nrows();
        let r_inverse = self.r.clone().cholesky()?.inverse();
        let mut a = self.a.clone();
        let mut g = self.b * r_inverse * self.b.transpose();
        let mut h = self.q.clone();
        for _ in 0..DOUBLINGS_MAX {
            let w = (Matrix::identity(n, n) + &g * &h).lu();
            let (wa, wg) = (w.solve(&a)?, w.solve(&g)?);
            let h_step = a.transpose() * &h * &wa;
            g = symmetric(&(&g + &a * wg * a.transpose()));
            h = symmetric(&(&h + &h_step));
            a *= wa;
            if h_step.norm() <= ARRIVED * h.norm() {
                break;
            }
        }
        h.iter().all(|value| value.is_finite()).then_some(h)
    }

    /// `K = (R + BᵀPB)⁻¹ BᵀPA`.
    fn gain(&self, p: &Matrix) -> Option<Matrix> {
        let bp = self.b.transpose() * p;
        let weight = symmetric(&(self.r + &bp * self.b));
        Some(weight.cholesky()?.solve(&(bp * self.a)))
    }

    /// The residual in the form `FᵀPF + KᵀRK + Q - P` with `F = A - BK`: a sum of positive terms,
    /// in which nothing cancels that is not the residual.
    fn assess(&self, p: Matrix) -> Option<Solution> {
        let gain = self.gain(&p)?;
        let f = self.a - self.b * &gain;
        let onwards = f.transpose() * &p * f + gain.transpose() * self.r * &gain + self.q;
        let scale = p.norm();
        let left = (onwards - &p).norm();
        let residual = if left == 0.0 { 0.0 } else { left / scale };
        residual
            .is_finite()
            .then_some(Solution { p, gain, residual })
    }

    /// Hewer: the cost of keeping the present gain for ever, `P = FᵀPF + Q + KᵀRK`, `F = A - BK`.
    fn newton_step(&self, solution: &Solution) -> Option<Matrix> {
        let k = &solution.gain;
        let mut f = self.a - self.b * k;
        let mut p = symmetric(&(self.q + k.transpose() * self.r * k));
        for _ in 0..DOUBLINGS_MAX {
            let step = f.transpose() * &p * &f;
            p = symmetric(&(&p + &step));
            if step.norm() <= ARRIVED * p.norm() {
                return Some(p);
            }
            f = &f * &f;
        }
        None
    }
}

fn symmetric(m: &Matrix) -> Matrix {
    (m + m.transpose()) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(a: f64, b: f64, q: f64, r: f64) -> f64 {
        let one = |value| Matrix::from_element(1, 1, value);
        let (a, b, q, r) = (one(a), one(b), one(q), one(r));
        let problem = Problem {
            a: &a,
            b: &b,
            q: &q,
            r: &r,
        };
        problem.solve().unwrap().p[(0, 0)]
    }

    #[test]
    fn scalar_equation_has_a_closed_form() {
        // b² p² + (r - a² r - b² q) p - q r = 0
        for (a, b, q, r) in [
            (1.0, 1.0, 1.0, 1.0),
            (1.7, 0.3, 2.0, 0.1),
            (0.2, 5.0, 1e-6, 1e3),
        ] {
            let linear: f64 = r - a * a * r - b * b * q;
            let root = (linear * linear + 4.0 * b * b * q * r).sqrt();
            let exact = if linear > 0.0 {
                2.0 * q * r / (linear + root)
            } else {
                (root - linear) / (2.0 * b * b)
            };
            let found = scalar(a, b, q, r);
            assert!((found / exact - 1.0).abs() < 1e-12, "{found} {exact}");
        }
    }

    #[test]
    fn integrator_costs_the_golden_ratio() {
        assert!((scalar(1.0, 1.0, 1.0, 1.0) - 0.5 * (1.0 + 5.0_f64.sqrt())).abs() < 1e-14);
    }

    #[test]
    fn slow_closed_loop_still_converges() {
        // Almost free deviation, dear control: the closed loop has its pole at about 1 - 1e-6.
        let p = scalar(1.0, 1.0, 1e-12, 1.0);
        assert!((p - 1e-6).abs() < 1e-11, "{p}");
    }
}
