//! What queueing theory says a queue does, to check the simulator by and to draw beside it.
//!
//! Rates are per second (or any one unit of time); `lambda` arrives, each server does `mu`. A
//! system without a steady state has infinite waiting, not an error. Source: Kleinrock, Queueing
//! Systems I (1975), by section.

/// A queue in its steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Mean time in the system of those who entered.
    pub response: f64,
    /// Mean time before service of those who entered.
    pub waiting: f64,
    /// Chance that an arrival has to wait (of all arrivals).
    pub delayed: f64,
    /// Chance that an arrival is refused.
    pub blocked: f64,
    /// Share of the servers' time in use.
    pub utilization: f64,
}

impl Steady {
    fn overloaded() -> Self {
        Self {
            response: f64::INFINITY,
            waiting: f64::INFINITY,
            delayed: 1.0,
            blocked: 0.0,
            utilization: 1.0,
        }
    }

    /// Kleinrock's power (LQR-proxy eq. 1): goodput as a share of capacity, over response time in
    /// service times.
    #[must_use]
    pub fn power(&self, mu: f64) -> f64 {
        self.utilization / (self.response * mu)
    }
}

/// Erlang's loss formula: the chance that all of `servers` are busy at `offered` load (lambda /
/// mu).
///
/// `B(0) = 1`, `B(c) = a B(c-1) / (c + a B(c-1))`, which overflows nowhere.
#[must_use]
pub fn erlang_b(servers: u32, offered: f64) -> f64 {
    (1..=servers).fold(1.0, |blocked, c| {
        offered * blocked / (f64::from(c) + offered * blocked)
    })
}

/// Erlang's delay formula: the chance to wait in M/M/c; 1 in overload.
#[must_use]
pub fn erlang_c(servers: u32, offered: f64) -> f64 {
    let c = f64::from(servers);
    if offered >= c {
        return 1.0;
    }
    let blocked = erlang_b(servers, offered);
    blocked / (1.0 - offered / c * (1.0 - blocked))
}

/// M/M/1 (§3.2).
#[must_use]
pub fn mm1(lambda: f64, mu: f64) -> Steady {
    mmc(lambda, mu, 1)
}

/// Quantile `q` of the response time in M/M/1: exponential with mean `1 / (mu - lambda)`.
#[must_use]
pub fn mm1_quantile(lambda: f64, mu: f64, q: f64) -> f64 {
    if lambda >= mu {
        return f64::INFINITY;
    }
    -(1.0 - q).ln() / (mu - lambda)
}

/// M/M/c (§3.5).
#[must_use]
pub fn mmc(lambda: f64, mu: f64, servers: u32) -> Steady {
    let capacity = f64::from(servers) * mu;
    if lambda >= capacity {
        return Steady::overloaded();
    }
    let delayed = erlang_c(servers, lambda / mu);
    let waiting = delayed / (capacity - lambda);
    Steady {
        response: waiting + 1.0 / mu,
        waiting,
        delayed,
        blocked: 0.0,
        utilization: lambda / capacity,
    }
}

/// M/M/1/K (§3.6): at most `places` in the system, the one in service included.
#[must_use]
pub fn mm1k(lambda: f64, mu: f64, places: u32) -> Steady {
    mmck(lambda, mu, 1, places)
}

/// M/M/c/K (§3.8): at most `places` in the system, those in service included; `places >= servers`.
///
/// State probabilities by the birth-death recurrence `p(n) = p(n-1) · lambda / (min(n, c) mu)`,
/// scaled as they grow.
#[must_use]
pub fn mmck(lambda: f64, mu: f64, servers: u32, places: u32) -> Steady {
    let (mut weight, mut total, mut queued, mut busy, mut full) = (1.0, 1.0, 0.0, 0.0, 0.0);
    for n in 1..=places {
        weight *= lambda / (f64::from(n.min(servers)) * mu);
        total += weight;
        busy += weight * f64::from(n.min(servers));
        queued += weight * f64::from(n.saturating_sub(servers));
        if n >= servers {
            full += weight;
        }
        if weight > 1e200 {
            for sum in [&mut total, &mut queued, &mut busy, &mut full, &mut weight] {
                *sum *= 1e-200;
            }
        }
    }
    let blocked = weight / total;
    let waiting = queued / total / (lambda * (1.0 - blocked));
    Steady {
        response: waiting + 1.0 / mu,
        waiting,
        delayed: (full - weight) / total,
        blocked,
        utilization: busy / total / f64::from(servers),
    }
}

/// M/G/1 by Pollaczek and Khinchine (§5.6): `W = rho (1 + cv2) / (2 (mu - lambda))`.
#[must_use]
pub fn mg1(lambda: f64, mu: f64, cv2: f64) -> Steady {
    if lambda >= mu {
        return Steady::overloaded();
    }
    let rho = lambda / mu;
    let waiting = rho * (1.0 + cv2) / (2.0 * (mu - lambda));
    Steady {
        response: waiting + 1.0 / mu,
        waiting,
        delayed: rho,
        blocked: 0.0,
        utilization: rho,
    }
}

