//! Kubernetes, as the daemon needs it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use kube::{Client, CustomResourceExt};
use tidegate_kubernetes::{ConnectError, Leadership, connect};
use tidegate_plane::PlaneConfig;
use tidegate_planed::{
    Cluster, ClusterConfig, Declared, Driver, KubernetesDriverConfig, Report, Saved, Task,
};

use crate::driver::KubernetesDriver;
use crate::objects::Applications;
use crate::resource::TidegateApplication;

/// A Kubernetes cluster.
pub struct Kubernetes {
    client: Client,
    namespace: String,
    /// Nothing where this daemon is the only one.
    leadership: Option<Leadership>,
    applications: Option<Applications>,
}

impl std::fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubernetes")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Kubernetes {
    /// Begins to take part in the election and to follow the cluster's objects. An API server that
    /// is away is waited for.
    ///
    /// # Errors
    /// Without a configuration of a client.
    pub async fn connect(config: &ClusterConfig) -> Result<Self, ConnectError> {
        let client = connect(config.kubeconfig.as_deref()).await?;
        let namespace = config.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let identity = config.identity.clone().unwrap_or_else(identity);
        let lease = Some(&config.lease).filter(|it| !it.is_empty());
        let leadership =
            lease.map(|lease| Leadership::new(client.clone(), &namespace, lease, &identity));
        let applications = config
            .applications
            .then(|| Applications::new(client.clone(), &namespace));
        Ok(Self {
            client,
            namespace,
            leadership,
            applications,
        })
    }

    /// The definition of `TidegateApplication`, as JSON.
    #[must_use]
    pub fn definition() -> serde_json::Value {
        serde_json::to_value(TidegateApplication::crd()).unwrap_or_default()
    }
}

/// The host's name, which is the pod's, and a number: two daemons of one host are two candidates.
fn identity() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let host = host.unwrap_or_else(|| "tidegate".to_owned());
    let number = RandomState::new().build_hasher().finish();
    format!("{}-{:08x}", host.trim(), number >> 32)
}

impl Cluster for Kubernetes {
    fn declared(&mut self, base: &PlaneConfig) -> Option<Vec<Declared>> {
        self.applications.as_mut()?.declared(base)
    }

    fn driver(
        &mut self,
        application: &str,
        config: &KubernetesDriverConfig,
        saved: Vec<Saved>,
    ) -> Box<dyn Driver> {
        Box::new(KubernetesDriver::new(
            &self.client,
            &self.namespace,
            application,
            config,
            &saved,
        ))
    }

    fn leads(&self) -> bool {
        self.leadership.as_ref().is_none_or(Leadership::leads)
    }

    fn leader(&self) -> Option<String> {
        self.leadership.as_ref().and_then(Leadership::leader)
    }

    fn warnings(&self) -> Vec<String> {
        let lease = self.leadership.as_ref().and_then(Leadership::failure);
        let applications = self.applications.iter().flat_map(Applications::warnings);
        lease.into_iter().chain(applications).collect()
    }

    fn report<'a>(&'a mut self, reports: &'a BTreeMap<String, Report<'a>>) -> Task<'a, ()> {
        Box::pin(async move {
            if !self.leads() {
                return;
            }
            if let Some(applications) = &mut self.applications {
                applications.report(reports).await;
            }
        })
    }

    fn end(&mut self) -> Task<'_, ()> {
        Box::pin(async move {
            if let Some(leadership) = &self.leadership {
                leadership.release().await;
            }
        })
    }
}
