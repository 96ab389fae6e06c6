//! The weight of I/O in what a request costs (`alpha` of 003 eq. 2), found on line.
//!
//! Equation 3 says that a request in company of `k` takes `k (cpu + alpha io)`. The paper runs
//! requests on an idle server and takes the `alpha` with the least difference between that and the
//! time they really took. Here every answer is such a run, in the company it met:
//!
//! ```text
//! alpha = sum k io (t - k cpu) / sum (k io)^2,      0 <= alpha <= 1
//! ```
//!
//! A service of many workers that wait for others (200 of them, 200 ms each) takes no longer in
//! company: `alpha` falls as `1 / k`, and a full house of waiting requests costs nothing. Where
//! time that counts as I/O is time spent waiting for the CPU, `t = k cpu`, and `alpha` is 0. On an
//! idle server it is 1, as in the paper. Answers in company weigh more, and what they showed is not
//! forgotten by light load.
//!
//! What breaks it: `k` is what is in service at the end, while requests that arrived together find
//! more.
//!
//! Decision: docs/decisions/0121-weight-of-io-on-line.md.

use crate::atomic::AtomicF64;

/// What is left of the past with each answer. Chosen: two hundred answers count.
const PAST: f64 = 1.0 - 1.0 / 200.0;

/// Before the first answer: as on an idle server.
const UNKNOWN: f64 = 1.0;

/// One answer that says what it cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) cpu_s: f64,
    pub(crate) io_s: f64,
    /// The time it took.
    pub(crate) took_s: f64,
    /// Requests in service with it, itself included.
    pub(crate) company: f64,
}

/// The weight of I/O in what a request costs (`alpha` of 003 eq.
#[derive(Debug)]
pub(crate) struct IoWeight {
    product: AtomicF64,
    square: AtomicF64,
}

impl Default for IoWeight {
    fn default() -> Self {
        Self {
            product: AtomicF64::new(0.0),
            square: AtomicF64::new(0.0),
        }
    }
}

impl IoWeight {
    /// Takes an answer; what is not finite is left out.
    pub(crate) fn learn(&self, run: Run) {
        let company = run.company.max(1.0);
        let io = company * run.io_s;
        let rest = run.took_s - company * run.cpu_s;
        if !(io > 0.0 && (io * io).is_finite() && (io * rest).is_finite()) {
            return;
        }
        // Two cores that learn at once may lose one of two answers.
        self.product.store(PAST * self.product.load() + io * rest);
        self.square.store(PAST * self.square.load() + io * io);
    }

    /// The weight by what was seen so far.
    pub(crate) fn value(&self) -> f64 {
        let square = self.square.load();
        if square > 0.0 {
            (self.product.load() / square).clamp(0.0, 1.0)
        } else {
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(runs: impl IntoIterator<Item = Run>) -> f64 {
        let weight = IoWeight::default();
        runs.into_iter().for_each(|run| weight.learn(run));
        weight.value()
    }

    fn run(cpu_s: f64, took_s: f64, company: f64) -> Run {
        Run {
            cpu_s,
            io_s: took_s - cpu_s,
            took_s,
            company,
        }
    }

    #[test]
    fn idle_server_gives_the_whole_time() {
        assert_eq!(IoWeight::default().value(), UNKNOWN);
        let light = (1..50).map(|ms| run(0.001, f64::from(ms) * 1e-3, 1.0));
        assert!((learnt(light) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn waiting_that_company_does_not_prolong_costs_others_nothing() {
        let alone = (0..50).map(|_| run(0.0005, 0.2, 1.0));
        let crowd = (0..20).map(|_| run(0.0005, 0.2, 30.0));
        let weight = learnt(alone.chain(crowd));
        assert!(30.0 * (0.0005 + weight * 0.1995) < 0.25, "{weight}");
    }

    #[test]
    fn waiting_for_the_cpu_is_not_counted_twice() {
        let shared = (1..50).map(|k| run(0.01, 0.01 * f64::from(k), f64::from(k)));
        assert!(learnt(shared) < 1e-9);
    }

    #[test]
    fn nonsense_is_not_learnt() {
        let bad = [f64::NAN, f64::INFINITY, 0.0, -1.0].map(|io_s| Run {
            cpu_s: 0.0,
            io_s,
            took_s: 1.0,
            company: 1.0,
        });
        assert_eq!(learnt(bad), UNKNOWN);
    }
}
