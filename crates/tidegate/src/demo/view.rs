//! The live view: two charts side by side, redrawn in place once a second.
//!
//! A column is a stretch of time. Its shaded height is what the replicas could have served, its
//! solid height what was answered in time; the shade left over is what was lost.

use std::fmt::Write as _;

use tidegate_lab::load::Second;

use super::script::{CAPACITY, PATIENCE, Script};

/// Columns of one chart; both fit into 80.
const WIDTH: usize = 36;
/// Lines of one chart.
const HEIGHT: usize = 7;
/// Space between the charts.
const GAP: &str = "    ";
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What was possible and not served.
pub(super) const LOST: char = '░';

/// What both sides have done so far.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) without: Vec<Second>,
    pub(super) with: Vec<Second>,
}

impl Board {
    /// Seconds of the script that both sides have finished.
    pub(super) fn seconds(&self, script: Script) -> usize {
        let end = script.duration().as_secs_f64().ceil() as usize;
        self.without.len().min(self.with.len()).min(end)
    }
}

/// One picture of the board.
pub(super) fn frame(script: Script, board: &Board) -> String {
    let mut out = String::new();
    let seconds = board.seconds(script);
    let end = script.duration().as_secs_f64();
    let elapsed = (seconds as f64).min(end);
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "three replicas, {CAPACITY:.0} requests/s together; clients leave after {:.0} s{:>15}",
        PATIENCE.as_secs_f64(),
        format!("{elapsed:.0} of {end:.0} s")
    );
    out.push('\n');
    for line in wrap(script.phase(elapsed).words(), 2 * WIDTH + GAP.len(), 4) {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');
    let _ = writeln!(
        out,
        "{:<WIDTH$}{GAP}{:<WIDTH$}",
        "without protection", "with tidegate"
    );
    let charts = [&board.without, &board.with].map(|side| chart(script, &side[..seconds]));
    for (left, right) in charts[0].iter().zip(&charts[1]) {
        let _ = writeln!(out, "{left}{GAP}{right}");
    }
    let _ = writeln!(out, "{0}{GAP}{0}", "─".repeat(WIDTH));
    let last = |side: &[Second]| seconds.checked_sub(1).map(|at| side[at].clone());
    now(&mut out, script, last(&board.without), last(&board.with));
    let _ = writeln!(out, "\n█ served in time   {LOST} could have been served");
    out
}

/// The numbers of the last second, side by side.
fn now(out: &mut String, script: Script, without: Option<Second>, with: Option<Second>) {
    let (without, with) = (without.unwrap_or_default(), with.unwrap_or_default());
    let possible = script.possible(with.second, with.offered);
    let lines: [&dyn Fn(&Second) -> String; 4] = [
        &|side| {
            let (served, offered) = (side.within_target, side.offered);
            format!("served {served:>4} of {offered:>3} requests/s")
        },
        &|_| format!("possible {possible:>2.0}/s"),
        &|side| format!("shed {:>3}, abandoned {:>3}", side.shed, side.timeouts),
        &|side| match side.latency {
            Some(latency) => format!("time to serve {:.0} ms (p95)", latency.p95_ms),
            None => "time to serve: nothing was served".to_owned(),
        },
    ];
    for line in lines {
        let _ = writeln!(
            out,
            "{:<WIDTH$}{GAP}{:<WIDTH$}",
            line(&without),
            line(&with)
        );
    }
}

/// The lines of one chart, the highest first.
fn chart(script: Script, seconds: &[Second]) -> Vec<String> {
    let columns = columns(script, seconds);
    let line = |from_top: usize| {
        let floor = (HEIGHT - 1 - from_top) as f64;
        columns
            .iter()
            .map(|&(served, possible)| cell(served - floor, possible - floor))
            .collect()
    };
    (0..HEIGHT).map(line).collect()
}

/// What was served and what was possible in each column, in lines of the chart.
fn columns(script: Script, seconds: &[Second]) -> Vec<(f64, f64)> {
    let scale = HEIGHT as f64 / CAPACITY;
    let total = script.duration().as_secs_f64();
    let column = |index: usize| {
        let time = |column: usize| (column as f64 * total / WIDTH as f64) as usize;
        let from = time(index);
        let to = time(index + 1).max(from + 1);
        let Some(stretch) = seconds
            .get(from..to.min(seconds.len()))
            .filter(|s| !s.is_empty())
        else {
            return (0.0, 0.0);
        };
        let count = stretch.len() as f64;
        let served: u64 = stretch.iter().map(|second| second.within_target).sum();
        let possible: f64 = stretch
            .iter()
            .map(|second| script.possible(second.second, second.offered))
            .sum();
        (scale * served as f64 / count, scale * possible / count)
    };
    (0..WIDTH).map(column).collect()
}

/// One character: how much of this line is served, and whether the rest was possible.
fn cell(served: f64, possible: f64) -> char {
    let eighths = (8.0 * served.clamp(0.0, 1.0)).round() as usize;
    match eighths {
        0 if possible >= 0.5 => LOST,
        eighths => EIGHTHS[eighths],
    }
}

/// Breaks text into lines of at most `width`, always `height` of them so that nothing jumps.
fn wrap(text: &str, width: usize, height: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.resize(lines.len().max(height), String::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(served: &[u64]) -> Board {
        let second = |(index, within_target): (usize, u64)| Second {
            second: index as u64,
            offered: 600,
            within_target,
            ..Second::default()
        };
        Board {
            without: served.iter().map(|_| 0).enumerate().map(second).collect(),
            with: served.iter().copied().enumerate().map(second).collect(),
        }
    }

    #[test]
    fn every_frame_has_the_same_height_and_fits_a_terminal() {
        let script = Script::new(true);
        let empty = frame(script, &Board::default());
        let full = frame(script, &board(&[150; 18]));
        assert_eq!(empty.lines().count(), full.lines().count());
        assert!(empty.lines().count() <= 24);
        for line in empty.lines().chain(full.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn what_is_served_is_solid_and_what_is_lost_is_shaded() {
        assert_eq!(cell(1.0, 1.0), '█');
        assert_eq!(cell(0.5, 1.0), '▄');
        assert_eq!(cell(0.0, 1.0), LOST);
        assert_eq!(cell(0.0, 0.2), ' ');
    }

    #[test]
    fn a_side_that_serves_everything_possible_has_no_shade() {
        let script = Script::new(false);
        let board = board(&[150; 10]);
        assert!(!chart(script, &board.with).concat().contains(LOST));
        assert!(chart(script, &board.without).concat().contains(LOST));
    }

    #[test]
    fn words_wrap_and_keep_their_height() {
        assert_eq!(wrap("a bb ccc", 4, 3), ["a bb", "ccc", ""]);
    }
}
