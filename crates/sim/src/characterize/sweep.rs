//! The load sweep and the operating point (000 §III, figure 2).

use super::{CharacterizeError, Drive, Plant, Sample, Settings};
use crate::experiment::Progress;

/// What the service does at one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// Requests that arrived, per second; chance makes them more or fewer than were asked for.
    pub offered_per_s: f64,
    /// Served requests per second.
    pub goodput_per_s: f64,
    /// Their mean response time.
    pub response_s: f64,
    /// The 99th percentile of it; NaN where it is not known.
    pub response_p99_s: f64,
}

/// Goodput and response time over load.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// By rising load.
    pub points: Vec<LoadPoint>,
    /// The largest goodput of any load.
    pub peak_goodput_per_s: f64,
    /// Mean response time at the lightest load: the service time, nearly.
    pub lightest_response_s: f64,
    /// The load of maximum power.
    pub max_power_load_per_s: f64,
}

/// Arrivals that are not served to this share are beyond the capacity; what the last seconds of a
/// run leave unserved is less.
const FOLLOWS: f64 = 0.9;
/// Fewer requests than this that arrived and were not served yet are those in service at the end of
/// a run, and no sign of overload.
const UNSERVED_MIN: f64 = 5.0;
/// Loads of the sweep as shares of the capacity that the search found.
const LIGHTEST: f64 = 0.1;
const HEAVIEST: f64 = 1.15;

impl Sweep {
    pub(super) fn measure(
        plant: &mut dyn Plant,
        settings: &Settings,
        progress: &dyn Progress,
    ) -> Result<Self, CharacterizeError> {
        let capacity = find_capacity(plant, settings)?;
        let mut points = Vec::with_capacity(settings.sweep_points);
        for index in 0..settings.sweep_points {
            let way = index as f64 / (settings.sweep_points - 1).max(1) as f64;
            let load = capacity * (LIGHTEST + (HEAVIEST - LIGHTEST) * way);
            points.push(load_point(plant, settings, load)?);
            progress.done(&format!("load {load:.1}/s"));
        }
        Ok(Self::of(points))
    }

    fn of(points: Vec<LoadPoint>) -> Self {
        let peak = points
            .iter()
            .map(|point| point.goodput_per_s)
            .fold(0.0, f64::max);
        let lightest = points.first().map_or(f64::NAN, |point| point.response_s);
        let mut sweep = Self {
            points,
            peak_goodput_per_s: peak,
            lightest_response_s: lightest,
            max_power_load_per_s: f64::NAN,
        };
        sweep.max_power_load_per_s = sweep.max_power_load();
        sweep
    }

    /// The target that mode `auto` derives of a service like this one, in seconds:
    /// `max(8 S, 2 p99, 60 / r)` with response time and 99th percentile at light load, and the peak
    /// goodput.
    #[must_use]
    pub fn recommended_target_s(&self) -> f64 {
        const SERVICE_TIMES: f64 = 8.0;
        const TAILS: f64 = 2.0;
        const REQUESTS: f64 = 60.0;
        let tail = self.points.first().map_or(f64::NAN, |it| it.response_p99_s);
        // A part that is not known is NaN, which `max` leaves out.
        (SERVICE_TIMES * self.lightest_response_s)
            .max(TAILS * tail)
            .max(REQUESTS / self.peak_goodput_per_s)
    }

    /// Power of a point (000 eq. 1): goodput over capacity, by response time over service time.
    #[must_use]
    pub fn power(&self, point: &LoadPoint) -> f64 {
        let goodput = point.goodput_per_s / self.peak_goodput_per_s;
        let response = point.response_s / self.lightest_response_s;
        goodput / response
    }

