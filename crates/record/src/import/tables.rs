//! The tables that a log makes while it is read.

use crate::names::Names;
use crate::request::{Request, Tables};

use super::Line;

/// Requests of a log, with arrivals in microseconds since 1970.
#[derive(Debug, Clone, Default)]
pub struct Imported {
    /// The requests.
    pub requests: Vec<Request>,
    /// Names of classes, replicas and reasons.
    pub tables: Tables,
    /// Names of paths.
    pub names: Names,
    pub(super) resolution_us: u64,
}

/// The place of a name in its table, which grows; the last one when it is full.
fn place(names: &mut Vec<String>, name: &str) -> u16 {
    let known = names.iter().position(|known| known == name);
    let at = known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// The place in a table plus one; 0 without a name.
fn place_or_none(names: &mut Vec<String>, name: &str) -> u16 {
    match name {
        "" => 0,
        name => place(names, name).saturating_add(1),
    }
}

impl Imported {
    pub(super) fn number(&mut self, request: &mut Request, line: &Line) {
        let tables = &mut self.tables;
        request.application = place(&mut tables.applications, &line.application);
        request.class = place(&mut tables.classes, &line.class);
        request.replica = place_or_none(&mut tables.replicas, &line.replica);
        let reason = place_or_none(&mut tables.reasons, &line.reason);
        request.reason = u8::try_from(reason).unwrap_or(0);
    }

    /// Spreads arrivals that the log does not tell apart evenly over its unit of time.
    pub(super) fn spread(&mut self) {
        self.requests.sort_by_key(|request| request.at_us);
        let unit = self.resolution_us;
        if unit <= 1 {
            return;
        }
        let alike = |a: &Request, b: &Request| a.at_us / unit == b.at_us / unit;
        for group in self.requests.chunk_by_mut(alike) {
            let begin = group[0].at_us / unit * unit;
            let count = group.len() as u64;
            for (index, request) in (0..).zip(group) {
                request.at_us = begin + (2 * index + 1) * unit / (2 * count);
            }
        }
    }
}
