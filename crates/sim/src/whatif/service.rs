//! The service behind a recording: how many requests a replica works on at once, in which order,
//! and what each request was worth of work.
//!
//! A recording has when a request entered its replica and when it left. With `c` workers and one
//! queue inside the replica (first come, first served) the work is the time since the request got
//! a worker; with `c` cores shared by all inside it is the time integral of `min(1, c / k)`, `k`
//! requests being inside. Both follow from the recorded times alone, for each `c`. Of the right
//! `c` the work does not depend on how many were inside: with too many workers assumed, work seems
//! to grow with concurrency, with too few it seems to shrink. So `c` and the order are chosen by
//! the correlation of work and concurrency, within seconds, so that a change of the speed is not
//! taken for one of concurrency.
//!
//! What breaks it: a replica that was never full has shown no bound (`capacity_seen`); requests
//! of other proxies in the same replica; work that really depends on concurrency (thrashing) is
//! taken for sharing.
//!
//! Before that a queue is looked for by something sharper. Of too few workers assumed some requests
//! leave before their turn, one in `c` when work varies and one worker too few is assumed; of
//! enough none does. Where that share falls away from one number to the next, these are the
//! workers. A window in force that keeps concurrency nearly constant leaves the correlation without
//! force, and this as it is.
//!
//! Decision: docs/decisions/0146-queue-or-sharing.md.
//! Decision: docs/decisions/0246-workers-by-overtaking.md.

use std::collections::VecDeque;

/// A stay of a request in a replica, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stay {
    /// When it entered.
    pub from: f64,
    /// When it left.
    pub to: f64,
}

/// How requests inside a replica get at its workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One after the other, in the order in which they came.
    Queue,
    /// All at once, each with its part.
    Sharing,
}

/// What was learned of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaModel {
    /// Requests it works on at full speed at once.
    pub workers: u32,
    /// How they get at it.
    pub order: Order,
    /// Whether it was ever full, so that its bound shows.
    pub capacity_seen: bool,
    /// Work of each stay in seconds, in the order given.
    pub works: Vec<f64>,
}

/// Stays needed to tell a bound from chance.
const STAYS_MIN: usize = 100;
/// Correlations within this many standard errors of 0 are none.
const Z: f64 = 2.5;
/// Of the requests that wait inside a queue this many may seem to leave before their turn, because
/// times are rounded.
const OVERTAKING_MAX: f64 = 0.05;
/// Requests that should leave before their turn, going by one number of workers, for their absence
/// at the next to show where the bound is. Chosen: far more than chance makes of none.
const OVERTAKING_EXPECTED_MIN: f64 = 20.0;
/// Share of them that may be left.
const OVERTAKING_LEFT_MAX: f64 = 0.25;
/// Work is at least this: a clock's unit.
const WORK_MIN_S: f64 = 1e-6;

