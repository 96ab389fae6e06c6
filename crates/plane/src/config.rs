//! What a control plane is configured with.
//!
//! Defaults are those of today's services: a plan every 10 s, a reaction within seconds. The
//! paper's prototype (003 §4.1, §6.5) is `plan_interval = "30m"`, `reaction = {
//! drop_fraction = "50%", window = "5m", step_max = 1, step_interval = "5m" }`.

use std::collections::BTreeSet;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_config::{Dur, Rate, Share};

/// Provisioning of servers and proxies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlaneConfig {
    /// How often servers are planned from what is measured and predicted.
    pub plan_interval: Dur,
    /// Servers there are in all; without it each application is bounded by its own `max` only.
    pub pool: Option<u32>,
    /// What a server costs per hour, in the unit of `revenue`. A server that earns less is not
    /// used.
    pub server_cost: f64,
    /// How future arrivals are predicted.
    pub prediction: PredictionConfig,
    /// What is done at once when requests are shed.
    pub reaction: ReactionConfig,
    /// When servers are given back.
    pub scale_in: ScaleInConfig,
    /// How many proxies there are.
    pub proxies: ProxiesConfig,
    /// For how long a number of servers that was set from elsewhere is left alone.
    pub foreign_hold: Dur,
    /// The applications.
    #[serde(rename = "application")]
    pub applications: Vec<ApplicationConfig>,
}

impl Default for PlaneConfig {
    fn default() -> Self {
        Self {
            plan_interval: seconds(10),
            pool: None,
            server_cost: 0.0,
            prediction: PredictionConfig::default(),
            reaction: ReactionConfig::default(),
            scale_in: ScaleInConfig::default(),
            proxies: ProxiesConfig::default(),
            foreign_hold: seconds(600),
            applications: Vec::new(),
        }
    }
}

/// How future arrivals are predicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PredictionConfig {
    /// Whether servers are started on a prediction.
    pub enabled: bool,
    /// After this time arrivals repeat themselves, more or less. Seven of it are looked at too.
    pub season: Dur,
    /// Resolution of the seasons.
    pub bucket: Dur,
    /// How far ahead at least; the time a server takes to start is added.
    pub horizon: Dur,
    /// How many standard deviations of its own error a prediction is raised by.
    pub error_margin: f64,
}

impl Default for PredictionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            season: seconds(86_400),
            bucket: seconds(300),
            horizon: seconds(30),
            error_margin: 2.0,
        }
    }
}

/// What is done at once when requests are shed (003 §4.1, the reactive mode).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReactionConfig {
    /// Whether there is a reaction between two plans.
    pub enabled: bool,
    /// Whether there is a reaction before requests are shed too, when the last interval brought
    /// more than the servers can do.
    pub ahead: bool,
    /// Share of requests shed from which on servers are added.
    pub drop_fraction: Share,
    /// Time over which the share is taken.
    pub window: Dur,
    /// Servers added in one step at most (Δ).
    pub step_max: u32,
    /// Time between two steps at least (δ).
    pub step_interval: Dur,
}

impl Default for ReactionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            ahead: true,
            drop_fraction: Share(0.01),
            window: seconds(5),
            step_max: 64,
            step_interval: seconds(1),
        }
    }
}

/// When servers are given back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleInConfig {
    /// A server is given back when it was not needed for this long; never shorter than twice the
    /// time a server takes to start.
    pub window: Dur,
    /// The servers that stay must be able to do this much more than was measured.
    pub headroom: Share,
}

impl Default for ScaleInConfig {
    fn default() -> Self {
        Self {
            window: seconds(120),
            headroom: Share(0.05),
        }
    }
}

/// How many proxies there are (003 §4.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxiesConfig {
    /// Fewest.
    pub min: u32,
    /// Most.
    pub max: u32,
    /// CPU use of a proxy above which another one is added.
    pub high_cpu: Share,
    /// For how long the use has to stay above.
    pub high_for: Dur,
    /// CPU use, shared by one proxy fewer, below which one is taken away.
    pub low_cpu: Share,
    /// For how long the use has to stay below.
    pub low_for: Dur,
    /// Whether proxies divide the servers among themselves or share them all.
    pub servers: ServerShare,
}

impl Default for ProxiesConfig {
    fn default() -> Self {
        Self {
            min: 1,
            max: 1,
            high_cpu: Share(0.8),
            high_for: seconds(30),
            low_cpu: Share(0.5),
            low_for: seconds(300),
            servers: ServerShare::Shared,
        }
    }
}

/// How several proxies use the servers of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerShare {
    /// Each has servers of its own (003 §4.2).
    Partitioned,
    /// Each uses all of them.
    Shared,
}

