//! One application: what it needs now, soon, and has needed lately.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::allocation::{Bid, ClassRate, TargetOption};
use crate::config::{ApplicationConfig, PlaneConfig};
use crate::decision::{Cause, Decision};
use crate::demand::{Demand, Estimate, Observation};
use crate::forecast::{Forecast, Prediction};
use crate::model::{Objective, Workload};
use crate::servers::{Servers, StartTime};

/// Time over which the present rate is taken. Chosen: at 30 requests/s its deviation is below a
/// twentieth of a server of 60/s.
pub(crate) const RATE_WINDOW: Duration = Duration::from_secs(10);
/// A step in the rate shows in this time already, where it is beyond chance.
const RATE_WINDOW_SHORT: Duration = Duration::from_secs(3);
/// Deviations by which a measured rate is raised before servers are counted.
const RATE_DEVIATIONS: f64 = 2.0;
/// Deviations beyond which the short window shows a step and not chance.
const STEP_DEVIATIONS: f64 = 4.0;
/// A climb of the rate is followed as far as a server takes to start, within these bounds. Chosen
/// on the trace `flash-crowd` (decision 0281).
const CLIMB_AHEAD_MIN: Duration = Duration::from_secs(5);
const CLIMB_AHEAD_MAX: Duration = Duration::from_secs(30);
/// A climb is not followed beyond this multiple of the rate. Chosen as above: a crowd of eight
/// times the rate.
const CLIMB_OF_RATE_MAX: f64 = 7.0;
/// Without an observation for this long, nothing is known; three plans at least.
const BLIND_AFTER: Duration = Duration::from_secs(30);
/// From this share shed on, what was served is what the servers can do.
const SATURATED_SHED: f64 = 0.05;
/// Servers that are ordered again within this time were given back too soon.
const AGAIN_WITHIN: Duration = Duration::from_secs(300);
/// Each time the window of scaling in doubles, up to this many times what is configured.
const WINDOW_TIMES_MAX: u32 = 8;
/// After this time without that it is as configured again.
const WINDOW_FORGETS: Duration = Duration::from_secs(3600);
/// Servers are kept when a prediction for this much later, in starts of a server, needs them.
const KEEP_STARTS_AHEAD: [u32; 3] = [1, 3, 6];

/// Needed servers with the numbers behind them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Need {
    /// Rate, requests per second.
    pub rate: f64,
    /// What was added for its uncertainty.
    pub margin: f64,
    /// Servers for the rate itself.
    pub servers: u32,
    /// Servers for the rate and its margin.
    pub with_margin: u32,
    /// The same by the bound of G/G/1 alone.
    pub by_bound: u32,
    /// The same by M/G/c alone.
    pub by_mgc: u32,
}

/// What is known about an application at an instant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assessment {
    pub(crate) now: Need,
    pub(crate) predicted: Option<(Prediction, Need)>,
    /// Most servers needed in the time that scaling in looks back to, headroom included.
    pub(crate) lately: Option<u32>,
    pub(crate) workload: Workload,
}

impl Assessment {
    /// Servers to have from now on.
    pub(crate) fn wanted(&self) -> u32 {
        let predicted = self.predicted.map_or(0, |(_, need)| need.with_margin);
        self.now.with_margin.max(predicted)
    }

    /// The rate that revenue is expected from.
    fn expected_rate(&self) -> f64 {
        let predicted = self
            .predicted
            .map_or(0.0, |(prediction, _)| prediction.rate);
        self.now.rate.max(predicted)
    }
}

/// What survives a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) forecast: Forecast,
    pub(crate) start: StartTime,
    pub(crate) capacity: Option<f64>,
    pub(crate) target_seconds: f64,
}

/// One application's state.
#[derive(Debug, Clone)]
pub(crate) struct Application {
    pub(crate) config: ApplicationConfig,
    pub(crate) servers: Servers,
    pub(crate) forecast: Forecast,
    demand: Demand,
    /// Capacity of a snapshot, until it is measured again.
    capacity_before: Option<f64>,
    /// Servers needed at each plan, headroom included.
    needs: VecDeque<(Timestamp, u32)>,
    pub(crate) last_reaction: Option<Timestamp>,
    /// When servers were given back last.
    given_back: Option<Timestamp>,
    /// When servers were ordered again too soon, and how many windows scaling in waits since.
    again: Option<(Timestamp, u32)>,
    pub(crate) target: Duration,
    pub(crate) blind: bool,
    pub(crate) stuck: u32,
    /// Servers that it should have, by the last plan.
    pub(crate) needed: Option<u32>,
    /// The numbers behind it: for the present rate, and for the predicted one.
    pub(crate) grounds: Option<(Need, Option<Need>)>,
    pub(crate) reason: String,
}

