//! Filters: from noisy samples to the number a controller can use.
//!
//! | filter | answers | forgets by |
//! | --- | --- | --- |
//! | [`Ewma`] | smoothed value | number of samples |
//! | [`PeakEwma`] | recent worst, falling back slowly | age |
//!
//! They skip samples that are not finite. Time comes as a [`Timestamp`](crate::Timestamp); one that
//! lies before an earlier one counts as "now": two cores may read the driver's clock in either
//! order. Quantiles are read from a histogram, whose buckets are in
//! [`log_linear`](crate::log_linear).

mod ewma;
mod peak;

pub use ewma::Ewma;
pub use peak::PeakEwma;
