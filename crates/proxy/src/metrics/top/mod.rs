//! The paths and tenants that cost most and are shed most.
//!
//! Of each application, each worker thread keeps four bounded tables: paths and tenants, by seconds
//! in service and by refusals. A request in this many is looked at, at most about a hundred a
//! second, and counts for the others: at low rates all requests are, and at high rates the tables
//! cost next to nothing.
//!
//! Decision: docs/decisions/0175-heavy-paths-by-space-saving.md.

mod sampler;
mod table;

use std::collections::BTreeMap;

use tidegate_control::Timestamp;

pub(crate) use sampler::{Sampled, Sampler};
use table::{Sums, Table};

/// Longest name that is kept.
const NAME_BYTES_MAX: usize = 120;

/// What happened to a request that was looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// How many requests it stands for.
    pub(crate) weight: f64,
    pub(crate) shed: bool,
    /// How long it held a slot, if a replica answered it.
    pub(crate) service_s: Option<f64>,
}

/// A key with its figures per second, over about the last two minutes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heavy {
    /// The path with ids folded, or the tenant.
    pub name: String,
    /// Requests that arrived.
    pub arrived_per_second: f64,
    /// Requests that were shed.
    pub shed_per_second: f64,
    /// Requests that a replica answered.
    pub served_per_second: f64,
    /// Seconds of service per second: requests in service at once, on average.
    pub in_service: f64,
}

impl Heavy {
    fn add(&mut self, sums: &Sums) {
        self.arrived_per_second += sums.arrived;
        self.shed_per_second += sums.shed;
        self.served_per_second += sums.served;
        self.in_service += sums.service_s;
    }
}

/// One kind of key, in both orders.
#[derive(Debug)]
struct Ranking {
    by_cost: Table,
    by_shed: Table,
}

impl Default for Ranking {
    fn default() -> Self {
        Self {
            by_cost: Table::new(|sums| sums.service_s),
            by_shed: Table::new(|sums| sums.shed),
        }
    }
}

impl Ranking {
    fn add(&mut self, now: Timestamp, name: &str, sums: &Sums) {
        let name = shortened(name);
        self.by_cost.add(now, name, sums);
        self.by_shed.add(now, name, sums);
    }

    /// Adds its rows to those of other threads. A key in both tables counts once: in the one that
    /// has counted it for longer.
    fn collect(&self, now: Timestamp, into: &mut BTreeMap<String, Heavy>) {
        let mut own: BTreeMap<&str, Sums> = BTreeMap::new();
        let rows = self.by_cost.per_second(now);
        for (name, sums) in rows.chain(self.by_shed.per_second(now)) {
            let known = own.entry(name).or_default();
            if sums.arrived > known.arrived {
                *known = sums;
            }
        }
        for (name, sums) in own {
            into.entry(name.to_owned()).or_default().add(&sums);
        }
    }
}

/// Cuts a name where a character ends.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// The tables of one worker thread.
#[derive(Debug, Default)]
pub(super) struct TopTables {
    paths: Ranking,
    tenants: Ranking,
}

impl TopTables {
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        path: &str,
        tenant: Option<&str>,
        outcome: Outcome,
    ) {
        let weight = outcome.weight;
        let sums = Sums {
            arrived: weight,
            shed: if outcome.shed { weight } else { 0.0 },
            served: outcome.service_s.map_or(0.0, |_| weight),
            service_s: outcome.service_s.unwrap_or(0.0) * weight,
        };
        self.paths.add(now, path, &sums);
        if let Some(tenant) = tenant {
            self.tenants.add(now, tenant, &sums);
        }
    }
}

/// The heaviest paths and tenants of an application, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Top {
    /// Paths, ids folded.
    pub paths: Vec<Heavy>,
    /// Tenants, where the configuration tells them apart.
    pub tenants: Vec<Heavy>,
}

/// Adds up the tables of all worker threads.
pub(super) fn collect<'a>(
    now: Timestamp,
    tables: impl Iterator<Item = &'a parking_lot::Mutex<TopTables>>,
) -> Top {
    let (mut paths, mut tenants) = (BTreeMap::new(), BTreeMap::new());
    for tables in tables {
        let tables = tables.lock();
        tables.paths.collect(now, &mut paths);
        tables.tenants.collect(now, &mut tenants);
    }
    let list = |rows: BTreeMap<String, Heavy>| {
        let named = |(name, heavy)| Heavy { name, ..heavy };
        rows.into_iter().map(named).collect()
    };
    Top {
        paths: list(paths),
        tenants: list(tenants),
    }
}
