//! Finding the gains of a controller.
//!
//! | you have | you want | use |
//! | --- | --- | --- |
//! | a server whose utilization you control | PI gains with chosen poles | [`UtilizationLoop`] |
//! | an open loop and a gain to choose | to see where every gain leads | [`RootLocus`] |
//! | `A`, `B` and what deviations cost | the cheapest state feedback | [`Lqr`], [`Weights`] |
//! | no model, but the system itself | usable P, PI or PID gains | [`Relay`], [`Ultimate`] |
//!
//! Every function refuses what it cannot answer, and says why.

mod lqr;
mod pole_placement;
mod relay;
mod riccati;
mod root_locus;
mod ziegler_nichols;

pub use lqr::{Lqr, Weight, Weights};
pub use pole_placement::{PiGains, UtilizationLoop};
pub use relay::{Relay, RelayConfig, RelayFailure, RelayState};
pub use root_locus::{CircleCrossing, RootLocus};
pub use ziegler_nichols::{
    Form, Gains, Plant, RaisingConfig, Rule, SampledPlant, Ultimate, raise_gain, relay_experiment,
};

use crate::system::{Complex, SystemError};

/// Why no gains were found.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DesignError {
    /// The model itself is at fault.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A mode that the input cannot calm.
    #[error(
        "(A, B) is not stabilisable: the input does not reach the mode with eigenvalue {}, \
         which does not die out by itself", show(*.eigenvalue)
    )]
    NotStabilisable {
        /// Of the mode.
        eigenvalue: Complex<f64>,
    },
    /// A mode that costs nothing however far it runs away.
    #[error(
        "(A, Q) is not detectable: the state weights do not see the mode with eigenvalue {}, \
         which does not die out by itself; give a weight to a state that it moves",
        show(*.eigenvalue)
    )]
    NotDetectable {
        /// Of the mode.
        eigenvalue: Complex<f64>,
    },
    /// A weight that rewards deviation.
    #[error("{what} must be {required}, but has the eigenvalue {eigenvalue}")]
    Indefinite {
        /// Which weight matrix.
        what: &'static str,
        /// What it must be.
        required: &'static str,
        /// The offending eigenvalue.
        eigenvalue: f64,
    },
    /// A weight matrix that is not its own transpose.
    #[error("{what} must be symmetric, but differs from its transpose by {difference}")]
    NotSymmetric {
        /// Which weight matrix.
        what: &'static str,
        /// By how much.
        difference: f64,
    },
    /// The iteration did not end in a solution.
    #[error(
        "the Riccati equation was not solved (relative residual {residual:.1e}): \
         the input hardly reaches a mode that does not die out by itself"
    )]
    Unsolved {
        /// What is left of the equation.
        residual: f64,
    },
    /// Poles that the controller's form cannot have.
    #[error("no PI gains give these poles: {reason}")]
    Unplaceable {
        /// Why.
        reason: String,
    },
    /// An experiment that found no oscillation.
    #[error("no ultimate gain found: {reason}")]
    NoUltimate {
        /// Why.
        reason: String,
    },
}

/// `0.745 ± 0.342i` as people write it; the sign of the imaginary part is left open.
fn show(z: Complex<f64>) -> String {
    if z.im.abs() < 1e-12 {
        format!("{:.6}", z.re)
    } else {
        format!("{:.6} ± {:.6}i", z.re, z.im.abs())
    }
}
