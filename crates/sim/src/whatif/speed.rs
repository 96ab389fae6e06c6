//! How fast each replica was, by time: its requests' work over that of like requests.
//!
//! Work is compared with the mean of its class and path over the whole recording. Windows of
//! [`WINDOW_S`] are joined while they differ by no more than chance; a replica that differs by less
//! than [`DIFFERENCE_MIN`] from the others, or by chance, is as fast as they are.
//!
//! What breaks it: a path whose requests become dearer makes all replicas seem slower.

use std::collections::HashMap;

use tidegate_record::Request;

use crate::stats::Moments;

/// Length of the windows that are joined.
const WINDOW_S: f64 = 5.0;
/// Requests without which a window is joined whatever it says.
const SAMPLES_MIN: u64 = 20;
/// Two stretches differ if their means do by this many standard errors. Chosen: dozens of windows
/// are compared, of works that are far from normal.
const Z: f64 = 5.0;
/// Changes smaller than this are left in the works themselves.
const DIFFERENCE_MIN: f64 = 0.15;

/// From when on, and how many times as long as usual requests take from then on.
pub(super) type Slowness = Vec<(f64, f64)>;

/// The factor at a time.
pub(super) fn at(slowness: &[(f64, f64)], seconds: f64) -> f64 {
    let from = slowness.partition_point(|part| part.0 <= seconds);
    slowness
        .get(from.saturating_sub(1))
        .map_or(1.0, |part| part.1)
}

/// Of each replica, by the index that `replica` gives for a request.
pub(super) fn learn(
    requests: &[Request],
    works: &[Option<f64>],
    replicas: usize,
    replica: impl Fn(&Request) -> usize,
    seconds: impl Fn(&Request) -> f64,
) -> Vec<Slowness> {
    let mut usual: HashMap<(u16, u64), Moments> = HashMap::new();
    for (request, work) in requests.iter().zip(works) {
        if let Some(work) = work {
            let like = usual.entry((request.class, request.path)).or_default();
            like.add(*work);
        }
    }
    let mut windows: Vec<Vec<(f64, Moments)>> = vec![Vec::new(); replicas];
    for (request, work) in requests.iter().zip(works) {
        let (Some(work), Some(like)) = (work, usual.get(&(request.class, request.path))) else {
            continue;
        };
        let Some(own) = windows
            .get_mut(replica(request))
            .filter(|_| like.count() > 1)
        else {
            continue;
        };
        let begin = (seconds(request) / WINDOW_S).floor() * WINDOW_S;
        if own.last().is_none_or(|last| last.0 < begin) {
            own.push((begin, Moments::default()));
        }
        if let Some(last) = own.last_mut() {
            last.1.add(work / like.mean());
        }
    }
    windows.into_iter().map(joined).collect()
}

fn standard_error_squared(moments: &Moments) -> f64 {
    moments.variance() / moments.count().max(1) as f64
}

/// By how many standard errors two stretches differ; 0 where that is too little to matter.
fn difference(a: &Moments, b: &Moments) -> f64 {
    if a.count().min(b.count()) < SAMPLES_MIN {
        return 0.0;
    }
    let ratio = (a.mean() / b.mean()).ln().abs();
    if ratio < (1.0 + DIFFERENCE_MIN).ln() {
        return 0.0;
    }
    let error = (standard_error_squared(a) + standard_error_squared(b)).sqrt();
    (a.mean() - b.mean()).abs() / error.max(f64::MIN_POSITIVE)
}

/// The two neighbours that differ least become one, until all that are left differ.
fn joined(mut windows: Vec<(f64, Moments)>) -> Slowness {
    while windows.len() > 1 {
        let differ = |at: usize| difference(&windows[at].1, &windows[at + 1].1);
        let least = (0..windows.len() - 1).min_by(|&a, &b| differ(a).total_cmp(&differ(b)));
        let Some(at) = least.filter(|&at| differ(at) < Z) else {
            break;
        };
        let (_, next) = windows.remove(at + 1);
        windows[at].1.merge(&next);
    }
    let mut slowness: Slowness = windows
        .iter()
        .map(|(from, moments)| {
            let error = standard_error_squared(moments).sqrt();
            let off = (moments.mean() - 1.0).abs();
            let differs = moments.count() >= SAMPLES_MIN
                && off > Z * error
                && moments.mean().ln().abs() > (1.0 + DIFFERENCE_MIN).ln();
            (*from, if differs { moments.mean() } else { 1.0 })
        })
        .collect();
    if let Some(first) = slowness.first_mut() {
        first.0 = 0.0;
    }
    slowness
}

#[cfg(test)]
mod tests {
    use tidegate_record::{Decision, Ending};

    use super::*;
    use crate::rng::Streams;
    use crate::service::unit_exponential;

    /// Two replicas for a minute, 40 requests per second each; `factor` of the work by replica and
    /// time.
    fn recorded(factor: impl Fn(usize, f64) -> f64) -> Vec<Slowness> {
        let mut rng = Streams::new(5).stream("test");
        let (mut requests, mut works) = (Vec::new(), Vec::new());
        for number in 0..4800_u64 {
            let (seconds, replica) = (number as f64 / 80.0, (number % 2) as usize);
            // The second path is ten times as dear, and its share grows.
            let dear = number % 7 < number / 1200;
            requests.push(Request {
                at_us: number * 12_500,
                path: 1 + u64::from(dear),
                replica: replica as u16 + 1,
                decision: Decision::Admitted,
                ending: Ending::Served,
                ..Request::default()
            });
            let mean = if dear { 0.1 } else { 0.01 };
            works.push(Some(
                mean * unit_exponential(&mut rng) * factor(replica, seconds),
            ));
        }
        let seconds = |request: &Request| request.at_us as f64 / 1e6;
        learn(
            &requests,
            &works,
            2,
            |r| r.replica_index().unwrap(),
            seconds,
        )
    }

    #[test]
    fn replicas_of_one_speed_have_one_speed() {
        assert_eq!(recorded(|_, _| 1.0), [[(0.0, 1.0)], [(0.0, 1.0)]]);
    }

    #[test]
    fn replica_that_becomes_slow_is_slow_from_then_on() {
        let slowness = recorded(|replica, seconds| match (replica, seconds >= 30.0) {
            (1, true) => 3.0,
            _ => 1.0,
        });
        let (before, after) = (at(&slowness[1], 10.0), at(&slowness[1], 50.0));
        assert!((2.5..3.5).contains(&(after / before)), "{slowness:?}");
        let change = slowness[1].last().unwrap().0;
        assert!((25.0..=35.0).contains(&change), "{slowness:?}");
        assert_eq!(slowness[0].len(), 1, "{slowness:?}");
    }
}
