//! Drivers: what carries decisions out.
//!
//! A driver is told a number of servers and gets there in its own time: [`Driver::advance`] is
//! called at every look, and does whatever is due. Nothing that works is stopped before what
//! replaces it works, and a server is drained before it is stopped.

mod hook;
mod launch;
mod members;

use std::future::Future;
use std::pin::Pin;

use tidegate_config::Dur;
use tidegate_plane::{Decision, ServerShare};

pub(crate) use hook::{Hook, run as run_hook};
pub(crate) use launch::{Launcher, List, Processes};
pub use members::Saved;
pub(crate) use members::{Keeping, Members};

use crate::config::DriverConfig;
use crate::proxy::Proxy;

/// A future of a driver.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a driver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Servers that are set.
    pub desired: u32,
    /// Servers that serve.
    pub ready: u32,
}

/// Starts and stops the servers of one application.
pub trait Driver: Send {
    /// Sets the number of servers. An error means that the old number stands.
    fn set<'a>(&'a mut self, decision: &'a Decision) -> Task<'a, Result<(), String>>;

    /// Does what is due, and says what there is; nothing where that is not known. What went wrong
    /// goes to `problems`.
    fn advance<'a>(
        &'a mut self,
        proxies: &'a [Proxy],
        problems: &'a mut Vec<String>,
    ) -> Task<'a, Option<Seen>>;

    /// What there is, while nothing may be done; nothing where only the proxies know.
    fn look<'a>(&'a mut self, _problems: &'a mut Vec<String>) -> Task<'a, Option<Seen>> {
        Box::pin(async { None })
    }

    /// Whether [`Driver::look`] tells what there is. Elsewhere the proxies' pools are counted.
    fn looks(&self) -> bool {
        false
    }

    /// Servers to take over after a restart.
    fn saved(&self) -> Vec<Saved> {
        Vec::new()
    }

    /// Waits until what was told to stop has ended: no later daemon knows of it.
    fn finish_stops(&mut self) -> Task<'_, ()> {
        Box::pin(async {})
    }

    /// Stops everything, for `on_exit = "stop"`.
    fn stop_all<'a>(&'a mut self, proxies: &'a [Proxy]) -> Task<'a, ()>;
}

/// The driver of an application; nothing where that is a matter of the cluster.
pub(crate) fn driver(
    application: &str,
    config: &DriverConfig,
    share: ServerShare,
    first: u32,
    saved: Vec<Saved>,
) -> Option<Box<dyn Driver>> {
    let keeping = |health: &str, drain_time: Dur| Keeping {
        application: application.to_owned(),
        health: health.to_owned(),
        drain_time: drain_time.0,
        share,
    };
    Some(match config {
        DriverConfig::Processes(config) => Box::new(Members::new(
            keeping(&config.health, config.drain_time),
            Launcher::Processes(Processes::new(&config.command, config.log.as_deref())),
            first,
            saved,
        )),
        DriverConfig::List(config) => Box::new(Members::new(
            keeping(&config.health, config.drain_time),
            Launcher::List(List::new(&config.urls)),
            first,
            saved,
        )),
        DriverConfig::Hook(config) => Box::new(Hook::new(application, config)),
        DriverConfig::Kubernetes(_) => return None,
    })
}
