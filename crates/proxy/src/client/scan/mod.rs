//! Where the messages of an HTTP/1 connection begin and end, and whether their framing is sound.
//!
//! Two parties that read the same bytes must not disagree about where a request ends: whoever
//! exploits a disagreement gets a request past the one into the other ("request smuggling").
//! hyper is lenient where RFC 9112 lets a recipient be (bare LF ends a line) and repairs what
//! should be refused (`Content-Length` beside `Transfer-Encoding`), and what it repaired can no
//! longer be seen afterwards. So the bytes are judged before hyper gets them, by the strict
//! grammar of RFC 9112 sections 2.2, 3, 5, 6 and 7.1.
//!
//! The scanner is pure: bytes in, a judgement out. [`super::inspect`] puts it under hyper.
//! What breaks it: a framing that hyper reads differently. It accepts a subset of what hyper
//! accepts, and the tests of this module hold the two side by side.

mod chunk;
mod field;
mod head;

use std::fmt;

use chunk::{ChunkEnd, ChunkLine};
use head::HeadScan;

/// What is wrong with the bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("a line ends in LF without CR")]
    BareLf,
    #[error("the request line is not METHOD SP TARGET SP HTTP/1.1")]
    RequestLine,
    #[error("the HTTP version is not supported")]
    Version,
    #[error("a header line is folded")]
    Folded,
    #[error("a header's name is malformed")]
    FieldName,
    #[error("a header's value contains a control character")]
    FieldValue,
    #[error("Content-Length is malformed or repeated")]
    ContentLength,
    #[error("the transfer coding is not supported")]
    TransferCoding,
    #[error("Transfer-Encoding is repeated, or beside Content-Length, or in HTTP/1.0")]
    Framing,
    #[error("the request line is too long")]
    TargetTooLong,
    #[error("the headers are too large")]
    HeadTooLarge,
    #[error("there are too many headers")]
    TooManyHeaders,
    #[error("a chunk of the body is malformed")]
    Chunk,
    #[error("the headers did not arrive in time")]
    HeadTimeout,
}

/// Bounds on a head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanLimits {
    pub(crate) head_bytes: usize,
    pub(crate) headers: usize,
}

/// How the body of a request is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
}

/// Judges the bytes of one connection in the order they arrive.
pub(crate) struct Scanner {
    limits: ScanLimits,
    state: State,
    heads: u32,
}

enum State {
    Head(HeadScan),
    Length(u64),
    ChunkLine,
    ChunkData(u64),
    ChunkEnd,
    Trailers {
        bytes: usize,
        lines: usize,
    },
    /// A head asked for an upgrade; what follows may no longer be HTTP.
    Upgrade,
}

/// How far the bytes are sound, and why it went no further.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// So many leading bytes may go on to the parser.
    pub(crate) passed: usize,
    pub(crate) stop: Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All bytes passed.
    End,
    /// The rest is an incomplete line or head: show it again, from `passed` on, with more behind it.
    Incomplete,
    /// The rest comes after a request for an upgrade: show it again once that is decided.
    Upgrade,
    /// The rest is not sound.
    Bad(Violation),
}

/// What one state made of the bytes in front of it.
enum Step {
    /// Consumed so many; go on in the state that is now set.
    Next(usize),
    Stop(Stop),
}

impl Scanner {
    pub(crate) fn new(limits: ScanLimits) -> Self {
        Self {
            limits,
            state: State::Head(HeadScan::default()),
            heads: 0,
        }
    }

    /// Heads that have passed.
    pub(crate) fn heads(&self) -> u32 {
        self.heads
    }

    /// Whether the next byte is, or belongs to, a head.
    pub(crate) fn in_head(&self) -> bool {
        matches!(self.state, State::Head(_))
    }

    /// The upgrade that stopped the scan did not happen: what follows is the next request.
    pub(crate) fn upgrade_declined(&mut self) {
        self.state = State::Head(HeadScan::default());
    }

    /// Judges `bytes`. They start where the last call's `passed` ended.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Scan {
        let mut passed = 0;
        loop {
            if passed == bytes.len() && !matches!(self.state, State::Upgrade) {
                return Scan {
                    passed,
                    stop: Stop::End,
                };
            }
            match self.step(&bytes[passed..]) {
                Ok(Step::Next(consumed)) => passed += consumed,
                Ok(Step::Stop(stop)) => return Scan { passed, stop },
                Err(violation) => {
                    return Scan {
                        passed,
                        stop: Stop::Bad(violation),
                    };
                }
            }
        }
    }

    fn step(&mut self, bytes: &[u8]) -> Result<Step, Violation> {
        match &mut self.state {
            State::Head(scan) => match scan.advance(bytes, &self.limits)? {
                None => Ok(Step::Stop(Stop::Incomplete)),
                Some(head) => {
                    self.heads = self.heads.wrapping_add(1);
                    self.state = after_head(head.framing, head.upgrade);
                    Ok(Step::Next(head.len))
                }
            },
            State::Length(left) => {
                let (taken, rest) = take(bytes, *left);
                self.state = match rest {
                    0 => State::Head(HeadScan::default()),
                    rest => State::Length(rest),
                };
                Ok(Step::Next(taken))
            }
            State::ChunkData(left) => {
                let (taken, rest) = take(bytes, *left);
                self.state = match rest {
                    0 => State::ChunkEnd,
                    rest => State::ChunkData(rest),
                };
                Ok(Step::Next(taken))
            }
            State::ChunkLine => Ok(match chunk::line(bytes)? {
                ChunkLine::Incomplete => Step::Stop(Stop::Incomplete),
                ChunkLine::Last { len } => {
                    self.state = State::Trailers { bytes: 0, lines: 0 };
                    Step::Next(len)
                }
                ChunkLine::Data { len, size } => {
                    self.state = State::ChunkData(size);
                    Step::Next(len)
                }
            }),
            State::ChunkEnd => Ok(match chunk::end(bytes)? {
                ChunkEnd::Incomplete => Step::Stop(Stop::Incomplete),
                ChunkEnd::Complete { len } => {
                    self.state = State::ChunkLine;
                    Step::Next(len)
                }
            }),
            State::Trailers { .. } => self.trailer(bytes),
            State::Upgrade => Ok(Step::Stop(Stop::Upgrade)),
        }
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<Step, Violation> {
        let State::Trailers { bytes: used, lines } = &mut self.state else {
            return Ok(Step::Next(0));
        };
        let Some((line, len)) = field::line(bytes)? else {
            return match *used + bytes.len() > self.limits.head_bytes {
                true => Err(Violation::HeadTooLarge),
                false => Ok(Step::Stop(Stop::Incomplete)),
            };
        };
        if line.is_empty() {
            self.state = State::Head(HeadScan::default());
            return Ok(Step::Next(len));
        }
        field::split(line)?;
        *used += len;
        *lines += 1;
        if *used > self.limits.head_bytes {
            return Err(Violation::HeadTooLarge);
        }
        if *lines > self.limits.headers {
            return Err(Violation::TooManyHeaders);
        }
        Ok(Step::Next(len))
    }
}

/// Takes up to `left` bytes: how many, and how many are left to take after that.
fn take(bytes: &[u8], left: u64) -> (usize, u64) {
    let taken = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
    (taken, left - taken as u64)
}

fn after_head(framing: Framing, upgrade: bool) -> State {
    match framing {
        Framing::Length(0) if upgrade => State::Upgrade,
        Framing::Length(0) => State::Head(HeadScan::default()),
        Framing::Length(left) => State::Length(left),
        Framing::Chunked => State::ChunkLine,
    }
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner")
            .field("heads", &self.heads)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
