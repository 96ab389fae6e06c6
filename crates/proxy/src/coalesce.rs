//! Small writes in one piece.
//!
//! The head and the body of a message are separate pieces. For a socket that means `writev`, which
//! costs the kernel noticeably more than `send` of the same bytes, because it goes through the file
//! layer and copies the list of pieces first. Copying a few hundred bytes here is cheaper.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, ReadBuf};

/// Bytes up to which pieces are put together. Chosen: a page, which a copy within the cache
/// takes some fifty nanoseconds for.
const SMALL: usize = 4096;

/// Writes pieces, as one if they are small.
pub(crate) fn poll_write<W: AsyncWrite + Unpin>(
    mut writer: &mut W,
    cx: &mut Context<'_>,
    pieces: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [piece] = pieces {
        return Pin::new(&mut writer).poll_write(cx, piece);
    }
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    if total > SMALL {
        return Pin::new(&mut writer).poll_write_vectored(cx, pieces);
    }
    let mut space = [MaybeUninit::uninit(); SMALL];
    let mut whole = ReadBuf::uninit(&mut space);
    for piece in pieces {
        whole.put_slice(piece);
    }
    Pin::new(&mut writer).poll_write(cx, whole.filled())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time and remembers how it was asked.
    #[derive(Default)]
    struct Slow {
        taken: Vec<u8>,
        vectored: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let len = bytes.len().min(7);
            self.taken.extend_from_slice(&bytes[..len]);
            Poll::Ready(Ok(len))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.vectored = true;
            self.poll_write(cx, &pieces[0])
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn every_byte_goes_out_once_however_little_is_taken() {
        let message = b"head of a message\r\n\r\nand its body".to_vec();
        for cut in 0..message.len() {
            let mut writer = Slow::default();
            let mut sent = 0;
            let mut cx = Context::from_waker(std::task::Waker::noop());
            while sent < message.len() {
                let pieces = [&message[sent..cut.max(sent)], &message[cut.max(sent)..]];
                let pieces = pieces.map(IoSlice::new);
                let Poll::Ready(Ok(len)) = poll_write(&mut writer, &mut cx, &pieces) else {
                    panic!("it always takes some");
                };
                sent += len;
            }
            assert_eq!(writer.taken, message, "cut at {cut}");
            assert!(!writer.vectored);
        }
    }

    #[test]
    fn large_pieces_are_not_copied() {
        let mut writer = Slow::default();
        let large = vec![0; SMALL];
        let pieces = [IoSlice::new(b"head"), IoSlice::new(&large)];
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(poll_write(&mut writer, &mut cx, &pieces).is_ready());
        assert!(writer.vectored);
    }
}
