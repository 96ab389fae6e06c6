//! A response body that reports in its trailers, for answers whose end is not known when they begin.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::core::Flight;

pin_project! {
    /// Passes a body through; when it ends, the measurements follow as trailers. Dropped before its
    /// end, the request counts as aborted.
    #[derive(Debug)]
    pub struct MeasuredBody<B> {
        #[pin]
        inner: B,
        flight: Option<Flight>,
    }
}

impl<B> MeasuredBody<B> {
    /// With a flight that ends with the body, or with none when it was reported in the headers.
    pub(crate) fn new(inner: B, flight: Option<Flight>) -> Self {
        Self { inner, flight }
    }
}

fn report(flight: Flight, mut trailers: HeaderMap) -> HeaderMap {
    flight.land().write(&mut trailers);
    trailers
}

impl<B: Body> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = match ready!(this.inner.poll_frame(context)) {
            Some(Ok(frame)) => match (frame.into_trailers(), this.flight.is_some()) {
                (Ok(trailers), true) => this
                    .flight
                    .take()
                    .map(|flight| Ok(Frame::trailers(report(flight, trailers)))),
                (Ok(trailers), false) => Some(Ok(Frame::trailers(trailers))),
                (Err(data), _) => Some(Ok(data)),
            },
            Some(Err(error)) => {
                *this.flight = None;
                Some(Err(error))
            }
            None => this
                .flight
                .take()
                .map(|flight| Ok(Frame::trailers(report(flight, HeaderMap::new())))),
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.flight.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
