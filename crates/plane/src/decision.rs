//! What is decided, and why.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::Timestamp;

/// A number of servers, and the target that goes with it, for an application.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// When it was made.
    #[serde(serialize_with = "as_unix_seconds")]
    pub at: Timestamp,
    /// For which application.
    pub application: String,
    /// What led to it.
    pub cause: Cause,
    /// Servers that are set now.
    pub from: u32,
    /// Servers that should be.
    pub to: u32,
    /// Response-time target in force with them.
    #[serde(rename = "target_seconds", serialize_with = "as_seconds")]
    pub target: Duration,
    /// Why, in words and numbers.
    pub reason: String,
}

fn as_seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn as_unix_seconds<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.as_secs_f64())
}

/// What leads to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// More will arrive.
    Predicted,
    /// More arrives.
    Measured,
    /// Requests are shed.
    Shed,
    /// A moment brought more than the servers can do, and nothing is shed yet.
    Ahead,
    /// Fewer servers have been enough for a while.
    ScaleIn,
    /// There are not servers enough for all applications.
    Pool,
    /// A bound of the configuration.
    Bounds,
    /// The target changes, the servers do not.
    Target,
}

impl Cause {
    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Measured => "measured",
            Self::Shed => "shed",
            Self::Ahead => "ahead",
            Self::ScaleIn => "scale_in",
            Self::Pool => "pool",
            Self::Bounds => "bounds",
            Self::Target => "target",
        }
    }
}

/// Something worth knowing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum PlaneEvent {
    /// Servers, or a target, should change.
    Decision(Decision),
    /// Proxies should change.
    Proxies {
        /// When.
        #[serde(serialize_with = "as_unix_seconds")]
        at: Timestamp,
        /// Proxies now.
        from: u32,
        /// Proxies that should be.
        to: u32,
        /// Why.
        reason: String,
    },
    /// The number of servers was set from elsewhere.
    Foreign {
        /// When it was noticed.
        #[serde(serialize_with = "as_unix_seconds")]
        at: Timestamp,
        /// Of which application.
        application: String,
        /// Servers ordered.
        ordered: u32,
        /// Servers found.
        found: u32,
        /// For how long it is left alone, in seconds.
        respected_seconds: f64,
    },
    /// Servers that were ordered do not get ready.
    Stuck {
        /// When.
        #[serde(serialize_with = "as_unix_seconds")]
        at: Timestamp,
        /// Of which application.
        application: String,
        /// How many.
        servers: u32,
    },
    /// Nothing is known about an application: its servers stay.
    Blind {
        /// When.
        #[serde(serialize_with = "as_unix_seconds")]
        at: Timestamp,
        /// Which application.
        application: String,
    },
}

impl PlaneEvent {
    /// The application it is about; nothing where it is about all of them.
    #[must_use]
    pub fn application(&self) -> Option<&str> {
        match self {
            Self::Decision(decision) => Some(&decision.application),
            Self::Proxies { .. } => None,
            Self::Foreign { application, .. }
            | Self::Stuck { application, .. }
            | Self::Blind { application, .. } => Some(application),
        }
    }
}

/// `14:05`, of a time since a midnight.
pub(crate) fn clock(at: Timestamp) -> String {
    let minutes = at.as_nanos() / 60_000_000_000;
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// `1 server`, `3 servers`.
pub(crate) fn servers(count: u32) -> String {
    match count {
        1 => "1 server".to_owned(),
        _ => format!("{count} servers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_shows_hours_and_minutes_of_the_day() {
        let noon = Timestamp::from_secs_f64(86_400.0 * 3.0 + 14.0 * 3600.0 + 5.0 * 60.0 + 59.0);
        assert_eq!(clock(noon), "14:05");
        assert_eq!(
            (servers(1), servers(0)),
            ("1 server".into(), "0 servers".into())
        );
    }
}
