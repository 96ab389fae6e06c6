//! Recordings as tables: CSV, lines of JSON, and Parquet with the feature `parquet`.

use std::io::{self, Write};

use serde::Serialize;

use crate::reader::{RecordError, Recording};
use crate::request::Request;

/// One request with names in place of numbers; the columns of every export.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Arrival in seconds since 1970, to the microsecond.
    pub time: f64,
    /// Application.
    pub application: String,
    /// Class.
    pub class: String,
    /// Path, or its hash where names were left out.
    pub path: String,
    /// Tenant, or its hash.
    pub tenant: String,
    /// Number that tells clients apart; empty without one.
    pub client: Option<u32>,
    /// What was decided.
    pub decision: &'static str,
    /// Why it was not served.
    pub reason: String,
    /// How it ended.
    pub ending: &'static str,
    /// Status of the response; 0 without one.
    pub status: u16,
    /// Replica.
    pub replica: String,
    /// Time in the proxy's queue in milliseconds.
    pub waiting_ms: f64,
    /// Time in the replica in milliseconds.
    pub service_ms: f64,
    /// From arrival to the last byte for the client in milliseconds.
    pub response_ms: f64,
    /// Bytes of the request's body.
    pub request_bytes: u64,
    /// Bytes of the response's body.
    pub response_bytes: u64,
    /// The client's deadline in milliseconds after arrival; empty without one.
    pub deadline_ms: Option<f64>,
    /// `Retry-After` of a refusal in milliseconds; empty without one.
    pub retry_after_ms: Option<u64>,
}

impl Row {
    /// The row of a request.
    #[must_use]
    pub fn of(recording: &Recording, request: &Request) -> Self {
        let (tables, names) = (&recording.meta.tables, &recording.names);
        let millis = |us: u64| us as f64 / 1e3;
        let micros = recording.meta.epoch_unix_us.wrapping_add(request.at_us);
        Self {
            time: micros as f64 / 1e6,
            application: tables.application(request).to_owned(),
            class: tables.class(request).to_owned(),
            path: names.path(request.path),
            tenant: names.tenant(request.tenant),
            client: (request.client > 0).then_some(request.client),
            decision: request.decision.as_str(),
            reason: tables.reason(request).to_owned(),
            ending: request.ending.as_str(),
            status: request.status,
            replica: tables.replica(request).to_owned(),
            waiting_ms: millis(request.waiting_us),
            service_ms: millis(request.service_us),
            response_ms: millis(request.response_us),
            request_bytes: request.request_bytes,
            response_bytes: request.response_bytes,
            deadline_ms: (request.deadline_us > 0).then(|| millis(request.deadline_us)),
            retry_after_ms: (request.retry_after_ms > 0).then_some(request.retry_after_ms),
        }
    }
}

/// Comma-separated values with a heading.
///
/// # Errors
/// What the output says.
pub fn csv(recording: &Recording, out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    recording.each(|request| {
        let row = Row::of(recording, request);
        writer.serialize(row).map_err(io_error)
    })?;
    writer.flush()
}

impl From<RecordError> for io::Error {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Io { cause, .. } => cause,
            other => Self::other(other),
        }
    }
}

/// Keeps what the output said: a reader that closes a pipe is no failure.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// One JSON object per line; with `events` also what is not a request.
///
/// # Errors
/// What the output says.
pub fn json_lines(recording: &Recording, events: bool, mut out: impl Write) -> io::Result<()> {
    recording.each(|request| {
        serde_json::to_writer(&mut out, &Row::of(recording, request))?;
        out.write_all(b"\n")
    })?;
    for event in recording.events.iter().filter(|_| events) {
        writeln!(out, "{}", event.json)?;
    }
    out.flush()
}

/// Apache Parquet, compressed with zstd.
///
/// # Errors
/// What the output says.
#[cfg(feature = "parquet")]
pub fn parquet(recording: &Recording, out: impl Write + Send) -> io::Result<()> {
    parquet_file::write(recording, out).map_err(io::Error::other)
}

#[cfg(feature = "parquet")]
mod parquet_file {
    use std::io::{self, Write};
    use std::sync::Arc;

    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
    use parquet::errors::ParquetError;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
    use parquet::schema::parser::parse_message_type;

