//! Parquet as its own reader finds it: the same rows as the CSV, with nulls where that is empty.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use tidegate_record::{
    Decision, Ending, FileWriter, Meta, NameKind, Recording, Request, Tables, export,
};

/// One request served and one shed, with and without what is optional, `count` times.
fn recording(dir: &std::path::Path, count: u64) -> Recording {
    let tables = Tables {
        applications: vec!["shop".to_owned()],
        classes: vec!["gold".to_owned(), "größer".to_owned()],
        replicas: vec!["http://a:1".to_owned()],
        reasons: vec!["predicted".to_owned()],
    };
    let meta = Meta {
        epoch_unix_us: 1_790_000_000_000_000,
        tables,
        ..Meta::default()
    };
    let path = dir.join("a.tgrec");
    let mut writer = FileWriter::create_file(&path, meta).unwrap();
    writer.name(NameKind::Path, 7, "/user/:id, \"quoted\"");
    for number in 0..count {
        writer.request(Request {
            at_us: 2 * number,
            path: 7,
            decision: Decision::Waited,
            ending: Ending::Served,
            status: 200,
            replica: 1,
            waiting_us: 1_500,
            service_us: 20_250,
            response_us: 21_750,
            response_bytes: u64::from(u32::MAX) + number,
            deadline_us: 400_500,
            ..Request::default()
        });
        writer.request(Request {
            at_us: 2 * number + 1,
            class: 1,
            decision: Decision::Shed,
            reason: 1,
            status: 503,
            retry_after_ms: 3_000,
            ..Request::default()
        });
    }
    writer.finish().unwrap();
    Recording::open(&path).unwrap()
}

/// A field as the CSV writes it.
fn shown(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Double(number) => format!("{number:?}"),
        Field::Long(number) => number.to_string(),
        other => panic!("{other:?} is no type of a column"),
    }
}

/// The recording as Parquet, open for reading.
fn exported(dir: &std::path::Path, recording: &Recording) -> SerializedFileReader<File> {
    let path = dir.join("a.parquet");
    export::parquet(recording, File::create(&path).unwrap()).unwrap();
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

fn rows(dir: &std::path::Path, recording: &Recording) -> Vec<Row> {
    let reader = exported(dir, recording);
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn parquet_has_the_rows_and_columns_of_the_csv() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path(), 3);
    let mut text = Vec::new();
    export::csv(&recording, &mut text).unwrap();
    let mut table = csv::Reader::from_reader(&text[..]);
    let heading: Vec<String> = table.headers().unwrap().iter().map(String::from).collect();
    let rows = rows(dir.path(), &recording);
    assert_eq!(rows.len(), 6);
    for (row, record) in rows.iter().zip(table.records()) {
        let names: Vec<String> = row
            .get_column_iter()
            .map(|(name, _)| name.clone())
            .collect();
        assert_eq!(names, heading);
        let values: Vec<String> = row
            .get_column_iter()
            .map(|(_, field)| shown(field))
            .collect();
        let expected: Vec<String> = record.unwrap().iter().map(String::from).collect();
        assert_eq!(values, expected);
    }
}

#[test]
fn parquet_keeps_what_is_missing_apart_from_zero() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path(), 1);
    let rows = rows(dir.path(), &recording);
    let field = |row: usize, name: &str| {
        let mut columns = rows[row].get_column_iter();
        columns
            .find(|(column, _)| *column == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(field(0, "deadline_ms"), Field::Double(400.5));
    assert_eq!(field(0, "retry_after_ms"), Field::Null);
    assert_eq!(field(1, "deadline_ms"), Field::Null);
    assert_eq!(field(1, "retry_after_ms"), Field::Long(3_000));
}

#[test]
fn parquet_of_several_row_groups_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path(), 50_001);
    let reader = exported(dir.path(), &recording);
    let groups: Vec<i64> = reader
        .metadata()
        .row_groups()
        .iter()
        .map(|group| group.num_rows())
        .collect();
    assert_eq!(groups, [100_000, 2]);
    let last = reader.get_row_group(1).unwrap();
    let rows: Vec<Row> = last
        .get_row_iter(None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let bytes = rows[0].get_column_iter().nth(14).unwrap();
    assert_eq!(bytes.0, "response_bytes");
    assert_eq!(bytes.1, &Field::Long(i64::from(u32::MAX) + 50_000));
}
