//! Controllers in closed loops whose behaviour theory predicts.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Controller;
use tidegate_control::controller::{
    ActuatorConfig, AdaptiveIntegral, AdaptiveIntegralConfig, FuzzyPi, FuzzyPiConfig,
    FuzzyPiScales, Integral, IntegralConfig, Integration, Pid, PidConfig, PidGains, ProcessModel,
    SmithConfig, SmithPredictor, Step, StepConfig,
};

const SECOND: Duration = Duration::from_secs(1);

fn pid(gains: PidGains, actuator: ActuatorConfig) -> Pid {
    Pid::new(PidConfig::new(gains, SECOND, actuator)).unwrap()
}

/// First-order lag behind a dead time of whole intervals, with a disturbance at its output.
struct Plant {
    decay: f64,
    gain: f64,
    level: f64,
    disturbance: f64,
    under_way: VecDeque<f64>,
}

impl Plant {
    fn new(gain: f64, time_constant_s: f64, dead_intervals: usize) -> Self {
        Self {
            decay: (-1.0 / time_constant_s).exp(),
            gain,
            level: 0.0,
            disturbance: 0.0,
            under_way: VecDeque::from(vec![0.0; dead_intervals]),
        }
    }

    fn measured(&self) -> f64 {
        self.level + self.disturbance
    }

    fn advance(&mut self, command: f64) {
        self.under_way.push_back(command);
        let arrived = self.under_way.pop_front().unwrap_or(command);
        self.level = self.decay * self.level + (1.0 - self.decay) * self.gain * arrived;
    }

    /// Runs the loop and returns the errors seen at each step.
    fn run(&mut self, controller: &mut dyn Controller, setpoint: f64, steps: usize) -> Vec<f64> {
        (0..steps)
            .map(|_| {
                let measured = self.measured();
                let command = controller.step(setpoint, measured);
                self.advance(command);
                setpoint - measured
            })
            .collect()
    }
}

/// Index after which no error exceeds `band`.
fn settled_after(errors: &[f64], band: f64) -> usize {
    let last_outside = errors.iter().rposition(|error| error.abs() > band);
    last_outside.map_or(0, |index| index + 1)
}

fn absolute_error(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum()
}

/// The utilization loop of 002 §4 without its saturations: the queue integrates what was
/// admitted beyond `sigma`, the monitor reports `(u + x)/sigma` one interval later.
fn utilization_loop_errors(gain: f64, integral_time_s: f64, steps: usize) -> Vec<f64> {
    const SIGMA: f64 = 1.0 / 0.0255;
    let gains = PidGains::pi(gain, Duration::from_secs_f64(integral_time_s));
    let mut controller = Pid::new(PidConfig {
        integration: Integration::Forward,
        ..PidConfig::new(gains, SECOND, ActuatorConfig::unlimited())
    })
    .unwrap();
    let (mut queue, mut utilization) = (0.0, 0.0);
    (0..steps)
        .map(|_| {
            let error = 0.8 - utilization;
            let admitted = controller.step(0.8, utilization);
            utilization = (admitted + queue) / SIGMA;
            queue += admitted - SIGMA;
            error
        })
        .collect()
}

/// Coefficients of `z² + a1 z + a2`, 002 eq. 3.
fn characteristic(gain: f64, integral_time_s: f64) -> (f64, f64) {
    let share = gain * 0.0255;
    (share - 2.0, 1.0 - share + share / integral_time_s)
}

#[test]
fn pi_loop_of_002_obeys_its_characteristic_polynomial() {
    for (gain, integral_time_s) in [(20.0, 2.8), (20.0, 0.1), (5.0, 0.185)] {
        let errors = utilization_loop_errors(gain, integral_time_s, 30);
        let (a1, a2) = characteristic(gain, integral_time_s);
        for e in errors.windows(3).skip(1) {
            let residual = e[2] + a1 * e[1] + a2 * e[0];
            let scale = e.iter().fold(1.0_f64, |scale, x| scale.max(x.abs()));
            assert!(residual.abs() < 1e-9 * scale, "{gain}, {integral_time_s}");
        }
    }
}

#[test]
fn good_gains_of_002_decay_and_the_bad_ones_grow() {
    // A pair of complex poles: over n steps the envelope changes by |z|^n, and so does the
    // quadratic form that the poles leave invariant up to their modulus.
    let modulus = |gain, integral_time_s| {
        let (a1, a2) = characteristic(gain, integral_time_s);
        let errors = utilization_loop_errors(gain, integral_time_s, 62);
        let energy = |k: usize| {
            let (older, newer) = (errors[k], errors[k + 1]);
            newer * newer + a1 * newer * older + a2 * older * older
        };
        (energy(60) / energy(20)).powf(1.0 / 80.0)
    };
    assert!((modulus(20.0, 2.8) - 0.8198).abs() < 1e-3);
    assert!((modulus(20.0, 0.1) - 2.364).abs() < 1e-3);
    assert!((modulus(5.0, 0.185) - 1.2497).abs() < 1e-3);
}

