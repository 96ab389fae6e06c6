use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_secs_f64(seconds)
}

fn station(cores: u32, slots: Bound) -> Station<u32> {
    Station::new(&StationSpec {
        cores: NonZeroU32::new(cores).unwrap(),
        slots: Some(slots),
        ..StationSpec::default()
    })
}

/// Runs until empty and returns who left when.
fn drain(station: &mut Station<u32>) -> Vec<(f64, u32)> {
    std::iter::from_fn(|| {
        let time = station.next_completion()?;
        Some((time.as_secs_f64(), station.finish(time)?))
    })
    .collect()
}

#[test]
fn one_at_a_time_in_order() {
    let mut fifo = station(1, Bound::Limited(1));
    for (item, work) in [(1, 2.0), (2, 1.0), (3, 0.5)] {
        fifo.arrive(at(0.0), item, work).unwrap();
    }
    assert_eq!((fifo.in_service(), fifo.waiting()), (1, 2));
    assert_eq!(drain(&mut fifo), [(2.0, 1), (3.0, 2), (3.5, 3)]);
    assert_eq!(fifo.busy(at(10.0)), 3.5);
}

#[test]
fn latest_wait_is_that_of_the_job_started_last() {
    let mut fifo = station(1, Bound::Limited(1));
    fifo.arrive(at(0.0), 1, 2.0).unwrap();
    assert_eq!(fifo.latest_wait_s(), 0.0);
    fifo.arrive(at(0.5), 2, 1.0).unwrap();
    fifo.finish(at(2.0)).unwrap();
    assert_eq!(fifo.latest_wait_s(), 1.5);
    fifo.finish(at(3.0)).unwrap();
    fifo.arrive(at(4.0), 3, 1.0).unwrap();
    assert_eq!(fifo.latest_wait_s(), 0.0);
}

#[test]
fn sharing_slows_everybody_down() {
    let mut shared = station(1, Bound::Unlimited);
    shared.arrive(at(0.0), 1, 1.0).unwrap();
    shared.arrive(at(0.0), 2, 3.0).unwrap();
    assert_eq!(drain(&mut shared), [(2.0, 1), (4.0, 2)]);
}

#[test]
fn sharing_with_a_cap_queues_behind_it() {
    let mut capped = station(1, Bound::Limited(2));
    for item in 1..=3 {
        capped.arrive(at(0.0), item, 1.0).unwrap();
    }
    assert_eq!(drain(&mut capped), [(2.0, 1), (2.0, 2), (3.0, 3)]);
}

#[test]
fn two_cores_run_two_jobs_at_full_speed_and_share_four() {
    let mut dual = station(2, Bound::Unlimited);
    dual.arrive(at(0.0), 1, 1.0).unwrap();
    dual.arrive(at(0.0), 2, 1.0).unwrap();
    assert_eq!(dual.next_completion(), Some(at(1.0)));
    dual.arrive(at(0.0), 3, 1.0).unwrap();
    dual.arrive(at(0.0), 4, 1.0).unwrap();
    assert_eq!(dual.next_completion(), Some(at(2.0)));
    assert_eq!(dual.busy(at(2.0)), 4.0);
}

#[test]
fn a_change_of_speed_keeps_what_was_done() {
    let mut fifo = station(1, Bound::Limited(1));
    fifo.arrive(at(0.0), 1, 2.0).unwrap();
    fifo.set_speed(at(1.0), 0.5);
    assert_eq!(fifo.next_completion(), Some(at(3.0)));
    fifo.set_speed(at(2.0), 0.0);
    assert_eq!(fifo.next_completion(), None);
    fifo.set_speed(at(10.0), 1.0);
    assert_eq!(fifo.next_completion(), Some(at(10.5)));
}

#[test]
fn a_late_driver_loses_no_work() {
    let mut shared = station(1, Bound::Unlimited);
    shared.arrive(at(0.0), 1, 1.0).unwrap();
    shared.arrive(at(0.0), 2, 2.0).unwrap();
    assert_eq!(shared.finish(at(2.5)), Some(1));
    assert_eq!(shared.next_completion(), Some(at(3.0)));
    assert_eq!(shared.busy(at(3.0)), 3.0);
}

#[test]
fn a_full_queue_refuses() {
    let mut small: Station<u32> =
        Station::new(&StationSpec::default().with_queue(Bound::Limited(1)));
    assert!(small.arrive(at(0.0), 1, 1.0).is_ok());
    assert!(small.arrive(at(0.0), 2, 1.0).is_ok());
    assert_eq!(small.arrive(at(0.0), 3, 1.0), Err(3));
    small.finish(at(1.0));
    assert!(small.arrive(at(1.0), 4, 1.0).is_ok());
}

#[test]
fn concurrency_beyond_the_knee_costs_throughput() {
    let mut thrashing: Station<u32> = Station::new(&StationSpec {
        penalty: Some(Penalty {
            knee: 2,
            slope: 0.5,
        }),
        ..StationSpec::sharing(Bound::Unlimited)
    });
    for item in 0..4 {
        thrashing.arrive(at(0.0), item, 1.0).unwrap();
    }
    assert_eq!(
        thrashing.next_completion(),
        Some(at(8.0)),
        "four shares at half the speed"
    );
}

