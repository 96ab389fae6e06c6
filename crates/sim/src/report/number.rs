//! Numbers for people and programs.

use serde_json::Value;

use crate::stats::Estimate;

/// Three or four significant digits, no exponent where it can be avoided; `-` for NaN.
#[must_use]
pub fn number(value: f64) -> String {
    match decimals(value) {
        _ if value.is_nan() => "-".to_owned(),
        _ if value.is_infinite() => format!("{}∞", if value < 0.0 { "-" } else { "" }),
        Some(decimals) => format!("{value:.decimals$}"),
        None => format!("{value:.2e}"),
    }
}

/// Decimals of a number of that size; `None` where an exponent reads better.
fn decimals(value: f64) -> Option<usize> {
    let size = value.abs();
    match size {
        0.0 => Some(0),
        _ if !(1e-4..1e6).contains(&size) => None,
        _ if size >= 1000.0 => Some(0),
        _ if size >= 100.0 => Some(1),
        _ if size >= 10.0 => Some(2),
        _ if size >= 0.1 => Some(3),
        _ => Some(5),
    }
}

/// `0.799 ± 0.002`, to the digits of the mean; without the interval where there is none.
#[must_use]
pub fn with_interval(estimate: &Estimate) -> String {
    let (mean, half_width) = (estimate.mean, estimate.half_width);
    if !half_width.is_finite() || half_width == 0.0 {
        return number(mean);
    }
    let Some(decimals) = decimals(mean) else {
        return format!("{} ± {}", number(mean), number(half_width));
    };
    let unit = 10_f64.powi(-(decimals as i32));
    if half_width < unit / 2.0 {
        format!("{mean:.decimals$} ± <{unit:.decimals$}")
    } else {
        format!("{mean:.decimals$} ± {half_width:.decimals$}")
    }
}

/// Six significant digits; `null` for what JSON cannot say.
pub(super) fn json(value: f64) -> Value {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(f64::NAN);
    serde_json::Number::from_f64(rounded).map_or(Value::Null, Value::Number)
}

/// `[low, high]`; `null` where one repetition gives no interval.
pub(super) fn json_interval(estimate: &Estimate) -> Value {
    if !estimate.half_width.is_finite() {
        return Value::Null;
    }
    let ends = [
        estimate.mean - estimate.half_width,
        estimate.mean + estimate.half_width,
    ];
    Value::Array(ends.map(json).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown = [0.81979, 12.345, 4321.9, 0.0, 0.0255, -0.5, 1.5e-7, f64::NAN].map(number);
        assert_eq!(
            shown,
            [
                "0.820", "12.35", "4322", "0", "0.02550", "-0.500", "1.50e-7", "-"
            ]
        );
    }

    #[test]
    fn intervals_have_the_digits_of_their_mean() {
        let shown = |samples: &[f64]| with_interval(&Estimate::from_samples(samples, 0.95));
        assert_eq!(shown(&[11.9, 12.1, 12.0]), "12.00 ± 0.25");
        assert_eq!(shown(&[0.8, 0.800_01, 0.799_99]), "0.800 ± <0.001");
        assert_eq!(shown(&[5.0]), "5.000");
        assert_eq!(number(f64::INFINITY), "∞");
    }

    #[test]
    fn json_has_no_nan() {
        assert_eq!(json(f64::NAN), Value::Null);
        assert_eq!(json(f64::INFINITY), Value::Null);
        assert_eq!(json(0.123_456_789), serde_json::json!(0.123_457));
    }
}
