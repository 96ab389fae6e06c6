//! What happens by the clock: reports, the protector's timer, intervals of the record.

use tidegate_control::Timestamp;

use super::{Event, World, replica_id};
use crate::engine::Calendar;
use crate::scenario::replica::Place;

impl World<'_> {
    /// Reports come before a controller's step at the same instant: its sample is the interval that
    /// ends there.
    pub(super) fn report_if_due(&mut self, now: Timestamp) {
        if now < self.next_report {
            return;
        }
        self.next_report = now + self.scenario.report_interval.0;
        if let Some(share) = &self.scenario.proxy_cpu {
            self.protector
                .on_load(now, share.value_at(now.as_secs_f64()));
        }
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let utilization = replica.report(now);
            if replica.station.is_up() {
                self.protector
                    .on_report(now, replica_id(index), utilization);
            }
        }
    }

    pub(super) fn tick(&mut self, now: Timestamp) {
        self.timer = None;
        self.report_if_due(now);
        self.protector
            .handle_timeout(now, self.observer, &mut self.wakes);
        assert!(
            self.protector.poll_timeout() > now,
            "after its timeout a protector wants to be called later"
        );
    }

    pub(super) fn expect_timer(&mut self, calendar: &mut Calendar<Event>) {
        let wanted = self.protector.poll_timeout();
        if self.timer.is_some_and(|(time, _)| time == wanted) {
            return;
        }
        if let Some((_, event)) = self.timer.take() {
            calendar.cancel(event);
        }
        if wanted < Timestamp::MAX {
            self.timer = Some((wanted, calendar.at(wanted, Event::Timer)));
        }
    }

    pub(super) fn close_interval(&mut self, calendar: &mut Calendar<Event>) {
        let now = calendar.now();
        let (mut sum, mut count) = (0.0, 0.0);
        for replica in &mut self.replicas {
            let utilization = replica.utilization(now);
            if replica.place != Place::Outside {
                (sum, count) = (sum + utilization, count + 1.0);
            }
        }
        self.recorder
            .close(now, sum / f64::max(count, 1.0), &*self.protector);
        calendar.after(self.scenario.interval.0, Event::Interval);
    }
}
