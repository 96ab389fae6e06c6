//! Distributed traces: what replicas learn of a request's trace, and which requests are recorded.
//!
//! ```text
//! head read ── choose ──► Trace (span, filled in) ──► ring of the worker ──► exporter's thread
//!                │ not chosen                              │ full: counted, lost
//!                ▼
//!            pass_on: `traceparent` kept, begun, or replaced
//! ```
//!
//! A request is chosen when its head has been read: by the sampled flag of a trusted caller, or by
//! chance. A request that is shed is chosen when it is shed, if it was not before. What is chosen
//! is bounded per second over all threads (`Traces::take`); requests that are served may use half
//! of that, refusals all of it. So an overload is recorded, and costs no more than a quiet hour.
//!
//! The data path writes a span of fixed size into a bounded ring of its own thread. Encoding and
//! sending are an exporter's, on a thread of its own (`crates/otlp`); without one the ring is not
//! written. See decision 0240.

mod context;
mod span;

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_control::Timestamp;

use crate::config::Tracing;
use crate::message::Fields;
pub(crate) use context::{Context, TRACEPARENT};
pub use context::{SpanId, TraceId};
use context::{TRACESTATE, is_state_valid};
pub(crate) use span::{Beginning, Trace};
pub use span::{PathText, Span};

/// Spans that a worker's ring holds. Chosen: many times what the bound per second lets an exporter
/// that looks every second find.
const RING_SPANS: usize = 1024;

/// Share of the requests that are recorded where nothing else is configured.
const SAMPLE_SHARE: f64 = 0.01;

/// What is recorded, shared by all workers.
#[derive(Debug)]
pub struct Traces {
    /// Whether trace contexts are read at all.
    on: AtomicBool,
    refusals: AtomicBool,
    exporting: AtomicBool,
    per_second: AtomicU32,
    /// A request is chosen if 63 random bits are below this.
    threshold: AtomicU64,
    /// The second, and how many were chosen in it.
    window: AtomicU64,
    settings: Mutex<Configured>,
    rings: Box<[Mutex<Vec<Span>>]>,
    recorded: AtomicU64,
    lost: AtomicU64,
    unchosen: AtomicU64,
    /// By signal, of an exporter.
    exports: Mutex<Vec<(&'static str, Arc<Exports>)>>,
}

#[derive(Debug, Default)]
struct Configured {
    file: Tracing,
    /// The share that the exporter's environment asks for.
    share: Option<f64>,
}

impl Traces {
    /// For this many worker threads; nothing is recorded before [`Traces::configure`].
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            on: AtomicBool::new(false),
            refusals: AtomicBool::new(false),
            exporting: AtomicBool::new(false),
            per_second: AtomicU32::new(0),
            threshold: AtomicU64::new(0),
            window: AtomicU64::new(0),
            settings: Mutex::default(),
            rings: (0..cores.max(1)).map(|_| Mutex::default()).collect(),
            recorded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            unchosen: AtomicU64::new(0),
            exports: Mutex::default(),
        }
    }

    /// Puts the file's section in force.
    pub(crate) fn configure(&self, file: &Tracing) {
        let mut settings = self.settings.lock();
        settings.file = file.clone();
        self.put_in_force(&settings);
    }

    /// Somebody exports what is recorded from now on. `share` is what the environment asks for; the
    /// file's `tracing.sample` comes before it.
    pub fn export(&self, share: Option<f64>) {
        let mut settings = self.settings.lock();
        settings.share = share;
        self.exporting.store(true, Ordering::Relaxed);
        self.put_in_force(&settings);
    }

    fn put_in_force(&self, settings: &Configured) {
        let file = &settings.file;
        let share = file.sample.map(|share| share.0).or(settings.share);
        let share = share.unwrap_or(SAMPLE_SHARE).clamp(0.0, 1.0);
        let threshold = (share * (1u64 << 63) as f64) as u64;
        self.threshold.store(threshold, Ordering::Relaxed);
        self.refusals.store(file.refusals, Ordering::Relaxed);
        self.per_second.store(file.per_second, Ordering::Relaxed);
        let exporting = self.exporting.load(Ordering::Relaxed);
        self.on
            .store(file.context.unwrap_or(exporting), Ordering::Relaxed);
    }

    /// Whether one more may be recorded in this second, of `most`.
    fn take(&self, now: Timestamp, most: u32) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        let mut seen = self.window.load(Ordering::Relaxed);
        loop {
            let count = if seen >> 32 == second & 0xffff_ffff {
                seen & 0xffff_ffff
            } else {
                0
            };
            if count >= u64::from(most) {
                self.unchosen.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            let next = second << 32 | (count + 1);
            match self.window.compare_exchange_weak(
                seen,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(changed) => seen = changed,
            }
        }
    }

    fn push(&self, core: usize, span: Box<Span>) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        if !self.exporting.load(Ordering::Relaxed) {
            return;
        }
        let mut ring = self.rings[core % self.rings.len()].lock();
        if ring.len() < RING_SPANS {
            ring.push(*span);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was recorded since the last call, for the one who exports it.
    #[must_use]
    pub fn drain(&self) -> Vec<Span> {
        let mut all = Vec::new();
        for ring in &self.rings {
            let taken = std::mem::take(&mut *ring.lock());
            all.extend(taken);
        }
        all
    }

    /// Counters for what an exporter sends of a signal, shown among the metrics.
    pub fn count_exports(&self, signal: &'static str) -> Arc<Exports> {
        let exports = Arc::<Exports>::default();
        self.exports.lock().push((signal, Arc::clone(&exports)));
        exports
    }

    /// What exporters have sent, by signal.
    #[must_use]
    pub fn exports(&self) -> Vec<(&'static str, Arc<Exports>)> {
        self.exports.lock().clone()
    }

    /// Requests recorded so far.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Spans that found the ring full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Requests that were to be recorded and exceeded `tracing.per_second`.
    #[must_use]
    pub fn over_limit(&self) -> u64 {
        self.unchosen.load(Ordering::Relaxed)
    }
}

