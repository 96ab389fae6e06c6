//! The engine in a small driver: a replica that serves 200 requests per second, clients that send
//! 600, and a target of half a second. Time is made up, so that a minute takes a moment.
//!
//! `cargo run -p tidegate-sentry --example overload`

#![allow(clippy::print_stdout, clippy::disallowed_macros)] // an example shows what it does

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{Arrival, Ending, Event, Permit, Resolution, Sentry, SentryConfig, Verdict};

const TARGET: Duration = Duration::from_millis(500);
const SERVICE: Duration = Duration::from_millis(5);
const STEP: Duration = Duration::from_micros(100);
const STEPS_PER_SECOND: u64 = 10_000;
const ARRIVALS_PER_SECOND: u64 = 600;

/// One worker that serves what it holds in the order in which it came.
#[derive(Default)]
struct Replica {
    held: VecDeque<Permit>,
    done_at: Timestamp,
}

impl Replica {
    fn begin(&mut self, now: Timestamp, permit: Permit) {
        if self.held.is_empty() {
            self.done_at = now + SERVICE;
        }
        self.held.push_back(permit);
    }

    /// The request that is done by now.
    fn complete(&mut self, now: Timestamp) -> Option<Permit> {
        if now < self.done_at {
            return None;
        }
        self.done_at = now + SERVICE;
        self.held.pop_front()
    }
}

/// What became of the requests of some seconds.
#[derive(Default)]
struct Tally {
    arrived: u32,
    in_time: u32,
    late: u32,
    shed: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = SentryConfig::builder().target(TARGET).build()?;
    let mut now = Timestamp::ZERO;
    let sentry = Sentry::<()>::new(&config, 1, now, 7)?;
    let (mut replica, mut tally) = (Replica::default(), Tally::default());
    println!("second  arrived  in time  late  shed");
    for step in 1..=60 * STEPS_PER_SECOND {
        now += STEP;
        let mut resolved = Vec::new();
        // 1. Timers are data: the engine says when it next wants to be called.
        if now >= sentry.poll_timeout() {
            resolved.extend(sentry.handle_timeout(now, &mut |_: &Event| {}));
        }
        // 2. A request ends, whichever way: once per permit.
        if let Some(permit) = replica.complete(now) {
            if now.since(permit.arrived()) <= TARGET {
                tally.in_time += 1;
            } else {
                tally.late += 1;
            }
            resolved.extend(sentry.on_end(now, permit, Ending::Served));
        }
        // 3. Requests that waited and may go, or have to be refused.
        for ((), resolution) in resolved {
            match resolution {
                Resolution::Admit(permit) => replica.begin(now, permit),
                Resolution::Shed(_) => tally.shed += 1,
            }
        }
        // 4. A request arrives.
        let due = |step: u64| step * ARRIVALS_PER_SECOND / STEPS_PER_SECOND;
        if due(step) > due(step - 1) {
            tally.arrived += 1;
            match sentry.on_arrival(now, &Arrival::default(), || ()) {
                Verdict::Admit(permit) => replica.begin(now, permit),
                Verdict::Wait(_) => {}
                Verdict::Shed(_) => tally.shed += 1,
            }
        }
        if step % (10 * STEPS_PER_SECOND) == 0 {
            let Tally {
                arrived,
                in_time,
                late,
                shed,
            } = std::mem::take(&mut tally);
            let second = step / STEPS_PER_SECOND;
            println!("{second:>6}  {arrived:>7}  {in_time:>7}  {late:>4}  {shed:>4}");
        }
    }
    Ok(())
}
