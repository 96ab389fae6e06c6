//! `tidegate sim goldens`: what mode `auto` decides, compared with the texts in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_sim::goldens::{self, Case, FOLDER, differences};
use tidegate_sim::report::{Page, Section, write_all};

use crate::check::print;
use crate::error::CliError;
use crate::progress::Shown;
use crate::sim::{Args, origin};

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let folder = Path::new(FOLDER);
    if !folder.is_dir() {
        return Err(CliError::Usage(format!(
            "{FOLDER}: no such directory; run `sim goldens` at the root of the repository"
        )));
    }
    let cases = selected(&args.only)?;
    let progress = Shown::new();
    let texts = goldens::record(&cases, &progress);
    progress.finish();
    let texts = texts.map_err(|error| usage(&error))?;
    let sections = compare(folder, &cases, &texts)?;
    report(args, &sections)?;
    if args.write {
        write(folder, &cases, texts)?;
    }
    Ok(if args.write || sections.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn usage(error: &dyn std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}

/// All cases, or those that were named.
fn selected(only: &[String]) -> Result<Vec<Case>, CliError> {
    let mut cases = goldens::cases()?;
    for name in only {
        if !cases.iter().any(|case| case.name == *name) {
            let known: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
            let known = known.join(", ");
            return Err(CliError::Usage(format!(
                "--only {name}: no such golden; there are: {known}"
            )));
        }
    }
    if !only.is_empty() {
        cases.retain(|case| only.contains(&case.name));
    }
    Ok(cases)
}

/// A section with both pictures for each run that differs.
fn compare(folder: &Path, cases: &[Case], texts: &[String]) -> Result<Vec<Section>, CliError> {
    let mut sections = Vec::new();
    for (case, text) in cases.iter().zip(texts) {
        // A golden that is missing differs from everything.
        let golden = fs::read_to_string(case.path(folder)).unwrap_or_default();
        for found in differences(&golden, text) {
            sections.push(found.section(&case.name).map_err(|error| usage(&error))?);
        }
    }
    Ok(sections)
}

/// A line for each run that differs on standard output, and the page.
fn report(args: &Args, sections: &[Section]) -> Result<(), CliError> {
    let line = |section: &Section| {
        let code = section.code.as_deref().unwrap_or_default();
        format!("{}, after {}\n{code}\n", section.title, section.facts)
    };
    print(&sections.iter().map(line).collect::<String>())?;
    let lead = format!("{} runs differ from the goldens.", sections.len());
    eprintln!("{lead}");
    if sections.is_empty() {
        return Ok(());
    }
    let page = Page {
        title: "What `auto` decides, before and after".to_owned(),
        origin: origin(),
        lead,
        sections: sections.to_vec(),
    };
    let name = PathBuf::from("goldens.html");
    write_all(&args.out, &[(name.clone(), page.html())]).map_err(|error| usage(&error))?;
    eprintln!("report: {}", args.out.join(name).display());
    Ok(())
}

fn write(folder: &Path, cases: &[Case], texts: Vec<String>) -> Result<(), CliError> {
    let path = |case: &Case| case.path(Path::new(""));
    let files: Vec<(PathBuf, String)> = cases.iter().map(path).zip(texts).collect();
    write_all(folder, &files).map_err(|error| usage(&error))?;
    eprintln!("written: {} files in {FOLDER}", files.len());
    Ok(())
}
