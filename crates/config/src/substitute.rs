//! Environment variables in a file: `${NAME}` and `${NAME:-default}`.
//!
//! References are replaced before the text is parsed, so that they may stand for numbers as well as
//! inside strings. A value cannot break out of where it stands: inside `"…"` it is escaped, inside
//! `'…'` it may hold no quote, and outside of strings it has to be a number, `true` or `false`.
//! Comments are left alone. `$${` is a plain `${`. Places of errors lead back to the original text.

use std::fmt::Write;
use std::ops::Range;

/// A text whose references are replaced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Substituted {
    pub(crate) text: String,
    pieces: Vec<Piece>,
}

/// Bytes of the new text that stand for bytes of the original.
#[derive(Debug, Clone)]
struct Piece {
    new: Range<usize>,
    old: Range<usize>,
}

impl Substituted {
    /// Where a place of the new text is in the original.
    pub(crate) fn original(&self, offset: usize) -> usize {
        let after = self.pieces.partition_point(|it| it.new.start <= offset);
        match after.checked_sub(1).map(|last| &self.pieces[last]) {
            None => offset,
            Some(piece) if offset < piece.new.end => piece.old.start,
            Some(piece) => offset - piece.new.end + piece.old.end,
        }
    }
}

/// A reference that cannot be replaced: where, and why.
pub(crate) type Refused = (Range<usize>, String);

/// Replaces all references in `text` by what `lookup` knows of them.
pub(crate) fn substitute(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> (Substituted, Vec<Refused>) {
    let mut done = Substituted::default();
    let mut refused = Vec::new();
    let mut context = Context::Plain;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if context != Context::Comment && rest.starts_with("$${") {
            done.replace(at..at + 3, "${");
            at += 3;
        } else if context != Context::Comment && rest.starts_with("${") {
            let (end, value) = reference(rest, context, lookup);
            match value {
                Ok(value) => done.replace(at..at + end, &value),
                Err(why) => {
                    refused.push((at..at + end, why));
                    done.replace(at..at + end, "0");
                }
            }
            at += end;
        } else {
            let (length, next) = context.step(rest);
            done.text.push_str(&rest[..length]);
            context = next;
            at += length;
        }
    }
    (done, refused)
}

impl Substituted {
    fn replace(&mut self, old: Range<usize>, by: &str) {
        let start = self.text.len();
        self.text.push_str(by);
        let new = start..self.text.len();
        self.pieces.push(Piece { new, old });
    }
}

/// What surrounds a place of a TOML text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    Plain,
    Comment,
    Basic,
    Literal,
    MultiBasic,
    MultiLiteral,
}

impl Context {
    /// The bytes of the next token, and what surrounds the one after it.
    fn step(self, rest: &str) -> (usize, Self) {
        let next = rest.chars().next().map_or(1, char::len_utf8);
        let begins = |token: &str| rest.starts_with(token);
        match self {
            Self::Plain if begins("#") => (1, Self::Comment),
            Self::Plain if begins("\"\"\"") => (3, Self::MultiBasic),
            Self::Plain if begins("'''") => (3, Self::MultiLiteral),
            Self::Plain if begins("\"") => (1, Self::Basic),
            Self::Plain if begins("'") => (1, Self::Literal),
            // No string of one line, and no comment, goes on in the next.
            Self::Comment | Self::Basic | Self::Literal if begins("\n") => (1, Self::Plain),
            Self::Basic | Self::MultiBasic if begins("\\") => (escape(rest), self),
            Self::Basic if begins("\"") => (1, Self::Plain),
            Self::Literal if begins("'") => (1, Self::Plain),
            Self::MultiBasic if begins("\"\"\"") => (3, Self::Plain),
            Self::MultiLiteral if begins("'''") => (3, Self::Plain),
            _ => (next, self),
        }
    }

    /// The value as it may stand here.
    fn quote(self, name: &str, value: &str) -> Result<String, String> {
        let refuse = |why| Err(format!("the value of `{name}` {why}"));
        match self {
            Self::Basic | Self::MultiBasic => Ok(escaped(value)),
            Self::Literal | Self::MultiLiteral if value.contains(['\'', '\n', '\r']) => {
                refuse("holds a quote or a line break; write the string with \"…\"")
            }
            Self::Plain if !is_bare(value) => {
                refuse("is neither a number nor true or false; write it in quotes: \"${…}\"")
            }
            _ => Ok(value.to_owned()),
        }
    }
}

/// A backslash and what it escapes.
fn escape(rest: &str) -> usize {
    rest.chars().take(2).map(char::len_utf8).sum()
}

