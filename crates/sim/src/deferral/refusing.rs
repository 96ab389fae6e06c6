//! A server that refuses what it cannot process, at a price (001 §6.1).
//!
//! Requests arrive `factor_peak` times as fast as the server can process them, and to refuse one
//! takes one part in `factor_request` of the work of processing it. A request is refused when as
//! many are waiting as may wait. Refusals go before requests, as a server reads a request before it
//! knows whether to refuse it. The paper's upper bound of what refusing takes of the server is
//! `factor_peak / factor_request`; with `x` the share that is processed, refusing takes
//!
//! ```text
//! (factor_peak - x) / factor_request,    x = (1 - factor_peak / factor_request)
//!                                            / (1 - 1 / factor_request)
//! ```

use std::collections::VecDeque;

use rand_distr::{Distribution, Exp, Normal};

use crate::rng::Streams;

/// The server and what comes.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Mean work of a request, in seconds.
    pub work_s: f64,
    /// Its standard deviation.
    pub work_sd_s: f64,
    /// Arrivals for each that can be processed.
    pub factor_peak: f64,
    /// Work of a request for that of a refusal.
    pub factor_request: f64,
    /// Requests that may wait or be processed.
    pub inside_max: usize,
    /// How long.
    pub duration_s: f64,
}

/// What the server did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// Requests processed, for each that it could process without refusing.
    pub processed_share: f64,
    /// Share of its time that refusing took.
    pub refusing_share: f64,
}

/// Runs it.
///
/// # Panics
/// When a factor, the work or the duration is not above zero and finite.
#[must_use]
pub fn run(setup: &Setup, seed: u64) -> Outcome {
    let streams = Streams::new(seed);
    let (mut arrivals, mut works) = (streams.stream("arrivals"), streams.stream("work"));
    let gap = Exp::new(setup.factor_peak / setup.work_s).expect("the rate was checked");
    let work = Normal::new(setup.work_s, setup.work_sd_s).expect("the deviation was checked");
    let refusal_s = setup.work_s / setup.factor_request;
    let mut server = Server::default();
    let mut now_s = 0.0;
    loop {
        let gap_s = gap.sample(&mut arrivals);
        now_s += gap_s;
        if now_s > setup.duration_s {
            break;
        }
        server.work_for(gap_s);
        if server.waiting.len() >= setup.inside_max {
            server.refusals_s += refusal_s;
        } else {
            let work_s: f64 = work.sample(&mut works);
            server.waiting.push_back(work_s.max(0.01 * setup.work_s));
        }
    }
    Outcome {
        processed_share: f64::from(server.processed) * setup.work_s / setup.duration_s,
        refusing_share: server.refused_for_s / setup.duration_s,
    }
}

#[derive(Debug, Default)]
struct Server {
    /// Refusing that is not done yet.
    refusals_s: f64,
    refused_for_s: f64,
    /// Work of requests inside, the oldest first.
    waiting: VecDeque<f64>,
    processed: u32,
}

impl Server {
    /// Refusals first, then the oldest request.
    fn work_for(&mut self, time_s: f64) {
        let refusing_s = self.refusals_s.min(time_s);
        self.refusals_s -= refusing_s;
        self.refused_for_s += refusing_s;
        let mut left_s = time_s - refusing_s;
        while let Some(first_s) = self.waiting.front_mut() {
            if *first_s > left_s {
                *first_s -= left_s;
                return;
            }
            left_s -= *first_s;
            self.waiting.pop_front();
            self.processed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(factor_peak: f64, factor_request: f64) -> Outcome {
        let setup = Setup {
            work_s: 0.1,
            work_sd_s: 0.02,
            factor_peak,
            factor_request,
            inside_max: 10,
            duration_s: 2000.0,
        };
        run(&setup, 7)
    }

    #[test]
    fn effort_is_what_the_formula_says() {
        for (peak, request) in [(2.0, 20.0), (5.0, 10.0), (10.0, 100.0), (9.0, 10.0)] {
            let found = outcome(peak, request);
            let x = (1.0 - peak / request) / (1.0 - 1.0 / request);
            let effort = (peak - x) / request;
            assert!((found.processed_share - x).abs() < 0.02, "{found:?} {x}");
            assert!((found.refusing_share - effort).abs() < 0.02, "{effort}");
        }
    }

    #[test]
    fn below_capacity_nothing_is_refused() {
        let found = outcome(0.3, 10.0);
        assert!(found.refusing_share < 1e-3, "{found:?}");
    }
}
