//! The control plane of [`tidegate_plane`] as a scaler: the same code as in `tidegate plane`.

use tidegate_control::Timestamp;
use tidegate_plane::{
    ApplicationConfig, Moments, Observation, Plane, PlaneConfig, PlaneError, PlaneEvent,
};

use super::cloud::{Second, WORKERS};
use super::rivals::Scalers;
use super::trace::Trace;

/// The plane with its defaults.
#[derive(Debug)]
pub struct Ours {
    plane: Plane,
    names: Vec<String>,
}

impl Ours {
    /// A plane with the defaults for the applications of a trace, which share its pool.
    ///
    /// # Errors
    /// What the plane refuses; the defaults are valid.
    pub fn new(trace: &Trace) -> Result<Self, PlaneError> {
        let applications = trace.applications();
        let pool = applications.len() > 1;
        let named = applications.iter().enumerate();
        let applications: Vec<ApplicationConfig> = named
            .map(|(index, application)| ApplicationConfig {
                max: (!pool).then_some(trace.pool),
                revenue: application.revenue,
                ..ApplicationConfig::named(&format!("shop-{index}"))
            })
            .collect();
        let config = PlaneConfig {
            pool: pool.then_some(trace.pool),
            applications,
            ..PlaneConfig::default()
        };
        let names = config.applications.iter().map(|it| it.name.clone());
        Ok(Self {
            names: names.collect(),
            plane: Plane::new(config, Timestamp::ZERO)?,
        })
    }

    fn carry_out(&mut self, now: Timestamp, events: Vec<PlaneEvent>, desired: &mut [u32]) {
        for event in events {
            if let PlaneEvent::Decision(decision) = event {
                self.plane.on_applied(now, &decision);
                let index = self.names.iter().position(|it| *it == decision.application);
                if let Some(index) = index {
                    desired[index] = decision.to;
                }
            }
        }
    }

    fn observe(&mut self, index: usize, second: &Second) -> Vec<PlaneEvent> {
        let now = Timestamp::from_nanos(second.at * 1_000_000_000);
        let name = self.names[index].clone();
        self.plane
            .on_servers(now, &name, second.desired, second.ready);
        let service = WORKERS / second.capacity;
        let seen = Observation {
            seconds: 1.0,
            arrived: second.arrived,
            shed: second.shed,
            served: second.served,
            service: Some(Moments {
                count: second.served,
                mean: service,
                square: 2.0 * service * service,
            }),
            capacity: Some(second.capacity),
            ..Observation::default()
        };
        self.plane.on_observation(now, &name, &seen)
    }
}

impl Scalers for Ours {
    fn on_second(&mut self, seconds: &[Second]) -> Vec<u32> {
        let mut desired: Vec<u32> = seconds.iter().map(|second| second.desired).collect();
        let now = Timestamp::from_nanos(seconds[0].at * 1_000_000_000);
        for (index, second) in seconds.iter().enumerate() {
            let events = self.observe(index, second);
            self.carry_out(now, events, &mut desired);
        }
        let events = self.plane.handle_timeout(now);
        self.carry_out(now, events, &mut desired);
        desired
    }
}
