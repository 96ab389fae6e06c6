//! Which comparisons notice a fault: the mechanism off, a gain three times off.
//!
//! A comparison that agrees whatever the mechanism does shows nothing. Each file names the faults
//! that its comparisons are there to notice (`[[mutation]]`); [`mutate`] runs the experiment with
//! one fault at a time. A fault is noticed when a comparison differs by more than chance.
//! Comparisons that no faulty run is in are left out. The other way round, a comparison that no
//! fault makes differ ([`unmoved`]) shows nothing of what the faults switch off.

use toml::Spanned;

use super::check::Check;
use super::run::{Progress, run_all};
use super::{Experiment, Run};

/// A fault, and the runs it is in.
#[derive(Debug, Clone)]
pub(super) struct Mutation {
    pub(super) name: String,
    pub(super) runs: Vec<Run>,
}

/// What became of one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noticed {
    /// The experiment.
    pub experiment: String,
    /// The fault.
    pub mutation: String,
    /// Comparisons that differ because of it.
    pub by: Vec<String>,
    /// Comparisons that could.
    pub of: usize,
}

/// Runs each of `experiments` with each of its faults in turn.
#[must_use]
pub fn mutate(experiments: &[Experiment], progress: &dyn Progress) -> Vec<Noticed> {
    let mutants: Vec<(&Experiment, &Mutation, Experiment)> = experiments
        .iter()
        .flat_map(|experiment| {
            let faults = experiment.mutations.iter();
            faults.map(move |fault| (experiment, fault, experiment.with(fault)))
        })
        .collect();
    let faulty: Vec<Experiment> = mutants.iter().map(|mutant| mutant.2.clone()).collect();
    let outcomes = run_all(&faulty, progress);
    let noticed = mutants.iter().zip(outcomes);
    noticed
        .map(|((experiment, fault, _), outcome)| Noticed {
            experiment: experiment.id(),
            mutation: fault.name.clone(),
            of: outcome.findings.len(),
            by: outcome
                .findings
                .into_iter()
                .filter(|finding| finding.surely_differs)
                .map(|finding| finding.metric)
                .collect(),
        })
        .collect()
}

/// Comparisons that no fault makes differ, with their experiments.
#[must_use]
pub fn unmoved(experiments: &[Experiment], faults: &[Noticed]) -> Vec<(String, String)> {
    let moved = |id: &str, metric: &String| {
        let mut faults = faults.iter();
        faults.any(|fault| fault.experiment == id && fault.by.contains(metric))
    };
    let of = |experiment: &Experiment| {
        let id = experiment.id();
        let metrics = experiment.checks.iter().map(|check| check.metric.get_ref());
        let silent = metrics.filter(|metric| !moved(&id, metric));
        let silent = silent.map(|metric| (id.clone(), metric.clone()));
        silent.collect::<Vec<_>>()
    };
    experiments.iter().flat_map(of).collect()
}

impl Experiment {
    /// How many faults its file names.
    #[must_use]
    pub fn mutation_count(&self) -> usize {
        self.mutations.len()
    }

    /// The experiment with the fault, as far as the fault reaches.
    fn with(&self, fault: &Mutation) -> Self {
        let faulty = |name: &Spanned<String>| {
            let mut runs = fault.runs.iter();
            runs.any(|run| run.name == *name.get_ref())
        };
        let reached =
            |check: &Check| faulty(&check.run) || check.relative_to.as_ref().is_some_and(faulty);
        let checks: Vec<Check> = self.checks.iter().filter(|c| reached(c)).cloned().collect();
        let is_read = |run: &Run| {
            let mut names = checks.iter().flat_map(Check::runs);
            names.any(|name| name == run.name)
        };
        let with_fault = |run: &Run| {
            let mut faulty = fault.runs.iter();
            faulty
                .find(|other| other.name == run.name)
                .unwrap_or(run)
                .clone()
        };
        Self {
            runs: self
                .runs
                .iter()
                .filter(|run| is_read(run))
                .map(with_fault)
                .collect(),
            checks,
            plots: Vec::new(),
            mutations: Vec::new(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Progress for Silent {
        fn start(&self, _: usize) {}
        fn done(&self, _: &str) {}
    }

    const FILE: &str = "paper = 'x'\nfigure = '1'\ntitle = 't'\n\
        [model.m.queue]\nservers = 2\nservice_rate = '10/s'\n\
        [[run]]\nname = 'a'\nmodel = 'm'\n[[run]]\nname = 'b'\nmodel = 'm'\n\
        [[check]]\nmetric = 'time'\nrun = 'a'\nof = { value = 'service_time' }\n\
        paper = 0.1\ntolerance = 0.01\n\
        [[check]]\nmetric = 'other'\nrun = 'b'\nof = { value = 'service_time' }\nat_most = 1\n\
        [[mutation]]\nname = 'slow'\nruns = ['a']\nset = { service_rate = '5/s' }\n\
        [[mutation]]\nname = 'more servers'\nset = { servers = 3 }\n";

    #[test]
    fn fault_that_changes_a_comparison_is_noticed_and_another_is_not() {
        let experiment = Experiment::parse("e.toml", FILE).unwrap();
        let noticed = mutate(std::slice::from_ref(&experiment), &Silent);
        assert_eq!(
            (noticed[0].by.as_slice(), noticed[0].of),
            (&["time".to_owned()][..], 1)
        );
        assert_eq!((noticed[1].by.len(), noticed[1].of), (0, 2));
        let silent = unmoved(&[experiment], &noticed);
        assert_eq!(silent, [("x/1".to_owned(), "other".to_owned())]);
    }

    #[test]
    fn fault_of_a_run_that_is_not_there_is_refused() {
        let text = FILE.replace("runs = ['a']", "runs = ['c']");
        let error = Experiment::parse("e.toml", &text).unwrap_err().to_string();
        assert!(
            error.contains("unknown run `c`; there are: a, b"),
            "{error}"
        );
        let text = FILE.replace("servers = 3", "sevrers = 3");
        let error = Experiment::parse("e.toml", &text).unwrap_err().to_string();
        assert!(error.contains("did you mean `servers`"), "{error}");
    }
}
