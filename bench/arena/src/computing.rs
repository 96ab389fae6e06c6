//! A replica that really computes, for the scenario that is about processor time: this many
//! requests at once, each in a thread of its own, and every one a drawn amount of processor time.
//!
//! Work is measured on the thread's own processor clock, so that a request costs the same on a fast
//! machine, on a busy one, and under a limit; a limit of processor time is then a known capacity.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use tidegate_sim::rng::{SimRng, Streams};
use tidegate_sim::service::Law;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Part of a processor that is one core of the scenario, at nominal speed.
pub(crate) const CORE: f64 = 0.25;

/// Checked against the clock after this many steps: about twenty microseconds.
const STEPS: u64 = 10_000;

const PAGE: &[u8] = &[b'.'; 1024];

/// What connections share.
#[derive(Debug)]
struct Service {
    law: Law,
    rng: Mutex<SimRng>,
    slots: Arc<Semaphore>,
}

/// Serves until the process is ended. `slots` requests are worked on at once, the others wait.
pub(crate) async fn serve(listener: TcpListener, law: Law, slots: usize, seed: u64) {
    let service = Arc::new(Service {
        law,
        rng: Mutex::new(rng(seed)),
        slots: Arc::new(Semaphore::new(slots)),
    });
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        // An answer is one packet; where this cannot be set it leaves a little later.
        let _ = socket.set_nodelay(true);
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let answer = service_fn(move |_: Request<Incoming>| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.answer().await) }
            });
            // A client that leaves is an error here and a fact of life.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), answer)
                .await;
        });
    }
}

impl Service {
    /// A page, after its work.
    async fn answer(&self) -> Response<Full<Bytes>> {
        let work = Duration::from_secs_f64(CORE * self.draw());
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        // Work that began is done to the end, whether or not the client is still there.
        let done = tokio::task::spawn_blocking(move || {
            compute(work);
            drop(slot);
        });
        match done.await {
            Ok(()) => Response::new(Full::new(Bytes::from_static(PAGE))),
            Err(_) => {
                let mut failed = Response::new(Full::default());
                *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                failed
            }
        }
    }

    fn draw(&self) -> f64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        self.law.sample(&mut rng)
    }
}

fn rng(seed: u64) -> SimRng {
    Streams::new(seed).stream("computing/service")
}

/// What the requests of a replica take on average that gets them in this order, in seconds at
/// nominal speed.
pub(crate) fn mean_drawn(law: &Law, seed: u64, requests: Range<usize>) -> f64 {
    let mut rng = rng(seed);
    let drawn = std::iter::repeat_with(|| law.sample(&mut rng));
    let sum: f64 = drawn.skip(requests.start).take(requests.len()).sum();
    sum / requests.len() as f64
}

/// Uses up so much processor time of this thread.
fn compute(work: Duration) {
    let start = used();
    let mut state = 1_u64;
    while used().saturating_sub(start) < work {
        for step in 0..STEPS {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005) ^ step);
        }
    }
}

/// Processor time of this thread so far.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_drawn_in_order() {
        let law = Law::exponential(0.04);
        let each: Vec<f64> = (0..6).map(|at| mean_drawn(&law, 7, at..at + 1)).collect();
        let mean = each[2..].iter().sum::<f64>() / 4.0;
        assert!((mean_drawn(&law, 7, 2..6) - mean).abs() < 1e-12);
        assert!((mean_drawn(&law, 7, 0..100_000) - 0.04).abs() < 0.001);
    }

    #[test]
    fn computing_uses_the_processor_time_it_was_told_to() {
        let before = used();
        compute(Duration::from_millis(5));
        assert!(used() - before >= Duration::from_millis(5));
    }
}
