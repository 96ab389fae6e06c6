//! The layer and its service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tidegate_sentry::Status;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ProtectedBody;
use crate::future::ProtectFuture;
use crate::gate::{Entry, Gate, Slot, enter};
use crate::protection::Rules;
use crate::refusal::Format;

/// In the extensions of a request, where the mode decides about it (`ilac`): whether to include
/// optional content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalContent(pub bool);

/// Protects a service from overload; made by [`Protection::build`](crate::Protection::build).
///
/// It belongs outside of the layers that do work for a request. Routes that are added to an
/// `axum` router after the layer are not protected: health checks are best put there.
#[derive(Debug, Clone)]
pub struct ProtectLayer {
    gate: Arc<Gate>,
    rules: Arc<Rules>,
}

impl ProtectLayer {
    pub(crate) fn new(gate: Arc<Gate>, rules: Arc<Rules>) -> Self {
        Self { gate, rules }
    }

    /// What the engine measured and decided: windows, queue, classes, counters. It can be
    /// serialised, for an admin route of the service.
    #[must_use]
    pub fn status(&self) -> Status {
        self.gate.status()
    }

    /// Decides about a request by its head, for a driver that is no tower service: one that only
    /// sees heads, because something else runs the requests.
    pub fn enter(&self, request: &Parts) -> Entry {
        enter(&self.gate, &self.rules.arrival(&self.gate, request))
    }

    /// Fails open: everything is admitted while it is on, and what waits at once.
    pub fn set_kill_switch(&self, on: bool) {
        self.gate.set_kill_switch(on);
    }

    /// Decides and reports, but admits everything while it is on.
    pub fn set_dry_run(&self, on: bool) {
        self.gate.set_dry_run(on);
    }

    /// Sheds what arrives while it is on; what waits or runs is finished. For a shutdown.
    pub fn set_draining(&self, on: bool) {
        self.gate.set_draining(on);
    }
}

impl<S> Layer<S> for ProtectLayer {
    type Service = ProtectService<S>;

    fn layer(&self, inner: S) -> ProtectService<S> {
        ProtectService {
            inner,
            gate: Arc::clone(&self.gate),
            rules: Arc::clone(&self.rules),
        }
    }
}

/// A service whose requests pass the admission engine.
#[derive(Debug, Clone)]
pub struct ProtectService<S> {
    inner: S,
    gate: Arc<Gate>,
    rules: Arc<Rules>,
}

impl<S, A, B> Service<Request<A>> for ProtectService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes>,
{
    type Response = Response<ProtectedBody<B>>;
    type Error = S::Error;
    type Future = ProtectFuture<S, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> ProtectFuture<S, A> {
        let (mut parts, body) = request.into_parts();
        match enter(&self.gate, &self.rules.arrival(&self.gate, &parts)) {
            Entry::Admitted(slot) => {
                mark(&mut parts, &slot);
                let request = Request::from_parts(parts, body);
                ProtectFuture::running(self.inner.call(request), slot)
            }
            Entry::Waiting(wait) => {
                // The service that was found ready waits with the request; its clone was not.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ProtectFuture::waiting(wait, ready, parts, body)
            }
            Entry::Shed(refusal) => ProtectFuture::shed(Format::of(&parts), refusal),
        }
    }
}

/// Tells the service what the engine decided about optional content.
pub(crate) fn mark(parts: &mut Parts, slot: &Slot) {
    if let Some(optional) = slot.optional() {
        parts.extensions.insert(OptionalContent(optional));
    }
}
