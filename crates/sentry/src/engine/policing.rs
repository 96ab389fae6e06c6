//! Mode `sentry` on the request path (003 §3.1, 3.2): is there time left for this request?
//!
//! A class without a delay is judged as its requests arrive. Others are held, by what they cost,
//! and examined every `d_i`: classes in order of importance, cheap requests first, those of a
//! bucket with one test. As many as the test allows are let in; where some are not, the class has
//! failed, and everything less important is dropped without a test.

use std::sync::atomic::Ordering;

use tidegate_control::Timestamp;

use super::Sentry;
use super::waiting::Waiting;
use crate::api::{Arrival, ClassId, Refusal, ShedReason, Verdict};
use crate::atomic::add_one;
use crate::class::Class;
use crate::gate::Passed;
use crate::plan::Plan;
use crate::policing::buckets::{bucket_of, service_s_of};
use crate::policing::{Kind, Limit, Servers};
use crate::queue::Waiter;

/// What becomes of a request that is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    Passed,
    /// It waits in this bucket until its class is examined.
    Held(u8),
}

/// What a class is judged against; none without a target.
fn limit(class: &Class) -> Option<Limit> {
    let target = class.forecast.target()?;
    Some(Limit {
        time_s: target.as_secs_f64() - class.delay().as_secs_f64(),
        room: class.room(),
    })
}

/// What is said of a batch that does not fit: when its last would be answered, and until when that
/// may be.
fn figures(servers: &Servers, batch: u32, service_s: f64, limit: Limit) -> (f64, f64) {
    let response_s = servers.response_s(batch, service_s);
    (response_s, limit.room * limit.time_s)
}

/// An examination under way.
struct Examination {
    servers: Servers,
    /// A class has failed, with these figures.
    failed: Option<(f64, f64)>,
}

impl<T> Sentry<T> {
    /// What share of its CPU the driver itself uses, from 0 to 1; about once a second. In mode
    /// `sentry` a driver that is short of CPU judges requests the cheap way.
    pub fn on_load(&self, _now: Timestamp, cpu_share: f64) {
        self.plan.load().policer.set_cpu_share(cpu_share);
    }

    /// Judges a request one by one, where the mode does.
    pub(super) fn police(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
    ) -> Result<Judged, Refusal> {
        match plan.policing() {
            None => Ok(Judged::Passed),
            Some(Kind::Threshold) => self.pass_threshold(plan, now, arrival),
            Some(Kind::Batch) => self.pass_test(plan, now, arrival),
        }
    }

    fn pass_threshold(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
    ) -> Result<Judged, Refusal> {
        let class = plan.class_index(arrival.class);
        let threshold = &plan.policer.threshold;
        let preferred = || threshold.share(class) > 0.0 && plan.prefers(now, arrival);
        match threshold.admit(class) {
            Err(saved) if !preferred() => Err(Refusal {
                measured: saved,
                limit: 1.0,
                ..self.refusal(plan, ShedReason::Threshold, arrival.class)
            }),
            _ => Ok(Judged::Passed),
        }
    }

    /// Equation 4 for a request on its own, or a place in a bucket.
    fn pass_test(&self, plan: &Plan, now: Timestamp, arrival: &Arrival) -> Result<Judged, Refusal> {
        let class = plan.class(arrival.class);
        let Some(limit) = limit(class) else {
            return Ok(Judged::Passed);
        };
        let service_s = plan.service_s(arrival.class, arrival.path);
        if !class.delay().is_zero() && !plan.prefers(now, arrival) {
            return Ok(Judged::Held(bucket_of(service_s)));
        }
        let in_time = plan.fits_one(service_s, limit);
        plan.policer.examined(1, u32::from(!in_time));
        if in_time {
            return Ok(Judged::Passed);
        }
        let figures = figures(&plan.servers(), 1, service_s, limit);
        self.drop_below(plan, plan.class_index(arrival.class), figures);
        Err(self.policed(plan, arrival.class, figures))
    }

    fn policed(&self, plan: &Plan, class: ClassId, (measured, limit): (f64, f64)) -> Refusal {
        Refusal {
            measured,
            limit,
            ..self.refusal(plan, ShedReason::Policed, class)
        }
    }