#[test]
fn who_is_cancelled_leaves_the_capacity_to_the_others() {
    let mut shared = station(1, Bound::Limited(2));
    let first = shared.arrive(at(0.0), 1, 1.0).unwrap();
    shared.arrive(at(0.0), 2, 1.0).unwrap();
    let third = shared.arrive(at(0.0), 3, 1.0).unwrap();
    assert_eq!(shared.cancel(at(1.0), third), Some(3));
    assert_eq!(shared.waiting(), 0);
    assert_eq!(shared.cancel(at(1.0), first), Some(1));
    assert_eq!(shared.cancel(at(1.0), first), None);
    assert_eq!(drain(&mut shared), [(1.5, 2)]);
}

#[test]
fn a_held_slot_is_taken_but_uses_no_core() {
    let mut fifo = station(1, Bound::Limited(1));
    fifo.arrive(at(0.0), 1, 1.0).unwrap();
    fifo.arrive(at(0.0), 2, 1.0).unwrap();
    assert_eq!(fifo.due(at(1.0)), Some(&1));
    let reader = fifo.hold(at(1.0)).unwrap();
    assert_eq!((fifo.in_service(), fifo.waiting()), (0, 1));
    assert_eq!(fifo.next_completion(), None);
    assert_eq!(fifo.cancel(at(5.0), reader), Some(1));
    assert_eq!(drain(&mut fifo), [(6.0, 2)]);
    assert_eq!(fifo.busy(at(6.0)), 2.0);
}

#[test]
fn a_dead_server_gives_everything_up_and_refuses() {
    let mut fifo = station(1, Bound::Limited(1));
    fifo.arrive(at(0.0), 1, 1.0).unwrap();
    fifo.arrive(at(0.0), 2, 1.0).unwrap();
    assert_eq!(fifo.fail(at(0.5)), [1, 2]);
    assert_eq!(fifo.next_completion(), None);
    assert_eq!(fifo.arrive(at(0.6), 3, 1.0), Err(3));
    fifo.restore();
    fifo.arrive(at(1.0), 4, 1.0).unwrap();
    assert_eq!(drain(&mut fifo), [(2.0, 4)]);
    assert_eq!(fifo.busy(at(2.0)), 1.5);
}

#[test]
fn raising_the_cap_lets_waiters_in() {
    let mut capped = station(1, Bound::Limited(1));
    capped.arrive(at(0.0), 1, 1.0).unwrap();
    capped.arrive(at(0.0), 2, 1.0).unwrap();
    capped.set_slots(at(0.5), Bound::Limited(2));
    assert_eq!((capped.in_service(), capped.waiting()), (2, 0));
    assert_eq!(drain(&mut capped), [(1.5, 1), (2.0, 2)]);
}

/// The obvious slow model: every job's remaining work is kept and reduced in small steps.
struct Stepwise {
    cores: f64,
    slots: usize,
    jobs: Vec<(u32, f64)>,
    speed: f64,
}

impl Stepwise {
    fn run(&mut self, seconds: f64, left: &mut Vec<u32>) {
        const STEP: f64 = 1e-3;
        for _ in 0..(seconds / STEP).round() as u32 {
            let n = self.jobs.len().min(self.slots);
            let rate = self.speed * (self.cores / n as f64).min(1.0);
            for (_, work) in self.jobs.iter_mut().take(n) {
                *work -= rate * STEP;
            }
            left.extend(
                self.jobs
                    .iter()
                    .filter(|&&(_, work)| work <= 0.0)
                    .map(|&(item, _)| item),
            );
            self.jobs.retain(|&(_, work)| work > 0.0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, the same jobs leave as in the stepwise model, at nearly the same time:
    /// after any second at most one step's worth of jobs differs.
    #[test]
    fn agrees_with_the_stepwise_model(
        cores in 1u32..4,
        slots in 1u32..5,
        ops in prop::collection::vec((0u8..5, 0.05f64..2.0), 1..40),
    ) {
        let mut fast = station(cores, Bound::Limited(slots.max(cores)));
        let mut slow = Stepwise {
            cores: f64::from(cores),
            slots: slots.max(cores) as usize,
            jobs: Vec::new(),
            speed: 1.0,
        };
        let (mut fast_left, mut slow_left) = (Vec::new(), Vec::new());
        let mut now = 0.0;
        for (item, (op, value)) in (0u32..).zip(ops) {
            match op {
                0 | 1 => {
                    fast.arrive(at(now), item, value).unwrap();
                    slow.jobs.push((item, value));
                }
                2 => {
                    fast.set_speed(at(now), value);
                    slow.speed = value;
                }
                _ => {
                    now += value;
                    while let Some(time) = fast.next_completion().filter(|&t| t <= at(now)) {
                        fast_left.extend(fast.finish(time));
                    }
                    slow.run(value, &mut slow_left);
                }
            }
            prop_assert!(fast.in_service() <= slots.max(cores) as usize);
            prop_assert_eq!(fast.len(), fast.in_service() + fast.waiting());
        }
        let work = |left: &[u32]| left.len() as i64;
        prop_assert!((work(&fast_left) - work(&slow_left)).abs() <= i64::from(slots.max(cores)));
        let busy = fast.busy(at(now));
        // The clock counts nanoseconds, and every event may be rounded by one.
        prop_assert!(busy >= 0.0 && busy <= f64::from(cores) * now + 1e-6);
    }
}
