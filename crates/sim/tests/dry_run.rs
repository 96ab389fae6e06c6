//! A dry run in a meltdown sees the overload and counts what enforcing would shed.

use tidegate_control::Timestamp;
use tidegate_sentry::Event;
use tidegate_sim::scenario::{Protect, Scenario, SentryProtector};

const DURATION_SECONDS: f64 = 120.0;

/// A service of 100 requests per second per replica. The load rises: nearly as many for 20 seconds,
/// then more.
struct Case {
    rate: f64,
    replicas: usize,
    law: &'static str,
    timeout: &'static str,
}

impl Case {
    fn scenario(&self) -> Scenario {
        let text = format!(
            "duration = '{DURATION_SECONDS}s'\ntarget = '500ms'\n\
             service = {{ {}, mean = '40ms' }}\n\
             [load]\nrate = [{{ at = '0s', value = '60/s' }}, {{ at = '10s', value = '{}/s' }}, \
             {{ at = '30s', value = '{}/s' }}]\n\
             client = {{ timeout = '{}' }}\n\
             [replica]\ncount = {}\ncores = 4\nslots = 20000\n[protect]\nmode = 'auto'\ntarget = '500ms'\n",
            self.law,
            95 * self.replicas,
            self.rate,
            self.timeout,
            self.replicas
        );
        tidegate_config::parse("dry_run.toml", &text).expect("the scenario is valid")
    }

    fn run(&self, seed: u64, dry_run: bool) -> Counted {
        let scenario = self.scenario();
        let Protect::Sentry(config) = &scenario.protect else {
            panic!("it is protected");
        };
        let mut config = config.clone();
        config.dry_run = dry_run;
        let mut protector =
            SentryProtector::new(&config, self.replicas, seed).expect("the engine takes it");
        let mut counted = Counted::default();
        let mut observe = |event: &Event| counted.observe(event);
        scenario
            .run_observed(seed, &mut protector, &mut observe)
            .expect("it runs");
        let status = protector
            .sentry()
            .status(Timestamp::from_secs_f64(DURATION_SECONDS));
        counted.overloaded = status.overloaded;
        let class = &status.classes[0];
        counted.would_shed = class.would_shed.iter().map(|(_, count)| count).sum();
        counted.shed = class.shed.iter().map(|(_, count)| count).sum();
        counted
    }
}

#[derive(Debug, Default)]
struct Counted {
    overloaded: Option<bool>,
    overloads: u32,
    would_shed: u64,
    shed: u64,
}

impl Counted {
    fn observe(&mut self, event: &Event) {
        self.overloads += u32::from(matches!(event, Event::Overload { on: true, .. }));
    }
}

/// What the dry run counts over what enforcing sheds; both see the overload.
fn ratio(case: &Case, seed: u64) -> f64 {
    let enforced = case.run(seed, false);
    let dry = case.run(seed, true);
    assert_eq!(dry.shed, 0, "a dry run sheds nothing");
    assert_eq!(dry.overloaded, Some(true));
    assert!(dry.overloads >= 1, "and there was an event");
    dry.would_shed as f64 / enforced.shed as f64
}

fn case(rate: f64, replicas: usize, law: &'static str, timeout: &'static str) -> Case {
    Case {
        rate,
        replicas,
        law,
        timeout,
    }
}

const SEEDS: [u64; 3] = [21, 22, 23];
const EXPONENTIAL: &str = "law = 'exponential'";

#[test]
fn dry_run_counts_what_enforcing_sheds() {
    let cases = [
        case(130.0, 1, EXPONENTIAL, "60s"),
        case(160.0, 1, EXPONENTIAL, "60s"),
        case(300.0, 1, EXPONENTIAL, "2s"),
        case(160.0, 1, "law = 'deterministic'", "60s"),
        case(160.0, 1, "law = 'log-normal', cv2 = 2.0", "60s"),
        case(350.0, 2, EXPONENTIAL, "60s"),
    ];
    for (index, case) in cases.iter().enumerate() {
        let ratios: Vec<f64> = SEEDS.map(|seed| ratio(case, seed)).to_vec();
        println!("case {index}: {ratios:.3?}");
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!((0.8..=1.2).contains(&mean), "case {index}: {ratios:.3?}");
        let each = ratios.iter().all(|ratio| (0.7..=1.3).contains(ratio));
        assert!(each, "case {index}: {ratios:.3?}");
    }
}

/// Where clients give up before they are answered, the capacity shows on the way into the meltdown
/// only; what is counted is then right within a factor of two.
#[test]
fn dry_run_sees_the_overload_of_impatient_clients() {
    let cases = [
        case(160.0, 1, "law = 'deterministic'", "2s"),
        case(160.0, 1, "law = 'log-normal', cv2 = 4.0", "2s"),
        case(350.0, 2, EXPONENTIAL, "2s"),
    ];
    for (index, case) in cases.iter().enumerate() {
        let ratio = ratio(case, 1);
        println!("case {index}: {ratio:.3}");
        assert!((0.5..=2.0).contains(&ratio), "case {index}: {ratio:.3}");
    }
}

#[test]
fn dry_run_without_an_overload_counts_hardly_anything() {
    for seed in 1..=3 {
        let dry = case(80.0, 1, EXPONENTIAL, "60s").run(seed, true);
        let arrived = 80.0 * DURATION_SECONDS;
        println!("seed {seed}: {dry:?}");
        assert!((dry.would_shed as f64) < 0.02 * arrived, "{dry:?}");
    }
}
