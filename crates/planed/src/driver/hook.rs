//! A command of the operator's carries decisions out.

use std::process::Stdio;

use serde::Serialize;
use tidegate_plane::Decision;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{Driver, Seen, Task};
use crate::config::HookConfig;
use crate::proxy::{Member, Proxy};

/// Gives each decision to a command; which servers there are is what the proxies have.
#[derive(Debug)]
pub(crate) struct Hook {
    application: String,
    config: HookConfig,
    order: Option<Order>,
}

/// The last decision that was carried out.
#[derive(Debug, Clone, Copy)]
struct Order {
    servers: u32,
    /// The proxies' pools have had this many servers since: from then on another number is foreign.
    reached: bool,
}

impl Hook {
    pub(crate) fn new(application: &str, config: &HookConfig) -> Self {
        Self {
            application: application.to_owned(),
            config: config.clone(),
            order: None,
        }
    }

    /// What is set: the order, until the pools have it; from then on what they have.
    fn seen(&mut self, members: &[Member]) -> Seen {
        let kept = members.iter().filter(|member| !member.is_draining());
        let kept = kept.count() as u32;
        let desired = match &mut self.order {
            Some(order) => {
                order.reached |= kept == order.servers;
                if order.reached { kept } else { order.servers }
            }
            None => kept,
        };
        Seen {
            desired,
            ready: members.iter().filter(|member| member.healthy).count() as u32,
        }
    }
}

/// Gives an input as JSON to a command, and waits for its end.
pub(crate) async fn run(config: &HookConfig, input: &impl Serialize) -> Result<(), String> {
    let HookConfig { command, timeout } = config;
    let (program, arguments) = command.split_first().ok_or("`command` is empty")?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| {
        format!("cannot start `{program}`: {error}; correct `command` of the hook")
    })?;
    let text = serde_json::to_vec(input).map_err(|error| error.to_string())?;
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read is a command that does not need it.
            let _ = stdin.write_all(&text).await;
        }
        child.wait().await
    };
    match tokio::time::timeout(timeout.0, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("`{program}` ended with {status}")),
        Ok(Err(error)) => Err(format!("`{program}`: {error}")),
        Err(_) => Err(format!("`{program}` was ended after {:?}", timeout.0)),
    }
}

impl Driver for Hook {
    fn set<'a>(&'a mut self, decision: &'a Decision) -> Task<'a, Result<(), String>> {
        Box::pin(async move {
            run(&self.config, decision).await?;
            self.order = Some(Order {
                servers: decision.to,
                reached: false,
            });
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
            Some(self.seen(&members))
        })
    }

    fn stop_all<'a>(&'a mut self, _: &'a [Proxy]) -> Task<'a, ()> {
        Box::pin(async {})
    }
}
