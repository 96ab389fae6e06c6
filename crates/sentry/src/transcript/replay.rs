//! The calls of a transcript again, on an engine made anew.

use std::collections::BTreeMap;

use tidegate_control::Timestamp;

use super::call::{Answer, Call, Entry, EventHash, Header, Outcome, VERSION};
use crate::api::{Permit, Resolution, Ticket, Verdict};
use crate::config::SentryConfig;
use crate::engine::Sentry;
use crate::event::Event;

/// Two calls are no farther apart than this: engines tick every second.
const JUMP_NS_MAX: u64 = 86_400 * 1_000_000_000;

/// What came of the replay of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The application.
    pub name: String,
    /// Calls that were answered as recorded.
    pub calls: u64,
    /// Decisions about requests among the answers.
    pub decisions: u64,
    /// Ticks of the controllers among the calls.
    pub ticks: u64,
    /// How it ended.
    pub end: ReplayEnd,
}

/// How the replay of an engine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayEnd {
    /// Every call of the transcript was answered as recorded.
    Same,
    /// A call was answered otherwise.
    Differs(Box<Difference>),
    /// The transcript has a hole or is damaged behind this call.
    Broken {
        /// The last call that could be replayed.
        after: u64,
        /// What is the matter.
        why: String,
    },
}

/// The first call that was answered otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Number of the call in the transcript, from 1.
    pub number: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The call.
    pub call: String,
    /// The answer in the transcript.
    pub recorded: String,
    /// The answer of this engine.
    pub replayed: String,
}

/// Replays every engine of these blocks, which stand in the order of writing.
pub fn verify<'a>(blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Replayed> {
    let mut engines: Vec<(u64, Player)> = Vec::new();
    for block in blocks {
        match postcard::take_from_bytes::<Header>(block) {
            Ok((header, entries)) if header.version == VERSION => {
                player_of(&mut engines, &header).play(&header, entries);
            }
            Ok((header, _)) => {
                let why = format!("version {} of the transcript is unknown", header.version);
                player_of(&mut engines, &header).break_off(why);
            }
            Err(_) => engines
                .iter_mut()
                .for_each(|(_, player)| player.break_off("a block cannot be read".to_owned())),
        }
    }
    engines.into_iter().map(|(_, player)| player.done).collect()
}

fn player_of<'a>(engines: &'a mut Vec<(u64, Player)>, header: &Header) -> &'a mut Player {
    let at = engines.iter().position(|(id, _)| *id == header.engine);
    let at = at.unwrap_or_else(|| {
        engines.push((header.engine, Player::new(&header.name)));
        engines.len() - 1
    });
    &mut engines[at].1
}

/// One engine under replay.
struct Player {
    sentry: Option<Sentry<u64>>,
    permits: BTreeMap<u64, Permit>,
    entries: u64,
    done: Replayed,
}

impl Player {
    fn new(name: &str) -> Self {
        Self {
            sentry: None,
            permits: BTreeMap::new(),
            entries: 0,
            done: Replayed {
                name: name.to_owned(),
                calls: 0,
                decisions: 0,
                ticks: 0,
                end: ReplayEnd::Same,
            },
        }
    }

    fn break_off(&mut self, why: String) {
        if self.done.end == ReplayEnd::Same {
            self.done.end = ReplayEnd::Broken {
                after: self.entries,
                why,
            };
        }
    }

    fn play(&mut self, header: &Header, mut entries: &[u8]) {
        if header.first != self.entries + 1 {
            let missing = format!(
                "calls from {} to {} are missing",
                self.entries + 1,
                header.first.saturating_sub(1)
            );
            self.break_off(missing);
        }
        let mut now_ns = header.base_ns;
        while !entries.is_empty() && self.done.end == ReplayEnd::Same {
            let Ok((entry, rest)) = postcard::take_from_bytes::<Entry>(entries) else {
                self.break_off("a call cannot be read".to_owned());
                return;
            };
            entries = rest;
            if entry.after_ns.unsigned_abs() > JUMP_NS_MAX {
                self.break_off("the time of a call cannot be right".to_owned());
                return;
            }
            now_ns = now_ns.saturating_add_signed(entry.after_ns);
            self.step(Timestamp::from_nanos(now_ns), &entry);
        }
    }

