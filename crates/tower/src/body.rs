//! The body of an answer: it holds the slot until it ends, where its end was not known at its
//! head.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate_sentry::Ending;

use crate::gate::{OpenSlot, Slot};

pin_project! {
    /// The answer of a protected service, or a refusal. Dropped before its end, the request
    /// counts as abandoned by its client.
    #[derive(Debug)]
    pub struct ProtectedBody<B> {
        #[pin]
        inner: Option<B>,
        refusal: Option<Bytes>,
        open: Option<Open>,
    }
}

/// An answer that is still under way.
#[derive(Debug)]
struct Open {
    slot: Arc<OpenSlot>,
    ending: Ending,
}

impl Open {
    fn end(self) {
        self.slot.end(self.ending);
    }
}

impl<B> ProtectedBody<B> {
    pub(crate) fn refusal(text: Bytes) -> Self {
        Self {
            inner: None,
            refusal: (!text.is_empty()).then_some(text),
            open: None,
        }
    }

    pub(crate) fn done(inner: B) -> Self {
        Self {
            inner: Some(inner),
            refusal: None,
            open: None,
        }
    }

    pub(crate) fn open(inner: B, slot: Slot, ending: Ending) -> Self {
        let slot = OpenSlot::new(slot);
        Self {
            inner: Some(inner),
            refusal: None,
            open: Some(Open { slot, ending }),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ProtectedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(inner) = this.inner.as_pin_mut() else {
            return Poll::Ready(this.refusal.take().map(|text| Ok(Frame::data(text))));
        };
        if let Some(open) = this.open {
            open.slot.asked();
        }
        let frame = ready!(inner.poll_frame(context));
        match &frame {
            Some(Ok(frame)) if !frame.is_trailers() => {
                if let Some(open) = this.open {
                    open.slot.handed_over();
                }
            }
            Some(Err(_)) => {
                if let Some(open) = this.open.take() {
                    open.slot.end(Ending::Dropped);
                }
            }
            // The end, or the trailers, which come last.
            _ => {
                if let Some(open) = this.open.take() {
                    open.end();
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Some(inner) => self.open.is_none() && inner.is_end_stream(),
            None => self.refusal.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.inner, &self.refusal) {
            (Some(inner), _) => inner.size_hint(),
            (None, text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
