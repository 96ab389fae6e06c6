//! `ext_proc`: one stream per request, which brings its head, and the head of the answer.
//!
//! The slot ends with the head of an answer whose length is known, otherwise with the body's last
//! message or the end of the stream, whichever comes first. A stream that ends without the head of
//! an answer belonged to a client that left.

use std::sync::Arc;
use std::time::Instant;

use futures_util::Stream;
use futures_util::stream::unfold;
use http::request::Parts;
use tidegate_http1::event_stream::is_event_stream;
use tidegate_sentry::{Ending, Refusal};
use tidegate_tower::Slot;
use tonic::Streaming;

use crate::doors::Doors;
use crate::head::Head;
use crate::proto::core::{HeaderMap, HeaderValue, HeaderValueOption};
use crate::proto::ext_proc::{
    CommonResponse, FromEnvoy, HeaderMutation, HeadersResponse, HttpHeaders, ProcessingRequest,
    ProcessingResponse, ToEnvoy, TrailersResponse,
};
use crate::refusal;

/// Says whether a replica is to include optional content.
const OPTIONAL: &str = "tidegate-optional";

/// Answers the messages about one request.
pub(crate) fn process(
    doors: Arc<Doors>,
    messages: Streaming<ProcessingRequest>,
) -> impl Stream<Item = Result<ProcessingResponse, tonic::Status>> + Send {
    let exchange = Exchange {
        doors,
        messages,
        slot: None,
        ending: None,
    };
    unfold(exchange, |mut exchange| async {
        let answer = exchange.next().await?;
        Some((Ok(answer), exchange))
    })
}

struct Exchange {
    doors: Arc<Doors>,
    messages: Streaming<ProcessingRequest>,
    slot: Option<Slot>,
    /// Known from the answer's head on.
    ending: Option<Ending>,
}

impl Exchange {
    /// The next answer; `None` when Envoy has closed the stream.
    async fn next(&mut self) -> Option<ProcessingResponse> {
        loop {
            let message = self.messages.message().await.ok().flatten()?;
            let received = Instant::now();
            // An Envoy that only observes waits for no answer.
            let observes = message.observability_mode;
            let response = self.answer(received, message.request?).await;
            if !observes {
                let response = Some(response);
                return Some(ProcessingResponse { response });
            }
        }
    }

    async fn answer(&mut self, received: Instant, message: FromEnvoy) -> ToEnvoy {
        match message {
            FromEnvoy::RequestHeaders(headers) => self.begin(received, &headers).await,
            FromEnvoy::ResponseHeaders(headers) => {
                self.answered(&headers);
                ToEnvoy::ResponseHeaders(HeadersResponse::default())
            }
            FromEnvoy::RequestBody(_) => ToEnvoy::RequestBody(HeadersResponse::default()),
            FromEnvoy::ResponseBody(body) => {
                self.end_if(body.end_of_stream);
                ToEnvoy::ResponseBody(HeadersResponse::default())
            }
            FromEnvoy::RequestTrailers(_) => ToEnvoy::RequestTrailers(TrailersResponse {}),
            FromEnvoy::ResponseTrailers(_) => {
                self.end_if(true);
                ToEnvoy::ResponseTrailers(TrailersResponse {})
            }
        }
    }

    async fn begin(&mut self, received: Instant, headers: &HttpHeaders) -> ToEnvoy {
        let head = head(headers);
        match self.doors.admit(received, &head).await {
            Ok(slot) => ToEnvoy::RequestHeaders(self.admitted(slot)),
            Err(refusal) => refused(&head, &refusal),
        }
    }

    fn admitted(&mut self, slot: Slot) -> HeadersResponse {
        let optional = slot.optional();
        self.slot = Some(slot);
        let set_headers = optional.map(|optional| {
            let value = if optional { b"1" } else { b"0" };
            HeaderValueOption::overwrite(HeaderValue::raw(OPTIONAL, value))
        });
        let header_mutation = HeaderMutation {
            remove_headers: vec![OPTIONAL.to_owned()],
            set_headers: set_headers.into_iter().collect(),
        };
        HeadersResponse {
            response: Some(CommonResponse {
                header_mutation: Some(header_mutation),
            }),
        }
    }

    /// The head of the answer.
    fn answered(&mut self, answer: &HttpHeaders) {
        let fields = answer.headers.as_ref();
        let has = |name: &str| fields.and_then(|fields| get(fields, name));
        let status = has(":status").unwrap_or_default();
        if status == b"101" || has("content-type").is_some_and(is_event_stream) {
            self.slot.iter_mut().for_each(Slot::stream);
            self.ending = Some(Ending::Ignored);
            return;
        }
        let failed = status.first() == Some(&b'5');
        self.ending = Some(if failed {
            Ending::Dropped
        } else {
            Ending::Served
        });
        self.end_if(answer.end_of_stream || has("content-length").is_some());
    }

    fn end_if(&mut self, ended: bool) {
        if let Some(ending) = self.ending.filter(|_| ended)
            && let Some(slot) = self.slot.take()
        {
            slot.end(ending);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end_if(true);
    }
}

fn get<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut fields = fields.headers.iter();
    let field = fields.find(|field| field.key.eq_ignore_ascii_case(name));
    field.map(HeaderValue::bytes)
}

fn head(headers: &HttpHeaders) -> Parts {
    let mut head = Head::new();
    for field in headers.headers.iter().flat_map(|map| &map.headers) {
        head.field(&field.key, field.bytes());
    }
    head.finish()
}

fn refused(head: &Parts, refusal: &Refusal) -> ToEnvoy {
    ToEnvoy::ImmediateResponse(refusal::immediate(head, refusal))
}
