//! One replica as the request path sees it: its window and what is in flight.
//!
//! All atomics. The window (`limit`) is published by the adaptation; requests take and give
//! slots without a lock.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_control::filter::PeakEwma;

use crate::api::{ReplicaId, Report, is_time};
use crate::atomic::{AtomicF64, add_one};
use crate::balance::{FULL, Pace, Slots, Vacancies, ascending, descending};
use crate::clamp::within;
use crate::config::Balance;
use crate::counts::Counts;
use crate::fleet::ReplicaTotals;
use crate::occupancy::{Occupancy, Place};
use crate::replica_reports::ReplicaReports;

/// A window without bound.
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// Whether a replica may get requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    Up,
    Down,
    /// Removed from the configuration; its id may be given to another once nothing is in flight.
    Retired,
}

/// How fast a slow answer is forgotten. Chosen: as Linkerd's default decay.
const RECENT_TIME_CONSTANT: Duration = Duration::from_secs(10);

/// One replica as the request path sees it: its window and what is in flight.
#[derive(Debug)]
pub(crate) struct Replica {
    health: AtomicU8,
    in_flight: AtomicU32,
    streams: AtomicU32,
    limit: AtomicU32,
    trusted: AtomicU32,
    served: AtomicU64,
    occupancy: Occupancy,
    ages: Ages,
    recent: PeakEwma,
    /// How long it takes compared with the others.
    pub(crate) pace: Pace,
    pub(crate) reports: ReplicaReports,
    /// What it is meant to carry, relative to the others.
    weight: AtomicU32,
    /// By how much EPBH, where it balances, gives it more or less than its weight.
    pub(crate) tilt: AtomicF64,
    /// Its part of what all replicas can serve, 0 while unknown.
    pub(crate) drain_share: AtomicF64,
    reported: Reported,
    /// Requests of other engines in it, as they say; 0 for one that is alone.
    elsewhere: AtomicU32,
    /// This engine's part of what may be in it.
    share: AtomicF64,
    /// What was done here since the start, for other engines.
    totals: Totals,
    /// Where it says that it may get a request, and under which number.
    vacancies: Arc<Vacancies>,
    index: usize,
}

/// What was done in a replica since the start. One thread writes.
#[derive(Debug)]
struct Totals {
    inside_seconds: AtomicF64,
    full_seconds: AtomicF64,
    full_done: AtomicF64,
}

impl Default for Totals {
    fn default() -> Self {
        let zero = || AtomicF64::new(0.0);
        Self {
            inside_seconds: zero(),
            full_seconds: zero(),
            full_done: zero(),
        }
    }
}

impl Replica {
    /// One by itself.
    #[cfg(test)]
    pub(crate) fn new(limit: u32) -> Self {
        Self::among(&Arc::new(Vacancies::new(1)), 0, limit)
    }

    /// The one of this number among others.
    pub(crate) fn among(vacancies: &Arc<Vacancies>, index: usize, limit: u32) -> Self {
        let replica = Self {
            vacancies: Arc::clone(vacancies),
            index,
            health: AtomicU8::new(Health::Up as u8),
            in_flight: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            limit: AtomicU32::new(limit),
            trusted: AtomicU32::new(UNLIMITED),
            served: AtomicU64::new(0),
            occupancy: Occupancy::new(),
            ages: Ages::default(),
            recent: PeakEwma::new(RECENT_TIME_CONSTANT).expect("the constant is a time"),
            pace: Pace::new(),
            reports: ReplicaReports::new(),
            weight: AtomicU32::new(1),
            tilt: AtomicF64::new(1.0),
            drain_share: AtomicF64::new(0.0),
            reported: Reported::default(),
            elsewhere: AtomicU32::new(0),
            share: AtomicF64::new(1.0),
            totals: Totals::default(),
        };
        replica.publish_health();
        replica.publish_aside();
        replica
    }

    /// Says whether it is healthy, and what follows from that.
    fn publish_health(&self) {
        let up = &self.vacancies.up;
        if self.is_up() {
            up.insert(self.index);
        } else {
            up.remove_unless(self.index, || self.is_up());
        }
        self.publish_room();
    }

