//! The discrete-event core: a calendar of future events and a loop.
//!
//! Time is [`Timestamp`] (integer nanoseconds), so that "at the same time" is exact; events at the
//! same time happen in the order in which they were scheduled. A run is a function of the model and
//! its seeds alone. The event type is the model's own: nothing is boxed, and memory follows the
//! number of pending events, never the length of the run.
//!
//! What breaks it: a model that keeps scheduling at the current time without end never lets time
//! advance.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_control::Timestamp;
//! use tidegate_sim::engine::{Calendar, Model, run};
//!
//! /// Rings every second, five times.
//! struct Bell(u32);
//!
//! impl Model for Bell {
//!     type Event = ();
//!
//!     fn handle(&mut self, (): (), calendar: &mut Calendar<()>) {
//!         self.0 += 1;
//!         if self.0 < 5 {
//!             calendar.after(Duration::from_secs(1), ());
//!         }
//!     }
//! }
//!
//! let mut bell = Bell(0);
//! let mut calendar = Calendar::new();
//! calendar.at(Timestamp::ZERO, ());
//! run(&mut bell, &mut calendar, Timestamp::from_secs_f64(2.5));
//! assert_eq!(bell.0, 3);
//! ```

mod heap;

use std::time::Duration;

use tidegate_control::Timestamp;

pub(crate) use heap::RankHeap;

use crate::slab::{Key, Slab};

/// A pending event, for [`Calendar::cancel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId(Key);

/// The clock, and what is to happen when.
#[derive(Debug, Clone)]
pub struct Calendar<E> {
    now: Timestamp,
    pending: Slab<E>,
    order: RankHeap,
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Calendar<E> {
    /// An empty calendar at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            now: Timestamp::ZERO,
            pending: Slab::new(),
            order: RankHeap::new(),
        }
    }

    /// The time of the event being handled.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Number of events to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether nothing is to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Schedules `event`; a time in the past means now.
    #[inline]
    pub fn at(&mut self, time: Timestamp, event: E) -> EventId {
        let key = self.pending.insert(event);
        self.order.push(time.max(self.now).as_nanos(), key);
        EventId(key)
    }

    /// Schedules `event` in `delay` from now.
    #[inline]
    pub fn after(&mut self, delay: Duration, event: E) -> EventId {
        self.at(self.now + delay, event)
    }

    /// Takes a pending event back; nothing when it has already happened or was cancelled.
    pub fn cancel(&mut self, id: EventId) -> Option<E> {
        let event = self.pending.remove(id.0)?;
        self.order.bury(&self.pending, self.pending.len());
        Some(event)
    }

    /// The next event no later than `until`; the clock moves to it.
    #[inline]
    fn next(&mut self, until: Timestamp) -> Option<E> {
        if self.order.first()?.0 > until.as_nanos() {
            return None;
        }
        let (time, key) = self.order.pop()?;
        let event = self.pending.remove(key);
        self.order.bury(&self.pending, self.pending.len());
        self.now = Timestamp::from_nanos(time);
        event
    }
}

/// What happens at an event.
pub trait Model {
    /// Everything that can happen in this model.
    type Event;

    /// Lets `event` happen at [`Calendar::now`].
    fn handle(&mut self, event: Self::Event, calendar: &mut Calendar<Self::Event>);
}

/// Lets everything up to and including `until` happen, leaves the clock there, and returns how many
/// events that were.
pub fn run<M: Model>(model: &mut M, calendar: &mut Calendar<M::Event>, until: Timestamp) -> u64 {
    let mut events = 0;
    while let Some(event) = calendar.next(until) {
        model.handle(event, calendar);
        events += 1;
    }
    calendar.now = calendar.now.max(until);
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what happened when.
    #[derive(Default)]
    struct Diary(Vec<(u64, u32)>);

    impl Model for Diary {
        type Event = u32;

        fn handle(&mut self, event: u32, calendar: &mut Calendar<u32>) {
            self.0.push((calendar.now().as_nanos(), event));
        }
    }

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn equal_times_happen_in_insertion_order() {
        let (mut diary, mut calendar) = (Diary::default(), Calendar::new());
        calendar.at(at(5), 1);
        calendar.at(at(3), 2);
        calendar.at(at(5), 3);
        calendar.at(at(3), 4);
        assert_eq!(run(&mut diary, &mut calendar, at(5)), 4);
        assert_eq!(diary.0, [(3, 2), (3, 4), (5, 1), (5, 3)]);
    }

    #[test]
    fn the_end_is_included_and_the_clock_stops_there() {
        let (mut diary, mut calendar) = (Diary::default(), Calendar::new());
        calendar.at(at(10), 1);
        calendar.at(at(11), 2);
        run(&mut diary, &mut calendar, at(10));
        assert_eq!(diary.0, [(10, 1)]);
        assert_eq!(calendar.len(), 1);
        run(&mut diary, &mut calendar, at(20));
        assert_eq!(calendar.now(), at(20));
    }

    #[test]
    fn the_past_is_now() {
        let (mut diary, mut calendar) = (Diary::default(), Calendar::new());
        run(&mut diary, &mut calendar, at(50));
        calendar.at(at(10), 1);
        run(&mut diary, &mut calendar, at(50));
        assert_eq!(diary.0, [(50, 1)]);
    }

    #[test]
    fn a_cancelled_event_does_not_happen() {
        let (mut diary, mut calendar) = (Diary::default(), Calendar::new());
        let first = calendar.at(at(1), 1);
        calendar.at(at(2), 2);
        assert_eq!(calendar.cancel(first), Some(1));
        assert_eq!(calendar.cancel(first), None);
        run(&mut diary, &mut calendar, at(9));
        assert_eq!(diary.0, [(2, 2)]);
    }
}
