//! What goes when: the client's decisions, without clocks, files or sockets.
//!
//! One item is under way at a time. Times are the server's, as far as the client knows its clock.
//! While the channel is silent the client keeps to the fallback interval: what it was told last
//! may long have been replaced, and sending freely is what the server fears.
//!
//! **Too late is the server's word.** An item that was not sent in its own time does not go, and is
//! not given up either: after an outage the server may prolong, and says so in its messages. An
//! item is given up when its time, what was prolonged and a grace are over, and a message says so
//! that was issued after that. So nothing is given up while the channel is silent.

use std::time::Duration;

use tidegate_channel::liveness::Change;
use tidegate_channel::{
    Backlog, ClientId, ControlMessage, Liveness, LivenessConfig, Pacer, Permit, Strategy, Terms,
    Variant,
};
use tidegate_control::Timestamp;

/// Parameters of an [`Engine`].
#[derive(Debug, Clone, Copy)]
pub struct EngineConfig {
    /// Who the client is.
    pub id: ClientId,
    /// Whether a newer item replaces an older one of its key.
    pub variant: Variant,
    /// One item per so long while the channel is silent.
    pub fallback: Duration,
    /// How long it must be silent for that.
    pub silence: Duration,
    /// How long an item is kept after its time, in case the server prolongs.
    pub grace: Duration,
}

/// An item as the engine knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Its number.
    pub number: u64,
    /// After that it is worth nothing.
    pub expires: Timestamp,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send this item.
    Send(u64),
    /// Come back at that time, or when something happens.
    Wait(Timestamp),
    /// Come back when something happens.
    Idle,
}

/// Decides.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    pacer: Pacer,
    liveness: Liveness,
    backlog: Backlog<Option<String>, Item>,
    under_way: Option<(Option<String>, Item)>,
    /// Not before that, after a failure.
    retry: Timestamp,
    told: Option<u64>,
    lag: Duration,
    terms: Terms,
    /// When the newest message was issued.
    issued: Timestamp,
}

impl Engine {
    /// A client without any message yet.
    #[must_use]
    pub fn new(config: EngineConfig, now: Timestamp) -> Self {
        let silence = config.silence;
        let mut pacer = Pacer::new(config.id);
        pacer.apply(now, Strategy::Interval(config.fallback));
        Self {
            config,
            pacer,
            liveness: Liveness::new(LivenessConfig { silence }, now),
            backlog: Backlog::new(config.variant),
            under_way: None,
            retry: Timestamp::ZERO,
            told: None,
            lag: Duration::ZERO,
            terms: Terms::default(),
            issued: Timestamp::ZERO,
        }
    }

    /// A verified message has arrived.
    pub fn on_message(&mut self, now: Timestamp, message: &ControlMessage) {
        // The first message after a silence may have waited for us: it says nothing about the way.
        if self.liveness.on_message(now, message.seq).is_none() {
            self.lag = now.since(message.issued);
        }
        self.told = Some(message.seq);
        self.terms = message.terms;
        self.issued = self.issued.max(message.issued);
        self.pacer.apply(now, message.strategy.clone());
    }

    /// An item was put into the outbox; gives back the number of the one that it replaces.
    pub fn on_item(&mut self, key: Option<String>, item: Item) -> Option<u64> {
        // Items without a key have nothing in common.
        if key.is_none() {
            self.backlog.push(key, item);
            return None;
        }
        self.backlog.add(key, item).map(|older| older.number)
    }

    /// The server has answered the item under way: it is done.
    pub fn on_answered(&mut self) {
        self.under_way = None;
    }

    /// The item under way failed, or was refused until `not_before`; it goes again at the next
    /// local interval. Gives back its number when a newer one has made it obsolete.
    pub fn on_failed(&mut self, now: Timestamp, not_before: Option<Timestamp>) -> Option<u64> {
        let (key, item) = self.under_way.take()?;
        let retry = self.pacer.retry_at(now);
        self.retry = retry.max(not_before.unwrap_or(retry));
        match key {
            None => {
                self.backlog.push_front(key, item);
                None
            }
            Some(_) => self.backlog.put_back(key, item).map(|older| older.number),
        }
    }

