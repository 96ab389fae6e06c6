//! PI on the utilization of a server, by choice of the closed-loop poles (002 §5).
//!
//! Admitted work fills a queue, the server takes up to `sigma` requests out per interval `h`, and
//! the monitor reports `(u + x) / sigma` one interval later. Without the limits of gate, queue and
//! monitor the loop is, with the queue as an integrator `Gq = 1/(z-1)`,
//!
//! ```text
//! L(z) = K (1 + h / (Ti (z-1))) · (1 + 1/(z-1)) · 1/(sigma z)
//! z² + (K - 2 sigma)/sigma z + (sigma Ti - K Ti + K h)/(sigma Ti) = 0       (002 eq. 3: 1 + L = 0)
//! K = sigma (2 + a1)    Ti = h (2 + a1) / (1 + a1 + a2)          for the wanted z² + a1 z + a2
//! ```
//! The zero of the queue cancels the pole of the monitor at `z = 0`.
//!
//! 002 eq. 2 has another denominator and a factor `(z + 1)` above: it follows from `Gq = 1/z`, a
//! queue that forgets after one interval, and contradicts the integrator of the text. Eq. 3 and the
//! gain formulas follow from the integrator, agree with each other and with the paper's remarks on
//! its three parameter sets, and are what this module computes.
//!
//! Only `K/sigma` and `Ti/h` matter to the poles. `K` and `sigma` count requests in the same
//! unit of time, both per interval or both per second; `Ti` and `h` are both in seconds.
//!
//! What breaks it: the model has no limits. With `{5, 0.185}` the poles are outside the circle and
//! the real queue, which cannot be negative, is well behaved all the same (002 §6.7).

use std::ops::RangeInclusive;

use super::{DesignError, RootLocus};
use crate::system::{Complex, Polynomial, SETTLING_BAND, SystemError, TransferFunction, positive};

/// Gains of a PI controller in the ideal form `K (e + 1/Ti ∫ e dt)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PiGains {
    /// `K`.
    pub gain: f64,
    /// `Ti`.
    pub integral_time_s: f64,
}

/// The loop of 002: a gate in front of a server whose utilization is measured.
///
/// ```
/// use tidegate_control::design::{PiGains, UtilizationLoop};
/// use tidegate_control::system::spectral_radius;
///
/// // 25.5 ms of work per request, controlled every second.
/// let server = UtilizationLoop::new(1.0 / 0.0255, 1.0)?;
///
/// // The "good" gains of the paper:
/// let good = PiGains { gain: 20.0, integral_time_s: 2.8 };
/// let poles = server.poles(good)?;
/// assert!((poles[0].re - 0.745).abs() < 5e-4 && (poles[0].im - 0.342).abs() < 5e-4);
/// assert!((spectral_radius(&poles) - 0.8198).abs() < 5e-5);
///
/// // And the way back: gains from what is wanted of the loop.
/// let calm = server.settling(20.0, 0.8)?;
/// assert!(spectral_radius(&server.poles(calm)?) < 0.83);
/// # Ok::<(), tidegate_control::design::DesignError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UtilizationLoop {
    sigma: f64,
    interval_s: f64,
}

impl UtilizationLoop {
    /// `sigma`: requests the server can complete per unit of time, the unit in which the controller
    /// commands; `interval_s`: the control interval `h`.
    ///
    /// # Errors
    /// Either not positive.
    pub fn new(sigma: f64, interval_s: f64) -> Result<Self, SystemError> {
        Ok(Self {
            sigma: positive("sigma", sigma)?,
            interval_s: positive("the control interval", interval_s)?,
        })
    }

    /// The control interval.
    #[must_use]
    pub fn interval_s(&self) -> f64 {
        self.interval_s
    }

    /// Gains for the closed-loop polynomial `z² + a1 z + a2`.
    ///
    /// # Errors
    /// Poles that need a gain or an integral time of zero, below zero or infinite.
    pub fn place(&self, a1: f64, a2: f64) -> Result<PiGains, DesignError> {
        let gains = PiGains {
            gain: self.sigma * (2.0 + a1),
            integral_time_s: self.interval_s * (2.0 + a1) / (1.0 + a1 + a2),
        };
        self.check(gains).map_err(|_| DesignError::Unplaceable {
            reason: format!(
                "z² + {a1} z + {a2} needs gain {} and integral time {} s",
                gains.gain, gains.integral_time_s
            ),
        })?;
        Ok(gains)
    }

