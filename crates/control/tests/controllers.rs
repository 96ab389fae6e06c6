//! The promises of `controller`, checked on every controller with random samples and gains.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod subjects;

use proptest::prelude::*;
use tidegate_control::controller::{ActuatorConfig, Terms};

use subjects::{KINDS, Kind, Subject, build};

/// Anything a driver may pass in, the absurd included.
fn any_sample() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => -100.0..100.0_f64,
        2 => any::<f64>(),
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, 1e300, -1e300, 0.0,
        ]),
    ]
}

#[derive(Debug, Clone)]
enum Operation {
    Step(f64, f64),
    Track(f64),
    ScaleGains(f64),
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (any_sample(), any_sample()).prop_map(|(r, y)| Operation::Step(r, y)),
        1 => any_sample().prop_map(Operation::Track),
        1 => (0.5..2.0_f64).prop_map(Operation::ScaleGains),
    ]
}

/// Applies `operation`; returns whether it carried something that is not finite.
fn perform(controller: &mut dyn Subject, operation: &Operation) -> bool {
    match *operation {
        Operation::Step(setpoint, measured) => {
            let returned = controller.step(setpoint, measured);
            assert_eq!(returned, controller.output());
            !(setpoint.is_finite() && measured.is_finite())
        }
        Operation::Track(applied) => {
            controller.track(applied);
            !applied.is_finite()
        }
        Operation::ScaleGains(factor) => {
            controller.scale_gains(factor);
            false
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn outputs_are_finite_and_limited_whatever_happens(
        gain in prop_oneof![0.01..10.0_f64, 1e-200..1e300_f64],
        (low, width) in (-100.0..100.0_f64, 0.0..1000.0_f64),
        slew in prop::option::of(0.01..100.0_f64),
        operations in prop::collection::vec(any_operation(), 1..60),
    ) {
        let high = low + width;
        let actuator = ActuatorConfig { slew, ..ActuatorConfig::within(low, high) };
        for kind in KINDS {
            let mut controller = build(kind, gain, actuator);
            let mut refused = 0;
            for operation in &operations {
                let before = controller.output();
                let bad = perform(controller.as_mut(), operation);
                refused += u64::from(bad);
                let after = controller.output();
                prop_assert!(low <= after && after <= high, "{kind:?}: {after}");
                let Terms { p, i, d, .. } = controller.terms();
                prop_assert!(p.is_finite() && i.is_finite() && d.is_finite(), "{kind:?}");
                let moved = (after - before).abs();
                match operation {
                    Operation::Step(..) if bad => prop_assert_eq!(after, before),
                    Operation::Step(..) => {
                        let bound = slew.unwrap_or(f64::INFINITY) * (1.0 + 1e-9) + 1e-9;
                        prop_assert!(moved <= bound, "{kind:?} moved {moved}");
                    }
                    Operation::Track(_) => {}
                    Operation::ScaleGains(_) => prop_assert_eq!(moved, 0.0),
                }
            }
            prop_assert_eq!(controller.bad_samples(), refused, "{:?}", kind);
        }
    }

    #[test]
    fn saturation_ends_as_soon_as_the_error_turns(
        gain in 0.05..10.0_f64,
        saturated_steps in 300_u32..3000,
        upset in prop_oneof![-1e6..-1e4_f64, 1e4..1e6_f64],
        returning in 0.01..1e6_f64,
        slew in prop::option::of(0.1..5.0_f64),
    ) {
        let actuator = ActuatorConfig { slew, ..ActuatorConfig::within(-10.0, 10.0) };
        let limit = 10.0_f64.copysign(upset);
        for kind in KINDS.into_iter().filter(|&kind| kind != Kind::Static) {
            let mut controller = build(kind, gain, actuator);
            for _ in 0..saturated_steps {
                controller.step(0.0, -upset);
            }
            prop_assert_eq!(controller.output(), limit, "{:?} saturates", kind);
            let answered = returning.copysign(upset);
            let first = controller.step(0.0, answered);
            let second = controller.step(0.0, answered);
            let forward = matches!(kind, Kind::PiForward | Kind::IntegralForward);
            let left = if forward { second } else { first };
            prop_assert!(left != limit, "{kind:?}: {first}, {second}");
        }
    }

    #[test]
    fn change_of_gains_moves_the_output_by_no_more_than_a_step_does(
        gain in 0.01..5.0_f64,
        factor in 0.1..10.0_f64,
        samples in prop::collection::vec((-50.0..50.0_f64, -50.0..50.0_f64), 1..40),
    ) {
        let actuator = ActuatorConfig::within(-1e9, 1e9);
        for kind in KINDS {
            let mut controller = build(kind, gain, actuator);
            let (setpoint, measured) = run_and_rest(controller.as_mut(), &samples);
            let before = controller.output();
            let old = controller.increment(setpoint - measured);
            controller.scale_gains(factor);
            prop_assert_eq!(controller.output(), before, "{:?}", kind);
            let after = controller.step(setpoint, measured);
            let allowed = old.max(controller.increment(setpoint - measured));
            prop_assert!((after - before).abs() <= allowed + tolerance(before),
                "{kind:?}: {before} to {after}, allowed {allowed}");
        }
    }

    #[test]
    fn taking_over_moves_the_output_by_no_more_than_a_step_does(
        gain in 0.01..5.0_f64,
        applied in -1000.0..1000.0_f64,
        setpoint in -50.0..50.0_f64,
        measured in -50.0..50.0_f64,
    ) {
        for kind in KINDS {
            let mut controller = build(kind, gain, ActuatorConfig::within(-1e9, 1e9));
            controller.track(applied);
            prop_assert_eq!(controller.output(), applied, "{:?}", kind);
            let after = controller.step(setpoint, measured);
            let allowed = controller.increment(setpoint - measured);
            prop_assert!((after - applied).abs() <= allowed + tolerance(applied),
                "{kind:?}: {applied} to {after}, allowed {allowed}");
        }
    }

    #[test]
    fn override_while_running_is_where_the_next_step_starts(
        gain in 0.01..5.0_f64,
        applied in -1000.0..1000.0_f64,
        samples in prop::collection::vec((-50.0..50.0_f64, -50.0..50.0_f64), 1..40),
    ) {
        // A Smith predictor sees the override coming back and rightly answers that as well.
        for kind in KINDS.into_iter().filter(|&kind| kind != Kind::Smith) {
            let mut controller = build(kind, gain, ActuatorConfig::within(-1e9, 1e9));
            let (setpoint, measured) = run_and_rest(controller.as_mut(), &samples);
            controller.track(applied);
            let after = controller.step(setpoint, measured);
            let allowed = controller.increment(setpoint - measured);
            prop_assert!((after - applied).abs() <= allowed + tolerance(applied),
                "{kind:?}: {applied} to {after}, allowed {allowed}");
        }
    }
}

/// Runs `samples`, then repeats the last one until derivatives and predictions are at rest.
fn run_and_rest(controller: &mut dyn Subject, samples: &[(f64, f64)]) -> (f64, f64) {
    let &(setpoint, measured) = samples.last().expect("at least one sample");
    for &(setpoint, measured) in samples {
        controller.step(setpoint, measured);
    }
    for _ in 0..60 {
        controller.step(setpoint, measured);
    }
    (setpoint, measured)
}

fn tolerance(value: f64) -> f64 {
    1e-6 * (1.0 + value.abs())
}
