//! How replicas are found to be ill and well again.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Share};

use super::types::StatusRange;

/// Health of replicas.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// Asks every replica at intervals.
    pub active: ActiveHealth,
    /// Watches how replicas answer real requests.
    pub passive: PassiveHealth,
}

/// Asks every replica at intervals.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActiveHealth {
    /// Path to GET, such as `"/healthz"`. Without it replicas are not asked while they work, and an
    /// ejected one is tried by opening a connection. Its answer may carry `tidegate-utilization` or
    /// ORCA's `endpoint-load-metrics`; modes that regulate utilization should ask once per
    /// interval, because under overload clients may leave before the answers that tell it.
    #[schemars(example = &"/healthz")]
    pub path: Option<String>,
    /// Time between two checks of a replica, give or take a tenth so that checks spread out.
    pub interval: Dur,
    /// How long a check may take.
    pub timeout: Dur,
    /// Statuses that count as healthy.
    pub status: StatusRange,
    /// Failures in a row that take a replica out.
    #[schemars(range(min = 1))]
    pub unhealthy_after: u32,
    /// Successes in a row that bring it back; one is enough while no replica is healthy.
    #[schemars(range(min = 1))]
    pub healthy_after: u32,
    /// The `Host` to send, instead of the replica's.
    #[schemars(example = &"shop.example")]
    pub host: Option<String>,
}

impl Default for ActiveHealth {
    fn default() -> Self {
        Self {
            path: None,
            interval: Dur(Duration::from_secs(2)),
            timeout: Dur(Duration::from_secs(1)),
            status: StatusRange::new(200, 399),
            unhealthy_after: 3,
            healthy_after: 2,
            host: None,
        }
    }
}

/// Watches how replicas answer real requests.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveHealth {
    /// Refused, reset and timed-out requests in a row that eject a replica; 0 never ejects.
    pub failures: u32,
    /// Share of 5xx answers among `window` that ejects a replica; `"100%"` asks for all of them.
    #[schemars(example = &"50%")]
    pub errors: Option<Share>,
    /// Answers that the share is taken over.
    #[schemars(range(min = 1))]
    pub window: u32,
    /// How long the first ejection lasts; every further one twice as long as the one before.
    pub eject: Dur,
    /// How long an ejection lasts at most.
    pub eject_max: Dur,
    /// Share of the replicas that may be out at a time by this rule; one always may while another
    /// is healthy.
    pub ejected_max: Share,
}

impl Default for PassiveHealth {
    fn default() -> Self {
        Self {
            failures: 5,
            errors: None,
            window: 100,
            eject: Dur(Duration::from_secs(1)),
            eject_max: Dur(Duration::from_secs(60)),
            ejected_max: Share(0.5),
        }
    }
}
