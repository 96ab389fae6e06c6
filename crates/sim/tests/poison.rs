//! A slow page on and off, in front of a service that has room for all: honest clients are served.
//!
//! Every refusal and every delay of an honest request is the proxy's own doing. What is answered in
//! time in a phase of attack is compared with the same requests without protection.

use tidegate_sim::scenario::{Outcome, Scenario};

const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// Before the first attack, in seconds, and how many attacks there are.
const FIRST_S: f64 = 6.0;
const ATTACKS: u32 = 4;

/// Share of the honest requests that are answered in time in every phase of attack.
const BAR: f64 = 0.95;

#[derive(Debug, Clone, Copy)]
struct Attack {
    /// Of all requests.
    share: f64,
    page_s: f64,
    on_s: f64,
    off_s: f64,
    law: &'static str,
    replica: &'static str,
    honest_per_second: f64,
}

/// One of twenty asks for a page of 3 s, on and off every 6 s.
const ATTACK: Attack = Attack {
    share: 0.05,
    page_s: 3.0,
    on_s: 6.0,
    off_s: 6.0,
    law: "law = 'deterministic'",
    replica: "cores = 1000",
    honest_per_second: 100.0,
};

impl Attack {
    fn scenario(&self, protect: &str) -> Scenario {
        let slow = self.honest_per_second * self.share / (1.0 - self.share);
        let end = FIRST_S + f64::from(ATTACKS) * (self.on_s + self.off_s);
        let switch = |at: f64, rate: f64| format!(", {{ at = '{at}s', value = '{rate}/s' }}");
        let switches: String = (0..ATTACKS)
            .map(|index| FIRST_S + f64::from(index) * (self.on_s + self.off_s))
            .map(|at| switch(at, slow) + &switch(at + self.on_s, 0.0))
            .collect();
        let text = format!(
            "duration = '{end}s'\ninterval = '500ms'\ntarget = '1s'\n\
             service = {{ {}, mean = '20ms' }}\n\
             [replica]\n{}\n[protect]\n{protect}\n\
             [[load]]\nrate = '{}/s'\nclient = {{ path = '/' }}\n\
             [[load]]\nrate = [{{ at = '0s', value = '0/s' }}{switches}]\n\
             client = {{ path = '/slow', service = {{ law = 'deterministic', mean = '{}s' }} }}\n",
            self.law, self.replica, self.honest_per_second, self.page_s,
        );
        tidegate_config::parse("poison.toml", &text).expect("the scenario is valid")
    }

    /// The least share of any phase of attack, in the mean over the seeds.
    fn worst_phase(&self, protect: &str) -> f64 {
        let run = |scenario: &Scenario, seed| scenario.run(seed).expect("the engine takes it");
        let protected = self.scenario(&format!("mode = 'auto'\n{protect}"));
        let open = self.scenario("mode = 'off'");
        let phases = |outcome: &Outcome| -> Vec<f64> {
            let in_phase =
                |from: f64, row_at: f64| row_at > from + 1e-3 && row_at <= from + self.on_s + 1e-3;
            let answered = |from: f64| -> u64 {
                let rows = outcome.rows.iter().filter(|row| in_phase(from, row.at));
                rows.map(|row| row.counts.in_target).sum()
            };
            (0..ATTACKS)
                .map(|index| FIRST_S + f64::from(index) * (self.on_s + self.off_s))
                .map(|from| answered(from) as f64)
                .collect()
        };
        let worst = |seed| -> f64 {
            let (ours, possible) = (phases(&run(&protected, seed)), phases(&run(&open, seed)));
            let shares = ours.iter().zip(&possible).map(|(a, b)| a / b.max(1.0));
            shares.reduce(f64::min).expect("there are phases")
        };
        SEEDS.into_iter().map(worst).sum::<f64>() / SEEDS.len() as f64
    }
}

fn variants() -> Vec<Attack> {
    let mut all = vec![ATTACK];
    all.extend([0.01, 0.02, 0.1, 0.2].map(|share| Attack { share, ..ATTACK }));
    all.extend([0.5, 1.0, 2.0, 5.0, 10.0].map(|page_s| Attack { page_s, ..ATTACK }));
    // 6 s against times of forgetting of one, three and twenty seconds.
    all.extend(
        [
            (2.0, 2.0),
            (1.0, 10.0),
            (3.0, 3.0),
            (20.0, 20.0),
            (60.0, 60.0),
            (30.0, 5.0),
            (6.0, 40.0),
        ]
        .map(|(on_s, off_s)| Attack {
            on_s,
            off_s,
            ..ATTACK
        }),
    );
    all.extend(
        [
            "count = 2\ncores = 1000",
            "count = 8\ncores = 1000",
            "cores = 64",
            "count = 3\ncores = 16",
        ]
        .map(|replica| Attack { replica, ..ATTACK }),
    );
    all.extend([20.0, 1000.0].map(|honest_per_second| Attack {
        honest_per_second,
        ..ATTACK
    }));
    for law in ["law = 'exponential'", "law = 'log-normal', cv2 = 2"] {
        all.extend([0.05, 0.2].map(|share| Attack {
            share,
            law,
            ..ATTACK
        }));
    }
    all
}

#[test]
fn slow_page_for_some_leaves_the_others_served_with_and_without_a_target() {
    let mut missed = Vec::new();
    for attack in variants() {
        for protect in ["target = '1s'", ""] {
            let share = attack.worst_phase(protect);
            if share < BAR || share.is_nan() {
                missed.push(format!("{share:.3} of {attack:?}, {protect}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