impl Application {
    pub(crate) fn new(config: &ApplicationConfig, plane: &PlaneConfig) -> Self {
        let keep = plane.scale_in.window.0.max(plane.reaction.window.0);
        Self {
            servers: Servers::new(config),
            forecast: Forecast::new(&plane.prediction),
            demand: Demand::new(keep.max(Duration::from_secs(60))),
            capacity_before: None,
            needs: VecDeque::new(),
            last_reaction: None,
            given_back: None,
            again: None,
            target: config.target.0,
            blind: false,
            stuck: 0,
            needed: None,
            grounds: None,
            reason: "nothing observed yet".to_owned(),
            config: config.clone(),
        }
    }

    /// With another configuration; what is known stays.
    pub(crate) fn reconfigured(mut self, config: &ApplicationConfig) -> Self {
        let was = self.config.target;
        let allowed = |target: Duration| config.targets.iter().any(|band| band.target.0 == target);
        if self.target == was.0 || !allowed(self.target) {
            self.target = config.target.0;
        }
        self.config = config.clone();
        self
    }

    pub(crate) fn saved(&self) -> Saved {
        Saved {
            forecast: self.forecast.clone(),
            start: self.servers.start(),
            capacity: self.demand.capacity().or(self.capacity_before),
            target_seconds: self.target.as_secs_f64(),
        }
    }

    pub(crate) fn resume(&mut self, saved: Saved, plane: &PlaneConfig) {
        if saved.forecast.fits(&plane.prediction) {
            self.forecast = saved.forecast;
        }
        self.servers.resume(saved.start);
        self.capacity_before = saved.capacity;
        let target = Duration::try_from_secs_f64(saved.target_seconds);
        self.target = target.unwrap_or(self.config.target.0);
    }

    pub(crate) fn on_observation(&mut self, now: Timestamp, seen: &Observation) -> bool {
        let mut seen = seen.clone();
        seen.capacity = seen.capacity.or_else(|| self.saturated_capacity(&seen));
        if !self.demand.on_observation(now, &seen) {
            return false;
        }
        self.forecast
            .on_requests(now, seen.seconds, seen.arrived + seen.deferred);
        true
    }

    /// While much is shed, what was served is what the servers can do.
    fn saturated_capacity(&self, seen: &Observation) -> Option<f64> {
        let ready = self.servers.ready();
        let saturated = seen.shed > SATURATED_SHED * seen.arrived && ready > 0;
        saturated.then(|| seen.served / seen.seconds / f64::from(ready))
    }

    /// A decision was carried out. Where what was given back is ordered again, the next time comes
    /// later: the load moves faster than the window.
    pub(crate) fn on_applied(&mut self, now: Timestamp, decision: &Decision) {
        self.servers.on_applied(now, decision.to);
        self.target = decision.target;
        if decision.cause == Cause::ScaleIn {
            self.given_back = Some(now);
        } else if decision.to > decision.from
            && self.given_back.is_some_and(|at| now - at < AGAIN_WITHIN)
        {
            let times = (2 * self.window_times(now)).min(WINDOW_TIMES_MAX);
            self.again = Some((now, times));
            self.given_back = None;
        }
    }

    /// For how many of the configured windows fewer servers have to be enough.
    fn window_times(&self, now: Timestamp) -> u32 {
        let again = self.again.filter(|(at, _)| now - *at < WINDOW_FORGETS);
        again.map_or(1, |(_, times)| times)
    }

    /// What the proxies measured; nothing while the last observation is too old.
    pub(crate) fn is_blind(&self, now: Timestamp, plane: &PlaneConfig) -> bool {
        let limit = BLIND_AFTER.max(3 * plane.plan_interval.0);
        self.demand.last_seen().is_none_or(|at| now - at > limit)
    }

    /// The present rate: over ten seconds, or over three where a step shows.
    pub(crate) fn rate(&self, now: Timestamp) -> Option<Estimate> {
        let long = self.demand.rate(now, RATE_WINDOW).or_else(|| {
            let at = self.demand.last_seen()?;
            self.demand.rate(at, RATE_WINDOW)
        })?;
        match self.demand.rate(now, RATE_WINDOW_SHORT) {
            Some(short) if short.rate > long.rate + STEP_DEVIATIONS * short.sd => Some(short),
            _ => Some(long),
        }
    }

