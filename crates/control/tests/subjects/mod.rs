//! Every controller behind one face: how its gains are changed, and how far one step may move
//! its output for the error at hand.

use std::time::Duration;

use tidegate_control::Controller;
use tidegate_control::controller::{
    ActuatorConfig, AdaptiveIntegral, AdaptiveIntegralConfig, FuzzyPi, FuzzyPiConfig,
    FuzzyPiScales, Integral, IntegralConfig, Integration, Pid, PidConfig, PidGains, ProcessModel,
    SmithConfig, SmithPredictor, StateFeedback, StateFeedbackConfig, Static, Step, StepConfig,
    Terms,
};

const INTERVAL: Duration = Duration::from_secs(1);
const INTEGRAL_TIME_S: f64 = 4.0;
const PLANT_GAIN: f64 = 2.0;

/// A controller whose gains can be scaled.
pub(crate) trait Subject: Controller {
    fn scale_gains(&mut self, factor: f64);

    /// How far a step with this constant error may move the output.
    fn increment(&self, error: f64) -> f64;
}

impl Subject for Static {
    fn scale_gains(&mut self, _factor: f64) {}

    fn increment(&self, _error: f64) -> f64 {
        f64::INFINITY
    }
}

/// A controller and its gain in force.
#[derive(Debug)]
struct Scaled<C> {
    controller: C,
    gain: f64,
}

/// Passes the controller through, so that each kind only says what differs.
macro_rules! forward_controller {
    ($type:ty) => {
        impl Controller for $type {
            fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
                self.controller.step(setpoint, measured)
            }
            fn output(&self) -> f64 {
                self.controller.output()
            }
            fn track(&mut self, applied: f64) {
                self.controller.track(applied);
            }
            fn set_max(&mut self, max: f64) {
                self.controller.set_max(max);
            }
            fn terms(&self) -> Terms {
                self.controller.terms()
            }
            fn bad_samples(&self) -> u64 {
                self.controller.bad_samples()
            }
        }
    };
}

forward_controller!(Scaled<Step>);
forward_controller!(Scaled<Pid>);
forward_controller!(Scaled<Integral>);
forward_controller!(Scaled<AdaptiveIntegral>);
forward_controller!(Scaled<FuzzyPi>);
forward_controller!(Scaled<SmithPredictor<Pid>>);

impl Subject for Scaled<Step> {
    fn scale_gains(&mut self, factor: f64) {
        self.gain *= factor;
        self.controller.set_gains(self.gain, 0.0).unwrap();
    }

    fn increment(&self, _error: f64) -> f64 {
        self.gain
    }
}

fn scaled(gains: PidGains, factor: f64) -> PidGains {
    PidGains {
        gain: gains.gain * factor,
        ..gains
    }
}

impl Subject for Scaled<Pid> {
    fn scale_gains(&mut self, factor: f64) {
        self.gain *= factor;
        let gains = scaled(self.controller.gains(), factor);
        self.controller.set_gains(gains).unwrap();
    }

    fn increment(&self, error: f64) -> f64 {
        let integrates = self.controller.gains().integral_time.is_some();
        f64::from(u8::from(integrates)) * (self.gain * error / INTEGRAL_TIME_S).abs()
    }
}

impl Subject for Scaled<SmithPredictor<Pid>> {
    fn scale_gains(&mut self, factor: f64) {
        self.gain *= factor;
        let gains = scaled(self.controller.inner().gains(), factor);
        self.controller.inner_mut().set_gains(gains).unwrap();
    }

    /// The controller answers the predicted error.
    fn increment(&self, error: f64) -> f64 {
        let predicted = error.abs() + self.controller.under_way().abs();
        self.gain * predicted / INTEGRAL_TIME_S
    }
}

impl Subject for Scaled<Integral> {
    fn scale_gains(&mut self, factor: f64) {
        self.gain *= factor;
        self.controller.set_gain(self.gain).unwrap();
    }

    fn increment(&self, error: f64) -> f64 {
        (self.gain * error).abs()
    }
}

impl Subject for Scaled<AdaptiveIntegral> {
    fn scale_gains(&mut self, factor: f64) {
        self.gain *= factor;
        self.controller.set_gain(self.gain).unwrap();
    }

    /// The estimate may fall by all of its span.
    fn increment(&self, error: f64) -> f64 {
        (self.gain / PLANT_GAIN * AdaptiveIntegral::ESTIMATE_SPAN * error).abs()
    }
}

impl Subject for Scaled<FuzzyPi> {
    fn scale_gains(&mut self, factor: f64) {
        self.gain *= factor;
        self.controller.set_scales(fuzzy_scales(self.gain)).unwrap();
    }

    fn increment(&self, _error: f64) -> f64 {
        self.gain
    }
}

fn fuzzy_scales(step: f64) -> FuzzyPiScales {
    FuzzyPiScales {
        error: 5.0,
        change: 5.0,
        step,
    }
}

/// State feedback of one state, the error.
#[derive(Debug)]
struct OneState(StateFeedback, f64);

