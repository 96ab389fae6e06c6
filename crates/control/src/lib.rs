//! Feedback controllers, controller design and identification.
//!
//! Pure code: no clock, no randomness, no I/O. A driver measures, calls
//! [`Controller::step`] once per sampling period, and enforces what it returns.
//!
//! - [`filter`]: averages: from noisy samples to one number;
//! - [`controller`]: static, step, PID, integral, state feedback, fuzzy, Smith predictor, all
//!   with limits, anti-windup and bumpless changes;
//! - [`system`]: discrete transfer functions and state space, their poles and margins;
//! - [`design`]: gains from pole placement, LQR, root locus, Ziegler and Nichols;
//! - [`identify`]: models from recorded runs.
//!
//! A thermostat, a queue or a web server, the loop is always the same:
//!
//! ```
//! use std::time::Duration;
//! use tidegate_control::Controller;
//! use tidegate_control::controller::{ActuatorConfig, Pid, PidConfig, PidGains};
//! use tidegate_control::filter::Ewma;
//!
//! let interval = Duration::from_secs(1);
//! let gains = PidGains::pi(2.0, Duration::from_secs(5));
//! let mut heater = Pid::new(PidConfig::new(gains, interval, ActuatorConfig::within(0.0, 100.0)))?;
//! let mut smoothed = Ewma::new(0.5)?;
//! let mut room = 15.0; // °C; the heater's percent add up to 20 °C to the 12 °C outside
//! for _ in 0..200 {
//!     let measured = smoothed.on_sample(room).unwrap_or(room);
//!     let percent = heater.step(21.0, measured);
//!     room += 0.05 * (12.0 + 0.2 * percent - room);
//! }
//! assert!((room - 21.0).abs() < 0.1);
//! # Ok::<(), tidegate_control::ControlError>(())
//! ```

pub mod controller;
pub mod design;
mod error;
pub mod filter;
pub mod identify;
pub mod log_linear;
pub mod system;
pub mod time;

pub use controller::Controller;
pub use error::ControlError;
pub use time::Timestamp;
