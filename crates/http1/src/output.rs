//! What is to be written to a connection: small pieces put together, large ones not copied.

#[cfg(feature = "io")]
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
#[cfg(feature = "io")]
use tokio::io::AsyncWrite;

/// Data up to this size is copied behind what waits already: a copy within the cache is cheaper
/// than one more piece for the kernel.
const COPY_MAX: usize = 4096;
/// More than this does not wait together.
const TOGETHER_MAX: usize = 16 << 10;
#[cfg(feature = "io")]
/// What an idle connection may keep.
const KEPT_MAX: usize = 2048;

/// Bytes that wait to be written.
#[derive(Debug, Default)]
pub struct Output {
    small: Vec<u8>,
    /// Bytes of `small` that have been written.
    written: usize,
    /// Behind `small`.
    large: Bytes,
    /// Behind `large`.
    ending: &'static [u8],
    /// Whether anything has been written since it was new.
    touched: bool,
}

impl Output {
    /// Where small pieces are put together; to be used only while [`Output::has_room`].
    #[inline]
    pub fn small(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Whether more may be added before something has been written.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.large.is_empty() && self.ending.is_empty() && self.small.len() < TOGETHER_MAX
    }

    /// Whether nothing waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.small.len() == self.written && self.large.is_empty() && self.ending.is_empty()
    }

    /// Whether anything has been written since [`Output::renew`].
    #[inline]
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.touched
    }

    /// Forgets that anything has been written, and what has not been.
    pub fn renew(&mut self) {
        self.small.clear();
        self.written = 0;
        self.large = Bytes::new();
        self.ending = b"";
        self.touched = false;
    }

    /// Adds data, and a few bytes behind it.
    pub fn push(&mut self, data: Bytes, ending: &'static [u8]) {
        if data.len() <= COPY_MAX {
            self.small.extend_from_slice(&data);
            self.small.extend_from_slice(ending);
        } else {
            self.large = data;
            self.ending = ending;
        }
    }

    /// Ready when everything is written.
    ///
    /// # Errors
    /// What the connection reports.
    #[cfg(feature = "io")]
    pub fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let small = &self.small[self.written..];
            let len = if self.large.is_empty() && self.ending.is_empty() {
                ready!(Pin::new(&mut *writer).poll_write(cx, small))?
            } else {
                let pieces = [small, &self.large, self.ending].map(IoSlice::new);
                let pieces = if small.is_empty() {
                    &pieces[1..]
                } else {
                    &pieces
                };
                ready!(Pin::new(&mut *writer).poll_write_vectored(cx, pieces))?
            };
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(len);
        }
        Poll::Ready(Ok(()))
    }

    #[cfg(feature = "io")]
    fn advance(&mut self, len: usize) {
        self.touched = true;
        let of_small = len.min(self.small.len() - self.written);
        self.written += of_small;
        if self.written == self.small.len() {
            self.small.clear();
            self.written = 0;
            if self.small.capacity() > KEPT_MAX {
                self.small = Vec::new();
            }
        }
        let of_large = (len - of_small).min(self.large.len());
        if of_large == self.large.len() {
            // Not a piece of nothing: it would keep what it was a piece of.
            self.large = Bytes::new();
        } else {
            drop(self.large.split_to(of_large));
        }
        self.ending = &self.ending[len - of_small - of_large..];
    }
}
