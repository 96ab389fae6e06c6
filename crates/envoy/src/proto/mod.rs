//! The messages of Envoy's services, as far as they are read or written here.
//!
//! Field numbers are those of Envoy's API v3. Fields that nothing here looks at are left out: a
//! decoder skips what it does not know. Decision 0180 says why they are written by hand.

pub(crate) mod access_log;
pub(crate) mod auth;
pub(crate) mod core;
pub(crate) mod ext_proc;
pub(crate) mod quota;
pub(crate) mod rate_limit;
