//! `tidegate sim arena`: every contender under every scenario, in the simulator.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use tidegate_sim::arena::{self, Contender, Entry, RandomOptions};
use tidegate_sim::my_service::MyService;

use crate::comparison;
use crate::error::CliError;
use crate::my_service;
use crate::sim::Args;

/// The word for an arrival process that is drawn.
const ANY_ARRIVALS: &str = "any";

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let entries = selected(args)?;
    let mut contenders = contenders(&args.contender)?;
    if args.room && args.contender.is_empty() {
        contenders.retain(Contender::is_ours);
    }
    if args.random.is_some() {
        for entry in &entries {
            eprintln!("{}: {}", entry.name, entry.scenario.title);
        }
    }
    comparison::run(args, |seeds, progress| {
        arena::run(&entries, &contenders, seeds, progress)
    })
}

/// All scenarios, or those that were named.
fn selected(args: &Args) -> Result<Vec<Entry>, CliError> {
    let only = &args.only;
    let options = RandomOptions {
        arrivals: drawn_arrivals(args)?,
        room: args.room,
    };
    let mut entries = match (&args.scenarios, args.random) {
        (Some(dir), _) => read(dir)?,
        (None, Some(count)) => {
            arena::random_entries(count as usize, args.seed.unwrap_or(1), options)?
        }
        (None, None) => arena::entries()?,
    };
    for name in only {
        if !entries.iter().any(|entry| entry.name == *name) {
            let known: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let known = known.join(", ");
            return Err(CliError::Usage(format!(
                "--only {name}: no such scenario; there are: {known}"
            )));
        }
    }
    if !only.is_empty() {
        entries.retain(|entry| only.contains(&entry.name));
    }
    Ok(entries)
}

/// Whether an arrival process is drawn for each random service.
fn drawn_arrivals(args: &Args) -> Result<bool, CliError> {
    match (args.arrivals.as_deref(), args.random) {
        (None, _) => Ok(false),
        (Some(ANY_ARRIVALS), Some(_)) => Ok(true),
        (Some(other), Some(_)) => Err(CliError::Usage(format!(
            "--arrivals {other}: random services take `any`, a process drawn for each"
        ))),
        (Some(_), None) => Err(CliError::Usage(
            "--arrivals: scenarios have arrivals of their own; use it with `--random N`, or write \
             them into the `load` of a file for `--scenarios`"
                .to_owned(),
        )),
    }
}

/// The scenario files of a directory: scenarios, or services in a few keys.
fn read(dir: &Path) -> Result<Vec<Entry>, CliError> {
    let refused = |source| CliError::File {
        path: dir.display().to_string(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(CliError::Usage(format!(
            "{}: no file in this directory ends in .toml",
            dir.display()
        )));
    }
    let entries: Result<Vec<_>, _> = files.iter().map(|file| entries(file)).collect();
    Ok(entries?.concat())
}

/// The scenario of a file, or one for each of its applications.
fn entries(file: &Path) -> Result<Vec<Entry>, CliError> {
    let shown = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|source| CliError::File {
        path: shown.clone(),
        source,
    })?;
    let parsed = Entry::parse(&shown, &text);
    let entries = match (parsed, my_service::is_service(&text)) {
        (Ok(entry), _) => vec![entry],
        (Err(_), true) => {
            let service: MyService = tidegate_config::parse(&shown, &text)?;
            let file = file.file_stem().unwrap_or_default().to_string_lossy();
            let usage =
                |error: &dyn std::fmt::Display| CliError::Usage(format!("{shown}: {error}"));
            let applications = service.applications().map_err(|error| usage(&error))?;
            let entry = |(name, service): (Option<&str>, MyService)| {
                let scenario = service.scenario("none").map_err(|error| usage(&error))?;
                let name = name.map_or_else(|| file.to_string(), |name| format!("{file}/{name}"));
                Ok(Entry { name, scenario })
            };
            applications
                .into_iter()
                .map(entry)
                .collect::<Result<_, CliError>>()?
        }
        (Err(error), false) => return Err(error.into()),
    };
    if entries.iter().all(|entry| entry.scenario.target.is_some()) {
        return Ok(entries);
    }
    Err(CliError::Usage(format!(
        "{shown}: without a `target` there is nothing to compare by; add one"
    )))
}

/// All contenders, or those that were named.
pub(crate) fn contenders(only: &[String]) -> Result<Vec<Contender>, CliError> {
    let mut all = arena::contenders();
    if let Some(unknown) = only
        .iter()
        .find(|name| !all.iter().any(|c| c.name == name.as_str()))
    {
        let known: Vec<&str> = all.iter().map(|contender| contender.name).collect();
        return Err(CliError::Usage(format!(
            "--contender {unknown}: no such contender; there are: {}",
            known.join(", ")
        )));
    }
    if !only.is_empty() {
        all.retain(|contender| only.iter().any(|name| name == contender.name));
    }
    Ok(all)
}
