//! A quantity that changes at known times, in steps or along straight lines.
//!
//! In a file a schedule is one value, or a list of points:
//!
//! ```toml
//! rate = "100/s"
//! rate = [
//!     { at = "0s", value = "100/s" },
//!     { at = "60s", value = "400/s" },               # a step
//!     { at = "90s", value = "100/s", ramp = true },  # a straight line from 60 s to 90 s
//! ]
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use serde::de::{self, IntoDeserializer, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer};
use tidegate_config::{Dur, Rate};
use tidegate_control::Timestamp;

/// A value from a point in time on.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point<V> {
    /// From when on.
    pub at: Dur,
    /// The value in force from then on.
    pub value: V,
    /// Reach the value along a straight line from the point before, instead of by a step.
    #[serde(default)]
    pub ramp: bool,
}

/// Why a schedule cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No points.
    #[error("a schedule needs at least one point")]
    Empty,
    /// Time runs backwards.
    #[error("the points of a schedule are in order of time: {0} comes after {1}")]
    Order(Dur, Dur),
    /// A line from nowhere.
    #[error("the first point of a schedule cannot be a ramp: there is nothing to start from")]
    FirstRamp,
    /// A value that no rate, speed or count can have.
    #[error("the value at {0} is not a number from 0")]
    Value(Dur),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    start: f64,
    value: f64,
    slope: f64,
    /// Integral from time zero to `start`.
    area: f64,
}

impl Segment {
    fn value_at(&self, time: f64) -> f64 {
        self.value + self.slope * (time - self.start)
    }

    fn area_at(&self, time: f64) -> f64 {
        let dt = time - self.start;
        self.area + dt * (self.value + 0.5 * self.slope * dt)
    }

    /// The time at which the integral from time zero reaches `area`, were the segment endless.
    ///
    /// Root of `v x + s x^2 / 2 = a` in the form that loses no digits when `s` is small.
    fn time_of(&self, area: f64) -> f64 {
        let needed = area - self.area;
        let root = (self.value * self.value + 2.0 * self.slope * needed).max(0.0);
        self.start + 2.0 * needed / (self.value + root.sqrt())
    }
}

/// A piecewise linear function of time, never negative; before its first point it has the first
/// value.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    segments: Vec<Segment>,
}

impl Schedule {
    /// The same value for ever.
    #[must_use]
    pub fn constant(value: f64) -> Self {
        Self {
            segments: vec![Segment {
                start: 0.0,
                value,
                slope: 0.0,
                area: 0.0,
            }],
        }
    }

    /// A schedule through the given points.
    ///
    /// # Errors
    /// No points, points out of order, a ramp as the first, or a value that is not a number from 0.
    pub fn new<V: Copy + Into<f64>>(points: &[Point<V>]) -> Result<Self, ScheduleError> {
        check(points)?;
        let first = points.first().ok_or(ScheduleError::Empty)?;
        let mut schedule = Self::constant(first.value.into());
        for pair in points.windows(2) {
            schedule.extend(pair[0].at, pair[1]);
        }
        Ok(schedule)
    }

    /// Adds a point that follows one at `from`.
    fn extend<V: Into<f64>>(&mut self, from: Dur, point: Point<V>) {
        let (from, to) = (from.as_secs_f64(), point.at.as_secs_f64());
        let value = point.value.into();
        if point.ramp && to > from {
            let before = self.last().value_at(from);
            self.append(from, before, (value - before) / (to - from));
        }
        self.append(to, value, 0.0);
    }

    fn append(&mut self, start: f64, value: f64, slope: f64) {
        let area = self.last().area_at(start);
        self.segments.push(Segment {
            start,
            value,
            slope,
            area,
        });
    }

    fn last(&self) -> &Segment {
        self.segments.last().expect("a schedule has a segment")
    }

    /// The segment in force at `time`; of several that start then, the last.
    fn segment_at(&self, time: f64) -> usize {
        self.segments
            .partition_point(|segment| segment.start <= time)
            .saturating_sub(1)
    }

    /// The value at `seconds`.
    #[must_use]
    pub fn value_at(&self, seconds: f64) -> f64 {
        self.segments[self.segment_at(seconds)].value_at(seconds)
    }

    /// The integral from time zero to `seconds`.
    #[must_use]
    pub fn area_at(&self, seconds: f64) -> f64 {
        self.segments[self.segment_at(seconds)].area_at(seconds)
    }

