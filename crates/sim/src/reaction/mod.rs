//! How soon a protection reacts.
//!
//! **To a step of the load**: from when on are requests that are admitted answered in time? A step
//! comes at a known moment, and the response time of every admitted request is kept with the moment
//! at which it arrived. Runs of many seeds are laid upon each other, in slots of ten milliseconds,
//! so that a slot has enough requests to speak of their 99th percentile. The reaction takes
//!
//! ```text
//! max { end of slot : more than 1 % of the requests of the tenth of a second from it are late }
//! ```
//!
//! beyond chance (two deviations). A request that its client abandoned after it was admitted is
//! late.
//!
//! **To the end of a trap**: how long after the capacity is back are most requests answered again?
//! The first second from which on, for three seconds, nine of ten requests are answered in time.
//!
//! What breaks it: a protection that admits next to nothing reacts at once; so the share that is
//! shed stands beside it.
//!
//! Decision: docs/decisions/0257-reaction-over-seeds.md.

mod timed;

use rayon::prelude::*;
use tidegate_config::ConfigError;

use crate::arena::{Contender, Entry, entries};
use crate::experiment::Progress;
use crate::scenario::{Outcome, Scenario, ScenarioError};
use timed::{Admitted, Timed};

/// Length of a slot, in seconds.
const SLOT_S: f64 = 0.01;

/// Slots that are looked at together.
const SLOTS_TOGETHER: usize = 10;

/// How long after a step admitted requests are looked at, in seconds.
const HORIZON_S: f64 = 5.0;

/// Share of admitted requests that may be late.
const LATE_SHARE_MAX: f64 = 0.01;

/// When the step comes: the protection has had time to know the service.
const STEP_AT_S: f64 = 30.0;

/// A step of the load, in shares of the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Before.
    pub from: f64,
    /// After.
    pub to: f64,
}

/// The steps that are measured: by 1.4 from just below the capacity and from the capacity, and to
/// 1.4 times the capacity from where there is room.
pub const STEPS: [Step; 3] = [
    Step {
        from: 0.9,
        to: 1.26,
    },
    Step { from: 1.0, to: 1.4 },
    Step { from: 0.7, to: 1.4 },
];

impl Step {
    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} to {}", self.from, self.to)
    }

    /// Three replicas of four workers, 40 ms of exponential work: 300 requests per second, which
    /// arrive as these keys of a load say.
    fn scenario(self, arrivals: &str) -> Result<Scenario, ConfigError> {
        let (from, to) = (300.0 * self.from, 300.0 * self.to);
        let end = STEP_AT_S + HORIZON_S + 2.0;
        let text = format!(
            "title = 'load from {from} to {to} requests/s'\nduration = '{end}s'\n\
             warm_up = '10s'\ntarget = '500ms'\n\
             service = {{ law = 'exponential', mean = '40ms' }}\n\n[load]\n\
             rate = [{{ at = '0s', value = '{from}/s' }}, \
             {{ at = '{STEP_AT_S}s', value = '{to}/s' }}]\n\
             {arrivals}\nclient = {{ timeout = '2s' }}\n\n[replica]\ncount = 3\ncores = 4\nslots = 64\n"
        );
        Entry::parse("reaction.toml", &text).map(|entry| entry.scenario)
    }
}

/// How a contender reacts to a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaction {
    /// The contender.
    pub contender: &'static str,
    /// The step.
    pub step: Step,
    /// Seconds until newly admitted requests are in time; nothing when they are not within the
    /// horizon.
    pub seconds: Option<f64>,
    /// Share of the requests admitted within the horizon that were late.
    pub late: f64,
    /// Share of the requests that arrived within the horizon that were not admitted.
    pub shed: f64,
}

