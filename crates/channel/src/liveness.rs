//! Whether messages of the channel still arrive (001 §4.3): a keep-alive, as a state machine.
//!
//! The server repeats its message every `keep_alive` even when nothing changed. A client that
//! receives nothing for `silence` is partitioned: it must not go on with what it was told last,
//! which the server may have replaced, nor send freely. Numbers that are missing between two
//! messages are counted as gaps; they do not matter for the strategy, since the newest message says
//! all.

use std::time::Duration;

use tidegate_control::Timestamp;

use crate::message::missed;

/// When silence means a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LivenessConfig {
    /// No message for this long means a partition: a few keep-alives.
    pub silence: Duration,
}

impl Default for LivenessConfig {
    /// Five of the proxy's keep-alives of two seconds.
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(10),
        }
    }
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// No message came for too long: fall back.
    Partitioned,
    /// A message arrives again, or for the first time.
    Connected,
}

/// Watches for silence.
#[derive(Debug, Clone)]
pub struct Liveness {
    config: LivenessConfig,
    heard: Timestamp,
    last_seq: Option<u64>,
    partitioned: bool,
    gaps: u64,
}

impl Liveness {
    /// Partitioned until the first message: a client that was told nothing does not know what
    /// it may do.
    #[must_use]
    pub fn new(config: LivenessConfig, now: Timestamp) -> Self {
        Self {
            config,
            heard: now,
            last_seq: None,
            partitioned: true,
            gaps: 0,
        }
    }

    /// A message was accepted.
    pub fn on_message(&mut self, now: Timestamp, seq: u64) -> Option<Change> {
        if let Some(last) = self.last_seq {
            self.gaps += missed(last, seq);
        }
        self.last_seq = Some(seq);
        self.heard = self.heard.max(now);
        std::mem::take(&mut self.partitioned).then_some(Change::Connected)
    }

    /// When it next wants to be called; never while partitioned.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.partitioned).then(|| self.heard + self.config.silence)
    }

    /// Time has passed; early calls do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Option<Change> {
        let due = self.poll_timeout().is_some_and(|due| due <= now);
        if !due {
            return None;
        }
        self.partitioned = true;
        Some(Change::Partitioned)
    }

    /// Whether no message came for too long.
    #[must_use]
    pub fn is_partitioned(&self) -> bool {
        self.partitioned
    }

    /// How many messages were missed.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    #[test]
    fn silence_is_a_partition_and_a_message_ends_it() {
        let mut liveness = Liveness::new(LivenessConfig::default(), at(0.0));
        assert!(liveness.is_partitioned());
        assert_eq!(liveness.on_message(at(1.0), 7), Some(Change::Connected));
        assert_eq!(liveness.on_message(at(2.0), 8), None);
        assert_eq!(liveness.poll_timeout(), Some(at(12.0)));
        assert_eq!(liveness.handle_timeout(at(11.9)), None);
        assert_eq!(liveness.handle_timeout(at(12.0)), Some(Change::Partitioned));
        assert_eq!(liveness.handle_timeout(at(13.0)), None);
        assert_eq!(liveness.on_message(at(20.0), 11), Some(Change::Connected));
        assert_eq!(liveness.gaps(), 2);
    }
}
