//! Characterization: from a service nobody knows to the parameters of its regulator (000 §III).
//!
//! 1. **Sweep.** Loads from light to more than can be served; at each, goodput `G` and mean
//!    response time `R`. Peak goodput, and the load of maximum power `λ*` (000 eq. 1).
//! 2. **Operating point.** Between the two: at `λ*` some work is shed that could have been
//!    served, near the peak every ripple is an overload.
//! 3. **Excitation.** More load than is admitted, the admission rate a slow sine over the whole
//!    operating range, `R` and `G` filtered as the controller will filter them (000 eq. 2).
//! 4. **Model and gain.** `x(k+1) = A x(k) + B u(k)` by least squares (eq. 4), weights from
//!    relative costs (eq. 8, 9), the gain by LQR (eq. 10).
//!
//! The service is behind the [`Plant`] trait: a scenario in the simulator ([`SimPlant`]), a live
//! upstream elsewhere. What breaks it: a capacity that changes while it is being measured, and a
//! service whose response time does not depend on its load (then nothing can be identified, and it
//! says so).

mod excite;
mod plant;
mod render;
mod settings;
mod sweep;

pub use excite::{Excitation, Regulator};
pub use plant::{Drive, Limit, Plant, PlantError, Sample, SimPlant};
pub use render::{page, protect};
pub use settings::Settings;
pub use sweep::{LoadPoint, OperatingPoint, Sweep};

use tidegate_control::design::DesignError;
use tidegate_control::identify::IdentifyError;

use crate::experiment::Progress;

/// Everything that was found about a service.
#[derive(Debug, Clone)]
pub struct Characterization {
    /// What was asked for.
    pub settings: Settings,
    /// Goodput and response time by load.
    pub sweep: Sweep,
    /// Where to run the service.
    pub operating_point: OperatingPoint,
    /// The excitation run.
    pub excitation: Excitation,
    /// Model, weights and gain.
    pub regulator: Regulator,
}

/// Why a service could not be characterized.
#[derive(Debug, thiserror::Error)]
pub enum CharacterizeError {
    /// The service could not be driven.
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// It answered nothing.
    #[error("nothing was served at {offered_per_s} requests/s: is the service up?")]
    Dead {
        /// The load at which it was tried.
        offered_per_s: f64,
    },
    /// Its capacity is beyond what was tried.
    #[error(
        "still no overload at {offered_per_s:.0} requests/s: this load generator cannot saturate it"
    )]
    Bottomless {
        /// The highest load that was tried.
        offered_per_s: f64,
    },
    /// The record does not determine a model.
    #[error("the excitation run does not identify the service: {0}")]
    Identify(#[from] IdentifyError),
    /// No gain exists.
    #[error("no regulator for the identified model: {0}")]
    Design(#[from] DesignError),
}

/// What a service can do, and where to run it: all that mode `auto` needs.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Goodput and response time by load.
    pub sweep: Sweep,
    /// Where to run the service.
    pub operating_point: OperatingPoint,
}

/// Sweeps the load and measures the operating point, without the excitation.
///
/// # Errors
/// When the service cannot be driven or saturated; the message says which.
pub fn survey(
    plant: &mut dyn Plant,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Survey, CharacterizeError> {
    // The search for the capacity takes a few runs more or less; the rest is known.
    progress.start(settings.sweep_points + 1);
    let sweep = Sweep::measure(plant, settings, progress)?;
    let operating_point = OperatingPoint::measure(plant, settings, &sweep)?;
    progress.done("operating point");
    Ok(Survey {
        sweep,
        operating_point,
    })
}

/// Excites a service that was surveyed, and designs its regulator.
///
/// # Errors
/// When the service cannot be driven or identified; the message says which.
pub fn regulate(
    plant: &mut dyn Plant,
    settings: &Settings,
    survey: Survey,
) -> Result<Characterization, CharacterizeError> {
    let excitation = Excitation::measure(plant, settings, &survey.sweep)?;
    let regulator = Regulator::design(&excitation, settings)?;
    Ok(Characterization {
        settings: settings.clone(),
        sweep: survey.sweep,
        operating_point: survey.operating_point,
        excitation,
        regulator,
    })
}

/// Characterizes `plant`.
///
/// # Errors
/// When the service cannot be driven, saturated or identified; the message says which.
pub fn characterize(
    plant: &mut dyn Plant,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Characterization, CharacterizeError> {
    let survey = survey(plant, settings, progress)?;
    regulate(plant, settings, survey)
}
