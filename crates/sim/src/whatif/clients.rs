//! How clients behave, found in a recording: who comes back after a refusal, and how long they
//! wait. Requests that are repetitions of refused ones are taken out, and the simulated clients
//! repeat what is refused to them.
//!
//! A client is known by its hash. A request of a client for the same path soon after its refusal
//! is a repetition, or chance: how often chance brings one is seen after the arrival of requests
//! that were served. Where more refusals are followed than that, clients try again.
//!
//! What breaks it: clients behind one address seem to be one; recordings without clients (of an
//! access log, or of a version before 0.2) have no repetitions; clients that are told to hold back
//! by the channel do not come back, and do not come at all.

use std::collections::HashMap;
use std::time::Duration;

use rand::RngExt;
use tidegate_config::Share;
use tidegate_record::{Ending, Request};

use crate::client::{Failure, Retry};
use crate::rng::SimRng;

/// A repetition comes within this time.
const HORIZON_S: f64 = 60.0;
/// Failures needed to tell repetitions from chance.
const FAILURES_MIN: usize = 30;
/// A smaller share of failures that are followed is none.
const CHANCE_MIN: f64 = 0.05;
/// Standard errors by which it has to exceed chance.
const Z: f64 = 4.0;
/// Share of the largest share of followed failures down to which clients still try again.
const STILL_TRIES: f64 = 0.5;
/// Share of repetitions that obey `Retry-After` for all to be taken to.
const OBEY_MIN: f64 = 0.9;
/// Clients that left, for a law of patience.
const LEFT_MIN: usize = 20;

/// What is known of clients.
#[derive(Debug, Clone, Default)]
pub(super) struct Clients {
    /// What they do after a failure; nothing where no repetitions were seen.
    pub(super) retry: Option<Retry>,
    /// Of each request, whether it is a repetition.
    pub(super) is_repetition: Vec<bool>,
    patience: Patience,
}

/// One request with the next of its client for the same path.
struct Followed {
    index: usize,
    /// Position of the next one, and how long after the end of this one it came.
    next: Option<(usize, f64)>,
    failure: Option<Failure>,
    /// How long after the arrival of this one the next one arrived, under way or not.
    soon: Option<f64>,
}

fn failure(request: &Request) -> Option<Failure> {
    match request.ending {
        _ if request.is_shed() => Some(Failure::Shed),
        Ending::Abandoned => Some(Failure::Timeout),
        Ending::Failed => Some(Failure::Dropped),
        _ => None,
    }
}

fn end_us(request: &Request) -> u64 {
    request.at_us + (request.waiting_us + request.service_us).max(request.response_us)
}

/// The requests of known clients, each with the one that followed.
fn followed(requests: &[Request]) -> Vec<Followed> {
    let mut last: HashMap<(u64, u64, u16), usize> = HashMap::new();
    let mut all: Vec<Followed> = Vec::new();
    let mut place = vec![usize::MAX; requests.len()];
    for (index, request) in requests.iter().enumerate() {
        let client = match request.client {
            0 => request.tenant,
            client => u64::from(client),
        };
        if client == 0 {
            continue;
        }
        let key = (client, request.path, request.class);
        if let Some(before) = last.insert(key, index) {
            let after = request.at_us as f64 - end_us(&requests[before]) as f64;
            let since = (request.at_us - requests[before].at_us) as f64 / 1e6;
            all[place[before]].soon = Some(since);
            // One that is sent while the other is under way repeats nothing.
            if (0.0..=HORIZON_S * 1e6).contains(&after) {
                all[place[before]].next = Some((index, after / 1e6));
            }
        }
        place[index] = all.len();
        all.push(Followed {
            index,
            next: None,
            failure: failure(request),
            soon: None,
        });
    }
    all
}

/// Share of the requests that were followed within `seconds`, and how many requests there are.
fn share_within<'a>(all: impl Iterator<Item = &'a Followed>, seconds: f64) -> (f64, usize) {
    let (mut count, mut within) = (0, 0);
    for one in all {
        count += 1;
        within += usize::from(one.next.is_some_and(|(_, after)| after <= seconds));
    }
    (within as f64 / count.max(1) as f64, count)
}