    pub(crate) fn shed_share(&self, now: Timestamp, window: Duration) -> Option<f64> {
        self.demand.shed_share(now, window)
    }

    pub(crate) fn observed_seconds(&self, now: Timestamp, window: Duration) -> f64 {
        self.demand.observed_seconds(now, window)
    }

    /// Requests per second of one server: configured, measured, or by the service time of servers
    /// that do one request at a time, as 003 has them.
    pub(crate) fn capacity(&self) -> Option<f64> {
        let configured = self.config.capacity.map(|rate| rate.0);
        let by_service = || Some(1.0 / self.demand.service()?.mean);
        configured
            .or_else(|| self.demand.capacity())
            .or(self.capacity_before)
            .or_else(by_service)
    }

    fn workload(&self, rate: f64) -> Option<Workload> {
        let capacity = self.capacity()?;
        Some(Workload {
            rate,
            arrivals_scv: self.demand.arrivals_scv(),
            capacity,
            service_seconds: self
                .demand
                .service()
                .map_or(1.0 / capacity, |times| times.mean),
            service_scv: self.demand.service_scv(),
        })
    }

    fn objective(&self) -> Objective {
        Objective {
            target_seconds: self.config.target.as_secs_f64(),
            late_max: self.config.late_max.0,
        }
    }

    fn need(&self, rate: f64, margin: f64) -> Option<Need> {
        let objective = self.objective();
        let guaranteed = self.config.guaranteed();
        let with_margin = self
            .workload((rate + margin).max(guaranteed))?
            .needed(&objective);
        Some(Need {
            rate,
            margin,
            servers: self.workload(rate)?.needed(&objective).servers,
            with_margin: with_margin.servers,
            by_bound: with_margin.by_bound,
            by_mgc: with_margin.by_mgc,
        })
    }

    /// Servers needed for the present rate.
    pub(crate) fn need_now(&self, now: Timestamp) -> Option<Need> {
        let rate = self.rate(now)?;
        self.need(rate.rate, RATE_DEVIATIONS * rate.sd)
    }

    /// Servers needed while requests are shed: by the last interval, and where the rate climbs, for
    /// where it climbs to.
    pub(crate) fn need_in_surge(&self, now: Timestamp) -> Option<Need> {
        let rate = self.rate(now)?;
        let margin = RATE_DEVIATIONS * rate.sd;
        let reached = self.surge().unwrap_or(rate.rate).max(rate.rate);
        self.need(rate.rate, margin + reached - rate.rate)
    }

    /// The rate of the last interval, where it is more than this many servers can do, beyond
    /// chance.
    pub(crate) fn beyond(&self, servers: u32) -> Option<f64> {
        let [.., last] = self.demand.last_rates()?;
        let capacity = self.capacity()? * f64::from(servers);
        let beyond = last > capacity + STEP_DEVIATIONS * last.max(1.0).sqrt();
        beyond.then_some(last)
    }

    /// The rate that a climb reaches in a moment. A climb shows in each of the last two intervals;
    /// a step shows in one, and is over.
    fn surge(&self) -> Option<f64> {
        let [before, middle, last] = self.demand.last_rates()?;
        let chance = STEP_DEVIATIONS * last.max(1.0).sqrt();
        let climb = (last - middle).min(middle - before);
        let more = if climb > chance {
            let start = self.servers.start().expected();
            climb * start.clamp(CLIMB_AHEAD_MIN, CLIMB_AHEAD_MAX).as_secs_f64()
        } else {
            0.0
        };
        Some(last + more.min(CLIMB_OF_RATE_MAX * last))
    }

    /// How far ahead a prediction looks.
    pub(crate) fn horizon(&self, plane: &PlaneConfig) -> Duration {
        let start = self.servers.start().expected();
        plane
            .prediction
            .horizon
            .0
            .max(start + plane.plan_interval.0)
    }

