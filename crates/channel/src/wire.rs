//! Reading and writing fixed-size big-endian fields.

/// Takes fields off the front of a message; `None` once it is too short.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    /// Whether nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

/// A time of the channel in milliseconds since the Unix epoch.
pub(crate) fn millis(time: tidegate_control::Timestamp) -> u64 {
    time.as_nanos() / 1_000_000
}

/// The inverse of [`millis`]; what cannot be a time of this era is the end of time.
pub(crate) fn timestamp(millis: u64) -> tidegate_control::Timestamp {
    tidegate_control::Timestamp::from_nanos(millis.saturating_mul(1_000_000))
}
