//! What a service says about its protection before it starts.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tidegate_config::Dur;
use tidegate_http1::grpc;
use tidegate_sentry::policing::PathHasher;
use tidegate_sentry::{
    Arrival, ClassConfig, ClassId, Event, ModeName, Sentry, SentryConfig, SentryError,
};

use crate::clock::Clock;
use crate::gate::Gate;
use crate::layer::ProtectLayer;
use crate::ticker::{Driver, EventSink};

type Classifier = Box<dyn Fn(&SentryConfig, &Parts) -> ClassId + Send + Sync>;
type TenantKey = Box<dyn Fn(&Parts) -> Option<u64> + Send + Sync>;

/// Why a layer could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The text is no `[protect]` table.
    #[error(transparent)]
    Text(#[from] tidegate_config::ConfigError),
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] SentryError),
    /// The system refused the thread that drives the engine's timers.
    #[error("the ticker's thread could not be started ({0}): raise the limit of threads")]
    Thread(#[from] std::io::Error),
}

/// A builder of [`ProtectLayer`]. Nothing has to be said: mode `auto` finds the concurrency limit
/// and derives a target by itself.
///
/// ```
/// use std::time::Duration;
/// use tidegate_tower::Protection;
///
/// let layer = Protection::new()
///     .target(Duration::from_millis(250))
///     .class("checkout")
///     .class("browse")
///     .classify(|request| match request.uri.path() {
///         "/checkout" => "checkout",
///         _ => "browse",
///     })
///     .build()?;
/// # drop(layer);
/// # Ok::<(), tidegate_tower::BuildError>(())
/// ```
#[must_use]
pub struct Protection {
    config: SentryConfig,
    classify: Option<Classifier>,
    tenant: Option<TenantKey>,
    sink: EventSink,
}

impl Default for Protection {
    fn default() -> Self {
        Self::new()
    }
}

impl Protection {
    /// Mode `auto`, one class, no target of its own.
    pub fn new() -> Self {
        Self::from_config(SentryConfig::default())
    }

    /// With the same keys as the table `[protect]` of the proxy's configuration file.
    pub fn from_config(config: SentryConfig) -> Self {
        Self {
            config,
            classify: None,
            tenant: None,
            sink: Box::new(|_| {}),
        }
    }

    /// The same, from TOML: `mode = "auto"`, `target = "250ms"`.
    ///
    /// # Errors
    /// With line, cause and nearest key when the text is not valid.
    pub fn from_toml(text: &str) -> Result<Self, BuildError> {
        Ok(Self::from_config(tidegate_config::parse("protect", text)?))
    }

    /// Response time within which an answer is worth something, counted from the arrival.
    pub fn target(mut self, target: Duration) -> Self {
        self.config.target = Some(Dur(target));
        self
    }

    /// Another mode than `auto`; its parameters come by [`Protection::from_toml`].
    pub fn mode(mut self, mode: ModeName) -> Self {
        self.config.mode = mode;
        self
    }

    /// One more class, less important than those before it.
    pub fn class(mut self, name: &str) -> Self {
        self.config.classes.push(ClassConfig::named(name));
        self
    }

    /// Which class a request belongs to, by its name. A name that is no class is the least
    /// important one: a mistake never promotes a request.
    pub fn classify(
        mut self,
        classifier: impl Fn(&Parts) -> &'static str + Send + Sync + 'static,
    ) -> Self {
        self.classify = Some(Box::new(move |config, request| {
            let last = ClassId((config.class_count() - 1) as u16);
            config.class_id(classifier(request)).unwrap_or(last)
        }));
        self
    }

    /// The same, by its place in the list of classes, for classes that a file names.
    pub fn classify_by_id(
        mut self,
        classifier: impl Fn(&Parts) -> ClassId + Send + Sync + 'static,
    ) -> Self {
        self.classify = Some(Box::new(move |_, request| classifier(request)));
        self
    }

    /// What tells tenants apart, as a hash; those of a class take turns in the queue.
    pub fn tenant(mut self, key: impl Fn(&Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        self.tenant = Some(Box::new(key));
        self
    }

    /// Decide and report, but admit everything.
    pub fn dry_run(mut self) -> Self {
        self.config.dry_run = true;
        self
    }

    /// Receives every event of the engine, on the thread of its timers.
    pub fn observe(mut self, sink: impl FnMut(&Event) + Send + 'static) -> Self {
        self.sink = Box::new(sink);
        self
    }

    /// Starts the engine and the thread of its timers, which ends with the last clone of the
    /// layer. Services wrapped by clones of the layer share one concurrency limit.
    ///
    /// # Errors
    /// When the configuration contradicts itself or the thread cannot be started.
    pub fn build(self) -> Result<ProtectLayer, BuildError> {
        let (layer, driver) = self.assemble(Clock::start())?;
        driver.start()?;
        Ok(layer)
    }

    /// For simulated time: `clock` is the time since any moment, and the caller drives the timers.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn build_driven(
        self,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<(ProtectLayer, Driver), BuildError> {
        self.assemble(Clock::driven(clock))
    }

    fn assemble(self, clock: Clock) -> Result<(ProtectLayer, Driver), BuildError> {
        let random = || RandomState::new().hash_one(0);
        let config = self.config;
        let sentry = Sentry::new(&config, 1, clock.now(), random())?;
        let gate = Arc::new(Gate::new(sentry, clock));
        let driver = Driver::new(&gate, self.sink);
        let paths = config
            .remembers_paths()
            .then(|| PathHasher::new((random(), random()), &config.paths.fold));
        let rules = Rules {
            classify: self.classify,
            tenant: self.tenant,
            paths,
            config,
        };
        Ok((ProtectLayer::new(gate, Arc::new(rules)), driver))
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// What the engine is told about a request.
pub(crate) struct Rules {
    config: SentryConfig,
    classify: Option<Classifier>,
    tenant: Option<TenantKey>,
    paths: Option<PathHasher>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    pub(crate) fn arrival(&self, gate: &Gate, request: &Parts) -> Arrival {
        let timeout = request.headers.get(grpc::TIMEOUT);
        let left = timeout.and_then(|value| grpc::timeout(value.as_bytes()));
        Arrival {
            class: self.class(request),
            deadline: left.map(|left| gate.now() + left),
            path: self
                .paths
                .as_ref()
                .map(|paths| paths.hash(request.uri.path())),
            tenant: self.tenant.as_ref().and_then(|tenant| tenant(request)),
            ..Arrival::default()
        }
    }

    fn class(&self, request: &Parts) -> ClassId {
        let classify = self.classify.as_ref();
        classify.map_or(ClassId(0), |classify| classify(&self.config, request))
    }
}
