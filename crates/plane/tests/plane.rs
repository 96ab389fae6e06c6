//! The plane as a driver sees it: observations in, decisions with their reasons out.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of their functions

use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_plane::{Cause, Decision, Observation, Plane, PlaneConfig, PlaneEvent, Snapshot};

/// A driver with servers of 60/s that start in `start_s` seconds, and admission in front of them.
struct World {
    plane: Plane,
    second: u64,
    apps: Vec<App>,
    start_s: u64,
    decisions: Vec<Decision>,
    events: Vec<PlaneEvent>,
}

#[derive(Default, Clone)]
struct App {
    name: &'static str,
    desired: u32,
    /// When each server is ready.
    servers: Vec<u64>,
    never_ready: bool,
}

impl World {
    fn new(config: &str, apps: &[(&'static str, u32)], start_s: u64) -> Self {
        let config: PlaneConfig = tidegate_config::parse("plane.toml", config).unwrap();
        Self {
            plane: Plane::new(config, Timestamp::ZERO).unwrap(),
            second: 0,
            apps: apps
                .iter()
                .map(|&(name, desired)| App {
                    name,
                    desired,
                    servers: vec![0; desired as usize],
                    never_ready: false,
                })
                .collect(),
            start_s,
            decisions: Vec::new(),
            events: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.second * 1_000_000_000)
    }

    /// Runs for some seconds with these rates; a rate of NaN is an interval without a report.
    fn run(&mut self, seconds: u64, rates: &[f64]) {
        for _ in 0..seconds {
            self.second += 1;
            let now = self.now();
            for (index, &rate) in rates.iter().enumerate() {
                let app = self.apps[index].clone();
                let ready = app.servers.iter().filter(|&&at| at <= self.second).count() as u32;
                self.events
                    .extend(self.plane.on_servers(now, app.name, app.desired, ready));
                if rate.is_nan() {
                    continue;
                }
                let served = rate.min(60.0 * f64::from(ready));
                let seen = Observation {
                    seconds: 1.0,
                    arrived: rate,
                    shed: rate - served,
                    served,
                    ..Observation::default()
                };
                let events = self.plane.on_observation(now, app.name, &seen);
                self.carry_out(events);
            }
            let events = self.plane.handle_timeout(now);
            self.carry_out(events);
        }
    }

    fn carry_out(&mut self, events: Vec<PlaneEvent>) {
        for event in events {
            if let PlaneEvent::Decision(decision) = &event {
                let app = self
                    .apps
                    .iter_mut()
                    .find(|app| app.name == decision.application);
                let app = app.unwrap();
                assert_eq!(app.desired, decision.from, "{decision:?}");
                let ready = if app.never_ready {
                    u64::MAX
                } else {
                    self.second + self.start_s
                };
                app.servers.resize(decision.to as usize, ready);
                app.desired = decision.to;
                self.plane
                    .on_applied(Timestamp::from_nanos(self.second * 1_000_000_000), decision);
                self.decisions.push(decision.clone());
            }
            self.events.push(event);
        }
    }

    fn servers(&self, index: usize) -> u32 {
        self.apps[index].desired
    }
}

const ONE: &str = "[[application]]\nname = 'a'\ncapacity = '60/s'\nmin = 1\nmax = 40\n";
const PAPER: &str = "plan_interval = '30m'\npool = 11\nreaction = { ahead = false, drop_fraction = '50%', \
     window = '5m', step_max = 1, step_interval = '5m' }\n\
     [[application]]\nname = 'a'\nmin = 3\ncapacity = '60/s'\n\
     targets = [{ above = '1000/s', target = '2s' }]\n\
     [[application]]\nname = 'b'\nmin = 3\ncapacity = '60/s'\n";

#[test]
fn surge_gets_its_servers_with_a_reason_and_pending_ones_count() {
    let mut world = World::new(ONE, &[("a", 2)], 20);
    world.run(30, &[100.0]);
    assert_eq!(world.servers(0), 2, "{:?}", world.decisions);
    world.run(60, &[500.0]);
    let servers = world.servers(0);
    assert!(
        (9..=12).contains(&servers),
        "{servers}: {:#?}",
        world.decisions
    );
    let first = &world.decisions[0];
    assert!(first.reason.contains("needed"), "{}", first.reason);
    assert!(first.reason.contains("2 → "), "{}", first.reason);
}

#[test]
fn servers_are_given_back_after_the_window_and_not_before() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    world.run(60, &[500.0]);
    let peak = world.servers(0);
    world.run(100, &[100.0]);
    assert_eq!(world.servers(0), peak);
    world.run(200, &[100.0]);
    assert_eq!(world.servers(0), 2, "{:#?}", world.decisions);
    assert_eq!(world.decisions.last().unwrap().cause, Cause::ScaleIn);
}

#[test]
fn two_servers_at_the_border_of_one_do_not_flap() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    for round in 0..40 {
        world.run(60, &[if round % 2 == 0 { 52.0 } else { 64.0 }]);
    }
    assert!(world.decisions.len() <= 1, "{:#?}", world.decisions);
}

