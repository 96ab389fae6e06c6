//! The handshake between waiters that park and slots that come free, in all interleavings.
//!
//! The header of `engine/mod.rs` argues that a free slot and a waiter never miss each other: a
//! caller that frees a slot takes resolutions after it gave the slot back, and a request that parks
//! looks for a slot again after it was counted. Here the argument is a model with the same steps on
//! the same atomics, and `shuttle` runs it in every interleaving. (`loom` knows weaker orders, but
//! not sequential consistency, which this handshake needs: it finds the two passing each other.)
//! The models without one of the two looks have to fail, or the check would prove nothing.
//!
//! `Sentry::enter`, `park`, `end` and `Resolutions::next` are the steps in the engine. Freeing a
//! slot and taking resolutions are two steps, between which anything can happen.

use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

/// Which of the two looks are made.
#[derive(Clone, Copy)]
struct Looks {
    /// A request that parks looks for a slot again.
    parking: bool,
    /// A driver takes the resolutions of its call.
    taking: bool,
}

const BOTH: Looks = Looks {
    parking: true,
    taking: true,
};

/// One slot and a queue.
struct Engine {
    looks: Looks,
    taken: AtomicU32,
    parked: AtomicU32,
    queue: Mutex<Vec<u32>>,
    admitted: Mutex<Vec<u32>>,
}

impl Engine {
    /// The slot is taken already.
    fn full(looks: Looks) -> Arc<Self> {
        Arc::new(Self {
            looks,
            taken: AtomicU32::new(1),
            parked: AtomicU32::new(0),
            queue: Mutex::new(Vec::new()),
            admitted: Mutex::new(Vec::new()),
        })
    }

    fn take(&self) -> bool {
        let taken = self
            .taken
            .compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok()
    }

    /// Admits or parks.
    fn arrive(&self, id: u32) {
        if self.parked.load(Ordering::SeqCst) == 0 && self.take() {
            self.admitted.lock().expect("no thread panics").push(id);
            return;
        }
        let mut queue = self.queue.lock().expect("no thread panics");
        self.parked.fetch_add(1, Ordering::SeqCst);
        if self.looks.parking && queue.is_empty() && self.take() {
            self.parked.fetch_sub(1, Ordering::SeqCst);
            self.admitted.lock().expect("no thread panics").push(id);
            return;
        }
        queue.push(id);
    }

    /// Gives the slot back: the call itself.
    fn free(&self) {
        self.taken.store(0, Ordering::SeqCst);
    }

    /// One step of the call's resolutions.
    fn resolve_one(&self) -> Option<u32> {
        if self.parked.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut queue = self.queue.lock().expect("no thread panics");
        if queue.is_empty() || !self.take() {
            return None;
        }
        self.parked.fetch_sub(1, Ordering::SeqCst);
        Some(queue.remove(0))
    }

    /// What a driver does when a request ends: the call, then its resolutions to their end.
    fn end(&self) {
        self.free();
        if self.looks.taking {
            std::iter::from_fn(|| self.resolve_one())
                .for_each(|id| self.admitted.lock().expect("no thread panics").push(id));
        }
    }

    /// No request waits beside a free slot.
    fn assert_none_missed(&self) {
        let waiting = self.queue.lock().expect("no thread panics").len();
        let free = self.taken.load(Ordering::SeqCst) == 0;
        assert!(!(free && waiting > 0), "a slot is free and a waiter parked");
        assert_eq!(self.parked.load(Ordering::SeqCst) as usize, waiting);
    }
}

fn one_parks_while_one_frees(looks: Looks) {
    shuttle::check_dfs(
        move || {
            let engine = Engine::full(looks);
            let arriving = Arc::clone(&engine);
            let arrival = thread::spawn(move || arriving.arrive(1));
            engine.end();
            arrival.join().expect("no thread panics");
            engine.assert_none_missed();
        },
        None,
    );
}

#[test]
fn waiter_and_free_slot_never_miss_each_other() {
    one_parks_while_one_frees(BOTH);
}

#[test]
fn two_arrivals_and_an_end_leave_no_free_slot_beside_a_waiter() {
    shuttle::check_dfs(
        || {
            let engine = Engine::full(BOTH);
            let arrivals = [1, 2].map(|id| {
                let engine = Arc::clone(&engine);
                thread::spawn(move || engine.arrive(id))
            });
            engine.end();
            for arrival in arrivals {
                arrival.join().expect("no thread panics");
            }
            engine.assert_none_missed();
            assert_eq!(engine.admitted.lock().expect("no thread panics").len(), 1);
        },
        // All interleavings of three threads take minutes.
        Some(20_000),
    );
}

/// A driver leaves the resolutions of a call to another call: whichever is taken to its end last
/// finds what is free.
#[test]
fn resolutions_that_one_driver_leaves_are_taken_by_the_next() {
    shuttle::check_dfs(
        || {
            let engine = Engine::full(BOTH);
            engine.arrive(1);
            let leaving = Arc::clone(&engine);
            let left = thread::spawn(move || leaving.free());
            let arriving = Arc::clone(&engine);
            let arrival = thread::spawn(move || arriving.arrive(2));
            left.join().expect("no thread panics");
            while let Some(id) = engine.resolve_one() {
                engine.admitted.lock().expect("no thread panics").push(id);
            }
            arrival.join().expect("no thread panics");
            engine.assert_none_missed();
            assert_eq!(engine.admitted.lock().expect("no thread panics").len(), 1);
        },
        // As above.
        Some(20_000),
    );
}

#[test]
#[should_panic(expected = "a slot is free and a waiter parked")]
fn without_the_second_look_of_a_waiter_they_miss_each_other() {
    one_parks_while_one_frees(Looks {
        parking: false,
        ..BOTH
    });
}

#[test]
#[should_panic(expected = "a slot is free and a waiter parked")]
fn without_taking_resolutions_they_miss_each_other() {
    one_parks_while_one_frees(Looks {
        taking: false,
        ..BOTH
    });
}
