//! The layer around axum: what it sheds, what it gives back, and what it is good for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tidegate_tower::{ProtectLayer, Protection, SHED_HEADER};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// A layer on the runtime's own clock, which tests pause.
fn driven(protection: Protection) -> ProtectLayer {
    let epoch = Instant::now();
    let (layer, mut driver) = protection.build_driven(move || epoch.elapsed()).unwrap();
    tokio::spawn(async move {
        while let Some(pause) = driver.drive() {
            sleep(pause).await;
        }
    });
    layer
}

/// Two slots, and waiting for a second.
const TWO_SLOTS: &str = "mode = 'static'\nstatic = { share = 1.0 }\ntarget = '1s'\nlimits = { slots = 2 }\nqueue = { max_requests = 1 }";

fn request(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).unwrap()
}

fn in_flight(layer: &ProtectLayer) -> u32 {
    layer.status().replicas[0].in_flight
}

/// Answers to `/` never come, those to `/page` at once.
fn hanging() -> Router {
    Router::new()
        .route("/", get(std::future::pending::<&'static str>))
        .route("/page", get(|| async { "page" }))
}

#[tokio::test(start_paused = true)]
async fn dropped_futures_release_their_slots() {
    let layer = driven(Protection::from_toml(TWO_SLOTS).unwrap());
    let mut app = hanging().layer(layer.clone());
    let first = tokio::spawn(app.call(request("/")));
    let second = tokio::spawn(app.call(request("/")));
    let waiting = tokio::spawn(app.call(request("/page")));
    tokio::task::yield_now().await;
    assert_eq!((in_flight(&layer), layer.status().queue.requests), (2, 1));

    let shed = app.call(request("/page")).await.unwrap();
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(shed.headers()[SHED_HEADER], "queue-full");
    assert!(shed.headers().contains_key("retry-after"));

    first.abort();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
    second.abort();
    let _ = second.await;
    assert_eq!(in_flight(&layer), 0);
    drop(app.call(request("/")));
    assert_eq!(in_flight(&layer), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_waiter_leaves_the_queue() {
    let layer = driven(Protection::from_toml(TWO_SLOTS).unwrap());
    let mut app = hanging().layer(layer.clone());
    let running = [(); 2].map(|()| tokio::spawn(app.call(request("/"))));
    tokio::task::yield_now().await;
    let waiting = tokio::spawn(app.call(request("/")));
    tokio::task::yield_now().await;
    assert_eq!(layer.status().queue.requests, 1);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(layer.status().queue.requests, 0);
    running.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A body of unknown length, which ends when told to.
fn chunked(end: oneshot::Receiver<()>) -> Response<Body> {
    let first = futures_util::stream::iter([Bytes::from("one")]);
    let rest = futures_util::stream::once(async move {
        let _ = end.await;
        Bytes::from("two")
    });
    Response::new(Body::from_stream(
        first.chain(rest).map(Ok::<_, Infallible>),
    ))
}

fn chunks(layer: &ProtectLayer) -> (oneshot::Sender<()>, impl Future<Output = Response<Body>>) {
    let (end, ended) = oneshot::channel();
    let app = layer_around(layer, ended);
    (end, app)
}

async fn layer_around(layer: &ProtectLayer, ended: oneshot::Receiver<()>) -> Response<Body> {
    let ended = Arc::new(std::sync::Mutex::new(Some(ended)));
    let handler = get(move || async move { chunked(ended.lock().unwrap().take().unwrap()) });
    let app = Router::new().route("/", handler).layer(layer.clone());
    app.oneshot(request("/")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn chunked_body_holds_its_slot_until_its_end() {
    let layer = driven(Protection::from_toml(TWO_SLOTS).unwrap());
    let (end, response) = chunks(&layer);
    let mut body = response.await.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(in_flight(&layer), 1);
    end.send(()).unwrap();
    while body.frame().await.is_some() {}
    assert_eq!(in_flight(&layer), 0);
    assert_eq!(layer.status().classes[0].served, 1);
}

#[tokio::test(start_paused = true)]
async fn slow_reader_of_a_chunked_body_holds_no_slot() {
    let layer = driven(Protection::from_toml(TWO_SLOTS).unwrap());
    let (_end, response) = chunks(&layer);
    let mut body = response.await.into_body();
    body.frame().await.unwrap().unwrap();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(in_flight(&layer), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(in_flight(&layer), 0);
    drop(body);
    assert_eq!(layer.status().classes[0].served, 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_class_name_is_the_least_important_class() {
    let protection = Protection::new().class("gold").class("rest");
    let layer = driven(protection.classify(|request| match request.uri.path() {
        "/page" => "gold",
        _ => "gald",
    }));
    let mut app = hanging().layer(layer.clone());
    app.call(request("/page")).await.unwrap();
    let other = tokio::spawn(app.call(request("/")));
    tokio::task::yield_now().await;
    other.abort();
    let arrived: Vec<_> = layer
        .status()
        .classes
        .iter()
        .map(|class| class.arrived)
        .collect();
    assert_eq!(arrived, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn draining_sheds_grpc_with_resource_exhausted() {
    let layer = driven(Protection::new());
    layer.set_draining(true);
    let mut request = request("/page");
    let grpc = "application/grpc+proto".parse().unwrap();
    request.headers_mut().insert("content-type", grpc);
    let response = hanging().layer(layer).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(response.headers().contains_key("grpc-status-details-bin"));
    assert!(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .is_empty()
    );
}

/// Requests per second that the service can do.
const CAPACITY: u32 = 200;
const WORKERS: u32 = 4;
const TARGET: Duration = Duration::from_millis(250);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const SECONDS: u32 = 20;

/// Four workers of 20 ms. An answer whose client has gone is computed all the same.
fn service() -> Router {
    let workers = Arc::new(Semaphore::new(WORKERS as usize));
    Router::new().route(
        "/",
        get(move || async move {
            let (done, answer) = oneshot::channel();
            tokio::spawn(async move {
                let _worker = workers.acquire().await.unwrap();
                sleep(Duration::from_secs(1) * WORKERS / CAPACITY).await;
                let _ = done.send(());
            });
            answer.await.unwrap();
            "page"
        }),
    )
}

type Boxed = BoxCloneSyncService<Request<Body>, StatusCode, Infallible>;

/// Answers within the target, of three times what the service can do, in the second half.
async fn goodput(service: Boxed) -> u32 {
    let good = Arc::new(AtomicU32::new(0));
    for number in 0..SECONDS * CAPACITY * 3 {
        let (mut service, good) = (service.clone(), Arc::clone(&good));
        tokio::spawn(async move {
            let began = Instant::now();
            let call = async {
                service
                    .ready()
                    .await
                    .unwrap()
                    .call(request("/"))
                    .await
                    .unwrap()
            };
            let status = tokio::time::timeout(CLIENT_TIMEOUT, call).await;
            let counts = number >= SECONDS * CAPACITY * 3 / 2 && began.elapsed() <= TARGET;
            if counts && status.is_ok_and(|status| status == StatusCode::OK) {
                good.fetch_add(1, Ordering::Relaxed);
            }
        });
        sleep(Duration::from_secs(1) / (CAPACITY * 3)).await;
    }
    good.load(Ordering::Relaxed)
}

fn boxed<S, B>(service: S) -> Boxed
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    BoxCloneSyncService::new(service.map_response(|response| response.status()))
}

#[tokio::test(start_paused = true)]
async fn overload_keeps_goodput_where_a_fixed_limit_and_none_lose_it() {
    let ideal = f64::from(SECONDS * CAPACITY / 2);
    let none = goodput(boxed(service())).await;
    // A limit that somebody guessed: requests beyond it wait without end.
    let limit = tower::limit::ConcurrencyLimitLayer::new(64);
    let fixed = goodput(boxed(tower::Layer::layer(&limit, service()))).await;
    let layer = driven(Protection::new().target(TARGET));
    let ours = goodput(boxed(tower::Layer::layer(&layer, service()))).await;
    assert!(f64::from(ours) > 0.9 * ideal, "{ours} of {ideal}");
    assert!(f64::from(none.max(fixed)) < 0.1 * ideal, "{none}, {fixed}");
    sleep(CLIENT_TIMEOUT).await;
    assert_eq!(in_flight(&layer), 0);
}
