//! What a run found, by class.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::lane::Finding;
use crate::vector::{Shown, Vector};

/// Breaches that are shown in full.
const EXAMPLES: usize = 20;

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    classes: BTreeMap<String, Row>,
    examples: Vec<(Vector, Finding)>,
}

/// What was found in one class.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Vectors sent.
    pub vectors: usize,
    /// Of them, those that are not sound or not complete.
    pub malformed: usize,
    /// Those of which something reached the upstream beside the last request.
    pub arrived: usize,
    /// Those that the judge objects to.
    pub breached: usize,
    /// Those whose connection the proxy left hanging.
    pub hung: usize,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.vectors += other.vectors;
        self.malformed += other.malformed;
        self.arrived += other.arrived;
        self.breached += other.breached;
        self.hung += other.hung;
    }
}

impl Report {
    /// Takes up a finding.
    pub fn add(&mut self, vector: Vector, finding: Finding) {
        let breached = !finding.breaches.is_empty();
        self.classes
            .entry(vector.class.to_string())
            .or_default()
            .add(&Row {
                vectors: 1,
                malformed: usize::from(!finding.well_formed),
                arrived: usize::from(!finding.arrived.is_empty()),
                breached: usize::from(breached),
                hung: usize::from(finding.hung),
            });
        if (breached || finding.hung) && self.examples.len() < EXAMPLES {
            self.examples.push((vector, finding));
        }
    }

    /// All classes together.
    #[must_use]
    pub fn total(&self) -> Row {
        let mut total = Row::default();
        self.classes.values().for_each(|row| total.add(row));
        total
    }

    /// One class.
    #[must_use]
    pub fn class(&self, name: &str) -> Row {
        self.classes.get(name).copied().unwrap_or_default()
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let total = self.total();
        total.breached == 0 && total.hung == 0
    }

    /// The first vectors that the judge objects to, and why.
    #[must_use]
    pub fn examples(&self) -> String {
        let mut text = String::new();
        for (vector, finding) in &self.examples {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}, {}: {}",
                vector.class,
                vector.name,
                Shown(&vector.bytes)
            );
            for breach in &finding.breaches {
                let _ = writeln!(text, "    {breach}");
            }
            for seen in &finding.arrived {
                let (method, target) = (Shown(&seen.method), Shown(&seen.target));
                let _ = writeln!(
                    text,
                    "    arrived: {method} {target}, {} bytes",
                    seen.body.len()
                );
            }
            if finding.hung {
                let _ = writeln!(text, "    the connection was left hanging");
            }
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, row: &Row| {
            writeln!(
                f,
                "{name:<32} {:>8} {:>10} {:>8} {:>9} {:>5}",
                row.vectors, row.malformed, row.arrived, row.breached, row.hung
            )
        };
        for (name, row) in &self.classes {
            line(name, row)?;
        }
        line("all", &self.total())
    }
}

/// The names of the columns that a report's lines have.
pub const HEADING: &str =
    "class                             vectors  malformed  arrived  breaches  hung";
