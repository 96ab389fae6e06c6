//! Lines and header fields: RFC 9112 sections 2.2 and 5, RFC 9110 section 5.6.2.

use memchr::memchr;

use super::Violation;
use crate::ascii_class;

/// The first line of `bytes` without its CRLF, and its length with it; `None` if it is incomplete.
pub(crate) fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Violation> {
    let Some(at) = memchr(b'\n', bytes) else {
        return Ok(None);
    };
    without_cr(&bytes[..at]).map(|line| Some((line, at + 1)))
}

/// A line up to its LF, without the CR that has to stand before it.
pub(crate) fn without_cr(line: &[u8]) -> Result<&[u8], Violation> {
    line.strip_suffix(b"\r").ok_or(Violation::BareLf)
}

/// Splits a header line into name and value, and judges both.
pub(crate) fn split(line: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    let (name, value) = cut(line)?;
    if is_field_value(value) {
        Ok((name, value))
    } else {
        Err(Violation::FieldValue)
    }
}

/// The same for those who make a `HeaderValue` of the value, which judges it.
pub(crate) fn cut(line: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Violation::Folded);
    }
    let colon = line
        .iter()
        .position(|&byte| !is_token_byte(byte))
        .filter(|&at| at > 0 && line[at] == b':')
        .ok_or(Violation::FieldName)?;
    Ok((&line[..colon], without_space(&line[colon + 1..])))
}

/// Without the spaces and tabs around it; nothing else is overlooked.
fn without_space(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Where `part` of `line` begins in it.
pub(crate) fn offset(line: &[u8], part: &[u8]) -> usize {
    match part {
        // What is empty begins nowhere in particular.
        [] => line.len(),
        part => (part.as_ptr() as usize) - (line.as_ptr() as usize),
    }
}

/// The number in a `Content-Length`. 19 digits fit into 64 bits whatever they are.
pub(crate) fn length(value: &[u8]) -> Option<u64> {
    let digits = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let number = |number, digit: &u8| number * 10 + u64::from(digit - b'0');
    digits.then(|| value.iter().fold(0, number))
}

/// Whether there is no control character but tab. Written without a branch per byte, so that the
/// compiler makes it a few vector instructions: it reads every byte of every head.
pub(crate) fn is_field_value(value: &[u8]) -> bool {
    let control = |byte: u8| ((byte < 0x20) & (byte != b'\t')) | (byte == 0x7f);
    !value.iter().fold(false, |bad, &byte| bad | control(byte))
}

/// Whether `byte` is a `tchar`.
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = ascii_class::with(b"!#$%&'*+-.^_`|~");