/// One application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationConfig {
    /// Its name, as in the proxies' configuration.
    pub name: String,
    /// Fewest servers.
    #[serde(default = "one")]
    pub min: u32,
    /// Most servers; without it as many as the pool has.
    pub max: Option<u32>,
    /// Mean response time that admitted requests are to have (`R` of 003, eq. 1).
    #[serde(default = "one_second")]
    pub target: Dur,
    /// Targets that the agreement allows at higher rates, lowest rate first (003, table 1).
    #[serde(default)]
    pub targets: Vec<BandConfig>,
    /// Share of requests that may take longer than the target while servers suffice.
    #[serde(default = "late_max")]
    pub late_max: Share,
    /// What a request that is answered in time earns, where there are no classes.
    #[serde(default = "worth_one")]
    pub revenue: f64,
    /// Classes of requests, most important first; the rates are measured.
    #[serde(default, rename = "class")]
    pub classes: Vec<ClassConfig>,
    /// What one server can do; without it, it is measured.
    pub capacity: Option<Rate>,
    /// How long a server takes to start, until that has been measured.
    #[serde(default = "start_time")]
    pub start_time: Dur,
    /// After this time a server that is not ready counts as failed; never shorter than three times
    /// what others took.
    #[serde(default = "start_limit")]
    pub start_limit: Dur,
}

/// A row of the table of targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BandConfig {
    /// Arrival rate from which on the target is allowed.
    pub above: Rate,
    /// The target.
    pub target: Dur,
    /// What a request answered within this target earns, as a share of its revenue.
    #[serde(default = "whole")]
    pub revenue_share: Share,
}

/// A class of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassConfig {
    /// Its name, as in the proxies' configuration.
    pub name: String,
    /// What a request that is answered in time earns.
    pub revenue: f64,
    /// Rate that it must always be able to have.
    #[serde(default)]
    pub guarantee: Rate,
}

const fn seconds(seconds: u64) -> Dur {
    Dur(Duration::from_secs(seconds))
}
const fn one() -> u32 {
    1
}
const fn worth_one() -> f64 {
    1.0
}
const fn one_second() -> Dur {
    seconds(1)
}
const fn start_time() -> Dur {
    seconds(30)
}
const fn start_limit() -> Dur {
    seconds(300)
}
const fn late_max() -> Share {
    Share(0.001)
}
const fn whole() -> Share {
    Share(1.0)
}

impl ApplicationConfig {
    /// An application with the defaults.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            min: one(),
            max: None,
            target: one_second(),
            targets: Vec::new(),
            late_max: late_max(),
            revenue: worth_one(),
            classes: Vec::new(),
            capacity: None,
            start_time: start_time(),
            start_limit: start_limit(),
        }
    }

    /// Most servers it may have in a pool of this size.
    #[must_use]
    pub fn servers_max(&self, pool: Option<u32>) -> u32 {
        self.max.unwrap_or(u32::MAX).min(pool.unwrap_or(u32::MAX))
    }

    /// Requests per second that are guaranteed, over all classes.
    #[must_use]
    pub fn guaranteed(&self) -> f64 {
        self.classes.iter().map(|class| class.guarantee.0).sum()
    }
}

/// Why a configuration cannot be used; the message says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlaneError(String);

impl PlaneConfig {
    /// Whether its parts go together.
    ///
    /// # Errors
    /// The first contradiction, with its remedy.
    pub fn check(&self) -> Result<(), PlaneError> {
        if self.applications.is_empty() {
            return Err(PlaneError(
                "no application: add a `[[plane.application]]` with a `name`".into(),
            ));
        }
        self.check_parts()
    }

    /// As [`PlaneConfig::check`], where applications may come later.
    ///
    /// # Errors
    /// The first contradiction, with its remedy.
    pub fn check_parts(&self) -> Result<(), PlaneError> {
        let refuse = |message: String| Err(PlaneError(message));
        if self.plan_interval.is_zero() {
            return refuse("`plan_interval` is zero: write a time, like \"10s\"".into());
        }
        if !(self.server_cost.is_finite() && self.server_cost >= 0.0) {
            return refuse("`server_cost` must be a number from 0 on".into());
        }
        self.check_prediction()?;
        self.check_proxies()?;
        let mut names = BTreeSet::new();
        for application in &self.applications {
            application.check()?;
            if !names.insert(&application.name) {
                return refuse(format!("application `{}` is there twice", application.name));
            }
        }
        self.check_pool()
    }

