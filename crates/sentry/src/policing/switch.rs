//! Precise or cheap: batches while the proxy has CPU to spare, the threshold while it has not
//! (003 §3.3).
//!
//! The proxy's own CPU use is smoothed. Above `cpu_high` the cheap way is in force at once; the
//! precise one comes back after the use has been below `cpu_low` for `cpu_quiet`.

use tidegate_control::Timestamp;

use super::Kind;
use crate::config::{Policing, SentryModeConfig};

/// Weight of the newest report.
const NEWEST: f64 = 0.3;

/// Precise or cheap: batches while the proxy has CPU to spare, the threshold while it has not (003
/// §3.3).
#[derive(Debug)]
pub(crate) struct Switch {
    kind: Kind,
    reason: &'static str,
    cpu_share: Option<f64>,
    quiet_since: Option<Timestamp>,
}

impl Switch {
    pub(crate) fn new(config: &SentryModeConfig) -> Self {
        let (kind, reason) = match config.policing {
            Policing::Auto => (Kind::Batch, "room"),
            Policing::Batch => (Kind::Batch, "configured"),
            Policing::Threshold => (Kind::Threshold, "configured"),
        };
        Self {
            kind,
            reason,
            cpu_share: None,
            quiet_since: None,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }

    /// The smoothed use, where the driver reports it.
    pub(crate) fn cpu_share(&self) -> Option<f64> {
        self.cpu_share
    }

    /// Takes the latest use; true when the kind changed.
    pub(crate) fn on_step(
        &mut self,
        now: Timestamp,
        newest: Option<f64>,
        config: &SentryModeConfig,
    ) -> bool {
        let Some(newest) = newest else {
            return false;
        };
        let before = self.cpu_share.unwrap_or(newest);
        let share = before + NEWEST * (newest - before);
        self.cpu_share = Some(share);
        if config.policing != Policing::Auto {
            return false;
        }
        self.quiet_since = if share < config.cpu_low.0 {
            self.quiet_since.or(Some(now))
        } else {
            None
        };
        match self.kind {
            Kind::Batch if share > config.cpu_high.0 => self.change(Kind::Threshold, "cpu"),
            Kind::Threshold if self.quiet_for(now, config) => self.change(Kind::Batch, "room"),
            _ => false,
        }
    }

    fn quiet_for(&self, now: Timestamp, config: &SentryModeConfig) -> bool {
        let long = |since: Timestamp| now - since >= config.cpu_quiet.0;
        self.quiet_since.is_some_and(long)
    }

    fn change(&mut self, kind: Kind, reason: &'static str) -> bool {
        (self.kind, self.reason) = (kind, reason);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_secs_f64(seconds)
    }

    #[test]
    fn cheap_at_once_precise_after_a_quiet_time() {
        let config = SentryModeConfig::default();
        let mut switch = Switch::new(&config);
        assert!(!switch.on_step(at(0.0), Some(0.75), &config));
        assert!(switch.on_step(at(1.0), Some(1.0), &config));
        assert_eq!((switch.kind(), switch.reason()), (Kind::Threshold, "cpu"));
        for second in 2..20 {
            assert!(!switch.on_step(at(f64::from(second)), Some(0.7), &config));
        }
        let back =
            (20..200).find(|&second| switch.on_step(at(f64::from(second)), Some(0.5), &config));
        // About two steps until the smoothed use is below 0.6, then thirty seconds.
        assert!(
            back.is_some_and(|second| (50..=55).contains(&second)),
            "{back:?}"
        );
        assert_eq!((switch.kind(), switch.reason()), (Kind::Batch, "room"));
    }

    #[test]
    fn what_is_configured_stays() {
        let config = SentryModeConfig {
            policing: Policing::Batch,
            ..SentryModeConfig::default()
        };
        let mut switch = Switch::new(&config);
        assert!(!switch.on_step(at(0.0), Some(1.0), &config));
        assert_eq!(switch.kind(), Kind::Batch);
        assert_eq!(switch.cpu_share(), Some(1.0));
    }
}
