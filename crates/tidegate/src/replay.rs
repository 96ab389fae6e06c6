//! `tidegate replay`: the recorded calls of the engines again.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use tidegate_sentry::transcript::{Difference, ReplayEnd, Replayed, verify};

use crate::check::print;
use crate::error::CliError;
use crate::recording;

/// Replays the recorded calls of the engines and compares every decision.
///
/// The recording has to be one with `record.decisions = true`. Exit status 0: every decision and
/// every step of the controllers is the recorded one. 1: one differs, and the first is shown. 2:
/// not all could be replayed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A recording: a file, or a directory with its files.
    #[arg(long, value_name = "FILE|DIR", required = true)]
    verify: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let recording = recording::open(&args.verify)?;
    if recording.inputs.is_empty() {
        return Err(CliError::Usage(format!(
            "{}: the calls of the engines are not in this recording; record with \
             `record.decisions = true` from the start of the proxy",
            args.verify.display()
        )));
    }
    let replayed = verify(recording.inputs.iter().map(|block| &**block));
    if args.json {
        let engines: Vec<_> = replayed.iter().map(as_json).collect();
        print(&format!("{:#}\n", json!({ "engines": engines })))?;
    } else {
        let words: String = replayed.iter().map(in_words).collect();
        print(&words)?;
    }
    Ok(ExitCode::from(status(&replayed)))
}

/// A difference counts for more than a hole.
fn status(replayed: &[Replayed]) -> u8 {
    let any = |is: fn(&ReplayEnd) -> bool| replayed.iter().any(|engine| is(&engine.end));
    if any(|end| matches!(end, ReplayEnd::Differs(_))) {
        1
    } else if any(|end| matches!(end, ReplayEnd::Broken { .. })) {
        2
    } else {
        0
    }
}

fn in_words(engine: &Replayed) -> String {
    let Replayed {
        name,
        calls,
        decisions,
        ticks,
        end,
    } = engine;
    let counted = format!("{decisions} decisions and {ticks} ticks of {calls} calls");
    match end {
        ReplayEnd::Same => format!("{name}: the same, {counted}\n"),
        ReplayEnd::Broken { after, why } => format!(
            "{name}: the same up to call {after}, {counted}; then it cannot be replayed: {why}\n"
        ),
        ReplayEnd::Differs(difference) => format!(
            "{name}: differs at call {} ({:.6} s), after {counted} that are the same\n  call      \
             {}\n  recorded  {}\n  replayed  {}\n",
            difference.number,
            difference.at.as_nanos() as f64 / 1e9,
            difference.call,
            difference.recorded,
            difference.replayed
        ),
    }
}

fn as_json(engine: &Replayed) -> Value {
    let (result, place) = match &engine.end {
        ReplayEnd::Same => ("same", Value::Null),
        ReplayEnd::Broken { after, why } => ("broken", json!({ "after_call": after, "why": why })),
        ReplayEnd::Differs(difference) => ("differs", place(difference)),
    };
    json!({
        "application": engine.name,
        "result": result,
        "calls": engine.calls,
        "decisions": engine.decisions,
        "ticks": engine.ticks,
        "at": place,
    })
}

fn place(difference: &Difference) -> Value {
    json!({
        "call_number": difference.number,
        "seconds": difference.at.as_nanos() as f64 / 1e9,
        "call": difference.call,
        "recorded": difference.recorded,
        "replayed": difference.replayed,
    })
}
