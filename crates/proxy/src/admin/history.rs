//! The last day at falling resolution, in rings of fixed size: seconds for ten minutes, tens of
//! seconds for three hours, minutes for a day.
//!
//! Where a `state_file` is configured, minutes and marks are kept beside it (`FILE.history`) over a
//! restart. A file that cannot be read is an empty history.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_sentry::Status;

use super::Operator;
use super::marks::Mark;
use super::recent::Recent;
use super::watch::Watch;
use crate::config::DEFAULT;

/// Seconds per point and points, of each ring.
const RINGS: [(u32, usize); 3] = [(1, 600), (10, 1080), (60, 1440)];

/// The most that is read of a file: a day of minutes has a tenth of it.
const BYTES_MAX: u64 = 4 << 20;

/// Marks are as old at most.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between two writes of the file.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Names of a point's parts, in their order; the first is seconds since 1970, times are
/// milliseconds.
const COLUMNS: [&str; 12] = [
    "time",
    "offered",
    "admitted",
    "in_target",
    "shed",
    "failed",
    "capacity",
    "p50",
    "p95",
    "p99",
    "in_flight",
    "queued",
];

/// Parts of which a longer stretch has the largest instead of the mean: the time itself and the
/// response times.
const LARGEST: [usize; 4] = [0, 7, 8, 9];

type Point = [Option<f64>; COLUMNS.len()];

/// A point as it is kept: a day of them for each of a thousand applications is in memory. What is
/// missing is NaN.
#[derive(Debug, Clone, Copy)]
struct Packed {
    time: u32,
    parts: [f32; COLUMNS.len() - 1],
}

impl From<Point> for Packed {
    fn from([time, parts @ ..]: Point) -> Self {
        Self {
            time: time.unwrap_or(0.0) as u32,
            parts: parts.map(|part| part.map_or(f32::NAN, |part| part as f32)),
        }
    }
}

impl From<Packed> for Point {
    fn from(packed: Packed) -> Self {
        let part = |at: usize| Some(packed.parts[at]).filter(|part| !part.is_nan());
        std::array::from_fn(|at| match at.checked_sub(1) {
            None => Some(f64::from(packed.time)),
            Some(at) => part(at).map(|part| rounded(f64::from(part))),
        })
    }
}

/// The answer of `/api/history`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HistoryView {
    /// Names of a point's parts: seconds since 1970, rates per second, milliseconds, requests.
    columns: [&'static str; COLUMNS.len()],
    /// The finest first.
    rings: Vec<RingView>,
    /// Overloads, reloads and operators' actions, the oldest first.
    marks: Vec<Mark>,
}

impl HistoryView {
    /// The points and marks after a time, in seconds since 1970.
    pub(super) fn of(watch: &Watch, since: f64) -> Self {
        Self {
            columns: COLUMNS,
            rings: watch.history.rings(since),
            marks: watch.marks.since(since),
        }
    }
}

/// The history at one resolution.
#[derive(Debug, Serialize, JsonSchema)]
struct RingView {
    /// Seconds between two points.
    seconds: u32,
    /// Oldest first.
    points: Vec<Point>,
}

#[derive(Debug)]
struct Ring {
    seconds: u32,
    points_max: usize,
    points: VecDeque<Packed>,
    /// Points of the finer ring that make up the next one.
    pending: Vec<Point>,
}

/// The last day at falling resolution, in rings of fixed size: seconds for ten minutes, tens of
/// seconds for three hours, minutes for a day.
#[derive(Debug)]
pub(super) struct History(Vec<Ring>);

impl Default for History {
    fn default() -> Self {
        let ring = |(seconds, points_max)| Ring {
            seconds,
            points_max,
            points: VecDeque::new(),
            pending: Vec::new(),
        };
        Self(RINGS.into_iter().map(ring).collect())
    }
}