/// Learns a replica from its stays, which are in the order of `from`.
#[must_use]
pub fn learn(stays: &[Stay]) -> ReplicaModel {
    let inside = concurrency(stays);
    let most = inside.iter().copied().max().unwrap_or(1);
    if let Some(workers) = bound_of_queue(stays, &candidates(most)) {
        return ReplicaModel {
            workers,
            order: Order::Queue,
            capacity_seen: true,
            works: works(stays, workers, Order::Queue),
        };
    }
    let unbounded = || works(stays, most, Order::Queue);
    let noise = Z / (stays.len().max(1) as f64).sqrt();
    let free = correlation(stays, &inside, &unbounded());
    if stays.len() < STAYS_MIN || most < 2 || free < noise {
        return ReplicaModel {
            workers: most,
            order: Order::Queue,
            capacity_seen: false,
            works: unbounded(),
        };
    }
    let candidates = candidates(most);
    let judged = |order: Order| -> Vec<(f64, u32, Vec<f64>)> {
        let judged = candidates.iter().map(|&workers| {
            let works = works(stays, workers, order);
            (correlation(stays, &inside, &works).abs(), workers, works)
        });
        judged.collect()
    };
    // A queue is contradicted by requests that left before their turn. Sharing is by nothing, so it
    // is believed only if it explains concurrency better than any queue that is not contradicted.
    let mut queues = judged(Order::Queue);
    queues.retain(|(_, workers, _)| overtaking(stays, *workers) <= OVERTAKING_MAX);
    let best = |judged: Vec<(f64, u32, Vec<f64>)>| {
        let judged = judged.into_iter();
        judged.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (queue, sharing) = (best(queues), best(judged(Order::Sharing)));
    let order = match (&queue, &sharing) {
        (None, Some(_)) => Order::Sharing,
        (Some(queue), Some(sharing)) if sharing.0 + noise < queue.0 => Order::Sharing,
        _ => Order::Queue,
    };
    let chosen = if order == Order::Queue {
        queue
    } else {
        sharing
    };
    let (_, workers, works) = chosen.unwrap_or_else(|| (0.0, most, unbounded()));
    ReplicaModel {
        workers,
        order,
        capacity_seen: true,
        works,
    }
}

/// The workers of a queue, where the share of requests that leave before their turn falls away: the
/// last number at which it does. None where it nowhere does: a shared replica, equal works, or a
/// bound that was never reached.
fn bound_of_queue(stays: &[Stay], candidates: &[u32]) -> Option<u32> {
    let mut found = None;
    let mut share_before = 0.0;
    for &workers in candidates {
        let (_, waited, overtook) = works_queued(stays, workers);
        let expected = share_before * waited as f64;
        let fell = overtook as f64 <= OVERTAKING_LEFT_MAX * expected;
        let share = overtook as f64 / waited.max(1) as f64;
        if expected >= OVERTAKING_EXPECTED_MIN && fell && share <= OVERTAKING_MAX {
            found = Some(workers);
        }
        share_before = share;
    }
    found
}

/// All small numbers, then steps of a tenth.
fn candidates(most: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut next = 1;
    while next <= most {
        all.push(next);
        next += (next / 10).max(1);
    }
    all
}

/// Requests inside when each enters, itself included.
fn concurrency(stays: &[Stay]) -> Vec<u32> {
    let mut ends = std::collections::BinaryHeap::new();
    let mut counts = Vec::with_capacity(stays.len());
    for stay in stays {
        let key = |seconds: f64| std::cmp::Reverse((seconds * 1e9) as u64);
        while ends.peek().is_some_and(|&end| end >= key(stay.from)) {
            ends.pop();
        }
        ends.push(key(stay.to));
        counts.push(u32::try_from(ends.len()).unwrap_or(u32::MAX));
    }
    counts
}

/// Work of each stay with this many workers.
#[must_use]
pub fn works(stays: &[Stay], workers: u32, order: Order) -> Vec<f64> {
    match order {
        Order::Queue => works_queued(stays, workers).0,
        Order::Sharing => works_shared(stays, workers),
    }
}

/// Of the requests that would wait inside a queue, the share that left before their turn.
fn overtaking(stays: &[Stay], workers: u32) -> f64 {
    let (_, waited, overtook) = works_queued(stays, workers);
    overtook as f64 / waited.max(1) as f64
}

/// A request gets a worker when fewer than `workers` of those before it are left. With the works:
/// how many waited for one, and how many of these left before they got one.
fn works_queued(stays: &[Stay], workers: u32) -> (Vec<f64>, usize, usize) {
    let (mut waited, mut overtook) = (0, 0);
    let mut ends: Vec<(f64, usize)> = stays
        .iter()
        .enumerate()
        .map(|(index, stay)| (stay.to, index))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut begins = vec![f64::NAN; stays.len()];
    let mut queue: VecDeque<usize> = VecDeque::new();
    let (mut busy, mut next_end) = (0_u32, 0);
    let mut end_before =
        |until: f64, busy: &mut u32, queue: &mut VecDeque<usize>, begins: &mut [f64]| {
            while let Some(&(at, index)) = ends.get(next_end)
                && at <= until
            {
                next_end += 1;
                if begins[index].is_nan() {
                    // It left while it seemed to wait: times are rounded, and it had next to no
                    // work.
                    begins[index] = stays[index].to;
                    overtook += 1;
                    queue.retain(|&waiting| waiting != index);
                    continue;
                }
                *busy -= 1;
                if let Some(first) = queue.pop_front() {
                    begins[first] = at;
                    *busy += 1;
                }
            }
        };
    for (index, stay) in stays.iter().enumerate() {
        end_before(stay.from, &mut busy, &mut queue, &mut begins);
        if busy < workers {
            busy += 1;
            begins[index] = stay.from;
        } else {
            queue.push_back(index);
            waited += 1;
        }
    }
    end_before(f64::INFINITY, &mut busy, &mut queue, &mut begins);
    let work = |(stay, &begin): (&Stay, &f64)| (stay.to - begin.max(stay.from)).max(WORK_MIN_S);
    let works = stays.iter().zip(&begins).map(work).collect();
    (works, waited, overtook)
}

/// `∫ min(1, workers / k) dt` over the stay.
fn works_shared(stays: &[Stay], workers: u32) -> Vec<f64> {
    let mut moments: Vec<(f64, bool, usize)> = Vec::with_capacity(2 * stays.len());
    for (index, stay) in stays.iter().enumerate() {
        moments.push((stay.from, true, index));
        moments.push((stay.to, false, index));
    }
    // At the same moment those who leave go first.
    moments.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut inside, mut progress, mut last) = (0_i64, 0.0, 0.0);
    let mut begun = vec![0.0; stays.len()];
    let mut works = vec![WORK_MIN_S; stays.len()];
    for (at, enters, index) in moments {
        if inside > 0 {
            progress += (at - last) * (f64::from(workers) / inside as f64).min(1.0);
        }
        last = at;
        if enters {
            inside += 1;
            begun[index] = progress;
        } else {
            inside -= 1;
            works[index] = (progress - begun[index]).max(WORK_MIN_S);
        }
    }
    works
}

