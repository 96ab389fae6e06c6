//! Requests of a frame, column by column: values of a kind stand together, so that what seldom
//! changes costs next to nothing once compressed.
//!
//! A frame is `rows`, then per column its number, its length in bytes and its values. A reader
//! skips columns it does not know and takes zero for those that are missing, so that columns can
//! be added without a new version.

use std::collections::HashMap;

use crate::request::{Decision, Ending, Request};
use crate::varint::{put, put_difference, take, take_bytes, take_difference};

/// How a column's values are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// Differences from the row before.
    Difference,
    /// Plain numbers.
    Plain,
    /// A table of eight-byte values, then positions in it from 1; 0 stays 0.
    Dictionary,
}

/// A column: its number in the file, coding, and its place in a request.
struct Column {
    number: u64,
    coding: Coding,
    get: fn(&Request) -> u64,
    set: fn(&mut Request, u64),
}

/// Numbers that do not fit are those of a damaged file or a later version.
fn small(value: u64) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

macro_rules! column {
    ($number:literal, $coding:ident, $field:ident) => {
        Column {
            number: $number,
            coding: Coding::$coding,
            get: |request| request.$field,
            set: |request, value| request.$field = value,
        }
    };
    ($number:literal, $coding:ident, $field:ident, $get:expr, $set:expr) => {
        Column {
            number: $number,
            coding: Coding::$coding,
            get: |request| $get(request.$field),
            set: |request, value| request.$field = $set(value),
        }
    };
}

/// All columns. Numbers are never used again for something else.
const COLUMNS: [Column; 18] = [
    column!(1, Difference, at_us),
    column!(2, Plain, application, u64::from, small),
    column!(3, Plain, class, u64::from, small),
    column!(4, Dictionary, path),
    column!(5, Dictionary, tenant),
    column!(
        6,
        Plain,
        decision,
        |decision: Decision| u64::from(decision.code()),
        Decision::of_code
    ),
    column!(7, Plain, reason, u64::from, |value| u8::try_from(value)
        .unwrap_or(0)),
    column!(
        8,
        Plain,
        ending,
        |ending: Ending| u64::from(ending.code()),
        Ending::of_code
    ),
    column!(9, Plain, status, u64::from, small),
    column!(10, Plain, replica, u64::from, small),
    column!(11, Plain, waiting_us),
    column!(12, Plain, service_us),
    Column {
        // What the client's own reading added: nearly always little.
        number: 13,
        coding: Coding::Difference,
        get: |request| {
            request
                .response_us
                .wrapping_sub(request.waiting_us + request.service_us)
        },
        set: |request, value| {
            let inside = request.waiting_us.wrapping_add(request.service_us);
            request.response_us = value.wrapping_add(inside);
        },
    },
    column!(14, Plain, request_bytes),
    column!(15, Plain, response_bytes),
    column!(16, Plain, deadline_us),
    column!(17, Plain, retry_after_ms),
    column!(18, Plain, client, u64::from, |value| u32::try_from(value)
        .unwrap_or(0)),
];

/// Writes requests as the content of a frame.
pub(crate) fn encode(requests: &[Request], out: &mut Vec<u8>) {
    put(out, requests.len() as u64);
    let mut values = Vec::new();
    for column in &COLUMNS {
        values.clear();
        let numbers = requests.iter().map(column.get);
        match column.coding {
            Coding::Plain => numbers.for_each(|number| put(&mut values, number)),
            Coding::Difference => put_differences(&mut values, numbers),
            Coding::Dictionary => put_dictionary(&mut values, numbers),
        }
        if (requests.iter()).any(|request| (column.get)(request) != 0) {
            put(out, column.number);
            put(out, values.len() as u64);
            out.extend_from_slice(&values);
        }
    }
}

fn put_differences(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) {
    let mut before = 0;
    for number in numbers {
        put_difference(out, before, number);
        before = number;
    }
}

fn put_dictionary(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64> + Clone) {
    let mut places: HashMap<u64, u64> = HashMap::new();
    let mut table = Vec::new();
    for number in numbers.clone().filter(|&number| number != 0) {
        places.entry(number).or_insert_with(|| {
            table.extend_from_slice(&number.to_le_bytes());
            table.len() as u64 / 8
        });
    }
    put(out, places.len() as u64);
    out.extend_from_slice(&table);
    numbers.for_each(|number| put(out, places.get(&number).copied().unwrap_or(0)));
}

/// A row takes at least a byte of some column or none at all; more rows than this are a lie.
const ROWS_MAX: u64 = 1 << 22;

/// Reads the content of a frame; nothing when it is malformed.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Vec<Request>> {
    let rows = take(&mut bytes).filter(|&rows| rows <= ROWS_MAX)?;
    let mut requests = vec![Request::default(); usize::try_from(rows).ok()?];
    let mut response = None;
    while !bytes.is_empty() {
        let number = take(&mut bytes)?;
        let length = take(&mut bytes)?;
        let values = take_bytes(&mut bytes, length)?;
        let column = COLUMNS.iter().find(|column| column.number == number);
        match column {
            // Made of two others, which have to be there first.
            Some(column) if number == RESPONSE => response = Some((column, values)),
            Some(column) => read_column(column, values, &mut requests)?,
            None => {}
        }
    }
    for request in &mut requests {
        request.response_us = request.waiting_us.wrapping_add(request.service_us);
    }
    if let Some((column, values)) = response {
        read_column(column, values, &mut requests)?;
    }
    Some(requests)
}

const RESPONSE: u64 = 13;

fn read_column(column: &Column, mut values: &[u8], requests: &mut [Request]) -> Option<()> {
    let bytes = &mut values;
    let table = match column.coding {
        Coding::Dictionary => {
            let length = take(bytes)?.checked_mul(8)?;
            take_bytes(bytes, length)?
        }
        _ => &[],
    };
    let mut before = 0;
    for request in requests {
        let value = match column.coding {
            Coding::Plain => take(bytes)?,
            Coding::Difference => take_difference(bytes, before)?,
            Coding::Dictionary => look_up(table, take(bytes)?)?,
        };
        before = value;
        (column.set)(request, value);
    }
    Some(())
}

fn look_up(table: &[u8], place: u64) -> Option<u64> {
    let Some(index) = place.checked_sub(1) else {
        return Some(0);
    };
    let at = usize::try_from(index).ok()?.checked_mul(8)?;
    let value = table.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(value.try_into().ok()?))
}
