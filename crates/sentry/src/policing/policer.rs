//! What policing reads on the request path: which kind is in force, the threshold, and what
//! requests cost.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::io_weight::IoWeight;
use super::toll::Tolls;
use super::{PathKey, ServiceTable, ThresholdGate};
use crate::atomic::AtomicF64;
use crate::config::{CLASSES_MAX, ModeName, SentryConfig};

/// How requests are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Against their target, in batches.
    Batch,
    /// By a share per class.
    Threshold,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Threshold => "threshold",
        }
    }
}

/// What policing reads on the request path: which kind is in force, the threshold, and what
/// requests cost.
#[derive(Debug)]
pub(crate) struct Policer {
    /// The mode it was made for: what is learnt in one is nothing to another.
    mode: ModeName,
    kind: AtomicU8,
    pub(crate) threshold: ThresholdGate,
    services: ServiceTable,
    /// By path and tenant, where cost counts.
    of_tenants: ServiceTable,
    pub(crate) tolls: Tolls,
    /// What I/O weighs where the operator does not say.
    pub(crate) io_weight: IoWeight,
    /// What the driver last said about its own CPU use; NaN before it has.
    cpu_share: AtomicF64,
    examined: AtomicU64,
    refused: AtomicU64,
}

impl Policer {
    pub(crate) fn new(config: &SentryConfig) -> Self {
        Self {
            mode: config.mode,
            kind: AtomicU8::new(Kind::Batch as u8),
            threshold: ThresholdGate::new(CLASSES_MAX),
            services: ServiceTable::new(paths(config), EVICTION_SEED),
            of_tenants: ServiceTable::new(pairs(config), EVICTION_SEED),
            tolls: Tolls::default(),
            io_weight: IoWeight::default(),
            cpu_share: AtomicF64::new(f64::NAN),
            examined: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Whether a changed configuration needs another one.
    pub(crate) fn suits(&self, config: &SentryConfig) -> bool {
        match config.mode {
            ModeName::Auto | ModeName::Sentry => {
                self.mode == config.mode
                    && self.services.holds(paths(config))
                    && self.of_tenants.holds(pairs(config))
            }
            _ => true,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Relaxed) {
            0 => Kind::Batch,
            _ => Kind::Threshold,
        }
    }

    pub(crate) fn set_kind(&self, kind: Kind) {
        self.kind.store(kind as u8, Ordering::Relaxed);
    }

    /// The service time of a path, where it is known.
    pub(crate) fn service_s(&self, path: Option<PathKey>) -> Option<f64> {
        path.and_then(|path| self.services.get(path))
    }

    /// The same, where it was asked for often enough.
    pub(crate) fn well_known_s(&self, path: Option<PathKey>) -> Option<f64> {
        path.and_then(|path| self.services.get_well_known(path))
    }

    /// A request of the path took so much of a server.
    pub(crate) fn learn(&self, path: Option<PathKey>, service_s: f64) {
        if let Some(path) = path {
            self.services.record(path, service_s);
        }
    }

    /// The cost of a path of this tenant, where it was asked for often enough.
    pub(crate) fn well_known_of_tenant(
        &self,
        path: Option<PathKey>,
        tenant: Option<u64>,
    ) -> Option<f64> {
        pair(path, tenant).and_then(|pair| self.of_tenants.get_well_known(pair))
    }

    /// A request of the path and tenant cost so much.
    pub(crate) fn learn_of_tenant(&self, path: Option<PathKey>, tenant: Option<u64>, cost: f64) {
        if let Some(pair) = pair(path, tenant) {
            self.of_tenants.record(pair, cost);
        }
    }

    /// Paths that are not asked for any more make room.
    pub(crate) fn age_paths(&self) {
        self.services.age();
        self.of_tenants.age();
    }

    /// This many requests were judged, and this many of them refused.
    pub(crate) fn examined(&self, requests: u32, refused: u32) {
        self.examined
            .fetch_add(u64::from(requests), Ordering::Relaxed);
        self.refused
            .fetch_add(u64::from(refused), Ordering::Relaxed);
    }

    /// Share of the requests judged since the last call that were refused, if any were judged.
    pub(crate) fn take_refused_share(&self) -> Option<f64> {
        let examined = self.examined.swap(0, Ordering::Relaxed);
        let refused = self.refused.swap(0, Ordering::Relaxed);
        (examined > 0).then(|| refused as f64 / examined as f64)
    }

    pub(crate) fn set_cpu_share(&self, share: f64) {
        self.cpu_share.store(share);
    }

    pub(crate) fn cpu_share(&self) -> Option<f64> {
        Some(self.cpu_share.load()).filter(|share| share.is_finite())
    }
}

/// Paths to be remembered in the mode.
fn paths(config: &SentryConfig) -> usize {
    if config.remembers_paths() {
        config.paths.max as usize
    } else {
        0
    }
}

/// Pairs of a path and a tenant to be remembered.
fn pairs(config: &SentryConfig) -> usize {
    if config.mode == ModeName::Auto && config.auto.cost_fairness > 0.0 {
        config.paths.max as usize
    } else {
        0
    }
}

/// The key of a path and a tenant. Both are hashes under secret keys; the factor keeps a tenant
/// from undoing a path.
fn pair(path: Option<PathKey>, tenant: Option<u64>) -> Option<PathKey> {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (PathKey(path), tenant) = path.zip(tenant)?;
    Some(PathKey(path.rotate_left(32) ^ tenant.wrapping_mul(ODD)))
}

/// Which path is cooled by a stranger is decided by a sequence that cannot be seen from outside;
/// the key that matters is the path's.
const EVICTION_SEED: u64 = 0x7061_7468;
