//! How many servers a rate of requests needs.
//!
//! A server is a G/G/1 queue with service time `S = 1 / capacity`. Its mean response time stays
//! below `R` while (003 eq. 14, after Kleinrock)
//!
//! ```text
//! λ ≤ 1 / (S + (σa² + σb²) / (2 (R − S)))        σa² = ca²/λ²,  σb² = cb² S²
//! ```
//!
//! which is quadratic in λ, because the arrivals of a server that gets less vary more. The answer
//! is cross-checked by an M/G/c queue over all servers: mean waiting time by Lee and Longton
//! (`(ca² + cb²)/2` times that of M/M/c), its tail as an exponential with the probability of
//! waiting by Erlang. The larger number of servers is taken, and the status shows both.
//!
//! What breaks it: servers that slow each other down, service times that depend on each other, a
//! target below the service time.

use serde::{Deserialize, Serialize};

/// What has to be served, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Requests per second.
    pub rate: f64,
    /// Squared coefficient of variation of the times between arrivals; 1 is a Poisson process.
    pub arrivals_scv: f64,
    /// Requests per second that one server can do.
    pub capacity: f64,
    /// Time a request takes in an idle server.
    pub service_seconds: f64,
    /// Squared coefficient of variation of the service times.
    pub service_scv: f64,
}

/// What a request has a right to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// Response time.
    pub target_seconds: f64,
    /// Share of requests that may exceed it while servers suffice.
    pub late_max: f64,
}

/// Servers needed, by both models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// What is enough by both.
    pub servers: u32,
    /// By the bound of G/G/1.
    pub by_bound: u32,
    /// By M/G/c.
    pub by_mgc: u32,
}

/// More servers than any answer of this module.
pub const SERVERS_MAX: u32 = 100_000;

/// Of a target that is not above the service time nothing is left for waiting; this share of it is
/// then allowed.
const SLACK_OF_SERVICE: f64 = 0.1;

impl Workload {
    /// The time that waiting may take.
    fn slack(&self, objective: &Objective) -> f64 {
        let service = self.service_seconds.max(1.0 / self.capacity);
        (objective.target_seconds - service).max(SLACK_OF_SERVICE * service)
    }

    /// Requests per second that one server may get (eq. 14); 0 without a capacity.
    #[must_use]
    pub fn rate_per_server(&self, objective: &Objective) -> f64 {
        if self.capacity.is_nan() || self.capacity <= 0.0 {
            return 0.0;
        }
        let (service, slack) = (1.0 / self.capacity, self.slack(objective));
        let a = service + self.service_scv * service * service / (2.0 * slack);
        let b = self.arrivals_scv / (2.0 * slack);
        let discriminant = 1.0 - 4.0 * a * b;
        if discriminant >= 0.0 {
            return f64::midpoint(1.0, discriminant.sqrt()) / a;
        }
        // The bound promises nothing at any rate: the mean of M/G/1, which it bounds, does.
        let spread = self.arrivals_scv + self.service_scv;
        2.0 * slack / (service * service * spread + 2.0 * slack * service)
    }

    /// Servers that hold the objective.
    #[must_use]
    pub fn needed(&self, objective: &Objective) -> Needed {
        if self.rate.is_nan() || self.rate <= 0.0 {
            return Needed {
                servers: 0,
                by_bound: 0,
                by_mgc: 0,
            };
        }
        let per_server = self.rate_per_server(objective);
        let by_bound = count(self.rate / per_server);
        let by_mgc = self.needed_mgc(objective);
        Needed {
            servers: by_bound.max(by_mgc),
            by_bound,
            by_mgc,
        }
    }

    fn needed_mgc(&self, objective: &Objective) -> u32 {
        let mut enough = count(self.rate / self.capacity).max(1);
        let mut step = 1;
        let mut too_few = enough - 1;
        while enough < SERVERS_MAX && !self.holds(enough, objective) {
            too_few = enough;
            enough = enough.saturating_add(step).min(SERVERS_MAX);
            step *= 2;
        }
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if self.holds(middle, objective) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        enough
    }

    /// Whether `servers` keep all but `late_max` of the requests within the target, by M/G/c.
    #[must_use]
    pub fn holds(&self, servers: u32, objective: &Objective) -> bool {
        self.late_share(servers, objective) <= objective.late_max
    }

