//! Where the demo is shown while it runs: drawn in place on a terminal, told in lines elsewhere.

use std::io::{IsTerminal as _, Write as _, stdout};

use super::script::{Phase, Script};
use super::view::{Board, LOST, frame};

/// Without a terminal a line appears this often, in seconds.
const LINE_EVERY: usize = 3;

#[derive(Debug)]
pub(super) struct Screen {
    script: Script,
    board: Board,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Height of the last frame, to go back up.
    Live {
        height: usize,
    },
    /// The phase that was announced last.
    Lines {
        announced: Option<Phase>,
    },
    Silent,
}

impl Screen {
    pub(super) fn new(script: Script, silent: bool) -> Self {
        let kind = match (silent, stdout().is_terminal()) {
            (true, _) => Kind::Silent,
            (false, true) => Kind::Live { height: 0 },
            (false, false) => Kind::Lines { announced: None },
        };
        Self {
            script,
            board: Board::default(),
            kind,
        }
    }

    /// Takes what `update` adds to the board, and shows it once both sides are as far.
    pub(super) fn update(&mut self, update: impl FnOnce(&mut Board)) {
        let before = self.board.seconds(self.script);
        update(&mut self.board);
        let after = self.board.seconds(self.script);
        if after == 0 || after > before {
            self.show();
        }
    }

    fn show(&mut self) {
        let text = match &mut self.kind {
            Kind::Silent => return,
            Kind::Live { height } => {
                let frame = frame(self.script, &self.board);
                let up = match *height {
                    0 => String::new(),
                    height => format!("\x1b[{height}A\x1b[J"),
                };
                *height = frame.lines().count();
                up + &paint(&frame)
            }
            Kind::Lines { announced } => lines(self.script, &self.board, announced),
        };
        // A reader that has gone away is no reason to end the demo.
        let mut out = stdout().lock();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }
}

/// Served in green, lost in red; not where the environment asks for no colours (no-color.org).
fn paint(frame: &str) -> String {
    const GREEN: &str = "\x1b[32m";
    const RED: &str = "\x1b[31m";
    const PLAIN: &str = "\x1b[39m";
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return frame.to_owned();
    }
    let colour = |character| match character {
        LOST => RED,
        '▁'..='█' => GREEN,
        _ => PLAIN,
    };
    let mut painted = String::with_capacity(2 * frame.len());
    let mut current = PLAIN;
    for character in frame.chars() {
        if colour(character) != current {
            current = colour(character);
            painted += current;
        }
        painted.push(character);
    }
    painted
}

/// The words of a phase that begins, and from time to time the numbers.
fn lines(script: Script, board: &Board, announced: &mut Option<Phase>) -> String {
    let seconds = board.seconds(script);
    let phase = script.phase(seconds as f64);
    let mut text = String::new();
    if *announced != Some(phase) {
        *announced = Some(phase);
        text += &format!("\n{}\n", phase.words());
    }
    if seconds > 0 && seconds.is_multiple_of(LINE_EVERY) {
        let (without, with) = (&board.without[seconds - 1], &board.with[seconds - 1]);
        text += &format!(
            "{seconds:>4} s: {:>3} requests, {:>3.0} could be served; in time {:>3} without, {:>3} with Tidegate\n",
            with.offered,
            script.possible(with.second, with.offered),
            without.within_target,
            with.within_target,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_lab::load::Second;

    #[test]
    fn lines_announce_each_phase_once() {
        let script = Script::new(true);
        let mut board = Board::default();
        let mut announced = None;
        let mut text = lines(script, &board, &mut announced);
        for second in 0..18 {
            let row = Second {
                second,
                ..Second::default()
            };
            board.without.push(row.clone());
            board.with.push(row);
            text += &lines(script, &board, &mut announced);
        }
        for phase in [
            Phase::Calm,
            Phase::CrowdComes,
            Phase::HalfCapacity,
            Phase::After,
        ] {
            assert_eq!(text.matches(phase.words()).count(), 1, "{phase:?}");
        }
        assert_eq!(text.matches(" s: ").count(), 6);
    }
}
