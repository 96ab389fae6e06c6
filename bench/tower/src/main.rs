//! Limiters for tower around the same service, in one process: `make bench-tower`.
//!
//! The service has four workers of 20 ms; halfway through the run a worker takes twice as long.
//! Three times its capacity arrives, evenly spaced, from clients that leave after two seconds; the
//! service computes their answers all the same. Goodput is the share of what the service could have
//! answered, by the time that requests took in it, that was answered within 250 ms. Contenders run
//! one after the other in real time, because they read the system's clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

/// What the service takes for a request, and what it took.
#[derive(Default)]
struct Work {
    millis: AtomicU32,
    requests: AtomicU64,
    micros: AtomicU64,
}

impl Work {
    /// Requests per second that its workers could have done, by the time that requests took: on a
    /// busy machine a sleep of 20 ms takes longer, for every contender.
    fn capacity_since(&self, (requests, micros): (u64, u64)) -> f64 {
        let requests = self.requests.load(Ordering::Relaxed) - requests;
        let micros = self.micros.load(Ordering::Relaxed) - micros;
        f64::from(WORKERS) * requests as f64 * 1e6 / micros.max(1) as f64
    }

    fn totals(&self) -> (u64, u64) {
        let requests = self.requests.load(Ordering::Relaxed);
        (requests, self.micros.load(Ordering::Relaxed))
    }
}

/// The service, and its work.
fn service() -> (Router, Arc<Work>) {
    let workers = Arc::new(Semaphore::new(WORKERS as usize));
    let work = Arc::new(Work::default());
    let own = Arc::clone(&work);
    let page = move || async move {
        let (done, answer) = oneshot::channel();
        tokio::spawn(async move {
            let _worker = workers.acquire().await;
            let began = Instant::now();
            sleep(Duration::from_millis(
                own.millis.load(Ordering::Relaxed).into(),
            ))
            .await;
            own.requests.fetch_add(1, Ordering::Relaxed);
            own.micros
                .fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            let _ = done.send("page");
        });
        answer.await.unwrap_or_default()
    };
    (Router::new().route("/", get(page)), work)
}

/// Goodput of both parts, as shares of what the service can do.
async fn run(contender: Contender, work: Arc<Work>) -> [f64; 2] {
    let good = [const { AtomicU32::new(0) }; 2].map(Arc::new);
    let began = Instant::now();
    let mut shares = [0.0; 2];
    for (part, capacity) in [CAPACITY, CAPACITY / 2].into_iter().enumerate() {
        let before = work.totals();
        work.millis
            .store(1000 * WORKERS / capacity, Ordering::Relaxed);
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
        let answered = f64::from(good[part].load(Ordering::Relaxed));
        shares[part] = answered / (f64::from(SECONDS - 1) * work.capacity_since(before));
    }
    shares
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

fn contenders() -> Result<Vec<(&'static str, Contender, Arc<Work>)>, Error> {
    let mut all = Vec::new();
    let mut add = |name, make: &dyn Fn(Router) -> Result<Contender, Error>| {
        let (service, work) = service();
        make(service).map(|contender| all.push((name, contender, work)))
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
    for (name, contender, work) in contenders()? {
        let [steady, halved] = run(contender, work).await;
        println!(
            "{name:<50} {:>7.1}% {:>7.1}%",
            steady * 100.0,
            halved * 100.0
        );
        sleep(CLIENT_TIMEOUT).await;
    }
    Ok(())
}
