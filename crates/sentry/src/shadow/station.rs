//! A model of a replica: servers in parallel, exponential service times, first come first served.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tidegate_control::Timestamp;

use super::capacity::Servers;
use crate::api::Permit;
use crate::random::Dice;

/// The model; permits of the shadow's engine stand for the requests inside.
#[derive(Debug, Default)]
pub(super) struct Station {
    servers: Option<Servers>,
    /// Ends of those in service, and the place of their permits.
    ends: BinaryHeap<Reverse<(Timestamp, usize)>>,
    permits: Vec<Option<Permit>>,
    free: Vec<usize>,
    queue: VecDeque<Permit>,
    /// Seconds of servers that were busy since the last report.
    busy_seconds: f64,
    counted_to: Timestamp,
}

impl Station {
    /// Puts other servers in force for those that begin from now on.
    pub(super) fn set(&mut self, servers: Servers) {
        self.servers = Some(servers);
    }

    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    /// The share of the servers that was busy in the last `elapsed`; `None` while it is not known
    /// how many there are.
    pub(super) fn utilization(&mut self, now: Timestamp, elapsed: Duration) -> Option<f64> {
        self.count_busy(now);
        let busy = std::mem::take(&mut self.busy_seconds);
        let count = self.servers.and_then(|servers| servers.count)?;
        Some((busy / (f64::from(count) * elapsed.as_secs_f64())).min(1.0))
    }

    fn count_busy(&mut self, now: Timestamp) {
        let elapsed = (now - self.counted_to).as_secs_f64();
        self.busy_seconds += elapsed * self.ends.len() as f64;
        self.counted_to = now;
    }

    pub(super) fn begin(&mut self, now: Timestamp, permit: Permit, dice: &Dice) {
        self.count_busy(now);
        self.queue.push_back(permit);
        self.fill(now, dice);
    }

    /// The next one ends, and others may begin.
    pub(super) fn end(&mut self, now: Timestamp, dice: &Dice) -> Option<Permit> {
        self.count_busy(now);
        let Reverse((_, place)) = self.ends.pop()?;
        self.free.push(place);
        let permit = self.permits[place].take();
        self.fill(now, dice);
        permit
    }

    fn fill(&mut self, now: Timestamp, dice: &Dice) {
        let limit = self.servers.and_then(|servers| servers.count);
        let limit = limit.map_or(usize::MAX, |count| count as usize);
        while self.ends.len() < limit
            && let Some(permit) = self.queue.pop_front()
        {
            let mean = self.servers.map_or(0.0, |servers| servers.seconds);
            let seconds = -(1.0 - dice.unit()).ln() * mean;
            let place = self.keep(permit);
            let end = now + Duration::from_secs_f64(seconds.max(0.0));
            self.ends.push(Reverse((end, place)));
        }
    }

    fn keep(&mut self, permit: Permit) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.permits[place] = Some(permit);
                place
            }
            None => {
                self.permits.push(Some(permit));
                self.permits.len() - 1
            }
        }
    }
}
