//! Whether a client did what it was told (001 §2.3, §6.2), and what follows if not.
//!
//! The server cannot make a client hold back, but it knows what it has told it and sees when the
//! client sends. A request is in order when it would have been under *any* strategy that may have
//! been in force at the client: the present one, and those replaced less than `slack` ago (the
//! message travels, clocks differ). Under the interval strategy `w(t) = ∫ dt/i(t)` windows have
//! passed, `i` being the shortest interval that may be in force; a client may send at the end of
//! one window and the beginning of the next, so the test is a leaky bucket of two items:
//!
//! ```text
//! in order  iff  w + slack/i >= T - 1,        then  T = max(T, w) + 1
//! ```
//!
//! A client that lost the channel sends at the fallback interval, which is therefore always in
//! order.
//!
//! An offence is a strike, and strikes fade. Few are only counted; from `throttle_after` on
//! requests out of order are refused, those in order served; from `ban_after` on everything is
//! refused for a time, after which the client begins anew. An operator can pardon.
//!
//! A client is judged only where its identity is proven, by the stamp of an item that was not
//! passed on before: a number in a header is anybody's, and so is a request that was seen on its
//! way.
//!
//! What breaks it: an open group, in which anybody can make another key at will. Then only the
//! admission engine behind stands between them and the server.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde::{Serialize, Serializer};
use tidegate_control::Timestamp;

use crate::key::PublicKey;
use crate::stamp::Stamp;
use crate::strategy::{ClientId, Strategy};

/// How patient the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditorConfig {
    /// For a message to arrive, and for clocks to differ.
    pub slack: Duration,
    /// What clients without a channel keep to.
    pub fallback: Duration,
    /// Strikes from which requests out of order are refused.
    pub throttle_after: u32,
    /// Strikes from which everything is refused.
    pub ban_after: u32,
    /// How long.
    pub ban_for: Duration,
    /// A strike fades after this long without another.
    pub forgive_after: Duration,
    /// Clients that are remembered; beyond that, those that were silent longest are forgotten.
    pub clients_max: usize,
}

impl Default for AuditorConfig {
    fn default() -> Self {
        Self {
            slack: Duration::from_secs(5),
            fallback: Duration::from_secs(60),
            throttle_after: 5,
            ban_after: 50,
            ban_for: Duration::from_secs(600),
            forgive_after: Duration::from_secs(60),
            clients_max: 100_000,
        }
    }
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Serve it.
    InOrder,
    /// Serve it; it was counted as a strike.
    Tolerated,
    /// Refuse it; the client may send again after this long.
    Throttled(Duration),
    /// Refuse it, and everything from this client for this long.
    Banned(Duration),
}

/// How often each verdict was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Verdicts {
    /// Requests in order.
    pub in_order: u64,
    /// Out of order, but served.
    pub tolerated: u64,
    /// Refused for being out of order.
    pub throttled: u64,
    /// Refused because of a ban.
    pub banned: u64,
    /// Bans pronounced.
    pub bans: u64,
}

/// A client that has strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Offender {
    /// Its number, in hexadecimal digits, as it is pardoned by.
    #[serde(serialize_with = "in_hex")]
    pub client: ClientId,
    /// How many strikes.
    pub strikes: u32,
    /// Milliseconds for which everything is still refused.
    pub banned_ms: u64,
}

fn in_hex<S: Serializer>(client: &ClientId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:016x}", client.0))
}

#[derive(Debug, Clone, Copy, Default)]
struct Record {
    /// `T` of the leaky bucket.
    bucket: f64,
    seen: Timestamp,
    strikes: u32,
    struck: Timestamp,
    banned_until: Timestamp,
}

impl Record {
    /// Whether there is something to forgive: strikes, or a ban, perhaps one that is over.
    fn is_guilty(&self) -> bool {
        self.strikes > 0 || self.banned_until > Timestamp::ZERO
    }
}

/// Keeps what clients were told and what they did.
#[derive(Debug)]
pub struct Auditor {
    config: AuditorConfig,
    /// When each strategy was issued, oldest first; never empty.
    told: VecDeque<(Timestamp, Strategy)>,
    windows: Windows,
    clients: HashMap<ClientId, Record>,
    verdicts: Verdicts,
}

