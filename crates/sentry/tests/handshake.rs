//! The handshake between waiters that park and slots that come free, in all interleavings.
//!
//! The header of `engine/mod.rs` argues that a free slot and a waiter never miss each other: who
//! frees a slot looks at the number of waiters after it gave the slot back, and who parks looks
//! for a slot again after it was counted. Here the argument is a model with the same steps on the
//! same atomics, and `shuttle` runs it in every interleaving. (`loom` knows weaker orders, but not
//! sequential consistency, which this handshake needs: it finds the two passing each other.) The
//! models without one of the two looks have to fail, or the check would prove nothing.
//!
//! `Sentry::enter`, `park` and `dispatch` are the steps in the engine.

use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

/// Which of the two looks are taken.
#[derive(Clone, Copy)]
struct Looks {
    parks: bool,
    frees: bool,
}

const BOTH: Looks = Looks {
    parks: true,
    frees: true,
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
        if self.looks.parks && queue.is_empty() && self.take() {
            self.parked.fetch_sub(1, Ordering::SeqCst);
            self.admitted.lock().expect("no thread panics").push(id);
            return;
        }
        queue.push(id);
    }

    /// Gives the slot back and resolves whoever can go.
    fn free(&self) {
        self.taken.store(0, Ordering::SeqCst);
        if !self.looks.frees {
            return;
        }
        while self.parked.load(Ordering::SeqCst) > 0 {
            let mut queue = self.queue.lock().expect("no thread panics");
            if queue.is_empty() || !self.take() {
                return;
            }
            let first = queue.remove(0);
            self.parked.fetch_sub(1, Ordering::SeqCst);
            self.admitted.lock().expect("no thread panics").push(first);
        }
    }

    /// Nobody waits beside a free slot.
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
            engine.free();
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
            engine.free();
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

#[test]
#[should_panic(expected = "a slot is free and a waiter parked")]
fn without_the_second_look_of_a_waiter_they_miss_each_other() {
    one_parks_while_one_frees(Looks {
        parks: false,
        ..BOTH
    });
}

#[test]
#[should_panic(expected = "a slot is free and a waiter parked")]
fn without_the_look_of_whoever_frees_they_miss_each_other() {
    one_parks_while_one_frees(Looks {
        frees: false,
        ..BOTH
    });
}
