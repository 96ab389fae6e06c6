//! The chunked transfer coding: RFC 9112 section 7.1.

use super::Violation;
use super::field;

/// A chunk line is a few hex digits; extensions are allowed, and no sender uses long ones.
const LINE_BYTES_MAX: usize = 256;

pub(crate) enum ChunkLine {
    Incomplete,
    /// The chunk of size 0: trailers follow.
    Last {
        len: usize,
    },
    Data {
        len: usize,
        size: u64,
    },
}

/// Reads the line in front of a chunk's data.
pub(crate) fn line(bytes: &[u8]) -> Result<ChunkLine, Violation> {
    let searched = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some((line, len)) = field::line(searched).map_err(|_| Violation::Chunk)? else {
        return if bytes.len() < LINE_BYTES_MAX {
            Ok(ChunkLine::Incomplete)
        } else {
            Err(Violation::Chunk)
        };
    };
    Ok(match size(line)? {
        0 => ChunkLine::Last { len },
        size => ChunkLine::Data { len, size },
    })
}

/// The size at the start of a chunk line; what follows has to be an extension.
fn size(line: &[u8]) -> Result<u64, Violation> {
    let digits = line
        .iter()
        .position(|byte| !byte.is_ascii_hexdigit())
        .unwrap_or(line.len());
    let (digits, extension) = line.split_at(digits);
    // 15 hex digits fit into 63 bits.
    if !(1..=15).contains(&digits.len()) || !is_extension(extension) {
        return Err(Violation::Chunk);
    }
    Ok(digits.iter().fold(0, |size, digit| {
        size * 16 + u64::from(char::from(*digit).to_digit(16).unwrap_or(0))
    }))
}

fn is_extension(extension: &[u8]) -> bool {
    match extension {
        [] => true,
        [b';', rest @ ..] => rest.iter().all(|byte| (0x20..0x7f).contains(byte)),
        _ => false,
    }
}

pub(crate) enum ChunkEnd {
    Incomplete,
    Complete { len: usize },
}

/// Reads the CRLF behind a chunk's data.
pub(crate) fn end(bytes: &[u8]) -> Result<ChunkEnd, Violation> {
    match bytes {
        [] | [b'\r'] => Ok(ChunkEnd::Incomplete),
        [b'\r', b'\n', ..] => Ok(ChunkEnd::Complete { len: 2 }),
        _ => Err(Violation::Chunk),
    }
}
