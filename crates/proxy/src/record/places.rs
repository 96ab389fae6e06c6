//! Numbers that requests have in a recording for their application, class and replica.
//!
//! An engine numbers classes and replicas by itself, and a reload gives old numbers a new meaning.
//! A recording has one table of each for all applications and all its time, so a name once in it
//! keeps its number.

use tidegate_record::Tables;
use tidegate_sentry::{ClassId, DEFAULT_CLASS, ReplicaId};

use crate::settings::Settings;

/// The numbers of one application with the settings in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Places {
    application: u16,
    classes: Vec<u16>,
    /// By the engine's number, plus one; 0 for numbers that no replica has.
    replicas: Vec<u16>,
}

impl Places {
    pub(super) fn application(&self) -> u16 {
        self.application
    }

    pub(super) fn class(&self, class: ClassId) -> u16 {
        let class = self.classes.get(usize::from(class.0));
        class.or(self.classes.last()).copied().unwrap_or(0)
    }

    pub(super) fn replica(&self, replica: ReplicaId) -> u16 {
        let replica = self.replicas.get(usize::from(replica.0));
        replica.copied().unwrap_or(0)
    }
}

/// Every name that got a number.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    applications: Vec<String>,
    /// With the number of their application.
    classes: Vec<(u16, String)>,
    replicas: Vec<(u16, String)>,
}

impl Numbers {
    /// The numbers of an application; names that are new get the next ones.
    pub(super) fn places(&mut self, name: &str, settings: &Settings) -> Places {
        let application = number(&mut self.applications, name.to_owned());
        let classes = settings.config.protect.classes.iter();
        let mut classes: Vec<_> = classes.map(|class| class.name.clone()).collect();
        if classes.is_empty() {
            classes.push(DEFAULT_CLASS.to_owned());
        }
        let classes = classes.into_iter();
        let classes = classes.map(|name| number(&mut self.classes, (application, name)));
        let ids = (0..settings.replica_ids_end() as u16).map(ReplicaId);
        let replicas = ids.map(|id| match settings.replica(id) {
            Some(replica) => {
                let name = (application, replica.origin().to_string());
                number(&mut self.replicas, name).saturating_add(1)
            }
            None => 0,
        });
        Places {
            application,
            classes: classes.collect(),
            replicas: replicas.collect(),
        }
    }

    /// The tables of a recording.
    pub(super) fn tables(&self, reasons: Vec<String>) -> Tables {
        let names = |of: &[(u16, String)]| of.iter().map(|(_, name)| name.clone()).collect();
        Tables {
            applications: self.applications.clone(),
            classes: names(&self.classes),
            replicas: names(&self.replicas),
            reasons,
            class_applications: self.classes.iter().map(|(of, _)| *of).collect(),
            replica_applications: self.replicas.iter().map(|(of, _)| *of).collect(),
        }
    }
}

/// The place of a name in its table.
fn number<T: PartialEq>(table: &mut Vec<T>, name: T) -> u16 {
    let known = table.iter().position(|known| *known == name);
    let place = known.unwrap_or_else(|| {
        table.push(name);
        table.len() - 1
    });
    u16::try_from(place).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::state::State;

    fn places(numbers: &mut Numbers, name: &str, text: &str) -> Places {
        let config = Config::from_text("a.toml", text).unwrap();
        let state = State::new(config).unwrap();
        numbers.places(name, &state.settings())
    }

    #[test]
    fn a_name_keeps_its_number_whatever_a_reload_does() {
        let mut numbers = Numbers::default();
        let two = "upstream = ['http://127.0.0.1:1', 'http://127.0.0.1:2']";
        let gold = "[[protect.classes]]\nname = 'gold'\n[[protect.classes]]\nname = 'free'";
        let shop = places(&mut numbers, "shop", &format!("{two}\n{gold}"));
        let blog = places(&mut numbers, "blog", "upstream = 'http://127.0.0.1:1'");
        let later = "upstream = 'http://127.0.0.1:2'\n[[protect.classes]]\nname = 'free'";
        let later = places(&mut numbers, "shop", later);
        assert_eq!((shop.application(), blog.application()), (0, 1));
        assert_eq!((shop.class(ClassId(1)), later.class(ClassId(0))), (1, 1));
        assert_eq!(blog.class(ClassId(0)), 2, "a class is an application's");
        assert_eq!(shop.replica(ReplicaId(1)), 2);
        assert_eq!(later.replica(ReplicaId(0)), 2, "by its name");
        assert_eq!(blog.replica(ReplicaId(0)), 3);
        assert_eq!(blog.replica(ReplicaId(7)), 0);
        let tables = numbers.tables(Vec::new());
        assert_eq!(tables.classes, ["gold", "free", "default"]);
        assert_eq!(tables.class_applications, [0, 0, 1]);
        assert_eq!(tables.replica_applications, [0, 0, 1]);
    }
}
