//! From the file to an experiment that can run: variants built, every name looked up.

use std::ops::Range;

use tidegate_config::ConfigError;
use toml::{Spanned, Table, Value};

use super::file::{File, MutationSpec, RunSpec, SweepSpec};
use super::model::Model;
use super::mutate::Mutation;
use super::reading::Reading;
use super::variant::replace;
use super::{Experiment, Run, Shape};

pub(super) fn resolve(file: &str, text: &str) -> Result<Experiment, ConfigError> {
    let parsed: File = tidegate_config::parse(file, text)?;
    let raw: Table = tidegate_config::parse(file, text)?;
    let source = Source { file, text, raw };
    source.experiment(parsed)
}

/// The file as text, for the places of errors, and as a raw table, for variants.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
    raw: Table,
}

type Resolved<T> = Result<T, ConfigError>;

impl Source<'_> {
    fn experiment(&self, file: File) -> Resolved<Experiment> {
        if *file.repetitions.get_ref() == 0 {
            return Err(self.at(file.repetitions.span(), "at least one repetition is needed"));
        }
        let mut runs: Vec<Run> = Vec::new();
        for spec in &file.run {
            if runs.iter().any(|run| run.name == *spec.name.get_ref()) {
                let message = format!("a second run `{}`; names are unique", spec.name.get_ref());
                return Err(self.at(spec.name.span(), message));
            }
            runs.push(self.run(spec, &file, None)?);
        }
        let mut mutations = Vec::with_capacity(file.mutation.len());
        for spec in &file.mutation {
            mutations.push(self.mutation(spec, &file, &runs)?);
        }
        let experiment = Experiment {
            paper: file.paper,
            figure: file.figure,
            title: file.title,
            note: file.note,
            seed: file.seed,
            repetitions: *file.repetitions.get_ref(),
            runs,
            checks: file.check,
            plots: file.plot,
            mutations,
        };
        self.look_up_names(&experiment)?;
        Ok(experiment)
    }

    /// The runs that a fault is in.
    fn mutation(&self, spec: &MutationSpec, file: &File, runs: &[Run]) -> Resolved<Mutation> {
        let names: Vec<&str> = runs.iter().map(|run| &*run.name).collect();
        if let Some(name) = spec
            .runs
            .iter()
            .find(|name| !names.contains(&name.get_ref().as_str()))
        {
            return Err(self.unknown(name, "run", &names));
        }
        let is_in = |run: &RunSpec| {
            let named = |name: &Spanned<String>| name.get_ref() == run.name.get_ref();
            spec.runs.is_empty() || spec.runs.iter().any(named)
        };
        let faulty = file.run.iter().filter(|run| is_in(run));
        let faulty = faulty.map(|run| self.run(run, file, Some(spec)));
        Ok(Mutation {
            name: spec.name.get_ref().clone(),
            runs: faulty.collect::<Resolved<_>>()?,
        })
    }

    fn run(&self, spec: &RunSpec, file: &File, fault: Option<&MutationSpec>) -> Resolved<Run> {
        let name = spec.model.get_ref();
        if !file.model.contains_key(name) {
            let known: Vec<&str> = file.model.keys().map(String::as_str).collect();
            return Err(self.unknown(&spec.model, "model", &known));
        }
        let mut table = self.model_table(name);
        let fault = fault.iter().flat_map(|fault| &fault.set);
        for (path, value) in spec.set.iter().chain(fault) {
            self.replace(&mut table, path, value)?;
        }
        let shape = match &spec.sweep {
            Some(sweep) => self.sweep(spec, sweep, &table)?,
            None if !spec.curves.is_empty() => {
                return Err(self.at(spec.name.span(), "`curves` needs a `sweep` to go along"));
            }
            None => Shape::Single(self.model(&table, &spec.name)?),
        };
        Ok(Run {
            name: spec.name.get_ref().clone(),
            label: spec
                .label
                .clone()
                .unwrap_or_else(|| spec.name.get_ref().clone()),
            shape,
        })
    }

    /// The table of a model as written: `{ kind = { .. } }`.
    fn model_table(&self, name: &str) -> Table {
        let models = self.raw.get("model").and_then(Value::as_table);
        let model = models
            .and_then(|models| models.get(name))
            .and_then(Value::as_table);
        model.cloned().unwrap_or_default()
    }

    fn sweep(&self, spec: &RunSpec, sweep: &SweepSpec, table: &Table) -> Resolved<Shape> {
        let values = sweep.values.get_ref();
        let xs = sweep.x.as_ref().unwrap_or(values);
        if values.is_empty() || xs.len() != values.len() {
            let message = "`values` must not be empty, and `x` must be as long";
            return Err(self.at(sweep.values.span(), message));
        }
        if spec.curves.is_empty() {
            return Err(self.at(spec.name.span(), "a `sweep` needs `curves`: what to read"));
        }
        let mut points = Vec::with_capacity(values.len());
        for (&value, &x) in values.iter().zip(xs) {
            let mut table = table.clone();
            self.replace(&mut table, &sweep.parameter, &sweep.value(value))?;
            points.push((x, self.model(&table, &sweep.parameter)?));
        }
        for reading in spec.curves.values() {
            self.check_reading(reading, &Offer::of(&points[0].1), spec.name.span())?;
        }
        let curves = spec.curves.clone();
        Ok(Shape::Sweep { points, curves })
    }

    /// Replaces a key in a model's table, below its kind.
    fn replace(&self, model: &mut Table, path: &Spanned<String>, value: &Value) -> Resolved<()> {
        for (_, kind) in model.iter_mut() {
            if let Value::Table(kind) = kind {
                replace(kind, path.get_ref(), value.clone())
                    .map_err(|message| self.at(path.span(), message))?;
            }
        }
        Ok(())
    }

    /// Parses a variant like a file of its own; errors are placed at `place`.
    fn model(&self, table: &Table, place: &Spanned<String>) -> Resolved<Model> {
        let refused =
            |cause: &str| self.at(place.span(), format!("with `{}`: {cause}", place.get_ref()));
        let model: Model = tidegate_config::parse(self.file, &table.to_string())
            .map_err(|error| refused(error.message()))?;
        model.check().map_err(|error| refused(&error.to_string()))?;
        Ok(model)
    }

    fn look_up_names(&self, experiment: &Experiment) -> Resolved<()> {
        for check in &experiment.checks {
            if let Some(flaw) = check.flaw() {
                return Err(self.at(check.metric.span(), flaw));
            }
            for run in [Some(&check.run), check.relative_to.as_ref()]
                .into_iter()
                .flatten()
            {
                let offer = self.offer_of(run, experiment)?;
                self.check_reading(&check.of, &offer, check.metric.span())?;
            }
        }
        for layer in experiment.plots.iter().flat_map(|plot| &plot.layers) {
            let offer = self.offer_of(&layer.run, experiment)?;
            self.known(&layer.series, "series", &offer.series)?;
        }
        Ok(())
    }

    fn offer_of(&self, run: &Spanned<String>, experiment: &Experiment) -> Resolved<Offer> {
        match experiment.run_index(run.get_ref()) {
            Some(index) => Ok(experiment.runs[index].offer()),
            None => {
                let known: Vec<&str> = experiment.runs.iter().map(|run| &*run.name).collect();
                Err(self.unknown(run, "run", &known))
            }
        }
    }

    fn check_reading(&self, reading: &Reading, offer: &Offer, place: Range<usize>) -> Resolved<()> {
        match (&reading.series, &reading.value) {
            (Some(name), None) => self.known(name, "series", &offer.series),
            (None, Some(name)) => self.known(name, "value", &offer.values),
            _ => Err(self.at(place, "a reading needs either `series` or `value`")),
        }
    }

    fn known(&self, name: &Spanned<String>, what: &str, valid: &[String]) -> Resolved<()> {
        if valid.contains(name.get_ref()) {
            return Ok(());
        }
        let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
        Err(self.unknown(name, what, &valid))
    }

    fn unknown(&self, name: &Spanned<String>, what: &str, valid: &[&str]) -> ConfigError {
        let message = format!(
            "unknown {what} `{}`; there are: {}",
            name.get_ref(),
            valid.join(", ")
        );
        self.at(name.span(), message)
    }

    fn at(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, span, message)
    }
}