    fn step(&mut self, now: Timestamp, entry: &Entry) {
        let number = self.entries + 1;
        let answer = match self.answer(now, number, &entry.call) {
            Ok(answer) => answer,
            Err(why) => return self.break_off(why),
        };
        self.entries = number;
        if encoded(&answer) == encoded(&entry.answer) {
            return self.count(&entry.call, &answer);
        }
        self.done.end = ReplayEnd::Differs(Box::new(Difference {
            number,
            at: now,
            call: format!("{:?}", entry.call),
            recorded: format!("{:?}", entry.answer),
            replayed: format!("{answer:?}"),
        }));
    }

    fn count(&mut self, call: &Call, answer: &Answer) {
        self.done.calls += 1;
        self.done.ticks += u64::from(*call == Call::Tick);
        let own = matches!(
            answer.outcome,
            Outcome::Admit { .. } | Outcome::Wait { .. } | Outcome::Shed(_)
        );
        self.done.decisions += u64::from(own) + answer.woken.len() as u64;
    }

    /// Makes the call; an error is a call that no engine could have been asked.
    fn answer(&mut self, now: Timestamp, number: u64, call: &Call) -> Result<Answer, String> {
        if let Call::Begin {
            config,
            weights,
            seed,
        } = call
        {
            let config = parse(config)?;
            let made = Sentry::weighted(&config, weights, now, *seed);
            self.sentry = Some(made.map_err(|error| error.to_string())?);
            return Ok(Answer::default());
        }
        let sentry = self
            .sentry
            .take()
            .ok_or("the engine's beginning is missing")?;
        let mut woken = Vec::new();
        let outcome = self.outcome(&sentry, now, number, call, &mut woken);
        self.sentry = Some(sentry);
        let woken = woken.into_iter().map(|(number, resolution)| {
            let outcome = Outcome::of_resolution(&resolution);
            if let Resolution::Admit(permit) = resolution {
                self.permits.insert(number, permit);
            }
            (number, outcome)
        });
        let woken = woken.collect();
        Ok(Answer {
            outcome: outcome?,
            woken,
        })
    }

    fn permit(&mut self, number: u64) -> Result<Permit, String> {
        let permit = self.permits.remove(&number);
        permit.ok_or_else(|| format!("request {number} holds no slot"))
    }

    fn outcome(
        &mut self,
        sentry: &Sentry<u64>,
        now: Timestamp,
        number: u64,
        call: &Call,
        woken: &mut Woken,
    ) -> Result<Outcome, String> {
        match call {
            Call::Begin { .. } | Call::Lost => {
                return Err("the calls after it were lost".to_owned());
            }
            Call::Arrival(arrival) => {
                let verdict = sentry.on_arrival(now, arrival, || number);
                let outcome = Outcome::of_verdict(&verdict);
                if let Verdict::Admit(permit) = verdict {
                    self.permits.insert(number, permit);
                }
                return Ok(outcome);
            }
            Call::Abandon { ticket } => {
                return Ok(Outcome::Left(sentry.on_abandon(now, Ticket(*ticket))));
            }
            Call::Reassign { .. } | Call::Requeue { .. } => {
                return self.elsewhere(sentry, now, call, woken);
            }
            Call::Stream { number } => {
                woken.extend(sentry.on_stream(now, self.held(*number)?));
            }
            Call::Pause { number } => woken.extend(sentry.on_pause(now, self.held(*number)?)),
            Call::Resume { number } => sentry.on_resume(now, self.held(*number)?),
            Call::End { number, ending } => {
                woken.extend(sentry.on_end(now, self.permit(*number)?, *ending));
            }
            Call::Tick => return Ok(Outcome::Events(tick(sentry, now, woken))),
            _ => return operate(sentry, now, call, woken),
        }
        Ok(Outcome::Nothing)
    }

