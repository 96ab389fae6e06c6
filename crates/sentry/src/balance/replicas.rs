//! The replicas of a plan, with what is known of all of them together.

use std::ops::Deref;
use std::sync::Arc;

use super::Vacancies;
use crate::replica::Replica;

/// The replicas of a plan, by number, with what is known of all of them together.
#[derive(Debug, Clone)]
pub(crate) struct Replicas {
    list: Vec<Arc<Replica>>,
    vacancies: Arc<Vacancies>,
}

impl Replicas {
    /// None yet; there will never be more than `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            list: Vec::new(),
            vacancies: Arc::new(Vacancies::new(capacity)),
        }
    }

    /// Puts a replica with this window at a number, which is the next one or one that is not in
    /// use any more.
    pub(crate) fn put(&mut self, index: usize, limit: u32) -> &Arc<Replica> {
        let replica = Arc::new(Replica::among(&self.vacancies, index, limit));
        match self.list.get_mut(index) {
            Some(place) => *place = replica,
            None => self.list.push(replica),
        }
        &self.list[index]
    }

    pub(crate) fn vacancies(&self) -> &Vacancies {
        &self.vacancies
    }
}

impl Deref for Replicas {
    type Target = [Arc<Replica>];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}
