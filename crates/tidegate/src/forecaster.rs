//! Forecasts for the page, `tidegate top` and `tidegate ctl`: the simulator on what the proxy has
//! measured in the last minute.
//!
//! Each run has a few thousand requests at most, whatever the rate; a forecast is some twenty runs.

use std::time::Duration;

use tidegate_config::{Dur, Rate, Share};
use tidegate_proxy::admin::{Change, Forecaster, Measured, Outlook};
use tidegate_sim::my_service::{ClassOfService, MyService, ServiceRow};
use tidegate_sim::plan::{PlanRow, Question, in_words, plan};

/// Requests of a run.
const REQUESTS: f64 = 6000.0;
/// The least time that a run has, so that controllers get somewhere, and the most.
const SECONDS: (f64, f64) = (10.0, 600.0);
/// A larger target, times the one in force.
const TARGET_FACTOR: f64 = 1.5;
/// An improvement of the share within the target that is worth a sentence.
const BETTER_MIN: f64 = 0.005;
/// Share that a class of its own would have.
const CLASS_SHARE: f64 = 0.5;

/// The simulator.
#[derive(Debug)]
pub(crate) struct Simulator;

impl Forecaster for Simulator {
    fn forecast(&self, measured: &Measured) -> Option<Outlook> {
        let service = service(measured);
        let needed = measured.rate_per_second * measured.service_seconds
            / f64::from(measured.workers.max(1));
        // Enough with something to spare, or one more.
        let enough = ((1.1 * needed).ceil() as u32).max(measured.replicas + 1);
        let mut replicas = vec![measured.replicas, measured.replicas + 1];
        replicas.extend((enough > measured.replicas + 1).then_some(enough));
        let question = Question {
            service: service.clone(),
            replicas,
            growth: 1.0,
            kill: 1,
            seed: 1,
        };
        let rows = plan(&question).ok()?;
        let now = rows.first()?;
        let mut changes: Vec<Change> = rows[1..]
            .iter()
            .filter(|row| row.in_target > now.in_target + BETTER_MIN)
            .map(|row| more_replicas(now, row))
            .collect();
        changes.extend(larger_target(&service, now));
        changes.extend(class_of_its_own(&service, now));
        Some(Outlook {
            headline: in_words(&question.asked(), &rows[..1]),
            kept_per_second: now.kept_per_second,
            changes,
        })
    }
}

fn service(measured: &Measured) -> MyService {
    let dur = |seconds: f64| -> Dur { Duration::from_secs_f64(seconds).into() };
    let seconds = (REQUESTS / measured.rate_per_second).clamp(SECONDS.0, SECONDS.1);
    let class = |(name, share, revenue): &(String, f64, f64)| ClassOfService {
        name: name.clone(),
        share: Share(*share),
        revenue: *revenue,
    };
    MyService {
        duration: dur(1.25 * seconds),
        warm_up: dur(0.25 * seconds),
        rate: Rate(measured.rate_per_second),
        service: dur(measured.service_seconds),
        service_cv: measured.service_cv.min(20.0),
        workers: measured.workers,
        replicas: measured.replicas,
        target: dur(measured.target_seconds),
        modes: vec!["auto".to_owned()],
        class: match measured.classes.len() {
            0 | 1 => Vec::new(),
            _ => measured.classes.iter().map(class).collect(),
        },
        ..MyService::default()
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn more_replicas(now: &PlanRow, row: &PlanRow) -> Change {
    let more = row.replicas - now.replicas;
    let words = if more == 1 { "replica" } else { "replicas" };
    Change {
        change: format!("replicas=+{more}"),
        in_target: row.in_target,
        shed: row.shed,
        p95_seconds: Some(row.p95_seconds).filter(|it| it.is_finite()),
        text: format!(
            "{more} more {words}: {} in time instead of {} (forecast from the last minute).",
            percent(row.in_target),
            percent(now.in_target)
        ),
    }
}

fn run(service: &MyService) -> Option<ServiceRow> {
    service.run(1).ok()?.into_iter().next()
}

fn larger_target(service: &MyService, now: &PlanRow) -> Option<Change> {
    let target = service.target.as_secs_f64() * TARGET_FACTOR;
    let other = MyService {
        target: Duration::from_secs_f64(target).into(),
        ..service.clone()
    };
    let row = run(&other)?;
    (row.in_target > now.in_target + BETTER_MIN).then(|| Change {
        change: format!("target={:.0}ms", target * 1e3),
        in_target: row.in_target,
        shed: row.shed,
        p95_seconds: Some(row.p95_seconds).filter(|it| it.is_finite()),
        text: format!(
            "A target of {:.0} ms instead of {:.0} ms: {} answered within it instead of {}, {} \
             refused instead of {} (forecast).",
            target * 1e3,
            service.target.as_secs_f64() * 1e3,
            percent(row.in_target),
            percent(now.in_target),
            percent(row.shed),
            percent(now.shed)
        ),
    })
}

/// What the important half would have, where all are of one class.
fn class_of_its_own(service: &MyService, now: &PlanRow) -> Option<Change> {
    if !service.class.is_empty() {
        return None;
    }
    let class = |name: &str| ClassOfService {
        name: name.to_owned(),
        share: Share(CLASS_SHARE),
        revenue: 1.0,
    };
    let other = MyService {
        class: vec![class("important"), class("others")],
        ..service.clone()
    };
    let row = run(&other)?;
    let important = row.classes.first()?.1;
    (important > now.in_target + BETTER_MIN).then(|| Change {
        change: "classes".to_owned(),
        in_target: row.in_target,
        shed: row.shed,
        p95_seconds: Some(row.p95_seconds).filter(|it| it.is_finite()),
        text: format!(
            "Were the important half of the requests a class of its own, {} of it would be in time \
             instead of {} (forecast).",
            percent(important),
            percent(now.in_target)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rate_per_second: f64) -> Measured {
        Measured {
            rate_per_second,
            service_seconds: 0.02,
            service_cv: 1.0,
            replicas: 2,
            workers: 2,
            target_seconds: 0.4,
            classes: vec![("default".to_owned(), 1.0, 1.0)],
            shed: 0.0,
        }
    }

    /// Two replicas do 200/s.
    #[test]
    fn overload_is_answered_with_replicas_and_classes() {
        let outlook = Simulator.forecast(&measured(320.0)).unwrap();
        assert!(
            (120.0..200.0).contains(&outlook.kept_per_second),
            "{outlook:?}"
        );
        let change = |name: &str| {
            let mut changes = outlook.changes.iter();
            changes.find(|change| change.change == name).cloned()
        };
        let one = change("replicas=+1").unwrap();
        assert!((0.8..0.97).contains(&one.in_target), "{one:?}");
        let two = change("replicas=+2").unwrap();
        assert!(two.in_target > 0.97, "{two:?}");
        assert!(two.text.starts_with("2 more replicas: "), "{two:?}");
        let classes = change("classes").unwrap();
        assert!(classes.text.contains("would be in time"), "{classes:?}");
    }

    #[test]
    fn headroom_is_known_while_nothing_is_refused() {
        let outlook = Simulator.forecast(&measured(80.0)).unwrap();
        assert!(
            outlook
                .headline
                .starts_with("2 replicas keep 99 % within 400 ms"),
            "{outlook:?}"
        );
        assert!(
            outlook.headline.contains("With 1 lost, 1 replica keeps"),
            "{outlook:?}"
        );
        assert!(outlook.kept_per_second > 120.0, "{outlook:?}");
    }
}