    /// The load of maximum power: the top of the parabola through the best point and its
    /// neighbours, since power is flat there and the grid is coarse.
    fn max_power_load(&self) -> f64 {
        let powers: Vec<f64> = self.points.iter().map(|point| self.power(point)).collect();
        let best = (0..powers.len()).max_by(|&a, &b| powers[a].total_cmp(&powers[b]));
        let Some(best) = best else { return f64::NAN };
        let load = |at: usize| self.points[at].offered_per_s;
        if best == 0 || best + 1 == powers.len() {
            return load(best);
        }
        let (before, top, after) = (powers[best - 1], powers[best], powers[best + 1]);
        let bend = before - 2.0 * top + after;
        let shift = if bend < 0.0 {
            0.5 * (before - after) / bend
        } else {
            0.0
        };
        load(best) + shift * (load(best + 1) - load(best))
    }
}

/// Doubles the load until the service no longer follows; what it then serves is its capacity.
fn find_capacity(plant: &mut dyn Plant, settings: &Settings) -> Result<f64, CharacterizeError> {
    let mut load = settings.first_load_per_s;
    let mut best = 0.0_f64;
    while load <= settings.last_load_per_s {
        let point = load_point(plant, settings, load)?;
        if point.goodput_per_s <= 0.0 && best == 0.0 {
            return Err(CharacterizeError::Dead {
                offered_per_s: load,
            });
        }
        best = best.max(point.goodput_per_s);
        if !follows(&point, settings) {
            return refine(plant, settings, load / 2.0, best);
        }
        load *= 2.0;
    }
    Err(CharacterizeError::Bottomless {
        offered_per_s: load / 2.0,
    })
}

/// Halves the interval between a load that was served and twice as much, which was not. A
/// collapsed service serves less than it can, so what it served in overload is no measure.
fn refine(
    plant: &mut dyn Plant,
    settings: &Settings,
    served: f64,
    best: f64,
) -> Result<f64, CharacterizeError> {
    const HALVINGS: u32 = 4; // to a sixteenth of the interval: the sweep is no finer
    let (mut low, mut high, mut best) = (served, 2.0 * served, best);
    for _ in 0..HALVINGS {
        let load = f64::midpoint(low, high);
        let point = load_point(plant, settings, load)?;
        best = best.max(point.goodput_per_s);
        if !follows(&point, settings) {
            high = load;
        } else {
            low = load;
        }
    }
    Ok(best)
}

/// Whether the service served what arrived.
fn follows(point: &LoadPoint, settings: &Settings) -> bool {
    let seconds = settings.time_of(settings.sweep_steps).as_secs_f64();
    let unserved = (point.offered_per_s - point.goodput_per_s) * seconds;
    unserved <= UNSERVED_MIN || point.goodput_per_s >= FOLLOWS * point.offered_per_s
}

fn load_point(
    plant: &mut dyn Plant,
    settings: &Settings,
    load: f64,
) -> Result<LoadPoint, CharacterizeError> {
    let samples = plant.run(&Drive::open(load, settings))?;
    Ok(LoadPoint {
        response_p99_s: plant.tail_s().unwrap_or(f64::NAN),
        ..mean_point(settled(&samples, settings))
    })
}

/// Samples without the first steps, in which the service was not yet in its steady state. A run
/// that ended before counts as a whole.
fn settled<'a>(samples: &'a [Sample], settings: &Settings) -> &'a [Sample] {
    let settle = settings.time_of(settings.settle_steps).as_secs_f64();
    match samples.partition_point(|sample| sample.at_s <= settle) {
        all if all == samples.len() => samples,
        skipped => &samples[skipped..],
    }
}

/// Response times are weighted by the requests they belong to.
fn mean_point(samples: &[Sample]) -> LoadPoint {
    let offered: f64 = samples.iter().map(|sample| sample.offered_per_s).sum();
    let goodput: f64 = samples.iter().map(|sample| sample.goodput_per_s).sum();
    let weighted = samples
        .iter()
        .filter(|sample| sample.goodput_per_s > 0.0)
        .map(|sample| sample.goodput_per_s * sample.response_s);
    LoadPoint {
        offered_per_s: offered / samples.len().max(1) as f64,
        goodput_per_s: goodput / samples.len().max(1) as f64,
        response_s: weighted.sum::<f64>() / goodput,
        response_p99_s: f64::NAN,
    }
}

