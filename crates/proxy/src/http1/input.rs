//! Reads from a connection into its buffer.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Room that a read should find. Chosen: most heads, and small bodies with them, come in one read.
const ROOM: usize = 1024;
/// Whoever wants to read more than this at a time reads a long body.
const HEAD_MAX: usize = 8 << 10;

/// Reads what is there behind what `input` holds, which is made larger by `step` bytes if there is
/// no room to speak of. 0 is the end.
pub(crate) fn poll_fill<R: AsyncRead + Unpin>(
    reader: &mut R,
    cx: &mut Context<'_>,
    input: &mut BytesMut,
    step: usize,
) -> Poll<io::Result<usize>> {
    make_room(input, step);
    pin!(reader.read_buf(input)).poll(cx)
}

/// Makes room, at the start of the buffer where nothing of it is in use any more: what was read there last
/// is in the processor's cache, and what comes behind it is not. With many connections that is most of
/// what a message costs to read.
fn make_room(input: &mut BytesMut, step: usize) {
    let unused = input.is_empty();
    if unused && input.try_reclaim(step) || input.capacity() - input.len() >= ROOM {
        return;
    }
    // A connection that says little gets along with its first buffer.
    if !(unused && step <= HEAD_MAX && input.try_reclaim(ROOM)) {
        input.reserve(step.max(ROOM));
    }
}

/// Whether nothing has been said on a connection, neither a word nor goodbye.
pub(crate) fn is_quiet<R: AsyncRead + Unpin>(reader: &mut R) -> bool {
    let mut byte = [0];
    let mut cx = Context::from_waker(Waker::noop());
    let read = Pin::new(reader).poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
    read.is_pending()
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    const STEP: usize = 4 << 10;

    /// Room for a message, its bytes, and where they are.
    fn message(input: &mut BytesMut, step: usize, len: usize) -> (BytesMut, *const u8) {
        make_room(input, step);
        input.put_bytes(b'x', len);
        let start = input.as_ptr();
        (input.split(), start)
    }

    #[test]
    fn one_message_after_the_other_is_read_to_the_same_place() {
        for first in [ROOM, STEP] {
            let mut input = BytesMut::with_capacity(first);
            let (_, place) = message(&mut input, STEP, 100);
            for _ in 0..100 {
                assert_eq!(message(&mut input, STEP, 100).1, place);
            }
        }
    }

    #[test]
    fn what_is_in_use_is_left_alone() {
        let mut input = BytesMut::with_capacity(STEP);
        let kept: Vec<_> = (0..100).map(|_| message(&mut input, STEP, 100).0).collect();
        assert!(kept.iter().all(|bytes| bytes[..] == [b'x'; 100]));
    }

    #[test]
    fn a_long_body_is_read_in_long_pieces() {
        let mut input = BytesMut::with_capacity(STEP);
        drop(message(&mut input, STEP, STEP - 1));
        make_room(&mut input, 64 << 10);
        assert!(input.capacity() >= 64 << 10);
    }

    #[test]
    fn a_message_in_pieces_finds_room_behind_its_start() {
        let mut input = BytesMut::with_capacity(ROOM);
        for _ in 0..20 {
            make_room(&mut input, STEP);
            assert!(input.capacity() - input.len() >= ROOM);
            input.put_bytes(b'x', ROOM);
        }
        assert_eq!(input.len(), 20 * ROOM);
    }
}