impl SweepSpec {
    fn value(&self, value: f64) -> Value {
        match &self.unit {
            Some(unit) => Value::String(format!("{value}{unit}")),
            None if value.fract() == 0.0 => Value::Integer(value as i64),
            None => Value::Float(value),
        }
    }
}

/// What can be read of a run's records.
struct Offer {
    series: Vec<String>,
    values: Vec<String>,
}

impl Offer {
    fn of(model: &Model) -> Self {
        Self {
            series: model.series(),
            values: model.values(),
        }
    }
}

impl Run {
    fn offer(&self) -> Offer {
        match &self.shape {
            Shape::Single(model) => Offer::of(model),
            Shape::Sweep { curves, .. } => Offer {
                series: curves.keys().cloned().collect(),
                values: Vec::new(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "paper = 'x'\nfigure = '1'\ntitle = 't'\n\
        [model.m.queue]\nservers = 2\nservice_rate = '10/s'\n";

    fn refused(rest: &str) -> String {
        let text = format!("{HEAD}{rest}");
        resolve("e.toml", &text).unwrap_err().to_string()
    }

    fn accepted(rest: &str) -> Experiment {
        resolve("e.toml", &format!("{HEAD}{rest}")).unwrap()
    }

    #[test]
    fn a_run_is_the_model_with_some_keys_replaced() {
        let experiment = accepted(
            "[[run]]\nname = 'a'\nmodel = 'm'\n[[run]]\nname = 'b'\nmodel = 'm'\nset = { servers = 1 }",
        );
        let value = |run: usize, name: &str| match &experiment.runs[run].shape {
            Shape::Single(model) => model.run(1).unwrap().value(name),
            Shape::Sweep { .. } => f64::NAN,
        };
        assert!((value(1, "max_power_load") - 5.0).abs() < 1e-9);
        assert!(value(0, "max_power_load") > 10.0);
    }

    #[test]
    fn errors_in_a_model_have_their_own_place() {
        let text = HEAD.replace("servers", "sevrers");
        assert_eq!(
            resolve("e.toml", &text).unwrap_err().to_string(),
            "e.toml:5:1: unknown key `sevrers`; did you mean `servers`?"
        );
    }

    #[test]
    fn errors_in_a_variant_are_placed_at_the_run() {
        assert_eq!(
            refused("[[run]]\nname = 'a'\nmodel = 'm'\nset = { sevrers = 1 }"),
            "e.toml:8:8: with `a`: unknown key `sevrers`; did you mean `servers`?"
        );
        assert_eq!(
            refused("[[run]]\nname = 'a'\nmodel = 'm'\nset = { service_rate = '0/s' }"),
            "e.toml:8:8: with `a`: `service_rate` must be above zero"
        );
    }

    #[test]
    fn names_must_exist_before_anything_runs() {
        let run = "[[run]]\nname = 'a'\nmodel = 'm'\n";
        assert_eq!(
            refused("[[run]]\nname = 'a'\nmodel = 'n'\n"),
            "e.toml:9:9: unknown model `n`; there are: m"
        );
        let check = "[[check]]\nmetric = 'x'\nrun = 'b'\nof = { value = 'v' }\nat_least = 1";
        assert_eq!(
            refused(&format!("{run}{check}")),
            "e.toml:12:7: unknown run `b`; there are: a"
        );
        let check = check.replace("'b'", "'a'");
        assert!(refused(&format!("{run}{check}")).contains("unknown value `v`"));
        let check = check.replace("value = 'v'", "series = 's'");
        assert!(
            refused(&format!("{run}{check}")).contains("unknown series `s`; there are: response")
        );
        let check = check.replace("series = 's'", "");
        assert!(refused(&format!("{run}{check}")).contains("either `series` or `value`"));
    }

    #[test]
    fn a_sweep_gives_one_variant_per_value() {
        let sweep = "[[run]]\nname = 'a'\nmodel = 'm'\n\
            sweep = { parameter = 'service_rate', values = [1, 2.5], unit = '/s', x = [10, 25] }\n\
            curves.best = { value = 'max_power_load' }\n";
        let experiment = accepted(sweep);
        let Shape::Sweep { points, .. } = &experiment.runs[0].shape else {
            panic!("a sweep");
        };
        assert_eq!(
            points.iter().map(|point| point.0).collect::<Vec<_>>(),
            [10.0, 25.0]
        );

        assert!(refused(&sweep.replace("[10, 25]", "[10]")).contains("must be as long"));
        assert!(refused(&sweep.replace("service_rate", "servers.x")).contains("no `x` there"));
        assert!(
            refused(&sweep.replace("curves.best = { value = 'max_power_load' }", ""))
                .contains("needs `curves`")
        );
    }

    #[test]
    fn what_can_say_nothing_is_refused() {
        let run = "[[run]]\nname = 'a'\nmodel = 'm'\n";
        assert!(refused(&format!("{run}{run}")).contains("a second run `a`"));
        let check =
            "[[check]]\nmetric = 'x'\nrun = 'a'\nof = { value = 'service_time' }\npaper = 1";
        assert!(refused(&format!("{run}{check}")).contains("give `tolerance`"));
        let none = HEAD.replace("title = 't'", "title = 't'\nrepetitions = 0");
        let error = resolve("e.toml", &none).unwrap_err().to_string();
        assert_eq!(error, "e.toml:4:15: at least one repetition is needed");
    }
}
