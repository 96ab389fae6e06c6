//! How long a replica takes compared with the others, and what becomes of one that takes far
//! longer.
//!
//! Peak EWMA cannot keep requests from a slow replica for good: the peak of a fast one is the worst
//! of the thousands it was given lately, that of a slow one the worst of a few, fading while
//! nothing is sent. So every answer is held against what the replicas take on the median, and a
//! replica that answers too late too often is *ejected*: while another one has room it gets a
//! request now and then, one at a time and a bounded share of all, to see how it does. The better
//! it does the more it gets, until it is one of the others again.
//!
//! As they are compared with the median, never more than half of them are aside.
//!
//! What breaks it: a replica that gets requests of another kind than the others, by sticky
//! sessions, is compared with them all the same. It loses what is not bound to it, while the others
//! have room.
//!
//! Decision: docs/decisions/0054-slow-replicas-are-ejected.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use tidegate_control::Timestamp;

use crate::api::ReplicaId;
use crate::atomic::AtomicF64;
use crate::event::Event;
use crate::replica::Replica;

/// An answer is late beyond this many times what the others take on average: one in twenty of
/// exponential times, hardly more where work varies more (7 % of log-normal times with squared
/// coefficients of variation of 4 and 10), and three of four if the replica is ten times slower.
const ANSWER_LATE_OF_MEAN: f64 = 3.0;

/// But not by less than this, in seconds: no client would notice.
const LATENESS_SECONDS_MIN: f64 = 0.001;

/// An answer that is late counts twice one that is not: the log-likelihoods are 2.7 and -1.3 by the
/// shares above. Their sum is Page's test (1954), both ways: a replica is ejected at the top, and
/// back at zero at the latest. Chosen: one false alarm in a million answers that are late
/// independently of each other. They are not where requests share a core and work varies much: one
/// long request makes a dozen others late, and now and then a replica is aside for some tenths of a
/// second for nothing.
const LATE_COUNTS: u32 = 2;
const DOUBT_MAX: u32 = 10;

/// With less doubt than this most of the last answers were in time.
const DOUBT_HALF: u32 = DOUBT_MAX / 2;

/// Samples that the mean looks back on, and that it takes to be judged.
const SAMPLES_OF_MEAN: u32 = 16;

/// A sample counts as at most this many times the mean: one stall says little.
const SAMPLE_OF_MEAN_MAX: f64 = 8.0;

/// The pace of one replica.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Seconds (`f32`) in the upper half, samples in the lower, up to [`SAMPLES_OF_MEAN`].
    mean: AtomicU64,
    /// What an answer may take without being late.
    in_time: AtomicF64,
    /// From 0 to [`DOUBT_MAX`].
    doubt: AtomicU32,
    aside: AtomicBool,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            mean: AtomicU64::new(0),
            in_time: AtomicF64::new(f64::INFINITY),
            doubt: AtomicU32::new(0),
            aside: AtomicBool::new(false),
        }
    }

    /// Two samples at the same moment may count as one, which does no harm.
    pub(crate) fn record(&self, seconds: f64) {
        let (mean, samples) = unpack(self.mean.load(Ordering::Relaxed));
        let sample = if samples < SAMPLES_OF_MEAN {
            seconds
        } else {
            seconds.min(mean * SAMPLE_OF_MEAN_MAX)
        };
        let samples = (samples + 1).min(SAMPLES_OF_MEAN);
        let mean = mean + (sample - mean) / f64::from(samples);
        self.mean.store(pack(mean, samples), Ordering::Relaxed);
        let doubt = self.doubt();
        if seconds > self.in_time.load() {
            self.on_late();
        } else if doubt > 0 {
            self.doubt.store(doubt - 1, Ordering::Relaxed);
        }
    }

    /// An answer was late, or a request failed.
    pub(crate) fn on_late(&self) {
        let doubt = (self.doubt() + LATE_COUNTS).min(DOUBT_MAX);
        self.doubt.store(doubt, Ordering::Relaxed);
    }

    /// Whether it takes far longer than the others.
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }

    /// Requests that it may have at a time without waiting for its turn while it is aside: the
    /// better it does the more.
    pub(super) fn merit(&self) -> u32 {
        DOUBT_MAX - self.doubt()
    }

    fn doubt(&self) -> u32 {
        self.doubt.load(Ordering::Relaxed)
    }

    /// The mean, once there is enough to judge by.
    fn seconds(&self) -> Option<f64> {
        let (mean, samples) = unpack(self.mean.load(Ordering::Relaxed));
        (samples >= SAMPLES_OF_MEAN).then_some(mean)
    }

    /// Whether it is aside from now on, beside others that take so long.
    fn judge(&self, others: f64) -> bool {
        let in_time = (others * ANSWER_LATE_OF_MEAN).max(others + LATENESS_SECONDS_MIN);
        self.in_time.store(in_time);
        let doubted = if self.is_aside() {
            self.doubt() > 0
        } else {
            self.doubt() == DOUBT_MAX
        };
        // One that is not late on average is one of the others, however many of its answers were:
        // so were theirs.
        let aside = doubted && self.times_as_long(others) > ANSWER_LATE_OF_MEAN;
        self.aside.store(aside, Ordering::Relaxed);
        aside
    }

    fn times_as_long(&self, others: f64) -> f64 {
        self.seconds().map_or(1.0, |mean| mean / others)
    }

    /// Begins anew.
    pub(crate) fn forget(&self) {
        self.mean.store(0, Ordering::Relaxed);
        self.doubt.store(0, Ordering::Relaxed);
        self.aside.store(false, Ordering::Relaxed);
    }
}

