//! A proxy, by its admin API.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{CallError, call};
use crate::observe::Engine;

/// A proxy's admin listener.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    base: String,
    token: Option<String>,
}

/// A replica as a proxy has it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Member {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) in_flight: u32,
    #[serde(default)]
    pub(crate) healthy: bool,
}

#[derive(Debug, Deserialize)]
struct Members {
    replicas: Vec<Member>,
}

impl Proxy {
    pub(crate) fn new(base: &str, token: Option<String>) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            token,
        }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The engine of an application: by its name, or the only one where a proxy has no names.
    pub(crate) async fn engine(&self, application: &str) -> Result<Engine, CallError> {
        let url = format!("{}/api/status", self.base);
        let body = call(Method::GET, &url, self.token.as_deref(), Vec::new()).await?;
        let failed = |cause: String| CallError::Failed {
            url: url.clone(),
            cause,
        };
        let status: Value =
            serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))?;
        let named = status.pointer(&format!("/applications/{application}/engine"));
        let engine = named.or_else(|| status.get("engine").filter(|engine| !engine.is_null()));
        let engine =
            engine.ok_or_else(|| failed(format!("it has no application `{application}`")))?;
        serde_json::from_value(engine.clone()).map_err(|error| failed(error.to_string()))
    }

    fn replicas_url(&self, application: &str) -> String {
        format!("{}/api/applications/{application}/replicas", self.base)
    }

    pub(crate) async fn replicas(&self, application: &str) -> Result<Vec<Member>, CallError> {
        let url = self.replicas_url(application);
        let body = call(Method::GET, &url, self.token.as_deref(), Vec::new()).await?;
        let members: Members =
            serde_json::from_slice(&body).map_err(|error| CallError::Failed {
                url,
                cause: error.to_string(),
            })?;
        Ok(members.replicas)
    }

    async fn patch(&self, application: &str, change: &Value) -> Result<(), CallError> {
        let url = self.replicas_url(application);
        let body = change.to_string().into_bytes();
        call(Method::PATCH, &url, self.token.as_deref(), body).await?;
        Ok(())
    }

    pub(crate) async fn add(&self, application: &str, server: &str) -> Result<(), CallError> {
        let change = json!({ "add": [{ "url": server, "weight": 1 }] });
        self.patch(application, &change).await
    }

    pub(crate) async fn drain(&self, application: &str, server: &str) -> Result<(), CallError> {
        self.patch(application, &json!({ "drain": [server] })).await
    }

    pub(crate) async fn remove(&self, application: &str, server: &str) -> Result<(), CallError> {
        self.patch(application, &json!({ "remove": [server] }))
            .await
    }
}

/// Whether two addresses name the same server.
pub(crate) fn same_server(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}
