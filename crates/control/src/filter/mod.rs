//! Filters: from noisy samples to the number a controller can use.
//!
//! | filter | answers | forgets by |
//! | --- | --- | --- |
//! | [`Ewma`] | smoothed value | number of samples |
//! | [`TimeEwma`] | mean of irregular samples | age |
//! | [`PeakEwma`] | recent worst, falling back slowly | age |
//! | [`SlidingWindow`] | mean, minimum, maximum | number of samples, and age if wanted |
//! | [`RateMeter`] | events (or amount) per second | age |
//! | [`WindowedQuantile`] | exact quantiles | number of samples |
//!
//! All of them skip samples that are not finite and count them. Those that need time take it as
//! a [`Timestamp`](crate::Timestamp); one that lies before an earlier one counts as "now": two
//! cores may read the driver's clock in either order.

mod ewma;
mod peak;
mod quantile;
mod rate;
mod window;

pub use ewma::{Ewma, TimeEwma};
pub use peak::PeakEwma;
pub use quantile::{WindowedQuantile, nearest_rank};
pub use rate::RateMeter;
pub use window::SlidingWindow;

use std::time::Duration;

/// Refuses samples that are not finite, and counts them.
#[derive(Debug, Clone, Default)]
struct SampleCheck {
    refused: u64,
}

impl SampleCheck {
    fn accept(&mut self, sample: f64) -> bool {
        let good = sample.is_finite();
        self.refused += u64::from(!good);
        good
    }
}

/// What is left of a weight of one after `age`: `exp(-age/τ)`.
fn remaining(age: Duration, time_constant_s: f64) -> f64 {
    (-age.as_secs_f64() / time_constant_s).exp()
}
