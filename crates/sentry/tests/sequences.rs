//! Sequences of operations against every mode, with invariants that hold after each of them:
//! what is in flight is what was admitted and has not ended, windows and the queue stay within
//! their bounds, everything is finite, and every request is resolved exactly once.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::Timestamp;
use tidegate_sentry::transcript::{ReplayEnd, Sink, Transcribed, verify};
use tidegate_sentry::{
    Arrival, BrownoutReplica, BrownoutStatus, ClassId, Ending, Event, ModeName, PathKey, Permit,
    ReplicaId, Report, Resolution, SentryConfig, Standing, Ticket, Verdict,
};

const REPLICAS: usize = 3;
const QUEUE_MAX: u32 = 20;
const CLASSES: u16 = 5;

#[derive(Debug, Clone)]
struct Arrive {
    class: u16,
    bytes: u32,
    sticky: Option<u16>,
    deadline_ms: Option<u16>,
    path: Option<u64>,
    tenant: Option<u64>,
    session: Option<u64>,
}

fn arrive() -> impl Strategy<Value = Arrive> {
    let rarely = |what: std::ops::Range<u16>| prop::option::weighted(0.1, what);
    let often = |what: std::ops::Range<u64>| prop::option::weighted(0.5, what);
    let request = (0..=CLASSES, 0..5000u32, rarely(0..4), rarely(0..2000));
    let who = (often(0..20), often(0..5), often(0..10));
    (request, who).prop_map(|(request, who)| {
        let (class, bytes, sticky, deadline_ms) = request;
        let (path, tenant, session) = who;
        Arrive {
            class,
            bytes,
            sticky,
            deadline_ms,
            path,
            tenant,
            session,
        }
    })
}

#[derive(Debug, Clone)]
enum Op {
    Arrive(Arrive),
    End {
        which: usize,
        ending: Ending,
    },
    Stream {
        which: usize,
    },
    Reassign {
        which: usize,
    },
    Requeue {
        which: usize,
        bytes: u32,
    },
    Leave {
        which: usize,
    },
    Wait {
        ms: u16,
    },
    Report {
        replica: u16,
        utilization: f64,
        service_s: f64,
        demand: i64,
    },
    Health {
        replica: u16,
        up: bool,
    },
    Load(f64),
    Mode(ModeName),
    Kill(bool),
    DryRun(bool),
    Drain(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let ending = prop_oneof![
        4 => Just(Ending::Served),
        1 => Just(Ending::Dropped),
        1 => Just(Ending::Abandoned),
        1 => Just(Ending::Ignored),
    ];
    let mode = prop_oneof![
        Just(ModeName::Auto),
        Just(ModeName::Static),
        Just(ModeName::Step),
        Just(ModeName::Pi),
        Just(ModeName::Pid),
        Just(ModeName::Lqr),
        Just(ModeName::Ilac),
        Just(ModeName::Sentry),
        Just(ModeName::Off),
    ];
    let number = prop_oneof![
        4 => 0.0..1.5f64,
        1 => any::<f64>(),
    ];
    prop_oneof![
        40 => arrive().prop_map(Op::Arrive),
        30 => (any::<usize>(), ending).prop_map(|(which, ending)| Op::End { which, ending }),
        2 => any::<usize>().prop_map(|which| Op::Stream { which }),
        2 => any::<usize>().prop_map(|which| Op::Reassign { which }),
        4 => (any::<usize>(), 0..5000u32).prop_map(|(which, bytes)| Op::Requeue { which, bytes }),
        4 => any::<usize>().prop_map(|which| Op::Leave { which }),
        15 => (0..600u16).prop_map(|ms| Op::Wait { ms }),
        6 => (0..4u16, number.clone(), number.clone(), prop_oneof![4 => -3..5i64, 1 => any::<i64>()])
            .prop_map(|(replica, utilization, service_s, demand)| Op::Report { replica, utilization, service_s, demand }),
        2 => (0..3u16, any::<bool>()).prop_map(|(replica, up)| Op::Health { replica, up }),
        1 => number.prop_map(Op::Load),
        1 => mode.prop_map(Op::Mode),
        1 => any::<bool>().prop_map(Op::Kill),
        1 => any::<bool>().prop_map(Op::DryRun),
        1 => any::<bool>().prop_map(Op::Drain),
    ]
}

fn config(mode: ModeName) -> SentryConfig {
    let more: String = (2..CLASSES)
        .map(|class| format!("[[classes]]\nname = 'class-{class}'\n"))
        .collect();
    let text = format!(
        "mode = '{}'\ntarget = '500ms'\nstatic = {{ rate = '20/s' }}\nqueue = {{ max_requests = {QUEUE_MAX}, max_bytes = '40kB' }}\n\
         sessions = {{ lifetime = '2s', max = 8 }}\nfairness = {{ shards = 4 }}\n\
         sentry = {{ interval = '100ms', threshold_interval = '300ms', cpu_quiet = '1s' }}\n\
         [[classes]]\nname = 'gold'\nguarantee = '3/s'\n\
         [[classes]]\nname = 'bronze'\nrevenue = 0.5\ntargets = [{{ above = '50/s', target = '1s' }}]\n{more}",
        mode.as_str()
    );
    tidegate_config::parse("sequences.toml", &text).expect("the configuration is valid")
}

#[expect(
    clippy::disallowed_types,
    reason = "a sink may be called by any thread"
)]
type Mutex<T> = std::sync::Mutex<T>;

