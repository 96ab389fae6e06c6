//! The arena's table in a few lines: means, slow services, and the distance to the best rival.

use super::report::{ArenaReport, Row};

/// A service is slow when a request takes this long in the mean, in seconds.
const SLOW_S: f64 = 0.2;

/// A target is wide when it is this many times the mean work.
const WIDE_TARGET: f64 = 10.0;

/// A distance to the best rival that is worth a line, as a share of the ideal.
const BEHIND: f64 = 0.02;

impl ArenaReport {
    /// A few lines for each of our contenders, and what speaks against figures of others.
    #[must_use]
    pub fn summary(&self) -> String {
        let ours = self.ours();
        let lines: String = ours
            .map(|column| self.means_of(column) + &self.distances_of(column))
            .collect();
        let reservations = self.contenders.iter().filter_map(|contender| {
            let reservation = contender.reservation()?;
            Some(format!("{}: {reservation}\n", contender.name))
        });
        lines + &reservations.collect::<String>()
    }

    /// What ours have refused, in scenarios in which there is room for all.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.ours()
            .flat_map(|column| {
                let name = self.contenders[column].name;
                self.rows.iter().filter_map(move |row| {
                    let score = row.scores[column];
                    (score.refused > 0.0).then(|| {
                        format!(
                            "{name} sheds {:.1} requests per run of {}, {:.2} % after the warm-up",
                            score.refused,
                            row.name,
                            100.0 * score.shed
                        )
                    })
                })
            })
            .collect()
    }

    /// Columns of `auto` and `auto+target`.
    fn ours(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.contenders.len()).filter(|&column| self.contenders[column].is_ours())
    }

    fn means_of(&self, column: usize) -> String {
        let mean = |name: &str, of: fn(&Row) -> bool| {
            let its: Vec<f64> = self
                .rows
                .iter()
                .filter(|row| of(row))
                .map(|row| 100.0 * row.scores[column].goodput)
                .collect();
            match its.len() {
                0 => String::new(),
                count => {
                    let mean = its.iter().sum::<f64>() / count as f64;
                    format!("; {name} {mean:.1} ({count})")
                }
            }
        };
        let all = mean("mean", |_| true);
        format!(
            "{}: {}{}{}\n",
            self.contenders[column].name,
            all.trim_start_matches("; "),
            mean("targets of ten times the work and more", |row| {
                row.target_times >= WIDE_TARGET
            }),
            mean("work of 0.2 s and more", |row| row.work_s >= SLOW_S)
        )
    }

    /// The scenarios in which a rival is ahead by more than is worth a line.
    fn distances_of(&self, column: usize) -> String {
        if self.contenders.iter().all(super::Contender::is_ours) {
            return String::new();
        }
        let mut behind: Vec<(f64, String)> = self
            .rows
            .iter()
            .filter_map(|row| {
                let (rival, best) = self.best_rival(row)?;
                let distance = best - row.scores[column].goodput;
                let shown = format!("{} {:.1} ({rival})", row.name, 100.0 * distance);
                (distance > BEHIND).then_some((distance, shown))
            })
            .collect();
        behind.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let list: Vec<&str> = behind.iter().map(|(_, shown)| shown.as_str()).collect();
        format!(
            "{}: more than {:.0} points behind the best rival in {} of {}{}{}\n",
            self.contenders[column].name,
            100.0 * BEHIND,
            list.len(),
            self.rows.len(),
            if list.is_empty() { "" } else { ": " },
            list.join(", ")
        )
    }

    /// The rival with the most goodput, and its score.
    pub(super) fn best_rival(&self, row: &Row) -> Option<(&'static str, f64)> {
        let rivals = self.contenders.iter().zip(&row.scores);
        rivals
            .filter(|(contender, _)| !contender.is_ours())
            .map(|(contender, score)| (contender.name, score.goodput))
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Entry, Score, contenders};

    fn report(scores: &[(f64, f64)]) -> ArenaReport {
        let all = contenders();
        let named = |name: &str| *all.iter().find(|one| one.name == name).unwrap();
        let entry = |work: &str| {
            let text = format!(
                "duration = '20s'\ntarget = '2s'\nservice = '{}'\nload.rate = '5/s'\n",
                &work[1..]
            );
            Entry::parse(&format!("{work}.toml"), &text).unwrap()
        };
        let score = |goodput| Score {
            goodput,
            refused: 3.0,
            ..Score::default()
        };
        let scores: Vec<Score> = scores
            .iter()
            .flat_map(|&(rival, ours)| [score(rival), score(ours)])
            .collect();
        let entries = [entry("a20ms"), entry("b400ms")].map(|mut entry| {
            entry.name = format!("s{}", entry.scenario.service.mean());
            entry
        });
        ArenaReport::new(&entries, &[named("aimd"), named("auto")], &[1], &scores)
    }

    #[test]
    fn summary_names_means_and_the_distance_to_the_best_rival() {
        let summary = report(&[(0.8, 0.9), (0.75, 0.7)]).summary();
        let expected = "auto: mean 80.0 (2); targets of ten times the work and more 90.0 (1); \
                        work of 0.2 s and more 70.0 (1)\n\
                        auto: more than 2 points behind the best rival in 1 of 2: \
                        s0.4 5.0 (aimd)\n";
        assert_eq!(summary, expected);
    }

    #[test]
    fn summary_says_that_dagor_is_treated_unfairly() {
        let all = contenders();
        let dagor = *all.iter().find(|one| one.name == "dagor").unwrap();
        let summary = ArenaReport::new(&[], &[dagor], &[1], &[]).summary();
        assert!(summary.starts_with("dagor: treated unfairly"), "{summary}");
    }

    #[test]
    fn refusals_are_those_of_ours_only() {
        let refusals = report(&[(0.8, 0.9), (0.75, 0.7)]).refusals();
        assert_eq!(refusals.len(), 2, "{refusals:?}");
        assert!(
            refusals
                .iter()
                .all(|line| line.starts_with("auto sheds 3.0"))
        );
    }
}