#[test]
fn servers_that_are_ordered_again_are_given_back_later_the_next_time() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    // More than one server can do for 100 s, then less for 200 s: longer than the window.
    for round in 0..96 {
        world.run(
            if round % 2 == 0 { 100 } else { 200 },
            &[[75.0, 35.0][round % 2]],
        );
    }
    assert!(world.decisions.len() <= 16, "{}", world.decisions.len());
    assert!(world.decisions.len() >= 2, "it is tried");
}

#[test]
fn missing_observations_keep_servers_and_zero_traffic_gives_them_back() {
    let mut world = World::new(ONE, &[("a", 5)], 5);
    world.run(60, &[250.0]);
    let before = world.servers(0);
    world.run(1800, &[f64::NAN]);
    assert_eq!(world.servers(0), before);
    assert!(
        world
            .events
            .iter()
            .any(|event| matches!(event, PlaneEvent::Blind { .. }))
    );
    world.run(600, &[0.0]);
    assert_eq!(world.servers(0), 1, "{:#?}", world.decisions);
}

#[test]
fn servers_that_never_get_ready_are_replaced_in_small_numbers_and_reported() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    world.run(30, &[100.0]);
    world.run(40, &[170.0]);
    let healthy = world.servers(0);
    world.apps[0].never_ready = true;
    world.run(1200, &[300.0]);
    assert!(
        world
            .events
            .iter()
            .any(|event| matches!(event, PlaneEvent::Stuck { .. }))
    );
    assert!(
        world.servers(0) <= 2 * healthy + 4,
        "{:#?}",
        world.decisions
    );
}

#[test]
fn number_set_from_elsewhere_is_respected_for_a_time() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    world.run(60, &[100.0]);
    world.apps[0].desired = 9;
    world.apps[0].servers = vec![0; 9];
    world.run(500, &[100.0]);
    assert_eq!(world.servers(0), 9);
    assert!(world.events.iter().any(|event| matches!(
        event,
        PlaneEvent::Foreign {
            ordered: 2,
            found: 9,
            ..
        }
    )));
    world.run(400, &[100.0]);
    assert_eq!(world.servers(0), 2);
}

#[test]
fn reaction_keeps_to_its_step_and_its_pause() {
    let mut world = World::new(PAPER, &[("a", 3), ("b", 3)], 0);
    world.run(600, &[100.0, 100.0]);
    world.run(301, &[400.0, 100.0]);
    assert_eq!(world.servers(0), 4, "{:#?}", world.decisions);
    assert_eq!(world.decisions[0].cause, Cause::Shed);
    world.run(200, &[800.0, 100.0]);
    assert_eq!(world.servers(0), 4);
    world.run(60, &[800.0, 100.0]);
    assert_eq!(world.servers(0), 5);
}