/// The transcript of a run.
#[derive(Debug, Default)]
struct Blocks(Mutex<Vec<Vec<u8>>>);

impl Sink for Blocks {
    fn put(&self, block: &[u8]) -> bool {
        self.0.lock().expect("no panic").push(block.to_vec());
        true
    }
}

/// The engine with a model of what it must believe.
struct Model {
    sentry: Transcribed<u64>,
    blocks: Arc<Blocks>,
    now: Timestamp,
    next: u64,
    permits: Vec<(u64, Permit, bool)>,
    waiting: HashMap<u64, Ticket>,
    resolved: HashSet<u64>,
}

impl Model {
    fn new(mode: ModeName) -> Self {
        let blocks = Arc::<Blocks>::default();
        let sink = Arc::clone(&blocks) as Arc<dyn Sink>;
        let weights = [NonZeroU32::MIN; REPLICAS];
        let its = Some((sink, "sequences"));
        let sentry = Transcribed::new(&config(mode), &weights, Timestamp::ZERO, 7, its);
        Self {
            sentry: sentry.expect("valid"),
            blocks,
            now: Timestamp::ZERO,
            next: 0,
            permits: Vec::new(),
            waiting: HashMap::new(),
            resolved: HashSet::new(),
        }
    }

    fn resolve(&mut self, woken: Vec<(u64, Resolution)>) {
        for (id, resolution) in woken {
            assert!(self.waiting.remove(&id).is_some(), "{id} was not waiting");
            self.finish(id);
            if let Resolution::Admit(permit) = resolution {
                self.permits.push((id, permit, false));
            }
        }
    }

    fn finish(&mut self, id: u64) {
        assert!(self.resolved.insert(id), "{id} was resolved twice");
    }

