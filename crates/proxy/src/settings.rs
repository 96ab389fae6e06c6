//! A configuration made ready for use: files read, certificates loaded, replicas connected to
//! their ids, texts rendered. Made whole before anything of it is in force.

use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderValue;
use tidegate_sentry::{ClassId, ReplicaChange, ReplicaId, SentryConfig, SentryError};

use crate::access_log::{AccessLog, Refused};
use crate::config::{Config, DEFAULT, Http2};
use crate::edge::Edge;
use crate::http1::HeadLimits;
use crate::listen::tls::{self as listen_tls, ServerTls};
use crate::pool::{Member, Pool};
use crate::refuse::Refusals;
use crate::request::classify::Classifier;
use crate::request::classify::token::Tokens;
use crate::request::engine_keys::Keys;
use crate::request::sticky::Sticky;
use crate::upstream::{Replica, Transport};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The engine refuses its part.
    #[error("protect: {0}")]
    Sentry(#[from] SentryError),
    /// A file cannot be read.
    #[error("cannot read {}: {cause}; check the name and the permissions", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The key of signed tokens is not usable.
    #[error("token: {0}")]
    Token(String),
    /// A certificate, a key or both together are not usable.
    #[error("{0}")]
    Tls(String),
    /// The channel cannot be set up.
    #[error("{0}")]
    Channel(String),
    /// The access log cannot be opened.
    #[error("cannot open the access log {}: {cause}; check the directory and who may write there", path.display())]
    AccessLog {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The recording cannot begin.
    #[error("record: {0}")]
    Record(#[from] crate::record::RecordingError),
    /// The configuration beside the one in force is not usable.
    #[error("{0}: {1}")]
    Shadow(&'static str, String),
    /// One of several applications cannot be set up.
    #[error("application `{name}`: {cause}")]
    Application {
        /// Which one.
        name: String,
        /// What is wrong with it.
        cause: Box<SettingsError>,
    },
}

impl SettingsError {
    /// Says which application it concerns, where a file has several.
    pub(crate) fn of(self, name: &str) -> Self {
        match name {
            "" | DEFAULT => self,
            name => Self::Application {
                name: name.to_owned(),
                cause: Box::new(self),
            },
        }
    }
}

/// What requests consult. Replaced as a whole.
#[derive(Debug)]
pub struct Settings {
    /// The configuration as it was written.
    pub config: Arc<Config>,
    pub(crate) classifier: Classifier,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) keys: Keys,
    /// Names of the classes as replicas see them.
    pub(crate) class_names: Vec<HeaderValue>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) sticky: Option<Sticky>,
    /// Nothing where the file has no `[edge]`.
    pub(crate) edge: Option<Box<Edge>>,
    /// The protection beside the one in force.
    pub(crate) shadow: Option<Arc<SentryConfig>>,
    /// By listener; `None` is plain text.
    pub(crate) tls: Vec<Option<ServerTls>>,
    pub(crate) access_log: Option<AccessLog>,
    /// What disks did not take of any access log so far.
    pub(crate) log_refused: Arc<Refused>,
    /// By id. A replica that was removed stays until its id is given away: requests may be on
    /// their way to it.
    replicas: Vec<Arc<Replica>>,
    active: Vec<ReplicaId>,
    pool: Pool,
    draining: Vec<ReplicaId>,
}

/// What settings are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Client connections as well: listeners' certificates, the access log.
    Connections,
    /// The requests of one application among several.
    Application,
}

impl Settings {
    /// The settings of a proxy that starts.
    pub(crate) fn first(config: Config, pool: Pool, scope: Scope) -> Result<Next, SettingsError> {
        Next::compile(config, pool, scope, None)
    }

    /// The settings that follow these.
    pub(crate) fn next(
        &self,
        config: Config,
        pool: Pool,
        scope: Scope,
    ) -> Result<Next, SettingsError> {
        Next::compile(config, pool, scope, Some(self))
    }

