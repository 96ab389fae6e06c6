//! Replicas that come and go: what the changes of a service say about how many there are, as times
//! of each replica.
//!
//! The last replicas go first. Of a step that adds and removes, what it adds stays.

use tidegate_config::Dur;

use super::MyService;

/// When a replica is in the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// Added then; there from the beginning where it is missing.
    added: Option<Dur>,
    /// Drained from then until then, or to the end.
    drained: Vec<(Dur, Option<Dur>)>,
    removed: Option<Dur>,
}

impl Lifetime {
    fn is_drained(&self) -> bool {
        matches!(self.drained.last(), Some((_, None)))
    }

    /// Its keys in a scenario.
    pub(super) fn keys(&self, start_delay: Dur) -> String {
        let mut keys = String::new();
        if let Some(added) = self.added {
            keys += &format!("added = '{added}'\nstart_delay = '{start_delay}'\n");
        }
        if let Some(removed) = self.removed {
            keys += &format!("removed = '{removed}'\n");
        }
        let drained: Vec<String> = self
            .drained
            .iter()
            .map(|(from, until)| {
                let until = until.map_or(String::new(), |until| format!(", until = '{until}'"));
                format!("{{ from = '{from}'{until} }}")
            })
            .collect();
        keys + &format!("drained = [{}]\n", drained.join(", "))
    }
}

/// The replicas of a service, those of the beginning first.
///
/// # Errors
/// A change that cannot be, by its time and key.
pub(super) fn lifetimes(service: &MyService) -> Result<Vec<Lifetime>, String> {
    let mut pool = Pool {
        all: vec![Lifetime::default(); service.replicas as usize],
        at: Dur::default(),
        start_delay: service.start_delay,
    };
    for change in &service.change {
        let at = change.at;
        if at < pool.at {
            return Err(format!(
                "a change at {at} comes after one at {}: write them in order of time",
                pool.at
            ));
        }
        let any = [
            change.add,
            change.drain,
            change.undrain,
            change.remove,
            change.replicas,
        ];
        if at.is_zero() && any.iter().any(Option::is_some) {
            return Err(
                "a change of the pool is later than 0s: `replicas` is what it begins with".into(),
            );
        }
        pool.at = at;
        let in_words = |key: &str, problem| format!("the change at {at}: `{key}` {problem}");
        pool.add(change.add.unwrap_or(0));
        let drain = pool.drain(change.drain.unwrap_or(0));
        drain.map_err(|problem| in_words("drain", problem))?;
        let undrain = pool.undrain(change.undrain.unwrap_or(0));
        undrain.map_err(|problem| in_words("undrain", problem))?;
        let remove = pool.remove(change.remove.unwrap_or(0));
        remove.map_err(|problem| in_words("remove", problem))?;
        if let Some(replicas) = change.replicas {
            let set = pool.set(replicas);
            set.map_err(|problem| in_words("replicas", problem))?;
        }
    }
    Ok(pool.all)
}

struct Pool {
    all: Vec<Lifetime>,
    at: Dur,
    start_delay: Dur,
}

impl Pool {
    fn add(&mut self, count: u32) {
        let new = Lifetime {
            added: Some(self.at),
            ..Lifetime::default()
        };
        self.all.extend(std::iter::repeat_n(new, count as usize));
    }

    fn is_starting(&self, replica: &Lifetime) -> bool {
        replica
            .added
            .is_some_and(|added| added.0 + self.start_delay.0 > self.at.0)
    }

    /// Those that are not drained and were there before this change, the last first.
    fn older(&self, starting: bool) -> Vec<usize> {
        let fits = |replica: &Lifetime| {
            replica.removed.is_none()
                && !replica.is_drained()
                && replica.added != Some(self.at)
                && self.is_starting(replica) == starting
        };
        (0..self.all.len())
            .rev()
            .filter(|&at| fits(&self.all[at]))
            .collect()
    }

    /// Those that are drained, the first drained first.
    fn drained(&self) -> Vec<usize> {
        let fits = |replica: &Lifetime| replica.removed.is_none() && replica.is_drained();
        let mut those: Vec<usize> = (0..self.all.len())
            .rev()
            .filter(|&at| fits(&self.all[at]))
            .collect();
        those.sort_by_key(|&at| self.all[at].drained.last().map(|(from, _)| *from));
        those
    }

    fn drain(&mut self, count: u32) -> Result<(), String> {
        for at in first(count, self.older(false), "serve")? {
            self.all[at].drained.push((self.at, None));
        }
        Ok(())
    }

