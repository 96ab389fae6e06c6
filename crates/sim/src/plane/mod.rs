//! Scalers compared: the same traces under the control plane and under those of others.
//!
//! A score has the server-hours over those of an oracle, the share of requests that were shed or
//! late, what was earned of what could have been, and how often the number of servers changed.

mod cloud;
mod hosting;
mod ours;
mod report;
mod rivals;
mod sentries;
mod trace;

pub use cloud::{Cloud, Second, Tally};
pub use hosting::{HostedRun, HostingSpec};
pub use ours::Ours;
pub use report::PlaneReport;
pub use rivals::{Hpa, Keda, Known, Kpa, Predictive, Scaler, Scalers};
pub use sentries::{SentriesRun, SentriesSpec};
pub use trace::{Trace, traces};

use rivals::Each;

use rayon::prelude::*;
use tidegate_plane::PlaneError;

use crate::experiment::Progress;

/// Who scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// The control plane.
    Ours,
    /// Horizontal pod autoscaler on CPU.
    Hpa,
    /// Knative's pod autoscaler.
    Kpa,
    /// KEDA on the request rate.
    Keda,
    /// Predictive scaling as AWS has it.
    Predictive,
    /// As many as the peak needs.
    Static,
    /// What every second needs, known in advance.
    Oracle,
}

impl Contender {
    /// All of them, the order of the table.
    pub const ALL: [Self; 7] = [
        Self::Ours,
        Self::Hpa,
        Self::Kpa,
        Self::Keda,
        Self::Predictive,
        Self::Static,
        Self::Oracle,
    ];

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "tidegate",
            Self::Hpa => "hpa-cpu",
            Self::Kpa => "kpa",
            Self::Keda => "keda",
            Self::Predictive => "aws-predictive",
            Self::Static => "static-peak",
            Self::Oracle => "oracle",
        }
    }

    /// Whether it has to find out what it needs.
    #[must_use]
    pub const fn finds_out(self) -> bool {
        !matches!(self, Self::Static | Self::Oracle)
    }

    fn scalers(self, trace: &Trace) -> Result<Box<dyn Scalers>, PlaneError> {
        if self == Self::Ours {
            return Ok(Box::new(Ours::new(trace)?));
        }
        let applications = trace.applications();
        let scalers = applications.iter().map(|it| self.scaler(it)).collect();
        let each = Each::new(scalers, trace.pool);
        Ok(Box::new(match self {
            Self::Oracle => each.by_revenue(&applications),
            _ => each,
        }))
    }

    fn scaler(self, trace: &Trace) -> Box<dyn Scaler> {
        match self {
            Self::Hpa => Box::new(Hpa::default()),
            Self::Kpa => Box::new(Kpa::default()),
            Self::Keda => Box::new(Keda::default()),
            Self::Predictive => Box::new(Predictive::new(trace.start_s)),
            Self::Static => Box::new(Known::peak(trace)),
            Self::Ours | Self::Oracle => Box::new(Known::oracle(trace)),
        }
    }
}

/// What a contender made of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Means over the seeds.
    pub tally: Tally,
    /// Of each seed.
    pub by_seed: Vec<Tally>,
    /// Servers over the hours, of the first seed.
    pub servers: Vec<(f64, f64)>,
}

/// Runs one contender on one trace.
///
/// # Errors
/// What the plane refuses about its configuration.
pub fn run_one(trace: &Trace, contender: Contender, seed: u64) -> Result<Score, PlaneError> {
    let mut scalers = contender.scalers(trace)?;
    let applications = trace.applications();
    let streams = (0..).map(|index| seed.wrapping_add(index << 32));
    let mut clouds: Vec<Cloud<'_>> = applications
        .iter()
        .zip(streams)
        .map(|(application, seed)| Cloud::new(application, seed, 2))
        .collect();
    for at in 1..=trace.length_s {
        let seconds: Vec<Second> = clouds.iter_mut().map(|cloud| cloud.step(at)).collect();
        let desired = scalers.on_second(&seconds);
        for (cloud, desired) in clouds.iter_mut().zip(desired) {
            cloud.set(at, desired);
        }
        debug_assert!(clouds.iter().map(Cloud::desired).sum::<u32>() <= trace.pool);
    }
    let tallies = clouds.iter().map(Cloud::tally);
    let tally = tallies.fold(Tally::default(), |sum, tally| sum.plus(&tally));
    Ok(Score {
        tally,
        by_seed: vec![tally],
        servers: clouds.swap_remove(0).servers_by_minute,
    })
}

