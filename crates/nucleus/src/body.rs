//! A response body that says what it took when it ends, for answers whose end is not known when
//! they begin.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_control::Timestamp;

use crate::flight::{Ending, Flight};

/// An answer that is still going on so long after its head is a stream, not a slow page. Chosen:
/// longer than a person waits for a page, shorter than the keep-alive of any event stream.
const STREAM_AFTER: Duration = Duration::from_secs(10);

pin_project! {
    /// Passes a body through; when it ends, the measurements follow as trailers where the client
    /// takes trailers. Dropped before its end, the request counts as aborted.
    #[derive(Debug)]
    pub struct MeasuredBody<B> {
        #[pin]
        inner: B,
        open: Option<Open>,
        ended: bool,
    }
}

/// An answer whose end is still to come.
#[derive(Debug)]
pub(crate) struct Open {
    flight: Flight,
    ending: Ending,
    trailers: bool,
    head_at: Timestamp,
}

impl Open {
    pub(crate) fn new(flight: Flight, ending: Ending, trailers: bool) -> Self {
        let head_at = flight.now();
        Self {
            flight,
            ending,
            trailers,
            head_at,
        }
    }

    /// Adds the measurements to the trailers, where they can be sent.
    fn end(self, trailers: &mut HeaderMap) {
        let ending = if self.flight.now().since(self.head_at) > STREAM_AFTER {
            Ending::Stream
        } else {
            self.ending
        };
        if self.trailers {
            self.flight.land(ending).write(trailers);
        } else {
            self.flight.land_untold(ending);
        }
    }
}

impl<B> MeasuredBody<B> {
    /// With an answer that ends with the body, or with none when all was said in the headers.
    pub(crate) fn new(inner: B, open: Option<Open>) -> Self {
        Self {
            inner,
            open,
            ended: false,
        }
    }
}

impl<B: Body> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        if *this.ended {
            return Poll::Ready(None);
        }
        if let Some(Open { flight, .. }) = this.open {
            flight.asked_again(flight.now());
        }
        Poll::Ready(match ready!(this.inner.poll_frame(context)) {
            Some(Ok(frame)) => Some(Ok(pass(frame, this.open))),
            Some(Err(error)) => {
                *this.open = None;
                Some(Err(error))
            }
            None => {
                *this.ended = true;
                last(this.open).map(Ok)
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.open.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A frame of the application's; its trailers, which come last, are joined by ours.
fn pass<D>(frame: Frame<D>, open: &mut Option<Open>) -> Frame<D> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            if let Some(open) = open.take() {
                open.end(&mut trailers);
            }
            Frame::trailers(trailers)
        }
        Err(data) => {
            if let Some(Open { flight, .. }) = open {
                flight.hand_over(flight.now());
            }
            data
        }
    }
}

/// After the application's last frame: our trailers, if there are any.
fn last<D>(open: &mut Option<Open>) -> Option<Frame<D>> {
    let mut trailers = HeaderMap::new();
    open.take()?.end(&mut trailers);
    (!trailers.is_empty()).then(|| Frame::trailers(trailers))
}
