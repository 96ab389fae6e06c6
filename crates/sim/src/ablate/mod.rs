//! What every rule and number of mode `auto` is worth: it is left out, or changed by a quarter, and
//! the same requests are sent again.
//!
//! For each [`Change`] every [`Case`] runs with the seeds of the unchanged `auto` and is compared
//! with that run by run. With `d(c, s)` the difference in case `c` under seed `s`, the mean over
//! all and its interval are
//!
//! ```text
//! mean = mean of d(c, s),   ± 1.96 √(Σ var_c / n) / C
//! ```
//!
//! where `var_c` is the variance over the `n` seeds of one case: cases are given, seeds are chance.
//! What is within the interval is noise.
//!
//! What breaks it: two rules that stand in for each other. Each alone is worth nothing, both
//! together are.

mod report;
mod rules;

pub use report::{AblationReport, Estimate, Row};
pub use rules::{Change, changes_of_constants, changes_of_rules};

use rayon::prelude::*;
use tidegate_config::ConfigError;
use tidegate_sentry::ablation;

use crate::arena::{self, Clairvoyant, Contender, Entry, ideal};
use crate::auto_services::{SERVICES, STEPS, Service, WIDE};
use crate::experiment::Progress;
use crate::scenario::{Outcome, Scenario, ScenarioError};

/// A load up to this share of the capacity leaves room for all.
const LOAD_WITH_ROOM_MAX: f64 = 0.85;

/// After a load beyond that there is none for this long: queues are worked off.
const ROOM_AFTER_S: f64 = 5.0;

/// A scenario in front of which `auto` is judged.
#[derive(Debug, Clone)]
pub struct Case {
    /// For people.
    pub name: String,
    scenario: Scenario,
    /// Who protects it; as the scenario says where there is none.
    contender: Option<Contender>,
}

/// The arena and random services without a target, and the services of the tests with theirs.
///
/// # Errors
/// What is wrong with a scenario; a test keeps this from happening.
pub fn cases(random: usize, seed: u64) -> Result<Vec<Case>, ConfigError> {
    let derived = contender("auto");
    let entries = arena::entries()?
        .into_iter()
        .map(|entry| Case::of("arena", entry, derived));
    let drawn = arena::random_entries(random, seed, arena::RandomOptions::default())?
        .into_iter()
        .map(|entry| Case::of("random", entry, derived));
    let services = SERVICES.iter().chain(&WIDE).map(Case::of_service);
    entries
        .map(Ok)
        .chain(services)
        .chain(drawn.map(Ok))
        .collect()
}

fn contender(name: &str) -> Option<Contender> {
    let mut all = arena::contenders().into_iter();
    all.find(|contender| contender.name == name)
}

impl Case {
    fn of(kind: &str, entry: Entry, contender: Option<Contender>) -> Self {
        Self {
            name: if entry.name.starts_with(kind) {
                entry.name
            } else {
                format!("{kind}-{}", entry.name)
            },
            scenario: entry.scenario,
            contender,
        }
    }

    /// Twice the capacity, of which a third, a half and three quarters go and come back.
    fn of_service(service: &Service) -> Result<Self, ConfigError> {
        let load = format!("rate = '{}/s'", 2.0 * service.capacity());
        Ok(Self {
            name: format!("service-{}", service.name.replace([',', ' '], "-")),
            scenario: service.scenario(140, 5, &load, STEPS, &service.target_key())?,
            contender: None,
        })
    }

    /// Simulated requests, about: what it takes to run it.
    #[must_use]
    pub fn requests(&self) -> f64 {
        self.scenario.peak_rate() * self.scenario.duration.as_secs_f64()
    }

    fn run(&self, seed: u64) -> Result<Run, ScenarioError> {
        let mut protector = match &self.contender {
            Some(contender) => contender.protector(&self.scenario, seed)?,
            None => self.scenario.protector(seed)?,
        };
        let outcome = self.scenario.run_with(seed, protector.as_mut())?;
        Ok(Run::of(&self.scenario, &outcome))
    }
}

/// What one run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Goodput within the target over the ideal.
    pub goodput: f64,
    /// 99th percentile of the response times of what was answered, over the target.
    pub p99: f64,
    /// Share of attempts refused while there was room; not a number where there never was.
    pub shed_with_room: f64,
}

impl Run {
    fn of(scenario: &Scenario, outcome: &Outcome) -> Self {
        let totals = &outcome.totals;
        let target_s = scenario
            .target
            .map_or(f64::NAN, |target| target.as_secs_f64());
        Self {
            goodput: totals.counts.in_target as f64 / ideal(scenario, outcome),
            p99: totals.histogram.quantile(0.99) / target_s,
            shed_with_room: shed_with_room(scenario, outcome),
        }
    }
}

/// Refusals in the intervals whose load, and that of all for some time before, leaves room.
fn shed_with_room(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let work_s = Clairvoyant::of(scenario).work_s;
    let (mut shed, mut offered, mut room_from) = (0, 0, scenario.warm_up.as_secs_f64());
    for row in &outcome.rows {
        let load = row.counts.offered as f64 * work_s / outcome.interval;
        if load > LOAD_WITH_ROOM_MAX * row.capacity {
            room_from = room_from.max(row.at + ROOM_AFTER_S);
        } else if row.at - outcome.interval >= room_from - 1e-9 {
            shed += row.counts.shed;
            offered += row.counts.offered;
        }
    }
    shed as f64 / offered as f64
}