    /// Says whether it has a free slot, and how loaded it is where that is compared.
    pub(crate) fn publish_room(&self) {
        let free = &self.vacancies.free;
        if self.has_room() {
            free.insert(self.index);
        } else {
            free.remove_unless(self.index, || self.has_room());
        }
        self.publish_load();
    }

    /// Says how loaded it is, where that is compared.
    pub(crate) fn publish_load(&self) {
        let loads = &self.vacancies.loads;
        let Some(policy) = loads.kept() else {
            return;
        };
        // Another thread may have changed it meanwhile and published that before.
        loop {
            let key = self.load_key(policy);
            loads.set(self.index, key);
            if key == self.load_key(policy) {
                return;
            }
        }
    }

    fn load_key(&self, policy: Balance) -> u64 {
        match policy {
            _ if !self.has_room() => FULL,
            Balance::MostFree => descending(self.free()),
            _ => ascending(self.load()),
        }
    }

    /// Says whether it is slow compared with the others.
    pub(crate) fn publish_aside(&self) {
        let aside = &self.vacancies.aside;
        if self.pace.is_aside() {
            aside.insert(self.index);
        } else {
            aside.remove_unless(self.index, || self.pace.is_aside());
        }
    }

    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::SeqCst) {
            0 => Health::Up,
            1 => Health::Down,
            _ => Health::Retired,
        }
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::SeqCst);
        self.publish_health();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.health() == Health::Up
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }

    pub(crate) fn streams(&self) -> u32 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Requests served since the start.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::SeqCst)
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        // Not written where nothing changes: every request reads this line of memory.
        let differs = self.limit.load(Ordering::SeqCst) != limit;
        if differs && self.limit.swap(limit, Ordering::SeqCst) != limit {
            self.publish_room();
        }
    }

    /// Lets it hold this many requests, within what it is trusted with.
    pub(crate) fn grant(&self, wanted: u32, most: u32) -> u32 {
        let trusted = self.trusted.load(Ordering::Relaxed);
        let limit = wanted.min(most).min(trusted);
        self.set_limit(limit);
        limit
    }

    /// Bounds what [`Replica::grant`] gives, for a replica that behaves strangely.
    pub(crate) fn trust(&self, most: u32) {
        self.trusted.store(most, Ordering::Relaxed);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.is_up() && self.in_flight() < self.limit()
    }

    /// What it is meant to carry, relative to the others; at least 1.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(crate) fn set_weight(&self, weight: NonZeroU32) {
        self.weight.store(weight.get(), Ordering::Relaxed);
        self.publish_load();
    }

    /// Slots that are not taken, where one taken counts the less the more it is meant to carry.
    pub(crate) fn free(&self) -> f64 {
        let taken = f64::from(self.in_flight()) / f64::from(self.weight());
        (f64::from(self.limit()) - taken).max(0.0)
    }

    /// The queue that a newcomer would be part of, per weight.
    pub(crate) fn load(&self) -> f64 {
        (f64::from(self.in_flight()) + 1.0) / f64::from(self.weight())
    }

    /// Takes a slot, if there is one or if it does not matter.
    pub(crate) fn take(&self, now: Timestamp, slots: Slots) -> bool {
        let limit = match slots {
            Slots::Free => self.limit(),
            Slots::Any => UNLIMITED,
        };
        self.take_within(now, limit)
    }

    /// Takes a slot if there is one and fewer than this many are taken.
    pub(crate) fn take_below(&self, now: Timestamp, most: u32) -> bool {
        self.take_within(now, self.limit().min(most))
    }

    fn take_within(&self, now: Timestamp, limit: u32) -> bool {
        let one_more = |n: u32| (n < limit).then(|| n + 1);
        if !self.is_up() {
            return false;
        }
        let taken = self
            .in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
        let window = self.limit();
        match taken {
            Ok(before) => {
                self.occupancy.on_change(now, before, window);
                self.on_count(before + 1 >= window);
                true
            }
            Err(inside) => {
                // It may have been said to have room by a thread that was late to say so.
                self.on_count(inside >= window);
                false
            }
        }
    }

    /// The number of requests inside has changed, between one that leaves room and one that does
    /// not if `turned`.
    fn on_count(&self, turned: bool) {
        if turned {
            self.publish_room();
        } else {
            self.publish_load();
        }
    }

    /// Notes the age of a slot that was taken; the number goes with the permit.
    pub(crate) fn enter(&self) -> u32 {
        self.ages.enter()
    }

    /// Gives back a slot; returns how many were taken.
    pub(crate) fn release(&self, now: Timestamp, generation: u32) -> u32 {
        self.ages.leave(generation);
        let before = self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let window = self.limit();
        self.occupancy.on_change(now, before, window);
        self.on_count(before >= window);
        before
    }

    /// Keeps a slot whose client has left, until [`Replica::release_kept`].
    pub(crate) fn keep(&self, now: Timestamp) {
        self.occupancy(now).on_kept(true);
    }

    /// Gives back a slot that was kept.
    pub(crate) fn release_kept(&self, now: Timestamp, generation: u32) {
        self.release(now, generation);
        self.occupancy.on_kept(false);
    }

    /// A request became a stream: its slot is free again.
    pub(crate) fn start_stream(&self, now: Timestamp, generation: u32) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.release(now, generation);
    }

    /// A paused request goes on: it takes a slot, whether there is one or not. Gives the slot's age
    /// group.
    pub(crate) fn retake(&self, now: Timestamp) -> u32 {
        self.end_stream();
        let before = self.in_flight.fetch_add(1, Ordering::SeqCst);
        let window = self.limit();
        self.occupancy.on_change(now, before, window);
        self.on_count(before + 1 >= window);
        self.enter()
    }

    pub(crate) fn end_stream(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Nothing refers to it any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight() == 0 && self.streams() == 0
    }

    /// Notes what a request that has taken a slot finds, and whether it has waited for it. It goes
    /// with the permit.
    pub(crate) fn admit(&self, now: Timestamp, waited: bool) -> Place {
        let inside = self.in_flight();
        let bound = waited || inside >= self.limit();
        let place = Place { inside, bound };
        self.occupancy.on_enter(now, place);
        place
    }

    /// A request that was admitted ends, goes elsewhere or becomes a stream.
    pub(crate) fn depart(&self, now: Timestamp, place: Place, served: bool) {
        self.occupancy.on_leave(now, place, served);
    }

    /// A request was served, `residence` after its admission to a place, and was one of `inside`.
    pub(crate) fn on_served(&self, now: Timestamp, residence: Duration, place: Place, inside: u32) {
        add_one(&self.served);
        self.occupancy.on_done(inside, self.limit());
        self.occupancy.on_time(inside, place, residence);
        self.recent.on_sample(now, residence.as_secs_f64());
        self.pace.record(residence.as_secs_f64());
    }

    /// Service times by concurrency, up to now.
    pub(crate) fn occupancy(&self, now: Timestamp) -> &Occupancy {
        self.occupancy
            .on_change(now, self.in_flight(), self.limit());
        &self.occupancy
    }

    /// Whether nothing is inside, and nothing has happened since the occupancy was last emptied.
    pub(crate) fn is_untouched(&self) -> bool {
        self.in_flight() == 0 && self.occupancy.is_untouched()
    }

    /// A request failed. A replica that fails fast must not look like a fast one.
    pub(crate) fn on_failure(&self, now: Timestamp) {
        let worse = self.recent.value(now).unwrap_or(0.0) * 2.0;
        let penalty = worse.clamp(FAILURE_SECONDS_MIN, FAILURE_SECONDS_MAX);
        self.recent.on_sample(now, penalty);
        self.pace.on_late();
    }

    /// Its response time lately, for balancing; none before the first sample.
    pub(crate) fn recent_seconds(&self, now: Timestamp) -> Option<f64> {
        self.recent.value(now)
    }

    /// Begins anew with this response time.
    pub(crate) fn restart_recent(&self, now: Timestamp, seconds: f64) {
        self.recent.restart(now, seconds);
    }

    /// What it says about what is in it.
    pub(crate) fn on_report(&self, report: &Report) {
        self.reports.on_report(report);
        self.reported.take(report, self.in_flight());
    }

    /// Requests in it: what we sent, and what is there from others by what it last said itself or
    /// by what they say, whichever is more.
    pub(crate) fn in_service(&self) -> u32 {
        let beyond_ours = self.reported.beyond_ours.load(Ordering::Relaxed);
        let elsewhere = self.elsewhere.load(Ordering::Relaxed);
        let others = u32::try_from(beyond_ours).unwrap_or(0).max(elsewhere);
        self.in_flight().saturating_add(others)
    }

    /// Requests of other engines in it, as they say, and this engine's part of what may be in it.
    pub(crate) fn set_elsewhere(&self, requests: u32, share: f64) {
        self.elsewhere.store(requests, Ordering::Relaxed);
        self.share.store(within(share, SHARE_MIN, 1.0));
    }

    /// Requests in it by which newcomers are judged: those that are there, or as many as there
    /// were if the others held as much of their part as this engine of its own. What others say is
    /// older than what they have just sent.
    pub(crate) fn company(&self) -> u32 {
        let share = self.share.load();
        if share >= 1.0 {
            return self.in_service();
        }
        let alike = f64::from(self.in_flight()) / share;
        // `as` saturates.
        self.in_service().max(alike as u32)
    }

    /// Adds what was seen here in a tick, in all and with the window full.
    pub(crate) fn add_totals(&self, all: &Counts, full: &Counts) {
        let add = |total: &AtomicF64, more: f64| total.store(total.load() + more);
        add(&self.totals.inside_seconds, all.inside_seconds);
        add(&self.totals.full_seconds, full.seconds);
        add(&self.totals.full_done, full.done);
    }

    /// What this engine says to others about it.
    pub(crate) fn totals(&self, replica: ReplicaId) -> ReplicaTotals {
        ReplicaTotals {
            replica,
            in_flight: self.in_flight(),
            window: Some(self.limit()).filter(|&limit| limit != UNLIMITED),
            done: self.served() as f64,
            inside_seconds: self.totals.inside_seconds.load(),
            full_seconds: self.totals.full_seconds.load(),
            full_done: self.totals.full_done.load(),
            found: None,
            capacity: None,
        }
    }

    /// Time requests wait in it before they are started, as it says.
    pub(crate) fn queue_s(&self) -> f64 {
        f64::from(f32::from_bits(
            self.reported.queue_s.load(Ordering::Relaxed),
        ))
    }

    /// Ends a period: what was not said again in it is believed half as much. A replica that gets
    /// nothing because of what it said says nothing new.
    pub(crate) fn doubt_company(&self) {
        self.reported.doubt();
    }

    /// Whether it says what requests cost; then we need not guess.
    pub(crate) fn reports_cost(&self) -> bool {
        self.reported.cost.load(Ordering::Relaxed)
    }

    /// Starts a new age group.
    pub(crate) fn next_generation(&self) {
        self.ages.next();
    }

    /// Requests in flight since before the last three age groups.
    pub(crate) fn overdue(&self) -> u32 {
        self.ages.overdue()
    }
}

