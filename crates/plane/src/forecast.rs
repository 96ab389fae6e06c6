//! Prediction of the arrival rate: five plain methods, and which of them has been right lately.
//!
//! - *steady*: as it is now;
//! - *trend*: along the slope of the last minutes (median of the slopes of all pairs, after Theil
//!   and Sen), for a surge that grows;
//! - *season*: as much more or less than now as one season (a day) ago;
//! - *long season*: the same, seven seasons (a week) ago;
//! - *hour*: the same, one hour ago, by minutes: work that is scheduled at the full hour.
//!
//! Each predicts the rate one horizon ahead at every step, is compared with what came, and the one
//! with the smallest error is believed. The error is relative, remembered with a time constant of
//! ten horizons or ten minutes, and is the uncertainty of the answer. A peak of a minute makes
//! little error in an hour: the hour is believed as well where it sees a clear peak and errs
//! little more than the best. A season's profile is learned in buckets and interpolated between
//! their middles. Seasons are counted from the driver's epoch; with Unix time a day begins at
//! midnight UTC.
//!
//! What breaks it: holidays, and whatever else comes for the first time. Then the reaction is left.
//!
//! Decision: docs/decisions/0095-prediction-by-plain-methods.md.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::Timestamp;

use crate::config::PredictionConfig;

/// How a rate was predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// As it is now.
    Steady,
    /// Along a line through the last minutes.
    Trend,
    /// As a season ago.
    Season,
    /// As seven seasons ago.
    LongSeason,
    /// As an hour ago.
    Hour,
}

impl Method {
    // New ones come last: saved errors are in this order.
    const ALL: [Self; 5] = [
        Self::Steady,
        Self::Trend,
        Self::Season,
        Self::LongSeason,
        Self::Hour,
    ];

    /// The word in reasons.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Trend => "trend",
            Self::Season => "season",
            Self::LongSeason => "long season",
            Self::Hour => "hour",
        }
    }
}

/// A predicted rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// For when.
    pub at: Timestamp,
    /// Requests per second.
    pub rate: f64,
    /// Standard deviation, from the errors of the method so far.
    pub error: f64,
    /// How.
    pub method: Method,
}

/// Time between two steps of a forecast. Chosen: long against the noise of arrivals at a few
/// requests per second, short against the start of a server.
pub const STEP: Duration = Duration::from_secs(10);
/// Steps that the trend is fitted to.
const TREND_STEPS: usize = 18;
/// Fewest steps for a trend.
const TREND_STEPS_MIN: usize = 12;
/// Steps that have to show the trend on their own.
const TREND_STEPS_LAST: usize = 6;
/// A trend is not followed beyond this multiple of the present rate.
const TREND_GROWTH_MAX: f64 = 3.0;
/// Time that errors are remembered, at least.
const ERROR_MEMORY_MIN_SECONDS: f64 = 600.0;
/// Error of a method that has not been tried.
const ERROR_UNTRIED: f64 = 0.5;
/// Error that every method begins with. Chosen: about that of a quiet hour.
const ERROR_FIRST: f64 = 0.05;
/// One prediction is never more wrong than this: a surge is one surprise, not a lasting error.
const ERROR_MAX: f64 = 1.0;
/// Mean absolute deviation to standard deviation, for a normal distribution.
const SD_OF_MEAN_ABSOLUTE: f64 = 1.253;
/// Weight of a new season in the profile.
const SEASON_WEIGHT: f64 = 0.4;
/// What seasons say about the level is scaled by the present at most this much.
const LEVEL_RATIO: (f64, f64) = (0.25, 4.0);
/// Seasons in a long season.
const LONG: usize = 7;
/// The profile of an hour: minutes.
const HOUR_BUCKETS: usize = 60;
const HOUR_BUCKET_SECONDS: f64 = 60.0;
/// The hour is believed with an error up to this multiple of the best one's, and this much more.
const HOUR_ERROR_MAX: (f64, f64) = (1.5, 0.02);
/// Its peak has to exceed the best prediction by this many deviations of both.
const HOUR_PEAK_DEVIATIONS: f64 = 3.0;
/// Rates of the methods at a time, in the order of [`Method::ALL`], where they have one.
type Rates = Vec<Option<f64>>;

