//! What a cluster adds to the daemon: drivers, applications that are declared there, one leader, a
//! place for status.
//!
//! The daemon knows no cluster. [`Cluster`] is what it needs of one; `tidegate-plane-k8s`
//! implements it for Kubernetes.

use std::collections::BTreeMap;

use tidegate_plane::{ApplicationConfig, ApplicationStatus, PlaneConfig};

use crate::config::{KubernetesDriverConfig, Mode};
use crate::driver::{Driver, Saved, Task};

/// An application that is declared in the cluster, not in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// What is wanted of it.
    pub application: ApplicationConfig,
    /// Whether decisions about it are carried out, where the daemon carries out any.
    pub mode: Mode,
    /// How it is scaled.
    pub driver: KubernetesDriverConfig,
}

/// What there is to report about an application.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// What the plane knows.
    pub status: &'a ApplicationStatus,
    /// Whether this daemon carries decisions out.
    pub acts: bool,
    /// What is wrong now.
    pub problems: &'a [String],
}

/// A cluster.
pub trait Cluster: Send {
    /// The applications that are declared in it, if that changed since the last call. `base` is
    /// the configuration of the file, which they have to go together with. Whatever cannot be
    /// accepted is reported by the cluster, at the object itself.
    fn declared(&mut self, base: &PlaneConfig) -> Option<Vec<Declared>>;

    /// The driver of an application.
    fn driver(
        &mut self,
        application: &str,
        config: &KubernetesDriverConfig,
        saved: Vec<Saved>,
    ) -> Box<dyn Driver>;

    /// Whether this daemon may act.
    fn leads(&self) -> bool;

    /// Which daemon may act, as far as that is known.
    fn leader(&self) -> Option<String>;

    /// What is wrong with the cluster as a whole.
    fn warnings(&self) -> Vec<String>;

    /// Shows what is known, by application; called after every look, also while another daemon
    /// leads.
    fn report<'a>(&'a mut self, reports: &'a BTreeMap<String, Report<'a>>) -> Task<'a, ()>;

    /// Gives leadership back.
    fn end(&mut self) -> Task<'_, ()>;
}