/// What became of one signal on its way to a collector.
#[derive(Debug, Default)]
pub struct Exports {
    sent: AtomicU64,
    lost: AtomicU64,
    up: AtomicBool,
}

impl Exports {
    /// The collector took this many spans or data points.
    pub fn sent(&self, items: usize) {
        self.sent.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// This many were given up.
    pub fn lost(&self, items: usize) {
        self.lost.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Whether the collector takes what is sent. Gives what was noted before.
    pub fn set_up(&self, up: bool) -> bool {
        self.up.swap(up, Ordering::Relaxed)
    }

    /// Spans or data points that were taken, and those that were given up.
    #[must_use]
    pub fn items(&self) -> (u64, u64) {
        let (sent, lost) = (&self.sent, &self.lost);
        (sent.load(Ordering::Relaxed), lost.load(Ordering::Relaxed))
    }

    /// Whether the collector takes what is sent.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }
}

/// The ids of a request that is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) trace: TraceId,
    pub(crate) parent: Option<Context>,
    pub(crate) span: SpanId,
    pub(crate) upstream: SpanId,
}

impl Identity {
    fn towards_replica(self) -> Context {
        Context::new(self.trace, self.upstream, self.parent, true)
    }
}

/// Chooses requests on one worker thread, and gives them their ids.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) traces: Arc<Traces>,
    dice: Cell<u64>,
}

impl Tracer {
    pub(crate) fn new(traces: Arc<Traces>) -> Self {
        let seed = RandomState::new().hash_one("traces");
        Self {
            traces,
            dice: Cell::new(seed),
        }
    }

    /// Whether trace contexts are read at all.
    pub(crate) fn is_on(&self) -> bool {
        self.traces.on.load(Ordering::Relaxed)
    }

