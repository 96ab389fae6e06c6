//! The server model: cores, slots, a queue.
//!
//! One [`Station`] is all of the usual servers, by the number of cores `c` and of slots `m`:
//!
//! | server | cores | slots |
//! | --- | --- | --- |
//! | single FIFO | 1 | 1 |
//! | `c` workers, FIFO | c | c |
//! | processor sharing | 1 | unlimited |
//! | sharing with at most M_C in service, FIFO behind | 1 | M_C |
//!
//! All `n` jobs in service progress at the same rate `r = speed · min(1, c/n) · penalty(n)`, so one
//! virtual clock `V` with `dV/dt = r` serves them all: a job that starts at `V` with work `w` is
//! done when the clock shows `V + w` (virtual time of Parekh and Gallager 1993, with equal
//! weights). A change of speed, or of `n`, changes only how fast the clock runs; work done so far
//! is kept. An event costs O(log n).
//!
//! Work is in seconds at speed 1. The station knows no calendar: its driver asks for
//! [`next_completion`](Station::next_completion) after every change and calls back then.
//!
//! What breaks it: jobs of unequal weight or priority inside the server.

mod meter;
mod spec;

use std::collections::VecDeque;

use tidegate_control::Timestamp;

use crate::engine::RankHeap;
use crate::slab::{Key, Slab};
use crate::time::{after, seconds_between};

pub use meter::UtilizationMeter;
pub use spec::{Bound, Penalty, StationSpec};

/// A job inside a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId(Key);

/// The rank of a reading of the virtual clock: the bits of numbers from 0 are in their order.
fn rank(clock: f64) -> u64 {
    clock.to_bits()
}

#[derive(Debug, Clone)]
struct Job<J> {
    item: J,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Waiting {
        work: f64,
        since: Timestamp,
    },
    Running,
    /// Done, but its slot is still taken: the answer is being read.
    Held,
}

/// A server with its queue; see the [module](self).
#[derive(Debug, Clone)]
pub struct Station<J> {
    cores: f64,
    slots: usize,
    queue: usize,
    penalty: Option<Penalty>,
    speed: f64,
    up: bool,

    jobs: Slab<Job<J>>,
    /// Those in service, by what the virtual clock shows when they are done.
    done_at: RankHeap,
    /// In order of arrival; may hold keys of jobs that have left.
    line: VecDeque<Key>,
    in_service: usize,
    waiting: usize,
    held: usize,
    /// How long the job that was started last had waited.
    latest_wait_s: f64,

    /// The virtual clock, in seconds of work per job.
    clock: f64,
    /// When `clock` and `busy` were last brought up to date.
    seen: Timestamp,
    busy: f64,
    /// Work per second of each job in service since `seen`.
    rate: f64,
    next_completion: Option<Timestamp>,
}

impl<J> Station<J> {
    /// An empty station at time zero.
    #[must_use]
    pub fn new(spec: &StationSpec) -> Self {
        Self {
            cores: f64::from(spec.cores.get()),
            slots: spec.slot_count(),
            queue: spec.queue.as_count(),
            penalty: spec.penalty,
            speed: 1.0,
            up: true,
            jobs: Slab::new(),
            done_at: RankHeap::new(),
            line: VecDeque::new(),
            in_service: 0,
            waiting: 0,
            held: 0,
            latest_wait_s: 0.0,
            clock: 0.0,
            seen: Timestamp::ZERO,
            busy: 0.0,
            rate: 0.0,
            next_completion: None,
        }
    }

    /// Jobs being worked on.
    #[must_use]
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    /// Jobs waiting for a slot.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How long the job that was started last had waited for its slot, in seconds.
    #[must_use]
    pub fn latest_wait_s(&self) -> f64 {
        self.latest_wait_s
    }