/// How many windows of the interval strategy have passed.
#[derive(Debug, Default)]
struct Windows {
    /// `w`.
    passed: f64,
    counted_to: Timestamp,
}

impl Auditor {
    /// No client has received terms yet.
    #[must_use]
    pub fn new(config: AuditorConfig) -> Self {
        Self {
            config,
            told: VecDeque::from([(Timestamp::ZERO, Strategy::Open)]),
            windows: Windows::default(),
            clients: HashMap::new(),
            verdicts: Verdicts::default(),
        }
    }

    /// Clients have been told `strategy`.
    pub fn on_issued(&mut self, now: Timestamp, strategy: &Strategy) {
        self.count_windows(now);
        if self.told.back().is_none_or(|(_, last)| last != strategy) {
            self.told.push_back((now, strategy.clone()));
        }
        self.forget_told(now);
    }

    /// A client's request has arrived.
    pub fn judge(&mut self, now: Timestamp, client: ClientId) -> Verdict {
        self.count_windows(now);
        self.forget_told(now);
        if self.clients.len() >= self.config.clients_max && !self.clients.contains_key(&client) {
            self.forget_clients();
        }
        let record = self.clients.entry(client).or_default();
        record.seen = now;
        let verdict = if record.banned_until > now {
            Verdict::Banned(record.banned_until.since(now))
        } else {
            let told = Told {
                config: &self.config,
                strategies: &self.told,
                windows: self.windows.passed,
            };
            judge(record, &told, now, client)
        };
        self.count(verdict);
        verdict
    }

    /// How long everything from this client is still refused.
    #[must_use]
    pub fn banned(&self, now: Timestamp, client: ClientId) -> Option<Duration> {
        let until = self.clients.get(&client)?.banned_until;
        (until > now).then(|| until.since(now))
    }

    /// Forgives a client everything; false when there is nothing to forgive.
    pub fn pardon(&mut self, client: ClientId) -> bool {
        let record = self.clients.get_mut(&client);
        let guilty = record.filter(|record| record.is_guilty());
        guilty.map(|record| *record = Record::default()).is_some()
    }

    /// Clients with strikes, the worst first.
    #[must_use]
    pub fn offenders(&self, now: Timestamp) -> Vec<Offender> {
        let guilty = self.clients.iter().filter(|(_, record)| record.is_guilty());
        let mut offenders: Vec<_> = guilty
            .map(|(&client, record)| Offender {
                client,
                strikes: record.strikes,
                banned_ms: record.banned_until.since(now).as_millis() as u64,
            })
            .collect();
        offenders.sort_by_key(|offender| (u32::MAX - offender.strikes, offender.client));
        offenders
    }

    /// Clients that sent something within `window`: an estimate of how many there are.
    #[must_use]
    pub fn active(&self, now: Timestamp, window: Duration) -> usize {
        let recent = |record: &&Record| now.since(record.seen) <= window;
        self.clients.values().filter(recent).count()
    }

    /// How often each verdict was given.
    #[must_use]
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts
    }

    fn count(&mut self, verdict: Verdict) {
        let verdicts = &mut self.verdicts;
        match verdict {
            Verdict::InOrder => verdicts.in_order += 1,
            Verdict::Tolerated => verdicts.tolerated += 1,
            Verdict::Throttled(_) => verdicts.throttled += 1,
            Verdict::Banned(left) => {
                verdicts.banned += 1;
                verdicts.bans += u64::from(left == self.config.ban_for);
            }
        }
    }

    /// Counts windows up to `now`, by the shortest interval that may have been in force.
    fn count_windows(&mut self, now: Timestamp) {
        let elapsed = now.since(self.windows.counted_to).as_secs_f64();
        let interval = shortest(&self.config, &self.told);
        self.windows.passed += elapsed / interval.as_secs_f64();
        self.windows.counted_to = self.windows.counted_to.max(now);
    }

    /// Drops strategies that were replaced longer than the slack ago.
    fn forget_told(&mut self, now: Timestamp) {
        let slack = self.config.slack;
        while self
            .told
            .get(1)
            .is_some_and(|(at, _)| now.since(*at) > slack)
        {
            self.told.pop_front();
        }
    }

    /// Makes room: the half that was silent longest goes. Offenders stay, unless they are most of
    /// all: who makes up names by the million must not fill memory with misdeeds.
    fn forget_clients(&mut self) {
        let mut seen: Vec<_> = self.clients.values().map(|record| record.seen).collect();
        let middle = seen.len() / 2;
        let (_, &mut median, _) = seen.select_nth_unstable(middle);
        self.clients
            .retain(|_, record| record.seen > median || record.is_guilty());
        if self.clients.len() > self.config.clients_max / 4 * 3 {
            self.clients.retain(|_, record| record.seen > median);
        }
    }
}

