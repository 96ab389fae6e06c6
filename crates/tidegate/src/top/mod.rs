//! `tidegate top`: the state of a running proxy, live in a terminal.

mod screen;
mod view;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use serde_json::Value;

use crate::admin_client::{Admin, application};
use crate::check::print;
use crate::ctl::show::text;
use crate::error::CliError;
use crate::runtime;
use view::{Ui, plain};

/// Width without a terminal.
const PIPE_COLUMNS: u16 = 100;

/// Shows what a running proxy does: overloaded or not and since when, capacity, classes, replicas.
///
/// Keys: q quit, ? help, / filter, i why a request was refused, s sort, p pause, arrows scroll.
/// Without a terminal, or with --once, one picture is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: Admin,
    /// Which application, where the proxy has several.
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Say why the request was refused that has this x-request-id.
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
    async fn look(&self) -> Result<Value, CliError> {
        let status = self.admin.get("/api/status").await?;
        application(&status, self.application.as_deref()).cloned()
    }

    /// In words, why a request was refused, or why that is not known.
    async fn why(&self, id: &str) -> String {
        match self.admin.refusal(id).await {
            Ok(found) => text(&found["words"]).to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let runtime = runtime::current_thread()?;
    let first = runtime.block_on(args.look())?;
    let mut ui = Ui::new(&args.admin.admin);
    if let Some(id) = &args.why {
        ui.answer = Some(runtime.block_on(args.why(id)));
    }
    if args.json {
        print(&format!("{first}\n"))?;
    } else if args.once || !io::stdout().is_terminal() {
        print(&plain(&first, &ui, PIPE_COLUMNS))?;
    } else {
        screen::show(args, &runtime, first, ui)?;
    }
    Ok(ExitCode::SUCCESS)
}