#[test]
fn plan_gives_the_free_pool_and_degrades_the_target() {
    let mut world = World::new(PAPER, &[("a", 3), ("b", 3)], 0);
    world.run(1700, &[100.0, 100.0]);
    world.run(101, &[1600.0, 100.0]);
    assert_eq!(world.servers(0), 8, "{:#?}", world.decisions);
    assert_eq!(world.servers(1), 3);
    let last = world.decisions.last().unwrap();
    assert_eq!(last.target.as_secs_f64(), 2.0, "{}", last.reason);
    assert!(last.reason.contains("target 1 → 2 s"), "{}", last.reason);
}

#[test]
fn reaction_takes_servers_that_others_do_not_need() {
    let mut world = World::new(PAPER, &[("a", 8), ("b", 3)], 0);
    world.run(301, &[100.0, 900.0]);
    assert_eq!(
        (world.servers(0), world.servers(1)),
        (7, 4),
        "{:#?}",
        world.decisions
    );
}

#[test]
fn forecast_never_scales_in() {
    let mut world = World::new(ONE, &[("a", 8)], 5);
    // Falling fast: the trend says that nothing will be left, the present still needs servers.
    for rate in (0..60).map(|i| 480.0 - 4.0 * f64::from(i)) {
        world.run(1, &[rate]);
        assert_eq!(world.servers(0), world.servers(0).max(8));
    }
}

#[test]
fn snapshot_survives_a_restart() {
    let mut world = World::new(ONE, &[("a", 2)], 20);
    world.run(400, &[200.0]);
    let text = serde_json::to_string(&world.plane.snapshot()).unwrap();
    let mut restarted = World::new(ONE, &[("a", 2)], 20);
    let snapshot: Snapshot = serde_json::from_str(&text).unwrap();
    restarted.plane.resume(snapshot.clone());
    assert_eq!(restarted.plane.snapshot(), snapshot);
    let status = &restarted.plane.status(world.now())[0];
    assert!((status.start_seconds - 20.0).abs() < 1.0, "{status:?}");
}

fn classes(counts: &[(&str, f64)]) -> std::collections::BTreeMap<String, f64> {
    let pairs = counts.iter();
    pairs
        .map(|&(name, count)| (name.to_owned(), count))
        .collect()
}

/// A pool of 12 for two applications that each want more; `a` has the dear class.
fn divided_by_classes(config: &str, of_a: &[(&str, f64)]) -> (u32, u32) {
    let config: PlaneConfig = tidegate_config::parse("plane.toml", config).unwrap();
    let mut plane = Plane::new(config, Timestamp::ZERO).unwrap();
    let at = |second: u64| Timestamp::from_nanos(second * 1_000_000_000);
    let mut servers = [6, 6];
    for second in 1..=40 {
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            plane.on_servers(at(second), name, servers[index], servers[index]);
            let counts = if name == "a" {
                of_a
            } else {
                &[("plain", 640.0)]
            };
            let arrived: f64 = counts.iter().map(|(_, count)| count).sum();
            let seen = Observation {
                seconds: 1.0,
                arrived,
                served: arrived,
                classes: classes(counts),
                ..Observation::default()
            };
            plane.on_observation(at(second), name, &seen);
        }
        for event in plane.handle_timeout(at(second)) {
            if let PlaneEvent::Decision(decision) = event {
                servers[usize::from(decision.application == "b")] = decision.to;
                plane.on_applied(at(second), &decision);
            }
        }
    }
    let division = plane.division().unwrap();
    assert!(division.bound_per_second >= division.revenue_per_second);
    assert!(division.revenue_per_second > 0.0);
    (servers[0], servers[1])
}

const TWO: &str = "pool = 12\nreaction = { enabled = false }\nprediction = { enabled = false }\n";

