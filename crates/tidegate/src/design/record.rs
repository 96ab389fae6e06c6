//! A recorded run: CSV with named columns.

use std::path::Path;

use tidegate_config::ConfigError;
use tidegate_control::identify::Series;

use super::input::read;
use crate::error::CliError;

/// Columns by name.
#[derive(Debug)]
pub(super) struct Record {
    file: String,
    names: Vec<String>,
    columns: Vec<Vec<f64>>,
}

impl Record {
    /// Reads the columns named in `wanted`; the others may hold anything.
    pub(super) fn read(path: &Path, wanted: &[&str]) -> Result<Self, CliError> {
        let text = read(path)?;
        Ok(Self::parse(&path.display().to_string(), &text, wanted)?)
    }

    fn parse(file: &str, text: &str, wanted: &[&str]) -> Result<Self, ConfigError> {
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
        let refused = |error: &csv::Error| ConfigError::new(file, error.to_string());
        let header = reader.headers().map_err(|error| refused(&error))?.clone();
        let places = wanted
            .iter()
            .map(|&name| place(file, &header, name))
            .collect::<Result<Vec<usize>, ConfigError>>()?;
        let mut columns = vec![Vec::new(); wanted.len()];
        for row in reader.records() {
            let row = row.map_err(|error| refused(&error))?;
            for (column, (&place, name)) in columns.iter_mut().zip(places.iter().zip(wanted)) {
                column.push(number(file, &row, place, name)?);
            }
        }
        Ok(Self {
            file: file.to_owned(),
            names: wanted.iter().map(|&name| name.to_owned()).collect(),
            columns,
        })
    }

    /// All columns in the order in which they were asked for.
    pub(super) fn series(&self) -> Vec<Series<'_>> {
        let columns = self.names.iter().zip(&self.columns);
        columns
            .map(|(name, values)| Series { name, values })
            .collect()
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }
}

fn place(file: &str, header: &csv::StringRecord, name: &str) -> Result<usize, ConfigError> {
    header
        .iter()
        .position(|column| column == name)
        .ok_or_else(|| {
            let columns: Vec<String> = header.iter().map(|column| format!("`{column}`")).collect();
            let columns = columns.join(", ");
            ConfigError::new(
                file,
                format!("no column `{name}`; the columns are {columns}"),
            )
        })
}

fn number(
    file: &str,
    row: &csv::StringRecord,
    place: usize,
    name: &str,
) -> Result<f64, ConfigError> {
    let cell = row.get(place).unwrap_or_default();
    cell.parse().map_err(|_| {
        let line = row.position().map_or(0, csv::Position::line);
        let message = format!("line {line}, column `{name}`: `{cell}` is not a number");
        ConfigError::new(file, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_others_ignored() {
        let text = "\u{feff}t, note, u\n0, start, 1\n# a remark\n1, , 2.5\n";
        let record = Record::parse("run.csv", text, &["u", "t"]).unwrap();
        assert_eq!(record.columns, [[1.0, 2.5], [0.0, 1.0]]);
    }

    #[test]
    fn refusals_name_line_and_column() {
        let refusal = |text, wanted: &[&str]| {
            Record::parse("run.csv", text, wanted)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal("a,b\n1,2\n3,x\n", &["b"]),
            "run.csv: line 3, column `b`: `x` is not a number"
        );
        assert_eq!(
            refusal("a,b\n1,2\n", &["c"]),
            "run.csv: no column `c`; the columns are `a`, `b`"
        );
        assert!(refusal("a,b\n1\n", &["a"]).contains("line: 2"));
    }

    proptest::proptest! {
        /// No recording makes the reader panic; what is read has columns of one length.
        #[test]
        fn fuzz_records(text in "(t|u|y|,|\n|\"|#|[0-9.e+-]{1,4}|NaN|inf| |[ -~]){0,60}") {
            match Record::parse("run.csv", &format!("t,u\n{text}"), &["u", "t"]) {
                Ok(record) => proptest::prop_assert_eq!(record.columns[0].len(), record.columns[1].len()),
                Err(error) => proptest::prop_assert!(error.to_string().starts_with("run.csv")),
            }
        }
    }
}
