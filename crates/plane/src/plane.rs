//! The control plane: plans at intervals, reactions in between.
//!
//! ```text
//! on_observation ─► shed too much? ─► reaction: at most Δ servers, at least δ apart
//! handle_timeout ─► plan: needed now, predicted, needed lately ─► pool divided ─► decisions
//! ```
//!
//! A forecast only ever adds servers, or keeps them; servers are given back when for the whole
//! window of scaling in fewer would have been enough, with headroom. Servers that start count.
//! Where nothing is observed, nothing is decided.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::allocation::{Bid, Division, divide};
use crate::application::{Application, Assessment, Need, Saved};
use crate::config::{ApplicationConfig, PlaneConfig, PlaneError};
use crate::decision::{Cause, Decision, PlaneEvent, clock, servers};
use crate::demand::Observation;
use crate::forecast::{Method, Prediction};
use crate::model::SERVERS_MAX;
use crate::proxies::Proxies;

/// More stuck servers than this are not replaced: what starts them is broken.
const STUCK_REPLACED_MAX: u32 = 2;

/// The control plane of several applications. The driver
///
/// 1. passes what proxies saw to [`Plane::on_observation`], what servers there are to
///    [`Plane::on_servers`], CPU use of proxies to [`Plane::on_proxies`];
/// 2. calls [`Plane::handle_timeout`] at [`Plane::poll_timeout`];
/// 3. carries out the decisions among the events that these calls return, and confirms each with
///    [`Plane::on_applied`]. What is not confirmed was not done, and is decided again.
#[derive(Debug)]
pub struct Plane {
    config: PlaneConfig,
    applications: Vec<Application>,
    proxies: Proxies,
    division: Option<DivisionStatus>,
    next_plan: Timestamp,
    /// What is known of applications that are not configured now; they may come back.
    absent: BTreeMap<String, Saved>,
}

/// What the pool earns as it is divided, for people.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DivisionStatus {
    /// Servers that were divided.
    pub servers: u32,
    /// What they are expected to earn per second.
    pub revenue_per_second: f64,
    /// What no division earns more than; the same where the division is exact.
    pub bound_per_second: f64,
}

/// Everything that survives a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    version: u32,
    applications: BTreeMap<String, Saved>,
}

/// Version of the form of a snapshot.
const SNAPSHOT_VERSION: u32 = 1;

/// What is known about an application, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplicationStatus {
    /// Its name.
    pub name: String,
    /// Servers that are set.
    pub servers: u32,
    /// Servers that serve.
    pub ready: u32,
    /// Servers that start.
    pub starting: u32,
    /// Servers that do not get ready.
    pub stuck: u32,
    /// Servers that it should have by the last plan, a division of the pool aside.
    pub needed: Option<u32>,
    /// Servers for the present rate, by both models.
    pub need: Option<Need>,
    /// Servers for the predicted rate, by both models.
    pub need_predicted: Option<Need>,
    /// Target in force, in seconds.
    pub target_seconds: f64,
    /// Requests per second, those that were shed included.
    pub rate: Option<f64>,
    /// Requests per second of one server.
    pub capacity: Option<f64>,
    /// What is predicted, one start of a server ahead.
    pub predicted: Option<Prediction>,
    /// Mean relative error of each method of prediction.
    pub prediction_errors: Vec<(Method, f64)>,
    /// How long a server takes to start, in seconds.
    pub start_seconds: f64,
    /// A number of servers set from elsewhere is being respected.
    pub foreign: bool,
    /// Nothing was observed for too long.
    pub blind: bool,
    /// Why the number of servers is what it is.
    pub reason: String,
}

impl Plane {
    /// A plane that knows nothing, at `now`.
    ///
    /// # Errors
    /// What [`PlaneConfig::check_parts`] finds.
    pub fn new(config: PlaneConfig, now: Timestamp) -> Result<Self, PlaneError> {
        config.check_parts()?;
        let applications = config.applications.iter();
        Ok(Self {
            applications: applications
                .map(|app| Application::new(app, &config))
                .collect(),
            proxies: Proxies::default(),
            division: None,
            next_plan: now + config.plan_interval.0,
            absent: BTreeMap::new(),
            config,
        })
    }