    fn apply(&mut self, op: &Op) {
        let mut woken = Vec::new();
        let now = self.now;
        match *op {
            Op::Arrive(ref request) => self.arrive(request),
            Op::End { which, ending } if !self.permits.is_empty() => {
                let (_, permit, _) = self.permits.swap_remove(which % self.permits.len());
                woken.extend(self.sentry.on_end(now, permit, ending));
            }
            Op::Stream { which } if !self.permits.is_empty() => {
                let index = which % self.permits.len();
                let (_, permit, streaming) = &mut self.permits[index];
                woken.extend(self.sentry.on_stream(now, permit));
                *streaming = true;
            }
            Op::Reassign { which } if !self.permits.is_empty() => {
                let index = which % self.permits.len();
                if !self.permits[index].2 {
                    let (id, permit, streaming) = self.permits.swap_remove(index);
                    let permit = self
                        .sentry
                        .reassign(now, permit)
                        .unwrap_or_else(|same| same);
                    self.permits.push((id, permit, streaming));
                }
            }
            Op::Requeue { which, bytes } if !self.permits.is_empty() => {
                let index = which % self.permits.len();
                let (id, permit, streaming) = self.permits.swap_remove(index);
                let again = self.next;
                match self.sentry.requeue(now, permit, bytes, None, || again) {
                    // From here on it is another waiter, which has to be resolved in its turn.
                    Ok((ticket, resolutions)) => {
                        self.next += 1;
                        self.waiting.insert(again, ticket);
                        woken.extend(resolutions);
                    }
                    Err(permit) => self.permits.push((id, permit, streaming)),
                }
            }
            Op::Leave { which } if !self.waiting.is_empty() => {
                let mut ids: Vec<u64> = self.waiting.keys().copied().collect();
                ids.sort_unstable();
                let id = ids[which % ids.len()];
                let ticket = self.waiting.remove(&id).expect("it is waiting");
                assert!(self.sentry.on_abandon(now, ticket), "{id} was waiting");
                assert!(!self.sentry.on_abandon(now, ticket), "{id} left twice");
                self.finish(id);
            }
            Op::Wait { ms } => {
                self.now += Duration::from_millis(u64::from(ms));
                let now = self.now;
                woken.extend(self.sentry.handle_timeout(now, &mut |_: &Event| {}));
                assert!(self.sentry.poll_timeout() > now, "a tick is behind us");
            }
            Op::Report {
                replica,
                utilization,
                service_s,
                demand,
            } => {
                let report = Report {
                    utilization: Some(utilization),
                    service_seconds: Some(service_s),
                    demand: Some(demand),
                    dimmer: Some(utilization),
                    cpu_seconds: Some(service_s),
                    queue_seconds: Some(utilization),
                    ..Report::default()
                };
                self.sentry.on_report(now, ReplicaId(replica), &report);
            }
            Op::Health { replica, up } => {
                woken.extend(self.sentry.set_health(now, ReplicaId(replica), up));
            }
            Op::Load(share) => self.sentry.on_load(now, share),
            Op::Mode(mode) => {
                let (_, resolutions) = self
                    .sentry
                    .reconfigure(now, &config(mode), &[])
                    .expect("a valid configuration is taken");
                woken.extend(resolutions);
            }
            Op::Kill(on) => woken.extend(self.sentry.set_kill_switch(now, on)),
            Op::DryRun(on) => woken.extend(self.sentry.set_dry_run(now, on)),
            Op::Drain(on) => self.sentry.set_draining(now, on),
            _ => {}
        }
        self.resolve(woken);
        self.invariants();
    }

    fn arrive(&mut self, request: &Arrive) {
        let id = self.next;
        self.next += 1;
        let in_ms = |ms: u16| self.now + Duration::from_millis(u64::from(ms));
        let arrival = Arrival {
            cost: None,
            class: ClassId(request.class),
            bytes: request.bytes,
            sticky: request.sticky.map(ReplicaId),
            deadline: request.deadline_ms.map(in_ms),
            path: request.path.map(|path| PathKey(path << 32)),
            tenant: request.tenant,
            session: request.session,
            session_entry: request.bytes.is_multiple_of(2),
        };
        match self.sentry.on_arrival(self.now, &arrival, || id) {
            Verdict::Admit(permit) => {
                self.finish(id);
                self.permits.push((id, permit, false));
            }
            Verdict::Wait(ticket) => {
                self.waiting.insert(id, ticket);
            }
            Verdict::Shed(refusal) => {
                assert!(refusal.retry_after > Duration::ZERO);
                assert!(
                    refusal.measured.is_finite() && refusal.limit.is_finite(),
                    "{refusal:?}"
                );
                // What was compared, in one unit: the measured value is beyond the limit.
                if refusal.reason == tidegate_sentry::ShedReason::Predicted {
                    assert!(refusal.measured >= refusal.limit, "{refusal:?}");
                }
                self.finish(id);
            }
        }
    }

