//! Several proxies in front of one pool of replicas.
//!
//! Each proxy is a [`Member`] of a fleet. It reports what its engines do ([`PeerReport`]), reads
//! the reports of the others, and gets a [`FleetShare`](tidegate_sentry::FleetShare) for each
//! application, so that windows, guarantees and quotas add up to what is configured.
//!
//! # The driver's manual
//!
//! 1. Every `interval`: [`Member::on_sample`] with what the engines say; give each engine the share
//!    that comes back, and send [`Member::report`] to the others.
//! 2. A report arrives: [`PeerReport::decode`], then [`Member::on_report`].
//! 3. The exchange works, or does not: [`Member::on_exchange`]. A peer refuses connections, so that
//!    its process is gone: [`Member::on_gone`].
//! 4. [`Member::take_events`] for the journal, [`Member::status`] for people.
//! 5. At shutdown: [`Member::leave`], and send its report once more.
//!
//! No vote is taken. The live proxy with the smallest name searches for the windows of all and
//! divides; where two proxies see different peers for a moment, two of them divide, and shares are
//! off by what they do not know of each other.

mod division;
mod member;
mod message;
mod peer;
mod quotas;

pub use division::{Demand, divide};
pub use member::{
    AppSample, FleetAppStatus, FleetEvent, FleetStatus, Lost, Member, MemberConfig, PeerStatus,
};
pub use message::{
    AppReport, BadReport, ClassReport, Found, Lead, MESSAGE_BYTES_MAX, PeerReport, ProxyShare,
    ReplicaReport, VERSION,
};
pub use quotas::{KeyRates, key_shares};
