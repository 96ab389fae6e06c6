//! Polynomials with real coefficients, highest power first.

use std::ops::{Add, Mul};

use super::{Complex, Matrix, SystemError, all_finite, eigenvalues, sort_slowest_first};

/// Newton steps after the eigenvalues; two bring a simple root to the last bit.
const POLISH_STEPS: usize = 3;

/// `c[0] z^n + c[1] z^(n-1) + … + c[n]`, leading coefficient not zero unless it is constant.
///
/// ```
/// use tidegate_control::system::Polynomial;
///
/// let p = Polynomial::new(&[1.0, -1.49, 0.672143])?;
/// let slowest = p.roots()?[0];
/// assert!((slowest.re - 0.745).abs() < 1e-9 && (slowest.norm() - 0.8198).abs() < 1e-4);
/// # Ok::<(), tidegate_control::system::SystemError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Polynomial {
    coefficients: Vec<f64>,
}

impl Polynomial {
    /// Leading zeros are dropped.
    ///
    /// # Errors
    /// A coefficient that is not finite.
    pub fn new(coefficients: &[f64]) -> Result<Self, SystemError> {
        all_finite("the polynomial", coefficients)?;
        Ok(Self::trimmed(coefficients.to_vec()))
    }

    /// The monic polynomial with these roots, which come in conjugate pairs.
    #[must_use]
    pub fn from_roots(roots: &[Complex<f64>]) -> Self {
        let one = vec![Complex::new(1.0, 0.0)];
        let product = roots.iter().fold(one, |sum, root| {
            let mut next = sum.clone();
            next.push(Complex::new(0.0, 0.0));
            for (i, c) in sum.iter().enumerate() {
                next[i + 1] -= c * root;
            }
            next
        });
        Self::trimmed(product.iter().map(|c| c.re).collect())
    }

    /// `z^power`.
    #[must_use]
    pub fn power(power: usize) -> Self {
        let mut coefficients = vec![0.0; power + 1];
        coefficients[0] = 1.0;
        Self { coefficients }
    }

    fn trimmed(mut coefficients: Vec<f64>) -> Self {
        let zeros = coefficients.iter().take_while(|&&c| c == 0.0).count();
        coefficients.drain(..zeros.min(coefficients.len().saturating_sub(1)));
        if coefficients.is_empty() {
            coefficients.push(0.0);
        }
        Self { coefficients }
    }

    /// Highest power first.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// The highest power.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.coefficients.len() - 1
    }

    /// The coefficient of the highest power.
    #[must_use]
    pub fn leading(&self) -> f64 {
        self.coefficients[0]
    }

    /// Whether it is nothing but zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.coefficients.iter().all(|&c| c == 0.0)
    }

    /// Every coefficient times `factor`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self::trimmed(self.coefficients.iter().map(|c| c * factor).collect())
    }

    /// Its value at `z`.
    #[must_use]
    pub fn eval(&self, z: Complex<f64>) -> Complex<f64> {
        let zero = Complex::new(0.0, 0.0);
        self.coefficients.iter().fold(zero, |sum, &c| sum * z + c)
    }

    /// Its derivative by `z`.
    #[must_use]
    pub fn derivative(&self) -> Self {
        let n = self.degree();
        let terms = self.coefficients.iter().take(n).enumerate();
        Self::trimmed(terms.map(|(i, c)| c * (n - i) as f64).collect())
    }

    /// All roots, the largest first; a constant has none.
    ///
    /// Eigenvalues of the companion matrix, polished by Newton's method. A root of multiplicity
    /// `m` is known to about `1e-16^(1/m)`: that much is lost in the coefficients themselves.
    ///
    /// # Errors
    /// The zero polynomial, and eigenvalues that do not converge.
    pub fn roots(&self) -> Result<Vec<Complex<f64>>, SystemError> {
        if self.is_zero() {
            return Err(SystemError::Zero {
                what: "the polynomial",
            });
        }
        let at_zero = self
            .coefficients
            .iter()
            .rev()
            .take_while(|&&c| c == 0.0)
            .count();
        let rest = &self.coefficients[..self.coefficients.len() - at_zero];
        let mut roots = roots_off_zero(rest)?;
        roots.resize(roots.len() + at_zero, Complex::new(0.0, 0.0));
        sort_slowest_first(&mut roots);
        Ok(roots)
    }
}

