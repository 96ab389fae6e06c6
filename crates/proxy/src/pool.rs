//! The replicas that an application is to have, and who says so.
//!
//! The file names them, or says where they are discovered. An operator or a control plane can
//! change them by the admin API:
//!
//! - A whole list (`PUT`), or a change of a pool that the file names, is in force instead of what
//!   the file says.
//! - A change of a pool that is discovered is laid over what is discovered: a replica is drained,
//!   weighed, removed or added, and discovery goes on. A change of a replica ends when its source
//!   no longer names that replica, so that a later one at the same address begins afresh.
//!
//! Either holds until the file names other replicas or sources than it did then, or until `DELETE`.
//! It survives reloads that do not concern it, upgrades, and restarts with a `state_file`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Discover, Origin};
use crate::settings::SettingsError;

/// Where a pool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolSource {
    /// The configuration file or the command line.
    #[default]
    File,
    /// The admin API.
    Api,
    /// The file, and what its `upstream.discover` found.
    Discovery,
}

/// Whether a replica is to get new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It gets requests while it is healthy.
    #[default]
    Active,
    /// It gets no new requests; those inside finish, sessions move on.
    Draining,
}

/// One replica of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Scheme, host and port.
    pub url: Origin,
    /// What it is meant to carry, relative to the others.
    #[serde(default = "one")]
    pub weight: NonZeroU32,
    /// Whether it is to get new requests.
    #[serde(default)]
    pub state: MemberState,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl Member {
    /// Whether it gets no new requests.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state == MemberState::Draining
    }
}

/// The replicas that an application is to have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// Who says so.
    pub source: PoolSource,
    /// The replicas, each URL once.
    pub members: Vec<Member>,
}

impl Pool {
    /// The replicas that the file names.
    #[must_use]
    pub fn of_file(config: &Config) -> Self {
        let replicas = config.upstream.replicas.iter();
        let members = replicas.map(|replica| Member {
            url: replica.url.clone(),
            weight: replica.weight,
            state: MemberState::Active,
        });
        Self {
            source: PoolSource::File,
            members: members.collect(),
        }
    }

    /// The replicas that the file names and those that were discovered where it says.
    fn with_discovered(config: &Config, discovered: Option<&Discovered>) -> Self {
        let mut pool = Self::of_file(config);
        if config.upstream.discover.is_empty() {
            return pool;
        }
        pool.source = PoolSource::Discovery;
        for member in discovered.iter().flat_map(|it| &it.members) {
            if !contains(&pool.members, &member.url) {
                pool.members.push(member.clone());
            }
        }
        pool
    }

    /// The replicas in force.
    pub(crate) fn in_force(
        config: &Config,
        discovered: Option<&Discovered>,
        set: Option<&PoolOverride>,
    ) -> Self {
        match set.map(|it| &it.change) {
            Some(Change::Pool(pool)) => pool.clone(),
            Some(Change::Overlay(overlay)) => {
                let mut pool = Self::with_discovered(config, discovered);
                overlay.lay_over(&mut pool.members);
                pool
            }
            None => Self::with_discovered(config, discovered),
        }
    }
}

fn contains(members: &[Member], url: &Origin) -> bool {
    members.iter().any(|member| member.url == *url)
}

/// What the sources of an application named last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Discovered {
    /// The sources: what others name is not of these replicas.
    pub(crate) sources: Vec<Discover>,
    pub(crate) members: Vec<Member>,
}

/// A pool that was set or changed while the proxy runs, and what the file said then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolOverride {
    /// What the file named.
    instead_of: Vec<Member>,
    /// Where the file had replicas discovered.
    #[serde(default)]
    discover: Vec<Discover>,
    #[serde(flatten)]
    change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    /// These replicas and no others.
    Pool(Pool),
    /// What is discovered, with changes.
    Overlay(Overlay),
}

impl PoolOverride {
    fn new(config: &Config, change: Change) -> Self {
        Self {
            instead_of: Pool::of_file(config).members,
            discover: config.upstream.discover.clone(),
            change,
        }
    }

    /// Whether it is in force with this configuration: not if the file has named other replicas or
    /// sources since.
    pub(crate) fn holds(&self, config: &Config) -> bool {
        self.instead_of == Pool::of_file(config).members
            && self.discover == config.upstream.discover
    }

