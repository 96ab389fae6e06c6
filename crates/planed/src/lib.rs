//! The control plane's daemon, `tidegate plane`.
//!
//! ```text
//! proxies' admin API ─► observations ─┐
//!                                      ├─► tidegate_plane::Plane ─► decisions ─► drivers ─► servers
//! drivers: servers set and ready ──────┘                                          └─► proxies' pools
//! ```
//!
//! Beside that, proxies of a fleet leave their reports here for each other (`reports`).
//!
//! Everything that decides is in [`tidegate_plane`]; here are sockets, processes, files and the
//! clock. In mode `recommend` decisions are reported only.

mod api;
mod cluster;
mod config;
mod daemon;
mod driver;
mod http;
mod observe;
mod proxy;
mod reports;
mod saved;

pub use cluster::{Cluster, Declared, Report};
pub use config::{
    ClusterConfig, DaemonConfig, Drain, DriverConfig, File, KedaConfig, KubernetesDriverConfig,
    Mode, OnExit, PoolBy, ProxiesDriverConfig,
};
pub use daemon::{Daemon, DaemonError, NO_KUBERNETES};
pub use driver::{Driver, Saved, Seen, Task};
pub use http::CallError;
pub use proxy::{Member, Proxy, same_server};
