//! Limiters for tower around the same service, in one process: `make bench-tower`.
//!
//! The service has four workers of 20 ms; halfway through the run a worker takes twice as long.
//! Three times its capacity arrives, evenly spaced, from clients that leave after two seconds;
//! the service computes their answers all the same. Goodput is the share of what the service
//! could have answered that was answered within 250 ms. Contenders run one after the other in
//! real time, because they read the system's clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use axum::{Router, routing::get};
use little_loadshedder::{LoadShedLayer, LoadShedResponse};
use tidegate_tower::Protection;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_resilience_adaptive::{AdaptiveLimiterLayer, Aimd, Gradient2, Vegas};

const CAPACITY: u32 = 200;
const WORKERS: u32 = 4;
const TARGET: Duration = Duration::from_millis(250);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const OVERLOAD: u32 = 3;
/// Of each of the two parts of a run; the first second of each does not count.
const SECONDS: u32 = 8;

type Error = Box<dyn std::error::Error + Send + Sync>;
/// Whether a request was answered, and not shed.
type Contender = BoxCloneSyncService<Request<Body>, bool, Error>;

/// The service, and its time per request in milliseconds.
fn service() -> (Router, Arc<AtomicU32>) {
    let workers = Arc::new(Semaphore::new(WORKERS as usize));
    let millis = Arc::new(AtomicU32::new(1000 * WORKERS / CAPACITY));
    let now = Arc::clone(&millis);
    let page = move || async move {
        let (done, answer) = oneshot::channel();
        tokio::spawn(async move {
            let _worker = workers.acquire().await;
            sleep(Duration::from_millis(now.load(Ordering::Relaxed).into())).await;
            let _ = done.send("page");
        });
        answer.await.unwrap_or_default()
    };
    (Router::new().route("/", get(page)), millis)
}

/// Goodput of both parts, as shares of what the service can do.
async fn run(contender: Contender, millis: Arc<AtomicU32>) -> [f64; 2] {
    let good = [const { AtomicU32::new(0) }; 2].map(Arc::new);
    let began = Instant::now();
    for (part, capacity) in [CAPACITY, CAPACITY / 2].into_iter().enumerate() {
        millis.store(1000 * WORKERS / capacity, Ordering::Relaxed);
        for number in 0..SECONDS * CAPACITY * OVERLOAD {
            let (contender, good) = (contender.clone(), Arc::clone(&good[part]));
            let counts = number >= CAPACITY * OVERLOAD;
            tokio::spawn(async move {
                let began = Instant::now();
                let request = Request::new(Body::empty());
                let answered = timeout(CLIENT_TIMEOUT, contender.oneshot(request)).await;
                let answered = matches!(answered, Ok(Ok(true)));
                if counts && answered && began.elapsed() <= TARGET {
                    good.fetch_add(1, Ordering::Relaxed);
                }
            });
            let sent = part as u32 * SECONDS * CAPACITY * OVERLOAD + number;
            let gap = Duration::from_secs(1) / (CAPACITY * OVERLOAD);
            sleep_until(began + gap * sent).await;
        }
    }
    let share = |part: usize, capacity: u32| {
        f64::from(good[part].load(Ordering::Relaxed)) / f64::from((SECONDS - 1) * capacity)
    };
    [share(0, CAPACITY), share(1, CAPACITY / 2)]
}

fn contender<S, B>(service: S) -> Contender
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<Error> + 'static,
    B: 'static,
{
    let answered = service.map_response(|response| response.status().is_success());
    BoxCloneSyncService::new(answered.map_err(Into::into))
}

fn contenders() -> Result<Vec<(&'static str, Contender, Arc<AtomicU32>)>, Error> {
    let mut all = Vec::new();
    let mut add = |name, make: &dyn Fn(Router) -> Result<Contender, Error>| {
        let (service, millis) = service();
        make(service).map(|contender| all.push((name, contender, millis)))
    };
    add("none", &|service| Ok(contender(service)))?;
    add("tower ConcurrencyLimit 64", &|service| {
        let limit = tower::limit::ConcurrencyLimitLayer::new(64);
        Ok(contender(limit.layer(service)))
    })?;
    add(
        "tower ConcurrencyLimit 4 (exact) with LoadShed",
        &|service| {
            let stack = ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(WORKERS as usize);
            Ok(contender(stack.service(service)))
        },
    )?;
    add("tower-resilience Aimd with LoadShed", &|service| {
        let limit = Aimd::builder().latency_threshold(TARGET / 2).build()?;
        adaptive(AdaptiveLimiterLayer::new(limit), service)
    })?;
    add("tower-resilience Vegas with LoadShed", &|service| {
        adaptive(
            AdaptiveLimiterLayer::new(Vegas::builder().build()?),
            service,
        )
    })?;
    add("tower-resilience Gradient2 with LoadShed", &|service| {
        adaptive(
            AdaptiveLimiterLayer::new(Gradient2::builder().build()?),
            service,
        )
    })?;
    add("little-loadshedder", &|service| {
        let shedding = LoadShedLayer::new(0.01, TARGET).layer(service);
        let answered =
            ServiceExt::<Request<Body>>::map_response(shedding, |response| match response {
                LoadShedResponse::Inner(response) => response.status().is_success(),
                LoadShedResponse::Overload => false,
            });
        Ok(BoxCloneSyncService::new(
            ServiceExt::<Request<Body>>::map_err(answered, |never: Infallible| match never {}),
        ))
    })?;
    add("tidegate-tower", &|service| {
        let layer = Protection::new().target(TARGET).build()?;
        Ok(contender(layer.layer(service)))
    })?;
    Ok(all)
}

fn adaptive<L>(layer: L, service: Router) -> Result<Contender, Error>
where
    L: Layer<Router> + Clone,
    L::Service: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
    <L::Service as Service<Request<Body>>>::Future: Send,
    <L::Service as Service<Request<Body>>>::Error: Into<Error> + 'static,
{
    Ok(contender(
        ServiceBuilder::new()
            .load_shed()
            .layer(layer)
            .service(service),
    ))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!(
        "{:<50} {:>8} {:>8}",
        "goodput, of what is possible", "steady", "halved"
    );
    for (name, contender, millis) in contenders()? {
        let [steady, halved] = run(contender, millis).await;
        println!(
            "{name:<50} {:>7.1}% {:>7.1}%",
            steady * 100.0,
            halved * 100.0
        );
        sleep(CLIENT_TIMEOUT).await;
    }
    Ok(())
}
