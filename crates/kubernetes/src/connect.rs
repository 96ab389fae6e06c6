//! A client of the API server, and its errors in words.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Connecting to the API server may take this long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

/// A client by a kubeconfig file, or without one by what the pod has, or by `KUBECONFIG`. Nothing
/// is sent yet: an API server that is away is no error here.
///
/// # Errors
/// Without a usable configuration, with the remedy.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    // Whichever provider was installed first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = match kubeconfig {
        Some(path) => of_file(path).await?,
        None => Config::infer().await.map_err(|error| {
            ConnectError(format!(
                "no Kubernetes: this is no pod with a service account, and there is no kubeconfig \
                 ({error}); name one as `kubeconfig`"
            ))
        })?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Client::try_from(config)
        .map_err(|error| ConnectError(format!("no client of Kubernetes: {error}")))
}

async fn of_file(path: &Path) -> Result<Config, ConnectError> {
    let shown = path.display();
    let wrong = |error: &dyn std::fmt::Display| {
        ConnectError(format!(
            "{shown}: {error}; `kubectl --kubeconfig {shown} config view` shows it"
        ))
    };
    let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| wrong(&error))
}

/// Whether what was asked for does not exist.
#[must_use]
pub fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether there was no answer at all.
#[must_use]
pub fn is_unreachable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

/// An error in words, with a remedy where there is one.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "forbidden: {}; grant it, as dist/kubernetes/plane.yaml does",
            status.message
        ),
        kube::Error::Api(status) if status.code == 401 => {
            format!("the API server does not know us: {}", status.message)
        }
        kube::Error::Api(status) => status.message.clone(),
        other if is_unreachable(other) => {
            format!("the API server does not answer: {}", root_cause(other))
        }
        other => other.to_string(),
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