impl Clients {
    pub(super) fn learn(requests: &[Request]) -> Self {
        let mut clients = Self {
            retry: None,
            is_repetition: vec![false; requests.len()],
            patience: Patience::learn(requests),
        };
        let all = followed(requests);
        let failures: Vec<Failure> = [Failure::Shed, Failure::Timeout, Failure::Dropped]
            .into_iter()
            .filter(|&kind| repeats(&all, kind))
            .collect();
        if failures.is_empty() {
            return clients;
        }
        let failed = |one: &&Followed| one.failure.is_some_and(|it| failures.contains(&it));
        let reach = reach(all.iter().filter(failed));
        // How often a client tries, by chains of failures that follow one another.
        let mut tries = vec![1_u32; requests.len()];
        let mut by_try: Vec<Try> = Vec::new();
        for one in all.iter().filter(failed) {
            let number = tries[one.index] as usize;
            by_try.resize_with(by_try.len().max(number), Try::default);
            let own = &mut by_try[number - 1];
            own.failed += 1;
            if let Some((next, after)) = one.next.filter(|(_, after)| *after <= reach) {
                let retry_after = requests[one.index].retry_after_ms as f64 / 1e3;
                own.delays.push(after);
                own.obeyed += usize::from(after >= 0.98 * retry_after && retry_after > 0.0);
                own.asked += usize::from(retry_after > 0.0);
                tries[next] = tries[one.index] + 1;
                clients.is_repetition[next] = true;
            }
        }
        clients.retry = fitted(&by_try, failures);
        if clients.retry.is_none() {
            clients.is_repetition.fill(false);
        }
        clients
    }

    /// How long the client of a request waits: until it left, or longer than it had to.
    pub(super) fn patience(&self, request: &Request, rng: &mut SimRng) -> Option<Duration> {
        match request.ending {
            Ending::Abandoned => Some(Duration::from_micros(request.response_us.max(1))),
            _ => self.patience.draw(request.response_us, rng),
        }
    }

    /// In words, for people.
    pub(super) fn in_words(&self) -> Option<String> {
        let retry = self.retry.as_ref()?;
        let count = self.is_repetition.iter().filter(|it| **it).count();
        let share = 100.0 * count as f64 / self.is_repetition.len().max(1) as f64;
        Some(format!(
            "{share:.0} % of the requests repeat one that was refused or failed: clients try again \
             with a chance of {:.0} %, up to {} time(s), after {:.1} s or so; a forecast sends \
             repetitions of what it refuses itself",
            retry.chance.0 * 100.0,
            retry.attempts,
            retry.backoff.as_secs_f64() * (1.0 - retry.jitter.0 / 2.0)
        ))
    }
}

/// Whether failures of this kind are followed more often than chance brings it.
fn repeats(all: &[Followed], kind: Failure) -> bool {
    let failed = || all.iter().filter(|one| one.failure == Some(kind));
    let served = || all.iter().filter(|one| one.failure.is_none());
    let reach = reach(failed());
    let (after_failure, failures) = share_within(failed(), reach);
    // Of others the time since their arrival counts: a client that has several under way at once
    // is followed by chance, whenever the answers come.
    let others = served().count();
    let soon = served().filter(|one| one.soon.is_some_and(|soon| soon <= reach));
    let by_chance = soon.count() as f64 / others.max(1) as f64;
    let error = |share: f64, count: usize| share * (1.0 - share) / count.max(1) as f64;
    let error = (error(after_failure, failures) + error(by_chance, others)).sqrt();
    let excess = after_failure - by_chance;
    failures >= FAILURES_MIN && excess > CHANCE_MIN && excess > Z * error
}

/// Those that come back have come by then, but for a few: half as long again as nineteen of twenty
/// take. Beyond that it is chance.
fn reach<'a>(failed: impl Iterator<Item = &'a Followed>) -> f64 {
    let mut delays: Vec<f64> = failed.filter_map(|one| Some(one.next?.1)).collect();
    delays.sort_by(f64::total_cmp);
    let at = (0.95 * delays.len().saturating_sub(1) as f64).round() as usize;
    1.5 * delays.get(at).copied().unwrap_or(0.0)
}

