//! Feedback controllers, controller design and identification.
//!
//! Pure code: no clock, no randomness, no I/O. A driver measures, calls
//! [`Controller::step`] once per sampling period, and enforces what it returns.

pub mod controller;
pub mod design;
mod error;
pub mod filter;
pub mod identify;
pub mod system;
pub mod time;

pub use controller::Controller;
pub use error::ControlError;
pub use time::Timestamp;
