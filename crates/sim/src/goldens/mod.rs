//! What mode `auto` decides, as text that is kept in git.
//!
//! A [`Case`] is a scenario of the arena, or a service of [`auto_services`] at four fifths and then
//! at twice its capacity, of which a third, a half and three quarters go and come back. Each is run
//! with three seeds. Its text has one line per decision, with the time in seconds:
//!
//! ```text
//! seed 1
//! 0.4 w0 16>19 slow_start      the window of replica 0 goes from 16 to 19, and why
//! 2.3 overload 812/s of 401/s  an overload begins: requests that arrive, and the capacity
//! 9.1 calm                     it ends
//! 9.4 target 163ms             the derived target has moved by a tenth since the last such line
//! end 4000 in target, 312 shed
//! ```
//!
//! A test compares them with the files under `tests/goldens/auto`, so that a change of what `auto`
//! decides is seen in review; `tidegate sim goldens --write` rewrites them and draws both.
//!
//! What breaks it: a platform whose logarithm rounds otherwise.
//!
//! [`auto_services`]: crate::auto_services

mod draw;
mod record;

pub use draw::{Difference, differences};

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tidegate_config::ConfigError;

use crate::arena::{self, Contender};
use crate::auto_services::{SERVICES, STEPS, Service, WIDE};
use crate::experiment::Progress;
use crate::scenario::{Scenario, ScenarioError};

/// Seeds of every case.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Where the texts are kept, from the root of the repository.
pub const FOLDER: &str = "crates/sim/tests/goldens/auto";

/// A scenario in front of which `auto` decides.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of its file, without the ending.
    pub name: String,
    scenario: Scenario,
    /// Who protects it; as the scenario says where there is none.
    contender: Option<Contender>,
}

/// All cases: the arena without a target, so that it is derived, and every service with its target.
///
/// # Errors
/// What is wrong with a scenario; a test keeps this from happening.
pub fn cases() -> Result<Vec<Case>, ConfigError> {
    let contender = arena::contenders()
        .into_iter()
        .find(|contender| contender.name == "auto");
    let of_arena = arena::entries()?.into_iter().map(|entry| {
        Ok(Case {
            name: format!("arena-{}", entry.name),
            scenario: entry.scenario,
            contender,
        })
    });
    let of_services = SERVICES.iter().map(|service| Case::of("service", service));
    let of_wide = WIDE.iter().map(|service| Case::of("wide", service));
    of_arena.chain(of_services).chain(of_wide).collect()
}

impl Case {
    /// Four fifths of the capacity for ten seconds and twice the capacity from then on, while that
    /// goes and comes back.
    fn of(kind: &str, service: &Service) -> Result<Self, ConfigError> {
        let (calm, overload) = (0.8 * service.capacity(), 2.0 * service.capacity());
        let load = format!(
            "rate = [{{ at = '0s', value = '{calm}/s' }}, {{ at = '10s', value = '{overload}/s' }}]"
        );
        Ok(Self {
            name: format!("{kind}-{}", file_name(service.name)),
            scenario: service.scenario(140, 0, &load, STEPS, &service.target_key())?,
            contender: None,
        })
    }

    /// The file of its text.
    #[must_use]
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.txt", self.name))
    }

    /// Runs it with every seed; the text of what was decided.
    ///
    /// # Errors
    /// What the engine refuses about it.
    pub fn record(&self) -> Result<String, ScenarioError> {
        SEEDS.iter().map(|&seed| self.record_seed(seed)).collect()
    }

    fn record_seed(&self, seed: u64) -> Result<String, ScenarioError> {
        let mut protector = match &self.contender {
            Some(contender) => contender.protector(&self.scenario, seed)?,
            None => self.scenario.protector(seed)?,
        };
        let mut text = record::Text::new(seed);
        let outcome = self
            .scenario
            .run_observed(seed, protector.as_mut(), &mut text)?;
        Ok(text.ended(&outcome))
    }
}

/// Runs all cases on all cores; their texts in the same order.
///
/// # Errors
/// What the engine refuses about one of them.
pub fn record(cases: &[Case], progress: &dyn Progress) -> Result<Vec<String>, ScenarioError> {
    progress.start(cases.len());
    let record = |case: &Case| {
        let text = case.record();
        progress.done(&case.name);
        text
    };
    cases.par_iter().map(record).collect()
}

/// `3 of 4 cores, shared` is `3-of-4-cores-shared`.
fn file_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}
