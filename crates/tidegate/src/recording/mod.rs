//! `tidegate recording`: looks at recordings, cuts them, and turns them into tables and back.

mod info;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_config::Dur;
use tidegate_record::{FileWriter, RecordError, Recording, Request, export, import};
use tidegate_sentry::policing::PathHasher;

use crate::check::print;
use crate::error::CliError;

/// Looks at recordings, cuts them, and turns them into tables; access logs become recordings.
///
/// docs/recording.md describes the format.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What is in it: how long, how many, by class and ending, and what could not be read.
    Info {
        /// A file, or a directory with the files of a recording.
        #[arg(value_name = "FILE|DIR")]
        recording: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Writes a table with one row per request.
    Export {
        /// A file, or a directory with the files of a recording.
        #[arg(value_name = "FILE|DIR")]
        recording: PathBuf,
        /// How it is written.
        #[arg(long, value_enum, default_value = "csv")]
        format: Table,
        /// With `--format jsonl`: events too (controller steps, windows, health, configuration).
        #[arg(long)]
        events: bool,
        /// Where to; standard output if not given.
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Writes a part of it as a recording of its own.
    Cut {
        /// A file, or a directory with the files of a recording.
        #[arg(value_name = "FILE|DIR")]
        recording: PathBuf,
        /// From so long after its first arrival.
        #[arg(long, value_name = "DURATION", default_value = "0s")]
        from: Dur,
        /// Until so long after its first arrival; to its end if not given.
        #[arg(long, value_name = "DURATION")]
        to: Option<Dur>,
        /// Leave the names of paths and tenants out; their hashes stay.
        #[arg(long)]
        no_names: bool,
        /// The file to write, which must not exist.
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Makes a recording of an access log of nginx, HAProxy or Tidegate.
    Import {
        /// The log; `-` is standard input.
        #[arg(value_name = "LOG")]
        log: PathBuf,
        /// Whose log it is; found by its first line if not given.
        #[arg(long, value_enum)]
        format: Option<Log>,
        /// Leave the names of paths out; their hashes stay.
        #[arg(long)]
        no_names: bool,
        /// The file to write, which must not exist.
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// A kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// Comma-separated values with a heading.
    Csv,
    /// One JSON object per line.
    Jsonl,
    /// Apache Parquet, where the binary was built with the feature `parquet`.
    Parquet,
}

/// Whose access log.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Log {
    /// nginx: combined, with `$request_time $upstream_response_time` behind it.
    Nginx,
    /// HAProxy: `option httplog`.
    Haproxy,
    /// Tidegate: JSON.
    Tidegate,
}

impl From<RecordError> for CliError {
    fn from(error: RecordError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Opens a recording and says what of it could not be read.
pub(crate) fn open(path: &Path) -> Result<Recording, CliError> {
    let recording = Recording::open(path)?;
    for problem in &recording.problems {
        eprintln!("warning: {problem}");
    }
    match recording.lost() {
        0 => {}
        lost => eprintln!("warning: {lost} requests and events were lost while recording"),
    }
    Ok(recording)
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match &args.command {
        Command::Info { recording, json } => print(&info::text(&open(recording)?, *json))?,
        Command::Export {
            recording,
            format,
            events,
            out,
        } => write_table(&open(recording)?, *format, *events, out.as_deref())?,
        Command::Cut {
            recording,
            from,
            to,
            no_names,
            out,
        } => cut(&open(recording)?, *from, *to, *no_names, out)?,
        Command::Import {
            log,
            format,
            no_names,
            out,
        } => read_log(log, *format, *no_names, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> CliError + '_ {
    |source| CliError::File {
        path: path.display().to_string(),
        source,
    }
}

fn write_table(
    recording: &Recording,
    format: Table,
    events: bool,
    out: Option<&Path>,
) -> Result<(), CliError> {
    if events && format != Table::Jsonl {
        return Err(CliError::Usage(
            "--events: a table has rows of requests only; add `--format jsonl`".to_owned(),
        ));
    }
    if format == Table::Parquet && cfg!(not(feature = "parquet")) {
        return Err(CliError::Usage(
            "this binary was built without Parquet; build it with `--features parquet`, or use \
             `--format csv`"
                .to_owned(),
        ));
    }
    let shown = out.unwrap_or(Path::new("standard output"));
    let output: Box<dyn Write + Send> = match out {
        Some(path) => Box::new(File::create(path).map_err(file_error(path))?),
        None => Box::new(io::stdout()),
    };
    let output = BufWriter::new(output);
    let written = match format {
        Table::Csv => export::csv(recording, output),
        Table::Jsonl => export::json_lines(recording, events, output),
        Table::Parquet => parquet(recording, output),
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(file_error(shown)(error)),
        _ => Ok(()),
    }
}

#[cfg(feature = "parquet")]
fn parquet(recording: &Recording, out: impl Write + Send) -> io::Result<()> {
    export::parquet(recording, out)
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Recording, _: impl Write + Send) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn cut(
    recording: &Recording,
    from: Dur,
    to: Option<Dur>,
    no_names: bool,
    out: &Path,
) -> Result<(), CliError> {
    let first = recording
        .requests
        .first()
        .map_or(0, |request| request.at_us);
    if to.is_some_and(|to| to.0 <= from.0) {
        return Err(CliError::Usage(
            "--to has to be later than --from".to_owned(),
        ));
    }
    let micros = |time: Dur| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let begin = first.saturating_add(micros(from));
    let end = to.map_or(u64::MAX, |to| first.saturating_add(micros(to)));
    let kept: Vec<Request> = recording
        .requests
        .iter()
        .filter(|request| (begin..end).contains(&request.at_us))
        .copied()
        .collect();
    if kept.is_empty() {
        return Err(CliError::Usage(format!(
            "nothing is left: the recording is {:.1} s long",
            recording.seconds()
        )));
    }
    let mut writer =
        FileWriter::create_file(out, recording.meta.clone()).map_err(file_error(out))?;
    for (kind, hash, name) in recording.names.iter().filter(|_| !no_names) {
        writer.name(kind, hash, name);
    }
    writer.lost(recording.lost());
    let events = recording.events.iter();
    events
        .filter(|event| (begin..end).contains(&event.at_us))
        .for_each(|event| writer.event(event));
    kept.iter().for_each(|&request| writer.request(request));
    writer.finish().map_err(file_error(out))?;
    eprintln!("{} requests in {}", kept.len(), out.display());
    Ok(())
}

fn read_log(log: &Path, format: Option<Log>, no_names: bool, out: &Path) -> Result<(), CliError> {
    let format = format.map(|format| match format {
        Log::Nginx => import::Format::Nginx,
        Log::Haproxy => import::Format::Haproxy,
        Log::Tidegate => import::Format::Tidegate,
    });
    let random = RandomState::new();
    let hasher = PathHasher::new((random.hash_one(0), random.hash_one(1)), &[]);
    let fold = |target: &str| {
        let name = if no_names {
            String::new()
        } else {
            hasher.name(target)
        };
        (hasher.hash(target).0, name)
    };
    let read = match log.to_str() {
        Some("-") => import::read(io::stdin().lock(), format, fold),
        _ => {
            let file = File::open(log).map_err(file_error(log))?;
            import::read(BufReader::new(file), format, fold)
        }
    };
    let (mut imported, summary) = read.map_err(file_error(log))?;
    for (line, cause) in &summary.refused {
        eprintln!("{}:{line}: {cause}", log.display());
    }
    if summary.requests == 0 {
        return Err(CliError::Usage(format!(
            "{}: no line could be read; name the format with `--format`",
            log.display()
        )));
    }
    if no_names {
        imported.names = tidegate_record::Names::default();
    }
    let program = concat!("tidegate ", env!("CARGO_PKG_VERSION"), ", import");
    import::write(&imported, out, program).map_err(file_error(out))?;
    eprintln!(
        "{} requests in {}; {} lines left out",
        summary.requests,
        out.display(),
        summary.refused_count
    );
    if summary.without_time > 0 {
        eprintln!(
            "{} of them without a response time: a forecast needs the log format with \
             `$request_time` of docs/recording.md",
            summary.without_time
        );
    }
    Ok(())
}