    /// Puts a request into its bucket.
    pub(super) fn hold(
        &self,
        plan: &Plan,
        now: Timestamp,
        arrival: &Arrival,
        bucket: u8,
        value: impl FnOnce() -> T,
    ) -> Result<Verdict, Refusal> {
        let mut waiting = self.waiting.lock();
        self.make_room(plan, &mut waiting, arrival)?;
        let class = plan.class(arrival.class);
        add_one(&class.counters.waited);
        class.queued.fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(1, Ordering::SeqCst);
        let ticket = waiting.queue.push(Waiter {
            bucket: Some(bucket),
            ..self.waiter(plan, now, arrival, Passed { counted: false }, value())
        });
        let index = plan.class_index(arrival.class);
        let examined = waiting.exams.of(index, class.delay(), now);
        self.next_tick_ns
            .fetch_min(examined.as_nanos(), Ordering::Relaxed);
        self.publish_bytes(&waiting);
        Ok(Verdict::Wait(ticket))
    }

    /// Examines the classes that are due; returns when the next one is.
    pub(super) fn examine(&self, plan: &Plan, now: Timestamp) -> Option<Timestamp> {
        let delays = || plan.classes.iter().map(|class| class.delay());
        let idle = self.held.load(Ordering::SeqCst) == 0 && delays().all(|delay| delay.is_zero());
        if idle || plan.policing() != Some(Kind::Batch) {
            return None;
        }
        let mut waiting = self.waiting.lock();
        let mut examination = Examination {
            servers: plan.servers(),
            failed: None,
        };
        for class in 0..plan.classes.len() {
            let due = waiting.exams.due(class, plan.classes[class].delay(), now);
            match examination.failed {
                Some(figures) => self.drop_held(plan, &mut waiting, class, figures),
                None if due => self.examine_class(plan, &mut waiting, class, &mut examination),
                None => {}
            }
        }
        waiting.exams.next(delays())
    }

    fn examine_class(
        &self,
        plan: &Plan,
        waiting: &mut Waiting<T>,
        class: usize,
        examination: &mut Examination,
    ) {
        let limit = limit(&plan.classes[class]).unwrap_or(Limit {
            time_s: f64::MAX,
            room: 1.0,
        });
        for bucket in waiting.queue.buckets(class) {
            let held = waiting.queue.held_in(class, bucket);
            let service_s = service_s_of(bucket);
            let figures = figures(&examination.servers, held, service_s, limit);
            let fit = examination.servers.fit(held, service_s, limit);
            plan.policer.examined(held, held - fit);
            self.release(waiting, class, bucket, fit);
            examination.servers.admit(fit);
            if fit < held {
                self.drop_bucket(plan, waiting, class, bucket, figures);
                examination.failed = Some(figures);
            }
        }
    }

    /// Lets the first of a bucket wait for a slot.
    fn release(&self, waiting: &mut Waiting<T>, class: usize, bucket: u8, count: u32) {
        waiting.queue.release(class, bucket, count);
        self.held.fetch_sub(count, Ordering::SeqCst);
        self.parked.fetch_add(count, Ordering::SeqCst);
    }

    fn drop_bucket(
        &self,
        plan: &Plan,
        waiting: &mut Waiting<T>,
        class: usize,
        bucket: u8,
        figures: (f64, f64),
    ) {
        let refusal = self.policed(plan, ClassId(class as u16), figures);
        while let Some(out) = waiting.queue.pop_held(class, bucket) {
            self.evict(plan, waiting, out, refusal);
        }
    }

    /// Drops what a class holds, without a test.
    fn drop_held(&self, plan: &Plan, waiting: &mut Waiting<T>, class: usize, figures: (f64, f64)) {
        let held = waiting.queue.held_of(class);
        if held > 0 {
            plan.policer.examined(held, held);
            let buckets = waiting.queue.buckets(class);
            buckets.for_each(|bucket| self.drop_bucket(plan, waiting, class, bucket, figures));
        }
    }

    /// A class has failed: everything less important goes.
    fn drop_below(&self, plan: &Plan, class: usize, figures: (f64, f64)) {
        if self.held.load(Ordering::SeqCst) > 0 {
            let mut waiting = self.waiting.lock();
            (class + 1..plan.classes.len())
                .for_each(|below| self.drop_held(plan, &mut waiting, below, figures));
        }
    }

    /// When requests are no longer judged in batches, those that are held are let go.
    pub(super) fn release_if_unjudged(&self) {
        if self.held.load(Ordering::SeqCst) == 0 {
            return;
        }
        let plan = self.plan.load();
        if plan.policing() == Some(Kind::Batch) && !self.bypass() {
            return;
        }
        let mut waiting = self.waiting.lock();
        for class in 0..plan.classes.len() {
            for bucket in waiting.queue.buckets(class) {
                let held = waiting.queue.held_in(class, bucket);
                self.release(&mut waiting, class, bucket, held);
            }
        }
    }
}