#[test]
fn proportional_control_leaves_the_error_that_theory_says() {
    let mut plant = Plant::new(2.0, 5.0, 0);
    let mut controller = pid(PidGains::p(1.5), ActuatorConfig::unlimited());
    let errors = plant.run(&mut controller, 1.0, 200);
    assert!((errors[199] - 1.0 / (1.0 + 1.5 * 2.0)).abs() < 1e-9);
}

#[test]
fn derivative_action_damps_a_loop_that_pi_leaves_ringing() {
    // Two lags in series: the second is the controller's own plant, fed by the first.
    let run = |gains| {
        let mut controller = pid(gains, ActuatorConfig::unlimited());
        let (mut first, mut second) = (Plant::new(1.0, 8.0, 0), Plant::new(1.0, 8.0, 0));
        let errors: Vec<f64> = (0..300)
            .map(|_| {
                let measured = second.measured();
                first.advance(controller.step(1.0, measured));
                second.advance(first.measured());
                1.0 - measured
            })
            .collect();
        let overshoot = errors.iter().fold(0.0_f64, |most, error| most.max(-error));
        (overshoot, settled_after(&errors, 0.02))
    };
    let integral_time = Duration::from_secs(10);
    let (pi_overshoot, pi_settled) = run(PidGains::pi(6.0, integral_time));
    let (pid_overshoot, pid_settled) =
        run(PidGains::pid(6.0, integral_time, Duration::from_secs(3)));
    assert!(
        pid_overshoot < pi_overshoot / 2.0,
        "{pid_overshoot}, {pi_overshoot}"
    );
    assert!(pid_settled < pi_settled, "{pid_settled}, {pi_settled}");
}

fn smith(inner: Pid, dead_time: Duration) -> SmithPredictor<Pid> {
    let model = ProcessModel::FirstOrder {
        gain: 1.0,
        time_constant: Duration::from_secs(4),
    };
    let config = SmithConfig {
        model,
        dead_time,
        interval: SECOND,
    };
    SmithPredictor::new(inner, config).unwrap()
}

/// Gains for a lag of 4 s without dead time: time constant cancelled, closed-loop lag 1.3 s.
fn prompt_pi() -> Pid {
    let gains = PidGains::pi(3.0, Duration::from_secs(4));
    pid(gains, ActuatorConfig::within(0.0, 20.0))
}

#[test]
fn smith_predictor_gives_the_loop_without_dead_time_only_later() {
    let without = Plant::new(1.0, 4.0, 0).run(&mut prompt_pi(), 1.0, 100);
    let mut controller = smith(prompt_pi(), Duration::from_secs(8));
    let with = Plant::new(1.0, 4.0, 8).run(&mut controller, 1.0, 108);
    for (k, error) in without.iter().enumerate() {
        assert!((error - with[k + 8]).abs() < 1e-9, "step {k}");
    }
}

#[test]
fn dead_time_defeats_the_plain_controller_and_not_the_predictor() {
    let plain = Plant::new(1.0, 4.0, 8).run(&mut prompt_pi(), 1.0, 400);
    let mut controller = smith(prompt_pi(), Duration::from_secs(8));
    let predicted = Plant::new(1.0, 4.0, 8).run(&mut controller, 1.0, 400);
    assert!(settled_after(&predicted, 0.02) < 20);
    assert_eq!(settled_after(&plain, 0.02), 400, "never settles");
    assert!(absolute_error(&predicted) < absolute_error(&plain) / 10.0);
}

/// Steps to settle when the plant has 8 s of dead time and `gain`, and the model `assumed_s`.
fn settling_with_wrong_model(controller_gain: f64, assumed_s: u64, gain: f64) -> usize {
    let gains = PidGains::pi(controller_gain, Duration::from_secs(4));
    let inner = pid(gains, ActuatorConfig::within(0.0, 20.0));
    let mut controller = smith(inner, Duration::from_secs(assumed_s));
    let errors = Plant::new(gain, 4.0, 8).run(&mut controller, 1.0, 600);
    settled_after(&errors, 0.02)
}

#[test]
fn predictor_forgives_a_wrong_model_only_with_modest_gains() {
    for (assumed_s, gain) in [(5, 1.0), (11, 1.0), (8, 0.7), (8, 1.4)] {
        let settled = settling_with_wrong_model(1.0, assumed_s, gain);
        assert!(settled < 150, "{assumed_s} s, gain {gain}: {settled}");
    }
    for assumed_s in [7, 9] {
        assert_eq!(settling_with_wrong_model(3.0, assumed_s, 1.0), 600);
    }
}

