//! The live screen: draws, reads keys, asks the proxy once a second.
//!
//! Decision: docs/decisions/0102-terminal.md.

use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::text::Text;
use ratatui::widgets::Paragraph;
use tokio::runtime::Runtime;

use super::Args;
use super::seen::Seen;
use super::view::{Typing, Ui, lines};
use crate::error::CliError;

/// Time between two pictures.
const PICTURE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the proxy until the operator quits.
pub(super) fn show(args: &Args, runtime: &Runtime, first: Seen, ui: Ui) -> Result<(), CliError> {
    let mut terminal = ratatui::init();
    let outcome = watch(args, runtime, first, ui, &mut terminal);
    ratatui::restore();
    outcome
}

fn watch(
    args: &Args,
    runtime: &Runtime,
    mut seen: Seen,
    mut ui: Ui,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Usage(format!("the terminal failed: {error}"));
    let mut due = Instant::now() + PICTURE_INTERVAL;
    loop {
        terminal
            .draw(|frame| {
                let text = Text::from(lines(&seen, &ui, frame.area().width));
                let last = (text.lines.len() as u16).saturating_sub(frame.area().height);
                let page = Paragraph::new(text).scroll((ui.scroll.min(last), 0));
                frame.render_widget(page, frame.area());
            })
            .map_err(failed)?;
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left).map_err(failed)? {
            let event = event::read().map_err(failed)?;
            if let Event::Key(key) = event
                && key.kind == KeyEventKind::Press
                && !on_key(&mut ui, key)
            {
                return Ok(());
            }
            if let Some(id) = ui.asked.take() {
                ui.answer = Some(runtime.block_on(args.why(&id)));
            }
            if std::mem::take(&mut ui.next_application) {
                seen.name = seen.next_name();
                due = Instant::now();
            }
        }
        if Instant::now() >= due {
            due = Instant::now() + PICTURE_INTERVAL;
            if !ui.paused {
                match runtime.block_on(args.look(Some(&seen.name))) {
                    Ok(found) => {
                        seen = found;
                        ui.error = None;
                    }
                    Err(error) => ui.error = Some(error.to_string()),
                }
            }
        }
    }
}

fn on_typed(ui: &mut Ui, typing: Typing, code: KeyCode) {
    let field = match typing {
        Typing::Filter => &mut ui.filter,
        Typing::Request => &mut ui.request,
    };
    match code {
        KeyCode::Enter => {
            ui.typing = None;
            if typing == Typing::Request && !ui.request.is_empty() {
                ui.asked = Some(ui.request.clone());
            }
        }
        KeyCode::Esc => {
            field.clear();
            ui.typing = None;
        }
        KeyCode::Backspace => drop(field.pop()),
        KeyCode::Char(letter) => field.push(letter),
        _ => {}
    }
}

/// False to quit.
fn on_key(ui: &mut Ui, key: KeyEvent) -> bool {
    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    if interrupt {
        return false;
    }
    if let Some(typing) = ui.typing {
        on_typed(ui, typing, key.code);
        return true;
    }
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Esc if ui.help => ui.help = false,
        KeyCode::Esc => {
            ui.filter.clear();
            ui.answer = None;
        }
        KeyCode::Char('?') => ui.help = !ui.help,
        KeyCode::Char('/') => ui.typing = Some(Typing::Filter),
        KeyCode::Char('i') => {
            ui.request.clear();
            ui.typing = Some(Typing::Request);
        }
        KeyCode::Char('a') => ui.next_application = true,
        KeyCode::Char('s') => ui.sort = ui.sort.next(),
        KeyCode::Char('p') => ui.paused = !ui.paused,
        KeyCode::Down => ui.scroll = ui.scroll.saturating_add(1),
        KeyCode::Up => ui.scroll = ui.scroll.saturating_sub(1),
        KeyCode::PageDown => ui.scroll = ui.scroll.saturating_add(20),
        KeyCode::PageUp => ui.scroll = ui.scroll.saturating_sub(20),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(ui: &mut Ui, keys: &str) -> bool {
        let code = |letter| match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        keys.chars()
            .all(|letter| on_key(ui, KeyEvent::new(code(letter), KeyModifiers::NONE)))
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut ui = Ui::new("http://a");
        assert!(
            press(&mut ui, "/qp\n"),
            "letters of a filter are no commands"
        );
        assert_eq!((ui.filter.as_str(), ui.paused), ("qp", false));
        assert!(press(&mut ui, "\x1bp?"));
        assert_eq!((ui.filter.as_str(), ui.paused, ui.help), ("", true, true));
        assert!(press(&mut ui, "\x1biabc\n"));
        assert_eq!(ui.asked.as_deref(), Some("abc"));
        assert!(press(&mut ui, "a") && ui.next_application);
        assert!(!press(&mut ui, "q"));
    }
}