/// Predicts one application's arrivals. Everything that it knows survives as a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    bucket_seconds: f64,
    season: Profile,
    long_season: Profile,
    #[serde(default = "Profile::of_hour")]
    hour: Profile,
    /// Rates of the last steps, newest last; the time is that of the step's end, in seconds.
    recent: VecDeque<(f64, f64)>,
    /// The step under way: when it began, seconds observed, requests.
    step: Option<(f64, f64, f64)>,
    horizon_seconds: f64,
    /// Predictions that are not due yet: when they are, and each method's rate.
    open: VecDeque<(f64, Rates)>,
    /// Mean relative error of each method; nothing before its first prediction came due.
    errors: Vec<Option<f64>>,
}

/// What was learned of a season, bucket by bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Profile {
    rates: Vec<Option<f64>>,
    /// The bucket under way: its index, seconds, requests.
    current: Option<(usize, f64, f64)>,
}

impl Profile {
    fn new(buckets: usize) -> Self {
        Self {
            rates: vec![None; buckets],
            current: None,
        }
    }

    fn of_hour() -> Self {
        Self::new(HOUR_BUCKETS)
    }

    fn add(&mut self, bucket: usize, seconds: f64, requests: f64) {
        let bucket = bucket % self.rates.len();
        match &mut self.current {
            Some((at, spent, count)) if *at == bucket => {
                *spent += seconds;
                *count += requests;
            }
            _ => {
                self.close();
                self.current = Some((bucket, seconds, requests));
            }
        }
    }

    fn close(&mut self) {
        if let Some((at, seconds, requests)) = self.current.take() {
            let rate = requests / seconds;
            let known = self.rates[at].unwrap_or(rate);
            self.rates[at] = Some(known + SEASON_WEIGHT * (rate - known));
        }
    }

    /// The rate at a position counted in buckets, between the middles of its neighbours.
    fn at(&self, position: f64) -> Option<f64> {
        let left = (position - 0.5).floor();
        let part = position - 0.5 - left;
        let rate = |index: f64| {
            let index = index.rem_euclid(self.rates.len() as f64) as usize;
            self.rates[index]
        };
        Some(rate(left)? * (1.0 - part) + rate(left + 1.0)? * part)
    }
}

impl Forecast {
    /// A forecast that knows nothing.
    #[must_use]
    pub fn new(config: &PredictionConfig) -> Self {
        let bucket_seconds = config.bucket.as_secs_f64();
        let buckets = (config.season.as_secs_f64() / bucket_seconds).round() as usize;
        Self {
            bucket_seconds,
            season: Profile::new(buckets.max(2)),
            long_season: Profile::new(LONG * buckets.max(2)),
            hour: Profile::of_hour(),
            recent: VecDeque::new(),
            step: None,
            horizon_seconds: config.horizon.as_secs_f64(),
            open: VecDeque::new(),
            errors: vec![None; Method::ALL.len()],
        }
    }

    /// Whether it was made for these seasons: a snapshot of others is of no use.
    #[must_use]
    pub fn fits(&self, config: &PredictionConfig) -> bool {
        let fresh = Self::new(config);
        self.bucket_seconds == fresh.bucket_seconds
            && self.season.rates.len() == fresh.season.rates.len()
    }

    /// How far ahead errors are tracked from now on. Errors at another horizon are kept until the
    /// first at the new one comes due.
    pub fn set_horizon(&mut self, horizon: Duration) {
        self.horizon_seconds = horizon.as_secs_f64();
    }

    /// The relative error of each method that has been tried.
    pub fn errors(&self) -> impl Iterator<Item = (Method, f64)> {
        let tried = Method::ALL.into_iter().zip(&self.errors);
        tried.filter_map(|(method, error)| Some((method, (*error)?)))
    }

    /// An observation of `requests` in the `seconds` before `now`.
    pub fn on_requests(&mut self, now: Timestamp, seconds: f64, requests: f64) {
        let end = now.as_secs_f64();
        let (began, spent, count) = self.step.unwrap_or((end - seconds, 0.0, 0.0));
        if end - began < STEP.as_secs_f64() - 1e-6 {
            self.step = Some((began, spent + seconds, count + requests));
            return;
        }
        self.step = None;
        self.close_step(end, spent + seconds, count + requests);
    }