/// Correlation of log work with concurrency, both less their means of the same seconds.
fn correlation(stays: &[Stay], inside: &[u32], works: &[f64]) -> f64 {
    const SECONDS: f64 = 5.0;
    let second = |stay: &Stay| (stay.from / SECONDS) as u64;
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    let mut begin = 0;
    while begin < stays.len() {
        let here = second(&stays[begin]);
        let length = stays[begin..]
            .iter()
            .take_while(|stay| second(stay) == here)
            .count();
        let part = begin..begin + length;
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / length as f64;
        let x_mean = mean(&mut inside[part.clone()].iter().map(|&k| f64::from(k)));
        let y_mean = mean(&mut works[part.clone()].iter().map(|work| work.ln()));
        for index in part {
            let x = f64::from(inside[index]) - x_mean;
            let y = works[index].ln() - y_mean;
            xy += x * y;
            xx += x * x;
            yy += y * y;
        }
        begin += length;
    }
    if xx > 0.0 && yy > 0.0 {
        xy / (xx * yy).sqrt()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;
    use crate::service::unit_exponential;

    /// A replica with a queue, Poisson arrivals at `load` times its capacity, work of 20 ms.
    fn queued(workers: usize, load: f64, count: usize) -> (Vec<Stay>, Vec<f64>) {
        let mut rng = Streams::new(workers as u64).stream("test");
        let rate = load * workers as f64 / 0.02;
        let mut free = vec![0.0_f64; workers];
        let mut at = 0.0;
        let mut all = Vec::new();
        for _ in 0..count {
            at += unit_exponential(&mut rng) / rate;
            let work = 0.02 * unit_exponential(&mut rng);
            let first = (0..workers)
                .min_by(|&a, &b| free[a].total_cmp(&free[b]))
                .unwrap();
            let begin = free[first].max(at);
            free[first] = begin + work;
            all.push((
                Stay {
                    from: at,
                    to: begin + work,
                },
                work,
            ));
        }
        all.into_iter().unzip()
    }

    #[test]
    fn work_of_a_queue_is_recovered_exactly() {
        let (stays, truth) = queued(4, 0.9, 2000);
        for (found, truth) in works(&stays, 4, Order::Queue).iter().zip(&truth) {
            assert!((found - truth).abs() < 1e-6, "{found} {truth}");
        }
    }

    /// A window in force that is always full: closed loop of `window` requests before `workers`.
    fn held(workers: usize, window: usize, count: usize) -> Vec<Stay> {
        let mut rng = Streams::new(7).stream("test");
        let mut free = vec![0.0_f64; workers];
        let mut slots = vec![0.0_f64; window];
        let mut stays = Vec::new();
        for _ in 0..count {
            let first = |times: &[f64]| {
                let at = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b]));
                at.unwrap()
            };
            let (slot, worker) = (first(&slots), first(&free));
            let from = slots[slot];
            free[worker] = free[worker].max(from) + 0.02 * unit_exponential(&mut rng);
            slots[slot] = free[worker];
            stays.push(Stay {
                from,
                to: free[worker],
            });
        }
        stays.sort_by(|a, b| a.from.total_cmp(&b.from));
        stays
    }

    #[test]
    fn workers_are_found_behind_a_window_that_is_always_full() {
        for (workers, window) in [(2, 4), (6, 8), (6, 20), (16, 20)] {
            let model = learn(&held(workers, window, 5000));
            assert_eq!(model.order, Order::Queue, "{workers} of {window}");
            assert_eq!(model.workers as usize, workers, "window {window}");
        }
    }

    #[test]
    fn workers_of_a_queue_are_found() {
        for (workers, load) in [(1, 0.7), (4, 0.9), (16, 0.97)] {
            let model = learn(&queued(workers, load, 20_000).0);
            let found = f64::from(model.workers) / workers as f64;
            assert!(
                model.capacity_seen && model.order == Order::Queue,
                "{workers}: {model:.0?}"
            );
            assert!((0.9..=1.1).contains(&found), "{workers}: {}", model.workers);
        }
    }

    /// A replica that shares its cores, Poisson arrivals, exponential work of 20 ms.
    fn shared(cores: f64, load: f64, count: usize) -> Vec<Stay> {
        let mut rng = Streams::new(3).stream("test");
        let rate = load * cores / 0.02;
        let mut inside: Vec<(f64, f64)> = Vec::new();
        let (mut at, mut stays) = (0.0, Vec::new());
        while stays.len() < count {
            let mut left = unit_exponential(&mut rng) / rate;
            while let Some(next) =
                (0..inside.len()).min_by(|&a, &b| inside[a].1.total_cmp(&inside[b].1))
            {
                let speed = (cores / inside.len() as f64).min(1.0);
                let step = (inside[next].1 / speed).min(left);
                inside.iter_mut().for_each(|job| job.1 -= step * speed);
                (at, left) = (at + step, left - step);
                if inside[next].1 > 1e-12 {
                    break;
                }
                let from = inside.swap_remove(next).0;
                stays.push(Stay { from, to: at });
            }
            at += left;
            inside.push((at, 0.02 * unit_exponential(&mut rng)));
        }
        stays.sort_by(|a, b| a.from.total_cmp(&b.from));
        stays
    }

    #[test]
    fn sharing_is_told_from_a_queue() {
        for (cores, load) in [(1.0, 0.8), (4.0, 0.9), (8.0, 0.95)] {
            let model = learn(&shared(cores, load, 20_000));
            assert_eq!(model.order, Order::Sharing, "{cores}: {}", model.workers);
            let found = f64::from(model.workers) / cores;
            assert!((0.7..=1.3).contains(&found), "{cores}: {}", model.workers);
        }
    }

    #[test]
    fn a_replica_that_was_never_full_shows_no_bound() {
        let model = learn(&queued(64, 0.3, 5000).0);
        assert!(!model.capacity_seen);
    }
}
