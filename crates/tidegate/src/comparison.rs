//! A comparison in the simulator: every contender on the same seeds, a table and a report.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_sim::arena::ArenaReport;
use tidegate_sim::experiment::Progress;
use tidegate_sim::plane::PlaneReport;
use tidegate_sim::report::Origin;

use crate::check::print;
use crate::error::CliError;
use crate::progress::Shown;
use crate::sim::{Args, origin};

/// Seeds per pair when none are asked for.
const REPETITIONS: u32 = 3;

/// What a comparison found, in each of its forms.
pub(crate) trait Comparison {
    /// As a table for people.
    fn table(&self) -> String;
    /// For programs.
    fn json(&self) -> String;
    /// Writes the page with all of it; returns where it is.
    fn write(&self, folder: &Path, origin: Origin) -> Result<PathBuf, CliError>;
    /// What must not be, where something must not be that was asked for.
    fn breaches(&self, args: &Args) -> Vec<String>;
}

/// Runs a comparison with the seeds that were asked for, prints it and writes its report.
pub(crate) fn run<C: Comparison, E: Display>(
    args: &Args,
    compare: impl FnOnce(&[u64], &dyn Progress) -> Result<C, E>,
) -> Result<ExitCode, CliError> {
    let seeds = seeds(args);
    let origin = origin();
    eprintln!(
        "tidegate {} (commit {}), seeds {seeds:?}",
        origin.version, origin.commit
    );
    let progress = Shown::new();
    let found = compare(&seeds, &progress);
    progress.finish();
    let found = found.map_err(|error| usage(&error))?;
    let page = found.write(&args.out, origin)?;
    print(&if args.json {
        found.json()
    } else {
        found.table()
    })?;
    eprintln!("report: {}", page.display());
    let breaches = found.breaches(args);
    for breach in &breaches {
        eprintln!("{breach}");
    }
    Ok(if breaches.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn seeds(args: &Args) -> Vec<u64> {
    let first = args.seed.unwrap_or(1);
    let count = u64::from(args.repetitions.unwrap_or(REPETITIONS));
    (0..count)
        .map(|offset| first.wrapping_add(offset))
        .collect()
}

fn usage(error: &dyn Display) -> CliError {
    CliError::Usage(error.to_string())
}

macro_rules! comparison {
    ($report:ty, $breaches:expr) => {
        impl Comparison for $report {
            fn table(&self) -> String {
                Self::table(self)
            }

            fn json(&self) -> String {
                Self::json(self)
            }

            fn write(&self, folder: &Path, origin: Origin) -> Result<PathBuf, CliError> {
                Self::write(self, folder, origin).map_err(|error| usage(&error))
            }

            fn breaches(&self, args: &Args) -> Vec<String> {
                let breaches: fn(&Self, &Args) -> Vec<String> = $breaches;
                breaches(self, args)
            }
        }
    };
}

comparison!(ArenaReport, |report, args| if args.room {
    report.refusals()
} else {
    Vec::new()
});
comparison!(PlaneReport, |_, _| Vec::new());