    /// Ends the changes of replicas that are discovered no longer; `None` if nothing remains.
    pub(crate) fn without_gone(
        mut self,
        before: Option<&Discovered>,
        now: &Discovered,
    ) -> Option<Self> {
        if let Change::Overlay(overlay) = &mut self.change {
            let before = before.iter().flat_map(|it| &it.members);
            for gone in before.filter(|it| !contains(&now.members, &it.url)) {
                overlay.removed.remove(&gone.url);
                overlay.changed.remove(&gone.url);
            }
            if overlay.is_empty() {
                return None;
            }
        }
        Some(self)
    }
}

/// Changes of a pool that is discovered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Overlay {
    added: Vec<Member>,
    removed: BTreeSet<Origin>,
    changed: BTreeMap<Origin, MemberChange>,
}

/// What is otherwise about a replica than its source says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MemberChange {
    weight: Option<NonZeroU32>,
    state: Option<MemberState>,
}

impl Overlay {
    /// What makes `after` of `base`.
    fn between(base: &[Member], after: &[Member]) -> Self {
        let mut overlay = Self::default();
        for member in after {
            let Some(found) = base.iter().find(|it| it.url == member.url) else {
                overlay.added.push(member.clone());
                continue;
            };
            let change = MemberChange {
                weight: (member.weight != found.weight).then_some(member.weight),
                state: (member.state != found.state).then_some(member.state),
            };
            if change != MemberChange::default() {
                overlay.changed.insert(member.url.clone(), change);
            }
        }
        let removed = base.iter().filter(|it| !contains(after, &it.url));
        overlay.removed = removed.map(|it| it.url.clone()).collect();
        overlay
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn lay_over(&self, members: &mut Vec<Member>) {
        members.retain(|it| !self.removed.contains(&it.url));
        for member in members.iter_mut() {
            if let Some(change) = self.changed.get(&member.url) {
                member.weight = change.weight.unwrap_or(member.weight);
                member.state = change.state.unwrap_or(member.state);
            }
        }
        for added in &self.added {
            match members.iter_mut().find(|it| it.url == added.url) {
                Some(member) => *member = added.clone(),
                None => members.push(added.clone()),
            }
        }
    }
}

/// What the admin API asks of a pool.
#[derive(Debug, Clone)]
pub enum PoolCommand {
    /// These replicas and no others.
    Put(Vec<Member>),
    /// A change of the pool in force.
    Patch(PoolPatch),
    /// What the file says, and what is discovered where it says.
    Reset,
}

/// Why a pool is refused.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The command names what is not there, or one replica twice.
    #[error("{0}")]
    Wrong(String),
    /// The replicas cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl PoolCommand {
    /// What is in force instead of, or over, what the file says from now on.
    pub(crate) fn apply(
        &self,
        config: &Config,
        discovered: Option<&Discovered>,
        set: Option<&PoolOverride>,
    ) -> Result<Option<PoolOverride>, PoolError> {
        let members = match self {
            Self::Reset => return Ok(None),
            Self::Put(members) => members.clone(),
            Self::Patch(patch) => {
                let pool = Pool::in_force(config, discovered, set);
                patch.apply(&pool.members).map_err(PoolError::Wrong)?
            }
        };
        check(&members).map_err(PoolError::Wrong)?;
        let is_list = |it: &PoolOverride| matches!(it.change, Change::Pool(_));
        if matches!(self, Self::Put(_))
            || config.upstream.discover.is_empty()
            || set.is_some_and(is_list)
        {
            let source = PoolSource::Api;
            let pool = Pool { source, members };
            return Ok(Some(PoolOverride::new(config, Change::Pool(pool))));
        }
        let base = Pool::with_discovered(config, discovered).members;
        let mut overlay = Overlay::between(&base, &members);
        if let Some(Change::Overlay(known)) = set.map(|it| &it.change) {
            // Of replicas that have yet to be discovered after a restart.
            let removed = known.removed.iter();
            let unseen = removed.filter(|&url| !contains(&base, url) && !contains(&members, url));
            overlay.removed.extend(unseen.cloned());
            let unseen = known
                .changed
                .iter()
                .filter(|(url, _)| !contains(&base, url));
            let unseen = unseen.map(|(url, &change)| (url.clone(), change));
            overlay.changed.extend(unseen);
        }
        let changes = !overlay.is_empty();
        Ok(changes.then(|| PoolOverride::new(config, Change::Overlay(overlay))))
    }
}

