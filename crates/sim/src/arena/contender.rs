//! Who fights, and how each was tuned.

use std::time::Duration;

use tidegate_sentry::{ClassConfig, SentryConfig};

use super::ideal::Clairvoyant;
use crate::rivals::Rival;
use crate::rng::Streams;
use crate::scenario::{Choice, NoProtection, Protector, Scenario, ScenarioError, SentryProtector};

/// A way to protect a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// Column of the table.
    pub name: &'static str,
    /// How it was tuned, for people.
    pub tuning: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Fixed,
    Aimd,
    Vegas,
    Gradient2,
    CoDel,
    Breakwater,
    Protego,
    Dagor,
    Rajomon,
    Cinnamon,
    Envoy,
    Prequal,
    Auto { target: bool },
}

/// All contenders, in the order of the table.
#[must_use]
pub fn contenders() -> Vec<Contender> {
    let contender = |name, tuning, kind| Contender { name, tuning, kind };
    vec![
        contender(
            "none",
            "balances by the fewest requests in flight",
            Kind::None,
        ),
        contender(
            "fixed",
            "limit for the nominal capacity: so many in flight that answers take 70 % of the target",
            Kind::Fixed,
        ),
        contender("aimd", "timeout is the target", Kind::Aimd),
        contender("vegas", "published defaults", Kind::Vegas),
        contender("gradient2", "published defaults", Kind::Gradient2),
        contender(
            "codel",
            "twice the nominal cores as slots; a tenth of the target as delay, the target as interval",
            Kind::CoDel,
        ),
        contender(
            "breakwater",
            "twice the nominal cores as slots; the target as objective",
            Kind::Breakwater,
        ),
        contender(
            "protego",
            "twice the nominal cores as credits at first; the target as objective",
            Kind::Protego,
        ),
        contender(
            "dagor",
            "twice the nominal cores as slots; 4 % of the target as waiting time",
            Kind::Dagor,
        ),
        contender(
            "rajomon",
            "twice the nominal cores as slots; a tenth of the target as threshold",
            Kind::Rajomon,
        ),
        contender(
            "cinnamon",
            "half of the target as timeout of its queue",
            Kind::Cinnamon,
        ),
        contender(
            "envoy",
            "admission control, defaults of the filter; timeout is the target",
            Kind::Envoy,
        ),
        contender(
            "prequal",
            "balancing only; published defaults",
            Kind::Prequal,
        ),
        contender(
            "auto",
            "nothing: not even the target",
            Kind::Auto { target: false },
        ),
        contender("auto+target", "the target", Kind::Auto { target: true }),
    ]
}

impl Contender {
    /// Whether it is Tidegate's, with or without the target.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Auto { .. })
    }

    /// What speaks against its figures, if anything.
    #[must_use]
    pub fn reservation(&self) -> Option<&'static str> {
        (self.kind == Kind::Dagor).then_some(
            "treated unfairly: nothing says when abandoned work is done, so that such a request \
             keeps its slot for a mean service time",
        )
    }

    /// A fresh protector for a scenario.
    ///
    /// # Errors
    /// What the engine refuses about its configuration.
    pub fn protector(
        &self,
        scenario: &Scenario,
        seed: u64,
    ) -> Result<Box<dyn Protector>, ScenarioError> {
        let streams = Streams::new(seed);
        let replicas = scenario.replica_count();
        let rng = streams.stream("balancer");
        Ok(match self.kind {
            Kind::None => Box::new(NoProtection::new(Choice::LeastInFlight, replicas, rng)),
            Kind::Auto { target } => {
                let config = auto(scenario, target);
                Box::new(SentryProtector::new(
                    &config,
                    replicas,
                    streams.seed_of("sentry"),
                )?)
            }
            rival => tuned(rival, scenario).protector(replicas, rng),
        })
    }
}

fn auto(scenario: &Scenario, target: bool) -> SentryConfig {
    let classes = scenario.class.iter().map(|class| ClassConfig {
        name: class.name.clone(),
        target: class.target,
        revenue: class.revenue,
        guarantee: None,
        targets: Vec::new(),
    });
    SentryConfig {
        target: scenario.target.filter(|_| target),
        classes: classes.collect(),
        ..SentryConfig::default()
    }
}

/// A rival with the tuning that its row of the table says.
fn tuned(kind: Kind, scenario: &Scenario) -> Rival {
    let target = scenario
        .target
        .map_or(Duration::from_secs(1), |target| *target);
    let cores = scenario.nominal_capacity();
    let slots = (2.0 * cores) as usize;
    let target_key = target.into();
    match kind {
        Kind::Fixed => Rival::Fixed {
            // Little's law: in flight = capacity times response time.
            limit: (0.7 * target.as_secs_f64() * cores / Clairvoyant::of(scenario).work_s).max(1.0),
        },
        Kind::Aimd => Rival::Aimd {
            timeout: target.into(),
        },
        Kind::Vegas => Rival::Vegas,
        Kind::Gradient2 => Rival::Gradient2,
        Kind::Breakwater => Rival::Breakwater {
            target: target_key,
            slots,
        },
        Kind::Protego => Rival::Protego {
            target: target_key,
            slots,
        },
        Kind::Dagor => Rival::Dagor {
            target: target_key,
            slots,
        },
        Kind::Rajomon => Rival::Rajomon {
            target: target_key,
            slots,
        },
        Kind::Cinnamon => Rival::Cinnamon {
            timeout: (target / 2).into(),
        },
        Kind::Envoy => Rival::EnvoyAdmission {
            timeout: target_key,
        },
        Kind::Prequal => Rival::Prequal,
        _ => Rival::Codel {
            slots,
            target: (target / 10).into(),
            interval: target_key,
        },
    }
}