/// Mean response in M/G/1 with processor sharing of a job with that much `work`: `x / (1 - rho)`,
/// whatever the law of service.
#[must_use]
pub fn processor_sharing(lambda: f64, mu: f64, work: f64) -> f64 {
    if lambda >= mu {
        return f64::INFINITY;
    }
    work / (1.0 - lambda / mu)
}

/// GI/M/1 (§6.4) for gaps whose Laplace transform is `transform`: with the root `s` in (0, 1) of
/// `s = A*(mu - mu s)` the response is exponential with mean `1 / (mu (1 - s))`.
#[must_use]
pub fn gim1(lambda: f64, mu: f64, transform: impl Fn(f64) -> f64) -> Steady {
    if lambda >= mu {
        return Steady::overloaded();
    }
    // `A*(mu - mu s) - s` is positive below the root and negative between it and 1.
    let (mut low, mut high) = (0.0, 1.0 - 1e-12);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if transform(mu * (1.0 - middle)) > middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    let delayed = 0.5 * (low + high);
    let response = 1.0 / (mu * (1.0 - delayed));
    Steady {
        response,
        waiting: response - 1.0 / mu,
        delayed,
        blocked: 0.0,
        utilization: lambda / mu,
    }
}

/// D/M/1: equal gaps.
#[must_use]
pub fn dm1(lambda: f64, mu: f64) -> Steady {
    gim1(lambda, mu, |s| (-s / lambda).exp())
}

/// E_k/M/1: gaps of `stages` exponential stages.
#[must_use]
pub fn ekm1(lambda: f64, mu: f64, stages: u32) -> Steady {
    let k = f64::from(stages);
    gim1(lambda, mu, |s| (k * lambda / (k * lambda + s)).powf(k))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(value: f64, expected: f64, digits: i32) {
        let error = 0.500001 * 10f64.powi(-digits);
        assert!(
            (value - expected).abs() <= error,
            "{value} is not {expected}"
        );
    }

    /// The project's check values.
    #[test]
    fn known_values() {
        close(mm1(0.8, 1.0).response, 5.0, 9);
        close(mm1_quantile(0.8, 1.0, 0.95), 14.979, 3);
        close(mg1(0.8, 1.0, 0.0).response, 3.0, 9);
        close(mg1(0.8, 1.0, 4.0).response, 11.0, 9);
        close(mmc(4.0, 1.0, 5).delayed, 0.55411, 5);
        close(mmc(4.0, 1.0, 5).response, 1.55411, 5);
        close(mmc(13.0, 1.0, 15).delayed, 0.49568, 5);
        close(mmc(13.0, 1.0, 15).waiting, 0.24784, 5);
        close(mm1k(0.8, 1.0, 10).blocked, 0.023493, 6);
        close(mm1k(0.8, 1.0, 10).response, 3.7971, 4);
        close(mm1k(1.5, 1.0, 10).blocked, 0.337232, 6);
        close(mm1k(1.5, 1.0, 10).response, 8.1765, 4);
        close(mmck(6.0, 1.0, 5, 20).blocked, 0.17269, 5);
        close(erlang_b(10, 8.0), 0.121661, 6);
        close(dm1(0.8, 1.0).response, 2.69273, 5);
        close(ekm1(0.8, 1.0, 2).response, 3.84398, 5);
        close(processor_sharing(0.8, 1.0, 2.0), 10.0, 9);
    }

    /// mechanisms.md section 3: 13/s in all by two or three servers, at 10/s.
    #[test]
    fn the_plant_of_lqr_proxy() {
        close(mmc(10.0, 6.5, 2).response, 0.377, 3);
        close(mmc(10.0, 13.0 / 3.0, 3).response, 0.430, 3);
    }

    #[test]
    fn special_cases_agree_with_the_general() {
        let general = ekm1(0.7, 1.0, 1);
        close(general.response, mm1(0.7, 1.0).response, 9);
        close(mmck(4.0, 1.0, 5, 5).blocked, erlang_b(5, 4.0), 12);
        close(mmck(0.8, 1.0, 1, 2000).response, 5.0, 9);
        close(mmck(4.0, 1.0, 5, 500).delayed, erlang_c(5, 4.0), 9);
        close(mmck(50.0, 1.0, 2, 400).blocked, 0.96, 9);
    }

    #[test]
    fn overload_has_no_steady_state() {
        for steady in [
            mm1(1.0, 1.0),
            mmc(6.0, 1.0, 5),
            mg1(2.0, 1.0, 1.0),
            dm1(1.5, 1.0),
        ] {
            assert_eq!(steady.response, f64::INFINITY);
        }
        assert_eq!(mm1_quantile(2.0, 1.0, 0.5), f64::INFINITY);
        assert_eq!(erlang_c(3, 3.0), 1.0);
    }

    /// Kleinrock: the power of M/M/1 is greatest at half load.
    #[test]
    fn power_peaks_at_half_load() {
        let power = |lambda| mm1(lambda, 1.0).power(1.0);
        assert!(power(0.5) > power(0.45) && power(0.5) > power(0.55));
        close(power(0.5), 0.25, 12);
    }
}
