//! Drives the engine's timers: without it nothing adapts.
//!
//! A thread of its own and no task, so that handlers which block the runtime, which is what
//! overload looks like from inside, do not delay the control that is to relieve it. It ends with
//! the last clone of the layer.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tidegate_sentry::Event;

use crate::gate::Gate;

/// The longest sleep: a switch may bring the next tick forward, and the thread has to notice that
/// the layer is gone.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The shortest sleep; ticks of the engine are a hundred times as far apart.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// Receives the engine's events, on the ticker's thread.
pub(crate) type EventSink = Box<dyn FnMut(&Event) + Send>;

/// Drives the timers of a layer's engine; from
/// [`Protection::build_driven`](crate::Protection::build_driven).
pub struct Driver {
    gate: Weak<Gate>,
    sink: EventSink,
}

impl Driver {
    pub(crate) fn new(gate: &Arc<Gate>, sink: EventSink) -> Self {
        let gate = Arc::downgrade(gate);
        Self { gate, sink }
    }

    /// Runs what is due. Returns when to call again, or `None` once the layer is gone.
    pub fn drive(&mut self) -> Option<Duration> {
        let gate = self.gate.upgrade()?;
        Some(gate.tick(&mut self.sink).clamp(SLEEP_MIN, SLEEP_MAX))
    }

    pub(crate) fn start(mut self) -> io::Result<()> {
        let run = move || {
            while let Some(pause) = self.drive() {
                thread::sleep(pause);
            }
        };
        let builder = thread::Builder::new().name("tidegate-ticker".to_owned());
        builder.spawn(run).map(drop)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
