//! Numbers, times and matrices from flags and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_config::{ConfigError, Dur};
use tidegate_control::system::{Matrix, SystemError, matrix};

use crate::error::CliError;

/// Where the numbers come from and how the answer is printed; the same for every tool.
#[derive(Debug, clap::Args)]
pub(super) struct Common {
    /// TOML file with the same names as the flags (`integral_time` for --integral-time); a flag
    /// given as well wins.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(super) json: bool,
}

impl Common {
    /// What the file has; nothing when there is none.
    pub(super) fn file_input<T: DeserializeOwned + Default>(&self) -> Result<T, CliError> {
        let Some(path) = &self.file else {
            return Ok(T::default());
        };
        let text = read(path)?;
        Ok(tidegate_config::parse(&path.display().to_string(), &text)?)
    }
}

pub(super) fn read(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|source| CliError::File {
        path: path.display().to_string(),
        source,
    })
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(|source| CliError::File {
        path: path.display().to_string(),
        source,
    })
}

/// A library's refusal, with the tool that asked.
pub(super) fn refused(tool: &str, error: &dyn std::error::Error) -> CliError {
    CliError::Usage(format!("design {tool}: {error}"))
}

/// A number that the tool cannot do without.
pub(super) fn required<T>(value: Option<T>, tool: &str, flag: &str) -> Result<T, CliError> {
    let key = flag.replace('-', "_");
    value.ok_or_else(|| {
        CliError::Usage(format!(
            "design {tool}: --{flag} is missing (or `{key}` in the file)"
        ))
    })
}

/// A length of time: a number of seconds, or text with a unit (`"250ms"`).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub(super) struct Seconds(pub(super) f64);

impl Seconds {
    /// Its value, when time can pass in it.
    pub(super) fn positive(self, tool: &str, flag: &str) -> Result<f64, CliError> {
        if self.0.is_finite() && self.0 > 0.0 {
            return Ok(self.0);
        }
        let message = format!(
            "design {tool}: --{flag} is {}, but must be above zero",
            self.0
        );
        Err(CliError::Usage(message))
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of seconds or a time with a unit, like \"250ms\""
)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

impl TryFrom<NumberOrText> for Seconds {
    type Error = String;

    fn try_from(value: NumberOrText) -> Result<Self, String> {
        match value {
            NumberOrText::Number(seconds) => Ok(Self(seconds)),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(seconds) = text.parse::<f64>() {
            return Ok(Self(seconds));
        }
        let duration: Dur = text.parse().map_err(|_| {
            format!("`{text}` is neither a number of seconds nor a time with a unit, like 250ms")
        })?;
        Ok(Self(duration.as_secs_f64()))
    }
}

/// A matrix or a vector, as written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a matrix like [[1, 2], [3, 4]] or a list like [1, 2], of numbers"
)]
pub(super) enum Grid {
    Rows(Vec<Vec<f64>>),
    List(Vec<f64>),
}

impl Grid {
    /// A list as a column.
    pub(super) fn column(&self, what: &'static str) -> Result<Matrix, SystemError> {
        match self {
            Self::Rows(rows) => matrix(what, rows),
            Self::List(list) => matrix(what, &list.iter().map(|&x| vec![x]).collect::<Vec<_>>()),
        }
    }

    /// A list as a row.
    pub(super) fn row(&self, what: &'static str) -> Result<Matrix, SystemError> {
        match self {
            Self::Rows(rows) => matrix(what, rows),
            Self::List(list) => matrix(what, std::slice::from_ref(list)),
        }
    }

    /// A list as a diagonal.
    pub(super) fn diagonal(&self, what: &'static str) -> Result<Matrix, SystemError> {
        match self {
            Self::Rows(rows) => matrix(what, rows),
            Self::List(list) => {
                let entry = |i: usize, j: usize| if i == j { list[i] } else { 0.0 };
                let rows = (0..list.len()).map(|i| (0..list.len()).map(|j| entry(i, j)).collect());
                matrix(what, &rows.collect::<Vec<_>>())
            }
        }
    }
}

impl FromStr for Grid {
    type Err = String;

    /// Text in brackets is the matrix itself, anything else the name of a CSV file without header.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('[') {
            return serde_json::from_str(text).map_err(|error| error.to_string());
        }
        let content = fs::read_to_string(text).map_err(|error| {
            format!("neither a matrix in brackets nor a CSV file that can be read: {error}")
        })?;
        grid_from_csv(text, &content).map_err(|error| error.to_string())
    }
}

fn grid_from_csv(file: &str, content: &str) -> Result<Grid, ConfigError> {
    let lines = content.lines().scan(0, |offset, line| {
        let start = *offset;
        *offset += line.len() + 1;
        Some((start, line))
    });
    let rows = lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(start, line)| {
            let cells = line.split(',').map(|cell| cell.trim().parse::<f64>());
            cells.collect::<Result<Vec<f64>, _>>().map_err(|_| {
                let message = "expected numbers separated by commas";
                ConfigError::at(file, content, start..start + line.len(), message)
            })
        });
    Ok(Grid::Rows(rows.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_carry_their_unit() {
        assert_eq!("1.5".parse(), Ok(Seconds(1.5)));
        assert_eq!("250ms".parse(), Ok(Seconds(0.25)));
        assert!("soon".parse::<Seconds>().is_err());
        let in_json = |text| serde_json::from_str::<Seconds>(text).map_err(|e| e.to_string());
        assert_eq!(in_json("2"), Ok(Seconds(2.0)));
        assert_eq!(in_json("\"2s\""), Ok(Seconds(2.0)));
        assert!(in_json("[]").unwrap_err().contains("number of seconds"));
    }

    #[test]
    fn a_list_is_what_its_place_makes_of_it() {
        let list: Grid = "[1, 2]".parse().unwrap();
        assert_eq!(list.column("B").unwrap().shape(), (2, 1));
        assert_eq!(list.row("C").unwrap().shape(), (1, 2));
        assert_eq!(list.diagonal("Q").unwrap().shape(), (2, 2));
        let rows: Grid = "[[1, 2], [3, 4]]".parse().unwrap();
        assert_eq!(rows.diagonal("Q").unwrap()[(1, 0)], 3.0);
    }

    #[test]
    fn csv_errors_name_the_line() {
        let error = grid_from_csv("a.csv", "1, 2\n\n3, x\n")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "a.csv:3:1: expected numbers separated by commas");
        assert!(
            "no-such-file"
                .parse::<Grid>()
                .unwrap_err()
                .contains("CSV file")
        );
        assert!("[1, [2]]".parse::<Grid>().is_err());
    }
}
