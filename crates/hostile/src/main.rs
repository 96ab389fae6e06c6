//! Sends hostile requests through a proxy and judges what reaches its upstream.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidegate_hostile::report::HEADING;
use tidegate_hostile::run::{Subject, run};
use tidegate_hostile::{corpus, downgrade, mutate, vector};

/// Sends hostile requests through a proxy and judges what reaches its upstream.
///
/// Without options it tries Tidegate's own data plane. The exit status is 0 only when nothing was
/// found. It sends to addresses that you name and to loopback; use it on your own proxies.
#[derive(Debug, Parser)]
#[command(name = "hostile", version)]
struct Args {
    /// Vectors made by changing known ones at random.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    mutations: usize,
    /// What the changes are drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A directory with more vectors: .jsonl files, each line with `id` and `raw_b64` (what a
    /// client sends) or `header_b64` (a line to put into a request).
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Try a proxy that carries every byte as it came: shows what the judge sees.
    #[arg(long, conflicts_with = "through")]
    careless: bool,
    /// Try the proxy that listens here; it has to lead to the address given with --upstream.
    #[arg(long, value_name = "ADDR", requires = "upstream")]
    through: Option<SocketAddr>,
    /// Where the upstream of that proxy is expected: it is opened by this tool.
    #[arg(long, value_name = "ADDR", requires = "through")]
    upstream: Option<SocketAddr>,
}

impl Args {
    fn subject(&self) -> Subject {
        match (self.through, self.upstream) {
            (Some(proxy), Some(upstream)) => Subject::Other { proxy, upstream },
            _ if self.careless => Subject::Careless,
            _ => Subject::Tidegate,
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    attack(&args).unwrap_or_else(|error| {
        eprintln!("hostile: {error}");
        ExitCode::from(2)
    })
}

fn attack(args: &Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut vectors = vector::own();
    if let Some(dir) = &args.corpus {
        vectors.extend(corpus::load(dir)?);
    }
    let mutated: Vec<_> = mutate::mutations(&vectors, args.seed)
        .take(args.mutations)
        .collect();
    vectors.extend(mutated);
    vectors.extend(downgrade::vectors());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime.block_on(run(args.subject(), vectors.into_iter()))?;
    let examples = report.examples();
    writeln!(
        io::stdout().lock(),
        "{HEADING}\n{report}\nseed {}\n{examples}",
        args.seed
    )?;
    Ok(if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
