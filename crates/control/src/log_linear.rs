//! Buckets of log-linear histograms, as in HdrHistogram: which one holds a value, and its edges.
//!
//! Every power of two (an octave) is cut into eight equal parts:
//!
//! ```text
//! bucket(v) = v                                     v < 8
//! bucket(v) = 8 (log2 v - 2) + (v >> (log2 v - 3)) - 8      otherwise, log2 rounded down
//! ```
//!
//! A bucket is at most an eighth as wide as its lower edge, so that a quantile read from the middle
//! of its bucket is off by 6 % at most. The unit is the caller's: a histogram of microseconds
//! reaches 18 minutes with 224 buckets. What it counts with is the caller's too: atomics where many
//! threads write, weights where the past is discounted.
//!
//! Decision: docs/decisions/0266-one-of-each-helper.md.

/// Buckets of an octave, as a power of two.
const SUB_BITS: u32 = 3;

/// Buckets of an octave.
pub const PER_OCTAVE: usize = 1 << SUB_BITS;

/// The bucket that holds a value.
///
/// ```
/// use tidegate_control::log_linear::{bucket, lower_edge};
///
/// assert_eq!(bucket(5), 5);
/// let found = bucket(1000);
/// assert!(lower_edge(found) <= 1000 && 1000 < lower_edge(found + 1));
/// ```
#[inline]
#[must_use]
pub const fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let sub = (value >> (exponent - SUB_BITS)) as usize - PER_OCTAVE;
    (exponent - SUB_BITS + 1) as usize * PER_OCTAVE + sub
}

/// The smallest value of a bucket. A bucket whose values need more than 64 bits has none; its edge
/// is the largest value there is.
#[inline]
#[must_use]
pub const fn lower_edge(bucket: usize) -> u64 {
    let (octave, sub) = (bucket / PER_OCTAVE, bucket % PER_OCTAVE);
    if octave == 0 {
        return sub as u64;
    }
    let (mantissa, shift) = ((PER_OCTAVE + sub) as u64, octave as u32 - 1);
    if shift > mantissa.leading_zeros() {
        return u64::MAX;
    }
    mantissa << shift
}

/// How many values a bucket holds.
#[inline]
#[must_use]
pub const fn width(bucket: usize) -> u64 {
    lower_edge(bucket + 1) - lower_edge(bucket)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        for bucket in 0..480 {
            let edge = lower_edge(bucket);
            assert_eq!(self::bucket(edge), bucket);
            assert_eq!(self::bucket(edge + width(bucket) - 1), bucket);
        }
        assert_eq!(lower_edge(self::bucket(u64::MAX) + 1), u64::MAX);
    }

    proptest! {
        #[test]
        fn middle_of_the_bucket_is_within_a_sixteenth(value in 8_u64..1 << 60) {
            let bucket = bucket(value);
            let middle = lower_edge(bucket) as f64 + 0.5 * width(bucket) as f64;
            prop_assert!((middle / value as f64 - 1.0).abs() <= 0.0626);
        }
    }
}
