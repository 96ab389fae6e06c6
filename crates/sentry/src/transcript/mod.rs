//! Every call of an engine and every answer, written down in the order in which they happened.
//!
//! An engine is a function of its calls: time and randomness come in as arguments. A transcript
//! therefore gives the same decisions again, exactly, and an engine that decides otherwise differs
//! in its code. [`verify`] finds the first call that is answered otherwise.
//!
//! Threads call an engine at once, and the order in which their atomics meet is nowhere to be
//! seen. So an engine with a transcript is called by one thread at a time: the lock of the
//! transcript is held during the call. An engine without one ([`Transcribed::new`] with no
//! [`Sink`]) takes no lock and is what [`Sentry`] is.
//!
//! What breaks it: an engine that was not written down from its beginning. Its windows and
//! estimates are not in the transcript.
//!
//! Decision: docs/decisions/0145-transcripts-of-engine-calls.md.

mod call;
mod replay;

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use tidegate_control::Timestamp;

use crate::api::{
    Arrival, Ending, Permit, ReplicaChange, ReplicaId, Report, Resolution, Ticket, Verdict,
};
use crate::config::SentryConfig;
use crate::engine::{Resolutions, Sentry};
use crate::error::SentryError;
use crate::event::{Event, Observer};
use crate::fleet::{FleetReport, FleetShare};
use crate::shadow::{Comparison, ShadowStatus};
use crate::status::Status;
use call::{Answer, Call, Entry, EventHash, Header, Outcome, VERSION};
pub use replay::{Difference, ReplayEnd, Replayed, verify};

#[expect(
    clippy::disallowed_types,
    reason = "the order of calls is what a transcript is about; without one nothing is locked"
)]
type Lock<T> = parking_lot::Mutex<T>;

/// A block of this size is passed on.
const BLOCK_BYTES: usize = 16 << 10;

/// Receives the blocks of transcripts.
pub trait Sink: std::fmt::Debug + Send + Sync {
    /// Takes a block; false when it is lost. Never waits.
    fn put(&self, block: &[u8]) -> bool;
}

/// A waiter of the driver with the number of its request.
type Numbered<T> = (u64, T);

/// An engine, with a transcript of its calls if one is wanted. Its calls are those of
/// [`Sentry`].
#[derive(Debug)]
pub struct Transcribed<T> {
    sentry: Sentry<Numbered<T>>,
    transcript: Option<Lock<Transcript>>,
}

#[derive(Debug)]
struct Transcript {
    sink: Arc<dyn Sink>,
    engine: u64,
    name: Arc<str>,
    /// Number of the last entry.
    entries: u64,
    last_ns: u64,
    /// The block that is being filled, without its header.
    block: Vec<u8>,
    header: Header,
    state: Writing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    On,
    /// A block was lost; that is not in the transcript yet.
    Lost,
    Over,
}

impl Transcript {
    fn new(sink: Arc<dyn Sink>, name: &str, engine: u64, now: Timestamp) -> Self {
        let header = Header {
            version: VERSION,
            engine,
            name: name.to_owned(),
            first: 1,
            base_ns: now.as_nanos(),
        };
        Self {
            sink,
            engine,
            name: name.into(),
            entries: 0,
            last_ns: now.as_nanos(),
            block: Vec::with_capacity(BLOCK_BYTES + 1024),
            header,
            state: Writing::On,
        }
    }