fn roots_off_zero(coefficients: &[f64]) -> Result<Vec<Complex<f64>>, SystemError> {
    match *coefficients {
        [] | [_] => Ok(Vec::new()),
        [a, b] => Ok(vec![Complex::new(-b / a, 0.0)]),
        [a, b, c] => Ok(quadratic(b / a, c / a).to_vec()),
        _ => {
            let p = Polynomial {
                coefficients: coefficients.to_vec(),
            };
            let slope = p.derivative();
            let guesses = eigenvalues(&companion(coefficients))?;
            Ok(guesses
                .into_iter()
                .map(|guess| polish(&p, &slope, guess))
                .collect())
        }
    }
}

/// Roots of `z² + b z + c`; the one of larger size first, the other from the product, so that
/// neither suffers from cancellation.
fn quadratic(b: f64, c: f64) -> [Complex<f64>; 2] {
    let discriminant = 0.25 * b * b - c;
    if discriminant < 0.0 {
        let up = Complex::new(-0.5 * b, (-discriminant).sqrt());
        return [up, up.conj()];
    }
    let large = -0.5 * b - discriminant.sqrt().copysign(b);
    let small = if large == 0.0 { 0.0 } else { c / large };
    [Complex::new(large, 0.0), Complex::new(small, 0.0)]
}

fn companion(coefficients: &[f64]) -> Matrix {
    let n = coefficients.len() - 1;
    Matrix::from_fn(n, n, |row, column| match row {
        0 => -coefficients[column + 1] / coefficients[0],
        _ => f64::from(u8::from(row == column + 1)),
    })
}

/// Newton's method as long as it improves; a real root stays real.
fn polish(p: &Polynomial, slope: &Polynomial, mut root: Complex<f64>) -> Complex<f64> {
    for _ in 0..POLISH_STEPS {
        let better = root - p.eval(root) / slope.eval(root);
        if !better.is_finite() || p.eval(better).norm() >= p.eval(root).norm() {
            break;
        }
        root = better;
    }
    root
}

impl Mul for &Polynomial {
    type Output = Polynomial;

    fn mul(self, other: &Polynomial) -> Polynomial {
        let mut product = vec![0.0; self.coefficients.len() + other.coefficients.len() - 1];
        for (i, a) in self.coefficients.iter().enumerate() {
            for (j, b) in other.coefficients.iter().enumerate() {
                product[i + j] += a * b;
            }
        }
        Polynomial::trimmed(product)
    }
}

impl Add for &Polynomial {
    type Output = Polynomial;

    fn add(self, other: &Polynomial) -> Polynomial {
        let (long, short) = if self.degree() >= other.degree() {
            (self, other)
        } else {
            (other, self)
        };
        let mut sum = long.coefficients.clone();
        let offset = sum.len() - short.coefficients.len();
        for (i, c) in short.coefficients.iter().enumerate() {
            sum[offset + i] += c;
        }
        Polynomial::trimmed(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poly(coefficients: &[f64]) -> Polynomial {
        Polynomial::new(coefficients).unwrap()
    }

    #[test]
    fn arithmetic() {
        let p = &poly(&[1.0, -2.0]) * &poly(&[1.0, 3.0]);
        assert_eq!(p.coefficients(), [1.0, 1.0, -6.0]);
        assert_eq!((&p + &poly(&[-1.0, 0.0, 0.0])).coefficients(), [1.0, -6.0]);
        assert_eq!(p.derivative().coefficients(), [2.0, 1.0]);
        assert_eq!(poly(&[0.0, 0.0, 2.0]).degree(), 0);
        assert_eq!(poly(&[]).coefficients(), [0.0]);
    }

    #[test]
    fn roots_at_zero_are_exact() {
        let roots = poly(&[1.0, -1.5, 0.0, 0.0]).roots().unwrap();
        assert_eq!(roots, [1.5, 0.0, 0.0].map(|re| Complex::new(re, 0.0)));
    }

    #[test]
    fn small_root_beside_a_large_one_keeps_its_digits() {
        let roots = poly(&[1.0, -1e8, 1.0]).roots().unwrap();
        assert!((roots[1].re - 1e-8).abs() < 1e-20);
    }

    #[test]
    fn zero_polynomial_has_no_roots_to_list() {
        assert!(poly(&[0.0, 0.0]).roots().is_err());
        assert!(poly(&[3.0]).roots().unwrap().is_empty());
        assert!(Polynomial::new(&[1.0, f64::INFINITY]).is_err());
    }

    #[test]
    fn multiple_roots_are_found_to_the_precision_they_have() {
        let one = Complex::new(0.9, 0.0);
        for root in Polynomial::from_roots(&[one; 4]).roots().unwrap() {
            assert!((root - one).norm() < 1e-3, "{root}");
        }
    }
}