    use super::Row;
    use crate::reader::Recording;

    const SCHEMA: &str = "message requests {
        required double time;
        required binary application (UTF8);
        required binary class (UTF8);
        required binary path (UTF8);
        required binary tenant (UTF8);
        optional int64 client;
        required binary decision (UTF8);
        required binary reason (UTF8);
        required binary ending (UTF8);
        required int64 status;
        required binary replica (UTF8);
        required double waiting_ms;
        required double service_ms;
        required double response_ms;
        required int64 request_bytes;
        required int64 response_bytes;
        optional double deadline_ms;
        optional int64 retry_after_ms;
    }";

    enum Column {
        Text(fn(&Row) -> &str),
        Number(fn(&Row) -> f64),
        Whole(fn(&Row) -> i64),
        NumberIfAny(fn(&Row) -> Option<f64>),
        WholeIfAny(fn(&Row) -> Option<i64>),
    }

    fn columns() -> [Column; 18] {
        use Column::{Number, NumberIfAny, Text, Whole, WholeIfAny};
        [
            Number(|row| row.time),
            Text(|row| &row.application),
            Text(|row| &row.class),
            Text(|row| &row.path),
            Text(|row| &row.tenant),
            WholeIfAny(|row| row.client.map(i64::from)),
            Text(|row| row.decision),
            Text(|row| &row.reason),
            Text(|row| row.ending),
            Whole(|row| i64::from(row.status)),
            Text(|row| &row.replica),
            Number(|row| row.waiting_ms),
            Number(|row| row.service_ms),
            Number(|row| row.response_ms),
            Whole(|row| row.request_bytes as i64),
            Whole(|row| row.response_bytes as i64),
            NumberIfAny(|row| row.deadline_ms),
            WholeIfAny(|row| row.retry_after_ms.map(|millis| millis as i64)),
        ]
    }

    /// Writes a column; values that are missing are nulls where the schema has it optional.
    fn write_column<T: DataType>(
        out: &mut SerializedColumnWriter<'_>,
        rows: &[Row],
        get: impl Fn(&Row) -> Option<T::T>,
    ) -> Result<(), ParquetError> {
        let values: Vec<Option<T::T>> = rows.iter().map(get).collect();
        let present: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
        let values: Vec<T::T> = values.into_iter().flatten().collect();
        // A required column ignores the levels: each of its values is there.
        out.typed::<T>()
            .write_batch(&values, Some(&present), None)?;
        Ok(())
    }

    /// Rows of a group.
    const ROWS: usize = 100_000;

    pub(super) fn write(recording: &Recording, out: impl Write + Send) -> Result<(), ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        let mut rows = Vec::new();
        recording
            .each(|request| {
                rows.push(Row::of(recording, request));
                if rows.len() < ROWS {
                    return Ok::<(), io::Error>(());
                }
                write_group(&mut writer, &std::mem::take(&mut rows)).map_err(failed)
            })
            .map_err(|error| ParquetError::External(error.into()))?;
        write_group(&mut writer, &rows)?;
        writer.close()?;
        Ok(())
    }

    fn failed(error: ParquetError) -> io::Error {
        match error {
            ParquetError::External(error) => io::Error::other(error),
            other => io::Error::other(other),
        }
    }

    fn write_group<W: Write + Send>(
        writer: &mut SerializedFileWriter<W>,
        rows: &[Row],
    ) -> Result<(), ParquetError> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = writer.next_row_group()?;
        for column in columns() {
            let Some(mut out) = group.next_column()? else {
                break;
            };
            let out_column = &mut out;
            match column {
                Column::Text(get) => write_column::<ByteArrayType>(out_column, rows, |row| {
                    Some(ByteArray::from(get(row)))
                }),
                Column::Number(get) => {
                    write_column::<DoubleType>(out_column, rows, |row| Some(get(row)))
                }
                Column::Whole(get) => {
                    write_column::<Int64Type>(out_column, rows, |row| Some(get(row)))
                }
                Column::NumberIfAny(get) => write_column::<DoubleType>(out_column, rows, get),
                Column::WholeIfAny(get) => write_column::<Int64Type>(out_column, rows, get),
            }?;
            out.close()?;
        }
        group.close()?;
        Ok(())
    }
}