/// What a client may have been told.
struct Told<'a> {
    config: &'a AuditorConfig,
    strategies: &'a VecDeque<(Timestamp, Strategy)>,
    windows: f64,
}

/// The shortest interval that may be in force; where anything goes, a very short one.
fn shortest(config: &AuditorConfig, told: &VecDeque<(Timestamp, Strategy)>) -> Duration {
    let interval = |(_, strategy): &(Timestamp, Strategy)| match strategy {
        Strategy::Open => Duration::ZERO,
        Strategy::Interval(interval) => *interval,
        Strategy::Group(_) => config.fallback,
    };
    let shortest = told.iter().map(interval).min().unwrap_or_default();
    shortest.min(config.fallback).max(Duration::from_millis(1))
}

fn judge(record: &mut Record, told: &Told<'_>, now: Timestamp, client: ClientId) -> Verdict {
    let Err(wait) = in_order(record, told, now, client) else {
        return Verdict::InOrder;
    };
    let config = told.config;
    let faded = now.since(record.struck).as_nanos() / config.forgive_after.as_nanos().max(1);
    let faded = u32::try_from(faded).unwrap_or(u32::MAX);
    record.strikes = record.strikes.saturating_sub(faded) + 1;
    record.struck = now;
    if record.strikes >= config.ban_after {
        record.strikes = 0;
        record.banned_until = now + config.ban_for;
        return Verdict::Banned(config.ban_for);
    }
    if record.strikes >= config.throttle_after {
        Verdict::Throttled(wait)
    } else {
        Verdict::Tolerated
    }
}

/// Whether any strategy that may be in force allows it; if not, how long to wait.
fn in_order(
    record: &mut Record,
    told: &Told<'_>,
    now: Timestamp,
    client: ClientId,
) -> Result<(), Duration> {
    let slack = told.config.slack;
    let early = Timestamp::ZERO + now.since(Timestamp::ZERO + slack);
    let mut wait = Duration::MAX;
    for (_, strategy) in told.strategies {
        match strategy {
            Strategy::Open => return Ok(()),
            Strategy::Interval(_) => {}
            Strategy::Group(groups) => match groups.next_turn(client, early) {
                // Its turn was, or is, or comes within what clocks may differ.
                Some(turn) if turn <= now + slack => return Ok(()),
                Some(turn) => wait = wait.min(turn.since(now)),
                None => {}
            },
        }
    }
    let interval_s = shortest(told.config, told.strategies).as_secs_f64();
    let ahead = record.bucket - 1.0 - told.windows - slack.as_secs_f64() / interval_s;
    if ahead > 0.0 {
        return Err(wait.min(Duration::from_secs_f64(ahead * interval_s)));
    }
    record.bucket = record.bucket.max(told.windows) + 1.0;
    Ok(())
}

/// Until when items count, and how late they may come: the server's decision alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlinePolicy {
    /// Items made later are refused.
    pub deadline: Option<Timestamp>,
    /// No item may come later than this after it was made, whatever it says itself.
    pub delay_max: Duration,
    /// What the operator has added to every delay, after an outage.
    pub prolonged: Duration,
    /// The most that counts as error of a client's clock.
    pub error_max: Duration,
}

/// Why an item is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Late {
    /// Made after the deadline.
    #[error("the item was made after the deadline")]
    Deadline,
    /// Came too long after it was made.
    #[error("the item came later than its longest delay")]
    Delay,
    /// Claims to be made before its client had compared clocks, by that very comparison.
    #[error("the item claims a time before that of its proof")]
    Backdated,
}

