//! What the layer adds to an admitted request, in CPU time:
//! `cargo run --release -p tidegate-tower --example overhead`.
//!
//! Requests run through a service that does nothing, bare and inside of the layer, on one thread
//! and on all at once. The cheapest of several rounds counts: on a shared machine anything else
//! measures the neighbours.

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{self, Write};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use rustix::time::{ClockId, clock_gettime};
use tidegate_tower::Protection;
use tower::{Layer, Service, service_fn};

const ROUNDS: usize = 15;
const REQUESTS: u32 = 100_000;

async fn nothing(request: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    black_box(request);
    Ok(Response::new(Full::new(Bytes::from_static(b"page"))))
}

/// CPU time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().expect("time used is not negative")
}

/// Runs requests one after the other; none of them ever waits. Returns the CPU time.
fn run<S, B>(service: &mut S) -> Duration
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let began = used();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..REQUESTS {
        let request = Request::builder().uri("/checkout").body(());
        let request = request.expect("a path makes a request");
        match pin!(service.call(request)).poll(&mut context) {
            Poll::Ready(Ok(response)) => drop(black_box(response)),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => unreachable!("the service does nothing"),
        }
    }
    used() - began
}

/// Nanoseconds per request of the cheapest round, with as many threads at it.
fn measure<S, B>(threads: usize, service: impl Fn() -> S + Sync) -> f64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let round = || run(&mut service());
    let cheapest = (0..ROUNDS).map(|_| {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(round)).collect();
            let times = workers.into_iter().map(|worker| worker.join());
            times.filter_map(Result::ok).sum::<Duration>()
        })
    });
    let least = cheapest.min().unwrap_or_default();
    least.as_secs_f64() * 1e9 / (threads as f64 * f64::from(REQUESTS))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let classes = Protection::new().class("checkout").class("browse");
    let layer = classes
        .classify(|request| match request.uri.path() {
            "/checkout" => "checkout",
            _ => "browse",
        })
        .target(Duration::from_millis(250))
        .build()?;
    let cores = thread::available_parallelism()?.get();
    for threads in [1, cores] {
        let bare = measure(threads, || service_fn(nothing));
        let protected = measure(threads, || layer.layer(service_fn(nothing)));
        let added = protected - bare;
        writeln!(
            io::stdout(),
            "{threads} threads: {bare:.0} ns bare, {protected:.0} ns protected, {added:.0} ns added"
        )?;
    }
    Ok(())
}
