//! The replicas: each with its window, warm-up and requests that are overdue.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;

use super::cause::Cause;
use super::cohort::Cohort;
use super::phase::PhaseName;
use super::profile::Profile;
use super::shared::{OthersTick, Shared};
use super::tuning::Tuning;
use super::window::{Bounds, Others, ReplicaTick, WindowSearch};
use crate::api::ReplicaId;
use crate::clamp::within;
use crate::config::SentryConfig;
use crate::counts::Counts;
use crate::event::Event;
use crate::fleet::{FleetShare, LeadWindow};
use crate::mode::Step;
use crate::plan::Plan;
use crate::replica::Replica;

/// What all replicas have in common in a tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FleetTick {
    /// Requests come several at once.
    pub(crate) clumped: bool,
    /// Requests wait.
    pub(crate) waiting: bool,
    /// Requests that wait; without bound in overload.
    pub(crate) queued: f64,
    /// See [`ReplicaTick`].
    pub(crate) overloaded: bool,
    /// See [`ReplicaTick`].
    pub(crate) target: f64,
    /// See [`ReplicaTick`].
    pub(crate) target_configured: bool,
    /// See [`ReplicaTick`].
    pub(crate) most_clients_abandon: bool,
    /// See [`ReplicaTick`].
    pub(crate) admitted_clients_abandon: bool,
    /// See [`ReplicaTick`].
    pub(crate) residence_max: f64,
    /// See [`ReplicaTick`].
    pub(crate) residence_doubtful: f64,
    /// See [`ReplicaTick`].
    pub(crate) residence_long: f64,
    /// Requests that have been inside for three to four times this many seconds are overdue.
    pub(crate) overdue_after: f64,
}

/// All replicas.
#[derive(Debug)]
pub(crate) struct Fleet {
    members: Vec<Member>,
    bounds: Bounds,
    initial: u32,
    warm_up: Duration,
    /// Those whose first windows grew when some of them stopped last.
    stopped: Option<Cohort>,
    /// What other engines do, where there are any.
    elsewhere: Option<OthersTick>,
}

#[derive(Debug)]
struct Member {
    replica: Arc<Replica>,
    search: WindowSearch,
    up: bool,
    /// When it came back and has to be treated with care.
    warming_since: Option<Timestamp>,
    generation_ends: Timestamp,
    /// What other engines do in it, where there are any.
    shared: Option<Shared>,
    /// Ticks in a row in which nothing happened in it.
    idle_ticks: usize,
    /// The window of the last tick and why it changed since then, if it did.
    changed_between: Option<(u32, Cause)>,
    /// The part of the drain rate that was published last; not a number before.
    drain_share: f64,
}

/// What was seen of a replica in a tick: with its window full, and all, unless it is down or warms
/// up.
#[derive(Debug, Clone, Copy)]
struct TickSeen {
    /// By this engine.
    own_full: Counts,
    /// By all engines.
    full: Counts,
    all: Option<Counts>,
}

impl Fleet {
    pub(crate) fn new(config: &SentryConfig) -> Self {
        Self {
            members: Vec::new(),
            bounds: bounds(config),
            initial: config.limits.window_initial,
            warm_up: config.warm_up.0.0,
            stopped: None,
            elsewhere: None,
        }
    }

    /// Takes over changed bounds; windows stay as far as they fit.
    pub(crate) fn reconfigure(&mut self, config: &SentryConfig) {
        self.bounds = bounds(config);
        self.initial = config.limits.window_initial;
        self.warm_up = config.warm_up.0.0;
        for member in &mut self.members {
            member.change_window(Cause::Bounds, |search| search.set_bounds(self.bounds));
        }
    }

    /// The window to begin with: as many times what is configured as the replica's weight says.
    fn initial_of(&self, replica: &Replica) -> u32 {
        self.initial.saturating_mul(replica.weight())
    }

    /// Starts with the replicas of a plan, from as many in flight as there are if `as_they_are`.
    pub(crate) fn start(&mut self, now: Timestamp, plan: &Plan, as_they_are: bool) {
        self.members.clear();
        for replica in plan.replicas.iter() {
            let in_flight = if as_they_are { replica.in_flight() } else { 0 };
            let window = in_flight.max(self.initial_of(replica));
            let member = Member::new(replica, window, self.bounds, now);
            replica.set_limit(member.search.window());
            self.members.push(member);
        }
    }