    fn close_step(&mut self, end: f64, seconds: f64, requests: f64) {
        let rate = requests / seconds;
        let middle = (end - seconds / 2.0).max(0.0);
        let bucket = (middle / self.bucket_seconds).floor() as usize;
        let minute = (middle / HOUR_BUCKET_SECONDS).floor() as usize;
        self.judge(end, rate);
        self.season.add(bucket, seconds, requests);
        self.long_season.add(bucket, seconds, requests);
        self.hour.add(minute, seconds, requests);
        self.recent.push_back((end, rate));
        if self.recent.len() > TREND_STEPS {
            self.recent.pop_front();
        }
        let due = end + self.horizon_seconds;
        self.open.push_back((due, self.rates(due)));
    }

    /// Compares what was predicted for now with what came.
    fn judge(&mut self, now: f64, rate: f64) {
        let memory = ERROR_MEMORY_MIN_SECONDS.max(10.0 * self.horizon_seconds);
        let weight = (STEP.as_secs_f64() / memory).min(1.0);
        // A state of an earlier version knows fewer methods.
        self.errors.resize(Method::ALL.len(), None);
        while self.open.front().is_some_and(|(due, _)| *due <= now) {
            let Some((due, predicted)) = self.open.pop_front() else {
                return;
            };
            if now - due > 2.0 * STEP.as_secs_f64() {
                continue; // a gap in the observations
            }
            for (error, predicted) in self.errors.iter_mut().zip(predicted) {
                if let Some(predicted) = predicted {
                    let missed = ((predicted - rate).abs() / rate.max(1.0)).min(ERROR_MAX);
                    let known = error.unwrap_or(ERROR_FIRST);
                    *error = Some(known + weight * (missed - known));
                }
            }
        }
    }

    /// The rate of the last three steps: less noise than that of one.
    fn level(&self) -> Option<f64> {
        let last = self.recent.iter().rev().take(3);
        let (sum, count) = last.fold((0.0, 0.0), |(sum, count), (_, rate)| {
            (sum + rate, count + 1.0)
        });
        (count > 0.0).then(|| sum / count)
    }

    /// Each method's rate at a time, where it has one.
    fn rates(&self, at: f64) -> Rates {
        let Some(level) = self.level() else {
            return Vec::new();
        };
        vec![
            Some(level),
            self.trend(at),
            self.seasonal(&self.season, self.bucket_seconds, level, at),
            self.seasonal(&self.long_season, self.bucket_seconds, level, at),
            self.seasonal(&self.hour, HOUR_BUCKET_SECONDS, level, at),
        ]
    }

    /// The level, continued along the slope. After a step in the rate the slope of the last steps
    /// and that of all of them are never steep together, in a surge they are.
    fn trend(&self, at: f64) -> Option<f64> {
        if self.recent.len() < TREND_STEPS_MIN {
            return None;
        }
        let steps: Vec<(f64, f64)> = self.recent.iter().copied().collect();
        let all = median_slope(&steps);
        let last = median_slope(&steps[steps.len() - TREND_STEPS_LAST..]);
        let slope = if all * last > 0.0 {
            all.abs().min(last.abs()).copysign(all)
        } else {
            0.0
        };
        let level = self.level()?;
        let from = steps[steps.len() - 1].0 - 1.5 * STEP.as_secs_f64();
        Some((level + slope * (at - from)).clamp(0.0, TREND_GROWTH_MAX * level))
    }

    /// The season's rate at that time, scaled as the present is to the season's rate now.
    fn seasonal(&self, profile: &Profile, bucket: f64, level: f64, at: f64) -> Option<f64> {
        let &(now, _) = self.recent.back()?;
        let then = profile.at(at / bucket)?;
        let usual = profile.at((now - STEP.as_secs_f64()) / bucket)?;
        let ratio = (level + 1.0) / (usual + 1.0);
        Some(then * ratio.clamp(LEVEL_RATIO.0, LEVEL_RATIO.1))
    }