/// What an item's time is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// It counts; its time may be off by this much at most.
    InTime(Duration),
    /// It claims to be made later than now: it may come again after this long.
    Future(Duration),
    /// It does not count.
    Late(Late),
}

/// What unsynchronised clocks may differ by: no client gains anything by being ahead.
const AHEAD_MAX: Duration = Duration::from_secs(10);

impl DeadlinePolicy {
    /// Checks an item that arrives at `now`; `keys` sign the server's clock. An error of the
    /// client's clock counts for the client, as far as the server has seen it.
    #[must_use]
    pub fn check(&self, now: Timestamp, stamp: &Stamp, keys: &[PublicKey]) -> Timing {
        if stamp.made > now + AHEAD_MAX {
            return Timing::Future(stamp.made.since(now + AHEAD_MAX));
        }
        let proof = stamp.clock.filter(|clock| clock.is_signed_by(keys));
        let proven = proof.and_then(|proof| proof.answer.error_at(stamp.made));
        let error = stamp.error.min(proven.unwrap_or_default());
        let error = error.min(self.error_max);
        let compared = proof.map_or(Timestamp::ZERO, |proof| proof.answer.received);
        if stamp.made + error + CLOCK_GRAIN < compared {
            return Timing::Late(Late::Backdated);
        }
        self.check_times(now, stamp, error)
    }

    fn check_times(&self, now: Timestamp, stamp: &Stamp, error: Duration) -> Timing {
        // What is here was made.
        let made = stamp.made.min(now);
        let earliest = Timestamp::ZERO + made.since(Timestamp::ZERO + error);
        if self.deadline.is_some_and(|deadline| earliest > deadline) {
            return Timing::Late(Late::Deadline);
        }
        let delay_max = stamp.delay_max.min(self.delay_max) + self.prolonged;
        if now.since(made) > delay_max + error {
            return Timing::Late(Late::Delay);
        }
        Timing::InTime(error)
    }

    /// For how long after it was made an item can still count.
    #[must_use]
    pub fn matters_for(&self) -> Duration {
        self.delay_max + self.prolonged + self.error_max
    }
}