    /// The windows that were found, where they are not those it began with.
    pub(crate) fn windows(&self) -> Vec<(ReplicaId, u32)> {
        let found = |(index, member): (usize, &Member)| {
            let window = member.search.settled();
            let differs = window != self.initial_of(&member.replica);
            differs.then_some((ReplicaId(index as u16), window))
        };
        self.members.iter().enumerate().filter_map(found).collect()
    }

    /// The knees as far as they are known, by replica.
    pub(crate) fn knees(&self) -> Vec<Option<f64>> {
        let knee = |member: &Member| member.search.known_knee();
        self.members.iter().map(knee).collect()
    }

    /// The phases of the searches, by replica.
    pub(crate) fn phases(&self) -> Vec<PhaseName> {
        let phase = |member: &Member| member.search.phase();
        self.members.iter().map(phase).collect()
    }

    /// Begins with windows that were found before.
    pub(crate) fn resume(&mut self, now: Timestamp, windows: &[(ReplicaId, u32)]) {
        for &(id, window) in windows {
            if let Some(member) = self.members.get_mut(usize::from(id.0)) {
                member.change_window(Cause::Resumed, |search| {
                    *search = WindowSearch::new(window, self.bounds, now);
                });
                member.replica.set_limit(member.search.window());
            }
        }
    }

    /// Follows replicas that were added or given another's id; says by how much what is up can do
    /// more or less than before, where that changed.
    pub(crate) fn follow(&mut self, now: Timestamp, plan: &Plan) -> Option<f64> {
        if !self.differs(plan) {
            return None;
        }
        let before = self.capacity();
        // The first replicas of an engine that begins with none are not new beside others.
        let warming_since = (!self.members.is_empty()).then_some(now);
        for (index, replica) in plan.replicas.iter().enumerate() {
            let initial = self.initial_of(replica);
            match self.members.get_mut(index) {
                Some(member) if Arc::ptr_eq(&member.replica, replica) => {}
                Some(member) => {
                    *member = Member::new(replica, initial, self.bounds, now);
                    member.warming_since = warming_since;
                }
                None => {
                    let mut member = Member::new(replica, initial, self.bounds, now);
                    member.warming_since = warming_since;
                    self.members.push(member);
                }
            }
        }
        let mut changed = false;
        for member in &mut self.members {
            changed |= member.follow_health(now);
        }
        let after = self.capacity();
        (changed && before > 0.0 && after > 0.0).then(|| after / before)
    }

    /// Takes over what this engine may use; says by how much its part of what can be done is more
    /// or less than before.
    pub(crate) fn share(&mut self, share: &FleetShare) -> Option<f64> {
        let before = self.own_capacity();
        let shared = share.is_shared();
        self.elsewhere = shared.then(|| OthersTick::of(share));
        let lag = if shared { share.lag } else { Duration::ZERO };
        let bounds = Bounds {
            min: self.bounds.min.max(share.window_min).min(self.bounds.max),
            ..self.bounds
        };
        for (index, member) in self.members.iter_mut().enumerate() {
            member.search.set_lag(lag);
            let bounds = if shared { bounds } else { self.bounds };
            member.change_window(Cause::Bounds, |search| search.set_bounds(bounds));
            member.shared = share.of(ReplicaId(index as u16)).map(Shared::of);
        }
        let after = self.own_capacity();
        let changed = before > 0.0 && after > 0.0 && before != after;
        changed.then(|| after / before)
    }

    /// What this engine's part of the windows gets done.
    fn own_capacity(&self) -> f64 {
        let up = self.members.iter().filter(|member| member.up);
        up.map(|member| member.search.rate().unwrap_or(0.0) * member.own_part())
            .sum()
    }

    /// What the searches have found, and the throughput with it, by replica.
    pub(crate) fn found(&self) -> Vec<(Option<LeadWindow>, Option<f64>)> {
        let found = |member: &Member| {
            let searches = member.up && member.lead().is_none();
            let window = searches.then(|| member.search.lead_window());
            (window, member.search.rate())
        };
        self.members.iter().map(found).collect()
    }

    /// Whether replicas were added, given another's id, or have come or gone.
    fn differs(&self, plan: &Plan) -> bool {
        let same = |(member, replica): (&Member, &Arc<Replica>)| {
            Arc::ptr_eq(&member.replica, replica) && member.up == replica.is_up()
        };
        let mut pairs = self.members.iter().zip(plan.replicas.iter());
        self.members.len() != plan.replicas.len() || !pairs.all(same)
    }

