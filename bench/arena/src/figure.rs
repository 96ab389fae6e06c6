//! What is measured, and how the report names it.

use crate::measure::Measures;

/// One of the things measured.
#[derive(Debug)]
pub(crate) struct Figure {
    /// In files.
    pub(crate) key: &'static str,
    /// Above its table.
    pub(crate) title: &'static str,
    /// From the value to what the table shows.
    pub(crate) scale: f64,
    pub(crate) decimals: usize,
    pub(crate) value: fn(&Measures) -> f64,
    /// Shown where the machine was too noisy: it says how noisy.
    pub(crate) even_if_noisy: bool,
}

macro_rules! figure {
    ($field:ident, $key:literal, $scale:literal, $decimals:literal, $title:literal) => {
        Figure {
            key: $key,
            title: $title,
            scale: $scale,
            decimals: $decimals,
            value: |measures| measures.$field,
            even_if_noisy: false,
        }
    };
}

/// The one that has a picture beside the goodput.
pub(crate) const P99: Figure = figure!(
    p99,
    "p99_of_target",
    1.0,
    2,
    "99th percentile of what was answered, over the target"
);

/// Everything measured; the goodput comes first, and its table is another one.
pub(crate) const FIGURES: [Figure; 13] = [
    figure!(
        goodput,
        "goodput_of_ideal",
        100.0,
        1,
        "Goodput within the target, percent of the ideal"
    ),
    figure!(
        p95,
        "p95_of_target",
        1.0,
        2,
        "95th percentile of what was answered, over the target"
    ),
    P99,
    figure!(
        max,
        "max_of_target",
        1.0,
        2,
        "The longest answer, over the target"
    ),
    figure!(
        power,
        "power",
        1.0,
        2,
        "Power: answers over the capacity, over the response time in units of work"
    ),
    figure!(
        revenue,
        "revenue_of_optimum",
        100.0,
        1,
        "Revenue within the target, percent of the optimum"
    ),
    figure!(
        refused,
        "refused_share",
        100.0,
        1,
        "Refused, percent of all tries"
    ),
    figure!(answered, "answered_per_s", 1.0, 1, "Answered per second"),
    figure!(
        settle_s,
        "settle_s",
        1.0,
        0,
        "Seconds until the goodput is there after overload began"
    ),
    figure!(
        recover_s,
        "recover_s",
        1.0,
        0,
        "Seconds until the goodput is there after overload ended"
    ),
    figure!(
        cpu_us,
        "cpu_us_per_request",
        1.0,
        0,
        "Processor time per request, microseconds"
    ),
    figure!(
        refusal_ms,
        "refusal_ms",
        1.0,
        1,
        "Median time to a refusal, milliseconds"
    ),
    Figure {
        even_if_noisy: true,
        ..figure!(
            lag_ms,
            "send_lag_ms",
            1.0,
            1,
            "How late the load was sent, 99th percentile, milliseconds"
        )
    },
];
