//! `rate_limit_quota`: one stream per Envoy, which reports counts and is sent rates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::watch;
use tonic::Streaming;

use crate::doors::Doors;
use crate::proto::core::{Duration, UInt32Value};
use crate::proto::quota::{
    BucketAction, BucketUsage, QuotaAssignment, QuotaResponse, RateLimitStrategy, Strategy,
    TokenBucket, UsageReports,
};

/// Intervals for which an assignment is in force: Envoy outlives a restart of this server.
const INTERVALS_TO_LIVE: u32 = 40;

/// Seconds in which a bucket is filled. Ten keep a tenth of a request a second exact.
const FILL_SECONDS: u32 = 10;

/// Time of the rate that a full bucket holds. Each new assignment is a full bucket, so it has to
/// be short against the interval.
const BURST_SECONDS: f64 = 0.02;

/// `RateLimitStrategy.BlanketRule.ALLOW_ALL`.
const ALLOW_ALL: i32 = 0;

static STREAMS: AtomicU64 = AtomicU64::new(0);

/// Assigns rates to the buckets of one Envoy until it leaves.
pub(crate) fn assign(
    doors: Arc<Doors>,
    reports: Streaming<UsageReports>,
) -> impl Stream<Item = Result<QuotaResponse, tonic::Status>> + Send {
    let subscription = Subscription {
        stream: STREAMS.fetch_add(1, Ordering::Relaxed),
        steps: doors.steps.subscribe(),
        doors,
        reports,
    };
    unfold(subscription, |mut subscription| async {
        let response = subscription.next().await?;
        Some((Ok(response), subscription))
    })
}

struct Subscription {
    stream: u64,
    doors: Arc<Doors>,
    reports: Streaming<UsageReports>,
    steps: watch::Receiver<u64>,
}

impl Subscription {
    /// The next assignments: at once for a new bucket, then after every step.
    async fn next(&mut self) -> Option<QuotaResponse> {
        loop {
            let due = tokio::select! {
                report = self.reports.message() => self.note(&report.ok().flatten()?),
                stepped = self.steps.changed() => stepped.is_ok(),
            };
            let actions = if due { self.actions() } else { Vec::new() };
            if !actions.is_empty() {
                return Some(QuotaResponse { actions });
            }
        }
    }

    /// Whether the report has a bucket that was not there before: Envoy waits for its rate.
    fn note(&self, reports: &UsageReports) -> bool {
        let mut new = false;
        for usage in &reports.usages {
            new |= self.note_usage(usage);
        }
        new
    }

    fn note_usage(&self, usage: &BucketUsage) -> bool {
        let Some(id) = usage.bucket_id.clone() else {
            return false;
        };
        let class = self.doors.bucket_class(&id);
        let elapsed = usage.time_elapsed.map_or(0.0, |time| time.as_seconds());
        let requests = usage.allowed + usage.denied;
        let mut rates = self.doors.rates.lock();
        rates.on_usage((self.stream, id), class, requests, elapsed)
    }

    fn actions(&self) -> Vec<BucketAction> {
        let time_to_live = self.doors.quota_interval * INTERVALS_TO_LIVE;
        let rates = self.doors.rates.lock();
        let assignments = rates.assignments().into_iter();
        let own = assignments.filter(|((stream, _), _)| *stream == self.stream);
        own.map(|((_, id), rate)| BucketAction {
            bucket_id: Some(id.clone()),
            assignment: Some(QuotaAssignment {
                time_to_live: Some(time_to_live.into()),
                strategy: Some(RateLimitStrategy {
                    strategy: Some(strategy(rate)),
                }),
            }),
        })
        .collect()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let stream = self.stream;
        self.doors.rates.lock().on_gone(|bucket| bucket.0 == stream);
    }
}

fn strategy(rate: Option<f64>) -> Strategy {
    let Some(rate) = rate else {
        return Strategy::Blanket(ALLOW_ALL);
    };
    let tokens = (rate * f64::from(FILL_SECONDS)).round().max(1.0) as u32;
    Strategy::TokenBucket(TokenBucket {
        max_tokens: (rate * BURST_SECONDS).ceil().max(1.0) as u32,
        tokens_per_fill: Some(UInt32Value { value: tokens }),
        fill_interval: Some(Duration {
            seconds: FILL_SECONDS.into(),
            nanos: 0,
        }),
    })
}
