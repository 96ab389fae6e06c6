//! Services that nobody has tuned to: drawn at random from a seed.
//!
//! A rule that was chosen on known scenarios may fit only those. Here every evaluation can use
//! seeds by which nothing was chosen: one to eight replicas of 1 to 64 workers, 5 ms to 8 s of
//! exponential, Erlang or log-normal work, a target of 5 to 20 times the work, 0.6 to 8 times the
//! capacity, and every second service loses half of its capacity half-way.
//!
//! Times, workers, targets and loads are drawn uniformly on a logarithmic scale. A service above
//! [`RATE_MAX`] is drawn again, so that a race takes minutes. What was drawn is written as a
//! scenario file and read like any other: [`RandomService::text`] is all there is to it.
//!
//! [`RandomOptions`] draw arrivals that come together or in phases for the same services, or give
//! each of them the loads at which nothing may be shed.

use rand::RngExt as _;
use tidegate_config::ConfigError;

use super::Entry;
use crate::rng::{SimRng, Streams};

/// Offered requests per second at most.
const RATE_MAX: f64 = 5_000.0;

/// Least duration of a run, in seconds, and how many mean service times it has at least.
const DURATION_MIN_S: f64 = 60.0;
const DURATION_SERVICES: f64 = 40.0;

/// The first part of a run that is not measured.
const WARM_UP_SHARE: f64 = 0.1;

/// Clients leave after this many targets.
const TIMEOUT_TARGETS: f64 = 3.0;

/// Requests that a replica holds beyond its workers, for each of them.
const SLOTS_PER_WORKER: u32 = 8;

/// Loads at which there is room, as shares of the capacity.
const ROOM: [f64; 2] = [0.6, 0.85];

/// Of the work that can be done within a target at most this share comes at once.
const BATCH_TARGET_SHARE: f64 = 0.25;

/// What else is drawn, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RandomOptions {
    /// An arrival process for each service, in place of Poisson arrivals.
    pub arrivals: bool,
    /// Each service at `ROOM` in place of the load that was drawn, and none loses capacity.
    pub room: bool,
}

/// What was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomService {
    replicas: u32,
    workers: u32,
    work_s: f64,
    law: &'static str,
    target_s: f64,
    load: f64,
    halves: bool,
    /// Keys of its load that say how requests arrive, and the same for people.
    arrivals: (String, &'static str),
}

/// This many services of a seed, each once or at every load at which there is room.
///
/// # Errors
/// A text that is no scenario; a test keeps this from happening.
pub fn random_entries(
    count: usize,
    seed: u64,
    options: RandomOptions,
) -> Result<Vec<Entry>, ConfigError> {
    let streams = Streams::new(seed);
    let mut entries = Vec::new();
    for index in 0..count {
        let mut service = RandomService::draw(&mut streams.indexed("random service", index));
        let mut name = format!("random-{seed}-{index:02}");
        if options.room {
            service.halves = false;
        }
        if options.arrivals {
            let mut rng = streams.indexed("arrivals of a random service", index);
            service.arrivals = service.draw_arrivals(&mut rng);
        }
        let loads = if options.room {
            &ROOM[..]
        } else {
            &[service.load]
        };
        for &load in loads {
            if options.room {
                name = format!("random-{seed}-{index:02}-at-{load}");
            }
            let service = RandomService {
                load,
                ..service.clone()
            };
            entries.push(Entry::parse(&format!("{name}.toml"), &service.text())?);
        }
    }
    Ok(entries)
}

/// Uniform on a logarithmic scale.
fn log_uniform(rng: &mut SimRng, from: f64, to: f64) -> f64 {
    (from.ln() + rng.random::<f64>() * (to / from).ln()).exp()
}

impl RandomService {
    fn draw(rng: &mut SimRng) -> Self {
        loop {
            let drawn = Self::draw_any(rng);
            if drawn.rate() <= RATE_MAX {
                return drawn;
            }
        }
    }

    fn draw_any(rng: &mut SimRng) -> Self {
        let work_s = log_uniform(rng, 0.005, 8.0);
        Self {
            replicas: rng.random_range(1..=8),
            workers: log_uniform(rng, 1.0, 64.5).round() as u32,
            work_s,
            law: ["exponential", "erlang", "log-normal"][rng.random_range(0..3_usize)],
            target_s: work_s * log_uniform(rng, 5.0, 20.0),
            load: log_uniform(rng, 0.6, 8.0),
            halves: rng.random(),
            arrivals: (String::new(), "Poisson"),
        }
    }

    /// Requests that come together take at most a part of the target; phases last up to one.
    fn draw_arrivals(&self, rng: &mut SimRng) -> (String, &'static str) {
        let most = (BATCH_TARGET_SHARE * self.capacity() * self.target_s).clamp(2.0, 16.0);
        let size = log_uniform(rng, 2.0, most.max(2.1)).floor().min(most);
        let phase_s = self.target_s * log_uniform(rng, 0.1, 1.0);
        let over_s = self.work_s * 0.2;
        match rng.random_range(0..7_u32) {
            0 => (format!("batch = {size}\n"), "batches"),
            1 => (
                format!("spacing = 'deterministic'\nbatch = {size}\n"),
                "batches on a beat",
            ),
            2 => (
                format!("batch = {{ mean = {size} }}\n"),
                "geometric batches",
            ),
            3 => (
                format!(
                    "fan_out = {{ requests = {size}, after = '{over_s:.6}s', \
                     over = '{over_s:.6}s' }}\n"
                ),
                "pages",
            ),
            4 => (
                format!(
                    "phases = [{{ times = 1, lasts = '{phase_s:.6}s' }}, \
                     {{ times = 0, lasts = '{phase_s:.6}s' }}]\n"
                ),
                "on-off",
            ),
            5 => (
                format!(
                    "phases = [{{ times = 1, lasts = {{ law = 'exponential', \
                     mean = '{:.6}s' }} }}, {{ times = 2, lasts = {{ law = 'exponential', \
                     mean = '{phase_s:.6}s' }} }}]\n",
                    2.0 * phase_s
                ),
                "Markov-modulated",
            ),
            _ => ("spacing = 'deterministic'\n".to_owned(), "regular"),
        }
    }

