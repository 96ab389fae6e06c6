//! Hostile requests through a real proxy, and a strict judge behind it.
//!
//! A proxy is safe to stand behind when whatever it passes on can be read in one way only. So the
//! judgement looks at nothing but the bytes that reach the upstream: they have to be HTTP/1.1 by
//! the letter of RFC 9112 ([`grammar`]), in the form that a careful proxy gives them
//! ([`canonical`]), and each request among them has to be one that the client's bytes contain
//! when they are read as strictly ([`lane`]). What the proxy answers the client does not matter,
//! except that requests which are sound have to arrive.
//!
//! ```text
//! vectors ─► mutate ─► lane: client ─► proxy ─► record: upstream ─► grammar, canonical
//!                        └── the client's own bytes, read strictly ──► compare
//! ```
//!
//! What breaks it: a reading of ours that is wrong in the same way as the proxy's. The grammar is
//! therefore written apart from the proxy's scanner and shares no code with it.
//!
//! Decision: docs/decisions/0015-hostile-input-testing.md.

pub mod canonical;
pub mod careless;
pub mod corpus;
pub mod downgrade;
pub mod frames;
pub mod grammar;
pub mod lane;
pub mod mutate;
pub mod record;
pub mod report;
pub mod run;
pub mod vector;
