//! The nucleus as a `tower` layer.
//!
//! Everything the inner service does counts as service, so it belongs outermost among the layers
//! that do work for a request, and inside of those that refuse one. Routes added to an `axum`
//! router after the layer are not measured: health checks and static files are best put there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::MeasuredBody;
use crate::flight::Flight;
use crate::nucleus::Nucleus;
use crate::report::Room;
use crate::wire::Instructions;

/// In the extensions of every request: whether to include optional content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalContent(pub bool);

/// Wraps a service with a [`Nucleus`].
///
/// ```
/// use tidegate_nucleus::{CpuMeter, Nucleus, NucleusConfig, NucleusLayer, OptionalContent, Whose};
///
/// let nucleus = Nucleus::new(NucleusConfig::default(), CpuMeter::new(Whose::This).ok());
/// let layer = NucleusLayer::new(nucleus);
/// // `Router::new().route("/", get(page)).layer(layer)`, and in the handler:
/// fn page(request: &http::Request<()>) -> &'static str {
///     match request.extensions().get::<OptionalContent>() {
///         Some(OptionalContent(false)) => "the product",
///         _ => "the product, and what others bought",
///     }
/// }
/// # let _ = (layer, page);
/// ```
#[derive(Debug, Clone)]
pub struct NucleusLayer {
    nucleus: Arc<Nucleus>,
}

impl NucleusLayer {
    /// All services wrapped by clones of this layer are measured together.
    #[must_use]
    pub fn new(nucleus: Arc<Nucleus>) -> Self {
        Self { nucleus }
    }
}

impl<S> Layer<S> for NucleusLayer {
    type Service = NucleusService<S>;

    fn layer(&self, inner: S) -> NucleusService<S> {
        NucleusService {
            inner,
            nucleus: Arc::clone(&self.nucleus),
        }
    }
}

/// A service whose requests are measured.
#[derive(Debug, Clone)]
pub struct NucleusService<S> {
    inner: S,
    nucleus: Arc<Nucleus>,
}

impl<S, A, B> Service<Request<A>> for NucleusService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<MeasuredBody<B>>;
    type Error = S::Error;
    type Future = Measured<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Measured<S::Future> {
        let flight = self.nucleus.begin(Instructions::read(request.headers()));
        let room = Room::of(&request);
        request
            .extensions_mut()
            .insert(OptionalContent(flight.full()));
        Measured {
            inner: self.inner.call(request),
            room,
            flight: Some(flight),
        }
    }
}

pin_project! {
    /// The future of a [`NucleusService`].
    #[derive(Debug)]
    pub struct Measured<F> {
        #[pin]
        inner: F,
        room: Room,
        flight: Option<Flight>,
    }
}

impl<F, B, E> Future for Measured<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<MeasuredBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcome = ready!(this.inner.poll(context));
        let flight = this.flight.take();
        let flight = flight.expect("a future is not polled after it is done");
        Poll::Ready(outcome.map(|response| this.room.report(response, flight)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nucleus::NucleusConfig;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use tower::{ServiceExt, service_fn};

    fn nucleus() -> Arc<Nucleus> {
        Nucleus::new(NucleusConfig::default(), None)
    }

    fn request(optional: &'static str) -> Request<()> {
        Request::builder()
            .header("tidegate-optional", optional)
            .body(())
            .unwrap()
    }

    async fn page(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
        let page = match request.extensions().get() {
            Some(OptionalContent(false)) => "reduced",
            _ => "full",
        };
        Ok(Response::new(Full::new(Bytes::from(page))))
    }

    #[tokio::test]
    async fn application_is_told_what_to_leave_out() {
        let layer = NucleusLayer::new(nucleus());
        for (optional, expected) in [("0", "reduced"), ("1", "full"), ("", "full")] {
            let service = layer.layer(service_fn(page));
            let response = service.oneshot(request(optional)).await.unwrap();
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), expected, "{optional}");
        }
    }

    #[tokio::test]
    async fn service_that_fails_or_is_dropped_leaves_nobody_behind() {
        type Outcome = Result<Response<Full<Bytes>>, &'static str>;
        let nucleus = nucleus();
        let layer = NucleusLayer::new(Arc::clone(&nucleus));
        let broken = service_fn(|_: Request<()>| ready::<Outcome>(Err("broken")));
        assert!(layer.layer(broken).oneshot(request("1")).await.is_err());
        assert_eq!(nucleus.reading().present, 0);

        let hanging = service_fn(|_: Request<()>| pending::<Outcome>());
        let answer = layer.layer(hanging).call(request("1"));
        assert_eq!(nucleus.reading().present, 1);
        drop(answer);
        assert_eq!(nucleus.reading().present, 0);
        assert_eq!(nucleus.reading().answered, 0);
    }
}
