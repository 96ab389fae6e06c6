//! Overload control inside a service: the engine of Tidegate as a `tower` layer.
//!
//! The layer classifies a request, admits it, lets it wait or sheds it, and measures it: the same
//! engine and the same mode `auto` as in the proxy, without a proxy. It finds the concurrency at
//! which throughput stops growing, queues what exceeds it by importance, and sheds what could not
//! be answered within its target.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use tidegate_tower::Protection;
//!
//! async fn browse() -> &'static str {
//!     "a page"
//! }
//!
//! async fn checkout() -> &'static str {
//!     "paid"
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let protection = Protection::new()
//!         .target(Duration::from_millis(250))
//!         .class("checkout")
//!         .class("browse")
//!         .classify(|request| match request.uri.path() {
//!             "/checkout" => "checkout",
//!             _ => "browse",
//!         })
//!         .build()?;
//!     let status = protection.clone();
//!
//!     let app = Router::new()
//!         .route("/", get(browse))
//!         .route("/checkout", get(checkout))
//!         .layer(protection)
//!         // Routes after the layer are not protected.
//!         .route("/health", get(|| async { "well" }))
//!         .route("/load", get(move || async move { format!("{:?}", status.status()) }));
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     axum::serve(listener, app).await?;
//!     Ok(())
//! }
//! ```
//!
//! - A shed request gets 503 with `retry-after` and `tidegate-shed: <reason>`, a gRPC call
//!   RESOURCE_EXHAUSTED with `google.rpc.RetryInfo`.
//! - A future or a body that is dropped gives its slot, or its place in the queue, back at once.
//! - The slot of an answer whose length is known is free when the service has answered. That of
//!   any other is free with the end of its body, or a second after its reader has stopped.
//! - An answer that is a stream (events, an upgrade) holds no slot and is no sample.
//! - `grpc-timeout` is the deadline of a call: one that cannot be kept is not started.
//!
//! Decision: docs/decisions/0150-tower-layer.md.

mod body;
mod clock;
mod future;
mod gate;
mod layer;
mod protection;
mod refusal;
mod ticker;

pub use body::ProtectedBody;
pub use future::ProtectFuture;
pub use gate::{Entry, Slot, Wait};
pub use layer::{OptionalContent, ProtectLayer, ProtectService};
pub use protection::{BuildError, Protection};
pub use refusal::{SHED_HEADER, refuse};
pub use ticker::Driver;
pub use tidegate_sentry as sentry;

/// The code of the book's page is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tower.md")]
struct BookPage;