/// What a failure counts as in the balancer. Chosen: worse than most answers, and forgotten
/// within the time constant of the average.
const FAILURE_SECONDS_MIN: f64 = 1.0;
const FAILURE_SECONDS_MAX: f64 = 10.0;

/// Least part that is believed, where requests are judged by what others hold. Chosen: an engine
/// that gets the first requests of a burst is not shut out by its share of a moment ago.
const SHARE_MIN: f64 = 0.05;

/// A replica is believed to hold at most this many requests of other proxies for each of ours.
/// Chosen: 32 proxies that share a pool evenly are seen in full, and one that lies cannot close the
/// gate for good.
const OTHERS_OF_OURS: i32 = 31;

/// What a replica says about itself, where it does.
#[derive(Debug, Default)]
struct Reported {
    /// Whether it said anything in this period.
    fresh: AtomicBool,
    /// Requests in it beyond those in flight from here, when it last reported.
    beyond_ours: AtomicI32,
    /// Bits of an `f32`.
    queue_s: AtomicU32,
    cost: AtomicBool,
}

impl Reported {
    fn take(&self, report: &Report, in_flight: u32) {
        if let Some(in_service) = report.in_service {
            let beyond = i64::from(in_service) - i64::from(in_flight);
            let most = i32::try_from(in_flight.max(1)).unwrap_or(i32::MAX);
            let most = most.saturating_mul(OTHERS_OF_OURS);
            // Ours are in it whatever it says.
            let beyond = i32::try_from(beyond).unwrap_or(i32::MAX).clamp(0, most);
            self.beyond_ours.store(beyond, Ordering::Relaxed);
            self.fresh.store(true, Ordering::Relaxed);
        }
        if let Some(queue_s) = report.queue_seconds.filter(|&seconds| is_time(seconds)) {
            let bits = (queue_s as f32).to_bits();
            self.queue_s.store(bits, Ordering::Relaxed);
            self.fresh.store(true, Ordering::Relaxed);
        }
        if report.service_cost(0.0).is_some() {
            self.cost.store(true, Ordering::Relaxed);
        }
    }

