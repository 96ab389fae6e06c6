//! What one look at a proxy brings.

use serde_json::Value;

use super::Args;
use crate::admin_client::{application, escaped};
use crate::error::CliError;

/// Types of events that say what changed and why.
const TYPES: &str = "overload,window,phase,step,mode,health,ejected,standing,handover,target,\
                     policing,switch,peer_joined,peer_lost,notice";

/// What one look at a proxy brings.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The whole answer of `/api/status`.
    pub(super) status: Value,
    /// The application that is shown.
    pub(super) name: String,
    /// Events of the last hour, oldest first.
    pub(super) events: Vec<Value>,
    /// The answer of `/api/history`.
    pub(super) history: Value,
    /// The answer of `/api/channel`; null without one.
    pub(super) channel: Value,
}

impl Seen {
    /// The application that is shown.
    pub(super) fn application(&self) -> &Value {
        &self.status["applications"][&self.name]
    }

    /// The names of all applications.
    pub(super) fn names(&self) -> Vec<&str> {
        let all = self.status["applications"].as_object();
        all.into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// The application after the one that is shown.
    pub(super) fn next_name(&self) -> String {
        let names = self.names();
        let at = names.iter().position(|name| *name == self.name);
        let next = at.map_or(0, |at| (at + 1) % names.len().max(1));
        names
            .get(next)
            .map_or_else(String::new, |name| (*name).to_owned())
    }
}

impl Args {
    /// Looks at the application of this name, at the one that was asked for, or at the first.
    pub(super) async fn look(&self, name: Option<&str>) -> Result<Seen, CliError> {
        let status = self.admin.get("/api/status").await?;
        let first = status["applications"].as_object();
        let first = first.and_then(|all| all.keys().next().cloned());
        let asked = name.or(self.application.as_deref());
        let name = asked.map(str::to_owned).or(first).unwrap_or_default();
        application(&status, Some(&name))?;
        let path = format!("/api/events?follow=false&since=1h&types={TYPES}");
        let events = self.admin.get(&path).await?;
        let events = events.as_array().cloned().unwrap_or_default();
        let path = format!("/api/history?application={}", escaped(&name));
        Ok(Seen {
            history: self.admin.get(&path).await?,
            // Without a channel the call is refused.
            channel: self.admin.get("/api/channel").await.unwrap_or_default(),
            status,
            events,
            name,
        })
    }
}