    /// The replicas as they are wanted, and by whom.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The replicas that get no new requests because an operator wants it so.
    pub(crate) fn draining(&self) -> impl Iterator<Item = ReplicaId> {
        self.draining.iter().copied()
    }

    /// Whether an operator wants a replica to get no new requests.
    #[must_use]
    pub fn is_draining(&self, id: ReplicaId) -> bool {
        self.draining.contains(&id)
    }

    /// Replicas that were drained and no longer are, with the settings that follow.
    pub(crate) fn draining_only_here(&self, next: &Self) -> Vec<ReplicaId> {
        let released = self.draining().filter(|&id| !next.is_draining(id));
        released.filter(|id| next.active.contains(id)).collect()
    }

    /// Whether replicas may be spoken to in HTTP/2, which gRPC needs.
    pub(crate) fn speaks_http2(&self) -> bool {
        let upstream = &self.config.upstream;
        match upstream.http2 {
            Http2::Always => true,
            Http2::Auto => self.pool.members.iter().any(|member| member.url.tls),
            Http2::Never => false,
        }
    }

    /// The replicas in force.
    #[must_use]
    pub fn replica_ids(&self) -> &[ReplicaId] {
        &self.active
    }

    /// Ids in use are below this.
    #[must_use]
    pub fn replica_ids_end(&self) -> usize {
        self.replicas.len()
    }

    /// A replica by its id.
    #[must_use]
    pub fn replica(&self, id: ReplicaId) -> Option<&Arc<Replica>> {
        self.replicas.get(usize::from(id.0))
    }

    /// Whether a replica may have no more connections than it has.
    pub(crate) fn is_crowded(&self, uid: u64) -> bool {
        let mut replicas = self.replicas.iter();
        let replica = replicas.find(|replica| replica.uid() == uid);
        replica.is_some_and(|replica| replica.is_crowded())
    }

    /// Bounds on the head of a request.
    pub(crate) fn head_limits(&self) -> HeadLimits {
        let limits = &self.config.limits;
        HeadLimits {
            bytes: usize::try_from(*limits.head_bytes).unwrap_or(usize::MAX),
            fields: limits.headers,
        }
    }

    pub(crate) fn class_name(&self, class: ClassId) -> Option<&HeaderValue> {
        self.class_names.get(usize::from(class.0))
    }
}

/// Settings that lack only the ids of replicas which the engine has yet to give.
#[derive(Debug)]
pub(crate) struct Next {
    settings: Settings,
    added: Vec<(Arc<Replica>, Member)>,
    /// Those that stay, with the weight they have from now on.
    kept: Vec<(ReplicaId, NonZeroU32)>,
    removed: Vec<ReplicaId>,
}

fn shadow(config: &Config) -> Result<Option<Arc<SentryConfig>>, SettingsError> {
    let shadow = config.shadow.config(&config.protect);
    let shadow = shadow.map_err(|(key, message)| SettingsError::Shadow(key, message))?;
    Ok(shadow.map(Arc::new))
}