    fn check_pool(&self) -> Result<(), PlaneError> {
        let minima: u64 = self.applications.iter().map(|a| u64::from(a.min)).sum();
        match self.pool {
            Some(pool) if u64::from(pool) < minima => Err(PlaneError(format!(
                "`pool` has {pool} servers, and the applications' `min` add up to {minima}: raise \
                 `pool` or lower a `min`"
            ))),
            _ => Ok(()),
        }
    }

    fn check_prediction(&self) -> Result<(), PlaneError> {
        let prediction = &self.prediction;
        let buckets = prediction.season.as_secs_f64() / prediction.bucket.as_secs_f64();
        if !(2.0..=20_000.0).contains(&buckets) {
            return Err(PlaneError(
                "`prediction.season` must be 2 to 20000 times `prediction.bucket`".into(),
            ));
        }
        if !(0.0..=10.0).contains(&prediction.error_margin) {
            return Err(PlaneError(
                "`prediction.error_margin` must lie between 0 and 10".into(),
            ));
        }
        if self.reaction.step_max == 0 {
            return Err(PlaneError(
                "`reaction.step_max` is 0: to have no reaction write `reaction.enabled = false`"
                    .into(),
            ));
        }
        Ok(())
    }

    fn check_proxies(&self) -> Result<(), PlaneError> {
        let proxies = &self.proxies;
        if proxies.min == 0 || proxies.min > proxies.max {
            return Err(PlaneError(format!(
                "`proxies.min` = {} and `proxies.max` = {}: there is at least one proxy, and `max` \
                 is not below `min`",
                proxies.min, proxies.max
            )));
        }
        if proxies.low_cpu >= proxies.high_cpu {
            return Err(PlaneError(
                "`proxies.low_cpu` must be below `proxies.high_cpu`".into(),
            ));
        }
        Ok(())
    }
}

impl ApplicationConfig {
    fn check(&self) -> Result<(), PlaneError> {
        let name = &self.name;
        let refuse = |message: String| Err(PlaneError(format!("application `{name}`: {message}")));
        if name.is_empty() {
            return refuse("`name` is empty".into());
        }
        if self.max == Some(0) {
            return refuse("`max` = 0 allows no server: give 1 at least, or leave it out".into());
        }
        if let Some(max) = self.max
            && max < self.min
        {
            let min = self.min;
            return refuse(format!(
                "`max` = {max} is below `min` = {min}: raise `max` or lower `min`"
            ));
        }
        if self.target.is_zero() || self.targets.iter().any(|band| band.target.is_zero()) {
            return refuse("a target of zero cannot be met".into());
        }
        let rising = |pair: &[BandConfig]| {
            pair[0].above.0 < pair[1].above.0 && pair[0].target <= pair[1].target
        };
        if !self.targets.windows(2).all(rising) {
            return refuse("`targets` must rise, in `above` and in `target`".into());
        }
        let earns = |revenue: f64| revenue.is_finite() && revenue >= 0.0;
        if !earns(self.revenue) || !self.classes.iter().all(|class| earns(class.revenue)) {
            return refuse("`revenue` must be a number from 0 on".into());
        }
        if self.capacity.is_some_and(|capacity| capacity.0 <= 0.0) {
            return refuse("`capacity` must be above 0; leave it out to have it measured".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let config: PlaneConfig = tidegate_config::parse("plane.toml", text).expect("readable");
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn contradictions_are_refused_with_their_remedy() {
        assert!(refused("").contains("add a `[[plane.application]]`"));
        let pool = refused(
            "pool = 3\n[[application]]\nname = 'a'\nmin = 2\n[[application]]\nname = 'b'\nmin = 2",
        );
        assert!(pool.contains("add up to 4: raise `pool`"), "{pool}");
        assert!(refused("[[application]]\nname='a'\n[[application]]\nname='a'").contains("twice"));
        assert!(refused("[[application]]\nname='a'\nmin=3\nmax=2").contains("raise `max`"));
        assert!(refused("[[application]]\nname='a'\nmax=0").contains("allows no server"));
        assert!(refused("[proxies]\nmin = 2\n[[application]]\nname='a'").contains("`proxies.max`"));
        let bands = "[[application]]\nname='a'\ntargets=[{above='9/s',target='2s'},{above='3/s',target='3s'}]";
        assert!(refused(bands).contains("must rise"));
    }

    #[test]
    fn defaults_of_one_application_are_valid() {
        let config: PlaneConfig =
            tidegate_config::parse("plane.toml", "[[application]]\nname = 'shop'").expect("valid");
        config.check().expect("goes together");
        assert_eq!(config.applications[0], ApplicationConfig::named("shop"));
    }
}
