//! Numbers for people and programs.

use serde_json::Value;

use crate::stats::Estimate;

/// Three or four significant digits, no exponent where it can be avoided; `-` for NaN.
#[must_use]
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        _ if size >= 1e6 || size < 1e-4 => format!("{value:.2e}"),
        _ if size >= 1000.0 => format!("{value:.0}"),
        _ if size >= 100.0 => format!("{value:.1}"),
        _ if size >= 10.0 => format!("{value:.2}"),
        _ if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// `0.799 ± 0.002`; without the interval where there is none.
#[must_use]
pub fn with_interval(estimate: &Estimate) -> String {
    if estimate.half_width > 0.0 && estimate.half_width.is_finite() {
        format!(
            "{} ± {}",
            number(estimate.mean),
            number(estimate.half_width)
        )
    } else {
        number(estimate.mean)
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
    fn json_has_no_nan() {
        assert_eq!(json(f64::NAN), Value::Null);
        assert_eq!(json(f64::INFINITY), Value::Null);
        assert_eq!(json(0.123_456_789), serde_json::json!(0.123_457));
    }
}
