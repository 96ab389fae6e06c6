//! Services whose requests take seconds, overloaded from their first request on, with a target.
//!
//! Few requests are done while capacity is being found, so that a comparison of windows takes many
//! service times. Goodput is compared with the ideal of the arena.

use tidegate_sim::arena::{Entry, contenders, ideal};
use tidegate_sim::scenario::Outcome;

const SEEDS: [u64; 4] = [1, 2, 3, 4];

struct Slow {
    replicas: u32,
    workers: u32,
    work_s: f64,
    law: &'static str,
    /// The target in service times, and the load in capacities.
    times: f64,
    load: f64,
    /// Goodput over the ideal, in the mean.
    bar: f64,
}

const SERVICES: [Slow; 4] = [
    Slow {
        replicas: 2,
        workers: 64,
        work_s: 3.5,
        law: "law = 'exponential'",
        times: 8.0,
        load: 8.0,
        bar: 0.84,
    },
    Slow {
        replicas: 1,
        workers: 16,
        work_s: 1.8,
        law: "law = 'exponential'",
        times: 8.0,
        load: 4.0,
        bar: 0.9,
    },
    Slow {
        replicas: 1,
        workers: 4,
        work_s: 10.0,
        law: "law = 'erlang', stages = 4",
        times: 5.0,
        load: 6.0,
        bar: 0.7,
    },
    Slow {
        replicas: 2,
        workers: 16,
        work_s: 30.0,
        law: "law = 'exponential'",
        times: 6.0,
        load: 3.0,
        // 0.9 by the raw ideal, which lost the capacity of each second without an arrival: the same
        // runs have 0.926 by that one and 0.885 by the arena's (decision 0320).
        bar: 0.86,
    },
];

impl Slow {
    fn target_s(&self) -> f64 {
        self.times * self.work_s
    }

    fn entry(&self) -> Entry {
        let (target, capacity) = (
            self.target_s(),
            f64::from(self.replicas * self.workers) / self.work_s,
        );
        let duration = 60_f64.max(40.0 * self.work_s);
        let text = format!(
            "title = 'slow'\nduration = '{duration}s'\nwarm_up = '{}s'\ntarget = '{target}s'\n\
             service = {{ {}, mean = '{}s' }}\n\
             [load]\nrate = '{}/s'\nclient = {{ timeout = '{}s' }}\n\
             [replica]\ncount = {}\ncores = {}\nslots = {}\n",
            0.1 * duration,
            self.law,
            self.work_s,
            self.load * capacity,
            3.0 * target,
            self.replicas,
            self.workers,
            9 * self.workers,
        );
        Entry::parse("slow.toml", &text).expect("the scenario is valid")
    }
}

#[test]
fn services_of_seconds_with_a_target_are_used() {
    let told = contenders()
        .into_iter()
        .find(|contender| contender.name == "auto+target");
    let told = told.expect("it is in the arena");
    let mut missed = Vec::new();
    for service in SERVICES {
        let scenario = service.entry().scenario;
        let run = |seed| -> Outcome {
            let mut protector = told
                .protector(&scenario, seed)
                .expect("the engine takes it");
            scenario
                .run_with(seed, protector.as_mut())
                .expect("the engine takes it")
        };
        let runs: Vec<Outcome> = SEEDS.into_iter().map(run).collect();
        let share =
            |outcome: &Outcome| outcome.totals.counts.in_target as f64 / ideal(&scenario, outcome);
        let mean = runs.iter().map(share).sum::<f64>() / runs.len() as f64;
        let name = format!(
            "{} × {} of {} s",
            service.replicas, service.workers, service.work_s
        );
        if mean < service.bar || mean.is_nan() {
            missed.push(format!("{name}: {mean:.3} < {}", service.bar));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Work that never ends, so that the capacity is never known: what has waited for four targets is
/// refused, and does not hang until it is. In sixteen slots and the queue of four seconds there are
/// some sixty requests.
#[test]
fn no_request_hangs_for_many_targets_while_the_capacity_is_unknown() {
    let text = "duration = '30s'\ntarget = '1s'\nservice = '1000s'\nload.rate = '10/s'\n\
                replica.cores = 4\nprotect = { mode = 'auto', target = '1s' }\n";
    let entry = Entry::parse("hopeless.toml", text).expect("the scenario is valid");
    let outcome = entry.scenario.run(1).expect("the engine takes it");
    assert!(outcome.ledger.shed > 200, "{}", outcome.ledger.shed);
    assert!(outcome.unfinished < 80, "{}", outcome.unfinished);
}