    /// Throughput of the members that are up; one of which nothing is known counts as the mean of
    /// the others.
    fn capacity(&self) -> f64 {
        let up = || self.members.iter().filter(|member| member.up);
        let known: Vec<f64> = up().filter_map(|member| member.search.rate()).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        mean * up().count() as f64
    }

    /// One tick of every member; says what they did while they were full.
    pub(crate) fn on_tick(&mut self, step: &mut Step<'_>, fleet: &FleetTick) -> Counts {
        let fleet = &self.elsewhere.map_or(*fleet, |others| others.with(fleet));
        let mut fulls = Vec::with_capacity(self.members.len());
        let up = self.members.iter().filter(|member| member.up).count();
        let queued_each = fleet.queued / up as f64;
        let see = |member: &mut Member| {
            if member.rests(fleet.waiting) {
                None
            } else {
                Some(member.see(step, fleet.clumped))
            }
        };
        let saw: Vec<Option<TickSeen>> = self.members.iter_mut().map(see).collect();
        let cohort = self.cohort();
        let others = Others {
            growing: cohort.as_ref(),
            stopped: self.stopped.as_ref(),
        };
        for (index, (member, saw)) in self.members.iter_mut().zip(saw).enumerate() {
            if let Some(change) = member.take_change(step.now, ReplicaId(index as u16)) {
                step.observe(&change);
            }
            if !member.up {
                continue;
            }
            let Some(saw) = saw else {
                if !member.is_published() {
                    member.publish(step.now, self.warm_up, fleet.overdue_after);
                }
                fulls.push((member.search.rate(), member.own_part(), Counts::default()));
                continue;
            };
            let full = saw.own_full;
            let from = member.search.window();
            let cause = member.on_tick(step, fleet, saw, queued_each, &others);
            member.publish(step.now, self.warm_up, fleet.overdue_after);
            // What a window that may be too small lets through is no capacity. In overload it is
            // all there is to go by.
            let counts = !member.is_growing() && (fleet.overloaded || !member.tries_less());
            let full = if counts { full } else { Counts::default() };
            for transition in member.search.take_transitions() {
                step.observe(&Event::Phase {
                    at: step.now,
                    replica: ReplicaId(index as u16),
                    from: transition.from,
                    to: transition.to,
                    cause: transition.cause,
                });
            }
            fulls.push((member.search.rate(), member.own_part(), full));
            if let Some(cause) = cause {
                step.observe(&Event::Window {
                    at: step.now,
                    replica: ReplicaId(index as u16),
                    from,
                    to: member.search.window(),
                    cause,
                });
            }
        }
        self.remember(cohort);
        full_together(&fulls)
    }

    /// Remembers the cohort of this tick if one left it, for as long as there are others whose
    /// first windows grow.
    fn remember(&mut self, cohort: Option<Cohort>) {
        let grow = self.growing().count();
        if grow == 0 {
            self.stopped = None;
        } else if let Some(cohort) = cohort.filter(|cohort| grow < cohort.size()) {
            self.stopped = Some(cohort);
        }
    }

    /// Those whose first windows grow.
    fn growing(&self) -> impl Iterator<Item = (f64, &Profile)> {
        let up = self.members.iter().filter(|member| member.up);
        up.filter_map(|member| member.search.growing())
    }

    fn cohort(&self) -> Option<Cohort> {
        let growing: Vec<_> = self.growing().collect();
        Cohort::of(&growing)
    }

    /// Whether throughput of late was capacity, and not what too small windows let through: of at
    /// least half of the members.
    pub(crate) fn capacity_is_known(&self) -> bool {
        let up = || self.members.iter().filter(|member| member.up);
        let known = up().filter(|member| member.search.confirmed()).count();
        known > 0 && known * 2 >= up().count()
    }

    /// Whether some window is being tried that may be too small.
    pub(crate) fn tries_less(&self) -> bool {
        let mut up = self.members.iter().filter(|member| member.up);
        up.any(Member::tries_less)
    }

    /// Base service time, the mean of all members that know.
    pub(crate) fn base_residence(&self) -> Option<f64> {
        let known = || {
            self.members
                .iter()
                .filter_map(|member| member.search.base())
        };
        let count = known().count();
        (count > 0).then(|| known().sum::<f64>() / count as f64)
    }