impl History {
    /// Takes the figures of a second.
    pub(super) fn add(&mut self, time: SystemTime, second: &Recent, status: &Status) {
        let total = &second.total;
        let in_flight: u32 = status
            .replicas
            .iter()
            .map(|replica| replica.in_flight)
            .sum();
        let millis = |seconds: Option<f64>| seconds.map(|seconds| rounded(seconds * 1e3));
        let rate = |value: f64| Some(rounded(value));
        let point = [
            None,
            rate(total.offered_per_second),
            rate(total.admitted_per_second),
            rate(total.in_target_per_second),
            rate(total.shed_per_second),
            rate(total.failed_per_second),
            status.drain_rate.map(rounded),
            millis(total.response_p50_seconds),
            millis(total.response_p95_seconds),
            millis(total.response_p99_seconds),
            Some(f64::from(in_flight)),
            Some(f64::from(status.queue.requests)),
        ];
        // Of an application in which nothing happens a picture stands for several seconds.
        let seconds = second.seconds.round().clamp(1.0, 60.0) as u32;
        for ago in (0..seconds).rev() {
            let [_, parts @ ..] = point;
            let mut whole = [Some(unix(time) - f64::from(ago)); COLUMNS.len()];
            whole[1..].copy_from_slice(&parts);
            self.push(whole);
        }
    }

    fn push(&mut self, point: Point) {
        let mut next = Some(point);
        let mut finer = 1;
        for ring in &mut self.0 {
            let Some(point) = next.take() else { return };
            ring.pending.push(point);
            if ring.pending.len() as u32 * finer >= ring.seconds {
                let whole = summary(&ring.pending);
                ring.pending.clear();
                if ring.points.len() >= ring.points_max {
                    ring.points.pop_front();
                }
                ring.points.push_back(whole.into());
                next = Some(whole);
                finer = ring.seconds;
            }
        }
    }

    /// The points after a time, in seconds since 1970.
    fn rings(&self, since: f64) -> Vec<RingView> {
        let after = |point: &&Packed| f64::from(point.time) > since;
        let ring = |ring: &Ring| RingView {
            seconds: ring.seconds,
            points: ring
                .points
                .iter()
                .filter(after)
                .copied()
                .map(Point::from)
                .collect(),
        };
        self.0.iter().map(ring).collect()
    }

    /// The minutes, to be kept with these marks.
    fn kept(&self, marks: Vec<Mark>) -> Kept {
        let coarsest = self.0.last();
        Kept {
            columns: COLUMNS.map(str::to_owned).to_vec(),
            minutes: coarsest.map_or_else(Vec::new, |ring| {
                let points = ring.points.iter().copied().map(Point::from);
                points.map(Vec::from).collect()
            }),
            marks,
        }
    }

    /// Goes on from what another process kept, if its columns are ours and it is of the last day.
    fn resume(&mut self, kept: Kept, now: SystemTime) {
        let Some(ring) = self.0.last_mut() else {
            return;
        };
        if kept.columns != COLUMNS {
            return;
        }
        let day = f64::from(ring.seconds) * ring.points_max as f64;
        let (from, to) = (unix(now) - day, unix(now));
        let points = kept
            .minutes
            .into_iter()
            .filter_map(|point| Point::try_from(point).ok());
        let recent = points.filter(|point| point[0].is_some_and(|at| (from..=to).contains(&at)));
        ring.points = recent.map(Packed::from).collect();
        let excess = ring.points.len().saturating_sub(ring.points_max);
        ring.points.drain(..excess);
    }
}

/// What is in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    columns: Vec<String>,
    minutes: Vec<Vec<Option<f64>>>,
    #[serde(default)]
    marks: Vec<Mark>,
}