/// Times of stamps are whole milliseconds, those of proofs are not.
const CLOCK_GRAIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Answer;
    use crate::key::SecretKey;
    use crate::pacer::{Pacer, Permit};
    use crate::stamp::Content;
    use crate::strategy::Groups;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Clients that keep to what they were told, `lag` behind, are never out of order.
    fn obedient_clients_are_never_struck(strategy: impl Fn(u32) -> Strategy, lag: f64) {
        for id in 0..50 {
            let mut auditor = Auditor::new(AuditorConfig::default());
            let mut pacer = Pacer::new(ClientId(id));
            let mut sent = 0;
            for tenth in 0_u32..3000 {
                let now = 1000.0 + f64::from(tenth) / 10.0;
                if tenth.is_multiple_of(10) {
                    auditor.on_issued(at(now), &strategy(tenth / 10));
                }
                let told_at = now - lag;
                if told_at >= 1000.0 {
                    pacer.apply(at(now), strategy((told_at - 1000.0) as u32));
                    if pacer.permit(at(now)) == Permit::Now {
                        pacer.on_sent(at(now));
                        sent += 1;
                        assert_eq!(
                            auditor.judge(at(now), pacer.id()),
                            Verdict::InOrder,
                            "{now}"
                        );
                    }
                }
            }
            assert!(sent > 5, "client {id} sent {sent}");
        }
    }

    #[test]
    fn obedience_is_never_punished() {
        let group = |step: u32| {
            let share = 0.05 + 0.3 * f64::from(step % 7) / 7.0;
            Strategy::Group(Groups::with_share(share, secs(4)))
        };
        let interval = |step: u32| {
            Strategy::Interval(secs(if step % 60 < 30 {
                40
            } else {
                6 + u64::from(step % 4)
            }))
        };
        for lag in [0.0, 2.0] {
            obedient_clients_are_never_struck(group, lag);
            obedient_clients_are_never_struck(interval, lag);
        }
    }

    #[test]
    fn flood_is_counted_then_throttled_then_banned_and_the_ban_ends() {
        let config = AuditorConfig::default();
        let mut auditor = Auditor::new(config);
        auditor.on_issued(at(100.0), &Strategy::Interval(secs(30)));
        let client = ClientId(7);
        let mut seen = Vec::new();
        for tenth in 0..600 {
            let now = at(200.0 + f64::from(tenth) / 10.0);
            let verdict = auditor.judge(now, client);
            let word = match verdict {
                Verdict::InOrder => "ok",
                Verdict::Tolerated => "counted",
                Verdict::Throttled(wait) => {
                    assert!(wait > Duration::ZERO && wait <= secs(60));
                    "throttled"
                }
                Verdict::Banned(_) => "banned",
            };
            if seen.last() != Some(&word) {
                seen.push(word);
            }
        }
        assert_eq!(seen, ["ok", "counted", "throttled", "banned"]);
        assert_eq!(auditor.verdicts().bans, 1);
        let after = at(200.0) + config.ban_for + secs(120);
        assert_eq!(auditor.judge(after, client), Verdict::InOrder);
    }

    #[test]
    fn operator_can_pardon() {
        let mut auditor = Auditor::new(AuditorConfig {
            ban_after: 2,
            ..AuditorConfig::default()
        });
        auditor.on_issued(at(0.0), &Strategy::Interval(secs(60)));
        let client = ClientId(9);
        for _ in 0..3 {
            auditor.judge(at(100.0), client);
        }
        assert_eq!(auditor.offenders(at(100.0))[0].client, client);
        assert!(auditor.pardon(client));
        assert!(!auditor.pardon(client));
        assert_eq!(auditor.judge(at(100.0), client), Verdict::InOrder);
    }

    #[test]
    fn strikes_fade() {
        let mut auditor = Auditor::new(AuditorConfig::default());
        auditor.on_issued(at(0.0), &Strategy::Interval(secs(60)));
        for hour in 1..50 {
            let now = at(f64::from(hour) * 3600.0);
            for _ in 0..4 {
                assert!(matches!(
                    auditor.judge(now, ClientId(1)),
                    Verdict::InOrder | Verdict::Tolerated
                ));
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_offenders_are_remembered() {
        let mut auditor = Auditor::new(AuditorConfig {
            clients_max: 100,
            ..AuditorConfig::default()
        });
        auditor.on_issued(at(0.0), &Strategy::Interval(secs(60)));
        for _ in 0..6 {
            auditor.judge(at(100.0), ClientId(1_000_000));
        }
        for id in 0..1000 {
            auditor.judge(at(101.0 + id as f64), ClientId(id));
        }
        assert!(auditor.clients.len() <= 101);
        assert_eq!(auditor.offenders(at(1200.0))[0].client, ClientId(1_000_000));
        assert!(auditor.active(at(1100.0), secs(20)) <= 21);
    }

    #[test]
    fn offenders_without_number_do_not_fill_memory() {
        let mut auditor = Auditor::new(AuditorConfig {
            clients_max: 100,
            ..AuditorConfig::default()
        });
        auditor.on_issued(at(0.0), &Strategy::Interval(secs(60)));
        for id in 0..1000 {
            for _ in 0..6 {
                auditor.judge(at(100.0 + id as f64), ClientId(id));
            }
            assert!(auditor.clients.len() <= 100);
        }
        let offenders = auditor.offenders(at(1200.0));
        assert!(offenders.iter().any(|each| each.client == ClientId(999)));
        assert!(offenders.len() > 20, "the latest are remembered");
    }

    const POLICY: DeadlinePolicy = DeadlinePolicy {
        deadline: None,
        delay_max: Duration::from_secs(100),
        prolonged: Duration::ZERO,
        error_max: Duration::from_secs(1),
    };

    fn server() -> SecretKey {
        SecretKey::from_seed(&[9; 32])
    }

    /// Made then, by a clock that is off by half a second at most, which the server has seen.
    fn made(seconds: f64) -> Stamp {
        let earlier = Answer::new(1, at(800.0), at(800.0), None);
        let answer = Answer::new(2, at(801.0), at(801.0), Some(&earlier));
        Stamp {
            client: SecretKey::from_seed(&[1; 32]).public(),
            item: 1,
            made: at(seconds),
            error: Duration::from_millis(500),
            delay_max: secs(60),
            content: Content::of("POST", "/bids", b"1"),
            clock: Some(answer.sign(&server())),
        }
    }

    fn checked(policy: &DeadlinePolicy, now: f64, stamp: &Stamp) -> Result<(), Late> {
        match policy.check(at(now), stamp, &[server().public()]) {
            Timing::InTime(_) => Ok(()),
            Timing::Late(late) => Err(late),
            Timing::Future(_) => panic!("the item's time lies in the future"),
        }
    }

    #[test]
    fn deadlines_look_at_when_the_item_was_made_and_can_be_prolonged() {
        let policy = DeadlinePolicy {
            deadline: Some(at(1000.0)),
            ..POLICY
        };
        assert_eq!(checked(&policy, 1050.0, &made(999.0)), Ok(()));
        // The clock's error counts for the client.
        assert_eq!(checked(&policy, 1050.0, &made(1000.4)), Ok(()));
        assert_eq!(checked(&policy, 1050.0, &made(1001.0)), Err(Late::Deadline));
        assert_eq!(checked(&policy, 1070.0, &made(999.0)), Err(Late::Delay));
        let prolonged = DeadlinePolicy {
            prolonged: secs(60),
            ..policy
        };
        assert_eq!(checked(&prolonged, 1070.0, &made(999.0)), Ok(()));
        assert_eq!(
            checked(&prolonged, 1050.0, &made(1001.0)),
            Err(Late::Deadline)
        );
    }

    #[test]
    fn error_counts_only_as_far_as_the_server_has_seen_it() {
        let policy = DeadlinePolicy {
            deadline: Some(at(1000.0)),
            delay_max: secs(10_000_000),
            ..POLICY
        };
        let claims = |error: Duration, clock| Stamp {
            error,
            clock,
            delay_max: secs(10_000_000),
            ..made(1010.0)
        };
        let seen = made(0.0).clock;
        let days = secs(49 * 86_400);
        // Forty-nine days pass no deadline: with a proof, with a forged one, with none.
        let forged = seen.map(|seen| seen.answer.sign(&SecretKey::from_seed(&[8; 32])));
        for clock in [seen, forged, None] {
            let stamp = claims(days, clock);
            assert_eq!(checked(&policy, 1020.0, &stamp), Err(Late::Deadline));
        }
        // Who waits to make its round trip long gains no more than the server allows.
        let slow = Answer::new(1, at(800.0), at(800.0), None);
        let slow = Answer::new(2, at(809.0), at(809.0), Some(&slow)).sign(&server());
        let near = |made_s: f64| Stamp {
            made: at(made_s),
            ..claims(days, Some(slow))
        };
        assert_eq!(checked(&policy, 1020.0, &near(1000.9)), Ok(()));
        assert_eq!(checked(&policy, 1020.0, &near(1001.1)), Err(Late::Deadline));
    }

    #[test]
    fn stamp_is_not_older_than_its_proof() {
        let policy = DeadlinePolicy {
            deadline: Some(at(1000.0)),
            ..POLICY
        };
        // Clocks were compared after the deadline, and the item claims to be older.
        let later = Answer::new(1, at(1001.0), at(1001.0), None);
        let later = Answer::new(2, at(1001.2), at(1001.2), Some(&later)).sign(&server());
        let stamp = Stamp {
            clock: Some(later),
            ..made(999.0)
        };
        assert_eq!(checked(&policy, 1010.0, &stamp), Err(Late::Backdated));
    }

    #[test]
    fn what_arrives_before_the_deadline_was_made_before_it() {
        let policy = DeadlinePolicy {
            deadline: Some(at(1000.0)),
            ..POLICY
        };
        assert_eq!(checked(&policy, 999.0, &made(1004.0)), Ok(()));
        let keys = [server().public()];
        let ahead = policy.check(at(900.0), &made(999.0), &keys);
        assert_eq!(ahead, Timing::Future(secs(89)));
    }

    #[test]
    fn offender_is_listed_by_the_number_that_is_pardoned() {
        let offender = Offender {
            client: ClientId(255),
            strikes: 1,
            banned_ms: 0,
        };
        let listed = serde_json::to_value(offender).unwrap();
        assert_eq!(listed["client"], "00000000000000ff");
    }
}