/// Some of the replicas are to change. Everything named has to be there, and nothing twice.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolPatch {
    /// Replicas that come in.
    pub add: Vec<Member>,
    /// URLs of replicas that go; requests inside finish.
    pub remove: Vec<Origin>,
    /// URLs of replicas that get no new requests.
    pub drain: Vec<Origin>,
    /// URLs of replicas that get requests again.
    pub undrain: Vec<Origin>,
    /// Other weights, by URL.
    pub weight: std::collections::BTreeMap<Origin, NonZeroU32>,
}

impl PoolPatch {
    /// The members after the change.
    ///
    /// # Errors
    /// What is named and is not there, or is there already, with a remedy.
    pub fn apply(&self, members: &[Member]) -> Result<Vec<Member>, String> {
        let mut next = members.to_vec();
        for url in &self.remove {
            let at = position(&next, url)?;
            next.remove(at);
        }
        for added in &self.add {
            if next.iter().any(|member| member.url == added.url) {
                let url = &added.url;
                return Err(format!(
                    "replica {url} is in the pool already; change it by `weight`, `drain` or `undrain`"
                ));
            }
            next.push(added.clone());
        }
        let states = [
            (&self.drain, MemberState::Draining),
            (&self.undrain, MemberState::Active),
        ];
        for (urls, state) in states {
            for url in urls {
                let at = position(&next, url)?;
                next[at].state = state;
            }
        }
        for (url, &weight) in &self.weight {
            let at = position(&next, url)?;
            next[at].weight = weight;
        }
        Ok(next)
    }
}

fn position(members: &[Member], url: &Origin) -> Result<usize, String> {
    let at = members.iter().position(|member| member.url == *url);
    at.ok_or_else(|| format!("there is no replica {url} in the pool; see GET for those there are"))
}

/// Refuses a pool that names a replica twice.
pub(crate) fn check(members: &[Member]) -> Result<(), String> {
    let mut seen = HashSet::new();
    let twice = members.iter().find(|member| !seen.insert(&member.url));
    twice.map_or(Ok(()), |member| {
        let url = &member.url;
        Err(format!("replica {url} is listed twice; remove one"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(patch: &str) -> Result<String, String> {
        let members: Vec<Member> = serde_json::from_str(
            r#"[{"url":"http://a:1"},{"url":"http://b:1","weight":2,"state":"draining"}]"#,
        )
        .unwrap();
        let patch: PoolPatch = serde_json::from_str(patch).unwrap();
        let members = patch.apply(&members)?;
        let shown = members.iter().map(|it| {
            let state = if it.is_draining() { " draining" } else { "" };
            format!("{} {}{state}", it.url, it.weight)
        });
        Ok(shown.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn a_patch_changes_what_it_names() {
        assert_eq!(
            patched(r#"{"add":[{"url":"http://c:1","weight":3}],"remove":["http://a:1"]}"#)
                .unwrap(),
            "http://b:1 2 draining, http://c:1 3"
        );
        assert_eq!(
            patched(
                r#"{"drain":["http://a:1"],"undrain":["http://b:1"],"weight":{"http://a:1":9}}"#
            )
            .unwrap(),
            "http://a:1 9 draining, http://b:1 2"
        );
    }

    #[test]
    fn a_patch_that_names_the_wrong_replica_is_refused() {
        for wrong in [
            r#"{"remove":["http://x:1"]}"#,
            r#"{"drain":["http://x:1"]}"#,
            r#"{"weight":{"http://x:1":2}}"#,
            r#"{"remove":["http://a:1"],"drain":["http://a:1"]}"#,
        ] {
            assert!(
                patched(wrong).unwrap_err().contains("there is no"),
                "{wrong}"
            );
        }
        let twice = patched(r#"{"add":[{"url":"http://a:1"}]}"#).unwrap_err();
        assert!(twice.contains("already"), "{twice}");
    }
}
