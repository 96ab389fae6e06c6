//! What must hold for every system, not only for the ones in the papers.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_control::controller::{
    ActuatorConfig, Controller, Pid, PidConfig, PidGains, SmithPredictor,
};
use tidegate_control::design::{
    DesignError, Form, Lqr, PiGains, Plant, Relay, RelayConfig, RootLocus, Rule, SampledPlant,
    UtilizationLoop, relay_experiment,
};
use tidegate_control::identify::{FitOptions, Series, Structure, fit_fopdt, fit_state_space};
use tidegate_control::system::{
    Complex, Fopdt, Margins, Matrix, Polynomial, StateSpace, TransferFunction, spectral_radius,
};

/// Roots within the circle of `radius`: some real, some conjugate pairs.
fn roots(radius: f64) -> impl Strategy<Value = Vec<Complex<f64>>> {
    let real = vec(-radius..radius, 0..3);
    let pairs = vec((0.05..radius, 0.1..3.0_f64), 0..3);
    (real, pairs).prop_map(|(real, pairs)| {
        let real = real.into_iter().map(|re| Complex::new(re, 0.0));
        let pairs = pairs.into_iter().flat_map(|(size, angle)| {
            let up = Complex::from_polar(size, angle);
            [up, up.conj()]
        });
        real.chain(pairs).collect()
    })
}

/// A strictly causal open loop, some of them unstable by themselves.
fn open_loop() -> impl Strategy<Value = TransferFunction> {
    let poles = roots(1.02).prop_filter("a loop has dynamics", |poles| poles.len() > 1);
    (poles, vec(-1.5..1.5_f64, 0..2), 0.001..0.5_f64).prop_map(|(poles, zeros, gain)| {
        let zeros: Vec<_> = zeros.into_iter().map(|re| Complex::new(re, 0.0)).collect();
        let num = Polynomial::from_roots(&zeros).scaled(gain);
        TransferFunction::from_polynomials(num, Polynomial::from_roots(&poles))
            .expect("fewer zeros than poles")
    })
}

/// No more than two of them close together.
fn are_apart(poles: &[Complex<f64>]) -> bool {
    let crowd = |pole: &Complex<f64>| {
        poles
            .iter()
            .filter(|other| (*other - pole).norm() < 0.2)
            .count()
    };
    poles.iter().all(|pole| crowd(pole) <= 2)
}

fn matrix(rows: usize, columns: usize, size: f64) -> impl Strategy<Value = Matrix> {
    vec(-size..size, rows * columns)
        .prop_map(move |values| Matrix::from_row_slice(rows, columns, &values))
}

/// `A`, `B`, a positive semidefinite `Q` and a positive definite `R`, all of small order.
fn regulator() -> impl Strategy<Value = (Matrix, Matrix, Matrix, Matrix)> {
    (1..6_usize, 1..3_usize).prop_flat_map(|(n, m)| {
        let weights = (matrix(n, n, 1.0), matrix(m, m, 1.0), -6.0..6.0_f64);
        (matrix(n, n, 1.0), matrix(n, m, 1.0), weights).prop_map(move |(a, b, (q, r, exponent))| {
            let q = &q * q.transpose();
            let r = (&r * r.transpose() + Matrix::identity(m, m) * 0.01) * 10.0_f64.powf(exponent);
            (a, b, q, r)
        })
    })
}

/// The cost of `u = -K x` from a unit sphere of starts: trace of `Σ (Fᵀ)^k (Q + KᵀRK) F^k`.
fn cost(a: &Matrix, b: &Matrix, q: &Matrix, r: &Matrix, gain: &Matrix) -> f64 {
    let mut f = a - b * gain;
    let mut sum = q + gain.transpose() * r * gain;
    for _ in 0..40 {
        sum = &sum + f.transpose() * &sum * &f;
        f = &f * &f;
    }
    sum.trace()
}

/// Largest error in the last third of a run of `controller` on `plant`, setpoint one.
fn late_error(mut controller: impl Controller, plant: &TransferFunction) -> f64 {
    let mut plant = SampledPlant::new(plant).expect("a plant with a sample of delay");
    let mut measured = 0.0;
    let mut worst: f64 = 0.0;
    for k in 0..300 {
        measured = plant.step(controller.step(1.0, measured));
        if k >= 200 {
            worst = worst.max((measured - 1.0).abs());
        }
    }
    worst
}

