//! What every server has to be able to do.

use super::*;

const WHOLE: u8 = END_HEADERS | END_STREAM;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 0x20;

#[tokio::test]
async fn frames_of_every_type_are_taken() {
    let padded =
        |first: &[u8], inside: &[u8], padding: usize| [first, inside, &vec![0; padding]].concat();
    let priority =
        |dependency: u32, weight: u8| [&dependency.to_be_bytes()[..], &[weight]].concat();
    let fields = block(&SOUND);
    run(vec![
        ("a request", get(1), Answered(1)),
        ("a second one", [get(1), get(3)].concat(), Answered(3)),
        ("numbers may be left out", get(7), Answered(7)),
        (
            "one DATA frame",
            [post(1), data(1, END_STREAM, b"test")].concat(),
            Answered(1),
        ),
        (
            "several DATA frames",
            [post(1), data(1, 0, b"te"), data(1, END_STREAM, b"st")].concat(),
            Answered(1),
        ),
        (
            "an empty DATA frame",
            [post(1), data(1, END_STREAM, b"")].concat(),
            Answered(1),
        ),
        (
            "DATA with padding",
            [
                post(1),
                data(1, PADDED | END_STREAM, &padded(&[6], b"test", 6)),
            ]
            .concat(),
            Answered(1),
        ),
        (
            "HEADERS with padding",
            frame(kind::HEADERS, WHOLE | PADDED, 1, &padded(&[6], &fields, 6)),
            Answered(1),
        ),
        (
            "HEADERS with a priority",
            frame(
                kind::HEADERS,
                WHOLE | PRIORITIZED,
                1,
                &[priority(0, 255), fields.clone()].concat(),
            ),
            Answered(1),
        ),
        (
            "PRIORITY of an idle stream",
            [frame(kind::PRIORITY, 0, 1, &priority(0, 0)), get(1)].concat(),
            Answered(1),
        ),
        (
            "PRIORITY that depends on another stream",
            [frame(kind::PRIORITY, 0, 1, &priority(3, 255)), get(1)].concat(),
            Answered(1),
        ),
        (
            "PRIORITY that is exclusive",
            [
                frame(kind::PRIORITY, 0, 1, &priority(0x8000_0003, 255)),
                get(1),
            ]
            .concat(),
            Answered(1),
        ),
        (
            "RST_STREAM",
            [held(1), reset(1), get(3)].concat(),
            Answered(3),
        ),
        ("SETTINGS", [setting(3, 100), get(1)].concat(), Answered(1)),
        (
            "a smaller table for our fields",
            [setting(1, 0), get(1)].concat(),
            Answered(1),
        ),
        (
            "PING",
            [frame(kind::PING, 0, 0, b"h2spec!!"), get(1)].concat(),
            Answered(1),
        ),
        (
            "GOAWAY behind a request",
            [get(1), frame(kind::GOAWAY, 0, 0, &[0; 8])].concat(),
            Answered(1),
        ),
        (
            "WINDOW_UPDATE",
            [window(0, 1), get(1)].concat(),
            Answered(1),
        ),
        (
            "WINDOW_UPDATE of a stream",
            [post(1), window(1, 1), data(1, END_STREAM, b"x")].concat(),
            Answered(1),
        ),
        (
            "CONTINUATION",
            [
                headers(1, END_STREAM, &SOUND[..1]),
                frame(kind::CONTINUATION, END_HEADERS, 1, &block(&SOUND[1..])),
            ]
            .concat(),
            Answered(1),
        ),
    ])
    .await;
}

#[tokio::test]
async fn methods_and_bodies_are_understood() {
    let method = |method, flags| request(1, flags, &[(":method", method)]);
    run(vec![
        ("GET", method("GET", WHOLE), Answered(1)),
        ("HEAD", method("HEAD", WHOLE), Answered(1)),
        ("POST without a body", method("POST", WHOLE), Answered(1)),
        (
            "PUT",
            [method("PUT", END_HEADERS), data(1, END_STREAM, b"x")].concat(),
            Answered(1),
        ),
        ("DELETE", method("DELETE", WHOLE), Answered(1)),
        ("OPTIONS", method("OPTIONS", WHOLE), Answered(1)),
        (
            "a method of somebody's own",
            method("PURGE", WHOLE),
            Answered(1),
        ),
        (
            "POST with its length",
            [
                request(
                    1,
                    END_HEADERS,
                    &[(":method", "POST"), ("content-length", "4")],
                ),
                data(1, END_STREAM, b"test"),
            ]
            .concat(),
            Answered(1),
        ),
        (
            "POST with trailers",
            [
                request(
                    1,
                    END_HEADERS,
                    &[(":method", "POST"), ("trailer", "x-test")],
                ),
                data(1, 0, b"test"),
                headers(1, WHOLE, &[("x-test", "ok")]),
            ]
            .concat(),
            Answered(1),
        ),
        (
            "a query",
            request(1, WHOLE, &[(":path", "/sound?a=b&c=%20d")]),
            Answered(1),
        ),
    ])
    .await;
}
