//! Counts HTTP/2 frames that carry nothing.
//!
//! PING, SETTINGS, PRIORITY, frames of unknown types and DATA without a byte cost the sender
//! nothing and us a little work each, and no window bounds them. h2 answers them all. So the
//! heads of frames are read on their way to it (RFC 9113 section 4.1), and a client that sends too
//! many at a time is cut off.

/// How many such frames may come between two sweeps. Chosen: the busiest honest clients probe the
/// path with a PING for each round trip, which is a few hundred in that time on a local network.
pub(super) const IDLE_FRAMES_MAX: u32 = 500;

/// What a client says before its first frame.
const PREFACE_BYTES: u64 = 24;
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const LAST_KNOWN: u8 = 9;
const END_STREAM: u8 = 1;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(super) struct FrameScan {
    /// Bytes before the next head.
    skip: u64,
    /// The beginning of a head.
    head: [u8; HEAD_BYTES],
    known: usize,
}

impl FrameScan {
    pub(super) fn new() -> Self {
        Self {
            skip: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            known: 0,
        }
    }

    /// How many frames that carry nothing begin in these bytes, which follow those seen before.
    pub(super) fn idle_frames(&mut self, mut bytes: &[u8]) -> u32 {
        let mut idle = 0;
        loop {
            let skipped = usize::try_from(self.skip).map_or(bytes.len(), |n| n.min(bytes.len()));
            self.skip -= skipped as u64;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return idle;
            }
            let taken = (HEAD_BYTES - self.known).min(bytes.len());
            self.head[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
            self.known += taken;
            bytes = &bytes[taken..];
            if self.known == HEAD_BYTES {
                self.known = 0;
                let length = u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]);
                self.skip = u64::from(length);
                idle += u32::from(carries_nothing(self.head[3], self.head[4], length));
            }
        }
    }
}

fn carries_nothing(kind: u8, flags: u8, length: u32) -> bool {
    match kind {
        DATA => length == 0 && flags & END_STREAM == 0,
        PRIORITY | SETTINGS | PING => true,
        kind => kind > LAST_KNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, flags, 0, 0, 0, 1];
        [&head[..], &vec![0; usize::from(length)]].concat()
    }

    #[test]
    fn frames_are_told_apart_however_they_are_cut() {
        let frames = [
            vec![b'x'; 24],
            frame(SETTINGS, 0, 6),
            frame(1, 4, 30),
            frame(DATA, 0, 0),
            frame(DATA, END_STREAM, 0),
            frame(DATA, 0, 100),
            frame(8, 0, 4),
            frame(PING, 0, 8),
            frame(PRIORITY, 0, 5),
            frame(77, 0, 1),
        ]
        .concat();
        for size in 1..frames.len() {
            let mut scan = FrameScan::new();
            let pieces = frames.chunks(size);
            let idle: u32 = pieces.map(|piece| scan.idle_frames(piece)).sum();
            assert_eq!(idle, 5, "pieces of {size}");
        }
    }
}