    /// The rate at `now + ahead` by the method that errs least; nothing before the first step.
    #[must_use]
    pub fn predict(&self, now: Timestamp, ahead: Duration) -> Option<Prediction> {
        let at = now + ahead;
        let rates = self.rates(at.as_secs_f64());
        let known = |index: usize| self.errors.get(index).copied().flatten();
        let error = |index: usize| known(index).unwrap_or(ERROR_UNTRIED);
        let prediction = |index: usize| {
            let rate = rates.get(index).copied().flatten()?;
            Some(Prediction {
                at,
                rate,
                error: known(index).unwrap_or(0.0) * SD_OF_MEAN_ABSOLUTE * rate,
                method: Method::ALL[index],
            })
        };
        let hour = Method::ALL.len() - 1;
        let tried = (0..hour).filter_map(|index| Some((index, prediction(index)?)));
        let (best, usual) = tried.min_by(|&(a, _), &(b, _)| error(a).total_cmp(&error(b)))?;
        let (ratio, more) = HOUR_ERROR_MAX;
        let peak = prediction(hour).filter(|peak| {
            let clear = HOUR_PEAK_DEVIATIONS * (peak.error + usual.error);
            error(hour) <= ratio * error(best) + more && peak.rate > usual.rate + clear
        });
        Some(peak.unwrap_or(usual))
    }
}

