//! The replicas that an application is to have, and who says so.
//!
//! The file names them first. An operator or a control plane can replace them by the admin API:
//! that pool holds until the file names other replicas than it did when the pool was set, and
//! survives reloads that do not concern it, upgrades, and restarts where there is a `state_file`.

use std::collections::HashSet;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Origin};

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

    /// The replicas that the file names and those that were found where it says.
    #[must_use]
    pub(crate) fn with_discovered(config: &Config, discovered: Option<&Vec<Member>>) -> Self {
        let mut pool = Self::of_file(config);
        if config.upstream.discover.is_empty() {
            return pool;
        }
        pool.source = PoolSource::Discovery;
        for member in discovered.into_iter().flatten() {
            if pool.members.iter().all(|it| it.url != member.url) {
                pool.members.push(member.clone());
            }
        }
        pool
    }
}

/// A pool that was set while the proxy runs, and what the file said then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolOverride {
    /// What the file named when it was set.
    pub(crate) instead_of: Vec<Member>,
    pub(crate) pool: Pool,
}

impl PoolOverride {
    pub(crate) fn new(file: Pool, members: Vec<Member>) -> Self {
        Self {
            instead_of: file.members,
            pool: Pool {
                source: PoolSource::Api,
                members,
            },
        }
    }

    /// The pool in force with this configuration: the file's, if the file has changed since.
    pub(crate) fn holds(&self, config: &Config) -> bool {
        self.instead_of == Pool::of_file(config).members
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
