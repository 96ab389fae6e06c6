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
//! taken out of the proxies and started anew, after a pause that doubles. Servers that are ready
//! are looked at too:
//!
//! - a server that a proxy has lost, since the proxy was started anew or reads another file, is
//!   added to it again;
//! - a server whose health check has failed for [`AILING`] is replaced: another one is started
//!   first, one at a time, and it is drained when that one is ready;
//! - a server that was drained or taken out of a pool from elsewhere is not put back. It does not
//!   count as set, so that the plane notices a foreign change, until the plane decides again. A
//!   proxy that has lost all servers at once was started anew.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use serde::{Deserialize, Serialize};
use tidegate_plane::proxies::partition;
use tidegate_plane::{Decision, ServerShare};
use tokio::task::JoinSet;

use super::launch::{Launched, Process};
use super::{Driver, Launcher, Seen, Task};
use crate::http::call;
use crate::proxy::{self, Proxy, same_server};

/// Pauses after a server that could not be started, or ended at once.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A server is replaced when its health check fails for this long, in this many looks at least.
/// Chosen: longer than a collection of garbage or a burst takes.
const AILING: (Duration, u32) = (Duration::from_secs(10), 3);

/// A server that a later daemon can take over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Where it serves.
    pub url: String,
    /// Its process, where it is one of this machine.
    pub pid: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
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
    /// Since when, and how often, its health check fails; before the first check, not at all yet.
    failing: Option<(Instant, u32)>,
    /// It was drained or taken out of the pools from elsewhere.
    outside: bool,
    /// The plane has decided that it is put back.
    returns: bool,
    /// The proxy that has it, where proxies divide the servers.
    home: Option<usize>,
}

impl Member {
    fn new(launched: Launched) -> Self {
        Self {
            url: launched.url,
            process: launched.process,
            stage: Stage::Starting,
            failing: Some((Instant::now(), 0)),
            outside: false,
            returns: false,
            home: None,
        }
    }

    const fn is_draining(&self) -> bool {
        matches!(self.stage, Stage::Draining { .. })
    }

    const fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting)
    }

    fn is_ailing(&self) -> bool {
        let (time, looks) = AILING;
        let lasts = |(since, checks): (Instant, u32)| since.elapsed() >= time && checks >= looks;
        matches!(self.stage, Stage::Ready) && self.failing.is_some_and(lasts)
    }

    fn checked(&mut self, healthy: bool) {
        let (since, checks) = self.failing.unwrap_or((Instant::now(), 0));
        self.failing = (!healthy).then_some((since, checks.saturating_add(1)));
    }

    fn drain(&mut self) {
        let since = Instant::now();
        self.stage = Stage::Draining { since, told: false };
    }
}

/// What each proxy has, in the order of the proxies; nothing where one does not answer.
struct Pools(Vec<Option<Vec<proxy::Member>>>);

impl Pools {
    async fn look(application: &str, proxies: &[Proxy], problems: &mut Vec<String>) -> Self {
        let looks = proxies.iter().map(|proxy| proxy.replicas(application));
        let looks = join_all(looks).await.into_iter();
        let known = looks.map(|pool| pool.map_err(|error| problems.push(error.to_string())).ok());
        Self(known.collect())
    }

    fn find(&self, proxy: usize, url: &str) -> Option<&proxy::Member> {
        let pool = self.0.get(proxy)?.as_ref()?;
        pool.iter().find(|member| same_server(&member.url, url))
    }
}

/// How an application's servers are kept.
#[derive(Debug, Clone)]
pub(crate) struct Keeping {
    pub(crate) application: String,
    pub(crate) health: String,
    pub(crate) drain_time: Duration,
    pub(crate) share: ServerShare,
}

/// The servers of one application.
#[derive(Debug)]
pub(crate) struct Members {
    keeping: Keeping,
    launcher: Launcher,
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
    pub(crate) fn new(keeping: Keeping, launcher: Launcher, first: u32, saved: Vec<Saved>) -> Self {
        let adopted = saved.into_iter();
        let adopted = adopted.filter_map(|saved| launcher.adopt(&saved.url, saved.pid));
        let members: Vec<Member> = adopted.map(Member::new).collect();
        Self {
            keeping,
            desired: (members.len() as u32).max(first),
            launcher,
            members,
            stopping: JoinSet::new(),
            pause: None,
            refused: None,
        }
    }

    fn count(&self, holds: impl Fn(&Member) -> bool) -> u32 {
        self.members.iter().filter(|member| holds(member)).count() as u32
    }

