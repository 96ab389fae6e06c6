//! Frames: what a file is made of.
//!
//! ```text
//! file   = "TGREC\n" version:u16 frame*
//! frame  = mark:4 kind:u8 codec:u8 reserved:u16 stored:u32 plain:u32 checksum:u32 content:stored
//! ```
//!
//! Numbers are little-endian. The checksum (CRC-32, IEEE) is of everything from `kind` to the end
//! of the content, itself left out. A reader that meets bytes that are no frame looks for the next
//! mark and goes on there; a frame that reaches beyond the end of the file is a torn tail.

use std::fmt;

use crc32fast::Hasher;

/// The version of the format that this crate writes.
pub const VERSION: u16 = 1;

/// How a file begins.
pub(crate) const MAGIC: &[u8; 6] = b"TGREC\n";
/// Bytes of the file's beginning.
pub(crate) const START: usize = MAGIC.len() + 2;
const MARK: [u8; 4] = [0xF5, b'T', b'G', 0xFA];
/// Bytes of a frame before its content.
const HEAD: usize = 20;
/// Largest content, plain: a damaged length must not exhaust the memory.
const CONTENT_MAX: u32 = 64 << 20;
/// Compression: 3 is zstd's own default, at hundreds of megabytes per second.
const LEVEL: i32 = 3;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Meta = 1,
    Requests = 2,
    Events = 3,
    Names = 4,
    Loss = 5,
    Inputs = 6,
}

impl Kind {
    pub(crate) fn of(code: u8) -> Option<Self> {
        let all = [
            Self::Meta,
            Self::Requests,
            Self::Events,
            Self::Names,
            Self::Loss,
            Self::Inputs,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Something in a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was opened.
    pub file: String,
    /// Where in it, in bytes from its beginning.
    pub offset: u64,
    /// Bytes that were left out because of it.
    pub skipped: u64,
    /// What is wrong.
    pub kind: ProblemKind,
}

/// What is wrong with a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The last frame is not whole: the writer was stopped in the middle of it.
    TornTail,
    /// Bytes that are no frame.
    NoFrame,
    /// A frame whose checksum does not fit its content.
    Checksum,
    /// A frame that cannot be unpacked.
    Compression,
    /// A frame with a good checksum and a content that cannot be read.
    Content,
    /// A frame of a kind that this version does not know.
    UnknownKind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ProblemKind::TornTail => "the last frame is torn: its writer was stopped while writing",
            ProblemKind::NoFrame => "bytes that are no frame",
            ProblemKind::Checksum => "a damaged frame: its checksum does not fit",
            ProblemKind::Compression => "a frame that cannot be unpacked",
            ProblemKind::Content => "a frame whose content cannot be read",
            ProblemKind::UnknownKind => "a frame of a later version",
        };
        let Self {
            file,
            offset,
            skipped,
            ..
        } = self;
        write!(
            f,
            "{file}: byte {offset}: {what}; {skipped} bytes left out, the rest was read"
        )
    }
}

/// Appends the beginning of a file.
pub(crate) fn put_start(out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
}

/// Appends a frame, compressed where that makes it smaller.
pub(crate) fn put_frame(out: &mut Vec<u8>, kind: Kind, content: &[u8]) {
    let packed = zstd::bulk::compress(content, LEVEL).ok();
    let packed = packed.filter(|packed| packed.len() < content.len());
    let (codec, stored) = match &packed {
        Some(packed) => (1, packed.as_slice()),
        None => (0, content),
    };
    let mut head = [0_u8; 12];
    head[0] = kind as u8;
    head[1] = codec;
    head[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    head[8..12].copy_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&head);
    out.extend_from_slice(&checksum(&head, stored).to_le_bytes());
    out.extend_from_slice(stored);
}

fn checksum(head: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(head);
    hasher.update(stored);
    hasher.finalize()
}

/// Frames of a file, one after the other, with what is wrong between them.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

/// A frame that is whole.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) content: Vec<u8>,
}

impl<'a> Frames<'a> {
    /// Of everything after the file's beginning.
    pub(crate) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self {
            file,
            bytes,
            at: START.min(bytes.len()),
        }
    }

    fn problem(&self, from: usize, to: usize, kind: ProblemKind) -> Problem {
        Problem {
            file: self.file.to_owned(),
            offset: from as u64,
            skipped: (to - from) as u64,
            kind,
        }
    }

    /// Goes on behind what cannot be read, at the next mark.
    fn skip(&mut self, least: usize, kind: ProblemKind) -> Problem {
        let from = self.at;
        let rest = &self.bytes[(from + least).min(self.bytes.len())..];
        let next = rest.windows(MARK.len()).position(|window| window == MARK);
        self.at = next.map_or(self.bytes.len(), |next| from + least + next);
        self.problem(from, self.at, kind)
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

impl Iterator for Frames<'_> {
    type Item = Result<Frame, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        if !rest.starts_with(&MARK) {
            let torn = rest.len() < MARK.len() && MARK.starts_with(rest);
            let kind = if torn {
                ProblemKind::TornTail
            } else {
                ProblemKind::NoFrame
            };
            return Some(Err(self.skip(1, kind)));
        }
        let Some(head) = rest.get(4..HEAD) else {
            return Some(Err(self.skip(1, ProblemKind::TornTail)));
        };
        let (stored, plain) = (number(&head[4..8]), number(&head[8..12]));
        if stored > CONTENT_MAX || plain > CONTENT_MAX {
            return Some(Err(self.skip(1, ProblemKind::NoFrame)));
        }
        let end = HEAD + stored as usize;
        let Some(content) = rest.get(HEAD..end) else {
            return Some(Err(self.skip(1, ProblemKind::TornTail)));
        };
        if checksum(&head[..12], content) != number(&head[12..16]) {
            return Some(Err(self.skip(1, ProblemKind::Checksum)));
        }
        let unpacked = match head[1] {
            0 => Some(content.to_vec()),
            1 => zstd::bulk::decompress(content, plain as usize).ok(),
            _ => None,
        };
        let Some(content) = unpacked.filter(|unpacked| unpacked.len() == plain as usize) else {
            return Some(Err(self.skip(end, ProblemKind::Compression)));
        };
        let Some(kind) = Kind::of(head[0]) else {
            return Some(Err(self.skip(end, ProblemKind::UnknownKind)));
        };
        let offset = self.at as u64;
        self.at += end;
        Some(Ok(Frame {
            offset,
            bytes: end as u64,
            kind,
            content,
        }))
    }
}
