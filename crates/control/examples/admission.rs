//! Admission control of a web server, from a wish to a running loop: gains by pole placement (002,
//! section 5), then a server that becomes half as fast.
//!
//! `cargo run -p tidegate-control --example admission`

#![allow(clippy::print_stdout, clippy::disallowed_macros)] // an example shows what it does

use std::time::Duration;

use tidegate_control::Controller;
use tidegate_control::controller::{ActuatorConfig, Pid, PidConfig, PidGains};
use tidegate_control::design::UtilizationLoop;
use tidegate_control::system::spectral_radius;

/// Requests per second that arrive.
const OFFERED: f64 = 100.0;
/// Wanted share of time in which the server works.
const UTILIZATION: f64 = 0.8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 25 ms of work per request; the loop is to settle within 15 s.
    let server = UtilizationLoop::new(1.0 / 0.025, 1.0)?;
    let gains = server.settling(15.0, 0.8)?;
    let radius = spectral_radius(&server.poles(gains)?);
    println!(
        "K = {:.1}, Ti = {:.1} s, spectral radius {radius:.2}",
        gains.gain, gains.integral_time_s
    );

    let interval = Duration::from_secs(1);
    let terms = PidGains::pi(gains.gain, Duration::from_secs_f64(gains.integral_time_s));
    let limits = ActuatorConfig::within(1.0, OFFERED);
    let mut gate = Pid::new(PidConfig::new(terms, interval, limits))?;

    println!("second  work/request  admitted/s  utilization");
    let (mut admitted, mut backlog_s) = (gate.output(), 0.0);
    for second in 0..60 {
        let work_s = if second < 30 { 0.025 } else { 0.050 };
        backlog_s += admitted * work_s;
        let busy = f64::min(backlog_s, 1.0);
        backlog_s -= busy;
        if second % 5 == 4 {
            println!(
                "{second:>6}  {:>9.0} ms  {admitted:>10.1}  {busy:>11.2}",
                1e3 * work_s
            );
        }
        admitted = gate.step(UTILIZATION, busy);
    }
    Ok(())
}
