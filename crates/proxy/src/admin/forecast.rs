//! What one replica more, another target or classes would change, forecast from the last minute.
//!
//! The simulator is not a part of the proxy: the program that starts it may bring a
//! [`Forecaster`]. It is called in the background, only while a status is asked for, for one
//! application at a time, and rests a hundred times as long as its forecast took.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_sentry::{ModeName, Status};

use super::Operator;
use super::recent::Rates;
use crate::state::Applications;
use crate::wall_clock::rfc3339;

/// Time between two forecasts of an application, at least.
const EVERY: Duration = Duration::from_secs(60);
/// Forecasts are made while a status was asked for within this time.
const WATCHED: Duration = Duration::from_secs(90);
/// How often it is looked whether one is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// It rests this many times as long as a forecast took: a hundredth of a core is the bound.
const REST_OF_WORK: u32 = 100;
/// Completions of the last minute below which nothing is known of the service.
const SERVED_MIN: f64 = 100.0;
/// Most replicas of which a forecast is made; more would take too long.
const REPLICAS_MAX: u32 = 100;
/// Refusals of this share of the requests are worth advice.
const SHED_MIN: f64 = 0.001;

/// What a proxy measured of a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Requests per second that arrive.
    pub rate_per_second: f64,
    /// Mean time of a request in a replica, in seconds.
    pub service_seconds: f64,
    /// Its standard deviation over its mean.
    pub service_cv: f64,
    /// Replicas that are up.
    pub replicas: u32,
    /// Requests that one works on at once.
    pub workers: u32,
    /// Response time to be kept, in seconds.
    pub target_seconds: f64,
    /// Classes, the most important first: name, share of what arrives, worth of an answer.
    pub classes: Vec<(String, f64, f64)>,
    /// Share of the requests that is refused.
    pub shed: f64,
}

/// What would be.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Outlook {
    /// How much the replicas keep, and what a loss would do, in words.
    pub headline: String,
    /// The highest rate of which 99 % is answered within the target.
    pub kept_per_second: f64,
    /// What would change it, the most useful first.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// What it is: `replicas=+1`, `target=600ms`, `classes`.
    pub change: String,
    /// Share of the requests within the target with it.
    pub in_target: f64,
    /// Share refused with it.
    pub shed: f64,
    /// 95th percentile of the response time with it, in seconds.
    pub p95_seconds: Option<f64>,
    /// In words.
    pub text: String,
}

/// Makes forecasts.
pub trait Forecaster: Debug + Send + Sync {
    /// What would be; nothing where it cannot be known. May take seconds.
    fn forecast(&self, measured: &Measured) -> Option<Outlook>;
}

/// A forecast with its time.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ForecastView {
    /// When it was made: time of day.
    since: String,
    #[serde(flatten)]
    outlook: Outlook,
}

/// The forecasts of all applications.
#[derive(Debug, Default)]
pub(super) struct Forecasts {
    forecaster: Mutex<Option<Arc<dyn Forecaster>>>,
    by_application: Mutex<BTreeMap<String, (Instant, Option<ForecastView>)>>,
    asked: Mutex<Option<Instant>>,
}

impl Forecasts {
    pub(super) fn set_forecaster(&self, forecaster: Arc<dyn Forecaster>) {
        *self.forecaster.lock() = Some(forecaster);
    }

    /// Somebody looks at the status.
    pub(super) fn asked(&self) {
        *self.asked.lock() = Some(Instant::now());
    }

    pub(super) fn of(&self, application: &str) -> Option<ForecastView> {
        let all = self.by_application.lock();
        all.get(application)?.1.clone()
    }

    /// The newest one; those of applications that are gone go.
    fn keep(&self, application: String, view: Option<ForecastView>, in_force: &Applications) {
        let mut all = self.by_application.lock();
        all.insert(application, (Instant::now(), view));
        all.retain(|name, _| in_force.get(name).is_some());
    }

    fn is_watched(&self, now: Instant) -> bool {
        let asked = *self.asked.lock();
        asked.is_some_and(|asked| now.duration_since(asked) < WATCHED)
    }

    fn is_due(&self, application: &str, now: Instant) -> bool {
        let all = self.by_application.lock();
        let made = all.get(application).map(|(made, _)| *made);
        made.is_none_or(|made| now.duration_since(made) >= EVERY)
    }
}

