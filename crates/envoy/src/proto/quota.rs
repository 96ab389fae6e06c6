//! `envoy.service.rate_limit_quota.v3` and `envoy.type.v3.RateLimitStrategy`.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

use super::core::{Duration, UInt32Value};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UsageReports {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) usages: Vec<BucketUsage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BucketUsage {
    #[prost(message, optional, tag = "1")]
    pub(crate) bucket_id: Option<BucketId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) time_elapsed: Option<Duration>,
    #[prost(uint64, tag = "3")]
    pub(crate) allowed: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) denied: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub(crate) struct BucketId {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) bucket: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QuotaResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) actions: Vec<BucketAction>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BucketAction {
    #[prost(message, optional, tag = "1")]
    pub(crate) bucket_id: Option<BucketId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) assignment: Option<QuotaAssignment>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QuotaAssignment {
    #[prost(message, optional, tag = "2")]
    pub(crate) time_to_live: Option<Duration>,
    #[prost(message, optional, tag = "3")]
    pub(crate) strategy: Option<RateLimitStrategy>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitStrategy {
    #[prost(oneof = "Strategy", tags = "1, 3")]
    pub(crate) strategy: Option<Strategy>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Strategy {
    /// 0 is `ALLOW_ALL`, 1 is `DENY_ALL`.
    #[prost(int32, tag = "1")]
    Blanket(i32),
    #[prost(message, tag = "3")]
    TokenBucket(TokenBucket),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TokenBucket {
    #[prost(uint32, tag = "1")]
    pub(crate) max_tokens: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) tokens_per_fill: Option<UInt32Value>,
    #[prost(message, optional, tag = "3")]
    pub(crate) fill_interval: Option<Duration>,
}