    fn seen(&self) -> Option<Seen> {
        let outside = self.count(|member| member.outside && !member.is_draining());
        let serves = |member: &Member| {
            matches!(member.stage, Stage::Ready) && !member.outside && !member.is_ailing()
        };
        Some(Seen {
            desired: self.desired.saturating_sub(outside),
            ready: self.count(serves),
        })
    }

    /// Servers that serve or will, the ones that fail their health check aside.
    fn kept(&self) -> u32 {
        self.count(|member| !member.is_draining() && !member.is_ailing())
    }

    async fn step(&mut self, proxies: &[Proxy], problems: &mut Vec<String>) {
        self.bury(proxies, problems).await;
        let pools = Pools::look(&self.keeping.application, proxies, problems).await;
        self.check_health(problems).await;
        self.notice_foreign_changes(&pools);
        self.start_missing(problems);
        self.give_back();
        self.divide(proxies.len());
        for index in 0..self.members.len() {
            match self.members[index].stage {
                Stage::Starting => self.welcome(index, proxies, &pools, problems).await,
                Stage::Ready => {
                    self.place(index, proxies, &pools, problems).await;
                }
                Stage::Draining { .. } => self.drain(index, proxies, &pools, problems).await,
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
            if !member.is_draining() {
                problems.push(format!("server {} ended by itself: {how}", member.url));
                self.rest();
            }
            self.take_out(&member.url, proxies, problems).await;
        }
    }

    /// Asks every server whether it is well.
    async fn check_health(&mut self, problems: &mut Vec<String>) {
        let health = &self.keeping.health;
        let check = |member: &Member| {
            let url = format!("{}{health}", member.url);
            let asked = !member.is_draining();
            async move { asked && call(Method::GET, &url, None, Vec::new()).await.is_ok() }
        };
        let checks = join_all(self.members.iter().map(check)).await;
        for (member, healthy) in self.members.iter_mut().zip(checks) {
            member.checked(healthy);
            if member.is_ailing() {
                let seconds = AILING.0.as_secs();
                let url = &member.url;
                problems.push(format!(
                    "server {url} fails its health check for {seconds} s: it is replaced"
                ));
            }
        }
    }

    /// Servers that somebody else drained or took out of the pools, or gave back.
    fn notice_foreign_changes(&mut self, pools: &Pools) {
        let ready: Vec<usize> = (0..self.members.len())
            .filter(|&index| matches!(self.members[index].stage, Stage::Ready))
            .collect();
        let homes = |member: &Member| match member.home {
            Some(home) => home..home + 1,
            None => 0..pools.0.len(),
        };
        // A proxy without any of its servers was started anew, and nobody took them out.
        let is_home = |proxy: usize, index: &usize| homes(&self.members[*index]).contains(&proxy);
        let is_new = |proxy: usize| {
            let mut own = ready.iter().filter(|index| is_home(proxy, index));
            own.all(|&index| pools.find(proxy, &self.members[index].url).is_none())
        };
        let known: Vec<usize> = (0..pools.0.len())
            .filter(|&proxy| pools.0[proxy].is_some() && !is_new(proxy))
            .collect();
        for index in ready {
            let member = &self.members[index];
            let mut own = known.iter().filter(|&proxy| homes(member).contains(proxy));
            let Some(first) = own.next() else {
                continue;
            };
            let active = |proxy: &usize| {
                let found = pools.find(*proxy, &member.url);
                found.is_some_and(|found| !found.is_draining())
            };
            let active = active(first) || own.any(active);
            let member = &mut self.members[index];
            member.returns &= !active;
            member.outside = !active && !member.returns;
        }
    }

    fn rest(&mut self) {
        let length = self
            .pause
            .map_or(PAUSE.0, |(_, length)| (2 * length).min(PAUSE.1));
        self.pause = Some((Instant::now() + length, length));
    }

    /// Starts servers that are missing, and one at a time in place of those that are not well.
    fn start_missing(&mut self, problems: &mut Vec<String>) {
        while self.kept() < self.desired {
            let there = self.count(|member| !member.is_draining());
            if there >= self.desired && self.count(Member::is_starting) > 0 {
                return;
            }
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
                Ok(launched) => self.members.push(Member::new(launched)),
                Err(problem) => {
                    problems.push(problem.clone());
                    self.refused = Some(problem);
                    self.rest();
                    return;
                }
            }
        }
    }