    /// Gains for two poles, real or conjugate.
    ///
    /// # Errors
    /// Poles that are not conjugate, and as [`place`](Self::place).
    pub fn place_poles(&self, p: Complex<f64>, q: Complex<f64>) -> Result<PiGains, DesignError> {
        let (sum, product) = (p + q, p * q);
        let scale = 1.0 + sum.norm() + product.norm();
        if sum.im.abs() > 1e-9 * scale || product.im.abs() > 1e-9 * scale {
            return Err(DesignError::Unplaceable {
                reason: format!("{p} and {q} are neither both real nor conjugate"),
            });
        }
        self.place(-sum.re, product.re)
    }

    /// Gains for a loop that has settled to 2 % after about `settling_s`, damped by `damping`
    /// (1: no oscillation of the poles' own; 0.7: brisk).
    ///
    /// Both poles then decay like `0.02^(t / settling_s)` (the slower one for a damping above 1).
    /// The zero of the controller moves the real figure; read it off the step response.
    ///
    /// # Errors
    /// Times or damping not positive.
    pub fn settling(&self, settling_s: f64, damping: f64) -> Result<PiGains, DesignError> {
        positive("the settling time", settling_s)?;
        positive("the damping", damping)?;
        let decay = -SETTLING_BAND.ln() / settling_s * self.interval_s;
        // s² + 2 ζω s + ω²: roots ω(-ζ ± √(ζ²-1)), the slower one decaying by `decay` a sample.
        let root = Complex::new(damping * damping - 1.0, 0.0).sqrt();
        let omega = decay / (damping - root.re);
        let slow = Complex::new(-damping, 0.0) + root;
        let fast = Complex::new(-damping, 0.0) - root;
        self.place_poles((slow * omega).exp(), (fast * omega).exp())
    }

    /// The closed-loop polynomial of given gains (002 eq. 3 without its cancelled factor `z`).
    ///
    /// # Errors
    /// Gains that are not positive.
    pub fn characteristic(&self, gains: PiGains) -> Result<Polynomial, SystemError> {
        let ratio = self.check(gains)?.gain / self.sigma;
        let share = self.interval_s / gains.integral_time_s;
        Polynomial::new(&[1.0, ratio - 2.0, 1.0 - ratio + ratio * share])
    }

    /// The closed-loop poles of given gains.
    ///
    /// # Errors
    /// Gains that are not positive.
    pub fn poles(&self, gains: PiGains) -> Result<Vec<Complex<f64>>, SystemError> {
        self.characteristic(gains)?.roots()
    }

    /// From error to measured utilization: what margins are taken of.
    ///
    /// # Errors
    /// Gains that are not positive.
    pub fn open_loop(&self, gains: PiGains) -> Result<TransferFunction, SystemError> {
        let ratio = self.check(gains)?.gain / self.sigma;
        Ok(self.shape(gains.integral_time_s)?.scaled(ratio))
    }

    /// From setpoint to measured utilization.
    ///
    /// # Errors
    /// Gains that are not positive.
    pub fn closed_loop(&self, gains: PiGains) -> Result<TransferFunction, SystemError> {
        self.open_loop(gains)?.feedback()
    }

    /// Where the poles go as the gain moves through `gains` (002 figure 6: 0 to 40 at Ti = 2.8).
    ///
    /// # Errors
    /// As [`RootLocus::trace`].
    pub fn root_locus(
        &self,
        integral_time_s: f64,
        gains: RangeInclusive<f64>,
    ) -> Result<RootLocus, DesignError> {
        let shape = self.shape(integral_time_s)?.scaled(1.0 / self.sigma);
        RootLocus::trace(&shape, gains)
    }

    /// The open loop with `K = sigma`: `(z - 1 + h/Ti) / (z-1)²`.
    fn shape(&self, integral_time_s: f64) -> Result<TransferFunction, SystemError> {
        let share = self.interval_s / positive("the integral time", integral_time_s)?;
        TransferFunction::new(&[1.0, share - 1.0], &[1.0, -2.0, 1.0])
    }

