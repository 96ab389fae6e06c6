//! How much a replica can do, learnt from completions alone.
//!
//! Stretches of some dozens of completions give throughput `X` and mean service time `R` at a
//! concurrency `n`. They are kept by `log2 n`: where clients give up in a meltdown, less and less
//! is answered, and what was answered on the way there is kept apart. A replica of `c` servers and
//! base service time `S` has `X(n) = min(n, c) / S`, so
//!
//! ```text
//! S = min over n of R(n),    X_max = max over n of X(n),    c = X_max S
//! ```
//!
//! and it was seen at its capacity when `R(n)` was far above `S` for long enough, or when its
//! window was full while others waited for it: then the throughput of that time is what it can do
//! at that window, and nothing is known of larger ones. A replica whose throughput falls beyond its
//! knee (thrashing) is so credited with what it did at the knee, where enforcing would hold it.
//! `X_max` is taken over unions of neighbouring bins, each by its lower confidence bound, so that
//! the largest is not the luckiest.

/// Concurrencies up to `2^BINS`.
const BINS: usize = 20;
/// A stretch ends with this many completions and after so long, or after the longest time.
const STRETCH_COUNT_MIN: f64 = 30.0;
const STRETCH_SECONDS_MIN: f64 = 0.5;
const STRETCH_SECONDS_MAX: f64 = 5.0;
/// A service time this many times the base shows a queue inside that no chance makes: four servers
/// at nine tenths of their capacity do not reach it on average.
const QUEUEING_FACTOR: f64 = 3.0;
/// Completions without which a bin says nothing about the base service time.
const BASE_COUNT_MIN: f64 = 25.0;
/// Completions without which a union of bins says nothing about the capacity. Chosen: a standard
/// error of a twelfth.
const RATE_COUNT_MIN: f64 = 150.0;
/// Change of the capacity below which the model stays as it is.
const RATE_CHANGE_MIN: f64 = 0.03;
/// Seconds of a bin beyond which older ones fade, so that a change is followed within a minute.
const BIN_SECONDS_MAX: f64 = 60.0;
/// Half-life of what was seen with a full window, so that a change is followed within a minute.
const FULL_HALF_LIFE_SECONDS: f64 = 30.0;
/// Completions without which a full window says nothing about the capacity. Chosen: a standard
/// error of an eighth.
const FULL_COUNT_MIN: f64 = 60.0;
/// Half-life of what was seen at concurrencies that do not occur any more.
const HALF_LIFE_SECONDS: f64 = 600.0;

/// Completions, their seconds inside, and the time in which they happened.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    count: f64,
    inside: f64,
    seconds: f64,
    /// Concurrency times seconds.
    occupied: f64,
}

impl Stretch {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.inside += other.inside;
        self.seconds += other.seconds;
        self.occupied += other.occupied;
    }

    fn fade(&mut self, share: f64) {
        self.count *= share;
        self.inside *= share;
        self.seconds *= share;
        self.occupied *= share;
    }

    fn service_seconds(&self) -> f64 {
        self.inside / self.count
    }

    /// Throughput, less one standard error of a Poisson count.
    fn rate(&self) -> f64 {
        (self.count - self.count.sqrt()).max(0.0) / self.seconds
    }
}

/// What a station is to be like: servers in parallel, and seconds that each takes on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Servers {
    /// `None` while no limit was seen.
    pub(super) count: Option<u32>,
    pub(super) seconds: f64,
}

/// The model of one replica.
#[derive(Debug, Clone, Default)]
pub(super) struct CapacityModel {
    open: Stretch,
    bins: Vec<Stretch>,
    /// What it did lately while its window was full and others waited, by `log2` of the window: a
    /// small one does not show what a larger one can do.
    full: Vec<Stretch>,
    /// Throughput that the model is credited with.
    rate: Option<f64>,
}

impl CapacityModel {
    /// Adds what was served in the seconds of a tick, the seconds those requests took, and how many
    /// are inside.
    pub(super) fn on_tick(&mut self, count: u32, inside: f64, seconds: f64, in_flight: u32) {
        self.open.add(&Stretch {
            count: f64::from(count),
            inside,
            seconds,
            occupied: f64::from(in_flight) * seconds,
        });
        let share = 0.5_f64.powf(seconds / HALF_LIFE_SECONDS);
        self.bins.iter_mut().for_each(|bin| bin.fade(share));
        let share = 0.5_f64.powf(seconds / FULL_HALF_LIFE_SECONDS);
        self.full.iter_mut().for_each(|bin| bin.fade(share));
        let enough = self.open.count >= STRETCH_COUNT_MIN;
        if (enough && self.open.seconds >= STRETCH_SECONDS_MIN)
            || self.open.seconds >= STRETCH_SECONDS_MAX
        {
            self.close();
        }
    }

    /// Adds what was served in a tick in which the window was full while others waited.
    pub(super) fn on_full(&mut self, count: u32, seconds: f64, window: u32) {
        self.full.resize(BINS, Stretch::default());
        let index = f64::from(window.max(1)).log2().floor() as usize;
        self.full[index.min(BINS - 1)].add(&Stretch {
            count: f64::from(count),
            seconds,
            ..Stretch::default()
        });
    }

    /// Whether a limit was seen.
    pub(super) fn is_known(&self) -> bool {
        self.rate.is_some()
    }

    fn close(&mut self) {
        let stretch = std::mem::take(&mut self.open);
        if stretch.count < 1.0 {
            return;
        }
        let concurrency = stretch.occupied / stretch.seconds;
        let index = concurrency.max(1.0).log2().floor() as usize;
        self.bins.resize(BINS, Stretch::default());
        let bin = &mut self.bins[index.min(BINS - 1)];
        bin.add(&stretch);
        if bin.seconds > BIN_SECONDS_MAX {
            bin.fade(BIN_SECONDS_MAX / bin.seconds);
        }
    }

