//! Requests that cost about the same are judged together (003 §3.2): buckets of service times,
//! four to an octave, from a tenth of a millisecond to some seconds.

/// How many there are.
pub(crate) const BUCKETS: u8 = 64;

/// Upper end of the first.
const SMALLEST_S: f64 = 1e-4;

const PER_OCTAVE: f64 = 4.0;

/// The bucket of a service time: `b` holds those above `2^((b-1)/4)` tenths of a millisecond, up
/// to `2^(b/4)`.
pub(crate) fn bucket_of(service_s: f64) -> u8 {
    // `as` saturates, and maps what is negative and NaN to zero.
    let octaves = (service_s / SMALLEST_S).log2();
    ((octaves * PER_OCTAVE).ceil() as u8).min(BUCKETS - 1)
}

/// The service time in the middle of a bucket, which stands for all of them.
pub(crate) fn service_s_of(bucket: u8) -> f64 {
    SMALLEST_S * ((f64::from(bucket) - 0.5) / PER_OCTAVE).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_stands_for_all_within_a_tenth() {
        for micros in (120..5_000_000).step_by(7919) {
            let service_s = f64::from(micros) * 1e-6;
            let off = service_s_of(bucket_of(service_s)) / service_s;
            assert!((0.9..1.1).contains(&off), "{service_s}: {off}");
        }
    }

    #[test]
    fn nonsense_is_in_a_bucket_too() {
        assert_eq!(bucket_of(0.0), 0);
        assert_eq!(bucket_of(f64::NAN), 0);
        assert_eq!(bucket_of(f64::INFINITY), BUCKETS - 1);
    }
}