    fn add(&mut self, now: Timestamp, call: Call, answer: Answer) {
        self.entries += 1;
        if self.state != Writing::On {
            return;
        }
        let after_ns = now.as_nanos().wrapping_sub(self.last_ns) as i64;
        self.last_ns = now.as_nanos();
        self.put_entry(&Entry {
            after_ns,
            call,
            answer,
        });
        if self.block.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    fn put_entry(&mut self, entry: &Entry) {
        let block = std::mem::take(&mut self.block);
        // Writing into memory fails for no value of these types.
        self.block = postcard::to_extend(entry, block).unwrap_or_default();
    }

    /// Passes the block on. After a loss one last entry says so: what follows could not be
    /// replayed.
    fn flush(&mut self) {
        if self.state == Writing::Lost {
            self.block.clear();
            self.put_entry(&Entry {
                after_ns: 0,
                call: Call::Lost,
                answer: Answer::default(),
            });
        }
        if self.state == Writing::Over || self.block.is_empty() {
            return;
        }
        let mut block = postcard::to_stdvec(&self.header).unwrap_or_default();
        block.append(&mut self.block);
        self.state = match (self.sink.put(&block), self.state) {
            (true, Writing::On) => Writing::On,
            (true, _) => Writing::Over,
            (false, _) => Writing::Lost,
        };
        self.header = Header {
            version: VERSION,
            engine: self.engine,
            name: self.name.to_string(),
            first: match self.state {
                Writing::On => self.entries + 1,
                Writing::Lost | Writing::Over => self.header.first,
            },
            base_ns: self.last_ns,
        };
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The configuration as a transcript has it.
fn text_of(config: &SentryConfig) -> String {
    toml::to_string(config).unwrap_or_default()
}

/// The number of a request whose arrival is the next entry; 0 without a transcript.
fn next_number(transcript: Option<&Transcript>) -> u64 {
    transcript.map_or(0, |transcript| transcript.entries + 1)
}

/// As [`Resolutions`], of an engine whose calls may be written down. Those of a call that was
/// written down have been decided with it: a driver takes them all.
#[must_use = "requests that wait get their slots only when this is taken to its end"]
#[derive(Debug)]
pub struct TranscribedResolutions<'a, T> {
    decided: std::vec::IntoIter<(T, Resolution)>,
    /// Those that are decided as they are taken.
    open: Option<Resolutions<'a, Numbered<T>>>,
}

impl<'a, T> TranscribedResolutions<'a, T> {
    fn open(resolutions: Resolutions<'a, Numbered<T>>) -> Self {
        Self {
            decided: Vec::new().into_iter(),
            open: Some(resolutions),
        }
    }

    /// After others.
    fn after(self, mut decided: Vec<(T, Resolution)>) -> Self {
        decided.extend(self.decided);
        Self {
            decided: decided.into_iter(),
            ..self
        }
    }
}

impl<T> Iterator for TranscribedResolutions<'_, T> {
    type Item = (T, Resolution);

    fn next(&mut self) -> Option<Self::Item> {
        let open = || self.open.as_mut()?.next().map(numbered);
        self.decided.next().or_else(open)
    }
}

/// Gives a permit the number of its request.
fn numbered<T>(((number, waiter), mut resolution): (Numbered<T>, Resolution)) -> (T, Resolution) {
    if let Resolution::Admit(permit) = &mut resolution {
        permit.number = number;
    }
    (waiter, resolution)
}

impl<T> Transcribed<T> {
    /// As [`Sentry::weighted`]; with a sink every call is written down, under the name of the
    /// application.
    ///
    /// # Errors
    /// When the configuration contradicts itself.
    pub fn new(
        config: &SentryConfig,
        weights: &[NonZeroU32],
        now: Timestamp,
        seed: u64,
        sink: Option<(Arc<dyn Sink>, &str)>,
    ) -> Result<Self, SentryError> {
        let sentry = Sentry::weighted(config, weights, now, seed)?;
        let transcript = sink.map(|(sink, name)| {
            let mut transcript = Transcript::new(sink, name, seed, now);
            let begin = Call::Begin {
                config: text_of(config),
                weights: weights.to_vec(),
                seed,
            };
            transcript.add(now, begin, Answer::default());
            Lock::new(transcript)
        });
        Ok(Self { sentry, transcript })
    }

    /// Passes on what is written down so far.
    pub fn flush(&self) {
        if let Some(transcript) = &self.transcript {
            transcript.lock().flush();
        }
    }

    /// Looks at the engine while nothing changes it.
    fn look<R>(&self, look: impl FnOnce(&Sentry<Numbered<T>>) -> R) -> R {
        let _alone = self.transcript.as_ref().map(Lock::lock);
        look(&self.sentry)
    }

    /// A call that resolves nothing.
    fn plain<R>(
        &self,
        now: Timestamp,
        call: impl FnOnce() -> Call,
        run: impl FnOnce(&Sentry<Numbered<T>>) -> R,
        outcome: impl FnOnce(&R) -> Outcome,
    ) -> R {
        let Some(transcript) = &self.transcript else {
            return run(&self.sentry);
        };
        let mut transcript = transcript.lock();
        let result = run(&self.sentry);
        let answer = Answer {
            outcome: outcome(&result),
            woken: Vec::new(),
        };
        transcript.add(now, call(), answer);
        result
    }