    /// When the integral since `seconds` reaches `area`; never, when it stays below.
    #[must_use]
    #[inline]
    pub fn time_of(&self, seconds: f64, area: f64) -> Option<f64> {
        if let [only] = &self.segments[..] {
            let time = seconds + area / only.value;
            return time.is_finite().then_some(time);
        }
        let first = self.segment_at(seconds);
        let wanted = self.segments[first].area_at(seconds) + area;
        let at = first
            + self.segments[first + 1..]
                .iter()
                .take_while(|next| next.area < wanted)
                .count();
        let time = self.segments[at].time_of(wanted);
        time.is_finite().then_some(time.max(seconds))
    }

    /// The greatest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        // The maximum of a piecewise linear function is at the end of a piece; a ramp ends where
        // the next begins.
        self.segments.iter().map(|s| s.value).fold(0.0, f64::max)
    }

    /// The changes after time zero as steps; a ramp becomes steps no longer than `resolution`, each
    /// with the value of its middle.
    #[must_use]
    pub fn steps(&self, resolution: Duration) -> Vec<(Timestamp, f64)> {
        let mut steps = Vec::new();
        for (at, segment) in self.segments.iter().enumerate() {
            let end = self.segments.get(at + 1).map(|next| next.start);
            match end {
                Some(end) if end <= segment.start => {} // replaced at once
                Some(end) if segment.slope != 0.0 => segment.stairs(end, resolution, &mut steps),
                _ if segment.start > 0.0 => {
                    steps.push((Timestamp::from_secs_f64(segment.start), segment.value));
                }
                _ => {}
            }
        }
        steps
    }
}

impl Segment {
    fn stairs(&self, end: f64, resolution: Duration, steps: &mut Vec<(Timestamp, f64)>) {
        let length = end - self.start;
        let count = (length / resolution.as_secs_f64()).ceil().max(1.0);
        let width = length / count;
        steps.extend((0..count as u64).map(|step| {
            let from = self.start + step as f64 * width;
            (
                Timestamp::from_secs_f64(from),
                self.value_at(from + width / 2.0),
            )
        }));
    }
}

fn check<V: Copy + Into<f64>>(points: &[Point<V>]) -> Result<(), ScheduleError> {
    if points.first().is_some_and(|first| first.ramp) {
        return Err(ScheduleError::FirstRamp);
    }
    if let Some(pair) = points.windows(2).find(|pair| pair[0].at > pair[1].at) {
        return Err(ScheduleError::Order(pair[0].at, pair[1].at));
    }
    let invalid = |value: f64| !(value >= 0.0 && value.is_finite());
    match points.iter().find(|point| invalid(point.value.into())) {
        Some(point) => Err(ScheduleError::Value(point.at)),
        None => Ok(()),
    }
}

/// A [`Schedule`] whose values a file writes as `V`: a rate with its unit, or a plain number.
#[derive(Debug, Clone, PartialEq)]
pub struct Scheduled<V> {
    schedule: Schedule,
    written_as: PhantomData<V>,
}

/// A schedule of plain numbers, such as a speed.
pub type Numbers = Scheduled<f64>;

/// A schedule of rates.
pub type Rates = Scheduled<PerSecond>;

/// A rate in a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct PerSecond(Rate);

impl From<PerSecond> for f64 {
    fn from(rate: PerSecond) -> Self {
        rate.0.0
    }
}

impl<V> Deref for Scheduled<V> {
    type Target = Schedule;

    fn deref(&self) -> &Schedule {
        &self.schedule
    }
}

impl<V> From<Schedule> for Scheduled<V> {
    fn from(schedule: Schedule) -> Self {
        Self {
            schedule,
            written_as: PhantomData,
        }
    }
}

impl<'de, V> Deserialize<'de> for Scheduled<V>
where
    V: Deserialize<'de> + Copy + Into<f64>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScheduleVisitor(PhantomData))
    }
}

struct ScheduleVisitor<V>(PhantomData<V>);

impl<V: Copy + Into<f64>> ScheduleVisitor<V> {
    fn single<'de, E, D>(value: D) -> Result<Scheduled<V>, E>
    where
        E: de::Error,
        V: Deserialize<'de>,
        D: Deserializer<'de, Error = E>,
    {
        let point = Point {
            at: Dur::default(),
            value: V::deserialize(value)?,
            ramp: false,
        };
        Self::points(&[point])
    }

    fn points<E: de::Error>(points: &[Point<V>]) -> Result<Scheduled<V>, E> {
        Schedule::new(points).map(Into::into).map_err(E::custom)
    }
}