/// How long a contender takes to leave the retry trap.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    /// The contender.
    pub contender: &'static str,
    /// Seconds after the trigger is gone, seed by seed; nothing when it never got out.
    pub seconds: Vec<Option<f64>>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct ReactionReport {
    /// By step and contender.
    pub reactions: Vec<Reaction>,
    /// By contender.
    pub recoveries: Vec<Recovery>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum ReactionError {
    /// A file that is built in is not what it should be; a test keeps this from happening.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The engine refuses a configuration.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// Runs every step and the retry trap with every contender and seed, on all cores. `arrivals` are
/// keys of a scenario's load for the steps; without any they are Poisson.
///
/// # Errors
/// What the engine refuses.
pub fn run(
    contenders: &[Contender],
    seeds: &[u64],
    arrivals: &str,
    progress: &dyn Progress,
) -> Result<ReactionReport, ReactionError> {
    progress.start(contenders.len() * (STEPS.len() + 1));
    let mut reactions = Vec::new();
    for step in STEPS {
        let scenario = step.scenario(arrivals)?;
        for contender in contenders {
            reactions.push(react(contender, step, &scenario, seeds)?);
            progress.done(&format!("{}, {}", contender.name, step.name()));
        }
    }
    let trap = trap()?;
    let mut recoveries = Vec::new();
    for contender in contenders {
        recoveries.push(recover(contender, &trap, seeds)?);
        progress.done(&format!("{}, retry trap", contender.name));
    }
    Ok(ReactionReport {
        reactions,
        recoveries,
    })
}

fn react(
    contender: &Contender,
    step: Step,
    scenario: &Scenario,
    seeds: &[u64],
) -> Result<Reaction, ScenarioError> {
    let target_s = scenario.target.map_or(0.0, |target| target.as_secs_f64());
    let runs = seeds
        .par_iter()
        .map(|&seed| {
            let mut timed = Timed::new(contender.protector(scenario, seed)?);
            scenario.run_with(seed, &mut timed)?;
            Ok(timed.finish())
        })
        .collect::<Result<Vec<Vec<Admitted>>, ScenarioError>>()?;
    let mut slots = vec![Slot::default(); (HORIZON_S / SLOT_S).round() as usize];
    for request in runs.iter().flatten() {
        let slot = (request.arrived_s - STEP_AT_S) / SLOT_S;
        // Before the step, or after the horizon.
        let Some(slot) = (slot >= 0.0)
            .then(|| slots.get_mut(slot as usize))
            .flatten()
        else {
            continue;
        };
        slot.count(request, target_s);
    }
    let all = slots
        .iter()
        .fold(Slot::default(), |sum, slot| sum.plus(slot));
    Ok(Reaction {
        contender: contender.name,
        step,
        seconds: reaction_of(&slots),
        late: all.late / all.admitted.max(1.0),
        shed: 1.0 - all.admitted / all.arrived.max(1.0),
    })
}

/// Requests that arrived in a slot, over all seeds.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    arrived: f64,
    admitted: f64,
    late: f64,
}

impl Slot {
    fn count(&mut self, request: &Admitted, target_s: f64) {
        self.arrived += 1.0;
        if let Some(response_s) = request.response_s {
            self.admitted += 1.0;
            self.late += f64::from(u8::from(response_s > target_s));
        }
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            arrived: self.arrived + other.arrived,
            admitted: self.admitted + other.admitted,
            late: self.late + other.late,
        }
    }

    /// More are late than may be, beyond chance.
    fn is_late(&self) -> bool {
        let expected = LATE_SHARE_MAX * self.admitted;
        self.late > expected + 2.0 * expected.sqrt()
    }
}

/// The end of the last slot from which on too many are late.
fn reaction_of(slots: &[Slot]) -> Option<f64> {
    let together = |slots: &[Slot]| {
        slots
            .iter()
            .fold(Slot::default(), |sum, slot| sum.plus(slot))
    };
    let windows: Vec<Slot> = slots.windows(SLOTS_TOGETHER).map(together).collect();
    let last = windows.iter().rposition(Slot::is_late);
    match last {
        None => Some(0.0),
        Some(last) if last + 1 == windows.len() => None,
        Some(last) => Some((last + 1) as f64 * SLOT_S),
    }
}

/// The retry trap of the arena, and when its trigger is gone.
const TRAP: &str = "retry-trap";
const TRAP_ENDS_S: f64 = 40.0;
const RECOVERED: f64 = 0.9;
const RECOVERED_ROWS: usize = 3;

fn trap() -> Result<Scenario, ConfigError> {
    let mut all = entries()?.into_iter();
    let entry = all.find(|entry| entry.name == TRAP);
    let missing = || ConfigError::new(TRAP, "the arena has no such scenario".to_owned());
    entry.map(|entry| entry.scenario).ok_or_else(missing)
}

fn recover(
    contender: &Contender,
    trap: &Scenario,
    seeds: &[u64],
) -> Result<Recovery, ScenarioError> {
    let seconds = seeds
        .par_iter()
        .map(|&seed| {
            let mut protector = contender.protector(trap, seed)?;
            Ok(recovery_of(&trap.run_with(seed, protector.as_mut())?))
        })
        .collect::<Result<Vec<Option<f64>>, ScenarioError>>()?;
    Ok(Recovery {
        contender: contender.name,
        seconds,
    })
}

/// Seconds from the end of the trigger to the first of three intervals in which nine of ten fresh
/// requests have their answer in time.
fn recovery_of(outcome: &Outcome) -> Option<f64> {
    let after: Vec<_> = outcome
        .rows
        .iter()
        .filter(|row| row.at - outcome.interval >= TRAP_ENDS_S - 1e-9)
        .collect();
    let good = |row: &&crate::scenario::Row| {
        row.counts.in_target as f64 >= RECOVERED * row.counts.fresh as f64
    };
    let first = after
        .windows(RECOVERED_ROWS)
        .position(|rows| rows.iter().all(good))?;
    Some(first as f64 * outcome.interval)
}

