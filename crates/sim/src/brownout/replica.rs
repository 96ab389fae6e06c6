//! One replica: capacity shared equally among at most `cap` requests, a line behind them.
//!
//! Processor sharing by virtual time: `v` is the work each request in service has received since
//! the replica began. A request that enters with work `w` leaves when `v` has grown by `w`; `v`
//! grows at `1/n` while `n` are in service. Requests in service are kept sorted by where they
//! leave, so the next completion is the last of the list.

use std::collections::VecDeque;

use super::strategy::Control;

/// A request at a replica.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) created_s: f64,
    pub(super) dispatched_s: f64,
    /// Decided by the balancer, or by the replica when service begins.
    pub(super) full: Option<bool>,
    /// What the engine knows it by, where there is one.
    pub(super) number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Served {
    leaves_at_v: f64,
    job: Job,
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) control: Control,
    pub(super) cap: usize,
    /// Share of full responses attached to its last completion.
    pub(super) theta_reported: f64,
    virtual_s: f64,
    updated_s: f64,
    /// Sorted by `leaves_at_v`, largest first.
    in_service: Vec<Served>,
    line: VecDeque<Job>,
}

impl Replica {
    pub(super) fn new(control: Control, cap: usize, now_s: f64) -> Self {
        Self {
            control,
            cap,
            theta_reported: 0.5,
            virtual_s: 0.0,
            updated_s: now_s,
            in_service: Vec::with_capacity(32),
            line: VecDeque::new(),
        }
    }

    /// All requests at it.
    pub(super) fn jobs(&self) -> impl Iterator<Item = Job> + '_ {
        let served = self.in_service.iter().map(|served| served.job);
        served.chain(self.line.iter().copied())
    }

    pub(super) fn present(&self) -> usize {
        self.in_service.len() + self.line.len()
    }

    pub(super) fn has_place(&self) -> bool {
        self.in_service.len() < self.cap
    }

    pub(super) fn line_is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn stand_in_line(&mut self, job: Job) {
        self.line.push_back(job);
    }

    pub(super) fn next_in_line(&mut self) -> Option<Job> {
        self.line.pop_front()
    }

    fn advance(&mut self, now_s: f64) {
        if !self.in_service.is_empty() {
            self.virtual_s += (now_s - self.updated_s) / self.in_service.len() as f64;
        }
        self.updated_s = now_s;
    }

    pub(super) fn begin(&mut self, now_s: f64, job: Job, work_s: f64) {
        self.advance(now_s);
        let leaves_at_v = self.virtual_s + work_s;
        let at = self
            .in_service
            .partition_point(|served| served.leaves_at_v > leaves_at_v);
        self.in_service.insert(at, Served { leaves_at_v, job });
    }

    /// When the first of those in service leaves, if no other one comes.
    pub(super) fn next_completion_s(&self) -> Option<f64> {
        let next = self.in_service.last()?;
        let left_s = (next.leaves_at_v - self.virtual_s).max(0.0);
        Some(self.updated_s + left_s * self.in_service.len() as f64)
    }

    pub(super) fn complete(&mut self, now_s: f64) -> Option<Job> {
        self.advance(now_s);
        self.in_service.pop().map(|served| served.job)
    }
}
