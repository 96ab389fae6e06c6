//! The future of a protected request: waits, runs, or is shed at once.
//!
//! Dropping it in any state gives back what it holds: a place in the queue or a slot.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate_http1::event_stream::is_event_stream;
use tidegate_sentry::{Ending, Refusal};
use tower_service::Service;

use crate::body::ProtectedBody;
use crate::gate::{Slot, Wait};
use crate::layer::mark;
use crate::refusal::{self, Format};

pin_project! {
    /// The future of a [`ProtectService`](crate::ProtectService).
    pub struct ProtectFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S::Future>,
        parked: Option<Parked<S, A>>,
    }
}

impl<S: Service<Request<A>>, A> std::fmt::Debug for ProtectFuture<S, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProtectFuture").finish_non_exhaustive()
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Running {
            #[pin]
            inner: F,
            slot: Option<Slot>,
        },
        Waiting,
        Shed {
            format: Format,
            refusal: Refusal,
        },
    }
}

/// A request that waits, and the service it waits for.
struct Parked<S, A> {
    wait: Wait,
    service: S,
    parts: Parts,
    body: A,
}

impl<S: Service<Request<A>>, A> ProtectFuture<S, A> {
    pub(crate) fn running(inner: S::Future, slot: Slot) -> Self {
        let slot = Some(slot);
        Self {
            state: State::Running { inner, slot },
            parked: None,
        }
    }

    pub(crate) fn waiting(wait: Wait, service: S, parts: Parts, body: A) -> Self {
        Self {
            state: State::Waiting,
            parked: Some(Parked {
                wait,
                service,
                parts,
                body,
            }),
        }
    }

    pub(crate) fn shed(format: Format, refusal: Refusal) -> Self {
        Self {
            state: State::Shed { format, refusal },
            parked: None,
        }
    }
}

impl<S: Service<Request<A>>, A> Parked<S, A> {
    /// The engine decided: calls the service or refuses.
    fn resolve(mut self, decision: Result<Slot, Refusal>) -> State<S::Future> {
        match decision {
            Ok(slot) => {
                mark(&mut self.parts, &slot);
                let request = Request::from_parts(self.parts, self.body);
                State::Running {
                    inner: self.service.call(request),
                    slot: Some(slot),
                }
            }
            Err(refusal) => State::Shed {
                format: Format::of(&self.parts),
                refusal,
            },
        }
    }
}

impl<S, A, B> Future for ProtectFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<ProtectedBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(parked) = this.parked.as_mut() {
            let decision = ready!(Pin::new(&mut parked.wait).poll(context));
            if let Some(parked) = this.parked.take() {
                this.state.set(parked.resolve(decision));
            }
        }
        Poll::Ready(match this.state.project() {
            StateProjection::Running { inner, slot } => {
                let outcome = ready!(inner.poll(context));
                let slot = slot
                    .take()
                    .expect("a future is not polled after it is done");
                finish(outcome, slot)
            }
            StateProjection::Shed { format, refusal } => {
                Ok(refusal::answer(*format, refusal).map(ProtectedBody::refusal))
            }
            StateProjection::Waiting => unreachable!("a parked request is resolved first"),
        })
    }
}

/// The service answered: the slot ends here, or with the body where its end is not known yet.
fn finish<B: Body<Data = Bytes>, E>(
    outcome: Result<Response<B>, E>,
    mut slot: Slot,
) -> Result<Response<ProtectedBody<B>>, E> {
    let response = match outcome {
        Ok(response) => response,
        Err(error) => {
            slot.end(Ending::Dropped);
            return Err(error);
        }
    };
    let ending = ending(response.status());
    let is_stream = is_stream(&response);
    Ok(response.map(|body| {
        if is_stream {
            slot.stream();
            ProtectedBody::open(body, slot, ending)
        } else if body.is_end_stream() || body.size_hint().exact().is_some() {
            slot.end(ending);
            ProtectedBody::done(body)
        } else {
            ProtectedBody::open(body, slot, ending)
        }
    }))
}

/// A service that answers 5xx has not done the work: its time is no sample.
fn ending(status: StatusCode) -> Ending {
    if status.is_server_error() {
        Ending::Dropped
    } else {
        Ending::Served
    }
}

/// Whether the answer lasts as long as its client listens.
fn is_stream<B>(response: &Response<B>) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    let content_type = content_type.map_or(&b""[..], HeaderValue::as_bytes);
    response.status() == StatusCode::SWITCHING_PROTOCOLS || is_event_stream(content_type)
}
