//! A proxy, by its admin API.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::http::{CallError, call};
use crate::observe::Engine;

/// A proxy's admin listener.
#[derive(Debug, Clone)]
pub struct Proxy {
    base: String,
    token: Option<String>,
}

/// A replica as a proxy has it.
#[derive(Debug, Clone, Deserialize)]
pub struct Member {
    /// Where it serves.
    pub url: String,
    /// Requests that it holds.
    #[serde(default)]
    pub in_flight: u32,
    /// Long streams, which hold no slot.
    #[serde(default)]
    pub streams: u32,
    /// `active` or `draining`.
    #[serde(default)]
    pub state: String,
    /// By the proxy's own checks.
    #[serde(default)]
    pub healthy: bool,
}

impl Member {
    /// Whether it holds requests.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.streams > 0
    }

    /// Whether it gets no new requests.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state == "draining"
    }
}

#[derive(Debug, Deserialize)]
struct Members {
    replicas: Vec<Member>,
}

impl Proxy {
    /// By the address of its admin listener, like `http://127.0.0.1:9090`.
    #[must_use]
    pub fn new(base: &str, token: Option<String>) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            token,
        }
    }

    /// The address of its admin listener.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    fn url(&self, application: &str, rest: &str) -> String {
        format!("{}/api/applications/{application}{rest}", self.base)
    }

    async fn get<T: DeserializeOwned>(&self, url: String) -> Result<T, CallError> {
        let body = call(Method::GET, &url, self.token.as_deref(), Vec::new()).await?;
        serde_json::from_slice(&body).map_err(|error| CallError::Failed {
            url,
            cause: format!("not the answer of a proxy of this version: {error}"),
        })
    }

    /// The status of an application.
    pub(crate) async fn engine(&self, application: &str) -> Result<Engine, CallError> {
        self.get(self.url(application, "")).await
    }

    /// Sets the response-time target of an application.
    pub(crate) async fn set_target(
        &self,
        application: &str,
        target: Duration,
    ) -> Result<(), CallError> {
        let url = self.url(application, "/parameters");
        let body = json!({ "target": format!("{}ms", target.as_millis()) });
        let body = body.to_string().into_bytes();
        call(Method::POST, &url, self.token.as_deref(), body).await?;
        Ok(())
    }

    /// The replicas of an application.
    ///
    /// # Errors
    /// A proxy that does not answer, or refuses.
    pub async fn replicas(&self, application: &str) -> Result<Vec<Member>, CallError> {
        let members: Members = self.get(self.url(application, "/replicas")).await?;
        Ok(members.replicas)
    }

    async fn patch(&self, application: &str, change: &Value) -> Result<(), CallError> {
        let url = self.url(application, "/replicas");
        let body = change.to_string().into_bytes();
        call(Method::PATCH, &url, self.token.as_deref(), body).await?;
        Ok(())
    }

    /// Adds a server.
    ///
    /// # Errors
    /// A proxy that does not answer, or refuses.
    pub async fn add(&self, application: &str, server: &str) -> Result<(), CallError> {
        let change = json!({ "add": [{ "url": server, "weight": 1 }] });
        self.patch(application, &change).await
    }

    /// Gives a server requests again.
    ///
    /// # Errors
    /// A proxy that does not answer, or refuses.
    pub async fn undrain(&self, application: &str, server: &str) -> Result<(), CallError> {
        self.patch(application, &json!({ "undrain": [server] }))
            .await
    }

    /// Gives a server no new requests.
    ///
    /// # Errors
    /// A proxy that does not answer, or refuses.
    pub async fn drain(&self, application: &str, server: &str) -> Result<(), CallError> {
        self.patch(application, &json!({ "drain": [server] })).await
    }

    /// Takes a server out.
    ///
    /// # Errors
    /// A proxy that does not answer, or refuses.
    pub async fn remove(&self, application: &str, server: &str) -> Result<(), CallError> {
        self.patch(application, &json!({ "remove": [server] }))
            .await
    }
}

/// The addresses that a proxy's name stands for, each as the address of an admin listener.
pub(crate) async fn addresses(base: &str) -> Result<Vec<String>, String> {
    let uri: Uri = base.parse().map_err(|_| "not an address".to_owned())?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(80);
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
    let by_four = found.iter().any(SocketAddr::is_ipv4);
    let taken = found.iter().filter(|addr| addr.is_ipv4() == by_four);
    Ok(taken.map(|addr| format!("http://{addr}")).collect())
}

/// Whether two addresses name the same server.
#[must_use]
pub fn same_server(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}
