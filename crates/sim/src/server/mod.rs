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

mod spec;

use std::collections::VecDeque;

use tidegate_control::Timestamp;

use crate::engine::CancelHeap;
use crate::slab::{Key, Slab};

pub use spec::{Bound, Penalty, StationSpec};

/// A job inside a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId(Key);

/// Reading of the virtual clock, in seconds of work per job.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Virtual(f64);

impl Eq for Virtual {}

impl PartialOrd for Virtual {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Virtual {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
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
    },
    Running(Key),
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
    running: CancelHeap<Virtual, Key>,
    /// In order of arrival; may hold keys of jobs that have left.
    line: VecDeque<Key>,
    waiting: usize,
    held: usize,

    clock: Virtual,
    /// When `clock` and `busy` were last brought up to date.
    seen: Timestamp,
    busy: f64,
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
            running: CancelHeap::new(),
            line: VecDeque::new(),
            waiting: 0,
            held: 0,
            clock: Virtual(0.0),
            seen: Timestamp::ZERO,
            busy: 0.0,
        }
    }

    /// Jobs being worked on.
    #[must_use]
    pub fn in_service(&self) -> usize {
        self.running.len()
    }

    /// Jobs waiting for a slot.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
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
        self.running.len() + self.held >= self.slots
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
        self.busy + self.busy_cores() * now.since(self.seen).as_secs_f64()
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> f64 {
        self.cores
    }

    fn busy_cores(&self) -> f64 {
        (self.running.len() as f64).min(self.cores)
    }

    /// Work per second of each job in service.
    #[inline]
    fn rate(&self) -> f64 {
        let n = self.running.len();
        let share = (self.cores / n as f64).min(1.0);
        let penalty = self.penalty.map_or(1.0, |penalty| penalty.speed(n));
        self.speed * share * penalty
    }

    /// Brings the virtual clock and the busy time up to `now`.
    #[inline]
    fn advance(&mut self, now: Timestamp) {
        let elapsed = now.since(self.seen).as_secs_f64();
        self.seen = now;
        if self.running.len() > 0 {
            self.busy += self.busy_cores() * elapsed;
            self.clock.0 += self.rate() * elapsed;
        } else {
            // Nobody is timed by the clock: start over, so that it never grows coarse.
            self.clock.0 = 0.0;
        }
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
        let stage = Stage::Waiting { work };
        let key = self.jobs.insert(Job { item, stage });
        if full {
            self.line.push_back(key);
            self.waiting += 1;
        } else {
            self.advance(now);
            self.start(key, work);
        }
        Ok(JobId(key))
    }

    fn start(&mut self, key: Key, work: f64) {
        let done = Virtual(self.clock.0 + work);
        let running = self.running.push(done, key);
        if let Some(job) = self.jobs.get_mut(key) {
            job.stage = Stage::Running(running);
        }
    }

    /// Gives free slots to those who wait longest.
    #[inline]
    fn promote(&mut self) {
        while self.waiting > 0 && !self.is_full() {
            let key = self.line.pop_front().expect("whoever waits is in line");
            if let Some(&Job {
                stage: Stage::Waiting { work },
                ..
            }) = self.jobs.get(key)
            {
                self.waiting -= 1;
                self.start(key, work);
            }
        }
    }

    /// When the next job is done if nothing changes before; none while idle or standing still.
    #[must_use]
    #[inline]
    pub fn next_completion(&self) -> Option<Timestamp> {
        let done = self.running.first()?;
        let rate = self.rate();
        if rate <= 0.0 {
            return None;
        }
        let seconds = (done.0 - self.clock.0).max(0.0) / rate;
        let nanos = (seconds * 1e9).round() as u64;
        Some(Timestamp::from_nanos(
            self.seen.as_nanos().saturating_add(nanos),
        ))
    }

    /// The job that is done at `now`, if one is.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Option<&J> {
        if self.next_completion()? > now {
            return None;
        }
        self.jobs
            .get(*self.running.first_item()?)
            .map(|job| &job.item)
    }

    /// Lets the job that is done at `now` leave; its slot goes to the next in line.
    #[inline]
    pub fn finish(&mut self, now: Timestamp) -> Option<J> {
        let key = self.complete(now)?;
        let job = self.jobs.remove(key);
        self.promote();
        job.map(|job| job.item)
    }

    /// Ends the work of the job that is done at `now`, but keeps its slot taken until it is
    /// [cancelled](Self::cancel): a client reads the answer slowly.
    pub fn hold(&mut self, now: Timestamp) -> Option<JobId> {
        let key = self.complete(now)?;
        self.jobs.get_mut(key)?.stage = Stage::Held;
        self.held += 1;
        Some(JobId(key))
    }

    #[inline]
    fn complete(&mut self, now: Timestamp) -> Option<Key> {
        if self.next_completion()? > now {
            return None;
        }
        self.advance(now);
        let (done, key) = self.running.pop()?;
        // The event's time was rounded to a nanosecond; the work was done exactly here.
        self.clock = done;
        Some(key)
    }

    /// Takes a job out, wherever it is, with the work it still had ahead of it unspent.
    pub fn cancel(&mut self, now: Timestamp, id: JobId) -> Option<J> {
        self.jobs.get(id.0)?;
        self.advance(now);
        let job = self.jobs.remove(id.0)?;
        match job.stage {
            Stage::Waiting { .. } => self.leave_line(),
            Stage::Held => self.held -= 1,
            Stage::Running(key) => {
                self.running.cancel(key);
            }
        }
        self.promote();
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
    }

    /// Changes how many can be in service at once. Nobody in service is sent back.
    pub fn set_slots(&mut self, now: Timestamp, slots: Bound) {
        self.advance(now);
        self.slots = slots.as_count();
        self.promote();
    }

    /// The server dies with everything in it, and refuses what comes until it is restored.
    pub fn fail(&mut self, now: Timestamp) -> Vec<J> {
        self.advance(now);
        self.up = false;
        self.running.clear();
        self.line.clear();
        self.waiting = 0;
        self.held = 0;
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
