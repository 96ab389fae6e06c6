//! `tidegate top`: the state of a running proxy, live in a terminal.

mod screen;
mod seen;
mod tables;
mod view;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use crate::admin_client::Admin;
use crate::check::print;
use crate::ctl::show::text;
use crate::error::CliError;
use crate::runtime;
use view::{Ui, plain};

/// Width without a terminal.
const PIPE_COLUMNS: u16 = 100;

/// Shows what a running proxy does: overloaded or not and since when, capacity, classes, replicas,
/// paths, what changed and why, and what would help.
///
/// Keys: q quit, ? help, / filter, i what became of a request, a next application, s sort, p pause,
/// arrows scroll.
/// Without a terminal, or with --once, one picture is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: Admin,
    /// Which application, where the proxy has several.
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Say what became of the request that has this x-request-id.
    #[arg(long, value_name = "ID")]
    why: Option<String>,
    /// Print one picture and end.
    #[arg(long)]
    once: bool,
    /// Print the figures as one JSON object and end.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// In words, what became of a request, or why that is not known.
    async fn why(&self, id: &str) -> String {
        match self.admin.request(id).await {
            Ok(found) => text(&found["words"]).to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let runtime = runtime::current_thread()?;
    let first = runtime.block_on(args.look(None))?;
    let mut ui = Ui::new(&args.admin.admin);
    if let Some(id) = &args.why {
        ui.answer = Some(runtime.block_on(args.why(id)));
    }
    if args.json {
        print(&format!("{}\n", first.application()))?;
    } else if args.once || !io::stdout().is_terminal() {
        print(&plain(&first, &ui, PIPE_COLUMNS))?;
    } else {
        screen::show(args, &runtime, first, ui)?;
    }
    Ok(ExitCode::SUCCESS)
}
