//! What the layer adds to a request: `cargo run --release -p tidegate-nucleus --example overhead`.
//!
//! Requests run through a service that does nothing, bare and inside of the layer, on one thread
//! and on all at once. CPU time is taken, and the cheapest of several rounds: on a shared machine
//! anything else measures the neighbours.

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
use tidegate_nucleus::{CpuMeter, Nucleus, NucleusConfig, NucleusLayer, Whose};
use tower::{Service, service_fn};
use tower_layer::Layer;

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

/// Runs requests one after the other; nothing in here ever waits. Returns the CPU time it took.
fn run<S, B>(service: &mut S) -> Duration
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let began = used();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..REQUESTS {
        let request = Request::builder()
            .header("tidegate-optional", "1")
            .header("tidegate-service-target-ms", "100")
            .body(())
            .expect("two headers make a request");
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
    let round = || {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| run(&mut service())))
                .collect();
            workers
                .into_iter()
                .filter_map(|worker| worker.join().ok())
                .max()
        })
    };
    let cheapest = (0..ROUNDS).filter_map(|_| round()).min();
    cheapest.map_or(f64::NAN, |cheapest| {
        cheapest.as_secs_f64() * 1e9 / f64::from(REQUESTS)
    })
}

fn main() -> io::Result<()> {
    let meter = CpuMeter::new(Whose::This).ok();
    let layer = NucleusLayer::new(Nucleus::new(NucleusConfig::default(), meter));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut out = io::stdout().lock();
    for threads in [1, cores] {
        let bare = measure(threads, || service_fn(nothing));
        let layered = measure(threads, || Layer::layer(&layer, service_fn(nothing)));
        let added = layered - bare;
        writeln!(
            out,
            "{threads} thread(s): {bare:.0} ns bare, {layered:.0} ns with the layer: {added:.0} ns"
        )?;
    }
    Ok(())
}
