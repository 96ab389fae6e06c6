//! How clients behave: patience, retries, reading, and what they ask for.
//!
//! A load is a mix of kinds of client. The same few properties describe ordinary users and
//! attackers alike:
//!
//! | kind | written as |
//! | --- | --- |
//! | impatient user | `timeout = "2s"` |
//! | retry storm | `timeout = "1s"`, `retry = { attempts = 3 }` |
//! | aborter | `timeout = { law = "exponential", mean = "50ms" }` |
//! | chooser of slow URLs | `work = 50` |
//! | slow reader | `read = "30s"` |
//! | subscriber | `stream = { law = "exponential", mean = "10m" }` |

use std::num::NonZeroU32;
use std::time::Duration;

use rand::RngExt;
use serde::Deserialize;
use tidegate_config::{Dur, Share};

use crate::rng::SimRng;
use crate::service::Law;

/// One kind of client of a load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSpec {
    /// Weight of this kind among those of its load.
    pub share: f64,
    /// Name of the class of its requests; the first class when not given.
    pub class: Option<String>,
    /// How many times the usual work its requests are.
    pub work: f64,
    /// Its own law of work, in place of the scenario's.
    pub service: Option<Law>,
    /// How long it waits for an answer before it leaves; without it for ever.
    pub timeout: Option<Law>,
    /// What it does after a failure; without it nothing.
    pub retry: Option<Retry>,
    /// How long its requests are worth an answer, as it tells the proxy.
    pub deadline: Option<Dur>,
    /// It reads the answer this slowly, larger than what is buffered: the replica's slot stays
    /// taken meanwhile, without a core, as a stream of the proxy.
    pub read: Option<Law>,
    /// The answer is a stream of this length, without a core or a slot.
    pub stream: Option<Law>,
    /// Bytes of a request while it waits.
    pub bytes: u32,
    /// The path it asks for: requests of a path cost alike, as the protection may learn.
    pub path: Option<String>,
    /// The tenant it belongs to.
    pub tenant: Option<String>,
}

impl Default for ClientSpec {
    fn default() -> Self {
        Self {
            share: 1.0,
            class: None,
            work: 1.0,
            service: None,
            timeout: None,
            retry: None,
            deadline: None,
            read: None,
            stream: None,
            bytes: 1024,
            path: None,
            tenant: None,
        }
    }
}

impl ClientSpec {
    /// The law of its work, where the scenario's is `usual`.
    #[must_use]
    pub fn law(&self, usual: &Law) -> Law {
        self.service.as_ref().unwrap_or(usual).scaled(self.work)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let from_zero = |number: f64| number >= 0.0 && number.is_finite();
        match self {
            _ if !from_zero(self.share) => Err("`share` of a client is a number from 0".into()),
            _ if !from_zero(self.work) => Err("`work` of a client is a number from 0".into()),
            Self {
                read: Some(_),
                stream: Some(_),
                ..
            } => Err("a client has `read` or `stream`, not both".into()),
            _ => Ok(()),
        }
    }
}

/// Exponential backoff: before the `n`th retry a client waits
/// `min(backoff · factor^(n-1), max_backoff)`, less a random share of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Most retries of one request.
    pub attempts: NonZeroU32,
    /// Before the first retry.
    pub backoff: Dur,
    /// Growth from one retry to the next.
    pub factor: f64,
    /// Never longer than this.
    pub max_backoff: Dur,
    /// The random share: 0 retries on the beat, 100 % anywhere up to the backoff.
    pub jitter: Share,
    /// After which failures.
    pub on: Vec<Failure>,
    /// Never earlier than a refusal's Retry-After.
    pub obey: bool,
    /// Chance of trying again after each of the failures.
    pub chance: Share,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: NonZeroU32::MIN,
            backoff: Duration::from_millis(100).into(),
            factor: 2.0,
            max_backoff: Duration::from_secs(10).into(),
            jitter: Share(0.5),
            on: vec![Failure::Shed, Failure::Timeout, Failure::Dropped],
            obey: false,
            chance: Share(1.0),
        }
    }
}

/// A way to get no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// Refused by the protection.
    Shed,
    /// The client's patience ended.
    Timeout,
    /// The replica failed.
    Dropped,
}

impl Retry {
    /// How long to wait before trying again after `failure` of the `tries`th attempt; nothing when
    /// it gives up.
    pub(crate) fn delay(
        &self,
        failure: Failure,
        tries: u32,
        retry_after: Duration,
        rng: &mut SimRng,
    ) -> Option<Duration> {
        if tries > self.attempts.get() || !self.on.contains(&failure) {
            return None;
        }
        // Without a chance nothing is drawn.
        if self.chance.0 < 1.0 && rng.random::<f64>() >= self.chance.0 {
            return None;
        }
        let growth = self.factor.powi(tries.saturating_sub(1).min(1000) as i32);
        let full = (self.backoff.as_secs_f64() * growth).min(self.max_backoff.as_secs_f64());
        let seconds = full * (1.0 - self.jitter.0 * rng.random::<f64>());
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(self.max_backoff.0);
        let earliest = if self.obey {
            retry_after
        } else {
            Duration::ZERO
        };
        Some(delay.max(earliest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;

    fn retry(text: &str) -> Retry {
        tidegate_config::parse("t.toml", text).unwrap()
    }

    fn delays(retry: &Retry, failure: Failure) -> Vec<Option<u128>> {
        let mut rng = Streams::new(1).stream("retry");
        (1..=4)
            .map(|tries| retry.delay(failure, tries, Duration::from_secs(7), &mut rng))
            .map(|delay| delay.map(|delay| delay.as_millis()))
            .collect()
    }

    #[test]
    fn backoff_grows_to_its_maximum_and_ends() {
        let retry = retry("attempts = 3\nbackoff = '1s'\nmax_backoff = '3s'\njitter = 0");
        let expected = [Some(1000), Some(2000), Some(3000), None];
        assert_eq!(delays(&retry, Failure::Shed), expected);
    }

    #[test]
    fn chance_is_the_share_of_failures_that_are_tried_again() {
        let retry = retry("chance = '30%'");
        let mut rng = Streams::new(1).stream("retry");
        let mut again = || {
            retry
                .delay(Failure::Shed, 1, Duration::ZERO, &mut rng)
                .is_some()
        };
        let count = (0..10_000).filter(|_| again()).count();
        assert!((2800..3200).contains(&count), "{count}");
    }

    #[test]
    fn jitter_only_shortens() {
        let retry = retry("attempts = 9\nbackoff = '1s'\nfactor = 1\njitter = '100%'");
        let delays = delays(&retry, Failure::Dropped);
        assert!(delays.iter().all(|delay| delay.unwrap() <= 1000));
        assert_ne!(delays[0], delays[1]);
    }

    #[test]
    fn some_failures_are_final() {
        let retry = retry("on = ['timeout']");
        assert_eq!(delays(&retry, Failure::Shed)[0], None);
        assert!(delays(&retry, Failure::Timeout)[0].is_some());
    }

    #[test]
    fn who_obeys_waits_as_told() {
        let retry = retry("obey = true");
        assert_eq!(delays(&retry, Failure::Shed)[0], Some(7000));
    }

    #[test]
    fn contradictions_are_refused() {
        let client: ClientSpec = tidegate_config::parse("t", "read='1s'\nstream='1s'").unwrap();
        assert!(client.check().unwrap_err().contains("not both"));
        let client: ClientSpec = tidegate_config::parse("t", "work = -1").unwrap();
        assert!(client.check().unwrap_err().contains("`work`"));
    }
}