    /// Everything inside, held slots included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is nothing inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a job that arrived now would have to wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_service + self.held >= self.slots
    }

    /// Whether the server is alive.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Seconds of core time used until `now`; its growth over an interval, divided by the interval
    /// and the cores, is the utilization.
    #[must_use]
    pub fn busy(&self, now: Timestamp) -> f64 {
        self.busy + self.busy_cores() * seconds_between(self.seen, now)
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> f64 {
        self.cores
    }

    #[inline]
    fn busy_cores(&self) -> f64 {
        (self.in_service as f64).min(self.cores)
    }

    /// Brings the virtual clock and the busy time up to `now`.
    #[inline]
    fn advance(&mut self, now: Timestamp) {
        let elapsed = seconds_between(self.seen, now);
        self.seen = now;
        if self.in_service > 0 {
            self.busy += self.busy_cores() * elapsed;
            self.clock += self.rate * elapsed;
        } else {
            // Nobody is timed by the clock: start over, so that it never grows coarse.
            self.clock = 0.0;
        }
    }

    /// After a change of who is in service, or of the speed: how fast the clock runs from now on,
    /// and when it reaches the next mark.
    #[inline]
    fn adjust(&mut self) {
        let n = self.in_service as f64;
        let share = if n <= self.cores { 1.0 } else { self.cores / n };
        let penalty = self
            .penalty
            .map_or(1.0, |penalty| penalty.speed(self.in_service));
        self.rate = self.speed * share * penalty;
        self.next_completion = match self.done_at.first() {
            Some((done, _)) if self.rate > 0.0 => {
                let work = f64::from_bits(done) - self.clock;
                Some(after(self.seen, work / self.rate))
            }
            _ => None,
        };
    }

    /// A job with that much work arrives.
    ///
    /// # Errors
    /// Gives the job back when the server is down, or when its queue is full.
    #[inline]
    pub fn arrive(&mut self, now: Timestamp, item: J, work: f64) -> Result<JobId, J> {
        let full = self.is_full();
        if !self.up || (full && self.waiting >= self.queue) {
            return Err(item);
        }
        let stage = Stage::Waiting { work, since: now };
        let key = self.jobs.insert(Job { item, stage });
        if full {
            self.line.push_back(key);
            self.waiting += 1;
        } else {
            self.advance(now);
            self.latest_wait_s = 0.0;
            self.start(key, work);
            self.adjust();
        }
        Ok(JobId(key))
    }

    #[inline]
    fn start(&mut self, key: Key, work: f64) {
        self.done_at.push(rank(self.clock + work), key);
        self.in_service += 1;
        if let Some(job) = self.jobs.get_mut(key) {
            job.stage = Stage::Running;
        }
    }

    /// Gives free slots to those who wait longest.
    #[inline]
    fn promote(&mut self) {
        while self.waiting > 0 && !self.is_full() {
            let key = self.line.pop_front().expect("whoever waits is in line");
            if let Some(&Job {
                stage: Stage::Waiting { work, since },
                ..
            }) = self.jobs.get(key)
            {
                self.waiting -= 1;
                self.latest_wait_s = seconds_between(since, self.seen);
                self.start(key, work);
            }
        }
    }

    /// When the next job is done if nothing changes before; none while idle or standing still.
    #[must_use]
    #[inline]
    pub fn next_completion(&self) -> Option<Timestamp> {
        self.next_completion
    }

    /// The job that is done at `now`, if one is.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Option<&J> {
        if self.next_completion? > now {
            return None;
        }
        let (_, key) = self.done_at.first()?;
        self.jobs.get(key).map(|job| &job.item)
    }

    /// Lets the job that is done at `now` leave; its slot goes to the next in line.
    #[inline]
    pub fn finish(&mut self, now: Timestamp) -> Option<J> {
        let key = self.complete(now)?;
        let job = self.jobs.remove(key)?;
        self.changed();
        Some(job.item)
    }

    /// Ends the work of the job that is done at `now`, but keeps its slot taken until it is
    /// [cancelled](Self::cancel): a client reads the answer slowly.
    pub fn hold(&mut self, now: Timestamp) -> Option<JobId> {
        let key = self.complete(now)?;
        self.jobs.get_mut(key)?.stage = Stage::Held;
        self.held += 1;
        self.changed();
        Some(JobId(key))
    }

    #[inline]
    fn complete(&mut self, now: Timestamp) -> Option<Key> {
        // A driver that comes late takes nothing from the others: the clock stops at the
        // completion.
        let due = self.next_completion.filter(|&due| due <= now)?;
        self.advance(due);
        let (done, key) = self.done_at.pop()?;
        // Its time was rounded to a nanosecond; the work was done exactly here.
        self.clock = f64::from_bits(done);
        self.in_service -= 1;
        Some(key)
    }

    /// Somebody left: the next one moves up.
    #[inline]
    fn changed(&mut self) {
        self.done_at.bury(&self.jobs, self.in_service);
        self.promote();
        self.adjust();
    }

    /// Takes a job out, wherever it is, with the work it still had ahead of it unspent.
    pub fn cancel(&mut self, now: Timestamp, id: JobId) -> Option<J> {
        self.jobs.get(id.0)?;
        self.advance(now);
        let job = self.jobs.remove(id.0)?;
        match job.stage {
            Stage::Waiting { .. } => self.leave_line(),
            Stage::Held => self.held -= 1,
            Stage::Running => self.in_service -= 1,
        }
        self.changed();
        Some(job.item)
    }

    /// Forgets those who have left when they are the most of the line.
    fn leave_line(&mut self) {
        self.waiting -= 1;
        if self.line.len() > 2 * self.waiting + 64 {
            let jobs = &self.jobs;
            self.line.retain(|&key| jobs.contains(key));
        }
    }

    /// Changes the speed of every core; what was done so far is kept.
    pub fn set_speed(&mut self, now: Timestamp, speed: f64) {
        self.advance(now);
        self.speed = speed;
        self.adjust();
    }

    /// Changes how many can be in service at once. Nobody in service is sent back.
    pub fn set_slots(&mut self, now: Timestamp, slots: Bound) {
        self.advance(now);
        self.slots = slots.as_count();
        self.changed();
    }

    /// The server dies with everything in it, and refuses what comes until it is restored.
    pub fn fail(&mut self, now: Timestamp) -> Vec<J> {
        self.advance(now);
        self.up = false;
        self.done_at.clear();
        self.line.clear();
        self.in_service = 0;
        self.waiting = 0;
        self.held = 0;
        self.adjust();
        let jobs = self.jobs.drain().into_iter();
        jobs.map(|job| job.item).collect()
    }

    /// The server is back, empty.
    pub fn restore(&mut self) {
        self.up = true;
    }
}

#[cfg(test)]
mod tests;
