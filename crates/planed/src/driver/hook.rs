//! A command of the operator's carries decisions out.

use std::process::Stdio;
use std::time::Duration;

use tidegate_plane::Decision;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Driver, Seen, Task};
use crate::config::HookConfig;
use crate::proxy::Proxy;

/// Gives each decision to a command; which servers there are is what the proxies have.
#[derive(Debug)]
pub(crate) struct Hook {
    application: String,
    command: Vec<String>,
    limit: Duration,
    desired: Option<u32>,
}

impl Hook {
    pub(crate) fn new(application: &str, config: &HookConfig) -> Self {
        Self {
            application: application.to_owned(),
            command: config.command.clone(),
            limit: config.timeout.0,
            desired: None,
        }
    }

    async fn run(&self, decision: &Decision) -> Result<(), String> {
        let program = &self.command[0];
        let child = Command::new(program)
            .args(&self.command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| {
            format!("cannot start `{program}`: {error}; correct `command` of the driver")
        })?;
        let text = serde_json::to_vec(decision).map_err(|error| error.to_string())?;
        if let Some(mut input) = child.stdin.take() {
            // A command that does not read is a command that does not need it.
            let _ = input.write_all(&text).await;
        }
        match timeout(self.limit, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("`{program}` ended with {status}")),
            Ok(Err(error)) => Err(format!("`{program}`: {error}")),
            Err(_) => Err(format!("`{program}` was ended after {:?}", self.limit)),
        }
    }
}

impl Driver for Hook {
    fn set<'a>(&'a mut self, decision: &'a Decision) -> Task<'a, Result<(), String>> {
        Box::pin(async move {
            self.run(decision).await?;
            self.desired = Some(decision.to);
            Ok(())
        })
    }

    fn advance<'a>(
        &'a mut self,
        proxies: &'a [Proxy],
        problems: &'a mut Vec<String>,
    ) -> Task<'a, Option<Seen>> {
        Box::pin(async move {
            let proxy = proxies.first()?;
            let members = match proxy.replicas(&self.application).await {
                Ok(members) => members,
                Err(error) => {
                    problems.push(error.to_string());
                    return None;
                }
            };
            Some(Seen {
                desired: self.desired.unwrap_or(members.len() as u32),
                ready: members.iter().filter(|member| member.healthy).count() as u32,
            })
        })
    }

    fn stop_all<'a>(&'a mut self, _: &'a [Proxy]) -> Task<'a, ()> {
        Box::pin(async {})
    }
}
