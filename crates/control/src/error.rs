//! Why a filter or a controller could not be built.
//!
//! Values are checked once, at construction; nothing that was built can fail afterwards.

use std::time::Duration;

/// A parameter that no sound filter or controller can have.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// One number is outside what its meaning allows.
    #[error("{name} must be {need}, got {value}")]
    Parameter {
        /// The field, as the configuration struct names it.
        name: &'static str,
        /// What would have been accepted.
        need: &'static str,
        /// What was given.
        value: f64,
    },
    /// A range that is empty or not finite.
    #[error("limits need min <= max, both finite; got min = {min}, max = {max}")]
    Limits {
        /// Lower end as given.
        min: f64,
        /// Upper end as given.
        max: f64,
    },
    /// Vectors that should have belonged together have different lengths.
    #[error("{name} has {got} entries, expected {expected}")]
    Length {
        /// The field, as the configuration struct names it.
        name: &'static str,
        /// How many entries its companions have.
        expected: usize,
        /// How many it has.
        got: usize,
    },
}

/// Refuses `value` unless `holds`.
pub(crate) fn require(
    holds: bool,
    name: &'static str,
    need: &'static str,
    value: f64,
) -> Result<(), ControlError> {
    if holds {
        Ok(())
    } else {
        Err(ControlError::Parameter { name, need, value })
    }
}

pub(crate) fn require_finite(name: &'static str, value: f64) -> Result<(), ControlError> {
    require(value.is_finite(), name, "finite", value)
}

pub(crate) fn require_positive(name: &'static str, value: f64) -> Result<(), ControlError> {
    let holds = value.is_finite() && value > 0.0;
    require(holds, name, "finite and above zero", value)
}

pub(crate) fn require_nonzero(name: &'static str, value: f64) -> Result<(), ControlError> {
    let holds = value.is_finite() && value != 0.0;
    require(holds, name, "finite and not zero", value)
}

/// Refuses a zero duration; returns it in seconds otherwise.
pub(crate) fn require_time(name: &'static str, value: Duration) -> Result<f64, ControlError> {
    let seconds = value.as_secs_f64();
    require(!value.is_zero(), name, "longer than zero", seconds)?;
    Ok(seconds)
}
