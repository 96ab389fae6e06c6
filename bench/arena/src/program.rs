//! Which bouts are fought, in which order, and which at the same time.

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use tidegate_sim::arena::Entry;
use tidegate_sim::rng::Streams;

use crate::Args;
use crate::bout::Bout;
use crate::contender::{CONTENDERS, Contender, Tool, Tools};
use crate::failure::Failure;
use crate::measure::Measures;
use crate::plant::{COMPUTING, entry};

/// The scenarios that are fought live.
pub(crate) const SCENARIOS: [&str; 17] = [
    "seventy",
    "one-and-a-half-times",
    "three-times",
    "ten-times",
    "flash-crowd",
    "minus-33",
    "minus-50",
    "minus-75",
    "slow-replica",
    "dead-replica",
    "heavy-tail",
    "bimodal-streams",
    "three-classes",
    "retry-storm",
    "drift",
    "square-wave",
    COMPUTING,
];

const ESSENTIAL: [&str; 3] = ["seventy", "three-times", "minus-50"];

/// Processes come and go around a scenario.
const START_AND_END: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) entries: Vec<Entry>,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) seeds: Vec<u64>,
    pub(crate) tools: Tools,
    at_once: f64,
}

/// Contenders that meet a scenario at the same time.
#[derive(Debug)]
struct Meeting {
    seed: u64,
    scenario: usize,
    contenders: Vec<usize>,
}

/// What came out of one bout, and whose it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fought {
    pub(crate) scenario: usize,
    pub(crate) contender: usize,
    pub(crate) measures: Measures,
}

impl Program {
    pub(crate) fn new(args: &Args) -> Result<Self, Failure> {
        let tools = Tools::find(args.envoy.clone())?;
        let repetitions = args
            .repetitions
            .map_or(if args.quick { 1 } else { 3 }, NonZeroU32::get);
        Ok(Self {
            entries: scenarios(args)?,
            contenders: contenders(args, &tools)?,
            seeds: (0..u64::from(repetitions))
                .map(|n| args.seed.wrapping_add(n))
                .collect(),
            tools,
            at_once: args.at_once,
        })
    }

    /// Fights every bout. Repetitions are the outer loop and the order of contenders is drawn anew
    /// in each, so that a disturbance of the machine does not hit one of them alone. What cannot be
    /// fought is said and left out: two hours are not lost for one bout.
    pub(crate) fn run(&self) -> Vec<Fought> {
        let meetings: Vec<Meeting> = self.meetings();
        let mut left: Duration = meetings.iter().map(|meeting| self.length(meeting)).sum();
        let mut fought = Vec::new();
        for meeting in &meetings {
            eprintln!(
                "{} min left; {}",
                left.as_secs().div_ceil(60),
                self.named(meeting)
            );
            for bout in self.meet(meeting) {
                match bout {
                    Ok(bout) => fought.push(bout),
                    Err(failure) => eprintln!("left out: {failure}"),
                }
            }
            left = left.saturating_sub(self.length(meeting));
        }
        fought
    }

    fn meetings(&self) -> Vec<Meeting> {
        let mut meetings = Vec::new();
        for &seed in &self.seeds {
            for scenario in 0..self.entries.len() {
                let groups = self.groups(scenario, seed).into_iter();
                meetings.extend(groups.map(|contenders| Meeting {
                    seed,
                    scenario,
                    contenders,
                }));
            }
        }
        meetings
    }

    /// How long it takes, starting and ending everything included.
    fn length(&self, meeting: &Meeting) -> Duration {
        self.entries[meeting.scenario].scenario.duration.0 + START_AND_END
    }

    fn named(&self, meeting: &Meeting) -> String {
        let names = meeting.contenders.iter();
        let names: Vec<&str> = names.map(|&index| self.contenders[index].name).collect();
        let scenario = &self.entries[meeting.scenario].name;
        format!("seed {}, {scenario}: {}", meeting.seed, names.join(", "))
    }

    /// The contenders of a scenario, in groups that the machine can bear at a time.
    fn groups(&self, scenario: usize, seed: u64) -> Vec<Vec<usize>> {
        let entry = &self.entries[scenario];
        let mut rng = Streams::new(seed).indexed("order", scenario);
        let mut order: Vec<usize> = (0..self.contenders.len()).collect();
        order.shuffle(&mut rng);
        let size = match entry.name.as_str() {
            COMPUTING => 1,
            _ => (self.at_once / entry.scenario.peak_rate()).floor().max(1.0) as usize,
        };
        order.chunks(size).map(<[usize]>::to_vec).collect()
    }

    fn meet(&self, meeting: &Meeting) -> Vec<Result<Fought, Failure>> {
        let entry = &self.entries[meeting.scenario];
        let fight =
            |index: usize| Bout::fight(entry, &self.contenders[index], meeting.seed, &self.tools);
        let fight = &fight;
        thread::scope(|scope| {
            let contenders = meeting.contenders.iter();
            let bouts: Vec<_> = contenders
                .map(|&index| (index, scope.spawn(move || fight(index))))
                .collect();
            bouts
                .into_iter()
                .map(|(contender, bout)| {
                    let bout = bout
                        .join()
                        .unwrap_or_else(|_| Err(Failure::said("a bout panicked")))?;
                    Ok(Fought {
                        scenario: meeting.scenario,
                        contender,
                        measures: Measures::of(entry, &bout),
                    })
                })
                .collect()
        })
    }
}

fn scenarios(args: &Args) -> Result<Vec<Entry>, Failure> {
    let names: Vec<&str> = match (args.only.as_slice(), args.quick) {
        ([], true) => ESSENTIAL.to_vec(),
        ([], false) => SCENARIOS.to_vec(),
        (only, _) => only.iter().map(String::as_str).collect(),
    };
    names.into_iter().map(entry).collect()
}

fn contenders(args: &Args, tools: &Tools) -> Result<Vec<Contender>, Failure> {
    for name in &args.contender {
        if !CONTENDERS.iter().any(|contender| contender.name == name) {
            let known: Vec<&str> = CONTENDERS.iter().map(|contender| contender.name).collect();
            return Err(Failure::said(format!(
                "no contender `{name}`; there are: {}",
                known.join(", ")
            )));
        }
    }
    let asked = |contender: &&Contender| match args.contender.as_slice() {
        [] => contender.essential || !args.quick,
        names => names.iter().any(|name| name == contender.name),
    };
    let possible = |contender: &&Contender| !args.simulated || contender.tool == Tool::Tidegate;
    let (here, missing): (Vec<Contender>, Vec<Contender>) = CONTENDERS
        .iter()
        .filter(asked)
        .filter(possible)
        .partition(|contender| tools.has(contender.tool));
    for contender in missing {
        eprintln!(
            "{} is left out: {} is not installed",
            contender.name,
            contender.tool.name()
        );
    }
    if here.is_empty() {
        return Err(Failure::said("no contender is left"));
    }
    Ok(here)
}