#[test]
fn revenue_of_a_class_goes_by_its_name_in_whatever_order_classes_stand() {
    let config = |a: &str| {
        format!(
            "{TWO}[[application]]\nname = 'a'\ncapacity = '60/s'\n{a}\n\
             [[application]]\nname = 'b'\ncapacity = '60/s'\nrevenue = 2.0\n"
        )
    };
    let gold = "[[application.class]]\nname = 'gold'\nrevenue = 9.0\n";
    let bronze = "[[application.class]]\nname = 'bronze'\nrevenue = 0.1\n";
    let counts = [("bronze", 500.0), ("gold", 100.0)];
    // 100/s at 9 need two servers; 500/s at 0.1 earn less than what `b` has.
    let first = divided_by_classes(&config(&format!("{gold}{bronze}")), &counts);
    let second = divided_by_classes(&config(&format!("{bronze}{gold}")), &counts);
    assert_eq!(first, second);
    assert_eq!(first, (2, 10));
    let only_bronze = divided_by_classes(&config(bronze), &[("bronze", 600.0)]);
    assert_eq!(only_bronze, (1, 11));
}

#[test]
fn guarantee_of_a_cheap_class_has_its_servers_in_a_short_pool() {
    let config = |guarantee: &str| {
        format!(
            "{TWO}[[application]]\nname = 'a'\ncapacity = '60/s'\n[[application.class]]\n\
             name = 'bronze'\nrevenue = 0.1\nguarantee = '{guarantee}'\n\
             [[application]]\nname = 'b'\ncapacity = '60/s'\nrevenue = 50.0\n"
        )
    };
    let counts = [("bronze", 600.0)];
    assert_eq!(divided_by_classes(&config("0/s"), &counts), (1, 11));
    assert_eq!(divided_by_classes(&config("150/s"), &counts), (3, 9));
}

#[test]
fn reaction_before_anything_is_shed_has_a_cause_of_its_own() {
    let mut world = World::new(ONE, &[("a", 2)], 20);
    world.run(30, &[100.0]);
    let now = world.now() + std::time::Duration::from_secs(1);
    let seen = Observation {
        seconds: 1.0,
        arrived: 400.0,
        served: 400.0,
        ..Observation::default()
    };
    let events = world.plane.on_observation(now, "a", &seen);
    let [PlaneEvent::Decision(decision)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(decision.cause, Cause::Ahead);
    assert!(
        decision
            .reason
            .contains("400/s in the last second, too much for 2 servers"),
        "{}",
        decision.reason
    );
}

#[test]
fn requests_shed_before_the_last_server_was_ready_order_no_other_one() {
    // Servers start in a second, the window is 5 s: what was shed before is still in it.
    let mut world = World::new(ONE, &[("a", 2)], 1);
    world.run(30, &[100.0]);
    world.run(20, &[175.0]);
    assert_eq!(world.servers(0), 4, "{:#?}", world.decisions);
    let steps: Vec<_> = world.decisions.iter().map(|it| (it.from, it.to)).collect();
    assert!(steps.len() <= 2, "{steps:?}");
}

#[test]
fn status_shows_both_models() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    world.run(60, &[250.0]);
    let status = &world.plane.status(world.now())[0];
    let need = status.need.unwrap();
    assert_eq!(need.with_margin, need.by_bound.max(need.by_mgc), "{need:?}");
    assert!(need.by_bound >= 4 && need.by_mgc >= 4, "{need:?}");
}