    /// Takes out the items that the server wants no more, by its own word.
    pub fn expire(&mut self, now: Timestamp) -> Vec<u64> {
        let known = now.min(self.issued);
        let after = self.terms.prolonged + self.config.grace;
        let expired = self
            .backlog
            .remove_unless(|item| item.expires + after > known);
        expired.into_iter().map(|item| item.number).collect()
    }

    /// What to do now.
    pub fn next(&mut self, now: Timestamp) -> Action {
        if self.liveness.handle_timeout(now) == Some(Change::Partitioned) {
            let fallback = Strategy::Interval(self.config.fallback);
            self.pacer.apply(now, fallback);
        }
        let prolonged = self.terms.prolonged;
        let may_go = |item: &Item| item.expires + prolonged > now;
        if self.under_way.is_some() || !self.backlog.iter().any(may_go) {
            return self.idle();
        }
        let permit = if self.retry > now {
            Permit::NotBefore(self.retry)
        } else {
            self.pacer.permit(now)
        };
        match permit {
            Permit::NotBefore(time) => Action::Wait(match self.liveness.poll_timeout() {
                Some(silence) => time.min(silence),
                None => time,
            }),
            Permit::Now => {
                self.pacer.on_sent(now);
                self.under_way = self.backlog.take_first_where(may_go);
                let number = self.under_way.as_ref().map(|(_, item)| item.number);
                number.map_or(Action::Idle, Action::Send)
            }
        }
    }

    fn idle(&self) -> Action {
        self.liveness
            .poll_timeout()
            .map_or(Action::Idle, Action::Wait)
    }

