//! How many replicas a service needs: a table of replicas against goodput, latency and headroom.
//!
//! Each row is simulated with mode `auto` and the target. The headroom is found by simulation too:
//! the highest rate at which [`ENOUGH`] of all requests are still answered within the target,
//! between nothing and the replicas' capacity, by bisection.
//!
//! What breaks it: the network takes no time, and all requests cost by one law; a plan from a
//! recording has the recorded laws.

use std::time::Duration;

use rayon::prelude::*;
use serde::Serialize;
use tidegate_config::{Dur, Rate};

use crate::my_service::{Change, MyService};
use crate::scenario::ScenarioError;

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
    /// The highest rate that is kept: [`ENOUGH`] within the target.
    pub kept_per_second: f64,
    /// How much of that is free at the rate asked for; negative when it is too little.
    pub headroom: f64,
    /// With replicas killed: the share within the target while they are dead.
    pub in_target_after_kill: Option<f64>,
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

fn row(question: &Question, replicas: u32) -> Result<PlanRow, ScenarioError> {
    let rate = question.service.rate.0 * question.growth;
    let service = MyService {
        replicas,
        rate: Rate(rate),
        ..question.service.clone()
    };
    let outcome = run(&service, question.seed)?;
    let kept = kept(&service, question.seed)?;
    let after = match question.kill {
        0 => None,
        kill if kill >= replicas => Some(0.0),
        kill => Some(after_kill(&service, kill, question.seed)?),
    };
    Ok(PlanRow {
        replicas,
        load: rate / service.capacity(),
        goodput_per_second: outcome.goodput_per_second,
        in_target: outcome.in_target,
        shed: outcome.shed,
        p95_seconds: outcome.p95_seconds,
        kept_per_second: kept,
        headroom: kept / rate - 1.0,
        in_target_after_kill: after,
    })
}

/// The highest rate of which enough is answered within the target.
fn kept(service: &MyService, seed: u64) -> Result<f64, ScenarioError> {
    let capacity = service.capacity();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        let at = MyService {
            rate: Rate(capacity * middle),
            ..service.clone()
        };
        if run(&at, seed)?.in_target >= ENOUGH {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low * capacity)
}

/// The share within the target from the death of `kill` replicas on, at the same rate.
fn after_kill(service: &MyService, kill: u32, seed: u64) -> Result<f64, ScenarioError> {
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
    Ok(run(&after, seed)?.in_target)
}

/// The table in words.
#[must_use]
pub fn in_words(question: &Question, rows: &[PlanRow]) -> String {
    let rate = question.service.rate.0 * question.growth;
    let target_ms = question.service.target.as_secs_f64() * 1e3;
    let percent = ENOUGH * 100.0;
    let Some(first) = rows.iter().find(|row| row.kept_per_second >= rate) else {
        let Some(most) = rows.last() else {
            return String::new();
        };
        return format!(
            "No number of replicas up to {} keeps {percent:.0} % of {rate:.0}/s within \
             {target_ms:.0} ms: {} keep it up to {:.0}/s.",
            most.replicas, most.replicas, most.kept_per_second
        );
    };
    let replicas = |count: u32| match count {
        1 => "1 replica keeps".to_owned(),
        count => format!("{count} replicas keep"),
    };
    let mut words = format!(
        "{} {percent:.0} % within {target_ms:.0} ms up to {:.0}/s; at {rate:.0}/s p95 is {:.0} ms.",
        replicas(first.replicas),
        first.kept_per_second,
        first.p95_seconds * 1e3
    );
    if let Some(after) = first.in_target_after_kill {
        let left = first.replicas.saturating_sub(question.kill);
        words += &match left {
            0 => format!(" With {} lost, none is left.", question.kill),
            left => format!(
                " With {} lost, {} {:.0} % of the requests within the target.",
                question.kill,
                replicas(left),
                after * 100.0
            ),
        };
        let survives = |row: &&PlanRow| row.in_target_after_kill >= Some(ENOUGH);
        if after < ENOUGH
            && let Some(enough) = rows.iter().find(survives)
        {
            words += &format!(" {} would lose nothing by that.", enough.replicas);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kill: u32) -> Question {
        let service = MyService {
            duration: Duration::from_secs(80).into(),
            workers: 8,
            ..MyService::default()
        };
        Question {
            service,
            replicas: vec![1, 2, 3],
            growth: 2.0,
            kill,
            seed: 1,
        }
    }

    /// One replica does 320/s, and 400/s are asked for.
    #[test]
    fn replicas_needed_are_those_whose_capacity_is_above_the_rate() {
        let question = question(1);
        let rows = plan(&question).unwrap();
        let [one, two, three] = &rows[..] else {
            panic!("three rows")
        };
        assert!(one.kept_per_second < 320.0 && one.headroom < 0.0, "{one:?}");
        assert!(two.in_target > ENOUGH && two.headroom > 0.2, "{two:?}");
        assert!(two.in_target_after_kill.unwrap() < 0.85, "{two:?}");
        assert!(three.in_target_after_kill.unwrap() > 0.97, "{three:?}");
        let words = in_words(&question, &rows);
        assert!(
            words.starts_with("2 replicas keep 99 % within 500 ms up to"),
            "{words}"
        );
        assert!(words.contains("With 1 lost, 1 replica keeps"), "{words}");
    }

    #[test]
    fn too_few_replicas_are_said_to_be_too_few() {
        let mut question = question(0);
        question.replicas = vec![1];
        let rows = plan(&question).unwrap();
        assert!(in_words(&question, &rows).starts_with("No number of replicas up to 1"));
    }
}
