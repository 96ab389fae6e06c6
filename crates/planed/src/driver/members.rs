//! Servers one by one: starting, ready, drained, stopped.
//!
//! ```text
//! launch ─► starting ─ health check ─► added to every proxy: ready
//!                                          │ too many
//!                                          ▼
//!                      drained in every proxy ─ no request left ─► removed ─► process stopped
//! ```
//!
//! A step that a proxy refuses is tried again at the next look. A process that ends by itself is
//! taken out of the proxies and started anew, after a pause that doubles.

use std::time::{Duration, Instant};

use http::Method;
use serde::{Deserialize, Serialize};
use tidegate_plane::Decision;
use tokio::task::JoinSet;

use super::launch::{Launched, Process};
use super::{Driver, Launcher, Seen, Task};
use crate::http::{CallError, call};
use crate::proxy::{Proxy, same_server};

/// Pauses after a server that could not be started, or ended at once.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A server that a later daemon can take over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Where it serves.
    pub url: String,
    /// Its process, where it is one of this machine.
    pub pid: Option<u32>,
}

#[derive(Debug)]
enum Stage {
    Starting,
    Ready,
    Draining { since: Instant, told: bool },
}

#[derive(Debug)]
struct Member {
    url: String,
    process: Option<Process>,
    stage: Stage,
}

/// The servers of one application.
#[derive(Debug)]
pub(crate) struct Members {
    application: String,
    launcher: Launcher,
    health: String,
    drain_time: Duration,
    desired: u32,
    members: Vec<Member>,
    /// Processes that are told to end and have not ended yet.
    stopping: JoinSet<()>,
    /// No start before this time, and how long the next pause is.
    pause: Option<(Instant, Duration)>,
    /// Why the last server could not be started.
    refused: Option<String>,
}

impl Members {
    pub(crate) fn new(
        application: &str,
        launcher: Launcher,
        health: &str,
        drain_time: Duration,
        first: u32,
        saved: Vec<Saved>,
    ) -> Self {
        let adopted = saved.into_iter().filter_map(|saved| {
            let Launched { url, process } = launcher.adopt(&saved.url, saved.pid)?;
            Some(Member {
                url,
                process,
                stage: Stage::Starting,
            })
        });
        let members: Vec<Member> = adopted.collect();
        Self {
            application: application.to_owned(),
            desired: (members.len() as u32).max(first),
            launcher,
            health: health.to_owned(),
            drain_time,
            members,
            stopping: JoinSet::new(),
            pause: None,
            refused: None,
        }
    }

    fn seen(&self) -> Option<Seen> {
        Some(Seen {
            desired: self.desired,
            ready: self.ready(),
        })
    }

    fn kept(&self) -> u32 {
        let draining = |member: &&Member| matches!(member.stage, Stage::Draining { .. });
        (self.members.len() - self.members.iter().filter(draining).count()) as u32
    }

    fn ready(&self) -> u32 {
        let ready = |member: &&Member| matches!(member.stage, Stage::Ready);
        self.members.iter().filter(ready).count() as u32
    }

    async fn step(&mut self, proxies: &[Proxy], problems: &mut Vec<String>) {
        self.bury(proxies, problems).await;
        self.start_missing(problems);
        self.give_back();
        for index in 0..self.members.len() {
            match self.members[index].stage {
                Stage::Starting => self.welcome(index, proxies, problems).await,
                Stage::Ready => {}
                Stage::Draining { .. } => self.drain(index, proxies, problems).await,
            }
        }
        self.stop_drained(proxies, problems).await;
    }

    /// Takes out servers whose process has ended.
    async fn bury(&mut self, proxies: &[Proxy], problems: &mut Vec<String>) {
        let mut index = 0;
        while index < self.members.len() {
            let process = self.members[index].process.as_mut();
            let Some(how) = process.and_then(Process::ended) else {
                index += 1;
                continue;
            };
            let member = self.members.remove(index);
            if !matches!(member.stage, Stage::Draining { .. }) {
                problems.push(format!("server {} ended by itself: {how}", member.url));
                self.rest();
            }
            self.take_out(&member.url, proxies, problems).await;
        }
    }

    fn rest(&mut self) {
        let length = self
            .pause
            .map_or(PAUSE.0, |(_, length)| (2 * length).min(PAUSE.1));
        self.pause = Some((Instant::now() + length, length));
    }

    fn start_missing(&mut self, problems: &mut Vec<String>) {
        while self.kept() < self.desired {
            if self.pause.is_some_and(|(until, _)| Instant::now() < until) {
                problems.extend(self.refused.clone());
                return;
            }
            self.refused = None;
            let used: Vec<&str> = self
                .members
                .iter()
                .map(|member| member.url.as_str())
                .collect();
            match self.launcher.launch(&used) {
                Ok(Launched { url, process }) => self.members.push(Member {
                    url,
                    process,
                    stage: Stage::Starting,
                }),
                Err(problem) => {
                    problems.push(problem.clone());
                    self.refused = Some(problem);
                    self.rest();
                    return;
                }
            }
        }
    }

