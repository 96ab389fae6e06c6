//! NaN-safe clamping.

/// `value` brought into the range; NaN gives `min`.
pub(crate) fn within(value: f64, min: f64, max: f64) -> f64 {
    if value > min { value.min(max) } else { min }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_the_lower_end() {
        assert_eq!(within(f64::NAN, 1.0, 2.0), 1.0);
        assert_eq!(within(f64::INFINITY, 1.0, 2.0), 2.0);
        assert_eq!(within(1.5, 1.0, 2.0), 1.5);
    }
}