impl Controller for OneState {
    fn step(&mut self, setpoint: f64, measured: f64) -> f64 {
        let deviation = (measured - setpoint).clamp(f64::MIN, f64::MAX);
        let good = setpoint.is_finite() && measured.is_finite();
        self.0.step(&[if good { deviation } else { f64::NAN }])
    }

    fn output(&self) -> f64 {
        self.0.output()
    }

    fn track(&mut self, applied: f64) {
        self.0.track(applied);
    }

    fn set_max(&mut self, max: f64) {
        self.0.actuator_mut().set_max(max);
    }

    fn terms(&self) -> Terms {
        self.0.terms()
    }

    fn bad_samples(&self) -> u64 {
        self.0.bad_samples()
    }
}

impl Subject for OneState {
    fn scale_gains(&mut self, factor: f64) {
        self.1 *= factor;
        self.0.set_gains(&[self.1]).unwrap();
    }

    fn increment(&self, _error: f64) -> f64 {
        0.0
    }
}

/// The controllers under test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Static,
    Step,
    P,
    Pi,
    PiForward,
    Pid,
    Integral,
    IntegralForward,
    Adaptive,
    StateFeedback,
    Fuzzy,
    Smith,
}

/// All of them.
pub(crate) const KINDS: [Kind; 12] = [
    Kind::Static,
    Kind::Step,
    Kind::P,
    Kind::Pi,
    Kind::PiForward,
    Kind::Pid,
    Kind::Integral,
    Kind::IntegralForward,
    Kind::Adaptive,
    Kind::StateFeedback,
    Kind::Fuzzy,
    Kind::Smith,
];

/// A controller of `kind` whose gain, or step, is `gain`.
pub(crate) fn build(kind: Kind, gain: f64, actuator: ActuatorConfig) -> Box<dyn Subject> {
    let integral_time = Duration::from_secs_f64(INTEGRAL_TIME_S);
    let pi = PidGains::pi(gain, integral_time);
    let (backward, forward) = (Integration::Backward, Integration::Forward);
    match kind {
        Kind::Static => Box::new(Static::new(gain, actuator).unwrap()),
        Kind::Step => subject(step(gain, actuator), gain),
        Kind::P => subject(pid(PidGains::p(gain), backward, actuator), gain),
        Kind::Pi => subject(pid(pi, backward, actuator), gain),
        Kind::PiForward => subject(pid(pi, forward, actuator), gain),
        Kind::Pid => {
            let gains = PidGains::pid(gain, integral_time, INTERVAL);
            subject(pid(gains, backward, actuator), gain)
        }
        Kind::Integral => subject(integral(gain, backward, actuator), gain),
        Kind::IntegralForward => subject(integral(gain, forward, actuator), gain),
        Kind::Adaptive => subject(adaptive(gain, actuator), gain),
        Kind::StateFeedback => Box::new(OneState(state_feedback(gain, actuator), gain)),
        Kind::Fuzzy => subject(fuzzy(gain, actuator), gain),
        Kind::Smith => subject(smith(pid(pi, backward, actuator), gain), gain),
    }
}

fn subject<C>(controller: C, gain: f64) -> Box<dyn Subject>
where
    Scaled<C>: Subject + 'static,
{
    Box::new(Scaled { controller, gain })
}

fn step(step: f64, actuator: ActuatorConfig) -> Step {
    Step::new(StepConfig {
        step,
        dead_band: 0.0,
        actuator,
    })
    .unwrap()
}

fn pid(gains: PidGains, integration: Integration, actuator: ActuatorConfig) -> Pid {
    Pid::new(PidConfig {
        integration,
        ..PidConfig::new(gains, INTERVAL, actuator)
    })
    .unwrap()
}

fn integral(gain: f64, integration: Integration, actuator: ActuatorConfig) -> Integral {
    Integral::new(IntegralConfig {
        gain,
        integration,
        actuator,
    })
    .unwrap()
}

fn adaptive(gain: f64, actuator: ActuatorConfig) -> AdaptiveIntegral {
    AdaptiveIntegral::new(AdaptiveIntegralConfig {
        gain,
        plant_gain: PLANT_GAIN,
        weight: 0.5,
        integration: Integration::Backward,
        actuator,
    })
    .unwrap()
}

fn state_feedback(gain: f64, actuator: ActuatorConfig) -> StateFeedback {
    StateFeedback::new(StateFeedbackConfig {
        gains: vec![gain],
        state: vec![0.0],
        command: actuator.initial,
        actuator,
    })
    .unwrap()
}

fn fuzzy(step: f64, actuator: ActuatorConfig) -> FuzzyPi {
    FuzzyPi::new(FuzzyPiConfig {
        scales: fuzzy_scales(step),
        actuator,
    })
    .unwrap()
}

fn smith(inner: Pid, gain: f64) -> SmithPredictor<Pid> {
    let config = SmithConfig {
        // Above a loop gain of one, a predictor without its plant would run away.
        model: ProcessModel::Gain { gain: 0.3 / gain },
        dead_time: Duration::from_millis(3500),
        interval: INTERVAL,
    };
    SmithPredictor::new(inner, config).unwrap()
}
