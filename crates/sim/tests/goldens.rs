//! Mode `auto` decides what it decided when the texts under `tests/goldens/auto` were written.
//!
//! After a deliberate change: `cargo run --release -- sim goldens --write`, and look at the page.

use std::fs;
use std::path::Path;

use tidegate_sim::experiment::Progress;
use tidegate_sim::goldens::{FOLDER, cases, differences, record};

struct Silent;

impl Progress for Silent {
    fn start(&self, _: usize) {}
    fn done(&self, _: &str) {}
}

#[test]
fn auto_decides_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cases = cases().expect("the scenarios are valid");
    let texts = record(&cases, &Silent).expect("the engine takes them");
    let mut changed = Vec::new();
    for (case, text) in cases.iter().zip(&texts) {
        let golden = fs::read_to_string(case.path(&root.join(FOLDER))).unwrap_or_default();
        changed.extend(differences(&golden, text).iter().map(|found| {
            let (seed, line) = (found.seed, found.same + 1);
            let (before, after) = (found.before, found.after);
            format!("{}, {seed}, line {line}:\n- {before}\n+ {after}", case.name)
        }));
    }
    assert!(
        changed.is_empty(),
        "auto decides otherwise in {} runs:\n{}\n\
         if that is meant: cargo run --release -- sim goldens --write",
        changed.len(),
        changed.join("\n")
    );
}

/// A file that belongs to no case is compared with nothing.
#[test]
fn every_golden_belongs_to_a_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(FOLDER);
    let cases = cases().expect("the scenarios are valid");
    for entry in fs::read_dir(&folder).expect("the goldens are there") {
        let path = entry.expect("it can be listed").path();
        let known = cases.iter().any(|case| case.path(&folder) == path);
        assert!(known, "{} belongs to no case", path.display());
    }
}