fn run_seeds(trace: &Trace, contender: Contender, seeds: &[u64]) -> Result<Score, PlaneError> {
    let scores = seeds
        .iter()
        .map(|&seed| run_one(trace, contender, seed))
        .collect::<Result<Vec<Score>, _>>()?;
    let mean = |part: fn(&Tally) -> f64| {
        scores.iter().map(|score| part(&score.tally)).sum::<f64>() / scores.len().max(1) as f64
    };
    Ok(Score {
        tally: Tally {
            server_hours: mean(|tally| tally.server_hours),
            arrived: mean(|tally| tally.arrived),
            lost: mean(|tally| tally.lost),
            actions: mean(|tally| tally.actions),
            reversals: mean(|tally| tally.reversals),
            earned: mean(|tally| tally.earned),
            earnable: mean(|tally| tally.earnable),
        },
        by_seed: scores.iter().map(|score| score.tally).collect(),
        servers: scores
            .into_iter()
            .next()
            .map(|score| score.servers)
            .unwrap_or_default(),
    })
}

/// Runs everything on all cores; the result does not depend on their number.
///
/// # Errors
/// What the plane refuses about its configuration.
pub fn run(
    traces: &[Trace],
    seeds: &[u64],
    progress: &dyn Progress,
) -> Result<PlaneReport, PlaneError> {
    let pairs: Vec<(&Trace, Contender)> = traces
        .iter()
        .flat_map(|trace| Contender::ALL.map(|contender| (trace, contender)))
        .collect();
    progress.start(pairs.len());
    let scores = pairs
        .par_iter()
        .map(|(trace, contender)| {
            let score = run_seeds(trace, *contender, seeds);
            progress.done(&format!("{} on {}", contender.name(), trace.name));
            score
        })
        .collect::<Result<Vec<Score>, _>>()?;
    Ok(PlaneReport::new(traces, seeds, scores))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(trace: &str, contender: Contender) -> Tally {
        let trace = traces().into_iter().find(|t| t.name == trace).unwrap();
        run_one(&trace, contender, 5).unwrap().tally
    }

    #[test]
    fn surge_loses_fewest_requests_at_no_more_servers_than_kpa() {
        for trace in ["doubling-5", "doubling-30"] {
            let ours = tally(trace, Contender::Ours);
            let kpa = tally(trace, Contender::Kpa);
            assert!(
                ours.server_hours <= kpa.server_hours,
                "{trace}: {ours:?} {kpa:?}"
            );
            for rival in [
                Contender::Hpa,
                Contender::Kpa,
                Contender::Keda,
                Contender::Predictive,
            ] {
                let theirs = tally(trace, rival);
                assert!(
                    ours.lost <= theirs.lost,
                    "{trace}, {rival:?}: {ours:?} {theirs:?}"
                );
            }
        }
    }

    #[test]
    fn border_between_one_and_two_servers_is_no_reason_to_flap() {
        let ours = tally("one-or-two", Contender::Ours);
        assert!(ours.actions <= 4.0, "{ours:?}");
    }

    #[test]
    fn short_pool_earns_most_under_the_plane_and_is_never_exceeded() {
        let earned = |contender| {
            let tally = tally("short-pool", contender);
            tally.earned / tally.earnable
        };
        let ours = earned(Contender::Ours);
        for rival in [Contender::Hpa, Contender::Kpa, Contender::Keda] {
            assert!(ours > earned(rival), "{rival:?}: {ours} {}", earned(rival));
        }
    }

    #[test]
    fn job_of_every_hour_finds_its_servers_ready() {
        let ours = tally("hourly-job", Contender::Ours);
        let kpa = tally("hourly-job", Contender::Kpa);
        assert!(ours.lost < 0.1 * kpa.lost, "{ours:?} {kpa:?}");
        assert!(ours.reversals <= 0.1 * ours.actions, "{ours:?}");
    }

    #[test]
    fn oracle_loses_next_to_nothing() {
        let oracle = tally("doubling-120", Contender::Oracle);
        assert!(oracle.lost < 2e-3 * oracle.arrived, "{oracle:?}");
    }
}
