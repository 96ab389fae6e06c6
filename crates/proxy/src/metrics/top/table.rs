//! A bounded table of the keys that weigh most: Space-Saving (Metwally, Agrawal and El Abbadi 2005)
//! with forward decay (Cormode, Shkapenyuk, Srivastava and Xu 2009).
//!
//! A new key takes the row of the lightest one and inherits its weight, so a key that makes up more
//! than `1 / ROWS` of all weight is never lost, whatever else comes: paths made up by an attacker
//! push each other out. What a row counted before it changed hands does not stay in it, so figures
//! are at most too low.
//!
//! Old samples count less: a sample of age `t` counts `2^(-t / HALF_LIFE)`. Instead of making all
//! rows smaller, new samples are made larger, until the numbers get too large.

use tidegate_control::Timestamp;

/// Rows of a table. Chosen: four times what an operator is shown.
pub(super) const ROWS: usize = 64;

/// After this time a sample counts half. Chosen: an operator asks about the last minutes.
const HALF_LIFE_S: f64 = 60.0;

/// Half-lives after which the rows are made smaller.
const HALF_LIVES_MAX: f64 = 64.0;

/// What was counted of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sums {
    /// Requests that arrived.
    pub(super) arrived: f64,
    pub(super) shed: f64,
    /// Requests that a replica answered.
    pub(super) served: f64,
    /// Seconds that they held a slot of a replica.
    pub(super) service_s: f64,
}

impl Sums {
    fn add(&mut self, other: &Self, factor: f64) {
        self.arrived += factor * other.arrived;
        self.shed += factor * other.shed;
        self.served += factor * other.served;
        self.service_s += factor * other.service_s;
    }
}

#[derive(Debug)]
struct Row {
    name: String,
    weight: f64,
    sums: Sums,
}

/// A table whose rows weigh what `weigh` finds in a sample.
#[derive(Debug)]
pub(super) struct Table {
    weigh: fn(&Sums) -> f64,
    rows: Vec<Row>,
    /// When a sample counts one, and when the first one came.
    landmark: Option<(Timestamp, Timestamp)>,
}

impl Table {
    pub(super) fn new(weigh: fn(&Sums) -> f64) -> Self {
        Self {
            weigh,
            rows: Vec::new(),
            landmark: None,
        }
    }

    /// Counts a sample of a key. One that weighs nothing makes no row.
    pub(super) fn add(&mut self, now: Timestamp, name: &str, sample: &Sums) {
        let factor = self.factor(now);
        let weight = (self.weigh)(sample) * factor;
        let known = self.rows.iter().position(|row| row.name == name);
        let Some(index) = known.or_else(|| self.row_for(name, weight)) else {
            return;
        };
        let row = &mut self.rows[index];
        row.weight += weight;
        row.sums.add(sample, factor);
    }

    /// A row for a new key: an empty one, or the lightest.
    fn row_for(&mut self, name: &str, weight: f64) -> Option<usize> {
        if weight <= 0.0 {
            return None;
        }
        let name = name.to_owned();
        let sums = Sums::default();
        if self.rows.len() < ROWS {
            let weight = 0.0;
            self.rows.push(Row { name, weight, sums });
            return Some(self.rows.len() - 1);
        }
        let by_weight = |a: &(usize, &Row), b: &(usize, &Row)| a.1.weight.total_cmp(&b.1.weight);
        let (index, lightest) = self.rows.iter().enumerate().min_by(by_weight)?;
        let weight = lightest.weight;
        self.rows[index] = Row { name, weight, sums };
        Some(index)
    }

    /// What a sample of now counts, once the rows have been made small enough.
    fn factor(&mut self, now: Timestamp) -> f64 {
        let (landmark, first) = *self.landmark.get_or_insert((now, now));
        let half_lives = now.since(landmark).as_secs_f64() / HALF_LIFE_S;
        if half_lives < HALF_LIVES_MAX {
            return half_lives.exp2();
        }
        for row in &mut self.rows {
            let sums = std::mem::take(&mut row.sums);
            row.sums.add(&sums, (-half_lives).exp2());
            row.weight *= (-half_lives).exp2();
        }
        self.landmark = Some((now, first));
        1.0
    }

    /// Its rows per second, in about the last two minutes.
    pub(super) fn per_second(&self, now: Timestamp) -> impl Iterator<Item = (&str, Sums)> {
        let (landmark, first) = self.landmark.unwrap_or((now, now));
        let half_lives = |since: Timestamp| now.since(since).as_secs_f64() / HALF_LIFE_S;
        // The integral of what the past counts.
        let past = HALF_LIFE_S / std::f64::consts::LN_2 * (1.0 - (-half_lives(first)).exp2());
        let scale = (-half_lives(landmark)).exp2() / past.max(1.0);
        self.rows.iter().map(move |row| {
            let mut sums = Sums::default();
            sums.add(&row.sums, scale);
            (row.name.as_str(), sums)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(seconds)
    }

    const COST: fn(&Sums) -> f64 = |sums| sums.service_s;

    fn cost(service_s: f64) -> Sums {
        Sums {
            arrived: 1.0,
            served: 1.0,
            service_s,
            ..Sums::default()
        }
    }

    fn of(table: &Table, now: f64, name: &str) -> Option<Sums> {
        let mut rows = table.per_second(at(now));
        rows.find(|row| row.0 == name).map(|row| row.1)
    }

    #[test]
    fn heavy_key_survives_paths_made_up_by_an_attacker() {
        let mut table = Table::new(COST);
        for request in 0..100_000 {
            let now = at(f64::from(request) / 1000.0);
            table.add(now, &format!("/made-up/{request:x}"), &cost(0.001));
            if request % 20 == 0 {
                table.add(now, "/report", &cost(0.001));
            }
        }
        assert_eq!(table.rows.len(), ROWS, "the memory is bounded");
        let report = of(&table, 100.0, "/report").expect("it is one in twenty");
        assert!((report.arrived / 50.0 - 1.0).abs() < 0.1, "{report:?}");
    }

    #[test]
    fn rates_are_right_early_late_and_after_a_change() {
        let mut table = Table::new(COST);
        let mut now = 0.0;
        let mut seconds = |table: &mut Table, length: u32, rate: u32| {
            for _ in 0..length * rate {
                now += 1.0 / f64::from(rate);
                table.add(at(now), "/a", &cost(0.5));
            }
            let rates = of(table, now, "/a").expect("it is there");
            assert_eq!(rates.service_s / rates.served, 0.5);
            rates.arrived
        };
        let early = seconds(&mut table, 20, 10);
        assert!((early / 10.0 - 1.0).abs() < 0.05, "{early}");
        let late = seconds(&mut table, 10_000, 10);
        assert!(
            (late / 10.0 - 1.0).abs() < 0.05,
            "{late}: rows were made smaller"
        );
        let halfway = seconds(&mut table, 60, 30);
        assert!((halfway / 20.0 - 1.0).abs() < 0.1, "{halfway}");
    }

    #[test]
    fn key_that_weighs_nothing_takes_no_row() {
        let mut table = Table::new(COST);
        table.add(at(1.0), "/shed", &cost(0.0));
        assert_eq!(table.per_second(at(2.0)).count(), 0);
    }
}
