//! A crowd of clients that leaves at once, and comes back: what it shows of the service.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::Timestamp;
use tidegate_sentry::{
    Arrival, Ending, Event, Permit, Resolution, Sentry, SentryConfig, Ticket, Verdict,
};

const CLIENTS: usize = 512;
/// What the service does in a millisecond, in order of arrival.
const DONE_PER_MS: usize = 8;

/// Clients that ask again as soon as they are answered, in front of a service.
struct Loop {
    sentry: Sentry<usize>,
    now: Timestamp,
    waiting: Vec<Option<Ticket>>,
    inside: VecDeque<(usize, Permit)>,
    refused: usize,
}

impl Loop {
    fn new() -> Self {
        let config = SentryConfig::default();
        Self {
            sentry: Sentry::new(&config, 1, Timestamp::ZERO, 1).expect("it is valid"),
            now: Timestamp::ZERO,
            waiting: (0..CLIENTS).map(|_| None).collect(),
            inside: VecDeque::new(),
            refused: 0,
        }
    }

    fn ask(&mut self, client: usize) {
        let arrival = Arrival::default();
        match self.sentry.on_arrival(self.now, &arrival, || client) {
            Verdict::Admit(permit) => self.inside.push_back((client, permit)),
            Verdict::Wait(ticket) => self.waiting[client] = Some(ticket),
            Verdict::Shed(_) => self.refused += 1,
        }
    }

    fn end(&mut self, permit: Permit, ending: Ending) {
        let resolved = self.sentry.on_end(self.now, permit, ending).collect();
        self.take(resolved);
    }

    fn take(&mut self, resolved: Vec<(usize, Resolution)>) {
        for (client, resolution) in resolved {
            self.waiting[client] = None;
            match resolution {
                Resolution::Admit(permit) => self.inside.push_back((client, permit)),
                Resolution::Shed(_) => self.refused += 1,
            }
        }
    }

    /// Time passes; a client that is answered asks again.
    fn run(&mut self, millis: u64) {
        self.run_at(DONE_PER_MS, millis);
    }

    fn run_at(&mut self, done_per_ms: usize, millis: u64) {
        for _ in 0..millis {
            self.now += Duration::from_millis(1);
            for _ in 0..done_per_ms.min(self.inside.len()) {
                let Some((client, permit)) = self.inside.pop_front() else {
                    break;
                };
                self.end(permit, Ending::Served);
                self.ask(client);
            }
            if self.sentry.poll_timeout() <= self.now {
                let ticked = self.sentry.handle_timeout(self.now, &mut |_: &Event| {});
                let resolved = ticked.collect();
                self.take(resolved);
            }
        }
    }

    fn all_ask(&mut self) {
        (0..CLIENTS).for_each(|client| self.ask(client));
    }

    fn all_leave(&mut self) {
        for client in 0..CLIENTS {
            if let Some(ticket) = self.waiting[client].take() {
                self.sentry.on_abandon(self.now, ticket);
            }
        }
        while let Some((_, permit)) = self.inside.pop_front() {
            self.end(permit, Ending::Abandoned);
        }
    }

    fn drain_rate(&self) -> f64 {
        let drain = self.sentry.status(self.now).drain_rate;
        drain.expect("there were more than could be served")
    }
}

#[test]
fn who_leaves_takes_nothing_of_what_is_known() {
    let mut clients = Loop::new();
    for _ in 0..5 {
        clients.all_ask();
        clients.run(3000);
        let before = clients.drain_rate();
        clients.all_leave();
        // Nothing is done meanwhile, and what was done before is past.
        clients.run(2000);
        let after = clients.drain_rate();
        assert!(after > 0.8 * before, "{before} before, {after} after");
        assert_eq!(clients.refused, 0);
    }
}

/// Connections have to be opened for the first that come.
#[test]
fn moment_in_which_a_crowd_comes_says_little() {
    let mut clients = Loop::new();
    (0..8).for_each(|client| clients.ask(client));
    clients.run(1000);
    clients.all_leave();
    clients.run(1130);
    clients.all_ask();
    clients.run_at(1, 80);
    clients.run(3000);
    assert_eq!(clients.refused, 0);
}