    /// Share of requests later than the target, by M/G/c; 1 where the servers cannot do it.
    #[must_use]
    pub fn late_share(&self, servers: u32, objective: &Objective) -> f64 {
        let offered = self.rate / self.capacity;
        let spare = f64::from(servers) - offered;
        if spare.is_nan() || spare <= 0.0 {
            return 1.0;
        }
        let waits = erlang_c(servers, offered);
        let spread = f64::midpoint(self.arrivals_scv, self.service_scv).max(1e-3);
        // Of those that wait, mean time: spread / (capacity · spare).
        let decay = self.capacity * spare / spread;
        waits * (-decay * self.slack(objective)).exp()
    }
}

/// Rounds up; a hair above a whole number is rounding.
fn count(servers: f64) -> u32 {
    if servers.is_finite() {
        (servers - 1e-9).ceil().clamp(0.0, f64::from(SERVERS_MAX)) as u32
    } else {
        SERVERS_MAX
    }
}

/// Probability that a request waits in M/M/c with `offered` Erlang.
fn erlang_c(servers: u32, offered: f64) -> f64 {
    let blocking = (1..=servers).fold(1.0, |blocked: f64, n| {
        offered * blocked / (f64::from(n) + offered * blocked)
    });
    let share = offered / f64::from(servers);
    blocking / (1.0 - share * (1.0 - blocking))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POISSON: Workload = Workload {
        rate: 170.0,
        arrivals_scv: 1.0,
        capacity: 60.0,
        service_seconds: 1.0 / 60.0,
        service_scv: 1.0,
    };
    const SECOND: Objective = Objective {
        target_seconds: 1.0,
        late_max: 0.01,
    };

    #[test]
    fn bound_of_equation_14_holds_with_equality_at_its_rate() {
        let rate = POISSON.rate_per_server(&SECOND);
        let service = 1.0 / 60.0;
        let variances = 1.0 / (rate * rate) + service * service;
        let right = 1.0 / (service + variances / (2.0 * (1.0 - service)));
        assert!((rate - right).abs() < 1e-9, "{rate} {right}");
        assert!(rate > 58.0 && rate < 60.0, "{rate}");
    }

    #[test]
    fn longer_target_lets_a_server_do_more() {
        let two = Objective {
            target_seconds: 2.0,
            ..SECOND
        };
        assert!(POISSON.rate_per_server(&two) > POISSON.rate_per_server(&SECOND));
    }

    #[test]
    fn erlang_c_is_that_of_the_tables() {
        assert!((erlang_c(1, 0.5) - 0.5).abs() < 1e-12);
        assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(10, 8.0) - 0.4092).abs() < 1e-4);
    }

    #[test]
    fn no_requests_need_no_servers_and_no_capacity_needs_all() {
        let silent = Workload {
            rate: 0.0,
            ..POISSON
        };
        assert_eq!(silent.needed(&SECOND).servers, 0);
        let dead = Workload {
            capacity: 0.0,
            ..POISSON
        };
        assert_eq!(dead.needed(&SECOND).servers, SERVERS_MAX);
    }

    proptest! {
        #[test]
        fn needed_grows_with_the_rate_and_always_holds(
            rate in 0.1..5_000.0f64, more in 0.0..500.0f64, capacity in 0.5..500.0f64,
            target in 0.001..5.0f64, arrivals in 0.0..8.0f64, service in 0.0..8.0f64,
        ) {
            let workload = Workload {
                rate, arrivals_scv: arrivals, capacity,
                service_seconds: 1.0 / capacity, service_scv: service,
            };
            let objective = Objective { target_seconds: target, late_max: 0.01 };
            let needed = workload.needed(&objective);
            prop_assert!(f64::from(needed.servers) * capacity >= rate - 1e-6);
            if needed.servers < SERVERS_MAX {
                prop_assert!(workload.holds(needed.servers, &objective));
                prop_assert!(needed.by_mgc <= 1 || !workload.holds(needed.by_mgc - 1, &objective));
            }
            let busier = Workload { rate: rate + more, ..workload };
            prop_assert!(busier.needed(&objective).servers >= needed.servers);
        }
    }
}