impl Kept {
    fn read(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        File::open(path)?
            .take(BYTES_MAX)
            .read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Whole or not at all.
    fn write(&self, path: &Path) -> io::Result<()> {
        let beside = with_suffix(path, ".new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(beside, path)
    }
}

/// The mean of each part, of some the largest.
fn summary(points: &[Point]) -> Point {
    std::array::from_fn(|part| {
        let values = || points.iter().filter_map(|point| point[part]);
        let count = values().count();
        if LARGEST.contains(&part) {
            values().reduce(f64::max)
        } else {
            (count > 0).then(|| rounded(values().sum::<f64>() / count as f64))
        }
    })
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

pub(super) fn unix(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64().round()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where the history of an application is kept, if it is.
fn file(operator: &Operator, application: &str) -> Option<PathBuf> {
    let state_file = operator.state.config().state_file.clone()?;
    Some(with_suffix(
        &state_file,
        &match application {
            DEFAULT => ".history".to_owned(),
            name => format!(".history.{name}"),
        },
    ))
}

fn names(operator: &Operator) -> Vec<String> {
    let applications = operator.state.applications();
    applications.iter().map(|of| of.name().to_owned()).collect()
}

/// Goes on from the files, and writes them once a minute, until it is dropped.
pub(super) async fn keep(operator: Arc<Operator>) {
    for name in names(&operator) {
        let Some(path) = file(&operator, &name) else {
            continue;
        };
        let read = tokio::task::spawn_blocking(move || Kept::read(&path)).await;
        if let Ok(Ok(kept)) = read {
            let now = SystemTime::now();
            operator.watch(&name, |watch| watch.resume(kept, now));
        }
    }
    operator.history_read.store(true, Ordering::Relaxed);
    loop {
        tokio::time::sleep(KEEP_EVERY).await;
        write(&operator).await;
    }
}

/// Writes the files of all applications, unless what is in them was not read yet.
pub(super) async fn write(operator: &Operator) {
    if !operator.history_read.load(Ordering::Relaxed) {
        return;
    }
    for name in names(operator) {
        let Some(path) = file(operator, &name).filter(|_| !operator.state.is_relieved()) else {
            continue;
        };
        let kept = operator.watch(&name, |watch| watch.history.kept(watch.marks.since(0.0)));
        // A disk that is full is told of by the state file beside it.
        let _ = tokio::task::spawn_blocking(move || kept.write(&path)).await;
    }
}

impl Watch {
    /// Goes on from what another process kept.
    fn resume(&mut self, mut kept: Kept, now: SystemTime) {
        let day = unix(now) - DAY.as_secs_f64();
        let mut marks = std::mem::take(&mut kept.marks);
        marks.retain(|mark| (day..=unix(now)).contains(&mark.time));
        self.marks.resume(marks);
        self.history.resume(kept, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::marks::MarkKind;
    use super::*;

    fn point(time: u64, offered: f64, p99: Option<f64>) -> Point {
        let mut point = [None; COLUMNS.len()];
        (point[0], point[1], point[9]) = (Some(time as f64), Some(offered), p99);
        point
    }

    fn day(history: &mut History, seconds: u64) {
        for second in 1..=seconds {
            let p99 = (second % 60 == 30).then_some(second as f64);
            history.push(point(second, (second % 10) as f64, p99));
        }
    }

    #[test]
    fn rings_are_bounded_and_reach_back_a_day() {
        let mut history = History::default();
        day(&mut history, 100_000);
        let rings = history.rings(0.0);
        let lengths: Vec<_> = rings.iter().map(|ring| ring.points.len()).collect();
        assert_eq!(lengths, [600, 1080, 1440]);
        let later = history.rings(99_990.0);
        let lengths: Vec<_> = later.iter().map(|ring| ring.points.len()).collect();
        assert_eq!(lengths, [10, 1, 0], "what a page does not have yet");
        let minute = rings[2].points[1439];
        assert_eq!(minute[0], Some(99_960.0));
        assert_eq!(minute[1], Some(4.5), "the mean of 0 to 9");
        assert_eq!(
            minute[9],
            Some(99_930.0),
            "the largest of the response times"
        );
    }

    #[test]
    fn minutes_outlive_a_restart_and_foreign_files_do_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json.history");
        let mut history = History::default();
        day(&mut history, 3600);
        let mark = Mark {
            time: 3650.0,
            kind: MarkKind::Operator,
            words: "dry run on".to_owned(),
        };
        history.kept(vec![mark.clone()]).write(&path).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(3700);
        let mut next = Watch::new(now);
        next.resume(Kept::read(&path).unwrap(), now);
        let view = HistoryView::of(&next, 0.0);
        assert_eq!(view.rings[2].points.len(), 60);
        assert_eq!(view.marks, [mark]);
        let mut next = Watch::new(UNIX_EPOCH);
        next.resume(Kept::read(&path).unwrap(), UNIX_EPOCH);
        let view = HistoryView::of(&next, 0.0);
        let future = (view.rings[2].points.len(), view.marks.len());
        assert_eq!(future, (0, 0), "not from the future");
        fs::write(&path, "{ \"columns\": [\"other\"], \"minutes\": [[1]] }").unwrap();
        next.resume(Kept::read(&path).unwrap(), now);
        fs::write(&path, "torn").unwrap();
        assert!(Kept::read(&path).is_err());
    }
}