    /// The station that behaves like the replica.
    pub(super) fn servers(&mut self) -> Servers {
        let Some(seconds) = self.base_seconds() else {
            return Servers {
                count: None,
                seconds: 0.0,
            };
        };
        let best = self
            .full_rate()
            .or_else(|| self.best_rate().filter(|_| self.queued(seconds)));
        let changed = |rate: f64, best: f64| (best / rate - 1.0).abs() > RATE_CHANGE_MIN;
        if let Some(best) = best
            && self.rate.is_none_or(|rate| changed(rate, best))
        {
            self.rate = Some(best);
        }
        self.rate.map_or(
            Servers {
                count: None,
                seconds,
            },
            |rate| {
                let count = (rate * seconds).round().max(1.0);
                Servers {
                    count: Some(count as u32),
                    seconds: count / rate,
                }
            },
        )
    }

    fn known(&self) -> impl Iterator<Item = &Stretch> {
        self.bins.iter().filter(|bin| bin.count >= BASE_COUNT_MIN)
    }

    fn base_seconds(&self) -> Option<f64> {
        let least = self.known().map(Stretch::service_seconds).reduce(f64::min);
        least.filter(|&seconds| seconds > 0.0)
    }

    /// Whether enough requests met a queue inside the replica.
    fn queued(&self, base: f64) -> bool {
        let long = |bin: &&Stretch| bin.service_seconds() > QUEUEING_FACTOR * base;
        let count: f64 = self.known().filter(long).map(|bin| bin.count).sum();
        count >= RATE_COUNT_MIN
    }

    /// The largest throughput of a full window, of those of which enough was seen.
    fn full_rate(&self) -> Option<f64> {
        let enough = self.full.iter().filter(|it| it.count >= FULL_COUNT_MIN);
        enough.map(|it| it.count / it.seconds).reduce(f64::max)
    }

    /// The largest throughput of neighbouring bins together.
    fn best_rate(&self) -> Option<f64> {
        let mut best: Option<f64> = None;
        for first in 0..self.bins.len() {
            let mut union = Stretch::default();
            for bin in &self.bins[first..] {
                union.add(bin);
                if union.count >= RATE_COUNT_MIN {
                    best = Some(union.rate().max(best.unwrap_or(0.0)));
                }
            }
        }
        best.filter(|&rate| rate > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `seconds` of ticks in which `rate` requests per second are served in `inside` each.
    fn serve(model: &mut CapacityModel, rate: f64, inside: f64, seconds: f64) {
        for _ in 0..(seconds * 10.0) as u32 {
            let count = rate / 10.0;
            model.on_tick(count as u32, count * inside, 0.1, (rate * inside) as u32);
        }
    }

    #[test]
    fn replica_without_a_queue_inside_has_no_limit() {
        let mut model = CapacityModel::default();
        serve(&mut model, 50.0, 0.04, 20.0);
        serve(&mut model, 90.0, 0.05, 20.0);
        assert_eq!(model.servers().count, None);
    }

    #[test]
    fn full_window_shows_the_capacity_without_a_queue_inside() {
        let mut model = CapacityModel::default();
        serve(&mut model, 40.0, 0.1, 20.0);
        assert!(!model.is_known());
        for _ in 0..100 {
            model.on_tick(8, 0.88, 0.1, 8);
            model.on_full(8, 0.1, 9);
        }
        let servers = model.servers();
        assert_eq!(servers.count, Some(8));
        let rate = 8.0 / servers.seconds;
        assert!((78.0..=82.0).contains(&rate), "{rate}");
    }

    #[test]
    fn meltdown_shows_the_capacity() {
        let mut model = CapacityModel::default();
        serve(&mut model, 50.0, 0.04, 20.0);
        serve(&mut model, 100.0, 2.0, 20.0);
        let servers = model.servers();
        assert_eq!(servers.count, Some(4));
        let rate = 4.0 / servers.seconds;
        assert!((95.0..=100.0).contains(&rate), "{rate}");
    }

    #[test]
    fn thrashing_replica_is_credited_with_its_best() {
        let mut model = CapacityModel::default();
        serve(&mut model, 100.0, 0.08, 20.0);
        serve(&mut model, 30.0, 4.0, 60.0);
        let servers = model.servers();
        let rate = f64::from(servers.count.expect("it was seen")) / servers.seconds;
        assert!((90.0..=100.0).contains(&rate), "{rate}");
    }

    #[test]
    fn fallen_capacity_is_followed_at_the_same_concurrency() {
        let mut model = CapacityModel::default();
        serve(&mut model, 40.0, 0.025, 5.0);
        serve(&mut model, 100.0, 0.7, 60.0);
        serve(&mut model, 60.0, 1.2, 120.0);
        let servers = model.servers();
        let rate = f64::from(servers.count.expect("it was seen")) / servers.seconds;
        assert!(rate < 75.0, "{rate}");
    }

    #[test]
    fn answers_that_clients_do_not_wait_for_do_not_lower_the_capacity() {
        let mut model = CapacityModel::default();
        serve(&mut model, 50.0, 0.04, 10.0);
        serve(&mut model, 100.0, 0.5, 3.0);
        for _ in 0..600 {
            model.on_tick(3, 6.0, 0.1, 300);
        }
        let servers = model.servers();
        let rate = f64::from(servers.count.expect("it was seen")) / servers.seconds;
        assert!((90.0..=100.0).contains(&rate), "{rate}");
    }
}
