//! Discrete transfer functions with one input and one output.

use super::{Complex, Polynomial, StepInfo, SystemError, response, spectral_radius};

/// `num(z) / den(z)`; common factors are kept, so a cancelled pole still counts.
///
/// ```
/// use tidegate_control::system::TransferFunction;
///
/// // y(k+1) = 0.5 y(k) + u(k)
/// let lag = TransferFunction::new(&[1.0], &[1.0, -0.5])?;
/// assert_eq!(lag.step_response(4), [0.0, 1.0, 1.5, 1.75]);
/// assert_eq!(lag.dc_gain(), Some(2.0));
/// # Ok::<(), tidegate_control::system::SystemError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TransferFunction {
    num: Polynomial,
    den: Polynomial,
}

impl TransferFunction {
    /// From coefficients, highest power of `z` first.
    ///
    /// # Errors
    /// Coefficients that are not finite, a denominator of zero, a numerator of higher degree.
    pub fn new(num: &[f64], den: &[f64]) -> Result<Self, SystemError> {
        Self::from_polynomials(Polynomial::new(num)?, Polynomial::new(den)?)
    }

    /// From polynomials.
    ///
    /// # Errors
    /// A denominator of zero, a numerator of higher degree.
    pub fn from_polynomials(num: Polynomial, den: Polynomial) -> Result<Self, SystemError> {
        if den.is_zero() {
            return Err(SystemError::Zero {
                what: "the denominator",
            });
        }
        if num.degree() > den.degree() {
            return Err(SystemError::NotCausal {
                numerator: num.degree(),
                denominator: den.degree(),
            });
        }
        Ok(Self { num, den })
    }

    /// The numerator.
    #[must_use]
    pub fn num(&self) -> &Polynomial {
        &self.num
    }

    /// The denominator.
    #[must_use]
    pub fn den(&self) -> &Polynomial {
        &self.den
    }

    /// Roots of the denominator, slowest first.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn poles(&self) -> Result<Vec<Complex<f64>>, SystemError> {
        self.den.roots()
    }

    /// Roots of the numerator.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn zeros(&self) -> Result<Vec<Complex<f64>>, SystemError> {
        if self.num.is_zero() {
            return Ok(Vec::new());
        }
        self.num.roots()
    }

    /// Whether every pole lies inside the unit circle.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn is_stable(&self) -> Result<bool, SystemError> {
        Ok(spectral_radius(&self.poles()?) < 1.0)
    }

    /// Its value at `z`; infinite at a pole.
    #[must_use]
    pub fn eval(&self, z: Complex<f64>) -> Complex<f64> {
        self.num.eval(z) / self.den.eval(z)
    }

    /// Its value on the unit circle at `omega` radians per sample, 0 to pi.
    #[must_use]
    pub fn frequency_response(&self, omega: f64) -> Complex<f64> {
        self.eval(Complex::from_polar(1.0, omega))
    }

    /// What a constant input of one ends in; `None` for an integrator.
    #[must_use]
    pub fn dc_gain(&self) -> Option<f64> {
        let gain = self.eval(Complex::new(1.0, 0.0)).re;
        gain.is_finite().then_some(gain)
    }

    /// `factor * self`.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            num: self.num.scaled(factor),
            den: self.den.clone(),
        }
    }

    /// `self` followed by `samples` of dead time.
    #[must_use]
    pub fn delayed(&self, samples: usize) -> Self {
        Self {
            num: self.num.clone(),
            den: &self.den * &Polynomial::power(samples),
        }
    }

    /// `self` followed by `next`.
    #[must_use]
    pub fn series(&self, next: &Self) -> Self {
        Self {
            num: &self.num * &next.num,
            den: &self.den * &next.den,
        }
    }

    /// The loop closed with negative feedback of one: `L / (1 + L)`.
    ///
    /// # Errors
    /// A loop without delay whose gain is -1 at once: it would need inputs to come. A loop
    /// with a sample of delay, as every real one has, always closes.
    pub fn feedback(&self) -> Result<Self, SystemError> {
        Self::from_polynomials(self.num.clone(), &self.den + &self.num)
    }

    /// The first `samples` outputs for an input that is one from sample 0 on, from rest.
    #[must_use]
    pub fn step_response(&self, samples: usize) -> Vec<f64> {
        self.simulate(&vec![1.0; samples])
    }

    /// The outputs for these inputs, from rest.
    #[must_use]
    pub fn simulate(&self, inputs: &[f64]) -> Vec<f64> {
        let den = self.den.coefficients();
        let num = self.num.coefficients();
        let lag = den.len() - num.len();
        let mut outputs: Vec<f64> = Vec::with_capacity(inputs.len());
        for k in 0..inputs.len() {
            let forced: f64 = recent(inputs, k, lag).zip(num).map(|(u, b)| u * b).sum();
            let free: f64 = recent(&outputs, k, 1)
                .zip(&den[1..])
                .map(|(y, a)| y * a)
                .sum();
            outputs.push((forced - free) / den[0]);
        }
        outputs
    }

    /// How the step response settles; `None` for a system that does not.
    ///
    /// # Errors
    /// Eigenvalues that do not converge.
    pub fn step_info(&self) -> Result<Option<StepInfo>, SystemError> {
        let slowest = spectral_radius(&self.poles()?);
        let (Some(samples), Some(end)) = (response::samples_to_show(slowest), self.dc_gain())
        else {
            return Ok(None);
        };
        let samples = samples + self.den.degree();
        Ok(StepInfo::of(&self.step_response(samples), end))
    }
}

/// `values[k - lag]`, `values[k - lag - 1]`, … back to the beginning.
fn recent(values: &[f64], k: usize, lag: usize) -> impl Iterator<Item = &f64> {
    let end = (k + 1).saturating_sub(lag).min(values.len());
    values[..end].iter().rev()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_equals_the_sum_of_its_modes() {
        let g = TransferFunction::new(&[1.0], &[1.0, -1.1, 0.3]).unwrap(); // poles 0.6 and 0.5
        for (k, y) in g.step_response(30).iter().enumerate() {
            let k = k as f64;
            let exact = 5.0 - 25.0 * 0.6_f64.powf(k) + 20.0 * 0.5_f64.powf(k);
            assert!((y - exact).abs() < 1e-12, "{k}: {y} {exact}");
        }
    }

    #[test]
    fn delay_shifts_the_response() {
        let g = TransferFunction::new(&[1.0], &[1.0, -0.5]).unwrap();
        let late = g.delayed(3).step_response(10);
        assert_eq!(late[..3], [0.0; 3]);
        assert_eq!(late[3..], g.step_response(7));
    }

    #[test]
    fn feedback_of_an_integrator_settles_at_one() {
        let g = TransferFunction::new(&[0.5], &[1.0, -1.0]).unwrap();
        assert_eq!(g.dc_gain(), None);
        assert!(!g.is_stable().unwrap());
        let closed = g.feedback().unwrap();
        assert_eq!(closed.poles().unwrap(), [Complex::new(0.5, 0.0)]);
        assert_eq!(closed.dc_gain(), Some(1.0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(TransferFunction::new(&[1.0, 0.0, 0.0], &[1.0, 0.5]).is_err());
        assert!(TransferFunction::new(&[1.0], &[0.0]).is_err());
        assert!(TransferFunction::new(&[f64::NAN], &[1.0]).is_err());
    }
}
