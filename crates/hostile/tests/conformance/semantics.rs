//! Sections 7 and 8: codes of errors, and HTTP in HTTP/2.

use super::*;

const WHOLE: u8 = END_HEADERS | END_STREAM;

#[tokio::test]
async fn section_7_unknown_codes_are_nothing_special() {
    run(vec![
        (
            "7 RST_STREAM with an unknown code",
            [
                frames::get(1, 0),
                frame(kind::RST_STREAM, 0, 1, &[0xff; 4]),
                get(3),
            ]
            .concat(),
            Answered(3),
        ),
        (
            "7 GOAWAY with an unknown code lets what is open finish",
            [
                get(1),
                frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff]),
            ]
            .concat(),
            Answered(1),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_8_1_messages() {
    let trailers = |flags: u8, fields: &[(&str, &str)]| headers(1, END_HEADERS | flags, fields);
    run(vec![
        (
            "8.1 a second block that does not end the stream",
            [post(1), data(1, 0, b"x"), trailers(0, &[("x-test", "ok")])].concat(),
            Malformed(1),
        ),
        (
            "8.1 trailers behind a body",
            [
                post(1),
                data(1, 0, b"x"),
                trailers(END_STREAM, &[("x-test", "ok")]),
            ]
            .concat(),
            Answered(1),
        ),
        // h2 deviates: it does not refuse the request but drops the field, which no replica sees.
        (
            "8.1 a pseudo-field in trailers",
            [
                post(1),
                data(1, 0, b"x"),
                trailers(END_STREAM, &[(":method", "GET")]),
            ]
            .concat(),
            Answered(1),
        ),
        (
            "8.1.1 less than the length says",
            [length(5), data(1, END_STREAM, b"x")].concat(),
            Malformed(1),
        ),
        (
            "8.1.1 more than the length says",
            [length(1), data(1, END_STREAM, b"xyz")].concat(),
            Malformed(1),
        ),
        (
            "8.1.1 more than the length says, in pieces",
            [length(3), data(1, 0, b"xy"), data(1, END_STREAM, b"zz")].concat(),
            Malformed(1),
        ),
        (
            "8.1.1 no body at all",
            request(1, WHOLE, &[(":method", "POST"), ("content-length", "1")]),
            Malformed(1),
        ),
    ])
    .await;
}

/// A POST that announces this many bytes.
fn length(bytes: u32) -> Vec<u8> {
    let bytes = bytes.to_string();
    request(
        1,
        END_HEADERS,
        &[(":method", "POST"), ("content-length", &bytes)],
    )
}

#[tokio::test]
async fn section_8_2_fields() {
    let with = |name, value| request(1, WHOLE, &[(name, value)]);
    run(vec![
        (
            "8.2.1 a name in upper case",
            with("X-Test", "ok"),
            Malformed(1),
        ),
        (
            "8.2.1 a name with a space",
            with("x test", "ok"),
            Malformed(1),
        ),
        ("8.2.1 an empty name", with("", "ok"), Malformed(1)),
        (
            "8.2.1 a name with a colon",
            with("x:test", "ok"),
            Malformed(1),
        ),
        (
            "8.2.1 a value with a line feed",
            with("x-test", "a\nb"),
            Malformed(1),
        ),
        (
            "8.2.1 a value with a carriage return",
            with("x-test", "a\rb"),
            Malformed(1),
        ),
        (
            "8.2.1 a value with NUL",
            with("x-test", "a\0b"),
            Malformed(1),
        ),
        (
            "8.2.2 connection",
            with("connection", "keep-alive"),
            Malformed(1),
        ),
        (
            "8.2.2 keep-alive",
            with("keep-alive", "timeout=1"),
            Malformed(1),
        ),
        (
            "8.2.2 proxy-connection",
            with("proxy-connection", "keep-alive"),
            Malformed(1),
        ),
        (
            "8.2.2 transfer-encoding",
            with("transfer-encoding", "chunked"),
            Malformed(1),
        ),
        ("8.2.2 upgrade", with("upgrade", "websocket"), Malformed(1)),
        (
            "8.2.2 TE other than trailers",
            with("te", "trailers, deflate;q=0.5"),
            Malformed(1),
        ),
        ("8.2.2 TE: trailers", with("te", "trailers"), Answered(1)),
        (
            "8.2.3 cookies in pieces",
            headers(
                1,
                WHOLE,
                &[&SOUND[..], &[("cookie", "a=b"), ("cookie", "c=d")]].concat(),
            ),
            Answered(1),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_8_3_pseudo_fields() {
    let without = |name: &str| {
        let left: Vec<_> = SOUND.into_iter().filter(|field| field.0 != name).collect();
        headers(1, WHOLE, &left)
    };
    let twice = |name: &str| {
        let again = SOUND.into_iter().filter(|field| field.0 == name);
        headers(
            1,
            WHOLE,
            &SOUND.into_iter().chain(again).collect::<Vec<_>>(),
        )
    };
    let late = [&SOUND[..3], &[("x-test", "ok")], &SOUND[3..]].concat();
    run(vec![
        (
            "8.3 one that is not known",
            request(1, WHOLE, &[(":test", "ok")]),
            Malformed(1),
        ),
        (
            "8.3 one of a response",
            request(1, WHOLE, &[(":status", "200")]),
            Malformed(1),
        ),
        (
            "8.3 one behind a regular field",
            headers(1, WHOLE, &late),
            Malformed(1),
        ),
        (
            "8.3.1 an empty path",
            request(1, WHOLE, &[(":path", "")]),
            Malformed(1),
        ),
        (
            "8.3.1 a path that is none",
            request(1, WHOLE, &[(":path", "sound")]),
            Malformed(1),
        ),
        ("8.3.1 no method", without(":method"), Malformed(1)),
        ("8.3.1 no scheme", without(":scheme"), Malformed(1)),
        ("8.3.1 no path", without(":path"), Malformed(1)),
        ("8.3.1 two methods", twice(":method"), Malformed(1)),
        ("8.3.1 two schemes", twice(":scheme"), Malformed(1)),
        ("8.3.1 two paths", twice(":path"), Malformed(1)),
        ("8.3.1 two authorities", twice(":authority"), Malformed(1)),
        (
            "8.3.1 an authority and another host",
            request(1, WHOLE, &[("host", "b")]),
            Malformed(1),
        ),
        (
            "8.3.1 an authority with a user",
            request(1, WHOLE, &[(":authority", "u@a")]),
            Malformed(1),
        ),
        (
            "8.3.1 a host in place of an authority",
            {
                let mut fields = SOUND.to_vec();
                fields[2] = ("host", "a");
                fields.swap(2, 3);
                headers(1, WHOLE, &fields)
            },
            Answered(1),
        ),
    ])
    .await;
}