    /// Takes over what a plane before knew. What it knew of applications that are not configured
    /// waits until they are.
    pub fn resume(&mut self, snapshot: Snapshot) {
        if snapshot.version != SNAPSHOT_VERSION {
            return;
        }
        let mut saved = snapshot.applications;
        for application in &mut self.applications {
            if let Some(saved) = saved.remove(&application.config.name) {
                application.resume(saved, &self.config);
            }
        }
        self.absent = saved;
    }

    /// What is worth keeping.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let saved = |app: &Application| (app.config.name.clone(), app.saved());
        let mut applications = self.absent.clone();
        applications.extend(self.applications.iter().map(saved));
        Snapshot {
            version: SNAPSHOT_VERSION,
            applications,
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &PlaneConfig {
        &self.config
    }

    /// Puts another configuration in force, whole or not at all. Applications that stay keep what
    /// is known about them.
    ///
    /// # Errors
    /// What [`PlaneConfig::check_parts`] finds; then the old configuration stays.
    pub fn reconfigure(&mut self, config: PlaneConfig) -> Result<(), PlaneError> {
        config.check_parts()?;
        let mut before = std::mem::take(&mut self.applications);
        for wanted in &config.applications {
            let known = before.iter().position(|app| app.config.name == wanted.name);
            let application = match known {
                Some(index) => before.swap_remove(index).reconfigured(wanted),
                None => self.returned(wanted, &config),
            };
            self.applications.push(application);
        }
        let left = before.iter();
        self.absent
            .extend(left.map(|app| (app.config.name.clone(), app.saved())));
        self.division = None;
        self.config = config;
        Ok(())
    }

    /// A new application, with what is known of an earlier one of its name.
    fn returned(&mut self, wanted: &ApplicationConfig, config: &PlaneConfig) -> Application {
        let mut application = Application::new(wanted, config);
        if let Some(saved) = self.absent.remove(&wanted.name) {
            application.resume(saved, config);
        }
        application
    }

    fn index(&self, application: &str) -> Option<usize> {
        let same = |app: &Application| app.config.name == application;
        self.applications.iter().position(same)
    }

    /// What the proxies saw of an application in the interval that ends now. Nothing is assumed
    /// about intervals that are not reported.
    pub fn on_observation(
        &mut self,
        now: Timestamp,
        application: &str,
        seen: &Observation,
    ) -> Vec<PlaneEvent> {
        let Some(index) = self.index(application) else {
            return Vec::new();
        };
        if !self.applications[index].on_observation(now, seen) {
            return Vec::new();
        }
        self.applications[index].blind = false;
        self.react(now, index)
    }

    /// The servers that there are: `desired` is the number that is set, `ready` serve.
    pub fn on_servers(
        &mut self,
        now: Timestamp,
        application: &str,
        desired: u32,
        ready: u32,
    ) -> Option<PlaneEvent> {
        let index = self.index(application)?;
        let change = self.applications[index]
            .servers
            .on_seen(now, desired, ready)?;
        Some(PlaneEvent::Foreign {
            at: now,
            application: application.to_owned(),
            ordered: change.ordered,
            found: change.found,
            respected_seconds: self.config.foreign_hold.as_secs_f64(),
        })
    }

    /// The servers that there are, where another plane or an autoscaler decides: changes are
    /// expected, and followed.
    pub fn on_followed(&mut self, now: Timestamp, application: &str, desired: u32, ready: u32) {
        if let Some(index) = self.index(application) {
            self.applications[index]
                .servers
                .on_followed(now, desired, ready);
        }
    }

    /// A decision was carried out.
    pub fn on_applied(&mut self, now: Timestamp, decision: &Decision) {
        if let Some(index) = self.index(&decision.application) {
            self.applications[index].on_applied(now, decision);
        }
    }

    /// CPU use of each proxy, 0 to 1; NaN where it is not known.
    pub fn on_proxies(&mut self, now: Timestamp, cpu: &[f64]) -> Option<PlaneEvent> {
        let step = self.proxies.on_cpu(now, cpu, &self.config.proxies)?;
        Some(PlaneEvent::Proxies {
            at: now,
            from: cpu.len() as u32,
            to: step.proxies,
            reason: step.reason,
        })
    }

    /// When [`Plane::handle_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Timestamp {
        self.next_plan
    }

