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
//! The paper's `eta` are those in service. Ours are all that are inside, those included that wait
//! there: so what is inside takes the longer of `Q` and `eta * S`, and not their sum.
//!
//! The paper has one `Q` and one `eta` for all servers, which are balanced perfectly; where they
//! are not, its footnote 1 scales `eta` and `n` by a measured skew. Here each server is judged by
//! its own `Q` and `eta`, and what fits is the sum: the skew is measured, and a server that is full
//! counts as none. So is one that says that it is full and is not: it costs its own share.
//!
//! That keeps the mean of their response times. What it allows is therefore filled only up to a
//! share that is learnt from what was late ([`room`](super::room)).
//!
//! What breaks it: requests of one path that differ a lot, by more than that share has room for;
//! a balancer that sends requests to full servers while others have room.

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

/// What newcomers meet in a server that is up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Server {
    /// Requests inside (`eta`), those that wait there included.
    pub(crate) in_service: u32,
    /// Time until one is started (`Q`).
    pub(crate) queue_s: f64,
}

impl Server {
    /// How many more requests pass the test here.
    pub(crate) fn free(self, service_s: f64, limit: Limit) -> u32 {
        let allowed = limit.time_s / service_s;
        let used = (limit.room * allowed).max(allowed.min(SPARED));
        let inside = f64::from(self.in_service).max(self.queue_s / service_s);
        // `as` saturates, and maps what is negative and NaN to zero.
        (used - inside).floor() as u32
    }

    /// When the last of `batch` more is answered.
    fn response_s(self, batch: u32, service_s: f64) -> f64 {
        let inside_s = self.queue_s.max(f64::from(self.in_service) * service_s);
        inside_s + f64::from(batch) * service_s
    }
}

/// The servers that are up, and what was admitted to them meanwhile.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Servers {
    each: Vec<Server>,
    admitted: u32,
}

impl FromIterator<Server> for Servers {
    fn from_iter<I: IntoIterator<Item = Server>>(servers: I) -> Self {
        Self {
            each: servers.into_iter().collect(),
            admitted: 0,
        }
    }
}

impl Servers {
    /// Requests in service in a server, on average (`eta`).
    pub(crate) fn in_service_each(&self) -> f64 {
        let all: f64 = self.iter().map(|it| f64::from(it.in_service)).sum();
        all / self.each.len().max(1) as f64
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Server> {
        self.each.iter().copied()
    }

    /// This many more are in service.
    pub(crate) fn admit(&mut self, batch: u32) {
        self.admitted = self.admitted.saturating_add(batch);
    }

    /// How many of `batch` requests pass the test: all of them, or the first that do. Without
    /// servers all: there is nothing to judge them by.
    pub(crate) fn fit(&self, batch: u32, service_s: f64, limit: Limit) -> u32 {
        if self.each.is_empty() {
            return batch;
        }
        let free = self
            .iter()
            .map(|server| server.free(service_s, limit))
            .fold(0, u32::saturating_add);
        free.saturating_sub(self.admitted).min(batch)
    }

    /// When the last of `batch` more, spread evenly, would be answered by the server that is first.
    pub(crate) fn response_s(&self, batch: u32, service_s: f64) -> f64 {
        let servers = u32::try_from(self.each.len().max(1)).unwrap_or(u32::MAX);
        let part = self.admitted.saturating_add(batch).div_ceil(servers);
        self.iter()
            .map(|server| server.response_s(part, service_s))
            .min_by(f64::total_cmp)
            .unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(each: &[(u32, f64)]) -> Servers {
        let server = |&(in_service, queue_s)| Server {
            in_service,
            queue_s,
        };
        each.iter().map(server).collect()
    }

    #[test]
    fn equation_3() {
        let servers = servers(&[(35, 0.2); 2]);
        // Q = 0.2, which is 20 of 35; eta = 15, beta = 5 on 2 servers: 3 more each.
        assert!((servers.response_s(5, 0.01) - (0.2 + 18.0 * 0.01)).abs() < 1e-12);
    }

    #[test]
    fn what_fits_passes_the_test_and_one_more_on_each_does_not() {
        let mut servers = servers(&[(20, 0.05); 3]);
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
    fn skew_is_each_server_by_its_own_queue_and_company() {
        let limit = Limit {
            time_s: 1.005,
            room: 1.0,
        };
        let fit = |each: &[(u32, f64)]| servers(each).fit(1000, 0.01, limit);
        assert_eq!(fit(&[(10, 0.0), (60, 0.2)]), 90 + 40);
        assert_eq!(fit(&[(10, 0.0), (10, 0.2)]), 90 + 80, "others wait there");
        let honest = fit(&[(10, 0.0); 2]);
        assert_eq!(fit(&[(10, 0.0), (10, 0.0), (10, 86_400.0)]), honest);
        assert_eq!(fit(&[(10, 0.0), (10, 0.0), (u32::MAX, 0.0)]), honest);
    }

    #[test]
    fn what_is_to_be_kept_free_is_and_a_few_pass_in_any_case() {
        let servers = servers(&[(0, 0.0)]);
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