#[test]
fn predictor_settles_an_integrating_plant_with_dead_time() {
    // A queue that fills with what is admitted, seen five intervals late.
    let gains = PidGains::p(0.5);
    let inner = pid(gains, ActuatorConfig::within(-10.0, 10.0));
    let config = SmithConfig {
        model: ProcessModel::Integrator {
            gain_per_second: 1.0,
        },
        dead_time: Duration::from_secs(5),
        interval: SECOND,
    };
    let mut controller = SmithPredictor::new(inner, config).unwrap();
    let mut under_way = VecDeque::from([0.0; 5]);
    let mut level = 0.0;
    for _ in 0..100 {
        under_way.push_back(controller.step(30.0, level));
        level += under_way.pop_front().unwrap_or(0.0);
    }
    assert!((level - 30.0).abs() < 1e-6);
}

/// Every controller with integral action, tuned for a plant of gain 1 and a lag of 4 s.
fn integrating_controllers(actuator: ActuatorConfig) -> Vec<(&'static str, Box<dyn Controller>)> {
    let pi = PidGains::pi(1.0, Duration::from_secs(4));
    let forward = PidConfig {
        integration: Integration::Forward,
        ..PidConfig::new(pi, SECOND, actuator)
    };
    let integral = IntegralConfig {
        gain: 0.1,
        integration: Integration::Backward,
        actuator,
    };
    let adaptive = AdaptiveIntegralConfig {
        gain: 0.1,
        plant_gain: 1.0,
        weight: 0.1,
        integration: Integration::Backward,
        actuator,
    };
    let fuzzy = FuzzyPiConfig {
        scales: FuzzyPiScales {
            error: 4.0,
            change: 2.0,
            step: 2.0,
        },
        actuator,
    };
    let step = StepConfig {
        step: 0.1,
        dead_band: 0.3,
        actuator,
    };
    let pid_gains = PidGains::pid(1.0, Duration::from_secs(4), SECOND);
    vec![
        ("step", Box::new(Step::new(step).unwrap())),
        ("pi", Box::new(pid(pi, actuator))),
        ("pi forward", Box::new(Pid::new(forward).unwrap())),
        ("pid", Box::new(pid(pid_gains, actuator))),
        ("integral", Box::new(Integral::new(integral).unwrap())),
        (
            "adaptive",
            Box::new(AdaptiveIntegral::new(adaptive).unwrap()),
        ),
        ("fuzzy", Box::new(FuzzyPi::new(fuzzy).unwrap())),
        ("smith", Box::new(smith(pid(pi, actuator), SECOND * 2))),
    ]
}

/// Steps that the loop needs to settle after `overloaded` steps in which the setpoint could
/// not be reached.
fn recovery(index: usize, actuator: ActuatorConfig, overloaded: usize) -> usize {
    let (name, mut controller) = integrating_controllers(actuator).remove(index);
    let dead_intervals = if name == "smith" { 2 } else { 0 };
    let mut plant = Plant::new(1.0, 4.0, dead_intervals);
    plant.disturbance = 20.0;
    plant.run(controller.as_mut(), 4.0, overloaded);
    assert_eq!(controller.output(), 0.0, "{name} closes the gate");
    plant.disturbance = 0.0;
    let errors = plant.run(controller.as_mut(), 4.0, 400);
    settled_after(&errors, 0.35)
}

#[test]
fn recovery_does_not_depend_on_how_long_the_overload_was() {
    let fast = ActuatorConfig::within(0.0, 8.0);
    for actuator in [fast, fast.with_slew(0.5)] {
        for index in 0..integrating_controllers(actuator).len() {
            let (short, long) = (
                recovery(index, actuator, 200),
                recovery(index, actuator, 20_000),
            );
            assert_eq!(short, long, "controller {index}");
            assert!(long < 150, "controller {index} needs {long}");
        }
    }
}

#[test]
fn every_integrating_controller_removes_a_lasting_disturbance() {
    let actuator = ActuatorConfig::within(0.0, 8.0);
    for (name, mut controller) in integrating_controllers(actuator) {
        let dead_intervals = if name == "smith" { 2 } else { 0 };
        let mut plant = Plant::new(1.0, 4.0, dead_intervals);
        plant.disturbance = 1.5;
        let errors = plant.run(controller.as_mut(), 4.0, 600);
        let rest = errors[599].abs();
        let band = if name == "step" { 0.35 } else { 0.02 };
        assert!(rest < band, "{name} leaves {rest}");
    }
}

#[test]
fn one_controller_hands_over_to_another_without_a_bump() {
    let actuator = ActuatorConfig::within(0.0, 8.0);
    let mut plant = Plant::new(1.0, 4.0, 0);
    let mut retiring = pid(PidGains::pi(1.0, Duration::from_secs(4)), actuator);
    plant.run(&mut retiring, 4.0, 5);
    for (name, mut successor) in integrating_controllers(actuator) {
        successor.track(retiring.output());
        let first = successor.step(4.0, plant.measured());
        let bump = (first - retiring.output()).abs();
        assert!(bump < 0.6, "{name} jumps by {bump}");
    }
}