    /// Plans if it is time to.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Vec<PlaneEvent> {
        if now < self.next_plan {
            return Vec::new();
        }
        while self.next_plan <= now {
            self.next_plan += self.config.plan_interval.0;
        }
        self.plan(now)
    }

    fn plan(&mut self, now: Timestamp) -> Vec<PlaneEvent> {
        let mut events = Vec::new();
        let mut plans = Vec::new();
        for index in 0..self.applications.len() {
            events.extend(self.watch(now, index));
            plans.push(self.wanted(now, index));
        }
        let decisions = match self.config.pool {
            Some(pool) => self.divided(now, pool, &plans),
            None => self.undivided(now, &plans),
        };
        events.extend(decisions.into_iter().map(PlaneEvent::Decision));
        events
    }

    /// Notices what is wrong with an application, once.
    fn watch(&mut self, now: Timestamp, index: usize) -> Vec<PlaneEvent> {
        let blind = self.applications[index].is_blind(now, &self.config);
        let application = &mut self.applications[index];
        let name = application.config.name.clone();
        let mut events = Vec::new();
        if blind && !std::mem::replace(&mut application.blind, blind) {
            application.reason = format!(
                "no observation: {} kept",
                servers(application.servers.desired())
            );
            events.push(PlaneEvent::Blind {
                at: now,
                application: name.clone(),
            });
        }
        let stuck = application.servers.stuck(now, &application.config);
        if stuck > std::mem::replace(&mut application.stuck, stuck) {
            events.push(PlaneEvent::Stuck {
                at: now,
                application: name,
                servers: stuck,
            });
        }
        events
    }

    /// What an application wants from now on, and on what grounds; nothing while that is not known.
    fn wanted(&mut self, now: Timestamp, index: usize) -> Option<Plan> {
        let config = &self.config;
        let application = &mut self.applications[index];
        if application.blind || !application.servers.is_known() {
            return None;
        }
        let known = application.assess(now, config)?;
        let current = application.servers.desired();
        let min = application.config.min;
        let max = application.config.servers_max(config.pool);
        let stuck = application.servers.stuck(now, &application.config);
        let replaced = stuck.min(STUCK_REPLACED_MAX);
        let needed = known.wanted().max(min).saturating_add(replaced).min(max);
        let keep = known.lately.unwrap_or(SERVERS_MAX).max(min).min(max);
        let (wanted, cause) = if current < min || current > max {
            (needed.clamp(min, max), Cause::Bounds)
        } else if needed > current {
            (needed, cause_of(&known))
        } else if keep.saturating_add(replaced) < current {
            (keep.saturating_add(replaced).max(needed), Cause::ScaleIn)
        } else {
            (current, cause_of(&known))
        };
        application.needed = Some(wanted);
        if let Some(change) = application.servers.foreign(now, config.foreign_hold.0) {
            let left = config.foreign_hold.0.saturating_sub(now - change.at);
            let found = servers(change.found);
            application.reason = format!("{found} set from elsewhere, kept for {left:.0?}");
            return None;
        }
        Some(Plan {
            known,
            wanted,
            cause,
        })
    }

    /// Every application gets what it wants.
    fn undivided(&mut self, now: Timestamp, plans: &[Option<Plan>]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let (_, option) = self.applications[index]
                .bid(now, &plan.known, plan.wanted, SERVERS_MAX)
                .earns(plan.wanted);
            decisions.extend(self.decide(now, index, plan, plan.wanted, option));
        }
        decisions
    }

    /// The pool is divided by what servers earn. Applications about which nothing is known keep
    /// theirs.
    fn divided(&mut self, now: Timestamp, pool: u32, plans: &[Option<Plan>]) -> Vec<Decision> {
        let kept: u32 = (0..plans.len())
            .filter(|&index| plans[index].is_none())
            .map(|index| self.applications[index].servers.desired())
            .sum();
        let pool = pool.saturating_sub(kept);
        let planned: Vec<(usize, &Plan)> = plans
            .iter()
            .enumerate()
            .filter_map(|(index, plan)| Some((index, plan.as_ref()?)))
            .collect();
        let bids: Vec<Bid> = planned
            .iter()
            .map(|(index, plan)| self.applications[*index].bid(now, &plan.known, plan.wanted, pool))
            .collect();
        let wanted: u64 = planned.iter().map(|(_, plan)| u64::from(plan.wanted)).sum();
        let cost = self.config.server_cost / 3600.0;
        let division = divide(pool, &bids, cost);
        self.division = Some(DivisionStatus::new(pool, &division));
        let mut decisions = Vec::new();
        for (at, (index, plan)) in planned.into_iter().enumerate() {
            // Enough for all: what is wanted, whatever it earns, unless servers cost something.
            let to = if wanted <= u64::from(pool) && cost == 0.0 {
                plan.wanted
            } else {
                division.servers[at]
            };
            let (_, option) = bids[at].earns(to);
            decisions.extend(self.decide(now, index, plan, to, option));
        }
        // What is given back comes first: others may need it.
        decisions.sort_by_key(|decision| decision.to > decision.from);
        decisions
    }

    fn decide(
        &mut self,
        now: Timestamp,
        index: usize,
        plan: &Plan,
        to: u32,
        option: usize,
    ) -> Option<Decision> {
        let config = self.config.clone();
        let application = &mut self.applications[index];
        let from = application.servers.desired();
        let target = target_of(application, option);
        let cause = match (to == plan.wanted, to == from) {
            (true, false) => plan.cause,
            (true, true) => Cause::Target,
            (false, _) => Cause::Pool,
        };
        let grounds = plan.grounds(cause, &config, to);
        application.reason = format!("{}: {grounds}", servers(from));
        if to == from && target == application.target {
            return None;
        }
        let mut reason = if to == from {
            format!("{}: {grounds}", servers(to))
        } else {
            format!("{from} → {}: {grounds}", servers(to))
        };
        if target != application.target {
            let (before, after) = (application.target.as_secs_f64(), target.as_secs_f64());
            reason += &format!("; target {before} → {after} s, which earns more");
        }
        application.reason.clone_from(&reason);
        Some(Decision {
            at: now,
            application: application.config.name.clone(),
            cause,
            from,
            to,
            target,
            reason,
        })
    }

    /// Servers at once, when more than a fraction is shed (003 §4.1).
    fn react(&mut self, now: Timestamp, index: usize) -> Vec<PlaneEvent> {
        let Some(short) = self.shortage(now, index) else {
            return Vec::new();
        };
        let mut decisions = self.taken_from_others(now, index, short.missing);
        let free = self.free(&decisions);
        let application = &mut self.applications[index];
        let from = application.servers.desired();
        let to = from + short.missing.min(free);
        if to == from {
            return Vec::new();
        }
        application.last_reaction = Some(now);
        let reason = format!(
            "{from} → {}: {}, {} needed, at most {} a step",
            servers(to),
            short.seen,
            short.needed,
            self.config.reaction.step_max,
        );
        application.reason.clone_from(&reason);
        decisions.push(Decision {
            at: now,
            application: application.config.name.clone(),
            cause: short.cause,
            from,
            to,
            target: application.target,
            reason,
        });
        decisions.into_iter().map(PlaneEvent::Decision).collect()
    }

    /// Whether an application sheds what servers would cure, and how many are missing.
    fn shortage(&mut self, now: Timestamp, index: usize) -> Option<Shortage> {
        let config = &self.config;
        let reaction = &config.reaction;
        let application = &self.applications[index];
        let window = reaction.window.0;
        let share = application.shed_share(now, window)?;
        let counted = application.servers.counted(now, &application.config);
        let beyond = application.beyond(counted).filter(|_| reaction.ahead);
        let shed = share > reaction.drop_fraction.0;
        let enough_seen = application.observed_seconds(now, window) >= 0.9 * window.as_secs_f64();
        let rested = |at: Timestamp| now - at >= reaction.step_interval.0;
        if !reaction.enabled
            || !application.servers.is_known()
            || !(shed || beyond.is_some())
            || !enough_seen
            || !application.last_reaction.is_none_or(rested)
            || application
                .servers
                .foreign(now, config.foreign_hold.0)
                .is_some()
        {
            return None;
        }
        let starting = application.servers.starting(now, &application.config);
        let need = application.need_in_surge(now)?;
        // Requests are shed although the model says that there are servers enough: it is wrong by
        // one at least. While servers start, and until the window has none of the time before they
        // were ready, that is still to be seen.
        let joined = application.servers.joined();
        let is_effect_seen = starting == 0 && joined.is_none_or(|at| now - at >= window);
        let corrected = if shed && is_effect_seen {
            counted + 1
        } else {
            counted
        };
        let needed = need.with_margin.max(corrected);
        let max = application.config.servers_max(config.pool);
        let room = max.saturating_sub(application.servers.desired());
        let missing = needed
            .saturating_sub(counted)
            .min(reaction.step_max)
            .min(room);
        let (cause, seen) = match beyond {
            Some(last) if !shed => {
                let counted = servers(counted);
                let seen = format!("{last:.0}/s in the last second, too much for {counted}");
                (Cause::Ahead, seen)
            }
            _ => {
                let (percent, rate) = (100.0 * share, need.rate);
                let window = window.as_secs_f64();
                let seen = format!("{percent:.0} % of {rate:.0}/s shed in {window:.0} s");
                (Cause::Shed, seen)
            }
        };
        (missing > 0).then_some(Shortage {
            cause,
            seen,
            needed,
            missing,
        })
    }

    /// Servers of the pool that no application has, once `decisions` are carried out.
    fn free(&self, decisions: &[Decision]) -> u32 {
        let Some(pool) = self.config.pool else {
            return SERVERS_MAX;
        };
        let used: u32 = self.applications.iter().map(|a| a.servers.desired()).sum();
        let given: u32 = decisions.iter().map(|d| d.from.saturating_sub(d.to)).sum();
        (pool + given).saturating_sub(used)
    }

    /// Under-used servers of others, where the free ones are not enough.
    fn taken_from_others(&mut self, now: Timestamp, index: usize, missing: u32) -> Vec<Decision> {
        let mut short = missing.saturating_sub(self.free(&[]));
        let mut decisions = Vec::new();
        for other in (0..self.applications.len()).filter(|&other| other != index) {
            let spare = self.spare(now, other).min(short);
            if spare == 0 {
                continue;
            }
            short -= spare;
            let taker = self.applications[index].config.name.clone();
            let application = &mut self.applications[other];
            let from = application.servers.desired();
            let to = from - spare;
            let reason = format!(
                "{from} → {}: {to} are enough, and `{taker}` has too few",
                servers(to)
            );
            application.reason.clone_from(&reason);
            decisions.push(Decision {
                at: now,
                application: application.config.name.clone(),
                cause: Cause::Pool,
                from,
                to,
                target: application.target,
                reason,
            });
        }
        decisions
    }

    /// Servers that an application could do without, by what it needs now.
    fn spare(&self, now: Timestamp, index: usize) -> u32 {
        let application = &self.applications[index];
        let held = application.servers.foreign(now, self.config.foreign_hold.0);
        if application.is_blind(now, &self.config) || held.is_some() {
            return 0;
        }
        let Some(need) = application.need_now(now) else {
            return 0;
        };
        let needed = need.with_margin.max(application.config.min);
        application.servers.desired().saturating_sub(needed)
    }

    /// What the pool earns by the last plan, where there is a pool.
    #[must_use]
    pub fn division(&self) -> Option<DivisionStatus> {
        self.division
    }

    /// The applications, for people.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Vec<ApplicationStatus> {
        let status = |app: &Application| ApplicationStatus {
            name: app.config.name.clone(),
            servers: app.servers.desired(),
            ready: app.servers.ready(),
            starting: app.servers.starting(now, &app.config),
            stuck: app.servers.stuck(now, &app.config),
            needed: app.needed,
            need: app.grounds.map(|(now, _)| now),
            need_predicted: app.grounds.and_then(|(_, predicted)| predicted),
            target_seconds: app.target.as_secs_f64(),
            rate: app.rate(now).map(|rate| rate.rate),
            capacity: app.capacity(),
            predicted: app.forecast.predict(now, app.horizon(&self.config)),
            prediction_errors: app.forecast.errors().collect(),
            start_seconds: app.servers.start().expected().as_secs_f64(),
            foreign: app
                .servers
                .foreign(now, self.config.foreign_hold.0)
                .is_some(),
            blind: app.blind || app.is_blind(now, &self.config),
            reason: app.reason.clone(),
        };
        self.applications.iter().map(status).collect()
    }
}

