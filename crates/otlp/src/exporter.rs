//! The thread that sends.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate_proxy::admin::Telemetry;
use tidegate_proxy::metrics::Family;
use tidegate_proxy::trace::{Exports, Span, Traces};
use tidegate_proxy::{notice, warn};
use tokio::sync::watch;

use crate::client::{Client, Failure};
use crate::convert::{self, Form, Period};
use crate::environment::{Environment, Signal, Target};
use crate::proto::{self, PartialSuccess, Request, Resource};

/// How often the rings of the workers are emptied. Chosen: they hold many times what the usual
/// bound per second brings in that time.
const RINGS_INTERVAL: Duration = Duration::from_millis(500);

/// First pause after a message that was not taken; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is left is sent within this time when the proxy ends.
const FAREWELL_MAX: Duration = Duration::from_secs(3);

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A certificate cannot be read.
    #[error("OTLP: {0}")]
    Tls(String),
    /// The system refuses another thread.
    #[error("cannot start the thread that exports: {0}; allow more threads")]
    Thread(#[from] std::io::Error),
}

/// Sends spans and metrics on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Exporter {
    stop: Option<watch::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Exporter {
    /// Starts to send what the environment asks for.
    ///
    /// # Errors
    /// A certificate that cannot be read, or no thread.
    pub fn start(environment: Environment, telemetry: Telemetry) -> Result<Self, StartError> {
        let (stop, stopped) = watch::channel(());
        let traces = telemetry.traces();
        let channel = |signal, target: Option<&Target>| {
            let channel = target.map(|target| Channel::new(signal, target.clone(), traces));
            channel.transpose()
        };
        let spans = channel(Signal::Traces, environment.traces.as_ref())?;
        let metrics = channel(Signal::Metrics, environment.metrics.as_ref())?;
        let resource = described(&environment.resource);
        if spans.is_some() {
            traces.export(environment.share);
        }
        for channel in spans.iter().chain(&metrics) {
            let (signal, to) = (channel.signal.as_str(), channel.client.shown());
            notice(format_args!("{signal} are sent to {to} by OTLP"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let its = || (resource.clone(), stopped.clone());
                    let spans = async {
                        if let Some(channel) = spans {
                            let traces = Arc::clone(telemetry.traces());
                            send_spans(channel, &traces, &environment, its()).await;
                        }
                    };
                    let metrics = async {
                        if let Some(channel) = metrics {
                            send_metrics(channel, &telemetry, &environment, its()).await;
                        }
                    };
                    tokio::join!(spans, metrics);
                });
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Exporter {
    /// Waits until what is left is sent, a few seconds at most.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}

/// What the resource says of the process, beside what the environment says of it.
fn described(given: &[(String, String)]) -> Resource {
    let mut attributes = given.to_vec();
    let mut add = |key: &str, value: String| {
        if !attributes.iter().any(|(known, _)| known == key) {
            attributes.push((key.to_owned(), value));
        }
    };
    add("service.name", "tidegate".to_owned());
    add("service.version", env!("CARGO_PKG_VERSION").to_owned());
    add("process.pid", std::process::id().to_string());
    if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        let instance = format!("{}-{}", name.trim(), std::process::id());
        add("host.name", name.trim().to_owned());
        add("service.instance.id", instance);
    }
    add("telemetry.sdk.name", "tidegate".to_owned());
    add("telemetry.sdk.language", "rust".to_owned());
    convert::resource(&attributes)
}

/// One signal on its way, with what is known of its collector.
struct Channel {
    signal: Signal,
    client: Client,
    exports: Arc<Exports>,
    /// When the collector stopped to take messages, and what was lost before.
    down: Option<(Instant, u64)>,
}

impl Channel {
    fn new(signal: Signal, target: Target, traces: &Traces) -> Result<Self, StartError> {
        Ok(Self {
            signal,
            client: Client::new(target).map_err(StartError::Tls)?,
            exports: traces.count_exports(signal.as_str()),
            down: None,
        })
    }

    /// The collector took a message. The log has a line if it had not taken the one before.
    fn taken(&mut self, items: usize, partial: Option<PartialSuccess>) {
        let rejected = partial.map_or(0, |partial| {
            let rejected = usize::try_from(partial.rejected).unwrap_or(0).min(items);
            if self.down.is_none() && self.exports.set_up(false) {
                let (signal, text) = (self.signal.as_str(), &partial.error_message);
                warn(format_args!(
                    "the collector of {signal} rejected {rejected} of {items}: {text}"
                ));
            }
            rejected
        });
        self.exports.sent(items - rejected);
        self.exports.lost(rejected);
        self.exports.set_up(rejected == 0);
        if let Some((since, lost_before)) = self.down.take() {
            let lost = self.exports.items().1 - lost_before;
            notice(format_args!(
                "{} are sent to {} again after {:.0} s; {lost} were lost",
                self.signal.as_str(),
                self.client.shown(),
                since.elapsed().as_secs_f64()
            ));
        }
    }

    /// The collector did not take a message. The log has a line if it had taken the one before.
    fn refused(&mut self, failure: &Failure) {
        self.exports.set_up(false);
        if self.down.is_none() {
            self.down = Some((Instant::now(), self.exports.items().1));
            warn(format_args!(
                "{} cannot be sent to {}: {failure}; requests are served all the same, and what \
                 finds no place in the queue is lost; see that the collector runs, and \
                 OTEL_EXPORTER_OTLP_ENDPOINT",
                self.signal.as_str(),
                self.client.shown()
            ));
        }
    }
}

/// Pauses between attempts, each twice as long as the one before.
struct Pauses(Duration);

impl Pauses {
    fn next(&mut self, failure: &Failure) -> Duration {
        let pause = failure.after.unwrap_or(self.0);
        self.0 = (self.0 * 2).min(PAUSE_MAX);
        pause
    }
}

/// What every task is started with: the resource, and what ends it.
type Its = (Resource, watch::Receiver<()>);

/// Sends spans until the exporter is dropped, and what is left then.
async fn send_spans(channel: Channel, traces: &Traces, environment: &Environment, its: Its) {
    let (resource, mut stopped) = its;
    let mut spans = Spans {
        channel,
        traces,
        resource,
        queue: VecDeque::new(),
        queue_max: environment.span_queue,
        batch_max: environment.span_batch,
        look: RINGS_INTERVAL.min(environment.span_delay),
    };
    let mut pauses = Pauses(PAUSE_FIRST);
    let mut due = Instant::now() + environment.span_delay;
    loop {
        tokio::select! {
            // Ends with an error, when the sender is dropped.
            _ = stopped.changed() => break,
            () = tokio::time::sleep(spans.look) => {}
        }
        spans.fill();
        let full = spans.queue.len() >= spans.batch_max && spans.channel.down.is_none();
        if spans.queue.is_empty() || !(full || Instant::now() >= due) {
            continue;
        }
        let sent = tokio::select! {
            _ = stopped.changed() => break,
            sent = spans.send() => sent,
        };
        due = Instant::now() + environment.span_delay;
        match sent {
            Ok(()) => pauses = Pauses(PAUSE_FIRST),
            Err(failure) => due = Instant::now() + pauses.next(&failure),
        }
    }
    spans.fill();
    let farewell = async { while !spans.queue.is_empty() && spans.send().await.is_ok() {} };
    let _ = tokio::time::timeout(FAREWELL_MAX, farewell).await;
    spans.channel.exports.lost(spans.queue.len());
}

/// Spans on their way.
struct Spans<'a> {
    channel: Channel,
    traces: &'a Traces,
    resource: Resource,
    queue: VecDeque<Span>,
    queue_max: usize,
    batch_max: usize,
    look: Duration,
}

impl Spans<'_> {
    fn fill(&mut self) {
        fill(
            &mut self.queue,
            self.traces,
            self.queue_max,
            &self.channel.exports,
        );
    }

    /// One attempt; the rings are emptied meanwhile.
    async fn attempt(
        &mut self,
        message: &Request<proto::Span>,
    ) -> Result<Option<PartialSuccess>, Failure> {
        let (channel, queue) = (&self.channel, &mut self.queue);
        let mut attempt = pin!(channel.client.send(message));
        loop {
            tokio::select! {
                outcome = &mut attempt => return outcome,
                () = tokio::time::sleep(self.look) => {
                    fill(queue, self.traces, self.queue_max, &channel.exports);
                }
            }
        }
    }

    /// Sends the first spans of the queue. Spans leave it
    /// when the collector has taken them, or never will.
    async fn send(&mut self) -> Result<(), Failure> {
        let count = self.queue.len().min(self.batch_max);
        let batch = &self.queue.make_contiguous()[..count];
        let message = convert::traces(&self.resource, batch);
        match self.attempt(&message).await {
            Ok(partial) => {
                self.queue.drain(..count);
                self.channel.taken(count, partial);
                Ok(())
            }
            Err(failure) => {
                if !failure.may_retry {
                    self.queue.drain(..count);
                    self.channel.exports.lost(count);
                }
                self.channel.refused(&failure);
                Err(failure)
            }
        }
    }
}

/// Empties the workers' rings into the queue. What finds no place is lost and counted.
fn fill(queue: &mut VecDeque<Span>, traces: &Traces, most: usize, exports: &Exports) {
    let drained = traces.drain();
    let fits = most.saturating_sub(queue.len()).min(drained.len());
    exports.lost(drained.len() - fits);
    queue.extend(drained.into_iter().take(fits));
}

/// Sends metrics until the exporter is dropped, and once more then. Counters rise whether they are
/// sent or not, so a message that is not taken loses nothing but resolution.
async fn send_metrics(
    mut channel: Channel,
    telemetry: &Telemetry,
    environment: &Environment,
    its: Its,
) {
    let (resource, mut stopped) = its;
    let form = Form {
        delta: environment.delta,
        exponential: environment.exponential,
    };
    let mut before: (SystemTime, Vec<Family>) = (telemetry.started_at(), Vec::new());
    let mut running = true;
    while running {
        tokio::select! {
            _ = stopped.changed() => running = false,
            () = tokio::time::sleep(environment.metric_interval) => {}
        }
        let families = telemetry.metrics();
        let (from, to) = (before.0, SystemTime::now());
        let period = Period { from, to };
        let message = convert::metrics(&resource, &families, &before.1, form, period);
        let points = convert::points(&families);
        let sending = channel.client.send(&message);
        let limit = if running { Duration::MAX } else { FAREWELL_MAX };
        match tokio::time::timeout(limit, sending).await {
            Ok(Ok(partial)) => {
                channel.taken(points, partial);
                if form.delta {
                    before = (to, families);
                }
            }
            Ok(Err(failure)) => {
                channel.exports.lost(points);
                channel.refused(&failure);
            }
            Err(_) => {}
        }
    }
}