    /// A call that may resolve requests that wait. Where it is written down, so are they: the
    /// transcript is locked until all are decided.
    fn resolving<'a, R>(
        &'a self,
        now: Timestamp,
        call: impl FnOnce() -> Call,
        run: impl FnOnce(&'a Sentry<Numbered<T>>) -> (R, Resolutions<'a, Numbered<T>>),
        outcome: impl FnOnce(&R) -> Outcome,
    ) -> (R, TranscribedResolutions<'a, T>) {
        let Some(transcript) = &self.transcript else {
            let (result, resolutions) = run(&self.sentry);
            return (result, TranscribedResolutions::open(resolutions));
        };
        let mut transcript = transcript.lock();
        let call = call();
        let (result, resolutions) = run(&self.sentry);
        let (mut woken, mut decided) = (Vec::new(), Vec::new());
        for resolved in resolutions {
            woken.push((resolved.0.0, Outcome::of_resolution(&resolved.1)));
            decided.push(numbered(resolved));
        }
        let outcome = outcome(&result);
        transcript.add(now, call, Answer { outcome, woken });
        let decided = decided.into_iter();
        let open = None;
        (result, TranscribedResolutions { decided, open })
    }

    /// The same, of a call that answers nothing itself.
    fn resolving_only<'a>(
        &'a self,
        now: Timestamp,
        call: impl FnOnce() -> Call,
        run: impl FnOnce(&'a Sentry<Numbered<T>>) -> Resolutions<'a, Numbered<T>>,
    ) -> TranscribedResolutions<'a, T> {
        let run = |sentry| ((), run(sentry));
        self.resolving(now, call, run, |()| Outcome::Nothing).1
    }

    /// See [`Sentry::on_arrival`].
    pub fn on_arrival(
        &self,
        now: Timestamp,
        arrival: &Arrival,
        waiter: impl FnOnce() -> T,
    ) -> Verdict {
        let mut transcript = self.transcript.as_ref().map(Lock::lock);
        let number = next_number(transcript.as_deref());
        let mut verdict = self.sentry.on_arrival(now, arrival, || (number, waiter()));
        if let Verdict::Admit(permit) = &mut verdict {
            permit.number = number;
        }
        if let Some(transcript) = &mut transcript {
            let answer = Answer {
                outcome: Outcome::of_verdict(&verdict),
                woken: Vec::new(),
            };
            transcript.add(now, Call::Arrival(*arrival), answer);
        }
        verdict
    }

    /// See [`Sentry::on_abandon`].
    pub fn on_abandon(&self, now: Timestamp, ticket: Ticket) -> bool {
        let call = || Call::Abandon { ticket: ticket.0 };
        let run = |sentry: &Sentry<_>| sentry.on_abandon(now, ticket);
        self.plain(now, call, run, |&left| Outcome::Left(left))
    }

    /// See [`Sentry::reassign`].
    ///
    /// # Errors
    /// Gives the permit back unchanged when no other replica has room.
    pub fn reassign(&self, now: Timestamp, permit: Permit) -> Result<Permit, Permit> {
        let number = permit.number;
        let call = || Call::Reassign { number };
        let run = |sentry: &Sentry<_>| sentry.reassign(now, permit);
        self.plain(now, call, run, |moved| match moved {
            Ok(permit) => Outcome::admit(permit),
            Err(_) => Outcome::Refused,
        })
    }

    /// See [`Sentry::requeue`].
    ///
    /// # Errors
    /// Gives the permit back unchanged when there is nothing to wait for.
    pub fn requeue(
        &self,
        now: Timestamp,
        permit: Permit,
        bytes: u32,
        deadline: Option<Timestamp>,
        waiter: impl FnOnce() -> T,
    ) -> Result<(Ticket, TranscribedResolutions<'_, T>), Permit> {
        let number = permit.number;
        let call = || Call::Requeue {
            number,
            bytes,
            deadline,
        };
        let waiter = || (number, waiter());
        let (queued, resolutions) = self.resolving(
            now,
            call,
            |sentry| match sentry.requeue(now, permit, bytes, deadline, waiter) {
                Ok((ticket, resolutions)) => (Ok(ticket), resolutions),
                Err(permit) => (Err(permit), sentry.no_resolutions(now)),
            },
            |queued| match queued {
                Ok(ticket) => Outcome::Wait { ticket: ticket.0 },
                Err(_) => Outcome::Refused,
            },
        );
        queued.map(|ticket| (ticket, resolutions))
    }

    /// See [`Sentry::on_stream`].
    pub fn on_stream(&self, now: Timestamp, permit: &mut Permit) -> TranscribedResolutions<'_, T> {
        let number = permit.number;
        let call = || Call::Stream { number };
        self.resolving_only(now, call, |sentry| sentry.on_stream(now, permit))
    }

    /// See [`Sentry::on_pause`].
    pub fn on_pause(&self, now: Timestamp, permit: &mut Permit) -> TranscribedResolutions<'_, T> {
        let number = permit.number;
        let call = || Call::Pause { number };
        self.resolving_only(now, call, |sentry| sentry.on_pause(now, permit))
    }

    /// See [`Sentry::on_resume`].
    pub fn on_resume(&self, now: Timestamp, permit: &mut Permit) {
        let number = permit.number;
        let call = || Call::Resume { number };
        let run = |sentry: &Sentry<_>| sentry.on_resume(now, permit);
        self.plain(now, call, run, |()| Outcome::Nothing);
    }

    /// See [`Sentry::on_end`].
    pub fn on_end(
        &self,
        now: Timestamp,
        permit: Permit,
        ending: Ending,
    ) -> TranscribedResolutions<'_, T> {
        let number = permit.number;
        let call = || Call::End { number, ending };
        self.resolving_only(now, call, |sentry| sentry.on_end(now, permit, ending))
    }

    /// See [`Sentry::on_report`].
    pub fn on_report(&self, now: Timestamp, replica: ReplicaId, report: &Report) {
        let call = || Call::Report {
            replica,
            report: *report,
        };
        let run = |sentry: &Sentry<_>| sentry.on_report(now, replica, report);
        self.plain(now, call, run, |()| Outcome::Nothing);
    }

    /// See [`Sentry::on_load`].
    pub fn on_load(&self, now: Timestamp, cpu_share: f64) {
        let call = || Call::Load { cpu_share };
        let run = |sentry: &Sentry<_>| sentry.on_load(now, cpu_share);
        self.plain(now, call, run, |()| Outcome::Nothing);
    }

    /// See [`Sentry::poll_timeout`].
    pub fn poll_timeout(&self) -> Timestamp {
        self.sentry.poll_timeout()
    }

    /// See [`Sentry::handle_timeout`].
    pub fn handle_timeout(
        &self,
        now: Timestamp,
        observer: &mut dyn Observer,
    ) -> TranscribedResolutions<'_, T> {
        if now < self.poll_timeout() {
            return TranscribedResolutions::open(self.sentry.no_resolutions(now));
        }
        // Ended by a call of their own, which is written down: a replay drops nothing.
        let mut decided = Vec::new();
        for permit in self.sentry.take_unreported() {
            decided.extend(self.on_end(now, permit, Ending::Unreported));
        }
        let written = self.transcript.is_some();
        let (_, resolutions) = self.resolving(
            now,
            || Call::Tick,
            |sentry| {
                let mut hash = EventHash::new();
                let mut observing = |event: &Event| {
                    if written {
                        // Writing into a hash never fails.
                        let _ = write!(hash, "{event:?}");
                    }
                    observer.on_event(event);
                };
                let resolutions = sentry.run_due(now, &mut observing);
                (hash.value(), resolutions)
            },
            |&hash| Outcome::Events(hash),
        );
        self.flush();
        resolutions.after(decided)
    }

    /// See [`Sentry::set_health`].
    pub fn set_health(
        &self,
        now: Timestamp,
        replica: ReplicaId,
        up: bool,
    ) -> TranscribedResolutions<'_, T> {
        let call = || Call::Health { replica, up };
        self.resolving_only(now, call, |sentry| sentry.set_health(now, replica, up))
    }

    /// See [`Sentry::reconfigure`].
    ///
    /// # Errors
    /// When the configuration contradicts itself or a change names an unknown replica; then
    /// nothing has changed.
    pub fn reconfigure(
        &self,
        now: Timestamp,
        config: &SentryConfig,
        changes: &[ReplicaChange],
    ) -> Result<(Vec<ReplicaId>, TranscribedResolutions<'_, T>), SentryError> {
        let call = || Call::Reconfigure {
            config: text_of(config),
            changes: changes.to_vec(),
        };
        let (added, resolutions) = self.resolving(
            now,
            call,
            |sentry| match sentry.reconfigure(now, config, changes) {
                Ok((added, resolutions)) => (Ok(added), resolutions),
                Err(error) => (Err(error), sentry.no_resolutions(now)),
            },
            |added| match added {
                Ok(added) => Outcome::Added(added.clone()),
                Err(_) => Outcome::Refused,
            },
        );
        added.map(|added| (added, resolutions))
    }

    /// See [`Sentry::check`].
    ///
    /// # Errors
    /// As [`Sentry::check`].
    pub fn check(
        &self,
        now: Timestamp,
        config: &SentryConfig,
        changes: &[ReplicaChange],
    ) -> Result<(), SentryError> {
        self.sentry.check(now, config, changes)
    }

    /// See [`Sentry::resume`].
    pub fn resume(&self, now: Timestamp, windows: &[(ReplicaId, u32)]) {
        let call = || Call::Windows(windows.to_vec());
        let run = |sentry: &Sentry<_>| sentry.resume(now, windows);
        self.plain(now, call, run, |()| Outcome::Nothing);
    }

    /// See [`Sentry::set_dry_run`].
    pub fn set_dry_run(&self, now: Timestamp, on: bool) -> TranscribedResolutions<'_, T> {
        let call = || Call::DryRun(on);
        self.resolving_only(now, call, |sentry| sentry.set_dry_run(now, on))
    }

    /// See [`Sentry::set_kill_switch`].
    pub fn set_kill_switch(&self, now: Timestamp, on: bool) -> TranscribedResolutions<'_, T> {
        let call = || Call::KillSwitch(on);
        self.resolving_only(now, call, |sentry| sentry.set_kill_switch(now, on))
    }

    /// See [`Sentry::set_draining`].
    pub fn set_draining(&self, now: Timestamp, on: bool) {
        let call = || Call::Draining(on);
        let run = |sentry: &Sentry<_>| sentry.set_draining(now, on);
        self.plain(now, call, run, |()| Outcome::Nothing);
    }

    /// See [`Sentry::on_rest`].
    pub fn on_rest(&self, now: Timestamp, until: Timestamp) {
        let call = || Call::Rest { until };
        let run = |sentry: &Sentry<_>| sentry.on_rest(until);
        self.plain(now, call, run, |()| Outcome::Nothing);
    }

    /// See [`Sentry::share`].
    pub fn share(&self, now: Timestamp, share: &FleetShare) -> TranscribedResolutions<'_, T> {
        let call = || Call::Share(Box::new(share.clone()));
        self.resolving_only(now, call, |sentry| sentry.share(now, share))
    }

    /// See [`Sentry::fleet_report`].
    pub fn fleet_report(&self, now: Timestamp) -> FleetReport {
        self.look(|sentry| sentry.fleet_report(now))
    }

    /// See [`Sentry::arrivals`].
    pub fn arrivals(&self) -> u64 {
        self.sentry.arrivals()
    }

    /// See [`Sentry::has_news`].
    pub fn has_news(&self) -> bool {
        self.sentry.has_news()
    }

    /// See [`Sentry::requests`].
    pub fn requests(&self) -> u32 {
        self.sentry.requests()
    }

    /// See [`Sentry::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.sentry.is_empty()
    }

    /// See [`Sentry::config`].
    pub fn config(&self) -> Arc<SentryConfig> {
        self.sentry.config()
    }

    /// See [`Sentry::windows`].
    pub fn windows(&self) -> Vec<(ReplicaId, u32)> {
        self.look(Sentry::windows)
    }

    /// See [`Sentry::upload_places`].
    pub fn upload_places(&self, share: f64) -> u32 {
        self.sentry.upload_places(share)
    }

    /// See [`Sentry::pressure`].
    pub fn pressure(&self) -> Option<f64> {
        self.look(|sentry| sentry.pressure())
    }

    /// Lets a comparison live through the time until now. It only looks at the engine, so nothing
    /// is written down.
    pub fn compare(&self, now: Timestamp, comparison: &Comparison) {
        comparison.on_tick(now, &self.sentry);
    }

    /// How a comparison stands.
    pub fn compared(&self, now: Timestamp, comparison: &Comparison) -> Option<ShadowStatus> {
        comparison.status(now, &self.sentry)
    }

    /// See [`Sentry::status`].
    pub fn status(&self, now: Timestamp) -> Status {
        self.look(|sentry| sentry.status(now))
    }
}