impl DivisionStatus {
    const fn new(servers: u32, division: &Division) -> Self {
        Self {
            servers,
            revenue_per_second: division.revenue,
            bound_per_second: division.bound,
        }
    }
}

/// An application that has too few servers.
struct Shortage {
    cause: Cause,
    /// What shows it, in words and numbers.
    seen: String,
    needed: u32,
    missing: u32,
}

fn target_of(application: &Application, option: usize) -> Duration {
    match option.checked_sub(1) {
        None => application.config.target.0,
        Some(band) => application
            .config
            .targets
            .get(band)
            .map_or(application.config.target.0, |band| band.target.0),
    }
}

/// What an application wants.
#[derive(Debug)]
struct Plan {
    known: Assessment,
    wanted: u32,
    cause: Cause,
}

/// Whether the present or the future asks for more.
fn cause_of(known: &Assessment) -> Cause {
    match known.predicted {
        Some((_, need)) if need.with_margin > known.now.with_margin => Cause::Predicted,
        _ => Cause::Measured,
    }
}

impl Plan {
    /// The numbers behind a cause.
    fn grounds(&self, cause: Cause, config: &PlaneConfig, to: u32) -> String {
        let present = needed("measured", &self.known.now);
        match (cause, &self.known.predicted) {
            (Cause::Predicted, Some((prediction, need))) => {
                let when = clock(prediction.at);
                let how = prediction.method.as_str();
                needed(&format!("predicted at {when} ({how})"), need)
            }
            (Cause::ScaleIn, _) => format!(
                "{} were enough for {:.0} s, {:.0} % headroom included; {present}",
                self.known.lately.unwrap_or(to),
                config.scale_in.window.as_secs_f64(),
                100.0 * config.scale_in.headroom.0,
            ),
            (Cause::Pool, _) => format!(
                "{} wanted ({present}), and servers earn more elsewhere or cost more than they earn",
                self.wanted
            ),
            (Cause::Bounds, _) => format!("the bounds of the configuration; {present}"),
            _ => present,
        }
    }
}

/// `310/s predicted at 14:05 ± 40, 3 needed, 1 for the error`.
fn needed(what: &str, need: &Need) -> String {
    let Need {
        rate,
        margin,
        servers,
        with_margin,
        ..
    } = need;
    let more = with_margin.saturating_sub(*servers);
    let error = match more {
        0 => String::new(),
        _ => format!(", {more} for the error"),
    };
    format!("{rate:.0}/s {what} ± {margin:.0}, {servers} needed{error}")
}
