//! Configuration and experiment files.
//!
//! All files of Tidegate are TOML that deserializes into valid types or is refused. Two things
//! are shared by every one of them and live here: [`units`] (`"250ms"`, `"40/s"`, `"64KiB"`,
//! `"80%"`) and [`parse`], which turns a refusal into a message with file, line, column and,
//! for a misspelt key, the nearest valid one.
//!
//! ```
//! use serde::Deserialize;
//! use tidegate_config::{Dur, parse};
//!
//! #[derive(Debug, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Class {
//!     target: Dur,
//! }
//!
//! let class: Class = parse("shop.toml", "target = '250ms'").unwrap();
//! assert_eq!(class.target.as_millis(), 250);
//!
//! let refused = parse::<Class>("shop.toml", "\ntraget = '250ms'").unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     "shop.toml:2:1: unknown key `traget`; did you mean `target`?"
//! );
//! ```

#[cfg(feature = "serde")]
mod document;
#[cfg(feature = "serde")]
mod error;
#[cfg(feature = "serde")]
mod substitute;
pub mod units;

#[cfg(feature = "serde")]
pub use document::{Document, Mistake, Parsed, Source};
#[cfg(feature = "serde")]
pub use error::ConfigError;
pub use units::{Dur, Rate, Share, Size};

#[cfg(feature = "serde")]
use serde::de::DeserializeOwned;

/// Deserializes `text`; `file` is only used to say where an error is.
///
/// # Errors
/// Syntax errors, wrong types, unknown keys (where the type denies them) and values that the
/// type itself refuses, each with its place in the file.
#[cfg(feature = "serde")]
pub fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))
}