    /// Publishes which part of the drain rate is whose, for sticky sessions.
    pub(crate) fn publish_shares(&mut self) {
        let total: f64 = self.members.iter().filter_map(Member::rate).sum();
        for member in &mut self.members {
            let share = member
                .rate()
                .filter(|_| total > 0.0)
                .map_or(0.0, |r| r / total);
            if member.drain_share != share {
                member.drain_share = share;
                member.replica.drain_share.store(share);
            }
        }
    }
}

impl Member {
    fn new(replica: &Arc<Replica>, window: u32, bounds: Bounds, now: Timestamp) -> Self {
        Self {
            replica: Arc::clone(replica),
            search: WindowSearch::new(window, bounds, now),
            up: replica.is_up(),
            warming_since: None,
            generation_ends: now,
            shared: None,
            idle_ticks: 0,
            changed_between: None,
            drain_share: f64::NAN,
        }
    }

    /// Changes the window between two ticks; the next tick reports it.
    fn change_window(&mut self, cause: Cause, change: impl FnOnce(&mut WindowSearch)) {
        let before = self.search.window();
        change(&mut self.search);
        if self.search.window() != before {
            let first = self.changed_between.map_or(before, |(first, _)| first);
            self.changed_between = Some((first, cause));
        }
    }

    /// The window's change since the last tick, as it is reported.
    fn take_change(&mut self, at: Timestamp, replica: ReplicaId) -> Option<Event> {
        let (from, cause) = self.changed_between.take()?;
        let to = self.search.window();
        (from != to).then_some(Event::Window {
            at,
            replica,
            from,
            to,
            cause,
        })
    }

    /// What the engine that searches has found, where that is another.
    fn lead(&self) -> Option<&LeadWindow> {
        self.shared.as_ref()?.lead.as_ref()
    }

    fn is_growing(&self) -> bool {
        let lead = self.lead().map(|lead| lead.phase == PhaseName::SlowStart);
        lead.unwrap_or_else(|| self.search.is_growing())
    }

    fn tries_less(&self) -> bool {
        let lead = self.lead().map(|lead| lead.tries_less);
        lead.unwrap_or_else(|| self.search.tries_less())
    }

    /// How much of the window is this engine's, from 0 to 1.
    fn own_part(&self) -> f64 {
        self.shared.as_ref().map_or(1.0, |shared| {
            let window = self.search.window();
            f64::from(shared.portion.of(window)) / f64::from(window.max(1))
        })
    }

    /// This engine's part of a window.
    fn own(&self, window: u32) -> u32 {
        let shared = self.shared.as_ref();
        shared.map_or(window, |shared| shared.portion.of(window))
    }

    /// Counts ticks in which nothing happens; says whether there were enough that one more changes
    /// nothing: histories are full of them, and what waited for an end of the load has ended.
    fn rests(&mut self, waiting: bool) -> bool {
        let alone = self.shared.is_none() && self.warming_since.is_none();
        let idle = alone && !waiting && self.replica.is_untouched();
        self.idle_ticks = if idle { self.idle_ticks + 1 } else { 0 };
        self.idle_ticks > Tuning::IDLE_DURATION.ticks()
    }

    fn rate(&self) -> Option<f64> {
        self.search.rate().filter(|_| self.up)
    }

    /// Whether its health changed. What comes back comes back gradually.
    fn follow_health(&mut self, now: Timestamp) -> bool {
        let up = self.replica.is_up();
        if up && !self.up {
            self.warming_since = Some(now);
        }
        std::mem::replace(&mut self.up, up) != up
    }

    /// Takes what happened in a tick.
    fn see(&mut self, step: &Step<'_>, clumped: bool) -> TickSeen {
        let occupancy = self.replica.occupancy(step.now);
        let counts = self.up && self.warming_since.is_none();
        let level = occupancy.take_full();
        let bound = occupancy.take_bound(step.now, self.replica.limit());
        let (now, seconds) = (step.now, step.interval.seconds);
        let own_full = if clumped { bound } else { level };
        let all = counts.then(|| match &self.shared {
            None => self.search.see(now, seconds, clumped, occupancy),
            Some(_) => self.search.pass_over(now, seconds, occupancy),
        });
        let own = all.unwrap_or_default();
        self.replica.add_totals(&own, &own_full);
        let Some(shared) = &self.shared else {
            return TickSeen {
                own_full,
                full: own_full,
                all,
            };
        };
        let all = shared.all(&own);
        TickSeen {
            own_full,
            full: shared.full(&own_full, self.replica.limit(), seconds),
            all: counts.then(|| self.search.see_together(all)),
        }
    }

