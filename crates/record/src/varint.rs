//! Whole numbers in as few bytes as they need: seven bits per byte, the lowest first (LEB128).
//!
//! Signed differences are folded first, so that small ones of either sign stay short: 0, -1, 1, -2
//! become 0, 1, 2, 3.

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference of two numbers.
pub(crate) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Takes a number from the front; nothing when the bytes end or the number does not fit.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Takes the number that differs from `from` by the next difference.
pub(crate) fn take_difference(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let folded = take(bytes)?;
    let difference = (folded >> 1) as i64 ^ -((folded & 1) as i64);
    Some(from.wrapping_add(difference as u64))
}

/// Takes `length` bytes.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let length = usize::try_from(length).ok()?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_differences_survive(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut out = Vec::new();
            let mut before = 0;
            for &number in &numbers {
                put(&mut out, number);
                put_difference(&mut out, before, number);
                before = number;
            }
            let (mut bytes, mut before) = (&out[..], 0);
            for &number in &numbers {
                prop_assert_eq!(take(&mut bytes), Some(number));
                prop_assert_eq!(take_difference(&mut bytes, before), Some(number));
                before = number;
            }
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(take(&mut bytes), None);
        }
    }

    #[test]
    fn number_of_more_than_64_bits_is_none() {
        let mut bytes: &[u8] = &[0xff; 11];
        assert_eq!(take(&mut bytes), None);
        let mut bytes: &[u8] = &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02];
        assert_eq!(take(&mut bytes), None);
    }
}