    /// Requests per second of all replicas.
    fn capacity(&self) -> f64 {
        f64::from(self.replicas * self.workers) / self.work_s
    }

    fn rate(&self) -> f64 {
        self.load * self.capacity()
    }

    fn duration_s(&self) -> f64 {
        DURATION_MIN_S.max(DURATION_SERVICES * self.work_s)
    }

    fn title(&self) -> String {
        format!(
            "{} × {} workers of {:.0} ms ({}), target {:.1} times, load {:.2}, {}{}",
            self.replicas,
            self.workers,
            self.work_s * 1e3,
            self.law,
            self.target_s / self.work_s,
            self.load,
            self.arrivals.1,
            if self.halves { ", half is lost" } else { "" }
        )
    }

    /// The scenario file.
    #[must_use]
    pub fn text(&self) -> String {
        let shape = match self.law {
            "erlang" => ", stages = 4",
            "log-normal" => ", cv2 = 2",
            _ => "",
        };
        let lost = if self.halves {
            format!(
                "speed = [{{ at = '0s', value = 1 }}, {{ at = '{:.3}s', value = 0.5 }}]\n",
                self.duration_s() / 2.0
            )
        } else {
            String::new()
        };
        format!(
            "title = '{}'\nduration = '{:.3}s'\nwarm_up = '{:.3}s'\ntarget = '{:.6}s'\n\
             service = {{ law = '{}', mean = '{:.6}s'{shape} }}\n\n\
             [load]\nrate = '{:.6}/s'\n{}client = {{ timeout = '{:.6}s' }}\n\n\
             [replica]\ncount = {}\ncores = {}\nslots = {}\n{lost}",
            self.title(),
            self.duration_s(),
            self.duration_s() * WARM_UP_SHARE,
            self.target_s,
            self.law,
            self.work_s,
            self.rate(),
            self.arrivals.0,
            self.target_s * TIMEOUT_TARGETS,
            self.replicas,
            self.workers,
            self.workers * (1 + SLOTS_PER_WORKER),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(count: usize, seed: u64) -> Vec<Entry> {
        random_entries(count, seed, RandomOptions::default()).unwrap()
    }

    #[test]
    fn random_services_are_valid_and_within_their_ranges() {
        for seed in 0..20 {
            for entry in drawn(48, seed) {
                let target = entry.scenario.target.unwrap().as_secs_f64();
                let times = target / entry.scenario.service.mean();
                assert!((4.99..=20.01).contains(&times), "{times}");
                assert!((0.0049..=8.01).contains(&entry.scenario.service.mean()));
                assert!((1..=8).contains(&entry.scenario.replica_count()));
            }
        }
    }

    #[test]
    fn random_services_of_one_seed_are_the_same_and_of_another_are_not() {
        let titles = |seed| -> Vec<String> {
            let entries = drawn(8, seed);
            entries
                .into_iter()
                .map(|entry| entry.scenario.title)
                .collect()
        };
        assert_eq!(titles(7), titles(7));
        assert_ne!(titles(7), titles(8));
        // More of them are the same ones and others.
        assert_eq!(drawn(3, 7)[2].scenario.title, titles(7)[2]);
    }

    #[test]
    fn half_of_the_services_lose_half_of_their_capacity() {
        let entries = drawn(200, 3);
        let lost = entries
            .iter()
            .filter(|entry| entry.scenario.title.ends_with("is lost"));
        assert!((70..=130).contains(&lost.count()));
    }

    /// The same services, whatever else is drawn.
    #[test]
    fn arrivals_are_drawn_for_the_same_services() {
        let options = RandomOptions {
            arrivals: true,
            room: false,
        };
        let (plain, irregular) = (drawn(60, 4), random_entries(60, 4, options).unwrap());
        let processes = ["batches", "pages", "on-off", "Markov-modulated", "regular"];
        for process in processes {
            let of_it = |entry: &&Entry| entry.scenario.title.contains(process);
            assert!(irregular.iter().any(|entry| of_it(&entry)), "{process}");
        }
        for (one, other) in plain.iter().zip(&irregular) {
            assert_eq!(one.scenario.service.mean(), other.scenario.service.mean());
            let (one, other) = (&one.scenario.load[0], &other.scenario.load[0]);
            assert_eq!(
                one.rate.as_ref().unwrap().max(),
                other.rate.as_ref().unwrap().max()
            );
        }
    }

    #[test]
    fn services_with_room_have_each_load_and_lose_nothing() {
        let options = RandomOptions {
            arrivals: false,
            room: true,
        };
        let entries = random_entries(10, 4, options).unwrap();
        assert_eq!(entries.len(), 20);
        for (entry, load) in entries.iter().zip(ROOM.iter().cycle()) {
            let scenario = &entry.scenario;
            let work = scenario.peak_rate() * scenario.service.mean();
            assert!((work / scenario.nominal_capacity() - load).abs() < 1e-3);
            assert!(!scenario.title.contains("is lost"), "{}", scenario.title);
        }
        assert_eq!(entries[1].name, "random-4-00-at-0.85");
    }
}
