//! RFC 7541: how fields are compressed.

use super::*;

/// HEADERS of a sound request with bytes of HPACK behind its fields.
fn with(more: &[u8]) -> Vec<u8> {
    let block = [&block(&SOUND)[..], more].concat();
    frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block)
}

/// HEADERS of these bytes of HPACK.
fn of(block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, block)
}

/// `:authority: a` and `:path: /sound` as literals that are not indexed.
const REST: &[u8] = b"\x01\x01a\x04\x06/sound";

#[tokio::test]
async fn representations_that_are_wrong() {
    const ERROR: Expect = Connection(deviation::COMPRESSION);
    run(vec![
        (
            "2.3.3 an index beyond both tables",
            with(&[0xff, 0x00]),
            ERROR,
        ),
        (
            "2.3.3 a name beyond both tables",
            with(&[0x7f, 0x40, 0x01, b'x']),
            ERROR,
        ),
        ("4.2 a change of size behind a field", with(&[0x20]), ERROR),
        (
            "5.1 an integer without end",
            with(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            ERROR,
        ),
        (
            "5.2 a string longer than the block",
            with(&[0x00, 0x7f, 0x10, b'x']),
            ERROR,
        ),
        // `Z` and `d` in Huffman code, then padding that is none.
        (
            "5.2 padding of more than seven bits",
            with(b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"),
            ERROR,
        ),
        (
            "5.2 padding with zeros",
            with(b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"),
            ERROR,
        ),
        (
            "5.2 the end of string inside a string",
            with(b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"),
            ERROR,
        ),
        ("6.1 index 0", with(&[0x80]), ERROR),
        (
            "6.3 a table larger than allowed",
            of(&[&[0x3f, 0xe2, 0x1f][..], &[0x82, 0x86], REST].concat()),
            ERROR,
        ),
    ])
    .await;
}

#[tokio::test]
async fn representations_that_are_right() {
    let get = |block: &[u8]| of(&[&[0x82, 0x86][..], block].concat());
    run(vec![
        ("6.1 indexed fields", get(REST), Answered(1)),
        (
            "6.2.1 a literal that is indexed",
            get(&[&b"\x41\x01a"[..], b"\x44\x06/sound"].concat()),
            Answered(1),
        ),
        ("6.2.2 a literal that is not", get(REST), Answered(1)),
        (
            "6.2.3 a literal that is never",
            get(b"\x11\x01a\x14\x06/sound"),
            Answered(1),
        ),
        (
            "6.2 a name that is a literal",
            get(&[REST, b"\x40\x06x-test\x02ok"].concat()),
            Answered(1),
        ),
        (
            "6.1 a field of the dynamic table",
            get(&[REST, b"\x40\x06x-test\x02ok\xbe"].concat()),
            Answered(1),
        ),
        (
            "5.2 Huffman code",
            get(&[REST, b"\x40\x85\xf2\xb2\x4a\x84\xff\x02ok"].concat()),
            Answered(1),
        ),
        (
            "6.3 a smaller table",
            of(&[&[0x20, 0x82, 0x86][..], REST].concat()),
            Answered(1),
        ),
        (
            "6.3 two changes of size",
            of(&[&[0x20, 0x3f, 0xe1, 0x1f, 0x82, 0x86][..], REST].concat()),
            Answered(1),
        ),
    ])
    .await;
}
