//! Lines for whoever runs the proxy.

use std::fmt::Display;
use std::io::{Write, stderr};

/// One line on standard error. Where that is a file on a full disk, or a pipe that nobody reads any
/// more, the line is lost: `eprintln!` would end the thread that has something to say.
pub fn notice(line: impl Display) {
    let _ = writeln!(stderr(), "tidegate: {line}");
}
