//! From a recorded run to a controller: a model of first order with dead time is fitted to a noisy
//! step response, and a Smith predictor is built on it that waits for no echo.
//!
//! `cargo run -p tidegate-control --example identify`

#![allow(clippy::print_stdout, clippy::disallowed_macros)] // an example shows what it does

use std::time::Duration;

use tidegate_control::Controller;
use tidegate_control::controller::{ActuatorConfig, Pid, PidConfig, PidGains, SmithPredictor};
use tidegate_control::identify::{Series, fit_fopdt};
use tidegate_control::system::Fopdt;

const INTERVAL_S: f64 = 0.5;
const SETPOINT: f64 = 3.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The record of an experiment: the plant is unknown to what follows.
    let plant = Fopdt {
        gain: 2.0,
        time_constant_s: 5.0,
        dead_time_s: 4.0,
    };
    let input = [vec![0.0; 5], vec![1.0; 95]].concat();
    let mut output = plant.simulate(INTERVAL_S, &input)?;
    for (index, sample) in output.iter_mut().enumerate() {
        *sample += 0.05 * (1.7 * index as f64).sin(); // stands in for noise
    }
    let column = |name, values| Series { name, values };
    let fit = fit_fopdt(column("u", &input), column("y", &output), INTERVAL_S)?;
    println!("fitted {:?}, R2 {:.3}", fit.plant, fit.r_squared);

    // PI by the model: the lag is cancelled, the closed loop twice as fast as the plant.
    let interval = Duration::from_secs_f64(INTERVAL_S);
    let lag = fit.plant.time_constant_s;
    let terms = PidGains::pi(2.0 / fit.plant.gain, Duration::from_secs_f64(lag));
    let pi = Pid::new(PidConfig::new(
        terms,
        interval,
        ActuatorConfig::within(0.0, 10.0),
    ))?;
    let mut loops: [(&str, Box<dyn Controller>); 2] = [
        ("PI", Box::new(pi.clone())),
        (
            "PI with Smith predictor",
            Box::new(SmithPredictor::new(pi, fit.smith_config(interval))?),
        ),
    ];
    for (name, controller) in &mut loops {
        let (mut inputs, mut worst, mut settled) = (Vec::new(), 0.0_f64, 0);
        for step in 0..120 {
            inputs.push(controller.output());
            let measured = *plant.simulate(INTERVAL_S, &inputs)?.last().unwrap_or(&0.0);
            controller.step(SETPOINT, measured);
            worst = worst.max(measured);
            if (measured - SETPOINT).abs() > 0.02 * SETPOINT {
                settled = step + 1;
            }
        }
        let overshoot = 100.0 * (worst / SETPOINT - 1.0).max(0.0);
        let settled_s = f64::from(settled) * INTERVAL_S;
        println!("{name}: overshoot {overshoot:.0} %, within 2 % after {settled_s:.0} s");
    }
    Ok(())
}
