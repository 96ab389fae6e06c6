//! The body of a message: where it ends, and its bytes out of their framing (RFC 9112 sections 6
//! and 7.1).

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memchr;

use super::chunk::{self, ChunkEnd, ChunkLine};
use super::{HeadLimits, Violation, field};

/// How a body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes.
    Length(u64),
    /// In chunks, with trailers behind them.
    Chunked,
    /// It ends with the connection: responses only.
    UntilClose,
}

/// The next piece of a body.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Bytes of the body.
    Data(Bytes),
    /// Headers behind the body; they are its end.
    Trailers(HeaderMap),
    /// The body is complete.
    End,
}

/// Takes a body out of its framing, as it arrives.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    limits: HeadLimits,
}

#[derive(Debug)]
enum State {
    Length(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    Trailers(Trailers),
    UntilClose,
    End,
}

#[derive(Debug, Default)]
struct Trailers {
    bytes: usize,
    fields: HeaderMap,
}

impl Decoder {
    /// A body that begins; the limits are those of its trailers.
    #[must_use]
    pub fn new(framing: Framing, limits: HeadLimits) -> Self {
        let state = match framing {
            Framing::Length(0) => State::End,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkLine,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, limits }
    }

    /// A body that is not there.
    #[must_use]
    pub fn none() -> Self {
        let limits = HeadLimits {
            bytes: 0,
            fields: 0,
        };
        Self::new(Framing::Length(0), limits)
    }

    /// Whether the body is complete.
    #[inline]
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Bytes still to come, where that is known.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::End => Some(0),
            _ => None,
        }
    }

    /// The next piece, taken from the front of `input`; `None` if it takes more bytes.
    ///
    /// # Errors
    /// When the framing is malformed or the trailers exceed their limits.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Piece>, Violation> {
        loop {
            match &mut self.state {
                State::End => return Ok(Some(Piece::End)),
                _ if input.is_empty() => return Ok(None),
                State::UntilClose => return Ok(Some(Piece::Data(input.split().freeze()))),
                State::Length(left) => {
                    let data = take(input, left);
                    if *left == 0 {
                        self.state = State::End;
                    }
                    return Ok(Some(Piece::Data(data)));
                }
                State::ChunkData(left) => {
                    let data = take(input, left);
                    if *left == 0 {
                        self.state = State::ChunkEnd;
                    }
                    // So that the end is known with the last byte, where it has come. What is wrong
                    // behind the data is told when that has been taken, as if it came later.
                    let _ = self.look_ahead(input);
                    return Ok(Some(Piece::Data(data)));
                }
                State::ChunkLine | State::ChunkEnd => {
                    if !self.between_chunks(input)? {
                        return Ok(None);
                    }
                }
                State::Trailers(trailers) => {
                    if !trailers.read(input, &self.limits)? {
                        return Ok(None);
                    }
                    let trailers = std::mem::take(&mut trailers.fields);
                    self.state = State::End;
                    return Ok(Some(if trailers.is_empty() {
                        Piece::End
                    } else {
                        Piece::Trailers(trailers)
                    }));
                }
            }
        }
    }

    /// The connection has ended: is that the end of the body, or is it broken off?
    pub fn end_of_input(&mut self) -> bool {
        if let State::UntilClose = self.state {
            self.state = State::End;
        }
        self.is_end()
    }

    /// Goes on to the end of the body if there is nothing but framing in between.
    fn look_ahead(&mut self, input: &mut BytesMut) -> Result<(), Violation> {
        while matches!(self.state, State::ChunkLine | State::ChunkEnd) {
            if !self.between_chunks(input)? {
                return Ok(());
            }
        }
        if let State::Trailers(_) = self.state
            && input.starts_with(b"\r\n")
        {
            let _ = input.split_to(2);
            self.state = State::End;
        }
        Ok(())
    }

    /// Reads the framing between two chunks; false if it is not all there.
    fn between_chunks(&mut self, input: &mut BytesMut) -> Result<bool, Violation> {
        let (len, next) = match self.state {
            State::ChunkEnd => match chunk::end(input)? {
                ChunkEnd::Incomplete => return Ok(false),
                ChunkEnd::Complete { len } => (len, State::ChunkLine),
            },
            _ => match chunk::line(input)? {
                ChunkLine::Incomplete => return Ok(false),
                ChunkLine::Last { len } => (len, State::Trailers(Trailers::default())),
                ChunkLine::Data { len, size } => (len, State::ChunkData(size)),
            },
        };
        let _ = input.split_to(len);
        self.state = next;
        Ok(true)
    }
}

impl Trailers {
    /// Takes lines up to the empty one; false if it has not come.
    fn read(&mut self, input: &mut BytesMut, limits: &HeadLimits) -> Result<bool, Violation> {
        loop {
            let Some(at) = memchr(b'\n', input) else {
                return if self.bytes + input.len() > limits.bytes {
                    Err(Violation::HeadTooLarge)
                } else {
                    Ok(false)
                };
            };
            let line = input.split_to(at + 1).freeze();
            self.bytes += line.len();
            let line = line.slice(..field::without_cr(&line[..at])?.len());
            if line.is_empty() {
                return Ok(true);
            }
            let (name, value) = field::split(&line)?;
            if self.bytes > limits.bytes {
                return Err(Violation::HeadTooLarge);
            }
            if self.fields.len() >= limits.fields {
                return Err(Violation::TooManyHeaders);
            }
            let name = HeaderName::from_bytes(name).map_err(|_| Violation::FieldName)?;
            let value = HeaderValue::from_bytes(value).map_err(|_| Violation::FieldValue)?;
            self.fields.append(name, value);
        }
    }
}

/// Takes up to `left` bytes.
fn take(input: &mut BytesMut, left: &mut u64) -> Bytes {
    let len = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    *left -= len as u64;
    input.split_to(len).freeze()
}