    pub(crate) fn assess(&mut self, now: Timestamp, plane: &PlaneConfig) -> Option<Assessment> {
        self.grounds = None;
        let rate = self.rate(now)?;
        let present = self.need_now(now)?;
        let horizon = self.horizon(plane);
        self.forecast.set_horizon(horizon);
        let predicted = self.predicted(now, horizon, plane);
        self.grounds = Some((present, predicted.map(|(_, need)| need)));
        let headroom = rate.rate * plane.scale_in.headroom.0;
        let kept = self.need(rate.rate, RATE_DEVIATIONS * rate.sd + headroom)?;
        let coming = predicted.map_or(0, |(_, need)| need.with_margin);
        self.needs.push_back((
            now,
            kept.with_margin
                .max(coming)
                .max(self.coming(now, horizon, plane)),
        ));
        Some(Assessment {
            now: present,
            predicted,
            lately: self.lately(now, plane),
            workload: self.workload(rate.rate)?,
        })
    }

    fn predicted(
        &self,
        now: Timestamp,
        ahead: Duration,
        plane: &PlaneConfig,
    ) -> Option<(Prediction, Need)> {
        if !plane.prediction.enabled {
            return None;
        }
        let prediction = self.forecast.predict(now, ahead)?;
        let margin = plane.prediction.error_margin * prediction.error;
        Some((prediction, self.need(prediction.rate, margin)?))
    }

    /// Servers that predictions further ahead need: not enough to start them, enough to keep them.
    fn coming(&self, now: Timestamp, horizon: Duration, plane: &PlaneConfig) -> u32 {
        let ahead = KEEP_STARTS_AHEAD.iter().map(|&starts| starts * horizon);
        let needs = ahead.filter_map(|ahead| self.predicted(now, ahead, plane));
        needs.map(|(_, need)| need.servers).max().unwrap_or(0)
    }

    /// Most servers needed in the window of scaling in; nothing while that was not observed whole.
    fn lately(&mut self, now: Timestamp, plane: &PlaneConfig) -> Option<u32> {
        let twice_start = 2 * self.servers.start().expected();
        let window = self.window_times(now) * plane.scale_in.window.0;
        let window = window.max(twice_start);
        while self.needs.len() > 1 && now - self.needs[1].0 >= window {
            self.needs.pop_front();
        }
        let whole = self
            .needs
            .front()
            .is_some_and(|first| now - first.0 >= window);
        let most = self.needs.iter().map(|(_, need)| *need).max();
        most.filter(|_| whole)
    }

    /// What it would do with servers.
    pub(crate) fn bid(&self, now: Timestamp, known: &Assessment, wanted: u32, pool: u32) -> Bid {
        let rate = known.expected_rate();
        let max = self.config.servers_max(Some(pool));
        let min = self.config.min.min(max);
        let guaranteed = Workload {
            rate: self.config.guaranteed(),
            ..known.workload
        };
        let guaranteed = guaranteed.needed(&self.objective()).servers;
        let max = wanted.clamp(min, max);
        Bid {
            current: self.servers.desired(),
            min,
            max,
            guaranteed: guaranteed.clamp(min, max),
            options: self.options(rate, &known.workload),
            classes: self.class_rates(now, rate),
        }
    }

    /// What each class brings of a rate, and what it earns. Requests of a class that is not
    /// configured earn what those of the application do.
    fn class_rates(&self, now: Timestamp, rate: f64) -> Vec<ClassRate> {
        let shares = self.demand.class_shares(now, RATE_WINDOW);
        if shares.is_empty() {
            let guarantee = self.config.guaranteed();
            let revenue = self.config.revenue;
            return vec![ClassRate {
                rate,
                revenue,
                guarantee,
            }];
        }
        let class_rate = |(name, share): (&String, &f64)| {
            let class = self.config.classes.iter().find(|it| it.name == *name);
            ClassRate {
                rate: rate * share,
                revenue: class.map_or(self.config.revenue, |class| class.revenue),
                guarantee: class.map_or(0.0, |class| class.guarantee.0),
            }
        };
        shares.iter().map(class_rate).collect()
    }

    /// Targets that the agreement allows at this rate.
    fn options(&self, rate: f64, workload: &Workload) -> Vec<TargetOption> {
        let option = |target: Duration, revenue_share: f64| TargetOption {
            seconds: target.as_secs_f64(),
            per_server: workload.rate_per_server(&Objective {
                target_seconds: target.as_secs_f64(),
                late_max: self.config.late_max.0,
            }),
            revenue_share,
        };
        let allowed = self
            .config
            .targets
            .iter()
            .filter(|band| rate >= band.above.0);
        std::iter::once(option(self.config.target.0, 1.0))
            .chain(allowed.map(|band| option(band.target.0, band.revenue_share.0)))
            .collect()
    }
}