/// What was seen of the first, second, … try.
#[derive(Default)]
struct Try {
    failed: usize,
    delays: Vec<f64>,
    obeyed: usize,
    asked: usize,
}

impl Try {
    fn share(&self) -> f64 {
        self.delays.len() as f64 / self.failed.max(1) as f64
    }

    fn mean(&self) -> f64 {
        self.delays.iter().sum::<f64>() / self.delays.len().max(1) as f64
    }
}

fn fitted(by_try: &[Try], on: Vec<Failure>) -> Option<Retry> {
    let first = by_try.first()?;
    let goes_on = |one: &&Try| one.failed >= 10 && one.share() >= STILL_TRIES * first.share();
    let tries: Vec<&Try> = by_try.iter().take_while(goes_on).collect();
    let sum = |of: fn(&Try) -> usize| tries.iter().map(|one| of(one)).sum::<usize>();
    let chance = sum(|one| one.delays.len()) as f64 / sum(|one| one.failed).max(1) as f64;
    let obey = sum(|one| one.obeyed) as f64 >= OBEY_MIN * sum(|one| one.delays.len()) as f64
        && sum(|one| one.asked) > 0;
    let mean = first.mean();
    let variance = |one: &Try| -> f64 {
        let squares = one.delays.iter().map(|delay| (delay - one.mean()).powi(2));
        squares.sum::<f64>() / one.delays.len().max(1) as f64
    };
    // A share `j` drawn evenly from the whole: sd / mean = (j / √12) / (1 - j / 2).
    let cv = variance(first).sqrt() / mean.max(1e-9);
    let jitter = (cv * 12.0_f64.sqrt() / (1.0 + cv * 3.0_f64.sqrt())).clamp(0.0, 1.0);
    let growth = tries
        .windows(2)
        .map(|pair| pair[1].mean() / pair[0].mean().max(1e-9));
    let growths: Vec<f64> = growths_of(growth.collect());
    let factor = growths
        .iter()
        .product::<f64>()
        .powf(1.0 / growths.len().max(1) as f64);
    let longest = tries.iter().map(|one| one.mean()).fold(mean, f64::max);
    let full = |mean: f64| Duration::from_secs_f64((mean / (1.0 - jitter / 2.0)).max(1e-3)).into();
    let attempts = std::num::NonZeroU32::new(u32::try_from(tries.len()).ok()?)?;
    Some(Retry {
        attempts,
        backoff: full(mean),
        factor: factor.clamp(1.0, 4.0),
        max_backoff: full(longest),
        jitter: Share(jitter),
        on,
        obey,
        chance: Share(chance.clamp(0.0, 1.0)),
    })
}

fn growths_of(growths: Vec<f64>) -> Vec<f64> {
    growths
        .into_iter()
        .filter(|it| it.is_finite() && *it > 0.0)
        .collect()
}

/// When clients leave: Kaplan and Meier's estimate, with those that were answered before as
/// censored (J. Am. Stat. Assoc. 1958).
#[derive(Debug, Clone, Default)]
struct Patience {
    /// Microseconds, and the share that is still there then.
    survival: Vec<(u64, f64)>,
}

impl Patience {
    fn learn(requests: &[Request]) -> Self {
        let left = requests.iter().filter(|it| it.ending == Ending::Abandoned);
        if left.count() < LEFT_MIN {
            return Self::default();
        }
        let seen = requests.iter().filter(|it| it.response_us > 0);
        let mut seen: Vec<(u64, bool)> = seen
            .map(|it| (it.response_us, it.ending == Ending::Abandoned))
            .collect();
        seen.sort_unstable();
        let (mut there, mut share) = (seen.len() as f64, 1.0);
        let mut survival: Vec<(u64, f64)> = Vec::new();
        for (at, left) in seen {
            if left {
                share *= 1.0 - 1.0 / there;
                survival.push((at, share));
            }
            there -= 1.0;
        }
        Self { survival }
    }