impl<'de, V> de::Visitor<'de> for ScheduleVisitor<V>
where
    V: Deserialize<'de> + Copy + Into<f64>,
{
    type Value = Scheduled<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value, or a list of points with `at` and `value`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::single(text.into_deserializer())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Self::single(number.into_deserializer())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Self::single(number.into_deserializer())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Self::single(number.into_deserializer())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        let points: Vec<Point<V>> = Deserialize::deserialize(SeqAccessDeserializer::new(seq))?;
        Self::points(&points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(points: &[(u64, f64, bool)]) -> Result<Schedule, ScheduleError> {
        let points: Vec<_> = points
            .iter()
            .map(|&(at, value, ramp)| Point {
                at: Duration::from_secs(at).into(),
                value,
                ramp,
            })
            .collect();
        Schedule::new(&points)
    }

    fn hill() -> Schedule {
        schedule(&[(0, 10.0, false), (10, 20.0, false), (20, 0.0, true)]).unwrap()
    }

    #[test]
    fn steps_and_ramps() {
        let hill = hill();
        for (time, value) in [
            (0.0, 10.0),
            (9.9, 10.0),
            (10.0, 20.0),
            (15.0, 10.0),
            (99.0, 0.0),
        ] {
            assert!((hill.value_at(time) - value).abs() < 1e-9, "at {time}");
        }
        assert_eq!(hill.max(), 20.0);
        assert_eq!(hill.area_at(10.0), 100.0);
        assert_eq!(hill.area_at(50.0), 200.0);
    }

    #[test]
    fn the_integral_can_be_inverted() {
        let hill = hill();
        for wanted in [0.5, 99.0, 100.0, 150.0, 199.999] {
            let time = hill.time_of(0.0, wanted).unwrap();
            assert!(
                (hill.area_at(time) - wanted).abs() < 1e-6,
                "{wanted} at {time}"
            );
        }
        assert_eq!(hill.time_of(0.0, 200.1), None, "the load has ended");
        assert_eq!(hill.time_of(5.0, 50.0), Some(10.0));
    }

    #[test]
    fn a_pause_is_skipped() {
        let pause = schedule(&[(0, 1.0, false), (10, 0.0, false), (20, 1.0, false)]).unwrap();
        assert_eq!(pause.time_of(9.0, 2.0), Some(21.0));
        assert_eq!(pause.time_of(12.0, 1.0), Some(21.0));
    }

    #[test]
    fn ramps_become_stairs_that_keep_the_area() {
        let steps = hill().steps(Duration::from_secs(2));
        assert_eq!(steps[0], (Timestamp::from_secs_f64(10.0), 18.0));
        assert_eq!(steps.len(), 6);
        let area: f64 = steps[..5].iter().map(|(_, value)| 2.0 * value).sum();
        assert!((area - 100.0).abs() < 1e-9);
        assert_eq!(steps[5], (Timestamp::from_secs_f64(20.0), 0.0));
    }

    #[test]
    fn impossible_schedules_are_refused() {
        assert_eq!(schedule(&[]), Err(ScheduleError::Empty));
        assert_eq!(schedule(&[(0, 1.0, true)]), Err(ScheduleError::FirstRamp));
        assert!(schedule(&[(5, 1.0, false), (1, 1.0, false)]).is_err());
        assert!(schedule(&[(0, -1.0, false)]).is_err());
        assert!(schedule(&[(0, f64::NAN, false)]).is_err());
    }

    #[test]
    fn files_write_one_value_or_points() {
        #[derive(Debug, Deserialize)]
        struct File {
            rate: Rates,
            #[serde(default = "one")]
            speed: Numbers,
        }
        fn one() -> Numbers {
            Schedule::constant(1.0).into()
        }
        let parse = |text: &str| tidegate_config::parse::<File>("t.toml", text);
        let file = parse("rate = '40/s'\nspeed = 2").unwrap();
        assert_eq!((file.rate.max(), file.speed.max()), (40.0, 2.0));
        let file = parse("rate = [{at='0s', value='1/s'}, {at='9s', value='2/s'}]").unwrap();
        assert_eq!(file.rate.value_at(10.0), 2.0);
        let error = parse("rate = [{at='0s', valeu='1/s'}]").unwrap_err();
        assert!(error.message().contains("did you mean `value`"), "{error}");
        let error = parse("rate = 40").unwrap_err();
        assert!(error.message().contains("not a rate"), "{error}");
    }
}