/// What a forecast is made from; nothing where too little is known.
fn measured(engine: &Status, total: &Rates, by_class: &[(f64, f64)]) -> Option<Measured> {
    let service = engine.moments.service.filter(|it| it.count >= SERVED_MIN)?;
    let capacity = engine.drain_rate.filter(|rate| *rate > 0.0)?;
    let up = engine.replicas.iter().filter(|replica| replica.up).count();
    let replicas = u32::try_from(up)
        .ok()
        .filter(|up| (1..=REPLICAS_MAX).contains(up))?;
    let offered = total.offered_per_second;
    let target_seconds = engine.classes.first()?.target_seconds?;
    let is_known = service.mean > 0.0 && offered > 0.0 && engine.mode == ModeName::Auto;
    let sum: f64 = by_class.iter().map(|(rate, _)| rate).sum();
    let classes = engine.classes.iter().zip(by_class);
    is_known.then(|| Measured {
        rate_per_second: offered,
        service_seconds: service.mean,
        service_cv: (service.square / (service.mean * service.mean) - 1.0)
            .max(0.0)
            .sqrt(),
        replicas,
        // By Little's law: requests that are worked on at once when all is full.
        workers: (capacity * service.mean / f64::from(replicas))
            .round()
            .max(1.0) as u32,
        target_seconds,
        classes: classes
            .map(|(class, (rate, revenue))| (class.name.clone(), rate / sum.max(1e-9), *revenue))
            .collect(),
        shed: total.shed_per_second.max(total.would_shed_per_second) / offered,
    })
}

/// The application that is due, with what is known of it; those that refuse most go first.
fn next(operator: &Operator, now: Instant) -> Option<(String, Option<Measured>)> {
    let applications = operator.state.applications();
    let due = applications
        .iter()
        .filter(|it| operator.forecasts.is_due(it.name(), now));
    let known = due.map(|application| {
        let name = application.name();
        let engine = application.sentry().status(application.now());
        let recent = operator.watch(name, |watch| watch.pictures.recent_of(name));
        let rates = |class: &tidegate_sentry::ClassStatus| {
            let own = recent.classes.get(&class.name);
            (own.map_or(0.0, |own| own.offered_per_second), class.revenue)
        };
        let by_class: Vec<(f64, f64)> = engine.classes.iter().map(rates).collect();
        (name.to_owned(), measured(&engine, &recent.total, &by_class))
    });
    let shed = |it: &(String, Option<Measured>)| it.1.as_ref().map_or(-1.0, |known| known.shed);
    known.max_by(|a, b| shed(a).total_cmp(&shed(b)))
}

/// Makes forecasts while somebody looks, for ever.
pub(super) async fn keep(operator: Arc<Operator>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = Instant::now();
        let forecaster = operator.forecasts.forecaster.lock().clone();
        let Some(forecaster) = forecaster.filter(|_| operator.forecasts.is_watched(now)) else {
            continue;
        };
        let Some((name, known)) = next(&operator, now) else {
            continue;
        };
        let work = move || known.and_then(|known| forecaster.forecast(&known));
        // One that panicked has nothing to say.
        let outlook = tokio::task::spawn_blocking(work).await.ok().flatten();
        let took = now.elapsed();
        let view = outlook.map(|outlook| ForecastView {
            since: rfc3339(SystemTime::now()),
            outlook,
        });
        operator
            .forecasts
            .keep(name, view, &operator.state.applications());
        tokio::time::sleep(took * REST_OF_WORK).await;
    }
}

impl ForecastView {
    /// What would help, in words; nothing while little is refused.
    pub(super) fn advice(&self, total: &Rates) -> Vec<String> {
        let shed = total.shed_per_second.max(total.would_shed_per_second);
        if shed < SHED_MIN * total.offered_per_second || shed <= 0.0 {
            return Vec::new();
        }
        let changes = self.outlook.changes.iter();
        changes.map(|change| change.text.clone()).collect()
    }

    /// Whether it says what more replicas would do.
    pub(super) fn knows_replicas(&self) -> bool {
        let changes = &self.outlook.changes;
        changes
            .iter()
            .any(|change| change.change.starts_with("replicas"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> ForecastView {
        let change = |change: &str| Change {
            change: change.to_owned(),
            in_target: 0.99,
            shed: 0.01,
            p95_seconds: Some(0.3),
            text: format!("{change} helps"),
        };
        ForecastView {
            since: String::new(),
            outlook: Outlook {
                headline: String::new(),
                kept_per_second: 10.0,
                changes: vec![change("replicas=+1"), change("target=1s")],
            },
        }
    }

    #[test]
    fn forecast_is_advice_while_requests_are_shed() {
        let mut total = Rates {
            offered_per_second: 100.0,
            ..Rates::default()
        };
        assert!(view().advice(&total).is_empty());
        total.shed_per_second = 20.0;
        assert_eq!(
            view().advice(&total),
            ["replicas=+1 helps", "target=1s helps"]
        );
        assert!(view().knows_replicas());
    }

    #[test]
    fn forecasts_are_due_once_a_minute_and_made_while_somebody_looks() {
        let forecasts = Forecasts::default();
        let now = Instant::now();
        assert!(!forecasts.is_watched(now));
        forecasts.asked();
        assert!(forecasts.is_watched(now) && !forecasts.is_watched(now + WATCHED * 2));
        assert!(forecasts.is_due("a", now));
        let made = (now, Some(view()));
        forecasts.by_application.lock().insert("a".to_owned(), made);
        assert!(!forecasts.is_due("a", now + EVERY / 2));
        assert!(forecasts.is_due("a", now + EVERY));
        assert!(forecasts.of("a").is_some() && forecasts.of("b").is_none());
    }
}
