//! Client-side control (paper 001): the server tells its clients when to send, and they hold back.
//!
//! The cheapest refusal is the request that is never sent. A server in front of a deadline (an
//! auction that closes, a lottery, a form due at midnight) gets its load in one peak, although
//! most of it could wait. Here the server broadcasts a signed [`ControlMessage`] that says who may
//! send when; clients verify it, apply it, and pass it on.
//!
//! The pure part, which reads no clock and opens no socket, so that simulator, client and proxy
//! run the same code:
//!
//! - [`message`], [`key`], [`verify`]: what is said, who said it, and whether to believe it;
//! - [`strategy`], [`pacer`]: what a client may do, and when ([`backlog`]: what waits meanwhile);
//! - [`liveness`]: whether its messages still arrive;
//! - [`regulate`]: the server's controller behind the messages;
//! - [`stamp`], [`clock`]: when an item was made, by a clock that server and client agree on;
//! - [`compliance`]: whether a client did what it was told; [`ledger`]: which items were passed on;
//!   [`receipt`]: what the service is told about an item;
//! - [`tracker`]: who listens to whom.
//!
//! With the feature `net`, delivery: [`net`].
//!
//! Decision: docs/decisions/0035-client-side-control.md.

pub mod backlog;
pub mod clock;
pub mod compliance;
pub mod key;
pub mod ledger;
pub mod liveness;
pub mod message;
#[cfg(feature = "net")]
pub mod net;
pub mod pacer;
pub mod receipt;
pub mod regulate;
pub mod stamp;
pub mod strategy;
pub mod tracker;
pub mod verify;
mod wire;

pub use backlog::{Backlog, Variant};
pub use compliance::{Auditor, AuditorConfig};
pub use key::{PublicKey, SecretKey};
pub use ledger::Ledger;
pub use liveness::{Liveness, LivenessConfig};
pub use message::{ControlMessage, Terms};
pub use pacer::{Pacer, Permit};
pub use regulate::{Regulator, RegulatorConfig};
pub use strategy::{ClientId, Strategy};
pub use verify::{Rejection, Verifier};