    fn invariants(&self) {
        let status = self.sentry.status(self.now);
        let streams: u32 = status.replicas.iter().map(|replica| replica.streams).sum();
        let held = self
            .permits
            .iter()
            .filter(|(.., streaming)| *streaming)
            .count();
        assert_eq!(streams as usize, held, "streams are conserved");
        for (index, replica) in status.replicas.iter().enumerate() {
            let here = self.permits.iter().filter(|(_, permit, streaming)| {
                !streaming && usize::from(permit.replica().0) == index
            });
            assert!(
                replica.in_flight as usize >= here.count(),
                "in flight is conserved"
            );
            let silent = |brownout: &BrownoutStatus| {
                brownout.replicas.iter().any(|controlled| {
                    controlled.id == replica.id && controlled.standing == Standing::Silent
                })
            };
            let is_silent = status.brownout.as_ref().is_some_and(silent);
            assert!(
                is_silent || replica.window.is_none_or(|window| window >= 1),
                "a window has a slot"
            );
        }
        assert_eq!(
            status.queue.requests as usize,
            self.waiting.len(),
            "the queue is conserved"
        );
        let queued: u32 = status.classes.iter().map(|class| class.queued).sum();
        assert!(queued <= QUEUE_MAX && queued <= status.queue.requests);
        assert!(status.queue.bytes <= 40_000);
        assert!(
            status
                .drain_rate
                .is_none_or(|rate| rate.is_finite() && rate >= 0.0)
        );
        if let Some(brownout) = &status.brownout {
            let share_ok = |share: f64| (0.0..=1.0).contains(&share);
            assert!(brownout.threshold_seconds.is_finite() && brownout.threshold_seconds >= 0.0);
            assert!(brownout.full_share.is_none_or(share_ok));
            let finite = |replica: &BrownoutReplica| {
                replica.gain_seconds.is_finite() && replica.concurrency.is_finite()
            };
            assert!(brownout.replicas.iter().all(finite));
        }
        for class in &status.classes {
            let lost = class.revenue_lost.iter().map(|(_, lost)| *lost);
            let money = lost.chain([class.revenue_earned]);
            assert!(money.into_iter().all(|sum| sum.is_finite() && sum >= 0.0));
            assert!((0.0..=1.0).contains(&class.delay_seconds));
            assert!((0.3..=1.0).contains(&class.room_share));
            assert!(class.degraded <= class.served, "degraded ones were served");
        }
        let controller_ok = |output: f64| output.is_finite();
        assert!(
            status
                .controller
                .is_none_or(|step| controller_ok(step.output))
        );
    }

    /// After everything has ended the engine holds nothing.
    fn wind_down(&mut self) {
        self.apply(&Op::Drain(true));
        while !self.permits.is_empty() || !self.waiting.is_empty() {
            let before = (self.permits.len(), self.waiting.len());
            if self.permits.is_empty() {
                self.apply(&Op::Leave { which: 0 });
            } else {
                self.apply(&Op::End {
                    which: 0,
                    ending: Ending::Served,
                });
            }
            assert_ne!(
                before,
                (self.permits.len(), self.waiting.len()),
                "no progress"
            );
        }
        // What a replica may still be doing for clients that left is let go in time.
        self.apply(&Op::Wait { ms: 60_000 });
        self.apply(&Op::Wait { ms: 60_000 });
        let status = self.sentry.status(self.now);
        assert_eq!(status.queue.bytes, 0);
        assert!(
            status
                .replicas
                .iter()
                .all(|replica| replica.streams == 0 && replica.in_flight == 0)
        );
        assert_eq!(
            self.resolved.len() as u64,
            self.next,
            "every request is resolved once"
        );
    }
}

fn run(mode: ModeName, ops: &[Op]) {
    let mut model = Model::new(mode);
    ops.iter().for_each(|op| model.apply(op));
    model.wind_down();
    model.sentry.flush();
    let blocks = model.blocks.0.lock().expect("no panic");
    let replayed = verify(blocks.iter().map(Vec::as_slice));
    assert_eq!(replayed[0].end, ReplayEnd::Same);
    assert!(replayed[0].decisions >= model.next, "{replayed:?}");
}

macro_rules! sequences {
    ($($name:ident: $mode:expr;)*) => {$(
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(48))]
            #[test]
            fn $name(ops in prop::collection::vec(op(), 1..300)) {
                run($mode, &ops);
            }
        }
    )*};
}

sequences! {
    auto: ModeName::Auto;
    fixed: ModeName::Static;
    step: ModeName::Step;
    pi: ModeName::Pi;
    pid: ModeName::Pid;
    lqr: ModeName::Lqr;
    ilac: ModeName::Ilac;
    sentry: ModeName::Sentry;
    off: ModeName::Off;
}

/// The transcript of a run with some arrivals.
fn transcript(ops: &[Op]) -> Vec<Vec<u8>> {
    let mut model = Model::new(ModeName::Auto);
    ops.iter().for_each(|op| model.apply(op));
    model.sentry.flush();
    let blocks = model.blocks.0.lock().expect("no panic");
    blocks.clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn replay_survives_whatever_stands_in_a_transcript(
        ops in prop::collection::vec(op(), 1..60),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut blocks = transcript(&ops);
        for (at, byte) in damage {
            let block = at.index(blocks.len());
            let place = at.index(blocks[block].len());
            blocks[block][place] = byte;
        }
        // What comes out is not said: it ends, and without a panic.
        prop_assert!(verify(blocks.iter().map(Vec::as_slice)).len() <= blocks.len());
    }
}