    /// Items that wait or are under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.backlog.len() + usize::from(self.under_way.is_some())
    }

    /// Items whose time is over, and which go only if the server prolongs.
    #[must_use]
    pub fn overdue(&self, now: Timestamp) -> usize {
        let over = |item: &&Item| item.expires + self.terms.prolonged <= now;
        self.backlog.iter().filter(over).count()
    }

    /// What the server has decided about deadlines.
    #[must_use]
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Whether the channel is silent.
    #[must_use]
    pub fn is_partitioned(&self) -> bool {
        self.liveness.is_partitioned()
    }

    /// What is in force.
    #[must_use]
    pub fn strategy(&self) -> &Strategy {
        self.pacer.strategy()
    }

    /// The last message, and how long it took to arrive.
    #[must_use]
    pub fn told(&self) -> Option<(u64, Duration)> {
        self.told.map(|seq| (seq, self.lag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    fn engine(variant: Variant) -> Engine {
        let config = EngineConfig {
            id: ClientId(4),
            variant,
            fallback: Duration::from_secs(60),
            silence: Duration::from_secs(10),
            grace: Duration::from_secs(600),
        };
        Engine::new(config, at(1000.0))
    }

    fn item(number: u64) -> Item {
        Item {
            number,
            expires: Timestamp::MAX,
        }
    }

    fn message(seq: u64, now: f64, strategy: Strategy) -> ControlMessage {
        ControlMessage {
            seq,
            issued: at(now - 0.5),
            validity: Duration::from_secs(30),
            setpoint: Duration::from_secs(1),
            strategy,
            successor: None,
            terms: Terms::default(),
        }
    }

    #[test]
    fn open_channel_sends_one_after_the_other() {
        let mut engine = engine(Variant::Queue);
        engine.on_message(at(1000.0), &message(1, 1000.0, Strategy::Open));
        engine.on_item(None, item(1));
        engine.on_item(None, item(2));
        assert_eq!(engine.next(at(1000.0)), Action::Send(1));
        assert!(matches!(engine.next(at(1000.1)), Action::Wait(_)));
        engine.on_answered();
        assert_eq!(engine.next(at(1000.2)), Action::Send(2));
        assert_eq!(engine.told(), Some((1, Duration::ZERO)));
        engine.on_message(at(1001.0), &message(2, 1001.0, Strategy::Open));
        assert_eq!(engine.told(), Some((2, Duration::from_millis(500))));
    }

    #[test]
    fn silence_means_the_fallback_rate_and_a_message_ends_it() {
        let mut engine = engine(Variant::Queue);
        engine.on_message(at(1000.0), &message(1, 1000.0, Strategy::Open));
        for number in 1..20 {
            engine.on_item(None, item(number));
        }
        let mut sent = 0;
        for tenth in 0..1800 {
            let now = at(1011.0 + f64::from(tenth) / 10.0);
            if let Action::Send(_) = engine.next(now) {
                engine.on_answered();
                sent += 1;
            }
        }
        assert!(engine.is_partitioned());
        assert!(
            (3..=4).contains(&sent),
            "{sent} in three fallback intervals"
        );
        engine.on_message(at(1200.0), &message(2, 1200.0, Strategy::Open));
        assert!(matches!(engine.next(at(1200.0)), Action::Send(_)));
    }

    #[test]
    fn failure_waits_for_the_next_interval_and_keeps_its_place() {
        let mut engine = engine(Variant::Queue);
        let every = Strategy::Interval(Duration::from_secs(20));
        engine.on_message(at(1000.0), &message(1, 1000.0, every));
        engine.on_item(None, item(1));
        engine.on_item(None, item(2));
        assert_eq!(engine.next(at(1000.0)), Action::Send(1));
        assert_eq!(engine.on_failed(at(1000.5), None), None);
        assert!(matches!(engine.next(at(1000.5)), Action::Wait(_)));
        engine.on_message(
            at(1019.0),
            &message(2, 1019.0, Strategy::Interval(Duration::from_secs(20))),
        );
        let again =
            (0..200).find_map(
                |tenth| match engine.next(at(1001.0 + f64::from(tenth) / 10.0)) {
                    Action::Send(number) => Some(number),
                    _ => None,
                },
            );
        assert_eq!(again, Some(1));
    }

    #[test]
    fn newer_bid_replaces_the_one_that_waits_or_failed() {
        let mut engine = engine(Variant::Overwrite);
        engine.on_message(at(1000.0), &message(1, 1000.0, Strategy::Open));
        let key = || Some("lot 7".to_owned());
        engine.on_item(key(), item(1));
        assert_eq!(engine.on_item(key(), item(2)), Some(1));
        assert_eq!(engine.next(at(1000.0)), Action::Send(2));
        engine.on_item(key(), item(3));
        assert_eq!(engine.on_failed(at(1000.1), None), Some(2));
        assert_eq!(engine.pending(), 1);
        // Without a key nothing is replaced.
        engine.on_item(None, item(4));
        assert_eq!(engine.on_item(None, item(5)), None);
    }

    #[test]
    fn item_that_is_too_late_does_not_go_and_is_given_up_by_the_servers_word() {
        let mut engine = engine(Variant::Queue);
        engine.on_message(at(1000.0), &message(1, 1000.0, Strategy::Open));
        let soon = Item {
            number: 1,
            expires: at(1010.0),
        };
        engine.on_item(None, soon);
        assert!(!matches!(engine.next(at(1010.0)), Action::Send(_)));
        assert_eq!(engine.overdue(at(1010.0)), 1);
        // In silence nothing is given up, however long it lasts.
        assert_eq!(engine.expire(at(90_000.0)), [0_u64; 0]);
        engine.on_message(at(1100.0), &message(2, 1100.0, Strategy::Open));
        assert_eq!(engine.expire(at(1100.0)), [0_u64; 0]);
        engine.on_message(at(1611.0), &message(3, 1611.0, Strategy::Open));
        assert_eq!(engine.expire(at(1611.0)), [1]);
        assert_eq!(engine.pending(), 0);
    }

    #[test]
    fn prolongation_reaches_the_items_that_it_is_for() {
        let mut engine = engine(Variant::Queue);
        let soon = Item {
            number: 1,
            expires: at(1010.0),
        };
        engine.on_message(at(1000.0), &message(1, 1000.0, Strategy::Open));
        engine.on_item(None, soon);
        // An outage of five minutes, in which the channel is silent too.
        assert_eq!(engine.expire(at(1300.0)), [0_u64; 0]);
        let mut prolonged = message(2, 1300.0, Strategy::Open);
        prolonged.terms.prolonged = Duration::from_secs(400);
        engine.on_message(at(1300.0), &prolonged);
        assert_eq!(engine.expire(at(1300.0)), [0_u64; 0]);
        assert_eq!(engine.next(at(1300.0)), Action::Send(1));
    }
}
