use super::*;

fn config(means: Means) -> RegulatorConfig {
    RegulatorConfig {
        means,
        setpoint: Duration::from_secs(1),
        period: Duration::from_secs(1),
        gains: PidGains::pi(0.05, Duration::from_secs(2)),
        bounded: false,
        closing: false,
        dead_time: None,
        scale: Scale {
            clients: 100.0,
            service_s: 0.1,
        },
    }
}

const GROUP: Means = Means::Group {
    slot: Duration::from_secs(4),
};
const INTERVAL: Means = Means::Interval {
    max: Duration::from_secs(300),
};

/// 100 clients that always want to send to a server of 10 requests a second: the delay is
/// what is active times the work.
fn delay_of(strategy: &Strategy) -> f64 {
    match strategy {
        Strategy::Open => 10.0,
        Strategy::Group(groups) => groups.share() * 10.0,
        Strategy::Interval(interval) => (20.0 - interval.as_secs_f64()).max(0.0),
    }
}

#[test]
fn share_is_found_that_holds_the_delay() {
    for dead_time in [None, Some(Duration::ZERO)] {
        let mut regulator = Regulator::new(RegulatorConfig {
            dead_time,
            ..config(GROUP)
        })
        .unwrap();
        let mut strategy = Strategy::Open;
        for _ in 0..200 {
            strategy = regulator.step(delay_of(&strategy));
        }
        assert!((delay_of(&strategy) - 1.0).abs() < 0.05, "{strategy:?}");
    }
}

#[test]
fn delay_above_the_setpoint_lengthens_the_interval() {
    let mut regulator = Regulator::new(RegulatorConfig {
        gains: PidGains::pi(0.3, Duration::from_secs(2)),
        ..config(INTERVAL)
    })
    .unwrap();
    let mut strategy = Strategy::Open;
    for _ in 0..200 {
        strategy = regulator.step(delay_of(&strategy).min(10.0));
    }
    assert!((delay_of(&strategy) - 1.0).abs() < 0.1, "{strategy:?}");
}

#[test]
fn peak_closes_the_channel_within_periods_and_not_further_than_all_clients_need() {
    for (means, first, last) in [(GROUP, 0.3, 0.1), (INTERVAL, 10.0 / 3.0, 10.0)] {
        let closing = RegulatorConfig {
            closing: true,
            ..config(means)
        };
        let mut regulator = Regulator::new(closing).unwrap();
        let mut command = |delay_s| {
            regulator.step(delay_s);
            regulator.command()
        };
        command(0.2);
        assert!((command(5.0) - first).abs() < 1e-9);
        assert!((command(5.0) - last).abs() < 1e-9);
        // Back at the setpoint nothing of it is taken back.
        let after = command(1.0);
        assert!((after / last - 1.0).abs() < 0.3, "{after}");
    }
}

#[test]
fn delay_near_the_setpoint_is_left_to_the_pid_controller() {
    let closing = RegulatorConfig {
        closing: true,
        ..config(GROUP)
    };
    let mut regulator = Regulator::new(closing).unwrap();
    let mut pid = Pid::new(PidConfig::new(
        config(GROUP).gains,
        config(GROUP).period,
        config(GROUP).actuator(),
    ))
    .unwrap();
    for delay_s in [0.3, 1.4, 1.5, f64::NAN, 0.9] {
        regulator.step(delay_s);
        pid.step(1.0, delay_s);
        assert_eq!(regulator.command(), pid.output());
    }
}

#[test]
fn step_bound_follows_the_number_of_clients() {
    let mut regulator = Regulator::new(RegulatorConfig {
        bounded: true,
        ..config(INTERVAL)
    })
    .unwrap();
    let before = regulator.command();
    regulator.step(1000.0);
    assert!((regulator.command() - before - 1.0).abs() < 1e-9);
    regulator.rescale(Scale {
        clients: 1000.0,
        service_s: 0.1,
    });
    let before = regulator.command();
    regulator.step(1000.0);
    assert!((regulator.command() - before - 10.0).abs() < 1e-9);
}

#[test]
fn measured_dead_time_is_predicted_over() {
    // Commands show five periods late.
    let late = |dead_time: Duration| {
        let mut regulator = Regulator::new(RegulatorConfig {
            dead_time: Some(Duration::ZERO),
            gains: PidGains::pi(0.05, Duration::from_secs(1)),
            ..config(GROUP)
        })
        .unwrap();
        regulator.set_dead_time(dead_time);
        let mut pipe = std::collections::VecDeque::from(vec![10.0; 5]);
        let mut delays = Vec::new();
        for _ in 0..300 {
            let delay = pipe.pop_front().unwrap();
            let strategy = regulator.step(delay);
            pipe.push_back(delay_of(&strategy));
            delays.push(delay);
        }
        let far = delays[150..].iter().map(|delay| (delay - 1.0).abs());
        far.fold(0.0, f64::max)
    };
    assert!(
        late(Duration::ZERO) > 0.5,
        "oscillates: {}",
        late(Duration::ZERO)
    );
    assert!(
        late(Duration::from_secs(4)) < 0.2,
        "settles: {}",
        late(Duration::from_secs(4))
    );
}

#[test]
fn no_measurement_changes_nothing() {
    let mut regulator = Regulator::new(config(GROUP)).unwrap();
    regulator.step(3.0);
    let before = regulator.command();
    regulator.step(f64::NAN);
    assert_eq!(regulator.command(), before);
}

#[test]
fn it_recovers_after_overload() {
    let mut regulator = Regulator::new(config(GROUP)).unwrap();
    for _ in 0..500 {
        regulator.step(50.0);
    }
    let strategies: Vec<_> = (0..500).map(|_| regulator.step(0.0)).collect();
    assert_eq!(strategies.last(), Some(&Strategy::Open));
}

#[test]
fn relay_experiment_gives_gains_and_hands_back_without_a_jump() {
    for means in [GROUP, INTERVAL] {
        let mut regulator = Regulator::new(config(means)).unwrap();
        let (bias, swing) = match means {
            Means::Group { .. } => (0.1, 0.05),
            Means::Interval { .. } => (19.0, 5.0),
        };
        let hysteresis = Duration::from_millis(100);
        regulator.tune(bias, swing, hysteresis, 500).unwrap();
        // The answer comes two periods late and smoothed.
        let mut pipe = [1.0; 2];
        let mut delay = 1.0;
        while regulator.is_tuning() {
            let strategy = regulator.step(delay);
            delay = 0.5 * delay + 0.5 * pipe[1];
            pipe = [delay_of(&strategy), pipe[0]];
        }
        let ultimate = regulator.tuned().unwrap().unwrap();
        let gains = ziegler_nichols(&ultimate).unwrap();
        assert!(gains.gain > 0.0);
        regulator.set_gains(gains).unwrap();
        assert_eq!(regulator.gains(), gains);
    }
}
