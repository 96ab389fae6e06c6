//! Several processes in one recording: each numbers applications, classes, replicas and reasons by
//! itself. The reader has one table of each, and finds an entry of a later process in it by name.

use crate::request::{Request, Tables};

/// What tells an entry from others: the name of its application where it has one, its own name,
/// and which one it is of several that are called alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    application: Option<String>,
    name: String,
    of_same_name: usize,
}

/// The tables of all processes together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    applications: Vec<Key>,
    classes: Vec<Key>,
    replicas: Vec<Key>,
    reasons: Vec<Key>,
}

/// What the numbers of one process are in the joined tables, and how far its clock is off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    pub(crate) shift_us: u64,
    applications: Vec<u16>,
    classes: Vec<u16>,
    replicas: Vec<u16>,
    reasons: Vec<u16>,
}

/// The entry's number; one that no table has stays what it is.
fn number(numbers: &[u16], own: u16) -> u16 {
    numbers.get(usize::from(own)).copied().unwrap_or(own)
}

/// The same of numbers that count from 1, with 0 for none.
fn number_from_one(numbers: &[u16], own: u16) -> u16 {
    match own {
        0 => 0,
        own => number(numbers, own - 1).saturating_add(1),
    }
}

impl Numbers {
    pub(crate) fn apply(&self, request: &mut Request) {
        request.at_us = request.at_us.wrapping_add(self.shift_us);
        request.application = number(&self.applications, request.application);
        request.class = number(&self.classes, request.class);
        request.replica = number_from_one(&self.replicas, request.replica);
        let reason = number_from_one(&self.reasons, u16::from(request.reason));
        request.reason = u8::try_from(reason).unwrap_or(0);
    }
}

fn keys(names: &[String], owners: &[u16], applications: &[String]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        let owner = owners.get(index).map(|&owner| usize::from(owner));
        let application = owner.and_then(|owner| applications.get(owner)).cloned();
        let alike = |key: &&Key| key.name == *name && key.application == application;
        let of_same_name = keys.iter().filter(alike).count();
        keys.push(Key {
            application,
            name: name.clone(),
            of_same_name,
        });
    }
    keys
}

/// The places of `keys` in `table`, in which new ones get the next.
fn places(table: &mut Vec<Key>, keys: Vec<Key>) -> Vec<u16> {
    let place = |key: Key| {
        let known = table.iter().position(|known| *known == key);
        let place = known.unwrap_or_else(|| {
            table.push(key);
            table.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    };
    keys.into_iter().map(place).collect()
}

impl Joined {
    /// Adds the tables of a process, or those of one that is known and has more now.
    pub(crate) fn join(&mut self, tables: &Tables, shift_us: u64) -> Numbers {
        let names = &tables.applications;
        Numbers {
            shift_us,
            applications: places(&mut self.applications, keys(names, &[], &[])),
            classes: places(
                &mut self.classes,
                keys(&tables.classes, &tables.class_applications, names),
            ),
            replicas: places(
                &mut self.replicas,
                keys(&tables.replicas, &tables.replica_applications, names),
            ),
            reasons: places(&mut self.reasons, keys(&tables.reasons, &[], &[])),
        }
    }

    pub(crate) fn tables(&self) -> Tables {
        let names = |keys: &[Key]| keys.iter().map(|key| key.name.clone()).collect();
        let owners = |keys: &[Key]| -> Vec<u16> {
            let of = |key: &Key| {
                let name = key.application.as_ref()?;
                let at = self.applications.iter().position(|it| it.name == *name)?;
                u16::try_from(at).ok()
            };
            // All or none: a table with gaps would be read wrongly.
            let owners: Option<Vec<u16>> = keys.iter().map(of).collect();
            owners.unwrap_or_default()
        };
        Tables {
            applications: names(&self.applications),
            classes: names(&self.classes),
            replicas: names(&self.replicas),
            reasons: names(&self.reasons),
            class_applications: owners(&self.classes),
            replica_applications: owners(&self.replicas),
        }
    }
}
