//! `tidegate sim ablate`: what every rule and number of mode `auto` is worth.

#[cfg(not(feature = "ablation"))]
pub(crate) use without::run;

#[cfg(feature = "ablation")]
pub(crate) use with::run;

#[cfg(not(feature = "ablation"))]
mod without {
    use std::process::ExitCode;

    use crate::error::CliError;
    use crate::sim::Args;

    pub(crate) fn run(_: &Args) -> Result<ExitCode, CliError> {
        Err(CliError::Usage(
            "this build has the numbers of `auto` as constants, so that none can be changed; build \
             one for `sim ablate`: cargo build --release -p tidegate --features ablation"
                .to_owned(),
        ))
    }
}

#[cfg(feature = "ablation")]
mod with {
    use std::fmt::Display;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::process::ExitCode;
    use std::time::Instant;

    use tidegate_sim::ablate::{self, AblationReport, Case, Change, Row};
    use tidegate_sim::report::write_all;

    use crate::check::print;
    use crate::error::CliError;
    use crate::progress::Shown;
    use crate::sim::{Args, origin};

    /// Seeds of every case when none are asked for; chance is told from two on.
    const REPETITIONS: u32 = 3;

    pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
        let cases = cases(args)?;
        let changes = changes(args)?;
        let first = args.seed.unwrap_or(1);
        let repetitions = args.repetitions.unwrap_or(REPETITIONS);
        if repetitions < 2 {
            return Err(CliError::Usage(
                "--repetitions 1: with one seed nothing can be told from chance; ask for two or \
                 more"
                    .to_owned(),
            ));
        }
        let seeds: Vec<u64> = (0..u64::from(repetitions))
            .map(|offset| first.wrapping_add(offset))
            .collect();
        let origin = origin();
        eprintln!(
            "tidegate {} (commit {}), seeds {seeds:?}: {} cases, {} changes",
            origin.version,
            origin.commit,
            cases.len(),
            changes.len()
        );
        if let Some(jobs) = args.jobs {
            tidegate_sim::ablate::set_jobs(jobs as usize).map_err(|error| usage(&error))?;
        }
        let report = measure(args, &cases, &changes, &seeds)?;
        write(args, &report)?;
        print(&if args.json {
            report.json()
        } else {
            report.table()
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn usage(error: &dyn Display) -> CliError {
        CliError::Usage(error.to_string())
    }

    /// Runs it, and writes each row as soon as it is known: what is interrupted is not lost.
    fn measure(
        args: &Args,
        cases: &[Case],
        changes: &[Change],
        seeds: &[u64],
    ) -> Result<AblationReport, CliError> {
        let path = args.out.join("ablation.jsonl");
        let refused = |source| CliError::File {
            path: path.display().to_string(),
            source,
        };
        fs::create_dir_all(&args.out).map_err(refused)?;
        let mut rows = File::create(&path).map_err(refused)?;
        let begun = Instant::now();
        let budget = args.budget.map(|budget| budget.0);
        let enough = || budget.is_some_and(|budget| begun.elapsed() >= budget);
        let mut failed = None;
        let mut on_row = |row: &Row| {
            if let Err(error) = rows.write_all(row.json().as_bytes()) {
                failed.get_or_insert(error);
            }
        };
        let progress = Shown::new();
        let report = ablate::run(cases, changes, seeds, &progress, &enough, &mut on_row);
        progress.finish();
        match failed {
            Some(error) => Err(refused(error)),
            None => report.map_err(|error| usage(&error)),
        }
    }

    fn write(args: &Args, report: &AblationReport) -> Result<(), CliError> {
        let files = [
            (PathBuf::from("ablation.csv"), report.csv()),
            (PathBuf::from("ablation.md"), report.markdown()),
        ];
        write_all(&args.out, &files).map_err(|error| usage(&error))?;
        eprintln!(
            "written: {}",
            args.out.join("ablation.{csv,jsonl,md}").display()
        );
        Ok(())
    }

    /// All cases, or those that were named.
    fn cases(args: &Args) -> Result<Vec<Case>, CliError> {
        let random = args.random.unwrap_or(0) as usize;
        let mut cases = ablate::cases(random, args.seed.unwrap_or(1))?;
        for name in &args.only {
            if !cases.iter().any(|case| case.name == *name) {
                let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
                let known = known.join(", ");
                return Err(CliError::Usage(format!(
                    "--only {name}: no such case; there are: {known}"
                )));
            }
        }
        if !args.only.is_empty() {
            cases.retain(|case| args.only.contains(&case.name));
        }
        Ok(cases)
    }

    /// Rules, numbers or both; of them those that were named.
    fn changes(args: &Args) -> Result<Vec<Change>, CliError> {
        let both = args.rules == args.constants;
        let mut changes = Vec::new();
        if both || args.rules {
            changes.extend(ablate::changes_of_rules());
        }
        if both || args.constants {
            changes.extend(ablate::changes_of_constants());
        }
        for text in &args.change {
            if !changes.iter().any(|change| change.name().contains(text)) {
                let known: Vec<String> = changes.iter().map(Change::name).collect();
                let known = known.join(", ");
                return Err(CliError::Usage(format!(
                    "--change {text}: no change has this in its name; there are: {known}"
                )));
            }
        }
        if !args.change.is_empty() {
            let named = |change: &Change| {
                let name = change.name();
                args.change.iter().any(|text| name.contains(text))
            };
            changes.retain(named);
        }
        Ok(changes)
    }
}
