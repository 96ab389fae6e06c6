//! The live proxy: a data plane around the admission engine.
//!
//! ```text
//!            worker (one per core)                                    shared
//!  accept ─► client::serve ─► request::serve ─► gate ─► upstream ─►   state::State
//!  (listen)  http1, h2        the life of a     slot    pool, send      applications, each with
//!                             request                   │               sentry, settings, metrics
//!            response::relay ◄──────────────────────────┘
//! ```
//!
//! Start reading in `request`, whose `live` is the life of a request as a list of steps. The
//! HTTP/1.1 is our own (`tidegate-http1`, decision 0017); HTTP/2 is the h2 crate's towards clients
//! and hyper's towards replicas.

mod access_log;
pub mod admin;
mod alarm;
pub mod application;
pub mod channel;
mod classes;
mod client;
pub mod clock;
mod coalesce;
pub mod config;
mod cpu;
mod discover;
mod edge;
mod fault;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod health;
mod hop;
mod listen;
mod memory;
pub mod metrics;
mod operator_log;
mod pipe;
pub mod pool;
mod progress;
pub mod proxy;
pub mod record;
mod refuse;
pub mod reload;
mod request;
mod response;
mod router;
mod saved_state;
pub mod settings;
mod shadow;
pub mod state;
mod tcp;
pub mod ticker;
pub mod trace;
mod upstream;
mod wall_clock;
mod worker;

use tidegate_http1 as http1;
use tidegate_http1::message;

pub use classes::Classes;
pub use listen::ListenError;
pub use listen::inherited::Inherited;
pub use operator_log::{Level, log, notice, set_format as set_log_format, warn};
pub use proxy::{BindError, Bound, Proxy, Running};
pub use saved_state::SavedState;
pub use upstream::Replica;
pub use upstream::tls::client_tls;