#[test]
fn recorded_step_is_enough_for_a_predictor_that_settles_where_plain_pi_does_not() {
    let plant = Fopdt {
        gain: 2.0,
        time_constant_s: 5.0,
        dead_time_s: 12.0,
    };
    let input: Vec<f64> = (0..120).map(|k| f64::from(u8::from(k >= 5))).collect();
    let output = plant.simulate(1.0, &input).unwrap();
    let series = |name, values| Series { name, values };
    let fit = fit_fopdt(series("u", &input), series("y", &output), 1.0).unwrap();
    let second = Duration::from_secs(1);
    let pi = || {
        // Fast enough for the lag alone, far too fast for the dead time.
        let gains = PidGains::pi(0.5, 5 * second);
        Pid::new(PidConfig::new(
            gains,
            second,
            ActuatorConfig::within(-10.0, 10.0),
        ))
        .unwrap()
    };
    let sampled = plant.sampled(1.0).unwrap();
    let predictor = SmithPredictor::new(pi(), fit.smith_config(second)).unwrap();
    assert!(late_error(predictor, &sampled) < 0.01);
    assert!(late_error(pi(), &sampled) > 0.2);
}

proptest! {
    #[test]
    fn polynomial_gives_its_roots_back(roots in roots(2.0)) {
        let found = Polynomial::from_roots(&roots).roots().unwrap();
        prop_assert_eq!(found.len(), roots.len());
        let polynomial = Polynomial::from_roots(&roots);
        for root in found {
            // Clustered roots are uncertain; that the polynomial vanishes there is not.
            let scale: f64 = polynomial.coefficients().iter().enumerate().map(|(i, c)| {
                c.abs() * root.norm().powi((polynomial.degree() - i) as i32)
            }).sum();
            prop_assert!(polynomial.eval(root).norm() <= 1e-12 * scale, "{} of {:?}", root, roots);
        }
    }

    #[test]
    fn eigenvalues_are_the_roots_of_the_characteristic_polynomial(a in matrix(5, 5, 2.0)) {
        let system = StateSpace::new(a, Matrix::zeros(5, 1)).unwrap();
        let by_matrix = system.poles().unwrap();
        let characteristic = system.transfer(0, 0).unwrap().den().clone();
        for pole in by_matrix {
            let scale = (1.0 + pole.norm()).powi(5);
            prop_assert!(characteristic.eval(pole).norm() < 1e-8 * scale * 32.0);
        }
    }

    #[test]
    fn margins_end_exactly_where_stability_does(open in open_loop()) {
        let radius = |factor: f64| {
            spectral_radius(&open.scaled(factor).feedback().unwrap().poles().unwrap())
        };
        prop_assume!(radius(1.0) < 0.999);
        let margins = Margins::of(&open).unwrap();
        if let Some(up) = margins.gain_up {
            prop_assert!((radius(up.factor) - 1.0).abs() < 1e-4, "{up:?} {}", radius(up.factor));
        }
        let end = margins.gain_up.map_or(1e6, |up| up.factor.min(1e6));
        for i in 1..20 {
            let factor = end.powf(f64::from(i) / 20.0);
            prop_assert!(radius(factor) < 1.0 + 1e-4, "{factor} of {end}: {}", radius(factor));
        }
        let start = margins.gain_down.map_or(1e-6, |down| down.factor);
        for i in 1..20 {
            let factor = start.powf(f64::from(i) / 20.0);
            prop_assert!(radius(factor) < 1.0 + 1e-4, "{factor} of {start}: {}", radius(factor));
        }
    }

    #[test]
    fn dead_time_within_the_delay_margin_leaves_a_loop_stable(
        pole in 0.0..0.95_f64, gain in 0.05..0.5_f64,
    ) {
        let open = TransferFunction::new(&[gain], &[1.0, -1.0 - pole, pole]).unwrap();
        prop_assume!(open.feedback().unwrap().is_stable().unwrap());
        let margin = Margins::of(&open).unwrap().delay_samples.unwrap();
        let closed = |samples: usize| open.delayed(samples).feedback().unwrap();
        let stable = |samples: usize| closed(samples).is_stable().unwrap();
        prop_assume!(margin < 30.0 && (margin - margin.round()).abs() > 1e-6);
        prop_assert!(stable(margin.floor() as usize));
        prop_assert!(!stable(margin.floor() as usize + 1));
    }

    #[test]
    fn placed_poles_are_the_poles(
        sigma in 0.01..1e4_f64,
        interval_s in 1e-3..100.0_f64,
        size in 0.0..0.99_f64,
        angle in 0.01..3.1_f64,
    ) {
        let server = UtilizationLoop::new(sigma, interval_s).unwrap();
        let pole = Complex::from_polar(size, angle);
        let gains = server.place_poles(pole, pole.conj()).unwrap();
        let poles = server.poles(gains).unwrap();
        let nearest = poles.iter().map(|found| (found - pole).norm()).fold(f64::MAX, f64::min);
        prop_assert!(nearest < 1e-6, "{poles:?}");
        prop_assert!(server.closed_loop(gains).unwrap().is_stable().unwrap());
    }

    #[test]
    fn only_the_ratios_matter(k in 0.01..3.0_f64, ti in 0.1..10.0_f64, unit in 1e-3..1e3_f64) {
        let radius = |sigma: f64, h: f64, gain: f64, integral_time_s: f64| {
            let server = UtilizationLoop::new(sigma, h).unwrap();
            spectral_radius(&server.poles(PiGains { gain, integral_time_s }).unwrap())
        };
        let plain = radius(1.0, 1.0, k, ti);
        prop_assert!((radius(unit, 1.0, k * unit, ti) / plain - 1.0).abs() < 1e-9);
        prop_assert!((radius(1.0, unit, k, ti * unit) / plain - 1.0).abs() < 1e-9);
    }

    #[test]
    fn locus_starts_at_the_poles_and_never_jumps(open in open_loop()) {
        // From a cluster of n poles they part with the n-th root of the gain, which no spacing
        // follows.
        prop_assume!(are_apart(&open.poles().unwrap()));
        let locus = RootLocus::trace(&open, 0.0..=20.0).unwrap();
        let start: Vec<_> = locus.branches.iter().map(|branch| branch[0]).collect();
        prop_assert_eq!(start, open.poles().unwrap());
        for branch in &locus.branches {
            prop_assert_eq!(branch.len(), locus.gains.len());
            for pair in branch.windows(2) {
                prop_assert!((pair[1] - pair[0]).norm() < 0.2 * pair[0].norm().max(1.0));
            }
        }
    }

    #[test]
    fn regulator_is_stable_solves_its_equation_and_cannot_be_beaten(
        (a, b, q, r) in regulator(), nudge in matrix(2, 5, 1.0),
    ) {
        let system = StateSpace::new(a.clone(), b.clone()).unwrap();
        let lqr = match Lqr::solve(&system, &q, &r) {
            Ok(lqr) => lqr,
            // Random systems are sometimes as good as unreachable.
            Err(DesignError::NotStabilisable { .. } | DesignError::NotDetectable { .. }) => {
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        prop_assert!(spectral_radius(&lqr.poles) < 1.0);
        // Modes that are hardly reached cost digits: see the module on the Riccati equation.
        let digits = 1e-13 * (1.0 + lqr.gain.norm()).powi(2);
        prop_assert!(lqr.residual < digits, "{} {}", lqr.residual, lqr.gain);
        let optimal = cost(&a, &b, &q, &r, &lqr.gain);
        let off = (optimal / lqr.cost.trace() - 1.0).abs();
        prop_assert!(off < 1e-5 + 10.0 * digits, "{optimal} {}", lqr.cost);
        let nudge = nudge.view((0, 0), lqr.gain.shape()).into_owned() * (0.01 * lqr.gain.norm());
        let other = &lqr.gain + nudge;
        if spectral_radius(&system.with_feedback(&other).unwrap().poles().unwrap()) < 0.999 {
            prop_assert!(cost(&a, &b, &q, &r, &other) >= optimal * (1.0 - 1e-8 - 10.0 * digits));
        }
    }

    #[test]
    fn identification_recovers_the_model_within_its_own_error(
        a in matrix(2, 2, 0.45),
        b in matrix(2, 1, 1.0),
        noise in vec(-1.0..1.0_f64, 600),
        level in 0.0..0.3_f64,
    ) {
        let (mut x, mut y, mut u) = (vec![0.0], vec![0.0], vec![]);
        for k in 0..300_usize {
            let input = (0.05 * k as f64).sin() + 0.5 * (0.37 * k as f64).sin() + noise[599 - k];
            u.push(input);
            let next = |i: usize| a[(i, 0)] * x[k] + a[(i, 1)] * y[k] + b[(i, 0)] * input;
            let (next_x, next_y) = (next(0), next(1));
            x.push(next_x + level * noise[k]);
            y.push(next_y + level * noise[299 - k]);
        }
        u.push(0.0);
        prop_assume!(b.iter().all(|value| value.abs() > 0.05));
        let series = |name, values| Series { name, values };
        let options = FitOptions { structure: Structure::Full, offset: true };
        let states = [series("x", &x), series("y", &y)];
        let fit = match fit_state_space(&states, &[series("u", &u)], options) {
            Ok(fit) => fit,
            Err(error) => return Err(TestCaseError::reject(error.to_string())), // x and y alike
        };
        let within = |found: f64, truth: f64, error: f64| {
            (found - truth).abs() <= 6.0 * error + 1e-6
        };
        for i in 0..2 {
            for j in 0..2 {
                prop_assert!(within(fit.a[(i, j)], a[(i, j)], fit.a_error[(i, j)]), "{fit:?}");
            }
            prop_assert!(within(fit.b[(i, 0)], b[(i, 0)], fit.b_error[(i, 0)]), "{fit:?}");
        }
    }

    #[test]
    fn any_lag_with_dead_time_is_found_from_its_step(
        gain in 0.1..10.0_f64, lag in 2.0..30.0_f64, dead in 0.0..20.0_f64,
    ) {
        let plant = Fopdt { gain, time_constant_s: lag, dead_time_s: dead };
        let input: Vec<f64> = (0..200).map(|k| f64::from(u8::from(k >= 5))).collect();
        let output = plant.simulate(1.0, &input).unwrap();
        let series = |name, values| Series { name, values };
        let found = fit_fopdt(series("u", &input), series("y", &output), 1.0).unwrap().plant;
        prop_assert!((found.gain / gain - 1.0).abs() < 1e-2, "{found:?}");
        prop_assert!((found.time_constant_s / lag - 1.0).abs() < 2e-2, "{found:?}");
        prop_assert!((found.dead_time_s - dead).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn relay_tuning_stabilises_any_lag_with_dead_time(
        gain in prop_oneof![-5.0..-0.2_f64, 0.2..5.0_f64],
        lag in 5.0..30.0_f64,
        dead in 2.0..20.0_f64,
    ) {
        let plant = Fopdt { gain, time_constant_s: lag, dead_time_s: dead }.sampled(1.0).unwrap();
        let config = RelayConfig {
            setpoint: gain,
            bias: 1.0,
            amplitude: 0.5 * gain.signum(),
            hysteresis: 0.0,
            interval_s: 1.0,
            samples_max: 5_000,
        };
        let relay = Relay::new(config).unwrap();
        let ultimate = relay_experiment(relay, SampledPlant::new(&plant).unwrap()).unwrap();
        let gains = ultimate.gains(Rule::TyreusLuyben, Form::Pi).unwrap();
        let share = 1.0 / gains.integral_time_s.unwrap();
        let pi = TransferFunction::new(&[1.0, share - 1.0], &[1.0, -1.0]).unwrap();
        prop_assert!(pi.scaled(gains.gain).series(&plant).feedback().unwrap().is_stable().unwrap());
    }

    #[test]
    fn relay_survives_any_measurements(measured in vec(any::<f64>(), 0..300)) {
        let config = RelayConfig {
            setpoint: 0.0,
            bias: 5.0,
            amplitude: 1.0,
            hysteresis: 0.1,
            interval_s: 1.0,
            samples_max: 200,
        };
        let mut relay = Relay::new(config).unwrap();
        for value in measured {
            prop_assert!((4.0..=6.0).contains(&relay.step(value)));
        }
        if let Some(found) = relay.result() {
            prop_assert!(found.gain.is_finite() && found.period_s > 0.0);
        }
    }
}