/// Median of the slopes between all pairs of points (Theil 1950, Sen 1968).
fn median_slope(points: &[(f64, f64)]) -> f64 {
    let pairs = (0..points.len()).flat_map(|a| (a + 1..points.len()).map(move |b| (a, b)));
    let slope = |(a, b): (usize, usize)| (points[b].1 - points[a].1) / (points[b].0 - points[a].0);
    let mut slopes: Vec<f64> = pairs.map(slope).filter(|slope| slope.is_finite()).collect();
    let middle = slopes.len() / 2;
    if slopes.is_empty() {
        return 0.0;
    }
    *slopes.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::f64::consts::TAU;

    const HOUR: f64 = 3600.0;

    fn config() -> PredictionConfig {
        PredictionConfig::default()
    }

    /// Feeds whole steps of `rate` from `from` to `to`, in seconds.
    fn feed(forecast: &mut Forecast, from: f64, to: f64, rate: impl Fn(f64) -> f64) {
        let mut now = from;
        while now < to {
            now += 10.0;
            forecast.on_requests(Timestamp::from_secs_f64(now), 10.0, 10.0 * rate(now));
        }
    }

    fn wave(t: f64) -> f64 {
        200.0 + 150.0 * (TAU * t / (24.0 * HOUR)).sin()
    }

    #[test]
    fn day_that_repeats_itself_is_predicted_an_hour_ahead() {
        let mut forecast = Forecast::new(&config());
        forecast.set_horizon(Duration::from_secs(3600));
        feed(&mut forecast, 0.0, 72.0 * HOUR, wave);
        let now = Timestamp::from_secs_f64(72.0 * HOUR);
        let predicted = forecast.predict(now, Duration::from_secs(3600)).unwrap();
        assert_eq!(predicted.method, Method::Season);
        let truth = wave(73.0 * HOUR);
        assert!(
            (predicted.rate - truth).abs() < 0.03 * truth,
            "{predicted:?} {truth}"
        );
        assert!(predicted.error < 0.1 * truth, "{predicted:?}");
    }

    #[test]
    fn surge_that_nobody_has_seen_is_predicted_by_its_trend() {
        let mut forecast = Forecast::new(&config());
        forecast.set_horizon(Duration::from_secs(120));
        feed(&mut forecast, 0.0, HOUR, |_| 100.0);
        let doubling = |t: f64| 100.0 * ((t - HOUR) / 420.0).exp2();
        feed(&mut forecast, HOUR, HOUR + 900.0, doubling);
        let now = Timestamp::from_secs_f64(HOUR + 900.0);
        let predicted = forecast.predict(now, Duration::from_secs(120)).unwrap();
        let truth = doubling(HOUR + 1020.0);
        assert_eq!(predicted.method, Method::Trend);
        assert!(predicted.rate > 0.9 * truth, "{predicted:?} {truth}");
    }

    #[test]
    fn work_of_every_full_hour_is_predicted_before_it_comes() {
        let mut forecast = Forecast::new(&config());
        forecast.set_horizon(Duration::from_secs(60));
        // A tenth of unrest, and four times as much in the first two minutes of an hour.
        let rate = |t: f64| {
            let full_hour = (t - 10.0).rem_euclid(HOUR) < 120.0;
            let unrest = 1.0 + 0.1 * (t / 97.0).sin();
            if full_hour { 400.0 } else { 100.0 * unrest }
        };
        feed(&mut forecast, 0.0, 6.0 * HOUR - 30.0, rate);
        let at = |t: f64| Timestamp::from_secs_f64(t);
        let ahead = Duration::from_secs(60);
        let peak = forecast.predict(at(6.0 * HOUR - 30.0), ahead).unwrap();
        assert_eq!(peak.method, Method::Hour, "{peak:?}");
        assert!(peak.rate > 300.0, "{peak:?}");
        feed(&mut forecast, 6.0 * HOUR - 30.0, 6.5 * HOUR, rate);
        let quiet = forecast.predict(at(6.5 * HOUR), ahead).unwrap();
        assert!(quiet.rate < 140.0, "{quiet:?}");
    }

    #[test]
    fn state_of_a_version_without_the_hour_is_taken_over() {
        let mut forecast = Forecast::new(&config());
        feed(&mut forecast, 0.0, 2.0 * HOUR, wave);
        let mut state = serde_json::to_value(&forecast).unwrap();
        let fields = state.as_object_mut().unwrap();
        fields.remove("hour");
        let shorten = |list: &mut serde_json::Value| list.as_array_mut().unwrap().truncate(4);
        shorten(&mut fields["errors"]);
        for open in fields["open"].as_array_mut().unwrap() {
            shorten(&mut open[1]);
        }
        let mut back: Forecast = serde_json::from_value(state).unwrap();
        assert!(back.fits(&config()));
        feed(&mut back, 2.0 * HOUR, 4.0 * HOUR, wave);
        assert_eq!(
            back.errors().count(),
            Method::ALL.len() - 2,
            "no season yet"
        );
    }

    #[test]
    fn snapshot_predicts_as_the_original_does() {
        let mut forecast = Forecast::new(&config());
        feed(&mut forecast, 0.0, 30.0 * HOUR, wave);
        let text = serde_json::to_string(&forecast).unwrap();
        let back: Forecast = serde_json::from_str(&text).unwrap();
        assert!(back.fits(&config()));
        let now = Timestamp::from_secs_f64(30.0 * HOUR);
        let ahead = Duration::from_secs(300);
        assert_eq!(back.predict(now, ahead), forecast.predict(now, ahead));
    }

    #[test]
    fn silence_is_predicted_as_silence_and_nothing_as_nothing() {
        let mut forecast = Forecast::new(&config());
        let now = Timestamp::from_secs_f64(600.0);
        assert_eq!(forecast.predict(now, STEP), None);
        feed(&mut forecast, 0.0, 600.0, |_| 0.0);
        assert_eq!(forecast.predict(now, STEP).unwrap().rate, 0.0);
    }

    proptest! {
        #[test]
        fn predictions_are_finite_and_bounded(
            rates in proptest::collection::vec(0.0..1e5f64, 1..200), ahead in 1..7200u64,
        ) {
            let mut forecast = Forecast::new(&config());
            let mut now = 0.0;
            for rate in &rates {
                now += 10.0;
                forecast.on_requests(Timestamp::from_secs_f64(now), 10.0, 10.0 * rate);
            }
            let most = rates.iter().copied().fold(0.0, f64::max);
            let predicted = forecast
                .predict(Timestamp::from_secs_f64(now), Duration::from_secs(ahead))
                .unwrap();
            prop_assert!(predicted.rate.is_finite() && predicted.error.is_finite());
            prop_assert!(predicted.rate >= 0.0 && predicted.rate <= 4.0 * most + 1e-6);
        }
    }
}