    fn held(&mut self, number: u64) -> Result<&mut Permit, String> {
        let permit = self.permits.get_mut(&number);
        permit.ok_or_else(|| format!("request {number} holds no slot"))
    }

    fn elsewhere(
        &mut self,
        sentry: &Sentry<u64>,
        now: Timestamp,
        call: &Call,
        woken: &mut Woken,
    ) -> Result<Outcome, String> {
        let (number, result) = match *call {
            Call::Reassign { number } => {
                let moved = sentry.reassign(now, self.permit(number)?);
                (
                    number,
                    moved.map(|permit| (Outcome::admit(&permit), Some(permit))),
                )
            }
            Call::Requeue {
                number,
                bytes,
                deadline,
            } => {
                let permit = self.permit(number)?;
                let queued = sentry.requeue(now, permit, bytes, deadline, || number);
                let queued = queued.map(|(ticket, resolutions)| {
                    woken.extend(resolutions);
                    (Outcome::Wait { ticket: ticket.0 }, None)
                });
                (number, queued)
            }
            _ => return Ok(Outcome::Nothing),
        };
        let (outcome, permit) = result.unwrap_or_else(|permit| (Outcome::Refused, Some(permit)));
        if let Some(permit) = permit {
            self.permits.insert(number, permit);
        }
        Ok(outcome)
    }
}

/// Requests whose wait a call has ended, by number.
type Woken = Vec<(u64, Resolution)>;

/// What operators, health checks and replicas call.
fn operate(
    sentry: &Sentry<u64>,
    now: Timestamp,
    call: &Call,
    woken: &mut Woken,
) -> Result<Outcome, String> {
    match call {
        Call::Report { replica, report } => sentry.on_report(now, *replica, report),
        Call::Load { cpu_share } => sentry.on_load(now, *cpu_share),
        Call::Health { replica, up } => woken.extend(sentry.set_health(now, *replica, *up)),
        Call::Windows(windows) => sentry.resume(now, windows),
        Call::DryRun(on) => woken.extend(sentry.set_dry_run(now, *on)),
        Call::KillSwitch(on) => woken.extend(sentry.set_kill_switch(now, *on)),
        Call::Draining(on) => sentry.set_draining(now, *on),
        Call::Share(share) => woken.extend(sentry.share(now, share)),
        Call::Rest { until } => sentry.on_rest(*until),
        Call::Reconfigure { config, changes } => {
            let Ok((added, resolutions)) = sentry.reconfigure(now, &parse(config)?, changes) else {
                return Ok(Outcome::Refused);
            };
            woken.extend(resolutions);
            return Ok(Outcome::Added(added));
        }
        _ => {}
    }
    Ok(Outcome::Nothing)
}

fn tick(sentry: &Sentry<u64>, now: Timestamp, woken: &mut Woken) -> u64 {
    use std::fmt::Write as _;
    let mut hash = EventHash::new();
    let mut observer = |event: &Event| {
        // Writing into a hash never fails.
        let _ = write!(hash, "{event:?}");
    };
    woken.extend(sentry.handle_timeout(now, &mut observer));
    hash.value()
}

fn parse(config: &str) -> Result<SentryConfig, String> {
    toml::from_str(config).map_err(|error| format!("its configuration cannot be read: {error}"))
}