fn is_bare(value: &str) -> bool {
    let number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_' | '+' | '-');
    matches!(value, "true" | "false") || (!value.is_empty() && value.chars().all(number))
}

fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                write!(out, "\\u{:04X}", u32::from(c)).expect("writing to a string cannot fail");
            }
            c => out.push(c),
        }
    }
    out
}

/// The bytes of the reference at the beginning of `rest`, and what it stands for.
fn reference(
    rest: &str,
    context: Context,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> (usize, Result<String, String>) {
    let line = rest.split('\n').next().unwrap_or(rest);
    let Some(close) = line.find('}') else {
        let why = "`${` has no `}` in its line; close it, or write `$${` for a plain `${`";
        return (2, Err(why.to_owned()));
    };
    let inner = &line[2..close];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    (close + 1, value(name, default, context, lookup))
}

/// As in a shell, a default counts for a variable that is empty as well.
fn value(
    name: &str,
    default: Option<&str>,
    context: Context,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(in_name)
    {
        return Err(format!(
            "`{name}` is no name of an environment variable; write `${{NAME}}` or \
             `${{NAME:-default}}`, or `$${{` for a plain `${{`"
        ));
    }
    match (
        lookup(name).filter(|it| default.is_none() || !it.is_empty()),
        default,
    ) {
        (Some(value), _) => context.quote(name, &value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the environment variable `{name}` is not set; set it, or write `${{{name}:-default}}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "PORT" => Some("8080".to_owned()),
            "EMPTY" => Some(String::new()),
            "EVIL" => Some("a\"\n[admin]\\".to_owned()),
            "QUOTE" => Some("it's".to_owned()),
            _ => None,
        }
    }

    fn replaced(text: &str) -> String {
        let (done, refused) = substitute(text, &lookup);
        assert!(refused.is_empty(), "{refused:?}");
        done.text
    }

    fn refusal(text: &str) -> String {
        let (_, refused) = substitute(text, &lookup);
        refused.into_iter().map(|(_, why)| why).collect()
    }

    #[test]
    fn references_stand_in_strings_and_for_numbers() {
        assert_eq!(replaced("a = ${PORT}"), "a = 8080");
        assert_eq!(replaced("a = \":${PORT}\""), "a = \":8080\"");
        assert_eq!(replaced("a = ':${PORT}'"), "a = ':8080'");
        assert_eq!(replaced("a = '${NONE:-x y}'"), "a = 'x y'");
        assert_eq!(replaced("a = '${EMPTY:-x}'"), "a = 'x'");
        assert_eq!(replaced("a = '${EMPTY}'"), "a = ''");
        assert_eq!(
            replaced("a = '$${PORT}' # ${NONE}"),
            "a = '${PORT}' # ${NONE}"
        );
        assert_eq!(replaced("a = \"\\\"#${PORT}\""), "a = \"\\\"#8080\"");
        assert_eq!(
            replaced("a = \"\"\"x\"${PORT}\"\"\"\nb = ${PORT}"),
            "a = \"\"\"x\"8080\"\"\"\nb = 8080"
        );
    }

    #[test]
    fn value_cannot_break_out_of_its_string() {
        assert_eq!(
            replaced("a = \"${EVIL}\""),
            "a = \"a\\\"\\u000A[admin]\\\\\""
        );
        assert!(refusal("a = '${EVIL}'").contains("holds a quote"));
        assert!(refusal("a = '''${QUOTE}'''").contains("holds a quote"));
        assert!(refusal("a = ${EVIL}").contains("write it in quotes"));
    }

    #[test]
    fn what_cannot_be_replaced_names_the_remedy() {
        assert!(refusal("a = '${NONE}'").contains("`${NONE:-default}`"));
        assert!(refusal("a = '${PORT'\n}").contains("close it"));
        assert!(refusal("a = '${a b}'").contains("no name"));
        assert!(refusal("a = '${}'").contains("no name"));
    }

    #[test]
    fn places_lead_back_to_the_original() {
        let text = "a = '${PORT}' + '${NONE:-}' + x";
        let (done, _) = substitute(text, &lookup);
        assert_eq!(done.text, "a = '8080' + '' + x");
        let place = |part: &str| &text[done.original(done.text.find(part).unwrap())..];
        assert!(place("x").starts_with('x'));
        assert!(place("8080").starts_with("${PORT}"));
        assert!(place("a =").starts_with("a ="));
        assert!(place("' + ''").starts_with("' + '${NONE"));
    }
}
