//! When which class is examined (003 §3.1): class `i` every `d_i`.

use std::time::Duration;

use tidegate_control::Timestamp;

/// The next examination of each class.
#[derive(Debug, Default)]
pub(crate) struct Exams {
    next: Vec<Timestamp>,
}

impl Exams {
    /// Whether a class is to be examined now; if so, its next examination is `delay` later. A
    /// delay that became shorter takes effect at once.
    pub(crate) fn due(&mut self, class: usize, delay: Duration, now: Timestamp) -> bool {
        self.schedule(class, delay, now);
        let due = now >= self.next[class];
        if due {
            self.next[class] = now + delay;
        }
        due
    }

    fn schedule(&mut self, class: usize, delay: Duration, now: Timestamp) {
        if self.next.len() <= class {
            self.next.resize(class + 1, now + delay);
        }
        self.next[class] = self.next[class].min(now + delay);
    }

    /// When a class of which a request is held now is examined next.
    pub(crate) fn of(&mut self, class: usize, delay: Duration, now: Timestamp) -> Timestamp {
        self.schedule(class, delay, now);
        self.next[class]
    }

    /// When the next examination is due among classes that have a delay.
    pub(crate) fn next(&self, delays: impl Iterator<Item = Duration>) -> Option<Timestamp> {
        let held = self
            .next
            .iter()
            .zip(delays)
            .filter(|(_, delay)| !delay.is_zero());
        held.map(|(next, _)| *next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn every_delay_and_sooner_when_it_shrinks() {
        let (mut exams, delay) = (Exams::default(), Duration::from_millis(50));
        assert!(!exams.due(0, delay, at(0)));
        assert!(!exams.due(0, delay, at(49)));
        assert!(exams.due(0, delay, at(50)));
        assert_eq!(exams.next([delay].into_iter()), Some(at(100)));
        assert!(!exams.due(0, Duration::from_millis(10), at(60)));
        assert!(exams.due(0, Duration::from_millis(10), at(70)));
        assert!(exams.due(0, Duration::ZERO, at(71)), "no delay: always");
        assert_eq!(exams.next([Duration::ZERO].into_iter()), None);
    }
}
