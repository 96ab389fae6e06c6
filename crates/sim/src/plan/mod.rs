//! How many replicas a service needs: a table of replicas against goodput, latency, revenue and
//! headroom.
//!
//! Each row is simulated with mode `auto` and the target, or from a recording with what protected
//! the service there. The headroom is found by simulation too: the highest rate at which
//! [`ENOUGH`] of all requests are still answered within the target, between nothing and the
//! replicas' capacity, by bisection.
//!
//! What breaks it: the network takes no time, and all requests cost by one law; a plan from a
//! recording has the recorded works.

mod words;

use std::time::Duration;

use rayon::prelude::*;
use serde::Serialize;
use tidegate_config::{Dur, Rate};

use crate::my_service::{Change, MyService};
use crate::scenario::ScenarioError;
use crate::whatif::{Model, Variant, WhatIfError};
pub use words::{Asked, in_words};

/// The share of requests within the target that counts as kept.
pub const ENOUGH: f64 = 0.99;
/// Steps of the bisection: the rate is found to a hundredth of the capacity.
const STEPS: u32 = 7;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The service as it is; its `replicas` are those of [`Question::replicas`] in turn.
    pub service: MyService,
    /// Numbers of replicas to look at.
    pub replicas: Vec<u32>,
    /// The rate is multiplied by this.
    pub growth: f64,
    /// This many replicas die in the middle.
    pub kill: u32,
    /// Of the simulations.
    pub seed: u64,
}

impl Question {
    /// The same, for the words.
    #[must_use]
    pub fn asked(&self) -> Asked {
        Asked {
            rate_per_second: self.service.rate.0 * self.growth,
            target: Some(self.service.target.0),
            kill: self.kill,
        }
    }
}

/// The share of a class that is answered within the target.
#[derive(Debug, Clone, Serialize)]
pub struct ClassShare {
    /// Its name.
    pub class: String,
    /// The share.
    pub in_target: f64,
}

/// What a number of replicas does.
#[derive(Debug, Clone, Serialize)]
pub struct PlanRow {
    /// How many.
    pub replicas: u32,
    /// What arrives over what they can do.
    pub load: f64,
    /// Answers within the target, per second.
    pub goodput_per_second: f64,
    /// Share of requests within the target.
    pub in_target: f64,
    /// Share refused.
    pub shed: f64,
    /// 95th percentile of the response time, in seconds.
    pub p95_seconds: f64,
    /// Worth of the answers within the target, per second.
    pub revenue_per_second: f64,
    /// The highest rate that is kept: [`ENOUGH`] within the target.
    pub kept_per_second: f64,
    /// How much of that is free at the rate asked for; negative when it is too little.
    pub headroom: f64,
    /// By class, the most important first; of one class alone nothing.
    pub classes: Vec<ClassShare>,
    /// With replicas killed: the share within the target while they are dead.
    pub in_target_after_kill: Option<f64>,
    /// The same by class; nothing where none are left.
    pub classes_after_kill: Vec<ClassShare>,
}

/// Answers the question, row by row.
///
/// # Errors
/// What does not fit together, by its key.
pub fn plan(question: &Question) -> Result<Vec<PlanRow>, ScenarioError> {
    question
        .replicas
        .par_iter()
        .map(|&count| row(question, count))
        .collect()
}

fn run(service: &MyService, seed: u64) -> Result<crate::my_service::ServiceRow, ScenarioError> {
    let mut service = service.clone();
    service.modes = vec!["auto".to_owned()];
    Ok(service.run(seed)?.remove(0))
}

/// Of one class alone nothing is to be said.
fn several(classes: impl IntoIterator<Item = (String, f64)>) -> Vec<ClassShare> {
    let share = |(class, in_target)| ClassShare { class, in_target };
    let classes: Vec<ClassShare> = classes.into_iter().map(share).collect();
    match classes.len() {
        1 => Vec::new(),
        _ => classes,
    }
}