#[test]
fn unknown_application_changes_nothing() {
    let mut world = World::new(ONE, &[("a", 2)], 5);
    let seen = Observation {
        seconds: 1.0,
        arrived: 1e9,
        shed: 1e9,
        ..Observation::default()
    };
    assert!(
        world
            .plane
            .on_observation(world.now(), "b", &seen)
            .is_empty()
    );
    assert!(world.plane.on_servers(world.now(), "b", 1, 1).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn servers_stay_within_bounds_and_pool_whatever_comes(
        rates in proptest::collection::vec((0.0..3_000.0f64, 0.0..3_000.0f64, 1..120u64), 1..30),
        start in 0..90u64,
    ) {
        let mut world = World::new(PAPER, &[("a", 3), ("b", 3)], start);
        for (a, b, seconds) in rates {
            world.run(seconds, &[a, b]);
            prop_assert!(world.servers(0) >= 3 && world.servers(1) >= 3);
            prop_assert!(world.servers(0) + world.servers(1) <= 11);
        }
        for decision in &world.decisions {
            prop_assert!(!decision.reason.is_empty());
            if decision.cause == Cause::Shed {
                prop_assert!(decision.to - decision.from == 1);
            }
        }
    }

    #[test]
    fn steady_load_settles(rate in 0.0..2_000.0f64, start in 0..60u64, from in 1..40u32) {
        let mut world = World::new(ONE, &[("a", from)], start);
        world.run(900, &[rate]);
        let settled = world.decisions.len();
        world.run(900, &[rate]);
        prop_assert_eq!(world.decisions.len(), settled, "{:#?}", world.decisions);
    }
}

#[test]
fn reconfigured_plane_keeps_what_it_knows_of_applications_that_stay() {
    let mut world = World::new(ONE, &[("a", 1)], 1);
    world.run(60, &[300.0]);
    let known = world.plane.status(world.now());
    let config =
        |text: &str| -> PlaneConfig { tidegate_config::parse("plane.toml", text).unwrap() };
    let two = config(&format!("{ONE}[[application]]\nname = 'b'\n"));
    world.plane.reconfigure(two).unwrap();
    let status = world.plane.status(world.now());
    assert_eq!(
        (&status[0].name, status[0].rate),
        (&"a".to_owned(), known[0].rate)
    );
    assert_eq!(
        (status[0].servers, status[0].needed),
        (known[0].servers, known[0].needed)
    );
    assert_eq!((&status[1].name, status[1].rate), (&"b".to_owned(), None));
    let contradiction = config("pool = 1\n[[application]]\nname = 'a'\nmin = 2\n");
    assert!(world.plane.reconfigure(contradiction).is_err());
    assert_eq!(
        world.plane.status(world.now()).len(),
        2,
        "the old one stays"
    );
    world.plane.reconfigure(config("")).unwrap();
    assert!(world.plane.status(world.now()).is_empty());
}

#[test]
fn servers_that_another_plane_sets_are_followed_and_not_held() {
    let mut world = World::new(ONE, &[("a", 1)], 1);
    world.run(30, &[30.0]);
    let decided = world.decisions.len();
    // Another one scales, and this one is told so by its driver.
    let now = world.now();
    world.plane.on_followed(now, "a", 8, 8);
    world.apps[0].desired = 8;
    world.apps[0].servers = vec![0; 8];
    world.run(30, &[300.0]);
    let status = &world.plane.status(world.now())[0];
    assert!(!status.foreign, "{}", status.reason);
    assert!(status.needed >= Some(5), "{:?}", status.needed);
    assert!(
        !world
            .events
            .iter()
            .any(|event| matches!(event, PlaneEvent::Foreign { .. })),
        "{:?}",
        world.events
    );
    assert_eq!(world.decisions.len(), decided, "eight are enough");
}

#[test]
fn servers_needed_are_known_while_a_foreign_number_is_respected() {
    let mut world = World::new(ONE, &[("a", 1)], 1);
    world.run(30, &[30.0]);
    world.apps[0].desired = 2;
    world.apps[0].servers = vec![0; 2];
    world.run(30, &[300.0]);
    let status = &world.plane.status(world.now())[0];
    assert!(status.foreign && status.servers == 2, "{}", status.reason);
    assert!(status.needed >= Some(5), "{:?}", status.needed);
}