/// How many runs go on at once, in this program from now on.
///
/// # Errors
/// Runs have begun already.
pub fn set_jobs(jobs: usize) -> Result<(), rayon::ThreadPoolBuildError> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .build_global()
}

/// Runs everything on all cores of the pool, one change after the other, until all are done or
/// `enough` says so; `on_row` sees every row as soon as it is known.
///
/// # Errors
/// What the engine refuses about a case.
pub fn run(
    cases: &[Case],
    changes: &[Change],
    seeds: &[u64],
    progress: &dyn Progress,
    enough: &dyn Fn() -> bool,
    on_row: &mut dyn FnMut(&Row),
) -> Result<AblationReport, ScenarioError> {
    progress.start((changes.len() + 1) * cases.len() * seeds.len());
    let base = run_all(cases, seeds, &Change::none(), progress)?;
    let mut report = AblationReport::new(cases, seeds, &base);
    for change in changes {
        if enough() {
            report.left_out.push(change.name());
            continue;
        }
        let runs = run_all(cases, seeds, change, progress)?;
        on_row(report.add(change, &base, &runs));
    }
    Ok(report)
}

/// All runs of a change, seeds within cases.
fn run_all(
    cases: &[Case],
    seeds: &[u64],
    change: &Change,
    progress: &dyn Progress,
) -> Result<Vec<Run>, ScenarioError> {
    let mut pairs: Vec<(usize, &Case, u64)> = cases
        .iter()
        .flat_map(|case| seeds.iter().map(move |&seed| (case, seed)))
        .enumerate()
        .map(|(index, (case, seed))| (index, case, seed))
        .collect();
    // The longest first, so that no core waits for the last one.
    pairs.sort_by(|(_, a, _), (_, b, _)| b.requests().total_cmp(&a.requests()));
    let mut runs = pairs
        .par_iter()
        .with_max_len(1)
        .map(|(index, case, seed)| {
            let run = ablation::with(change.changed(), || case.run(*seed))?;
            progress.done(&format!("{} on {}", change.name(), case.name));
            Ok((*index, run))
        })
        .collect::<Result<Vec<(usize, Run)>, ScenarioError>>()?;
    runs.sort_by_key(|(index, _)| *index);
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Progress for Silent {
        fn start(&self, _: usize) {}
        fn done(&self, _: &str) {}
    }

    fn only(names: &[&str]) -> Vec<Case> {
        let mut cases = cases(0, 1).unwrap();
        cases.retain(|case| names.contains(&case.name.as_str()));
        assert_eq!(cases.len(), names.len(), "every name is a case");
        cases
    }

    fn change(name: &str) -> Change {
        let all = changes_of_rules().into_iter().chain(changes_of_constants());
        let mut named = all.filter(|change| change.name() == name);
        named.next().unwrap()
    }

    fn rows(cases: &[Case], changes: &[Change]) -> AblationReport {
        run(cases, changes, &[1, 2], &Silent, &|| false, &mut |_| {}).unwrap()
    }

    #[test]
    fn rule_that_matters_is_worth_points_and_one_without_a_part_is_worth_nothing() {
        let cases = only(&["arena-ten-times"]);
        let changes = [
            change("short queue in overload off"),
            change("warm-up of a replica off"),
        ];
        let report = rows(&cases, &changes);
        let [queue, warm_up] = report.rows() else {
            panic!("two rows")
        };
        assert!(queue.p99.mean > 0.05, "{queue:?}");
        assert_eq!(warm_up.goodput.mean, 0.0);
        assert!(!warm_up.goodput.is_significant());
    }

    #[test]
    fn change_leaves_no_trace_in_the_next_run() {
        let cases = only(&["arena-two-times"]);
        let p99 = |change: &Change| run_all(&cases, &[1], change, &Silent).unwrap()[0].p99;
        let none = Change::none();
        let before = p99(&none);
        assert_ne!(p99(&change("short queue in overload off")), before);
        assert_eq!(p99(&none), before);
    }

    #[test]
    fn refusals_count_only_where_there_is_room() {
        let text = |rate: &str| {
            format!(
                "duration = '30s'\nwarm_up = '5s'\ntarget = '500ms'\nservice = '10ms'\n\
                 [load]\nrate = '{rate}'\nclient = {{ timeout = '2s' }}\n[replica]\ncores = 1\n\
                 [protect]\nmode = 'auto'\ntarget = '500ms'\n"
            )
        };
        let shed = |rate: &str| {
            let scenario: Scenario = tidegate_config::parse("room.toml", &text(rate)).unwrap();
            let outcome = scenario.run(1).unwrap();
            (
                outcome.totals.counts.shed,
                shed_with_room(&scenario, &outcome),
            )
        };
        let (refused, share) = shed("300/s");
        assert!(refused > 1000 && share.is_nan(), "{refused} {share}");
        assert_eq!(shed("50/s"), (0, 0.0));
    }

    #[test]
    fn changes_that_the_budget_leaves_out_are_named() {
        let cases = only(&["arena-half"]);
        let changes = [
            change("WINDOW_SHRINK × 0.8"),
            change("WINDOW_GROWTH × 1.25"),
        ];
        let report = run(&cases, &changes, &[1, 2], &Silent, &|| true, &mut |_| {}).unwrap();
        assert!(report.rows().is_empty());
        assert_eq!(
            report.left_out,
            ["WINDOW_SHRINK × 0.8", "WINDOW_GROWTH × 1.25"]
        );
    }
}
