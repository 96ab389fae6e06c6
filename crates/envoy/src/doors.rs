//! What all interfaces share: the engine, the rules, the ends, the rates.

use std::time::{Duration, Instant};

use http::request::Parts;
use parking_lot::Mutex;
use serde::Serialize;
use tidegate_proxy::Classes;
use tidegate_sentry::{Refusal, SentryConfig, Status};
use tidegate_tower::{BuildError, Entry, ProtectLayer, Protection, Slot};
use tokio::sync::watch;

use crate::config::EnvoyConfig;
use crate::ends::Ends;
use crate::latency::{Latency, Quantiles};
use crate::proto::quota::BucketId;
use crate::rate::{Picture, Rates};

/// A bucket of one stream: every Envoy has its own.
pub(crate) type Bucket = (u64, BucketId);

/// One engine behind every interface.
#[derive(Debug)]
pub(crate) struct Doors {
    engine: ProtectLayer,
    decisions: Latency,
    pub(crate) ends: Ends,
    pub(crate) rates: Mutex<Rates<Bucket>>,
    /// Changes when rates were computed.
    pub(crate) steps: watch::Sender<u64>,
    pub(crate) quota_interval: Duration,
    class_key: String,
    protect: SentryConfig,
}

/// What `/status` shows.
#[derive(Debug, Serialize)]
pub(crate) struct DoorsStatus {
    /// Time of decisions, waiting excluded.
    decisions: Quantiles,
    access_log_streams: usize,
    slots_waiting_for_their_end: usize,
    quota: Picture,
    engine: Status,
}

impl Doors {
    pub(crate) fn new(config: &EnvoyConfig) -> Result<Self, BuildError> {
        let classes = Classes::new(&config.proxy());
        let trusted = config.trust_headers;
        let engine = Protection::from_config(config.protect.clone())
            .classify_by_id(move |head| classes.class(head, trusted))
            .build()?;
        let interval = config.quota.interval.0;
        Ok(Self {
            engine,
            decisions: Latency::new(),
            ends: Ends::default(),
            rates: Mutex::new(Rates::new(config.quota_target(), interval)),
            steps: watch::Sender::new(0),
            quota_interval: interval,
            class_key: config.quota.class_key.clone(),
            protect: config.protect.clone(),
        })
    }

    /// Decides about a request. Waits while it is queued; dropping the future leaves the queue.
    pub(crate) async fn admit(&self, received: Instant, head: &Parts) -> Result<Slot, Refusal> {
        let entry = self.engine.enter(head);
        self.decisions.record(received.elapsed());
        match entry {
            Entry::Admitted(slot) => Ok(slot),
            Entry::Waiting(wait) => wait.await,
            Entry::Shed(refusal) => Err(refusal),
        }
    }

    /// The class that a bucket names, or the least important one.
    pub(crate) fn bucket_class(&self, bucket: &BucketId) -> usize {
        let name = bucket.bucket.get(&self.class_key);
        let class = name.and_then(|name| self.protect.class_id(name));
        class.map_or(self.protect.class_count() - 1, |class| usize::from(class.0))
    }

    /// Computes rates; once per interval.
    pub(crate) fn step(&self) {
        self.rates.lock().step();
        self.steps.send_modify(|step| *step += 1);
        self.ends.sweep(Instant::now());
    }

    pub(crate) fn status(&self) -> DoorsStatus {
        DoorsStatus {
            decisions: self.decisions.quantiles(),
            access_log_streams: self.ends.logs(),
            slots_waiting_for_their_end: self.ends.waiting(),
            quota: self.rates.lock().picture(),
            engine: self.engine.status(),
        }
    }
}