    fn on_tick(
        &mut self,
        step: &Step<'_>,
        fleet: &FleetTick,
        saw: TickSeen,
        queued: f64,
        others: &Others<'_>,
    ) -> Option<Cause> {
        let seen = saw.all?;
        if let Some(lead) = self.shared.as_ref().and_then(|shared| shared.lead) {
            return self.search.follow(step.now, &lead, &saw.full);
        }
        let tick = ReplicaTick {
            now: step.now,
            full: saw.full,
            binding: fleet.waiting && !step.dry_run,
            queued,
            overloaded: fleet.overloaded,
            target: fleet.target,
            target_configured: fleet.target_configured,
            most_clients_abandon: fleet.most_clients_abandon,
            admitted_clients_abandon: fleet.admitted_clients_abandon,
            residence_max: fleet.residence_max,
            residence_doubtful: fleet.residence_doubtful,
            residence_long: fleet.residence_long,
        };
        self.search.on_tick(&tick, seen, others)
    }

    /// Whether a replica that rests has its window; nothing is inside that could be overdue.
    fn is_published(&self) -> bool {
        self.replica.limit() == self.search.window()
    }

    fn publish(&mut self, now: Timestamp, warm_up: Duration, overdue_after: f64) {
        if now >= self.generation_ends {
            self.replica.next_generation();
            self.generation_ends = now + Duration::from_secs_f64(overdue_after);
        }
        let window = self.search.window();
        let warm = match self.warming_since {
            Some(since) if now < since + warm_up => self.ramp(now - since, warm_up),
            _ => {
                self.warming_since = None;
                window
            }
        };
        // Requests that never seem to end must not take the place of all others.
        let overdue = self.replica.overdue().min(window);
        self.replica
            .set_limit(self.own(warm).saturating_add(overdue));
    }

    fn ramp(&self, warm_for: Duration, warm_up: Duration) -> u32 {
        let share = warm_for.as_secs_f64() / warm_up.as_secs_f64();
        let window =
            f64::from(self.search.window()) * within(share, Tuning::WARM_UP_MIN.get(), 1.0);
        (window.ceil() as u32).max(1)
    }
}

fn bounds(config: &SentryConfig) -> Bounds {
    Bounds {
        min: config.limits.window_min,
        max: config.limits.window_max,
    }
}

/// What the replicas did while they were full, as if of one: `d` requests in a time `t` with
///
/// ```text
/// d = Σ dᵢ        t = Σ tᵢ rᵢ / Σ rᵢ
/// ```
///
/// where the i-th was full for `tᵢ` and does `rᵢ` requests per second then (the mean of the others
/// where that is not known; of all of them this engine's part of the window), so that `d / t` is on
/// average what they can do together. No tick may be left out for being full only in part: those
/// that are full throughout are the slow ones.
fn full_together(fulls: &[(Option<f64>, f64, Counts)]) -> Counts {
    let known = || fulls.iter().filter_map(|(rate, ..)| *rate);
    let mean = known().sum::<f64>() / known().count().max(1) as f64;
    let unknown = if mean > 0.0 { mean } else { 1.0 };
    let weight = |rate: &Option<f64>| rate.unwrap_or(unknown);
    let weights: f64 = fulls
        .iter()
        .map(|(rate, part, _)| weight(rate) * part)
        .sum();
    let seconds = fulls
        .iter()
        .map(|(rate, part, full)| weight(rate) * part * full.seconds)
        .sum::<f64>();
    let done = fulls.iter().map(|(.., full)| full.done).sum();
    let seconds = if weights > 0.0 {
        seconds / weights
    } else {
        0.0
    };
    Counts::of(done, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_count_by_what_they_do() {
        let full = |seconds, done| Counts::of(done, seconds);
        // 90/s and 10/s: the slow one alone is full, and does its part.
        let slow = [
            (Some(90.0), 1.0, full(0.0, 0.0)),
            (Some(10.0), 1.0, full(0.1, 1.0)),
        ];
        let both = full_together(&slow);
        assert!((both.rate() - 100.0).abs() < 1e-9);
        let equal = [
            (None, 1.0, full(0.1, 5.0)),
            (Some(50.0), 1.0, full(0.1, 5.0)),
        ];
        let both = full_together(&equal);
        assert!((both.rate() - 100.0).abs() < 1e-9);
        assert_eq!(full_together(&[]), Counts::default());
    }
}