    fn doubt(&self) {
        if self.fresh.swap(false, Ordering::Relaxed) {
            return;
        }
        let beyond = self.beyond_ours.load(Ordering::Relaxed);
        self.beyond_ours.store(beyond / 2, Ordering::Relaxed);
        let queue_s = f32::from_bits(self.queue_s.load(Ordering::Relaxed)) / 2.0;
        self.queue_s.store(queue_s.to_bits(), Ordering::Relaxed);
    }
}

/// How many requests in flight are of which age, without a list of them.
///
/// Slots are counted by the generation in which they were taken. Generations share four counters;
/// before one is used again, what is left in it counts as overdue. A request may end between the
/// two, and is then subtracted from the wrong one; the sum stays right, and as the counter is
/// added to the overdue ones again later the mistake cancels.
#[derive(Debug, Default)]
struct Ages {
    generation: AtomicU32,
    groups: [AtomicI32; 4],
    overdue: AtomicI32,
}

impl Ages {
    fn enter(&self) -> u32 {
        let generation = self.generation.load(Ordering::Relaxed);
        self.group(generation).fetch_add(1, Ordering::Relaxed);
        generation
    }

    fn leave(&self, generation: u32) {
        let age = self
            .generation
            .load(Ordering::Relaxed)
            .wrapping_sub(generation);
        let counter = match age {
            0..4 => self.group(generation),
            _ => &self.overdue,
        };
        counter.fetch_sub(1, Ordering::Relaxed);
    }