    /// The ids of a request that has arrived with this context, if it is to be recorded. A caller
    /// that is not trusted has no say in that.
    pub(crate) fn choose(
        &self,
        now: Timestamp,
        parent: Option<Context>,
        trusted: bool,
    ) -> Option<Identity> {
        let wanted = match parent.filter(|_| trusted) {
            Some(parent) => parent.is_sampled(),
            None => self.roll() >> 1 < self.traces.threshold.load(Ordering::Relaxed),
        };
        let most = self.traces.per_second.load(Ordering::Relaxed).div_ceil(2);
        (wanted && self.traces.take(now, most)).then(|| self.identity(parent))
    }

    /// The same of a request that was shed.
    pub(crate) fn choose_refusal(&self, now: Timestamp, headers: &Fields) -> Option<Identity> {
        let wanted = self.is_on() && self.traces.refusals.load(Ordering::Relaxed);
        let most = self.traces.per_second.load(Ordering::Relaxed);
        (wanted && self.traces.take(now, most)).then(|| self.identity(Context::of(headers)))
    }

    fn identity(&self, parent: Option<Context>) -> Identity {
        Identity {
            trace: parent.map_or_else(|| self.trace_id(), |parent| parent.trace),
            parent,
            span: self.span_id(),
            upstream: self.span_id(),
        }
    }

    /// Writes the context of a request that is recorded.
    pub(crate) fn lead(&self, headers: &mut Fields, trace: &Trace) {
        // What was there under this name is the parent, or malformed.
        if Context::of(headers).is_none() || !is_state_valid(headers) {
            headers.remove(TRACESTATE);
        }
        headers.insert(TRACEPARENT, trace.context().header());
    }

    /// Passes on the context of a request that is not recorded: a valid one as it is, unless a
    /// caller that is not trusted wants replicas to record it. Any other is replaced.
    pub(crate) fn pass_on(&self, headers: &mut Fields, trusted: bool) {
        let context = Context::of(headers);
        if context.is_none() || !is_state_valid(headers) {
            headers.remove(TRACESTATE);
        }
        let next = match context {
            Some(context) if trusted || !context.is_sampled() => return,
            Some(context) => Context::new(context.trace, self.span_id(), Some(context), false),
            None => Context::new(self.trace_id(), self.span_id(), None, false),
        };
        headers.insert(TRACEPARENT, next.header());
    }

    fn trace_id(&self) -> TraceId {
        loop {
            let id = u128::from(self.roll()) << 64 | u128::from(self.roll());
            if let Some(id) = TraceId::new(id) {
                return id;
            }
        }
    }

    fn span_id(&self) -> SpanId {
        loop {
            if let Some(id) = SpanId::new(self.roll()) {
                return id;
            }
        }
    }

