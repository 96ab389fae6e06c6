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
//! of other proxies in the same replica; a window in force that keeps concurrency where the replica
//! does not thrash.
//!
//! Thrashing is looked for where cores are shared: completions per second by the number of requests
//! inside. Where they fall by more than chance from their highest value, the curve of
//! [`Penalty`] is fitted to them, and work is the time integral with it.
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

use crate::server::Penalty;

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
    /// What concurrency costs there, where that was seen.
    pub penalty: Option<Penalty>,
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
            penalty: None,
            capacity_seen: true,
            works: works(stays, workers, Order::Queue),
        };
    }
    if let Some((workers, penalty)) = thrashing(stays) {
        return ReplicaModel {
            workers,
            order: Order::Sharing,
            penalty: Some(penalty),
            capacity_seen: true,
            works: works_shared(stays, workers, Some(penalty)),
        };
    }
    let unbounded = || works(stays, most, Order::Queue);
    let noise = Z / (stays.len().max(1) as f64).sqrt();
    let free = correlation(stays, &inside, &unbounded());
    if stays.len() < STAYS_MIN || most < 2 || free < noise {
        return ReplicaModel {
            workers: most,
            order: Order::Queue,
            penalty: None,
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
        penalty: None,
        capacity_seen: true,
        works,
    }
}

/// Time and completions at numbers of requests inside that are alike.
#[derive(Debug, Clone, Copy, Default)]
struct Busy {
    /// Mean number inside.
    inside: f64,
    seconds: f64,
    done: f64,
}

impl Busy {
    fn rate(&self) -> f64 {
        self.done / self.seconds
    }
}

/// Completions that a group of numbers inside needs.
const GROUP_DONE_MIN: f64 = 100.0;
/// Throughput falls to less than this share of its highest value, where it thrashes.
const THRASHING_MAX: f64 = 0.85;
/// By this many standard errors.
const THRASHING_Z: f64 = 5.0;
/// Times that it has to fill up, so that it is not a change of its speed.
const FILLED_MIN: u32 = 5;

/// When requests entered and left; those who leave at a moment go first.
fn moments(stays: &[Stay]) -> Vec<(f64, bool)> {
    let mut moments: Vec<(f64, bool)> = Vec::with_capacity(2 * stays.len());
    for stay in stays {
        moments.push((stay.from, true));
        moments.push((stay.to, false));
    }
    moments.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    moments
}

/// How often the number inside rose from `low` or less to `high` or more. A replica that becomes
/// slow fills once, and one that thrashes fills whenever more come.
fn times_filled(moments: &[(f64, bool)], low: f64, high: f64) -> u32 {
    let (mut inside, mut was_low, mut count) = (0.0, false, 0);
    for &(_, enters) in moments {
        inside += if enters { 1.0 } else { -1.0 };
        was_low |= inside <= low;
        if was_low && inside >= high {
            count += 1;
            was_low = false;
        }
    }
    count
}

/// Completions by the number inside, in groups that have enough of them.
fn throughput(moments: &[(f64, bool)]) -> Vec<Busy> {
    let mut by_inside: Vec<(f64, f64)> = Vec::new();
    let (mut inside, mut last) = (0_usize, 0.0);
    for &(at, enters) in moments {
        if by_inside.len() <= inside {
            by_inside.resize(inside + 1, (0.0, 0.0));
        }
        by_inside[inside].0 += at - last;
        by_inside[inside].1 += f64::from(u8::from(!enters));
        last = at;
        inside = if enters {
            inside + 1
        } else {
            inside.saturating_sub(1)
        };
    }
    let mut groups = Vec::new();
    let mut group = Busy::default();
    for (inside, &(seconds, done)) in by_inside.iter().enumerate().skip(1) {
        group.inside += inside as f64 * seconds;
        group.seconds += seconds;
        group.done += done;
        if group.done >= GROUP_DONE_MIN {
            group.inside /= group.seconds.max(1e-9);
            groups.push(std::mem::take(&mut group));
        }
    }
    groups
}

/// Cores and the cost of concurrency of a replica whose throughput falls with it.
fn thrashing(stays: &[Stay]) -> Option<(u32, Penalty)> {
    let moments = moments(stays);
    let groups = throughput(&moments);
    let best = groups.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()))?;
    let last = groups.last()?;
    let error = |group: &Busy| group.rate() / group.done.sqrt();
    let fall = best.rate() - last.rate();
    let chance = error(best).hypot(error(last));
    if last.rate() > THRASHING_MAX * best.rate()
        || fall < THRASHING_Z * chance
        || times_filled(&moments, best.inside, last.inside) < FILLED_MIN
    {
        return None;
    }
    let most = last.inside.ceil() as u32;
    let knees = candidates(most);
    let slopes: Vec<f64> = (0..40).map(|step| 0.002 * 1.2_f64.powi(step)).collect();
    let mut found: Option<(f64, u32, Penalty)> = None;
    for &cores in &knees {
        for &knee in knees.iter().filter(|knee| **knee >= cores) {
            for &slope in &slopes {
                let penalty = Penalty { knee, slope };
                let misfit = misfit(&groups, cores, penalty);
                if found.is_none_or(|(least, ..)| misfit < least) {
                    found = Some((misfit, cores, penalty));
                }
            }
        }
    }
    found.map(|(_, cores, penalty)| (cores, penalty))
}