fn pack(mean: f64, samples: u32) -> u64 {
    u64::from((mean as f32).to_bits()) << 32 | u64::from(samples)
}

fn unpack(packed: u64) -> (f64, u32) {
    let mean = f32::from_bits((packed >> 32) as u32);
    (f64::from(mean), packed as u32)
}

/// Compares the replicas, sets aside and brings back; says whether one is aside.
pub(super) fn compare(
    now: Timestamp,
    replicas: &[Arc<Replica>],
    probes: &Probes,
    observe: &mut dyn FnMut(Event),
) -> bool {
    let up = || replicas.iter().enumerate().filter(|(_, each)| each.is_up());
    let Some(others) = median(up().filter_map(|(_, each)| each.pace.seconds())) else {
        return false;
    };
    let mut any = false;
    for (index, replica) in up() {
        let before = replica.pace.is_aside();
        let seconds = replica.pace.seconds().unwrap_or(others);
        let aside = replica.pace.judge(others);
        any |= aside;
        if before != aside {
            replica.publish_aside();
        }
        if before == aside {
            continue;
        }
        if aside {
            probes.begin();
        } else {
            come_back(now, replica, others, replicas);
        }
        observe(Event::Ejected {
            at: now,
            replica: ReplicaId(index as u16),
            on: aside,
            seconds,
            others_seconds: others,
        });
    }
    any
}

/// It starts with the peak that the others have: with its own it would wait for long, and without
/// any it would look better than they do. If they have become as slow as it is, its peak is higher
/// by what it takes longer.
fn come_back(now: Timestamp, replica: &Replica, others: f64, replicas: &[Arc<Replica>]) {
    let recovered = replica.pace.doubt() < DOUBT_HALF;
    let times = if recovered {
        1.0
    } else {
        replica.pace.times_as_long(others).max(1.0)
    };
    if recovered {
        replica.pace.forget();
    }
    let peaks = replicas
        .iter()
        .filter(|each| each.is_up() && !each.pace.is_aside() && !std::ptr::eq(&***each, replica))
        .filter_map(|each| each.recent_seconds(now));
    if let Some(peak) = median(peaks) {
        replica.restart_recent(now, peak * times);
    }
}

/// The lower one of two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Requests placed elsewhere for each one that goes to a replica that is aside.
const PROBE_EVERY: i64 = 400;

/// Follow-up questions are asked at once, and the next one so much later; but not by more than
/// this.
const DEBT_MAX: i64 = PROBE_EVERY;

/// How many requests ejected replicas may be given.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Requests placed elsewhere since the last one, less what follow-up questions took in advance.
    credit: AtomicI64,
}

impl Probes {
    /// A replica was ejected: if it only had a queue inside, it is asked as soon as that is gone.
    fn begin(&self) {
        self.credit.store(PROBE_EVERY, Ordering::Relaxed);
    }

    pub(super) fn is_due(&self) -> bool {
        self.credit.load(Ordering::Relaxed) >= PROBE_EVERY
    }

    pub(super) fn on_elsewhere(&self) {
        if !self.is_due() {
            self.credit.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn on_probe(&self) {
        let less = self.credit.load(Ordering::Relaxed) - PROBE_EVERY;
        self.credit.store(less.max(-DEBT_MAX), Ordering::Relaxed);
    }
}
