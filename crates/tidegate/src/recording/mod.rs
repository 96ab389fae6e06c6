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
        /// Of this application alone.
        #[arg(long, value_name = "NAME")]
        application: Option<String>,
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
    warn_of(&recording);
    Ok(recording)
}

/// The same, with the requests left in the files: they may not fit into memory.
fn outline(path: &Path, with_events: bool) -> Result<Recording, CliError> {
    let recording = Recording::outline(path, with_events)?;
    warn_of(&recording);
    Ok(recording)
}

/// A recording with one application of it, where one is named.
///
/// # Errors
/// A name that none has.
pub(crate) fn of_application(
    mut recording: Recording,
    name: Option<&str>,
) -> Result<Recording, CliError> {
    if let Some(name) = name {
        let unknown = |known: Vec<String>| no_application(name, &known);
        recording.retain_application(name).map_err(unknown)?;
    }
    Ok(recording)
}

fn no_application(name: &str, known: &[String]) -> CliError {
    CliError::Usage(format!(
        "--application {name}: the recording has {}",
        match known {
            [] => "no names of applications; leave the flag out".to_owned(),
            known => known.join(", "),
        }
    ))
}

fn warn_of(recording: &Recording) {
    for problem in &recording.problems {
        eprintln!("warning: {problem}");
    }
    match recording.lost() {
        0 => {}
        lost => eprintln!("warning: {lost} requests and events were lost while recording"),
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    match &args.command {
        Command::Info { recording, json } => {
            print(&info::text(&outline(recording, false)?, *json)?)?;
        }
        Command::Export {
            recording,
            format,
            events,
            out,
        } => {
            let recording = outline(recording, *events)?;
            write_table(&recording, *format, *events, out.as_deref())?;
        }
        Command::Cut {
            recording,
            from,
            to,
            application,
            no_names,
            out,
        } => {
            let part = Part {
                from: *from,
                to: *to,
                application: application.as_deref(),
                no_names: *no_names,
            };
            cut(&outline(recording, true)?, &part, out)?;
        }
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

/// What is cut out of a recording.
struct Part<'a> {
    from: Dur,
    to: Option<Dur>,
    application: Option<&'a str>,
    no_names: bool,
}

/// Requests after which a part is written to its file.
const WRITE_EVERY: u64 = 100_000;

fn cut(recording: &Recording, part: &Part<'_>, out: &Path) -> Result<(), CliError> {
    if part.to.is_some_and(|to| to.0 <= part.from.0) {
        return Err(CliError::Usage(
            "--to has to be later than --from".to_owned(),
        ));
    }
    let known = &recording.meta.tables.applications;
    let application = match part.application {
        None => None,
        Some(name) => match known.iter().position(|known| known == name) {
            Some(at) => Some((at, name)),
            None => return Err(no_application(name, known)),
        },
    };
    let micros = |time: Dur| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (first, _) = recording.span_us();
    let begin = first.saturating_add(micros(part.from));
    let end = (part.to).map_or(u64::MAX, |to| first.saturating_add(micros(to)));
    let is_kept = |request: &Request| {
        let own = application.is_none_or(|(at, _)| usize::from(request.application) == at);
        own && (begin..end).contains(&request.at_us)
    };
    // Looked at first: a file that would stay empty is not made.
    let mut count = 0_u64;
    recording.each(|request| {
        count += u64::from(is_kept(request));
        Ok::<(), RecordError>(())
    })?;
    if count == 0 {
        return Err(CliError::Usage(format!(
            "nothing is left: the recording is {:.1} s long",
            recording.seconds()
        )));
    }
    let failed = file_error(out);
    let mut writer = FileWriter::create_file(out, recording.meta.clone()).map_err(&failed)?;
    for (kind, hash, name) in recording.names.iter().filter(|_| !part.no_names) {
        writer.name(kind, hash, name);
    }
    writer.lost(recording.lost());
    let events = recording.events.iter();
    events
        .filter(|event| (begin..end).contains(&event.at_us))
        .filter(|event| application.is_none_or(|(_, name)| event.concerns(name)))
        .for_each(|event| writer.event(event));
    let mut written = 0_u64;
    recording
        .each(|request| {
            if is_kept(request) {
                writer.request(*request);
                written += 1;
                if written.is_multiple_of(WRITE_EVERY) {
                    writer.flush()?;
                }
            }
            Ok::<(), io::Error>(())
        })
        .map_err(&failed)?;
    writer.finish().map_err(&failed)?;
    eprintln!("{written} requests in {}", out.display());
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
