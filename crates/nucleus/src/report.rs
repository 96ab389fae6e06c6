//! Where an answer has room for what the nucleus says.
//!
//! | answer | reported | when it counts as ended |
//! | --- | --- | --- |
//! | whole: its length is known, or it has no body | in its headers | with its head |
//! | a stream by nature: an event stream, an upgrade | in its headers, never a sample | with its head |
//! | of unknown length, to a client that takes trailers | in its trailers | with its last byte |
//! | of unknown length, to any other client | with a later answer; the head says whether it is full | with its last byte |
//!
//! HTTP/2 always has trailers. HTTP/1.1 has them in chunked bodies, for clients that say
//! `te: trailers`, and only those that `trailer` announces in the head (RFC 9112, section 7.1.2).

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRAILER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, response};
use http_body::Body;
use tidegate_http1::event_stream;
use tidegate_http1::hop::takes_trailers;

use crate::body::{MeasuredBody, Open};
use crate::flight::{Ending, Flight};
use crate::wire;

/// What of a request decides where its answer can be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    head_only: bool,
    trailers: bool,
}

impl Room {
    pub(crate) fn of<A>(request: &Request<A>) -> Self {
        Self {
            head_only: request.method() == Method::HEAD,
            trailers: match request.version() {
                Version::HTTP_2 | Version::HTTP_3 => true,
                Version::HTTP_11 => takes_trailers(request.headers()),
                _ => false,
            },
        }
    }

    /// Ends the flight with the answer's head where it can, with its body otherwise.
    pub(crate) fn report<B: Body>(
        self,
        response: Response<B>,
        flight: Flight,
    ) -> Response<MeasuredBody<B>> {
        let (mut head, body) = response.into_parts();
        let ending = ending(&head);
        let open = if self.head_only || ending == Ending::Stream || is_whole(&head, &body) {
            flight.land(ending).write(&mut head.headers);
            None
        } else {
            if self.trailers {
                head.headers
                    .append(TRAILER, HeaderValue::from_static(wire::TRAILERS));
            } else {
                wire::write_optional(&mut head.headers, flight.full());
            }
            Some(Open::new(flight, ending, self.trailers))
        };
        Response::from_parts(head, MeasuredBody::new(body, open))
    }
}

fn ending(head: &response::Parts) -> Ending {
    if head.status == StatusCode::SWITCHING_PROTOCOLS || is_event_stream(&head.headers) {
        Ending::Stream
    } else if head.status.is_server_error() {
        Ending::Failed
    } else {
        Ending::Served
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(event_stream::is_event_stream)
}

/// Whether the body adds nothing to be waited for, or cannot be followed by trailers.
fn is_whole<B: Body>(head: &response::Parts, body: &B) -> bool {
    matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    ) || body.is_end_stream()
        || body.size_hint().exact().is_some()
        || head.headers.contains_key(CONTENT_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::header::TE;
    use http_body_util::{BodyExt, Empty, StreamBody};
    use std::convert::Infallible;

    use crate::nucleus::{Nucleus, NucleusConfig};
    use crate::wire::Instructions;

    type Chunk = Result<http_body::Frame<Bytes>, Infallible>;

    fn chunked() -> impl Body<Data = Bytes, Error = Infallible> {
        let frames: [Chunk; 1] = [Ok(http_body::Frame::data(Bytes::from("page")))];
        StreamBody::new(futures_util::stream::iter(frames))
    }

    fn room(method: Method, version: Version, te: &'static str) -> Room {
        let request = Request::builder().method(method).version(version);
        Room::of(&request.header(TE, te).body(()).unwrap())
    }

    fn get(version: Version, te: &'static str) -> Room {
        room(Method::GET, version, te)
    }

    /// Names of ours in headers and trailers.
    async fn reported<B: Body<Error = Infallible>>(
        room: Room,
        response: Response<B>,
    ) -> (bool, bool)
    where
        B::Data: std::fmt::Debug,
    {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let flight = nucleus.begin(Instructions::read(&HeaderMap::new()));
        let response = room.report(response, flight);
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap();
        assert_eq!(nucleus.reading().present, 0, "counted out at its end");
        assert_eq!(nucleus.reading().answered, 1, "and not as aborted");
        let in_trailers = |trailers: &HeaderMap| trailers.contains_key(wire::DEMAND);
        (
            head.headers.contains_key(wire::DEMAND),
            body.trailers().is_some_and(in_trailers),
        )
    }

    #[tokio::test]
    async fn chunked_answer_reports_in_trailers_to_those_who_take_them() {
        for (room, expected) in [
            (get(Version::HTTP_2, ""), true),
            (get(Version::HTTP_11, "gzip, Trailers"), true),
            (get(Version::HTTP_11, "gzip"), false),
            (get(Version::HTTP_10, "trailers"), false),
        ] {
            let got = reported(room, Response::new(chunked())).await;
            assert_eq!(got, (false, expected), "{room:?}");
        }
    }

    #[test]
    fn answer_that_can_report_nothing_says_whether_it_is_full() {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let optional = |room: Room, told: &'static str| {
            let told = HeaderMap::from_iter([(wire::OPTIONAL, HeaderValue::from_static(told))]);
            let flight = nucleus.begin(Instructions::read(&told));
            let answer = room.report(Response::new(chunked()), flight);
            answer.headers().get(wire::OPTIONAL).cloned()
        };
        let untold = get(Version::HTTP_11, "");
        assert_eq!(optional(untold, "1").unwrap(), "1");
        assert_eq!(optional(untold, "0").unwrap(), "0");
        assert_eq!(optional(get(Version::HTTP_11, "trailers"), "1"), None);
    }

    #[tokio::test]
    async fn answer_without_a_body_reports_in_its_head() {
        let head = room(Method::HEAD, Version::HTTP_11, "trailers");
        assert!(reported(head, Response::new(chunked())).await.0);
        let get = get(Version::HTTP_11, "trailers");
        assert!(reported(get, Response::new(Empty::<Bytes>::new())).await.0);
        for status in [204, 304] {
            let response = Response::builder().status(status);
            assert!(reported(get, response.body(chunked()).unwrap()).await.0);
        }
        let sized = Response::builder().header(CONTENT_LENGTH, 4);
        assert!(reported(get, sized.body(chunked()).unwrap()).await.0);
    }

    #[test]
    fn streams_and_errors_are_told_apart_by_the_head() {
        let of = |status, content_type: &'static str| {
            let response = Response::builder().status(status);
            let response = response.header(CONTENT_TYPE, content_type).body(());
            ending(&response.unwrap().into_parts().0)
        };
        assert_eq!(of(200, "text/html"), Ending::Served);
        assert_eq!(of(404, "text/html"), Ending::Served);
        assert_eq!(of(500, "text/html"), Ending::Failed);
        assert_eq!(of(101, ""), Ending::Stream);
        assert_eq!(of(200, "Text/Event-Stream; charset=utf-8"), Ending::Stream);
    }
}