fn row(question: &Question, replicas: u32) -> Result<PlanRow, ScenarioError> {
    let rate = question.service.rate.0 * question.growth;
    let service = MyService {
        replicas,
        rate: Rate(rate),
        ..question.service.clone()
    };
    let outcome = run(&service, question.seed)?;
    let capacity = service.capacity();
    let kept = highest(|share| {
        let at = MyService {
            rate: Rate(capacity * share),
            ..service.clone()
        };
        Ok::<f64, ScenarioError>(run(&at, question.seed)?.in_target)
    })?;
    let after = match question.kill {
        kill if kill == 0 || kill >= replicas => None,
        kill => Some(after_kill(&service, kill, question.seed)?),
    };
    let none_left = question.kill > 0 && question.kill >= replicas;
    Ok(PlanRow {
        replicas,
        load: rate / capacity,
        goodput_per_second: outcome.goodput_per_second,
        in_target: outcome.in_target,
        shed: outcome.shed,
        p95_seconds: outcome.p95_seconds,
        revenue_per_second: outcome.revenue_per_second,
        kept_per_second: kept * capacity,
        headroom: kept * capacity / rate - 1.0,
        classes: several(outcome.classes),
        in_target_after_kill: match &after {
            Some(after) => Some(after.in_target),
            None => none_left.then_some(0.0),
        },
        classes_after_kill: after.map_or_else(Vec::new, |after| several(after.classes)),
    })
}

/// The largest number from 0 to 1 with which enough is answered within the target.
fn highest<E>(mut in_target: impl FnMut(f64) -> Result<f64, E>) -> Result<f64, E> {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if in_target(middle)? >= ENOUGH {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// From the death of `kill` replicas on, at the same rate.
fn after_kill(
    service: &MyService,
    kill: u32,
    seed: u64,
) -> Result<crate::my_service::ServiceRow, ScenarioError> {
    let dies = Duration::from_secs_f64(service.warm_up.as_secs_f64().max(1.0));
    let change = Change {
        at: Dur(dies),
        dead: Some(kill),
        ..Change::default()
    };
    let after = MyService {
        change: vec![change],
        ..service.clone()
    };
    run(&after, seed)
}

/// What is asked of a recording.
#[derive(Debug, Clone)]
pub struct RecordedQuestion {
    /// Numbers of replicas to look at.
    pub replicas: Vec<u32>,
    /// The recorded traffic is multiplied by this.
    pub growth: f64,
    /// How many replicas die when the measurement begins.
    pub kill: u32,
    /// What is set otherwise than it was recorded, as `KEY=VALUE`.
    pub settings: Vec<String>,
    /// Of the simulations.
    pub seed: u64,
}

/// Answers the question from a recording, row by row.
///
/// # Errors
/// Settings that cannot be, or a configuration that the engine refuses.
pub fn plan_recorded(
    model: &Model,
    question: &RecordedQuestion,
) -> Result<Vec<PlanRow>, WhatIfError> {
    let replicas = question.replicas.par_iter();
    replicas
        .map(|&count| recorded_row(model, question, count))
        .collect()
}

fn recorded_row(
    model: &Model,
    question: &RecordedQuestion,
    replicas: u32,
) -> Result<PlanRow, WhatIfError> {
    let run = |rate: f64, kill: u32| {
        let mut settings = vec![
            format!("replicas={replicas}"),
            format!("rate={rate}"),
            format!("kill={kill}"),
        ];
        settings.extend(question.settings.iter().cloned());
        let variant = Variant::parse(settings.iter().map(String::as_str))?;
        model.forecast_once(&variant, question.seed)
    };
    let recorded_rate = model.recorded().offered_per_second;
    let load = model.load(replicas);
    // Up to a little more than the replicas can do; a factor of a hundred is the most there is.
    let most = (1.1 / load).min(100.0);
    let kept = highest(|share| Ok::<f64, WhatIfError>(run(most * share, 0)?.figures.in_target))?;
    let kept = most * kept;
    let now = run(question.growth, 0)?;
    let after = match question.kill {
        kill if kill == 0 || kill >= replicas => None,
        kill => Some(run(question.growth, kill)?),
    };
    let none_left = question.kill > 0 && question.kill >= replicas;
    let classes = |row: &crate::whatif::Forecast| {
        let shares = row.by_class.iter();
        several(shares.map(|it| (it.class.clone(), it.figures.in_target)))
    };
    Ok(PlanRow {
        replicas,
        load: load * question.growth,
        goodput_per_second: now.figures.goodput_per_second,
        in_target: now.figures.in_target,
        shed: now.figures.shed,
        p95_seconds: now.figures.p95_seconds,
        revenue_per_second: now.figures.revenue_per_second,
        kept_per_second: kept * recorded_rate,
        headroom: kept / question.growth - 1.0,
        classes: classes(&now),
        in_target_after_kill: match &after {
            Some(after) => Some(after.figures.in_target),
            None => none_left.then_some(0.0),
        },
        classes_after_kill: after.as_ref().map_or_else(Vec::new, classes),
    })
}

#[cfg(test)]
mod tests;