    /// Random bits: splitmix64 (Steele, Lea and Flood 2014).
    fn roll(&self) -> u64 {
        let state = self.dice.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.dice.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use tidegate_config::Share;

    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn tracer(sample: f64, per_second: u32) -> Tracer {
        let traces = Traces::new(1);
        traces.configure(&Tracing {
            context: Some(true),
            sample: Some(Share(sample)),
            refusals: true,
            per_second,
        });
        Tracer::new(Arc::new(traces))
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> Fields {
        let fields = pairs.iter().map(|(name, value)| {
            (
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        fields.collect()
    }

    #[test]
    fn sampled_flag_counts_from_trusted_callers_only() {
        let never = tracer(0.0, 100);
        let (sampled, not) = (
            Context::parse(SAMPLED.as_bytes()),
            Context::parse(UNSAMPLED.as_bytes()),
        );
        assert!(never.choose(at(1), sampled, false).is_none());
        let chosen = never.choose(at(1), sampled, true).expect("it is sampled");
        assert_eq!(Some(chosen.trace), sampled.map(|it| it.trace));
        assert_eq!(chosen.parent, sampled);
        let always = tracer(1.0, 100);
        assert!(always.choose(at(1), not, true).is_none());
        assert!(always.choose(at(1), not, false).is_some());
        assert!(always.choose(at(1), None, true).is_some());
    }

    #[test]
    fn share_of_requests_is_chosen() {
        let tracer = tracer(0.1, u32::MAX);
        let chosen = (0..10_000).filter(|_| tracer.choose(at(1), None, false).is_some());
        let count = chosen.count();
        assert!((850..1150).contains(&count), "{count}");
    }

    #[test]
    fn refusals_are_chosen_when_requests_served_have_used_their_half() {
        let tracer = tracer(1.0, 10);
        let served = || tracer.choose(at(500), None, false).is_some();
        assert_eq!((0..100).filter(|_| served()).count(), 5);
        let none = Fields::new();
        let refused = || tracer.choose_refusal(at(501), &none).is_some();
        assert_eq!((0..100).filter(|_| refused()).count(), 5);
        assert_eq!(tracer.traces.over_limit(), 190);
        assert!(
            tracer.choose(at(1500), None, false).is_some(),
            "next second"
        );
    }

    #[test]
    fn context_that_is_missing_or_malformed_is_begun_without_state() {
        let tracer = tracer(0.0, 1);
        for mut fields in [
            headers(&[]),
            headers(&[("tracestate", "a=1")]),
            headers(&[("traceparent", "00-1-2-01"), ("tracestate", "a=1")]),
            headers(&[("traceparent", SAMPLED), ("traceparent", SAMPLED)]),
        ] {
            tracer.pass_on(&mut fields, true);
            let context = Context::of(&fields).expect("there is one, valid");
            assert!(!context.is_sampled());
            assert!(!fields.contains(TRACESTATE));
            assert_ne!(
                Some(context.trace),
                Context::parse(SAMPLED.as_bytes()).map(|it| it.trace)
            );
        }
    }

    #[test]
    fn valid_context_is_passed_on_as_it_is() {
        let tracer = tracer(0.0, 1);
        let state = ("tracestate", "rojo=1");
        for (parent, trusted) in [(SAMPLED, true), (UNSAMPLED, true), (UNSAMPLED, false)] {
            let mut fields = headers(&[("traceparent", parent), state]);
            let before = fields.clone();
            tracer.pass_on(&mut fields, trusted);
            assert_eq!(fields, before);
        }
        let mut fields = headers(&[("traceparent", UNSAMPLED), ("tracestate", "Bad")]);
        tracer.pass_on(&mut fields, true);
        assert_eq!(fields, headers(&[("traceparent", UNSAMPLED)]));
    }

    #[test]
    fn strangers_cannot_have_replicas_record() {
        let tracer = tracer(0.0, 1);
        let mut fields = headers(&[("traceparent", SAMPLED), ("tracestate", "rojo=1")]);
        tracer.pass_on(&mut fields, false);
        let (before, after) = (
            Context::parse(SAMPLED.as_bytes()).expect("valid"),
            Context::of(&fields).expect("valid"),
        );
        assert_eq!(before.trace, after.trace);
        assert!(!after.is_sampled());
        assert_ne!(before.span, after.span, "the flag changes with the parent");
        assert!(fields.contains(TRACESTATE));
    }

    #[test]
    fn contexts_are_read_while_spans_are_exported_or_the_file_says_so() {
        let traces = Arc::new(Traces::new(1));
        let tracer = Tracer::new(Arc::clone(&traces));
        traces.configure(&Tracing::default());
        assert!(!tracer.is_on());
        traces.export(Some(0.5));
        assert!(tracer.is_on());
        assert_eq!(traces.threshold.load(Ordering::Relaxed), 1 << 62);
        traces.configure(&Tracing {
            context: Some(false),
            ..Tracing::default()
        });
        assert!(!tracer.is_on());
    }
}
