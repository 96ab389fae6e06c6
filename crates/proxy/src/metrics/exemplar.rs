//! Requests that stand for others: a trace beside a figure, so that a person who sees a long
//! response time finds one request that had it.

use std::time::SystemTime;

use tidegate_sentry::ShedReason;

use super::histogram::exported_bucket;
use crate::trace::{SpanId, TraceId};

/// A request that stands for others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// The trace in which it is recorded.
    pub trace: TraceId,
    /// Its span there.
    pub span: SpanId,
    /// What it was measured with; 1 for one that is only counted.
    pub value: f64,
    /// When that was.
    pub at: SystemTime,
}

/// The last exemplars of a class on a worker thread: one for each exported bucket of its response
/// time and one for each shed reason.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exemplars {
    response: Vec<(usize, Exemplar)>,
    shed: Vec<(ShedReason, Exemplar)>,
}

impl Exemplars {
    pub(super) fn response(&mut self, exemplar: Exemplar) {
        put(
            &mut self.response,
            exported_bucket(exemplar.value),
            exemplar,
        );
    }

    pub(super) fn shed(&mut self, reason: ShedReason, exemplar: Exemplar) {
        put(&mut self.shed, reason, exemplar);
    }

    /// Takes over what is newer there.
    pub(super) fn add(&mut self, other: &Self) {
        for (bucket, exemplar) in &other.response {
            put(&mut self.response, *bucket, *exemplar);
        }
        for (reason, exemplar) in &other.shed {
            put(&mut self.shed, *reason, *exemplar);
        }
    }

    /// Exemplars of the response time, by the place of their bucket among the exported ones.
    pub(crate) fn of_response(&self) -> &[(usize, Exemplar)] {
        &self.response
    }

    /// The last request of a reason.
    pub(crate) fn of_reason(&self, reason: &str) -> Option<Exemplar> {
        let mut shed = self.shed.iter();
        let found = shed.find(|(known, _)| known.as_str() == reason);
        found.map(|(_, exemplar)| *exemplar)
    }
}

/// Replaces what is older under the same key. There are as many keys as edges or reasons.
fn put<K: PartialEq>(list: &mut Vec<(K, Exemplar)>, key: K, exemplar: Exemplar) {
    match list.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) if known.at <= exemplar.at => *known = exemplar,
        Some(_) => {}
        None => list.push((key, exemplar)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn last_exemplar_of_a_bucket_is_kept() {
        let exemplar = |id: u128, value: f64, seconds: u64| Exemplar {
            trace: TraceId::new(id).unwrap(),
            span: SpanId::new(1).unwrap(),
            value,
            at: UNIX_EPOCH + Duration::from_secs(seconds),
        };
        let (mut one, mut two) = (Exemplars::default(), Exemplars::default());
        one.response(exemplar(1, 0.9, 5));
        one.response(exemplar(2, 0.3, 5));
        two.response(exemplar(3, 0.95, 6));
        two.response(exemplar(4, 0.31, 4));
        two.shed(ShedReason::Expired, exemplar(5, 1.0, 1));
        one.add(&two);
        let ids: Vec<_> = one.of_response().iter().map(|(_, it)| it.trace).collect();
        assert_eq!(ids, [3, 2].map(|id| TraceId::new(id).unwrap()));
        assert!(one.of_reason("expired").is_some());
        assert!(one.of_reason("predicted").is_none());
    }
}