impl Recovery {
    /// The median; nothing where half of the runs or more never recovered.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self
            .seconds
            .iter()
            .map(|seconds| seconds.unwrap_or(f64::INFINITY))
            .collect();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied()?;
        median.is_finite().then_some(median)
    }
}

impl ReactionReport {
    /// For a terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:12}  {:12}  {:>12}  {:>8}  {:>8}\n",
            "step", "contender", "reaction", "late", "shed"
        );
        for reaction in &self.reactions {
            text += &format!(
                "{:12}  {:12}  {:>12}  {:>6.2} %  {:>6.2} %\n",
                reaction.step.name(),
                reaction.contender,
                reaction.seconds.map_or("> 5 s".to_owned(), |seconds| {
                    format!("{:.0} ms", 1e3 * seconds)
                }),
                100.0 * reaction.late,
                100.0 * reaction.shed
            );
        }
        text += &format!(
            "\n{:12}  {:>12}  {:>12}\n",
            "retry trap", "recovery", "runs out"
        );
        for recovery in &self.recoveries {
            let out = recovery.seconds.iter().flatten().count();
            text += &format!(
                "{:12}  {:>12}  {:>12}\n",
                recovery.contender,
                recovery
                    .median()
                    .map_or("never".to_owned(), |seconds| format!("{seconds:.0} s")),
                format!("{out} of {}", recovery.seconds.len())
            );
        }
        text
    }

    /// One JSON object on each line.
    #[must_use]
    pub fn json(&self) -> String {
        let reactions = self.reactions.iter().map(|reaction| {
            serde_json::json!({
                "step": reaction.step.name(),
                "contender": reaction.contender,
                "reaction_seconds": reaction.seconds,
                "late_share": reaction.late,
                "shed_share": reaction.shed,
            })
        });
        let recoveries = self.recoveries.iter().map(|recovery| {
            serde_json::json!({
                "scenario": TRAP,
                "contender": recovery.contender,
                "recovery_seconds": recovery.seconds,
            })
        });
        let lines = reactions.chain(recoveries);
        lines.map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::contenders;

    fn slots(late_until: usize) -> Vec<Slot> {
        (0..500)
            .map(|index| Slot {
                arrived: 100.0,
                admitted: 100.0,
                late: if index < late_until { 10.0 } else { 0.5 },
            })
            .collect()
    }

    #[test]
    fn reaction_is_when_the_last_late_slot_ends() {
        assert_eq!(reaction_of(&slots(0)), Some(0.0));
        let reaction = reaction_of(&slots(40)).unwrap();
        // Of a window the last slot may be the only one that is late, within chance.
        assert!((0.37..=0.40).contains(&reaction), "{reaction}");
        assert_eq!(reaction_of(&slots(500)), None);
    }

    fn contender(name: &str) -> Contender {
        let mut all = contenders().into_iter();
        all.find(|contender| contender.name == name).unwrap()
    }

    #[test]
    fn without_protection_no_step_is_ever_reacted_to_and_no_trap_left() {
        let step = STEPS[2];
        let scenario = step.scenario("").unwrap();
        let none = react(&contender("none"), step, &scenario, &[1, 2, 3]).unwrap();
        assert_eq!((none.seconds, none.shed), (None, 0.0), "{none:?}");
        let auto = react(&contender("auto+target"), step, &scenario, &[1, 2, 3]).unwrap();
        assert!(auto.late < none.late && auto.shed > 0.0, "{auto:?}");
        let trap = trap().unwrap();
        let none = recover(&contender("none"), &trap, &[1]).unwrap();
        assert_eq!(none.median(), None);
        let auto = recover(&contender("auto+target"), &trap, &[1]).unwrap();
        assert!(
            auto.median().is_some_and(|seconds| seconds < 10.0),
            "{auto:?}"
        );
    }

    #[test]
    fn steps_take_the_arrivals_of_a_load() {
        let rate = |arrivals: &str| {
            let scenario = STEPS[0].scenario(arrivals).unwrap();
            let outcome = scenario.run(1).unwrap();
            let simulated = outcome.rows.iter().map(|row| row.counts.offered);
            simulated.filter(|offered| *offered == 0).count()
        };
        assert_eq!(rate("batch = 8"), 0);
        let phases = "phases = [{ times = 1, lasts = '3s' }, { times = 0, lasts = '3s' }]";
        assert!(
            rate(phases) > 5,
            "an on-off source has seconds without requests"
        );
        let error = STEPS[0].scenario("batches = 8").unwrap_err().to_string();
        assert!(error.contains("batch"), "{error}");
    }
}
