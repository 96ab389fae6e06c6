//! Reads from a connection into its buffer.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Room that a read should find. Chosen: most heads, and small bodies with them, come in one read.
const READ_BYTES_MIN: usize = 1024;

/// Reads what is there behind what `input` holds, which is made larger by `step` bytes if there is
/// no room to speak of. 0 is the end.
///
/// # Errors
/// What the connection reports.
pub fn poll_fill<R: AsyncRead + Unpin>(
    reader: &mut R,
    cx: &mut Context<'_>,
    input: &mut BytesMut,
    step: usize,
) -> Poll<io::Result<usize>> {
    if input.capacity() - input.len() < READ_BYTES_MIN {
        input.reserve(step.max(READ_BYTES_MIN));
    }
    pin!(reader.read_buf(input)).poll(cx)
}

/// Whether nothing is to be read from a connection, neither bytes nor its end.
pub fn is_quiet<R: AsyncRead + Unpin>(reader: &mut R) -> bool {
    let mut byte = [0];
    let mut cx = Context::from_waker(Waker::noop());
    let read = Pin::new(reader).poll_read(&mut cx, &mut ReadBuf::new(&mut byte));
    read.is_pending()
}