    fn undrain(&mut self, count: u32) -> Result<(), String> {
        let mut those = self.drained();
        those.reverse();
        for at in first(count, those, "are drained")? {
            let drained = &mut self.all[at].drained;
            match drained.pop() {
                // Drained at this very time: nothing happened.
                Some((from, _)) if from == self.at => {}
                Some((from, _)) => drained.push((from, Some(self.at))),
                None => {}
            }
        }
        Ok(())
    }

    fn remove(&mut self, count: u32) -> Result<(), String> {
        let mut those = self.drained();
        those.extend(self.older(true));
        those.extend(self.older(false));
        self.leave(count, those)
    }

    /// The pool has this many that are not drained.
    fn set(&mut self, replicas: u32) -> Result<(), String> {
        let mut those = self.older(true);
        those.extend(self.older(false));
        let new = |it: &&Lifetime| it.added == Some(self.at) && it.removed.is_none();
        let there = (those.len() + self.all.iter().filter(new).count()) as u32;
        self.add(replicas.saturating_sub(there));
        self.leave(there.saturating_sub(replicas), those)
    }

    fn leave(&mut self, count: u32, those: Vec<usize>) -> Result<(), String> {
        for at in first(count, those, "are in the pool")? {
            self.all[at].removed = Some(self.at);
            self.all[at].drained.retain(|(from, _)| *from < self.at);
        }
        Ok(())
    }
}

fn first(count: u32, those: Vec<usize>, state: &str) -> Result<Vec<usize>, String> {
    let there = those.len();
    if there < count as usize {
        return Err(format!("is {count}, and {there} replicas {state} then"));
    }
    Ok(those.into_iter().take(count as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(changes: &str) -> Result<Vec<Lifetime>, String> {
        let text = format!("replicas = 2\nstart_delay = '30s'\n{changes}");
        lifetimes(&tidegate_config::parse("pool.toml", &text).unwrap())
    }

    fn change(at: &str, keys: &str) -> String {
        format!("[[change]]\nat = '{at}'\n{keys}\n")
    }

    fn seconds(seconds: u64) -> Dur {
        std::time::Duration::from_secs(seconds).into()
    }

    #[test]
    fn drained_replicas_are_removed_before_others() {
        let text = change("1m", "drain = 1") + &change("2m", "remove = 1");
        let replicas = pool(&text).unwrap();
        assert_eq!(replicas[0], Lifetime::default());
        assert_eq!(replicas[1].drained, [(seconds(60), None)]);
        assert_eq!(replicas[1].removed, Some(seconds(120)));
    }

    #[test]
    fn number_of_replicas_adds_what_is_missing_and_removes_what_is_not() {
        let text = change("1m", "replicas = 4") + &change("70s", "replicas = 3");
        let replicas = pool(&(text + &change("3m", "replicas = 1"))).unwrap();
        let times: Vec<_> = replicas.iter().map(|it| (it.added, it.removed)).collect();
        let (one, starting, late) = (seconds(60), seconds(70), seconds(180));
        // The one that has not started yet goes first.
        let expected = [
            (None, None),
            (None, Some(late)),
            (Some(one), Some(late)),
            (Some(one), Some(starting)),
        ];
        assert_eq!(times, expected);
    }

    #[test]
    fn replacement_in_one_step_keeps_the_new_replica() {
        let replicas = pool(&change("1m", "add = 1\nremove = 1")).unwrap();
        assert_eq!(replicas[1].removed, Some(seconds(60)));
        assert_eq!(
            (replicas[2].added, replicas[2].removed),
            (Some(seconds(60)), None)
        );
    }

    #[test]
    fn undrained_replica_is_back_and_may_be_drained_again() {
        let text = change("1m", "drain = 1") + &change("2m", "undrain = 1");
        let replicas = pool(&(text + &change("3m", "drain = 1"))).unwrap();
        let expected = [(seconds(60), Some(seconds(120))), (seconds(180), None)];
        assert_eq!(replicas[1].drained, expected);
    }

    #[test]
    fn changes_that_cannot_be_are_refused_by_time_and_key() {
        for (text, part) in [
            (
                change("1m", "drain = 3"),
                "60s: `drain` is 3, and 2 replicas serve",
            ),
            (
                change("1m", "undrain = 1"),
                "60s: `undrain` is 1, and 0 replicas are drained",
            ),
            (
                change("90s", "remove = 3"),
                "90s: `remove` is 3, and 2 replicas are in",
            ),
            (
                change("2m", "add = 1") + &change("1m", "add = 1"),
                "order of time",
            ),
            (change("0s", "add = 1"), "later than 0s"),
        ] {
            let error = pool(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
