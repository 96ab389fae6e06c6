//! How far a long computation is: a bar on a terminal, plain lines otherwise.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_sim::experiment::Progress;

/// Progress on standard error.
pub(crate) enum Shown {
    Bar(ProgressBar),
    Lines(Lines),
}

/// A line for every tenth of the work.
#[derive(Default)]
pub(crate) struct Lines {
    total: AtomicUsize,
    done: AtomicUsize,
}

impl Shown {
    /// A bar when standard error is a terminal, lines when it is not.
    pub(crate) fn new() -> Self {
        if stderr().is_terminal() {
            Self::Bar(ProgressBar::no_length().with_style(style()))
        } else {
            Self::Lines(Lines::default())
        }
    }

    /// Removes the bar, so that what follows stands on its own.
    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress for Shown {
    fn start(&self, pieces: usize) {
        match self {
            Self::Bar(bar) => bar.set_length(pieces as u64),
            Self::Lines(lines) => lines.total.store(pieces, Ordering::Relaxed),
        }
    }

    fn done(&self, what: &str) {
        match self {
            Self::Bar(bar) => {
                bar.set_message(what.to_owned());
                bar.inc(1);
            }
            Self::Lines(lines) => lines.done(what),
        }
    }
}

impl Lines {
    fn done(&self, what: &str) {
        let total = self.total.load(Ordering::Relaxed).max(1);
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let tenth = |count: usize| count * 10 / total;
        if tenth(done) > tenth(done - 1) {
            eprintln!("{done} of {total} done ({what})");
        }
    }
}