/// Cores at work for each request of which `inside` there are.
fn pace(inside: f64, cores: u32, penalty: Option<Penalty>) -> f64 {
    let share = (f64::from(cores) / inside).min(1.0);
    share * penalty.map_or(1.0, |penalty| penalty.speed_at(inside))
}

/// Squares of what the curve misses, in standard errors, with the best height of it.
fn misfit(groups: &[Busy], cores: u32, penalty: Penalty) -> f64 {
    let curve = |group: &Busy| group.inside * pace(group.inside, cores, Some(penalty));
    let weight = |group: &Busy| group.seconds.powi(2) / group.done;
    let sum = |of: &dyn Fn(&Busy) -> f64| groups.iter().map(of).sum::<f64>();
    let height = sum(&|it| weight(it) * curve(it) * it.rate())
        / sum(&|it| weight(it) * curve(it).powi(2)).max(f64::MIN_POSITIVE);
    sum(&|it| weight(it) * (it.rate() - height * curve(it)).powi(2))
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
        Order::Sharing => works_shared(stays, workers, None),
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

/// `∫ min(1, workers / k) dt` over the stay, times what concurrency costs.
fn works_shared(stays: &[Stay], workers: u32, penalty: Option<Penalty>) -> Vec<f64> {
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
            progress += (at - last) * pace(inside as f64, workers, penalty);
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

    fn shared(cores: f64, load: f64, count: usize) -> Vec<Stay> {
        shared_with(cores, load, (count, usize::MAX), |_| 1.0)
    }

    /// The same with at most `most` inside; `cost` is the speed by the number inside.
    fn shared_with(
        cores: f64,
        load: f64,
        (count, most): (usize, usize),
        cost: impl Fn(usize) -> f64,
    ) -> Vec<Stay> {
        let mut rng = Streams::new(3).stream("test");
        let rate = load * cores / 0.02;
        let mut inside: Vec<(f64, f64)> = Vec::new();
        let (mut at, mut stays) = (0.0, Vec::new());
        while stays.len() < count {
            let mut left = unit_exponential(&mut rng) / rate;
            while let Some(next) =
                (0..inside.len()).min_by(|&a, &b| inside[a].1.total_cmp(&inside[b].1))
            {
                let speed = (cores / inside.len() as f64).min(1.0) * cost(inside.len());
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
            if inside.len() < most {
                inside.push((at, 0.02 * unit_exponential(&mut rng)));
            }
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
    fn thrashing_is_found_with_its_curve() {
        // At 12 inside throughput has fallen to 4 / 1.4 cores.
        let truth = Penalty {
            knee: 4,
            slope: 0.05,
        };
        // With 14 inside it does hardly less than arrives, so that it fills and empties.
        let cost = |inside: usize| truth.speed_at(inside as f64);
        let stays = shared_with(4.0, 0.7, (20_000, 14), cost);
        let model = learn(&stays);
        let penalty = model.penalty.expect("it thrashes");
        assert_eq!(model.order, Order::Sharing);
        for inside in [2.0, 6.0, 12.0] {
            let found = pace(inside, model.workers, Some(penalty)) * inside;
            let right = pace(inside, 4, Some(truth)) * inside;
            // The scale is the works' own: what counts is the shape.
            let scale = pace(4.0, 4, Some(truth)) / pace(4.0, model.workers, Some(penalty));
            let off = found * scale / right - 1.0;
            assert!(
                off.abs() < 0.15,
                "{inside}: {off} {penalty:?} {}",
                model.workers
            );
        }
    }

    #[test]
    fn replica_that_becomes_slow_does_not_thrash() {
        let mut stays = shared(4.0, 0.7, 10_000);
        let last = stays.last().unwrap().to;
        // From here on everything takes half as long again, and more are inside.
        let slow = shared(4.0, 1.02, 10_000);
        let stretched = |at: f64| last + 1.0 + 1.5 * at;
        stays.extend(slow.iter().map(|stay| Stay {
            from: stretched(stay.from),
            to: stretched(stay.to),
        }));
        assert_eq!(learn(&stays).penalty, None);
    }

    #[test]
    fn sharing_and_queues_do_not_thrash() {
        for load in [0.8, 0.95] {
            assert_eq!(learn(&shared(4.0, load, 20_000)).penalty, None, "{load}");
            assert_eq!(learn(&queued(4, load, 20_000).0).penalty, None, "{load}");
        }
        for (workers, window) in [(2, 4), (6, 20)] {
            assert_eq!(
                learn(&held(workers, window, 5000)).penalty,
                None,
                "{window}"
            );
        }
    }

    #[test]
    fn a_replica_that_was_never_full_shows_no_bound() {
        let model = learn(&queued(64, 0.3, 5000).0);
        assert!(!model.capacity_seen);
    }
}
