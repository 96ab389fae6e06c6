//! `tidegate reference`: every key of the configuration file, generated from the types.

use std::fmt::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use tidegate_proxy::config::reference;

use crate::Cli;
use crate::check::print;
use crate::error::CliError;

/// Prints every key of the configuration file with its meaning and default.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the page docs/config.md instead of TOML.
    #[arg(long)]
    markdown: bool,
    /// Print the page docs/signals.md: every shed reason, event and metric.
    #[arg(long, conflicts_with = "markdown")]
    signals: bool,
    /// Print the page of the book with every command and its options.
    #[arg(long, conflicts_with_all = ["markdown", "signals"])]
    commands: bool,
    /// Print the page docs/tuning.md: every number of mode `auto`, and what it decides.
    #[arg(long, conflicts_with_all = ["markdown", "signals", "commands"])]
    tuning: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    if args.commands {
        print(&commands())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.tuning {
        print(&tidegate_sentry::tuning_page())?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&match (args.signals, args.markdown) {
        (true, _) => tidegate_proxy::admin::signals::markdown(),
        (false, true) => reference::markdown(),
        (false, false) => reference::toml(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What every command prints with `--help`, as Markdown.
fn commands() -> String {
    let mut page = "# Commands\n\nWhat each command prints with `--help`.\n".to_owned();
    let mut program = Cli::command().term_width(92);
    program.build();
    describe(&mut program, "tidegate", &mut page);
    page
}

fn describe(command: &mut clap::Command, name: &str, page: &mut String) {
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let help = help.join("\n");
    // Writing to a string cannot fail.
    let _ = writeln!(page, "\n## {name}\n\n```text\n{}\n```", help.trim_end());
    let inner = command.get_subcommands_mut();
    for inner in inner.filter(|inner| inner.get_name() != "help") {
        let name = format!("{name} {}", inner.get_name());
        describe(inner, &name, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_commands_has_nested_commands_with_their_options() {
        let page = commands();
        assert!(page.contains("\n## tidegate run\n"), "{page}");
        assert!(page.contains("\n## tidegate channel keygen\n"), "{page}");
        assert!(page.contains("--upstream"), "{page}");
    }
}