/// Where to run the service: what is admitted, and what then comes out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatingPoint {
    /// Admitted requests per second.
    pub rate_per_s: f64,
    /// Served requests per second.
    pub goodput_per_s: f64,
    /// Their mean response time.
    pub response_s: f64,
}

impl OperatingPoint {
    /// Chooses the rate from the sweep, then measures it as it will be in operation: with more
    /// offered than admitted.
    pub(super) fn measure(
        plant: &mut dyn Plant,
        settings: &Settings,
        sweep: &Sweep,
    ) -> Result<Self, CharacterizeError> {
        let (low, high) = (sweep.max_power_load_per_s, sweep.peak_goodput_per_s);
        let rate = low + settings.balance * (high - low).max(0.0);
        let offered = settings.overload * sweep.peak_goodput_per_s;
        let samples = plant.run(&Drive::gated(offered, rate, settings))?;
        let point = mean_point(settled(&samples, settings));
        Ok(Self {
            rate_per_s: rate,
            goodput_per_s: point.goodput_per_s,
            response_s: point.response_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M/M/1 with 10/s by formula: power is largest at half load.
    fn sweep() -> Sweep {
        let point = |load: f64| LoadPoint {
            offered_per_s: load,
            goodput_per_s: load,
            response_s: 1.0 / (10.0 - load),
            response_p99_s: f64::NAN,
        };
        Sweep::of([0.1, 2.0, 4.0, 6.5, 8.0, 9.9].map(point).to_vec())
    }

    #[test]
    fn the_maximum_of_power_is_found_between_the_loads() {
        let sweep = sweep();
        assert_eq!(sweep.peak_goodput_per_s, 9.9);
        assert!((sweep.max_power_load_per_s - 5.0).abs() < 0.7, "{sweep:?}");
    }

    /// At 1/s a minute has 60 arrivals, give or take eight: too few by chance is no overload.
    #[test]
    fn capacity_is_found_whatever_chance_offers() {
        let scenario: crate::scenario::Scenario = tidegate_config::parse(
            "plant.toml",
            "duration = '1s'\nservice = '307.6923ms'\nload = { rate = '1/s' }\n\
             replica = { cores = 4 }",
        )
        .unwrap();
        let second = std::time::Duration::from_secs(1);
        let settings = Settings {
            measurement_interval: second,
            tuning_interval: second,
            ..Settings::default()
        };
        for seed in 1..=20 {
            let mut plant = super::super::SimPlant::new(scenario.clone(), seed);
            let capacity = find_capacity(&mut plant, &settings).unwrap();
            assert!((capacity - 13.0).abs() < 0.7, "seed {seed}: {capacity}");
        }
    }

    #[test]
    fn target_is_what_mode_auto_derives() {
        let target = |p99: f64| {
            let point = |load: f64, response_s: f64| LoadPoint {
                offered_per_s: load,
                goodput_per_s: load,
                response_s,
                response_p99_s: p99,
            };
            Sweep::of(vec![point(10.0, 0.02), point(200.0, 0.1)]).recommended_target_s()
        };
        assert!(
            (target(f64::NAN) - 0.3).abs() < 1e-9,
            "60 requests at 200/s"
        );
        assert!(
            (target(0.4) - 0.8).abs() < 1e-9,
            "twice the 99th percentile"
        );
    }

    #[test]
    fn response_times_are_weighted_by_requests() {
        let sample = |goodput_per_s, response_s| Sample {
            at_s: 1.0,
            limit_per_s: f64::INFINITY,
            offered_per_s: goodput_per_s,
            goodput_per_s,
            response_s,
        };
        let point = mean_point(&[sample(1.0, 4.0), sample(3.0, 2.0), sample(0.0, f64::NAN)]);
        assert_eq!(point.response_s, 2.5);
        assert!((point.goodput_per_s - 4.0 / 3.0).abs() < 1e-12);
    }
}
