//! The control plane of [`tidegate_plane`] as a scaler: the same code as in `tidegate plane`.

use tidegate_control::Timestamp;
use tidegate_plane::{
    ApplicationConfig, Moments, Observation, Plane, PlaneConfig, PlaneError, PlaneEvent,
};

use super::cloud::{SERVERS_MAX, Second, WORKERS};
use super::rivals::Scaler;

/// The plane with its defaults, for one application.
#[derive(Debug)]
pub struct Ours {
    plane: Plane,
}

const NAME: &str = "shop";

impl Ours {
    /// A plane with the defaults.
    ///
    /// # Errors
    /// What the plane refuses; the defaults are valid.
    pub fn new() -> Result<Self, PlaneError> {
        let application = ApplicationConfig {
            max: Some(SERVERS_MAX),
            ..ApplicationConfig::named(NAME)
        };
        let config = PlaneConfig {
            applications: vec![application],
            ..PlaneConfig::default()
        };
        Ok(Self {
            plane: Plane::new(config, Timestamp::ZERO)?,
        })
    }

    fn carry_out(&mut self, now: Timestamp, events: Vec<PlaneEvent>, desired: &mut u32) {
        for event in events {
            if let PlaneEvent::Decision(decision) = event {
                self.plane.on_applied(now, &decision);
                *desired = decision.to;
            }
        }
    }
}

impl Scaler for Ours {
    fn on_second(&mut self, second: &Second) -> u32 {
        let now = Timestamp::from_nanos(second.at * 1_000_000_000);
        let mut desired = second.desired;
        self.plane
            .on_servers(now, NAME, second.desired, second.ready);
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
        let events = self.plane.on_observation(now, NAME, &seen);
        self.carry_out(now, events, &mut desired);
        let events = self.plane.handle_timeout(now);
        self.carry_out(now, events, &mut desired);
        desired
    }
}
