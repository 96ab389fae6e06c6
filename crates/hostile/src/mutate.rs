//! Seeded mutations of vectors.
//!
//! A vector is what somebody thought of; what lies between two of them is found by changing a
//! few bytes at random, with a bias towards those that parsers stumble over.

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::vector::Vector;

/// What parsers stumble over.
const PIECES: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"\r\r\n",
    b"\0",
    b" ",
    b"\t",
    b"\x0b",
    b"\x0c",
    b"\x1f",
    b"\x7f",
    b"\x80",
    b"\xff",
    b":",
    b",",
    b";",
    b"\"",
    b"\\",
    b"%",
    b"#",
    b"@",
    b"_",
    b"+",
    b"-",
    b"0",
    b"0x",
    b"chunked",
    b"close",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Host: b\r\n",
    b"Connection: Host\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"0\r\n\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// An endless stream of mutations of `seeds`. The same seed gives the same stream.
///
/// # Panics
/// Without a vector to start from.
pub fn mutations(seeds: &[Vector], seed: u64) -> impl Iterator<Item = Vector> {
    assert!(!seeds.is_empty(), "mutations need a vector to start from");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..).map(move |number| {
        let origin = &seeds[rng.random_range(0..seeds.len())];
        let mut bytes = origin.bytes.clone();
        for _ in 0..rng.random_range(1..=3) {
            let other = &seeds[rng.random_range(0..seeds.len())].bytes;
            change(&mut bytes, other, &mut rng);
        }
        Vector {
            class: format!("mutated {}", origin.class).into(),
            name: format!("{number} of {}", origin.name),
            bytes,
            sound: false,
            http2: false,
        }
    })
}

/// One change.
fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut impl Rng) {
    let at = rng.random_range(0..=bytes.len());
    let end = (at + rng.random_range(1..=4)).min(bytes.len());
    let piece = PIECES[rng.random_range(0..PIECES.len())];
    match rng.random_range(0..8) {
        0 | 1 => drop(bytes.splice(at..at, piece.iter().copied())),
        2 => drop(bytes.splice(at..end, piece.iter().copied())),
        3 => drop(bytes.drain(at..end)),
        4 => bytes[at..end]
            .iter_mut()
            .for_each(|byte| *byte ^= 1 << rng.random_range(0..8)),
        5 => repeat_line(bytes, at),
        6 => break_line_end(bytes, at),
        _ => {
            // The head of one, the tail of another.
            bytes.truncate(at);
            bytes.extend(&other[rng.random_range(0..=other.len())..]);
        }
    }
}

/// Puts the line around `at` there twice.
fn repeat_line(bytes: &mut Vec<u8>, at: usize) {
    let start = bytes[..at]
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |lf| lf + 1);
    let end = bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |lf| at + lf + 1);
    let line = bytes[start..end].to_vec();
    bytes.splice(end..end, line);
}

/// Takes half of the next CRLF away.
fn break_line_end(bytes: &mut Vec<u8>, at: usize) {
    let next = bytes[at..].windows(2).position(|pair| pair == b"\r\n");
    if let Some(next) = next {
        bytes.remove(at + next + (at & 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector;

    #[test]
    fn the_same_seed_gives_the_same_mutations() {
        let own = vector::own();
        let take = |seed| mutations(&own, seed).take(200).collect::<Vec<_>>();
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn nearly_all_differ_from_where_they_come_from() {
        let own = vector::own();
        let known = |bytes: &Vec<u8>| own.iter().any(|vector| vector.bytes == *bytes);
        let same = mutations(&own, 1)
            .take(1000)
            .filter(|vector| known(&vector.bytes))
            .count();
        assert!(same < 100, "{same}");
    }
}
