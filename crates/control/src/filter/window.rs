//! Mean, minimum and maximum of a sliding window.
//!
//! The window is a queue made of two stacks. Each entry of the older stack carries the summary of
//! itself and all younger ones of that stack, so that dropping the oldest sample is a pop; when
//! the stack runs empty, the younger samples are turned over into it. Every sample is moved once:
//! amortised constant time. A monotone deque does as much for minimum and maximum, but a mean
//! beside it needs `sum - oldest`, which after one sample of 1e300 is wrong for good; here nothing
//! is ever subtracted.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::SampleCheck;
use crate::time::Timestamp;

/// The last samples, at most so many and, if wanted, none older than a span.
///
/// ```
/// use std::{num::NonZeroUsize, time::Duration};
/// use tidegate_control::{Timestamp, filter::SlidingWindow};
///
/// let at = Timestamp::from_secs_f64;
/// let last_three = NonZeroUsize::new(3).unwrap();
/// let mut rtt_ms = SlidingWindow::new(last_three).with_span(Duration::from_secs(10));
/// for (second, sample) in [(0.0, 9.0), (1.0, 2.0), (2.0, 4.0), (3.0, 6.0)] {
///     rtt_ms.on_sample(at(second), sample);
/// }
/// assert_eq!((rtt_ms.min(), rtt_ms.mean(), rtt_ms.max()), (Some(2.0), Some(4.0), Some(6.0)));
/// rtt_ms.expire(at(12.5)); // drops what was taken before 2.5 s
/// assert_eq!(rtt_ms.min(), Some(6.0));
/// ```
#[derive(Debug, Clone)]
pub struct SlidingWindow {
    capacity: usize,
    span: Option<Duration>,
    latest: Timestamp,
    /// Oldest sample on top; each with the summary of itself and everything below it.
    older: Vec<(Timestamp, Summary)>,
    /// In order of arrival.
    newer: Vec<(Timestamp, f64)>,
    newer_summary: Summary,
    check: SampleCheck,
}

impl SlidingWindow {
    /// Keeps the last `capacity` samples.
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self {
            capacity: capacity.get(),
            span: None,
            latest: Timestamp::ZERO,
            older: Vec::new(),
            newer: Vec::new(),
            newer_summary: Summary::EMPTY,
            check: SampleCheck::default(),
        }
    }

    /// Keeps of those the ones not older than `span`.
    #[must_use]
    pub fn with_span(self, span: Duration) -> Self {
        Self {
            span: Some(span),
            ..self
        }
    }

    /// Takes one sample and drops those it displaces.
    pub fn on_sample(&mut self, now: Timestamp, sample: f64) {
        if !self.check.accept(sample) {
            return;
        }
        self.expire(now);
        if self.len() == self.capacity {
            self.drop_oldest();
        }
        self.newer.push((self.latest, sample));
        self.newer_summary = self.newer_summary.with(sample);
    }

    /// Drops what is older than the span at `now`.
    pub fn expire(&mut self, now: Timestamp) {
        self.latest = self.latest.max(now);
        let Some(span) = self.span else { return };
        while self.oldest().is_some_and(|at| self.latest - at > span) {
            self.drop_oldest();
        }
    }

    /// How many samples are in the window.
    #[must_use]
    pub fn len(&self) -> usize {
        self.older.len() + self.newer.len()
    }

    /// Whether the window holds no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Mean of the window.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let sum = self.summary().sum.clamp(f64::MIN, f64::MAX);
        (!self.is_empty()).then(|| sum / self.len() as f64)
    }

    /// Smallest sample of the window.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.summary().min)
    }

    /// Largest sample of the window.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.summary().max)
    }

    /// How many samples were skipped.
    #[must_use]
    pub fn bad_samples(&self) -> u64 {
        self.check.refused
    }

    fn summary(&self) -> Summary {
        let older = self.older.last().map_or(Summary::EMPTY, |entry| entry.1);
        older.merged(self.newer_summary)
    }

    fn oldest(&self) -> Option<Timestamp> {
        let older = self.older.last().map(|entry| entry.0);
        older.or_else(|| self.newer.first().map(|entry| entry.0))
    }

    fn drop_oldest(&mut self) {
        if self.older.is_empty() {
            self.turn_over();
        }
        self.older.pop();
    }

    fn turn_over(&mut self) {
        let mut summary = Summary::EMPTY;
        for (at, sample) in self.newer.drain(..).rev() {
            summary = summary.with(sample);
            self.older.push((at, summary));
        }
        self.newer_summary = Summary::EMPTY;
    }
}

#[derive(Debug, Clone, Copy)]
struct Summary {
    sum: f64,
    min: f64,
    max: f64,
}

impl Summary {
    const EMPTY: Self = Self {
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
    };

    fn with(self, sample: f64) -> Self {
        self.merged(Self {
            sum: sample,
            min: sample,
            max: sample,
        })
    }

    fn merged(self, other: Self) -> Self {
        Self {
            sum: (self.sum + other.sum).clamp(f64::MIN, f64::MAX),
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn window(capacity: usize) -> SlidingWindow {
        SlidingWindow::new(NonZeroUsize::new(capacity).unwrap())
    }

    #[test]
    fn an_absurd_sample_leaves_no_trace_once_it_is_gone() {
        let mut window = window(2);
        for sample in [1e300, 1.0, 2.0] {
            window.on_sample(Timestamp::ZERO, sample);
        }
        assert_eq!(window.mean(), Some(1.5));
    }

    #[test]
    fn empty_before_the_first_sample_and_after_the_last_expired() {
        let mut window = window(8).with_span(Duration::from_secs(1));
        assert_eq!(window.mean(), None);
        window.on_sample(Timestamp::ZERO, 1.0);
        window.on_sample(Timestamp::ZERO, f64::NAN);
        assert_eq!((window.len(), window.bad_samples()), (1, 1));
        window.expire(Timestamp::from_secs_f64(1.5));
        assert_eq!((window.min(), window.max()), (None, None));
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_queue(
            capacity in 1_usize..12,
            span_s in 1_u64..20,
            samples in prop::collection::vec((0_u64..5, -100.0..100.0_f64), 1..200),
        ) {
            let mut window = window(capacity).with_span(Duration::from_secs(span_s));
            let mut queue: VecDeque<(u64, f64)> = VecDeque::new();
            let mut now_s = 0;
            for (gap_s, sample) in samples {
                now_s += gap_s;
                window.on_sample(Timestamp::from_nanos(now_s * 1_000_000_000), sample);
                queue.push_back((now_s, sample));
                queue.retain(|&(at, _)| now_s - at <= span_s);
                while queue.len() > capacity {
                    queue.pop_front();
                }
                let values: Vec<f64> = queue.iter().map(|entry| entry.1).collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                prop_assert!((window.mean().unwrap() - mean).abs() < 1e-9);
                prop_assert_eq!(window.min(), values.iter().copied().reduce(f64::min));
                prop_assert_eq!(window.max(), values.iter().copied().reduce(f64::max));
            }
        }
    }
}
