//! Which of several candidates leads, by a Lease that they all can read and write.
//!
//! A candidate takes the Lease when it has no holder, or when its record did not change for as long
//! as it is valid, by the candidate's own clock: clocks of machines are never compared. The leader
//! writes the Lease again before that. It stops leading when it could not for
//! [`Election::RENEW_LIMIT`], which is shorter, so that there are never two. Two candidates that
//! write at once are told apart by the API server (`resourceVersion`).
//!
//! These are the rules and times of client-go's `leaderelection`.

use std::time::{Duration, Instant};

/// What a Lease says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Who leads; nobody where it is empty.
    pub holder: String,
    /// How long that is valid without a renewal.
    pub duration: Duration,
    /// The time of the last renewal as written; compared for change only.
    pub renewed: String,
    /// How often the holder changed.
    pub transitions: i32,
}

/// What to do with the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is none: create it.
    Create,
    /// Another candidate held it: write it with one transition more.
    Take,
    /// It is ours: write the time.
    Renew,
    /// Another candidate holds it.
    Follow,
}

/// One candidate.
#[derive(Debug)]
pub struct Election {
    identity: String,
    /// The record of another candidate, and when it was first read.
    seen: Option<(LeaseRecord, Instant)>,
    /// When the last renewal that was accepted was begun.
    renewed: Option<Instant>,
}

impl Election {
    /// How long a Lease is valid without a renewal.
    pub const DURATION: Duration = Duration::from_secs(15);
    /// A leader that could not renew for this long leads no more.
    pub const RENEW_LIMIT: Duration = Duration::from_secs(10);
    /// How often the Lease is looked at.
    pub const INTERVAL: Duration = Duration::from_secs(2);

    /// A candidate that does not lead yet.
    #[must_use]
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            seen: None,
            renewed: None,
        }
    }

    /// The name of this candidate.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// What to do about the Lease that was read.
    pub fn step(&mut self, now: Instant, found: Option<&LeaseRecord>) -> Step {
        let Some(found) = found else {
            return Step::Create;
        };
        if found.holder == self.identity {
            self.seen = None;
            return Step::Renew;
        }
        self.renewed = None;
        if found.holder.is_empty() {
            return Step::Take;
        }
        match &self.seen {
            Some((seen, since)) if seen == found => {
                let expired = now.duration_since(*since) > found.duration;
                if expired { Step::Take } else { Step::Follow }
            }
            _ => {
                self.seen = Some((found.clone(), now));
                Step::Follow
            }
        }
    }

    /// The Lease was written in our name; `begun` is when that was started.
    pub fn on_written(&mut self, begun: Instant) {
        self.renewed = Some(begun);
        self.seen = None;
    }

    /// The Lease was given back.
    pub fn on_released(&mut self) {
        self.renewed = None;
    }

    /// Whether this candidate leads.
    #[must_use]
    pub fn leads(&self, now: Instant) -> bool {
        let recent = |at: Instant| now.saturating_duration_since(at) < Self::RENEW_LIMIT;
        self.renewed.is_some_and(recent)
    }

    /// Who leads, as far as this candidate knows.
    #[must_use]
    pub fn leader(&self, now: Instant) -> Option<&str> {
        if self.leads(now) {
            return Some(&self.identity);
        }
        self.seen.as_ref().map(|(record, _)| record.holder.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Lease as the API server has it, and candidates that read and write it.
    struct Cluster {
        lease: Option<LeaseRecord>,
        now: Instant,
    }

    impl Cluster {
        fn new() -> Self {
            Self {
                lease: None,
                now: Instant::now(),
            }
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }

        fn turn(&mut self, candidate: &mut Election) -> Step {
            let step = candidate.step(self.now, self.lease.as_ref());
            if step == Step::Follow {
                return step;
            }
            let before = self.lease.take().unwrap_or_default();
            self.lease = Some(LeaseRecord {
                holder: candidate.identity().to_owned(),
                duration: Election::DURATION,
                renewed: format!("{:?}", self.now),
                transitions: before.transitions + i32::from(step == Step::Take),
            });
            candidate.on_written(self.now);
            step
        }
    }

    #[test]
    fn lease_of_a_dead_leader_is_taken_after_its_duration() {
        let mut cluster = Cluster::new();
        let (mut a, mut b) = (Election::new("a"), Election::new("b"));
        assert_eq!(cluster.turn(&mut a), Step::Create);
        for _ in 0..10 {
            cluster.pass(2);
            assert_eq!(cluster.turn(&mut a), Step::Renew);
            assert_eq!(cluster.turn(&mut b), Step::Follow);
            assert!(a.leads(cluster.now) && !b.leads(cluster.now));
        }
        // `a` is dead from here on.
        let mut waited = 0;
        while cluster.turn(&mut b) == Step::Follow {
            cluster.pass(2);
            waited += 2;
            assert!(waited < 30);
        }
        assert!(waited >= 15, "taken after {waited} s");
        assert!(b.leads(cluster.now));
        assert!(!a.leads(cluster.now), "two leaders");
        assert_eq!(cluster.lease.as_ref().map(|it| it.transitions), Some(1));
        assert_eq!(cluster.turn(&mut a), Step::Follow);
        assert_eq!(a.leader(cluster.now), Some("b"));
    }

    #[test]
    fn leader_that_cannot_renew_stops_before_another_can_begin() {
        let mut cluster = Cluster::new();
        let mut a = Election::new("a");
        cluster.turn(&mut a);
        cluster.pass(9);
        assert!(a.leads(cluster.now));
        cluster.pass(1);
        assert!(!a.leads(cluster.now));
        assert!(Election::RENEW_LIMIT < Election::DURATION);
        // The API server is back, and nobody else took it.
        assert_eq!(cluster.turn(&mut a), Step::Renew);
        assert!(a.leads(cluster.now));
    }

    #[test]
    fn lease_that_was_given_back_is_taken_at_once() {
        let mut cluster = Cluster::new();
        let (mut a, mut b) = (Election::new("a"), Election::new("b"));
        cluster.turn(&mut a);
        cluster.turn(&mut b);
        cluster.lease.as_mut().expect("created").holder.clear();
        a.on_released();
        assert!(!a.leads(cluster.now));
        assert_eq!(cluster.turn(&mut b), Step::Take);
        assert!(b.leads(cluster.now));
    }
}