    fn next(&self) {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let left = self.group(next).swap(0, Ordering::Relaxed);
        self.overdue.fetch_add(left, Ordering::Relaxed);
        self.generation.store(next, Ordering::Relaxed);
    }

    fn group(&self, generation: u32) -> &AtomicI32 {
        &self.groups[(generation % 4) as usize]
    }

    fn overdue(&self) -> u32 {
        u32::try_from(self.overdue.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(in_service: u32, queue_seconds: f64) -> Report {
        Report {
            in_service: Some(in_service),
            queue_seconds: Some(queue_seconds),
            ..Report::default()
        }
    }

    #[test]
    fn company_of_other_proxies_counts_within_bounds_and_is_doubted_in_silence() {
        let replica = Replica::new(1);
        replica.on_report(&says(12, 0.5));
        assert_eq!((replica.in_service(), replica.queue_s()), (12, 0.5));
        replica.doubt_company();
        assert_eq!(replica.in_service(), 12, "it was said in this period");
        replica.doubt_company();
        assert_eq!((replica.in_service(), replica.queue_s()), (6, 0.25));
        replica.on_report(&says(u32::MAX, 0.0));
        assert_eq!(replica.in_service(), OTHERS_OF_OURS as u32);
        (0..8).for_each(|_| replica.doubt_company());
        assert_eq!(replica.in_service(), 0);
    }
}