impl Next {
    fn compile(
        config: Config,
        pool: Pool,
        scope: Scope,
        old: Option<&Settings>,
    ) -> Result<Self, SettingsError> {
        let transport = Arc::new(Transport::new(&config, &pool)?);
        let connections = scope == Scope::Connections;
        let class_count = config.protect.class_count() as u16;
        let names = (0..class_count).map(|class| config.protect.class_name(ClassId(class)));
        let log_refused = old.map_or_else(Arc::default, |old| Arc::clone(&old.log_refused));
        let settings = Settings {
            classifier: Classifier::new(&config),
            tokens: tokens(&config, old)?,
            keys: Keys::new(&config),
            class_names: names
                .map(|name| HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("?")))
                .collect(),
            refusals: Refusals::of(&config.refusal)?,
            sticky: None,
            edge: None,
            shadow: shadow(&config)?,
            tls: if connections {
                listen_tls::load(&config.listen, old.map_or(&[], |old| &old.tls))?
            } else {
                Vec::new()
            },
            access_log: if connections {
                AccessLog::open(&config.access_log, &log_refused)?
            } else {
                None
            },
            log_refused,
            draining: Vec::new(),
            replicas: old.map_or_else(Vec::new, |old| old.replicas.clone()),
            active: Vec::new(),
            config: Arc::new(config),
            pool,
        };
        let mut next = Self {
            settings,
            added: Vec::new(),
            kept: Vec::new(),
            removed: old.map_or_else(Vec::new, |old| old.active.clone()),
        };
        next.place(&transport);
        let before = old.and_then(|old| old.edge.as_deref());
        next.settings.edge = Edge::new(&next.settings.config, before);
        let drawn = old.and_then(|old| old.sticky.as_ref());
        next.settings.sticky = Sticky::new(next.settings.config.sticky.as_ref(), drawn);
        Ok(next)
    }

    /// Replicas that were there before keep their ids.
    fn place(&mut self, transport: &Arc<Transport>) {
        for wanted in &self.settings.pool.members {
            let replicas = &mut self.settings.replicas;
            let known = self
                .removed
                .iter()
                .position(|id| replicas[usize::from(id.0)].origin() == &wanted.url);
            let Some(known) = known else {
                let replica = Replica::new(wanted.url.clone(), Arc::clone(transport));
                self.added.push((Arc::new(replica), wanted.clone()));
                continue;
            };
            let id = self.removed.swap_remove(known);
            let replica = &mut replicas[usize::from(id.0)];
            if **replica.transport() != **transport {
                *replica = Arc::new(Replica::new(wanted.url.clone(), Arc::clone(transport)));
            }
            self.settings.active.push(id);
            self.settings
                .draining
                .extend(wanted.is_draining().then_some(id));
            self.kept.push((id, wanted.weight));
        }
    }

    pub(crate) fn protect(&self) -> &SentryConfig {
        &self.settings.config.protect
    }

    /// The changes of the replica list as the engine takes them.
    pub(crate) fn changes(&self) -> Vec<ReplicaChange> {
        let removed = self.removed.iter().copied().map(ReplicaChange::Remove);
        let kept = self.kept.iter();
        let kept = kept.map(|&(id, weight)| ReplicaChange::Weigh(id, weight));
        let added = self.added.iter();
        let added = added.map(|(_, wanted)| ReplicaChange::Add(wanted.weight));
        removed.chain(kept).chain(added).collect()
    }

    /// Completes the settings with the ids of the replicas added.
    pub(crate) fn finish(self, ids: &[ReplicaId]) -> Settings {
        let mut settings = self.settings;
        for (&id, (replica, wanted)) in ids.iter().zip(self.added) {
            let index = usize::from(id.0);
            // The engine gives ids in order, or one that is free again.
            if index == settings.replicas.len() {
                settings.replicas.push(replica);
            } else {
                settings.replicas[index] = replica;
            }
            settings.active.push(id);
            settings.draining.extend(wanted.is_draining().then_some(id));
        }
        settings.active.sort_unstable();
        if let Some(sticky) = &mut settings.sticky {
            let origins = settings
                .active
                .iter()
                .map(|id| (*id, settings.replicas[usize::from(id.0)].origin()));
            sticky.set_replicas(origins);
        }
        settings
    }
}

fn tokens(config: &Config, old: Option<&Settings>) -> Result<Option<Tokens>, SettingsError> {
    let Some(config) = &config.token else {
        return Ok(None);
    };
    let tokens = Tokens::new(config).map_err(SettingsError::Token)?;
    if let Some(old) = old.and_then(|old| old.tokens.as_ref()) {
        tokens.continue_from(old);
    }
    Ok(Some(tokens))
}
