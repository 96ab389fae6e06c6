//! The nucleus as a `tower` layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

pub use crate::body::MeasuredBody;
use crate::core::{Flight, Nucleus};
use crate::wire::Instructions;

/// In the extensions of every request: whether to include optional content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalContent(pub bool);

/// Wraps a service with a [`Nucleus`].
///
/// ```
/// use tidegate_nucleus::{CpuMeter, Nucleus, NucleusConfig, NucleusLayer, OptionalContent};
///
/// let nucleus = Nucleus::new(NucleusConfig::default(), CpuMeter::new(None).ok());
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
        request
            .extensions_mut()
            .insert(OptionalContent(flight.full()));
        Measured {
            inner: self.inner.call(request),
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
        let response = ready!(this.inner.poll(context))?;
        Poll::Ready(Ok(measured(response, this.flight.take())))
    }
}

/// Reports in the headers when the whole answer is there already, in the trailers otherwise.
pub(crate) fn measured<B: Body>(
    response: Response<B>,
    flight: Option<Flight>,
) -> Response<MeasuredBody<B>> {
    let (mut head, body) = response.into_parts();
    let complete = body.is_end_stream() || body.size_hint().exact().is_some();
    let flight = match flight {
        Some(flight) if complete => {
            flight.land().write(&mut head.headers);
            None
        }
        streaming => streaming,
    };
    Response::from_parts(head, MeasuredBody::new(body, flight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::NucleusConfig;
    use crate::wire;
    use bytes::Bytes;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;
    use tower::ServiceExt;

    fn layer() -> NucleusLayer {
        NucleusLayer::new(Nucleus::new(NucleusConfig::default(), None))
    }

    fn request(optional: &'static str) -> Request<()> {
        Request::builder()
            .header("tidegate-optional", optional)
            .body(())
            .unwrap()
    }

    #[tokio::test]
    async fn a_complete_answer_reports_in_its_headers() {
        let service = layer().layer(tower::service_fn(|request: Request<()>| async move {
            let page = match request.extensions().get() {
                Some(OptionalContent(false)) => "reduced",
                _ => "full",
            };
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(page))))
        }));
        let response = service.oneshot(request("0")).await.unwrap();
        assert_eq!(response.headers()[wire::DEMAND], "1");
        assert!(response.headers().contains_key(wire::SERVICE_MS));
        let body = response.into_body().collect().await.unwrap();
        assert!(body.trailers().is_none());
        assert_eq!(body.to_bytes(), "reduced");
    }

    #[tokio::test]
    async fn a_streamed_answer_reports_in_its_trailers() {
        let service = layer().layer(tower::service_fn(|_: Request<()>| async move {
            let frames = [Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(
                "a",
            )))];
            let body = StreamBody::new(futures_util::stream::iter(frames));
            Ok::<_, Infallible>(Response::new(body))
        }));
        let response = service.oneshot(request("1")).await.unwrap();
        assert!(!response.headers().contains_key(wire::DEMAND));
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()[wire::DEMAND], "1");
    }
}
