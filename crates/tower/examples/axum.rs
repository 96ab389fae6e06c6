//! A service that protects itself: `cargo run -p tidegate-tower --example axum`.
//!
//! It can do 200 requests per second. Send it three times as many, and see what is answered in
//! time, for example with `tidegate load http://127.0.0.1:3000/ --rate 600/s`; `/load` shows what
//! the engine measured.

use std::sync::Arc;
use std::time::Duration;

use axum::{Router, routing::get};
use tidegate_tower::Protection;
use tokio::sync::Semaphore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protection = Protection::new()
        .target(Duration::from_millis(250))
        .class("checkout")
        .class("browse")
        .classify(|request| match request.uri.path() {
            "/checkout" => "checkout",
            _ => "browse",
        })
        .build()?;
    let load = protection.clone();
    let (browse, checkout) = (workers(), workers());
    let app = Router::new()
        .route("/", get(|| work(browse)))
        .route("/checkout", get(|| work(checkout)))
        .layer(protection)
        .route(
            "/load",
            get(|| async move { format!("{:#?}", load.status()) }),
        );
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, app).await?;
    Ok(())
}

/// Four workers, 20 ms a request.
fn workers() -> Arc<Semaphore> {
    static WORKERS: std::sync::OnceLock<Arc<Semaphore>> = std::sync::OnceLock::new();
    Arc::clone(WORKERS.get_or_init(|| Arc::new(Semaphore::new(4))))
}

async fn work(workers: Arc<Semaphore>) -> &'static str {
    let _worker = workers.acquire().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    "page\n"
}