    fn check(&self, gains: PiGains) -> Result<PiGains, SystemError> {
        positive("the gain", gains.gain)?;
        positive("the integral time", gains.integral_time_s)?;
        Ok(gains)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{Margins, spectral_radius};

    fn apache() -> UtilizationLoop {
        UtilizationLoop::new(1.0 / 0.0255, 1.0).unwrap()
    }

    fn gains(gain: f64, integral_time_s: f64) -> PiGains {
        PiGains {
            gain,
            integral_time_s,
        }
    }

    #[test]
    fn three_parameter_sets_of_002() {
        for (k, ti, expected) in [
            (20.0, 2.8, 0.8198),
            (20.0, 0.1, 2.364),
            (5.0, 0.185, 1.2497),
        ] {
            let radius = spectral_radius(&apache().poles(gains(k, ti)).unwrap());
            assert!((radius - expected).abs() < 5e-4, "{{{k}, {ti}}}: {radius}");
        }
    }

    #[test]
    fn closed_loop_has_the_poles_of_equation_3() {
        let closed = apache().closed_loop(gains(20.0, 2.8)).unwrap();
        let expected = apache().poles(gains(20.0, 2.8)).unwrap();
        for (a, b) in closed.poles().unwrap().iter().zip(expected) {
            assert!((a - b).norm() < 1e-12);
        }
        assert!((closed.dc_gain().unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn linear_flow_model_of_002_decays_like_its_poles() {
        // The equations of §4 without limits: x' = x + u - sigma, rho' = (u + x)/sigma, PI on top.
        let (sigma, k, ti) = (1.0 / 0.0255, 20.0, 2.8);
        let (mut x, mut sum, mut rho) = (0.0, 0.0, 0.8 + 0.1);
        let mut errors = Vec::new();
        for _ in 0..60 {
            let e: f64 = 0.8 - rho;
            let u = sigma * 0.8 + k * e + k / ti * sum;
            sum += e;
            rho = (u + x) / sigma;
            // Around the operating point the server takes out what comes in at 0.8.
            x += u - 0.8 * sigma;
            errors.push(e);
        }
        // Pair 0.8198 e^{±0.4305 i}: e(k+2) = 1.49 e(k+1) - 0.6721 e(k) once the start is
        // forgotten.
        for e in errors[3..].windows(3) {
            assert!(
                (e[2] - 1.49 * e[1] + 0.672_142_857 * e[0]).abs() < 1e-9,
                "{e:?}"
            );
        }
    }

    #[test]
    fn placing_and_finding_are_inverse() {
        let placed = apache().place(-1.49, 0.672_142_857_142_857).unwrap();
        assert!((placed.gain - 20.0).abs() < 1e-9);
        assert!((placed.integral_time_s - 2.8).abs() < 1e-9);
    }

    #[test]
    fn wanted_settling_and_damping_come_back_as_poles() {
        for damping in [0.4, 0.7, 1.0, 1.5] {
            let found = apache().settling(12.0, damping).unwrap();
            let poles = apache().poles(found).unwrap();
            let expected = 0.02_f64.powf(1.0 / 12.0);
            assert!(
                (spectral_radius(&poles) - expected).abs() < 1e-6,
                "{damping}: {poles:?}"
            );
            if damping < 1.0 {
                let ratio = crate::system::Damping::of(poles[0]).ratio;
                assert!((ratio - damping).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn gain_margin_ends_where_the_jury_criterion_says() {
        // 1 - a1 + a2 = 0 at K/sigma = 4 / (2 - h/Ti).
        let open = apache().open_loop(gains(20.0, 2.8)).unwrap();
        let margin = Margins::of(&open).unwrap().gain_up.unwrap().factor;
        assert!((margin - 4.0 / (2.0 - 1.0 / 2.8) / (20.0 * 0.0255)).abs() < 1e-9);
    }

    #[test]
    fn impossible_wishes_are_refused_with_the_gains_they_would_need() {
        let error = apache().place(-2.0, 1.0).unwrap_err().to_string();
        assert!(error.contains("needs gain 0"), "{error}");
        assert!(apache().place(-1.0, 0.0).is_err()); // a pole at one
        let (p, q) = (Complex::new(0.5, 0.5), Complex::new(0.5, 0.5));
        assert!(apache().place_poles(p, q).is_err());
        assert!(apache().settling(-1.0, 1.0).is_err());
        assert!(apache().poles(gains(-1.0, 1.0)).is_err());
        assert!(UtilizationLoop::new(0.0, 1.0).is_err());
    }
}