/// Answers are compared as they are written, so that NaN equals NaN.
fn encoded(answer: &Answer) -> Vec<u8> {
    postcard::to_stdvec(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::{Sink, Transcribed};
    use super::*;
    use crate::api::{Arrival, Ending};

    #[derive(Debug, Default)]
    struct Memory {
        blocks: super::super::Lock<Vec<Vec<u8>>>,
        /// Takes no block but the first.
        full: bool,
    }

    impl Sink for Memory {
        fn put(&self, block: &[u8]) -> bool {
            let mut blocks = self.blocks.lock();
            // A short block is the mark of the loss, which fits again.
            let fits = !self.full || blocks.is_empty() || block.len() < 100;
            if fits {
                blocks.push(block.to_vec());
            }
            fits
        }
    }

    /// Forty requests, four at a time, and ticks between them.
    fn run(full: bool) -> Vec<Vec<u8>> {
        let sink = Arc::new(Memory {
            full,
            ..Memory::default()
        });
        let config: SentryConfig =
            toml::from_str("target = '300ms'\nlimits = { window_initial = 2 }").expect("valid");
        let its = Arc::clone(&sink) as Arc<dyn Sink>;
        let weights = [NonZeroU32::MIN; 2];
        let sentry =
            Transcribed::<u64>::new(&config, &weights, Timestamp::ZERO, 7, Some((its, "a")));
        let sentry = sentry.expect("valid");
        let mut now = Timestamp::ZERO;
        for _ in 0..10 {
            let verdicts: Vec<_> = (0..4)
                .map(|_| sentry.on_arrival(now, &Arrival::default(), || 0))
                .collect();
            now += Duration::from_millis(120);
            for verdict in verdicts {
                if let Verdict::Admit(permit) = verdict {
                    sentry.on_end(now, permit, Ending::Served).for_each(drop);
                }
            }
            let ticked = sentry.handle_timeout(now, &mut |_: &Event| {});
            ticked.for_each(drop);
        }
        drop(sentry);
        let blocks = sink.blocks.lock();
        blocks.clone()
    }

    fn verified(blocks: &[Vec<u8>]) -> Replayed {
        let mut replayed = verify(blocks.iter().map(Vec::as_slice));
        assert_eq!(replayed.len(), 1);
        replayed.remove(0)
    }

    #[test]
    fn replay_gives_every_decision_again() {
        let replayed = verified(&run(false));
        assert_eq!(replayed.end, ReplayEnd::Same);
        assert!(
            replayed.decisions >= 40 && replayed.ticks >= 5,
            "{replayed:?}"
        );
    }

    #[test]
    fn replay_names_the_first_call_that_is_answered_otherwise() {
        let mut blocks = run(false);
        let (header, mut entries) = postcard::take_from_bytes::<Header>(&blocks[0]).expect("whole");
        let mut changed = postcard::to_stdvec(&header).expect("memory");
        for number in 1.. {
            let Ok((mut entry, rest)) = postcard::take_from_bytes::<Entry>(entries) else {
                break;
            };
            entries = rest;
            if number == 4 {
                entry.answer.outcome = Outcome::Left(true);
            }
            changed = postcard::to_extend(&entry, changed).expect("memory");
        }
        blocks[0] = changed;
        let ReplayEnd::Differs(difference) = verified(&blocks).end else {
            panic!("the change is not found");
        };
        assert_eq!(difference.number, 4);
        assert!(difference.call.starts_with("Arrival"), "{difference:?}");
        assert!(difference.recorded.contains("Left"), "{difference:?}");
    }

    #[test]
    fn replay_ends_where_blocks_are_missing() {
        let mut blocks = run(false);
        blocks.remove(1);
        let end = verified(&blocks).end;
        assert!(
            matches!(&end, ReplayEnd::Broken { why, .. } if why.contains("missing")),
            "{end:?}"
        );
        blocks.remove(0);
        let end = verified(&blocks).end;
        assert!(matches!(end, ReplayEnd::Broken { after: 0, .. }), "{end:?}");
    }

    #[test]
    fn loss_while_recording_stands_in_the_transcript() {
        let end = verified(&run(true)).end;
        assert!(
            matches!(end, ReplayEnd::Broken { after, .. } if after > 4),
            "{end:?}"
        );
    }
}
