//! Runs experiments on all cores and reads off what they found.

use rayon::prelude::*;

use super::check::{Check, Finding, Verdict};
use super::model::ModelError;
use super::plot::{Drawn, Plot};
use super::record::Record;
use super::{Experiment, Run, Shape};
use crate::chart::Chart;
use crate::rng::Streams;

/// What an experiment found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The experiment.
    pub experiment: Experiment,
    /// Its comparisons, in the order of the file.
    pub findings: Vec<Finding>,
    /// Its panels, in the order of the file.
    pub panels: Vec<Panel>,
    /// Runs that came to no end; what is read of them differs from anything.
    pub failures: Vec<RunError>,
}

/// A panel of a figure with its data.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The drawing.
    pub chart: Chart,
    /// Its title.
    pub title: String,
    /// The data, layer by layer.
    pub layers: Vec<Drawn>,
}

impl Outcome {
    /// Whether no comparison differs.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict != Verdict::Differs)
    }
}

/// Is told how far a long computation is; called from several threads.
pub trait Progress: Sync {
    /// There will be this many pieces of work.
    fn start(&self, pieces: usize);
    /// One more of them, which belonged to `what`, is done.
    fn done(&self, what: &str);
}

/// One simulation: a repetition of one variant.
struct Job<'a> {
    experiment: usize,
    run: usize,
    repetition: usize,
    /// Index into the points of a sweep.
    point: usize,
    shape: &'a Shape,
    seed: u64,
}

/// A run failed although its file was in order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("experiment {experiment}, run `{run}`: {cause}")]
pub struct RunError {
    experiment: String,
    run: String,
    cause: ModelError,
}

/// Runs all of `experiments`, each from its own seed. A run that fails, although
/// [`Experiment::parse`] found its file in order, is among the outcome's failures.
pub fn run_all(experiments: &[Experiment], progress: &dyn Progress) -> Vec<Outcome> {
    let jobs: Vec<Job<'_>> = experiments.iter().enumerate().flat_map(jobs_of).collect();
    progress.start(jobs.len());
    let parts: Vec<Result<Record, RunError>> = jobs
        .par_iter()
        .map(|job| {
            let experiment = &experiments[job.experiment];
            let part = job.part().map_err(|cause| RunError {
                experiment: experiment.id(),
                run: experiment.runs[job.run].name.clone(),
                cause,
            });
            progress.done(&experiment.id());
            part
        })
        .collect();
    let mut records = Records::new(experiments);
    let mut failures = vec![Vec::new(); experiments.len()];
    for (job, part) in jobs.iter().zip(parts) {
        match part {
            Ok(part) => records.add(job, part),
            Err(error) => failures[job.experiment].push(error),
        }
    }
    let found = experiments.iter().zip(records.0).zip(failures);
    let found = found.map(|((experiment, records), failures)| Outcome {
        failures,
        ..outcome(experiment, &records)
    });
    found.collect()
}

fn jobs_of((index, experiment): (usize, &Experiment)) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for (run_index, run) in experiment.runs.iter().enumerate() {
        for point in 0..run.points() {
            for repetition in 0..experiment.repetitions {
                jobs.push(Job {
                    experiment: index,
                    run: run_index,
                    repetition,
                    point,
                    shape: &run.shape,
                    seed: experiment.seed_of(repetition),
                });
            }
        }
    }
    jobs
}

impl Experiment {
    /// Seeds of repetitions are far apart; the first is the experiment's own.
    fn seed_of(&self, repetition: usize) -> u64 {
        match repetition {
            0 => self.seed,
            _ => Streams::new(self.seed).seed_of(&format!("repetition {repetition}")),
        }
    }
}

impl Run {
    fn points(&self) -> usize {
        match &self.shape {
            Shape::Single(_) => 1,
            Shape::Sweep { points, .. } => points.len(),
        }
    }
}

impl Job<'_> {
    /// The record of this repetition, or its one point of every curve of a sweep.
    fn part(&self) -> Result<Record, ModelError> {
        match self.shape {
            Shape::Single(model) => model.run(self.seed),
            Shape::Sweep { points, curves } => {
                let (x, model) = &points[self.point];
                let record = model.run(self.seed)?;
                let part = curves
                    .iter()
                    .fold(Record::default(), |part, (name, reading)| {
                        part.with_series(name, vec![(*x, reading.of(&record))])
                    });
                Ok(part)
            }
        }
    }
}

/// Records by experiment, run and repetition.
struct Records(Vec<Vec<Vec<Record>>>);

impl Records {
    fn new(experiments: &[Experiment]) -> Self {
        let empty = |experiment: &Experiment| {
            vec![vec![Record::default(); experiment.repetitions]; experiment.runs.len()]
        };
        Self(experiments.iter().map(empty).collect())
    }

    fn add(&mut self, job: &Job<'_>, part: Record) {
        self.0[job.experiment][job.run][job.repetition].append(part);
    }
}

fn outcome(experiment: &Experiment, records: &[Vec<Record>]) -> Outcome {
    let of = |name: &str| {
        experiment
            .run_index(name)
            .map(|index| records[index].as_slice())
    };
    let finding = |check: &Check| {
        let relative_to = check
            .relative_to
            .as_ref()
            .and_then(|name| of(name.get_ref()));
        check.finding(of(check.run.get_ref()).unwrap_or_default(), relative_to)
    };
    let panel = |plot: &Plot| {
        let layers: Vec<Drawn> = plot
            .layers
            .iter()
            .filter_map(|layer| {
                let index = experiment.run_index(layer.run.get_ref())?;
                Some(layer.drawn(&experiment.runs[index].label, &records[index]))
            })
            .collect();
        Panel {
            chart: plot.chart(&layers),
            title: plot.title.clone(),
            layers,
        }
    };
    Outcome {
        experiment: experiment.clone(),
        findings: experiment.checks.iter().map(finding).collect(),
        panels: experiment.plots.iter().map(panel).collect(),
        failures: Vec::new(),
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

    #[test]
    fn run_that_fails_differs_and_the_others_are_read() {
        let text = "paper = 'x'\nfigure = '1'\ntitle = 't'\n\
            [model.dead.characterization.plant]\nduration = '1s'\nservice = '100000s'\n\
            load = { rate = '1/s' }\nreplica = { cores = 1 }\n\
            [model.queue.queue]\nservers = 2\nservice_rate = '10/s'\n\
            [[run]]\nname = 'dead'\nmodel = 'dead'\n[[run]]\nname = 'queue'\nmodel = 'queue'\n\
            [[check]]\nmetric = 'peak'\nrun = 'dead'\nof = { value = 'peak_goodput' }\n\
            at_least = 0\n\
            [[check]]\nmetric = 'time'\nrun = 'queue'\nof = { value = 'service_time' }\n\
            at_least = 0\n";
        let experiment = Experiment::parse("e.toml", text).unwrap();
        let outcome = run_all(&[experiment], &Silent).remove(0);
        let verdicts = outcome.findings.iter().map(|finding| finding.verdict);
        assert!(verdicts.eq([Verdict::Differs, Verdict::Ours]));
        let failure = outcome.failures[0].to_string();
        assert!(
            failure.contains("run `dead`: nothing was served"),
            "{failure}"
        );
    }
}