    /// A patience longer than `after_us`; none for a client that was never seen to lose it.
    fn draw(&self, after_us: u64, rng: &mut SimRng) -> Option<Duration> {
        let from = self.survival.partition_point(|point| point.0 <= after_us);
        let there = match from {
            0 => 1.0,
            from => self.survival[from - 1].1,
        };
        let rest = self.survival.get(from..).filter(|rest| !rest.is_empty())?;
        let level = there * rng.random::<f64>();
        let found = rest.iter().find(|point| point.1 <= level)?;
        Some(Duration::from_micros(found.0))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_record::Decision;

    use super::*;
    use crate::rng::Streams;

    /// Clients that send a request now and then; of those refused `chance` come back after about
    /// `pause` seconds, at most twice. `clients` is how many different ones there are.
    fn recorded(clients: u32, chance: f64, pause: f64) -> (Vec<Request>, usize) {
        let mut rng = Streams::new(3).stream("test");
        let (mut requests, mut repetitions) = (Vec::new(), 0);
        for number in 0..4000_u64 {
            let client = 1 + rng.random_range(0..clients);
            let mut at = number as f64 * 0.02;
            for attempt in 0..3 {
                let shed = rng.random::<f64>() < 0.5;
                requests.push(Request {
                    at_us: (at * 1e6) as u64,
                    client,
                    path: 1,
                    decision: if shed {
                        Decision::Shed
                    } else {
                        Decision::Admitted
                    },
                    ending: if shed { Ending::Unsent } else { Ending::Served },
                    service_us: if shed { 0 } else { 20_000 },
                    response_us: if shed { 100 } else { 21_000 },
                    retry_after_ms: if shed { 1000 } else { 0 },
                    ..Request::default()
                });
                if !shed || rng.random::<f64>() >= chance || attempt == 2 {
                    break;
                }
                repetitions += 1;
                at += pause * (1.0 - 0.5 * rng.random::<f64>());
            }
        }
        requests.sort_by_key(|request| request.at_us);
        (requests, repetitions)
    }

    #[test]
    fn repetitions_are_found_with_their_chance_pause_and_number() {
        let (requests, repetitions) = recorded(1_000_000, 0.7, 2.0);
        let clients = Clients::learn(&requests);
        let retry = clients.retry.unwrap();
        assert!((0.65..0.75).contains(&retry.chance.0), "{retry:?}");
        assert_eq!(retry.attempts.get(), 2, "{retry:?}");
        assert!(
            (1.8..2.2).contains(&retry.backoff.as_secs_f64()),
            "{retry:?}"
        );
        assert!((0.4..0.6).contains(&retry.jitter.0), "{retry:?}");
        assert!(retry.obey, "none came before its second: {retry:?}");
        let found = clients.is_repetition.iter().filter(|it| **it).count() as f64;
        assert!(
            (found / repetitions as f64 - 1.0).abs() < 0.1,
            "{found} {repetitions}"
        );
    }

    #[test]
    fn clients_that_do_not_come_back_have_no_repetitions() {
        for clients in [1, 50, 1_000_000] {
            let (requests, _) = recorded(clients, 0.0, 1.0);
            assert!(Clients::learn(&requests).retry.is_none(), "{clients}");
        }
    }

    #[test]
    fn requests_without_a_client_have_no_repetitions() {
        let (mut requests, _) = recorded(1_000_000, 0.9, 1.0);
        requests.iter_mut().for_each(|request| request.client = 0);
        assert!(Clients::learn(&requests).retry.is_none());
    }

    #[test]
    fn patience_of_those_that_were_answered_is_longer_than_they_waited() {
        let requests: Vec<Request> = (0..200_u64)
            .map(|number| Request {
                response_us: 1000 + number * 1000,
                ending: if number % 2 == 0 {
                    Ending::Abandoned
                } else {
                    Ending::Served
                },
                ..Request::default()
            })
            .collect();
        let clients = Clients::learn(&requests);
        let mut rng = Streams::new(1).stream("test");
        let left = clients.patience(&requests[10], &mut rng).unwrap();
        assert_eq!(left, Duration::from_micros(11_000));
        for _ in 0..100 {
            let drawn = clients.patience(&requests[51], &mut rng);
            assert!(
                drawn.is_none_or(|it| it > Duration::from_micros(52_000)),
                "{drawn:?}"
            );
        }
        let few = Clients::learn(&requests[..10]);
        assert_eq!(few.patience(&requests[1], &mut rng), None);
    }
}
