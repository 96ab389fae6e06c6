//! What a request costs in CPU time, from what the whole service used.
//!
//! The system accounts for processes, not for requests. Over a sampling period in which the service
//! used `C` seconds of CPU, and requests were in service for `A = ∫ n(t) dt` request-seconds, one
//! that was in service for `s` seconds is charged
//!
//! ```text
//! cpu = s · C/A       with C/A at most the number of cores
//! ```
//!
//! so that the charges of all requests add up to what was used. What breaks it: requests of equal
//! length and very different CPU share are charged alike, and work that belongs to no request
//! (garbage collection, cron jobs) is charged to those that are there.

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::usage::CpuMeter;

/// CPU use of a service, period by period.
#[derive(Debug)]
pub(crate) struct CpuAccount {
    meter: CpuMeter,
    window: Window,
}

/// One sampling period, and the outcome of the one before.
#[derive(Debug, Default)]
struct Window {
    opened: Timestamp,
    used_before: Option<Duration>,
    last: Timestamp,
    /// `A`: request-seconds in service.
    request_s: f64,
    /// `C/A` of the last period in which there were requests.
    share: Option<f64>,
    utilization: Option<f64>,
}

impl CpuAccount {
    pub(crate) fn new(mut meter: CpuMeter, now: Timestamp) -> Self {
        let window = Window {
            opened: now,
            last: now,
            used_before: meter.read(now),
            ..Window::default()
        };
        Self { meter, window }
    }

    /// `present` requests were in service until `now`.
    pub(crate) fn advance(&mut self, now: Timestamp, present: usize) {
        self.window.advance(now, present);
    }

    /// Ends the period.
    pub(crate) fn close(&mut self, now: Timestamp) {
        let used = self.meter.read(now);
        self.window.close(now, used, self.meter.cores());
    }

    /// CPU time charged to a request that was in service for so long.
    pub(crate) fn of_request(&self, service_s: f64) -> Option<f64> {
        self.window.share.map(|share| service_s * share)
    }

    /// Part of the cores it may use that the service used over the last period.
    pub(crate) fn utilization(&self) -> Option<f64> {
        self.window.utilization
    }
}

impl Window {
    fn advance(&mut self, now: Timestamp, present: usize) {
        self.request_s += now.since(self.last).as_secs_f64() * present as f64;
        // Two threads may have read the clock in the other order.
        self.last = self.last.max(now);
    }

    /// A period whose use is unknown (the process is gone) says nothing, and neither does the next
    /// one, of which the beginning is unknown.
    fn close(&mut self, now: Timestamp, used: Option<Duration>, cores: f64) {
        let lasted_s = now.since(self.opened).as_secs_f64();
        let spent = used.zip(self.used_before);
        match spent.map(|(used, before)| used.saturating_sub(before).as_secs_f64()) {
            Some(spent_s) if lasted_s > 0.0 => {
                self.utilization = Some((spent_s / (lasted_s * cores)).min(1.0));
                if self.request_s > 0.0 {
                    self.share = Some((spent_s / self.request_s).min(cores));
                }
            }
            _ => (self.utilization, self.share) = (None, None),
        }
        (self.opened, self.used_before, self.request_s) = (now, used, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn ms(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    /// A service that had used ten seconds before it was looked at.
    fn window() -> Window {
        Window {
            used_before: ms(10_000),
            ..Window::default()
        }
    }

    #[test]
    fn utilization_is_of_the_cores_it_may_use() {
        let mut window = window();
        window.close(at(1.0), ms(10_500), 2.0);
        assert_eq!(window.utilization, Some(0.25));
        window.close(at(2.0), ms(10_500), 2.0);
        assert_eq!(window.utilization, Some(0.0));
    }

    #[test]
    fn charges_add_up_to_what_was_used() {
        let mut window = window();
        window.advance(at(0.2), 0);
        window.advance(at(0.5), 1); // 0.3 s alone
        window.advance(at(1.0), 3); // 0.5 s with two others
        window.close(at(1.0), ms(10_900), 2.0);
        let charged: f64 = [0.8, 0.5, 0.5]
            .map(|s| s * window.share.unwrap())
            .iter()
            .sum();
        assert!((charged - 0.9).abs() < 1e-9, "{charged}");
    }

    #[test]
    fn without_requests_the_last_share_stands() {
        let mut window = window();
        window.advance(at(1.0), 1);
        window.close(at(1.0), ms(10_500), 2.0);
        window.advance(at(2.0), 0);
        window.close(at(2.0), ms(10_600), 2.0);
        assert_eq!(window.share, Some(0.5));
    }

    #[test]
    fn request_is_charged_for_all_cores_at_most() {
        let mut window = window();
        window.advance(at(0.999), 0);
        window.advance(at(1.0), 1);
        window.close(at(1.0), ms(11_500), 2.0);
        assert_eq!(window.share, Some(2.0));
    }

    #[test]
    fn process_that_is_gone_is_not_reported_and_its_successor_is() {
        let mut window = window();
        window.advance(at(1.0), 1);
        window.close(at(1.0), ms(10_500), 1.0);
        window.close(at(2.0), None, 1.0);
        assert_eq!((window.utilization, window.share), (None, None));
        window.close(at(3.0), ms(200), 1.0);
        assert_eq!(window.utilization, None, "a period needs both ends");
        window.close(at(4.0), ms(700), 1.0);
        assert_eq!(window.utilization, Some(0.5));
    }
}