    /// Marks those to be given back: first the ones that are out of the pools or not ready, then
    /// the youngest. One that is not well goes once another one serves in its place.
    fn give_back(&mut self) {
        let well = |member: &Member| matches!(member.stage, Stage::Ready) && !member.is_ailing();
        if self.count(well) >= self.desired {
            let mut members = self.members.iter_mut();
            if let Some(member) = members.find(|member| member.is_ailing()) {
                member.drain();
            }
        }
        while self.kept() > self.desired {
            let members = &self.members;
            let outside = |it: &Member| it.outside && !it.is_draining() && !it.is_ailing();
            let last = members.iter().rposition(outside);
            let last = last.or_else(|| members.iter().rposition(Member::is_starting));
            let Some(index) = last.or_else(|| members.iter().rposition(well)) else {
                return;
            };
            self.members[index].drain();
        }
    }

    /// Gives each server its proxy, where proxies divide them.
    fn divide(&mut self, proxies: usize) {
        if self.keeping.share == ServerShare::Shared {
            return;
        }
        let stays = |member: &&mut Member| !member.is_draining();
        let mut members: Vec<&mut Member> = self.members.iter_mut().filter(stays).collect();
        let homes: Vec<Option<usize>> = members.iter().map(|member| member.home).collect();
        for (member, home) in members.iter_mut().zip(partition(&homes, proxies)) {
            member.home = Some(home);
        }
    }

    /// A server whose health check passes is added to every proxy.
    async fn welcome(
        &mut self,
        index: usize,
        proxies: &[Proxy],
        pools: &Pools,
        problems: &mut Vec<String>,
    ) {
        if self.members[index].failing.is_some() || pools.0.iter().any(Option::is_none) {
            return;
        }
        if self.place(index, proxies, pools, problems).await {
            self.members[index].stage = Stage::Ready;
            self.pause = None;
        }
    }

    /// Sees to it that a server is in the pools that it belongs to, and in no other one. One that
    /// a daemon before was draining gets requests again.
    async fn place(
        &mut self,
        index: usize,
        proxies: &[Proxy],
        pools: &Pools,
        problems: &mut Vec<String>,
    ) -> bool {
        let member = &self.members[index];
        let (url, application) = (&member.url, &self.keeping.application);
        if member.outside {
            return false;
        }
        let mut done = true;
        for (at, proxy) in proxies.iter().enumerate() {
            if pools.0[at].is_none() {
                continue;
            }
            let belongs = member.home.is_none_or(|home| home == at);
            let outcome = match (belongs, pools.find(at, url)) {
                (true, None) => proxy.add(application, url).await,
                (true, Some(found)) if found.is_draining() => proxy.undrain(application, url).await,
                (false, Some(found)) if !found.is_draining() => proxy.drain(application, url).await,
                (false, Some(found)) if !found.is_busy() => proxy.remove(application, url).await,
                _ => Ok(()),
            };
            if let Err(error) = outcome {
                problems.push(error.to_string());
                done = false;
            }
        }
        done
    }

    async fn drain(
        &mut self,
        index: usize,
        proxies: &[Proxy],
        pools: &Pools,
        problems: &mut Vec<String>,
    ) {
        let Stage::Draining { told: false, since } = self.members[index].stage else {
            return;
        };
        let url = &self.members[index].url;
        for (at, proxy) in proxies.iter().enumerate() {
            if pools.0[at].is_none() {
                return;
            }
            if pools.find(at, url).is_none_or(proxy::Member::is_draining) {
                continue;
            }
            if let Err(error) = proxy.drain(&self.keeping.application, url).await {
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
            let url = self.members[index].url.clone();
            let empty = is_empty(&self.keeping.application, &url, proxies).await;
            if !(empty || since.elapsed() > self.keeping.drain_time) {
                index += 1;
                continue;
            }
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
        let application = &self.keeping.application;
        for proxy in proxies {
            let Ok(known) = proxy.replicas(application).await else {
                problems.push(format!("{} does not answer, {url} stays", proxy.base()));
                return false;
            };
            if !known.iter().any(|member| same_server(&member.url, url)) {
                continue;
            }
            if let Err(error) = proxy.remove(application, url).await {
                problems.push(error.to_string());
                return false;
            }
        }
        true
    }
}

/// Whether no proxy has a request at the server.
async fn is_empty(application: &str, url: &str, proxies: &[Proxy]) -> bool {
    for proxy in proxies {
        let Ok(members) = proxy.replicas(application).await else {
            return false;
        };
        let busy = |member: &proxy::Member| same_server(&member.url, url) && member.is_busy();
        if members.iter().any(busy) {
            return false;
        }
    }
    true
}

impl Driver for Members {
    fn set<'a>(&'a mut self, decision: &'a Decision) -> Task<'a, Result<(), String>> {
        self.desired = decision.to;
        // What was taken out from elsewhere was respected for a time, and is decided anew.
        self.give_back();
        for member in &mut self.members {
            member.returns |= std::mem::take(&mut member.outside);
        }
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
        let kept = |member: &&Member| !member.is_draining();
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
