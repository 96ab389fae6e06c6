//! Envoy forwards, Tidegate decides: the admission engine behind Envoy's own gRPC interfaces.
//!
//! | filter of Envoy | interface | sees | enforces |
//! |---|---|---|---|
//! | `ext_proc` | `ext_proc.v3` | begin and end of every request | waiting, refusal with reason |
//! | `ext_authz` | `auth.v3` | the begin | waiting, refusal with reason |
//! | `ratelimit` | `ratelimit.v3` | descriptors of the begin | waiting, refusal |
//! | `rate_limit_quota` | `rate_limit_quota.v3` | counts | nothing: Envoy does, by assigned rates |
//! | access log | `accesslog.v3` | the end | nothing |
//!
//! The first three ask the same engine that the proxy and the tower layer run. It needs the end of
//! a request to measure service times. `ext_proc` brings it; beside `ext_authz` and `ratelimit` the
//! access log does (`ends.rs`). Quotas are rates, not decisions about single requests:
//! their law is in `rate.rs`.

mod access_log;
mod config;
mod doors;
mod ends;
mod ext_authz;
mod ext_proc;
mod head;
mod latency;
mod proto;
mod quota;
mod rate;
mod rate_limit;
mod refusal;
mod server;
#[cfg(test)]
mod tests;

pub use config::{EnvoyConfig, QuotaConfig};
pub use server::{Server, ServerError};
