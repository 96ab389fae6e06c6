//! The batch test (003 eq. 3 and 4): would the last of these requests still be in time?
//!
//! A server that has `eta` requests in service serves each of them at one part in `eta`, so that
//! a newcomer, the last of `beta` that are spread over `n` servers, is answered after
//!
//! ```text
//! Q + (eta + ceil(beta / n)) * S  <=  R_sla - d
//! ```
//!
//! with the time `Q` that requests wait in a server before they are started, the service time `S`
//! of one of them on its own, the target `R_sla` and the time `d` they may have been held before.
//!
//! That keeps the mean of their response times. What it allows is therefore filled only up to a
//! share that is learnt from what was late ([`room`](super::room)).
//!
//! What breaks it: requests of one path that differ a lot, by more than that share has room for.

/// This many requests in a server pass for the mean's sake, however much is to be kept free: with
/// fewer, a server with several cores might stand idle.
pub(crate) const SPARED: f64 = 4.0;

/// What a class is judged against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    /// The target, less the time for which requests were held.
    pub(crate) time_s: f64,
    /// The share of what this allows that may be used.
    pub(crate) room: f64,
}

/// What newcomers meet in the servers: sums over those that are up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Servers {
    count: u32,
    in_service: u32,
    queue_s: f64,
}

impl Servers {
    pub(crate) fn add(&mut self, in_service: u32, queue_s: f64) {
        self.count += 1;
        self.in_service = self.in_service.saturating_add(in_service);
        self.queue_s += queue_s;
    }

    /// How many servers there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Requests in service in a server, on average (`eta`).
    pub(crate) fn in_service_each(&self) -> f64 {
        f64::from(self.in_service) / f64::from(self.count.max(1))
    }

    /// This many more are in service.
    pub(crate) fn admit(&mut self, batch: u32) {
        self.in_service = self.in_service.saturating_add(batch);
    }

    /// How many of `batch` requests pass the test: all of them, or the first that do. Without
    /// servers all: there is nothing to judge them by.
    pub(crate) fn fit(&self, batch: u32, service_s: f64, limit: Limit) -> u32 {
        if self.count == 0 {
            return batch;
        }
        let queue_s = self.queue_s / f64::from(self.count);
        let allowed = (limit.time_s - queue_s) / service_s;
        let used = (limit.room * allowed).max(allowed.min(SPARED));
        let each = (used - self.in_service_each()).floor();
        // `as` saturates, and maps what is negative and NaN to zero.
        (each as u32).saturating_mul(self.count).min(batch)
    }

    /// When the last of `batch` more would be answered.
    pub(crate) fn response_s(&self, batch: u32, service_s: f64) -> f64 {
        let servers = self.count.max(1);
        let load = self.in_service_each() + f64::from(batch.div_ceil(servers));
        self.queue_s / f64::from(servers) + load * service_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equation_3() {
        let mut servers = Servers::default();
        servers.add(10, 0.1);
        servers.add(20, 0.3);
        // Q = 0.2, eta = 15, beta = 5 on 2 servers: 3 more each.
        assert!((servers.response_s(5, 0.01) - (0.2 + 18.0 * 0.01)).abs() < 1e-12);
    }

    #[test]
    fn what_fits_passes_the_test_and_one_more_on_each_does_not() {
        let mut servers = Servers::default();
        (0..3).for_each(|_| servers.add(20, 0.05));
        let service_s = 1.0 / 60.0;
        let limit = Limit {
            time_s: 0.9,
            room: 1.0,
        };
        let fit = servers.fit(1000, service_s, limit);
        assert!(servers.response_s(fit, service_s) <= limit.time_s);
        assert!(servers.response_s(fit + 3, service_s) > limit.time_s);
        assert_eq!(servers.fit(2, service_s, limit), 2);
        servers.admit(fit);
        assert_eq!(servers.fit(10, service_s, limit), 0);
    }

    #[test]
    fn what_is_to_be_kept_free_is_and_a_few_pass_in_any_case() {
        let mut servers = Servers::default();
        servers.add(0, 0.0);
        let fit = |time_s, room| servers.fit(1000, 0.01, Limit { time_s, room });
        assert_eq!(fit(1.005, 1.0), 100);
        assert_eq!(fit(1.005, 0.5), 50);
        assert_eq!(fit(0.061, 0.5), 4, "not three");
        assert_eq!(fit(0.021, 0.5), 2, "never more than the target allows");
    }

    #[test]
    fn without_servers_nothing_is_infinite() {
        assert!(Servers::default().response_s(3, 0.1).is_finite());
    }
}
