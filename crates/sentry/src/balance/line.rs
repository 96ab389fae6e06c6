//! A line on which each replica is as long as its part of the whole.
//!
//! Decision: docs/decisions/0313-weights-by-the-golden-ratio.md.

/// A line on which each replica is as long as its part of the whole.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Where each ends.
    ends: Vec<f64>,
}

impl Line {
    /// Lays one after the other.
    pub(super) fn of(parts: impl Iterator<Item = f64>) -> Self {
        let add = |end: &mut f64, part: f64| {
            *end += part;
            Some(*end)
        };
        Self {
            ends: parts.scan(0.0, add).collect(),
        }
    }

    /// The one at a point (0 to 1).
    pub(super) fn at(&self, point: f64) -> Option<usize> {
        let total = self.ends.last()?;
        let index = self.ends.partition_point(|end| *end <= point * total);
        (index < self.ends.len()).then_some(index)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_met_as_often_as_it_is_long() {
        let line = Line::of([1.0, 0.0, 3.0].into_iter());
        let points = (0..400).map(|step| f64::from(step) / 400.0);
        let met: Vec<usize> = points.filter_map(|point| line.at(point)).collect();
        let count = |index| met.iter().filter(|&&met| met == index).count();
        assert_eq!([count(0), count(1), count(2)], [100, 0, 300]);
        assert_eq!(Line::default().at(0.5), None);
    }
}
