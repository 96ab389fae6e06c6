//! How a load is going: a bar on a terminal, a line per second otherwise; on standard error.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_lab::load::Second;

pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines,
}

impl Progress {
    /// A bar of `duration` when standard error is a terminal.
    pub(crate) fn new(duration: Duration) -> Self {
        if !stderr().is_terminal() {
            return Self::Lines;
        }
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let seconds = duration.as_secs_f64().ceil() as u64;
        Self::Bar(ProgressBar::new(seconds).with_style(style))
    }

    pub(crate) fn on_second(&mut self, second: &Second) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(second.second + 1);
                bar.set_message(line(second));
            }
            Self::Lines => eprintln!("{:>4} s  {}", second.second + 1, line(second)),
        }
    }

    /// Removes the bar, so that the report stands on its own.
    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn line(second: &Second) -> String {
    let mut line = format!(
        "offered {}, in time {}",
        second.offered, second.within_target
    );
    let late = second.ok - second.within_target;
    for (name, count) in [
        ("late", late),
        ("shed", second.shed),
        ("timeout", second.timeouts),
        ("error", second.errors),
        ("unsent", second.unsent),
    ] {
        if count > 0 {
            line += &format!(", {name} {count}");
        }
    }
    if let Some(latency) = second.latency {
        line += &format!(
            ", p50 {:.0} ms, p99 {:.0} ms",
            latency.p50_ms, latency.p99_ms
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_only_what_happened() {
        let second = Second {
            offered: 10,
            ok: 7,
            within_target: 5,
            timeouts: 3,
            ..Second::default()
        };
        assert_eq!(line(&second), "offered 10, in time 5, late 2, timeout 3");
    }
}
