//! Calls of a proxy's admin API, for `tidegate ctl` and `tidegate top`.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;
use tidegate_channel::net::Dialer;

use crate::error::CliError;

/// A call that takes longer has met with a proxy that hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which proxy.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Admin {
    /// The proxy's admin listener.
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_ADMIN",
        hide_env_values = true,
        default_value = "http://127.0.0.1:9190",
        global = true
    )]
    pub(crate) admin: String,
    /// The admin listener's token, where it has one.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TIDEGATE_TOKEN",
        hide_env_values = true,
        global = true
    )]
    token: Option<String>,
}

impl Admin {
    /// The proxy at this address.
    pub(crate) fn at(admin: &str, token: Option<&str>) -> Self {
        Self {
            admin: admin.to_owned(),
            token: token.map(str::to_owned),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, CliError> {
        self.read(self.send(path, None).await?).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        self.read(self.send(path, Some(body)).await?).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        let sent = self.send_by(Method::PATCH, path, Some(body)).await?;
        self.read(sent).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, CliError> {
        let sent = self.send_by(Method::PUT, path, Some(body)).await?;
        self.read(sent).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, CliError> {
        let sent = self.send_by(Method::DELETE, path, None).await?;
        self.read(sent).await
    }

    /// What became of a request that was not served, by its `x-request-id`.
    pub(crate) async fn request(&self, id: &str) -> Result<Value, CliError> {
        self.get(&format!("/api/requests?id={}", escaped(id))).await
    }

    /// The address with a scheme: `127.0.0.1:9190` is what people write.
    fn base(&self) -> String {
        let base = self.admin.trim_end_matches('/');
        if base.contains("://") {
            base.to_owned()
        } else {
            format!("http://{base}")
        }
    }

    /// Sends a call; the answer's body is not read yet.
    pub(crate) async fn send(
        &self,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, CliError> {
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        self.send_by(method, path, body).await
    }

    async fn send_by(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, CliError> {
        let uri: Uri = format!("{}{path}", self.base())
            .parse()
            .map_err(|_| self.failed(&"this is no address; write --admin http://127.0.0.1:9190"))?;
        let mut request = Request::builder().method(method).uri(uri);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = request
            .body(Full::new(body))
            .map_err(|error| self.failed(&error))?;
        let sent = tokio::time::timeout(PATIENCE, Dialer::default().send(request)).await;
        let unreachable = |cause: &dyn std::fmt::Display| {
            self.failed(&format!(
                "{cause}; is the proxy running, and is this its admin listener (--admin)?"
            ))
        };
        match sent {
            Ok(answered) => answered.map_err(|error| unreachable(&error)),
            Err(_) => Err(unreachable(&"no answer in 10 s")),
        }
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Value, CliError> {
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| self.failed(&error))?.to_bytes();
        let answer: Value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| String::from_utf8_lossy(&body).trim().into());
        if status.is_success() {
            Ok(answer)
        } else {
            Err(refused(&answer, status.as_u16()))
        }
    }

    fn failed(&self, cause: &dyn std::fmt::Display) -> CliError {
        CliError::Usage(format!("{}: {cause}", self.admin))
    }
}

/// What a query may not contain as it is.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// The proxy's own words: cause and remedy.
fn refused(answer: &Value, status: u16) -> CliError {
    let part = |name: &str| answer[name].as_str();
    CliError::Usage(match (part("cause"), part("remedy")) {
        (Some(cause), Some(remedy)) if status == 401 => {
            format!("{cause}; {remedy}, here as --token or TIDEGATE_TOKEN")
        }
        (Some(cause), Some(remedy)) => format!("{cause}; {remedy}"),
        _ => format!("the admin listener answered {status}: {answer}"),
    })
}

/// The application asked for, or the only one.
pub(crate) fn application<'a>(
    status: &'a Value,
    name: Option<&str>,
) -> Result<&'a Value, CliError> {
    let all = status["applications"].as_object();
    let all = all.ok_or_else(|| {
        CliError::Usage("the answer is no status of a proxy; is --admin its admin listener?".into())
    })?;
    let names = || all.keys().cloned().collect::<Vec<_>>().join(", ");
    match name {
        Some(name) => all.get(name).ok_or_else(|| {
            CliError::Usage(format!(
                "there is no application `{name}`; there is {}",
                names()
            ))
        }),
        None if all.len() == 1 => {
            Ok(&status["applications"][all.keys().next().map_or("", |it| it)])
        }
        None => Err(CliError::Usage(format!(
            "which application? name one with --application: {}",
            names()
        ))),
    }
}