    /// Marks those to be given back: first the ones that are not ready, then the youngest.
    fn give_back(&mut self) {
        while self.kept() > self.desired {
            let starting = |member: &Member| matches!(member.stage, Stage::Starting);
            let ready = |member: &Member| matches!(member.stage, Stage::Ready);
            let last = self.members.iter().rposition(starting);
            let Some(index) = last.or_else(|| self.members.iter().rposition(ready)) else {
                return;
            };
            let told = matches!(self.members[index].stage, Stage::Starting);
            let since = Instant::now();
            self.members[index].stage = Stage::Draining { since, told };
        }
    }

    /// A server whose health check passes is added to every proxy.
    async fn welcome(&mut self, index: usize, proxies: &[Proxy], problems: &mut Vec<String>) {
        let url = &self.members[index].url;
        let health = format!("{url}{}", self.health);
        if call(Method::GET, &health, None, Vec::new()).await.is_err() {
            return;
        }
        for proxy in proxies {
            if let Err(error) = let_in(proxy, &self.application, url).await {
                problems.push(error.to_string());
                return;
            }
        }
        self.members[index].stage = Stage::Ready;
        self.pause = None;
    }

    async fn drain(&mut self, index: usize, proxies: &[Proxy], problems: &mut Vec<String>) {
        let Stage::Draining { told: false, since } = self.members[index].stage else {
            return;
        };
        let url = &self.members[index].url;
        for proxy in proxies {
            if let Err(error) = proxy.drain(&self.application, url).await {
                problems.push(error.to_string());
                return;
            }
        }
        self.members[index].stage = Stage::Draining { since, told: true };
    }

    /// Stops those that are drained in every proxy and hold no request, or had time enough.
    async fn stop_drained(&mut self, proxies: &[Proxy], problems: &mut Vec<String>) {
        let mut index = 0;
        while index < self.members.len() {
            let Stage::Draining { since, told: true } = self.members[index].stage else {
                index += 1;
                continue;
            };
            let empty = is_empty(&self.application, &self.members[index].url, proxies).await;
            if !(empty || since.elapsed() > self.drain_time) {
                index += 1;
                continue;
            }
            let url = self.members[index].url.clone();
            if !self.take_out(&url, proxies, problems).await {
                index += 1;
                continue;
            }
            let member = self.members.remove(index);
            if let Some(process) = member.process {
                self.stopping.spawn(process.stop());
            }
        }
        // Forgets those that have ended.
        while self.stopping.try_join_next().is_some() {}
    }

    /// Removes a server from every proxy that has it.
    async fn take_out(&self, url: &str, proxies: &[Proxy], problems: &mut Vec<String>) -> bool {
        for proxy in proxies {
            let Ok(known) = proxy.replicas(&self.application).await else {
                problems.push(format!("{} does not answer, {url} stays", proxy.base()));
                return false;
            };
            if !known.iter().any(|member| same_server(&member.url, url)) {
                continue;
            }
            if let Err(error) = proxy.remove(&self.application, url).await {
                problems.push(error.to_string());
                return false;
            }
        }
        true
    }
}

/// Adds a server to a proxy; one that a daemon before was draining gets requests again.
async fn let_in(proxy: &Proxy, application: &str, url: &str) -> Result<(), CallError> {
    let members = proxy.replicas(application).await?;
    let known = members.iter().find(|member| same_server(&member.url, url));
    match known {
        None => proxy.add(application, url).await,
        Some(member) if member.is_draining() => proxy.undrain(application, url).await,
        Some(_) => Ok(()),
    }
}

/// Whether no proxy has a request at the server.
async fn is_empty(application: &str, url: &str, proxies: &[Proxy]) -> bool {
    for proxy in proxies {
        let Ok(members) = proxy.replicas(application).await else {
            return false;
        };
        let busy =
            |member: &crate::proxy::Member| same_server(&member.url, url) && member.is_busy();
        if members.iter().any(busy) {
            return false;
        }
    }
    true
}

impl Driver for Members {
    fn set<'a>(&'a mut self, decision: &'a Decision) -> Task<'a, Result<(), String>> {
        self.desired = decision.to;
        Box::pin(async { Ok(()) })
    }

    fn advance<'a>(
        &'a mut self,
        proxies: &'a [Proxy],
        problems: &'a mut Vec<String>,
    ) -> Task<'a, Option<Seen>> {
        Box::pin(async move {
            self.step(proxies, problems).await;
            self.seen()
        })
    }

    fn look<'a>(&'a mut self, _: &'a mut Vec<String>) -> Task<'a, Option<Seen>> {
        Box::pin(async { self.seen() })
    }

    fn saved(&self) -> Vec<Saved> {
        let kept = |member: &&Member| !matches!(member.stage, Stage::Draining { .. });
        let saved = |member: &Member| Saved {
            url: member.url.clone(),
            pid: member.process.as_ref().and_then(Process::id),
        };
        self.members.iter().filter(kept).map(saved).collect()
    }

    fn finish_stops(&mut self) -> Task<'_, ()> {
        Box::pin(async { while self.stopping.join_next().await.is_some() {} })
    }

    fn stop_all<'a>(&'a mut self, proxies: &'a [Proxy]) -> Task<'a, ()> {
        Box::pin(async move {
            let mut problems = Vec::new();
            for member in std::mem::take(&mut self.members) {
                self.take_out(&member.url, proxies, &mut problems).await;
                if let Some(process) = member.process {
                    process.stop().await;
                }
            }
        })
    }
}
