//! How long a connection may keep us waiting.
//!
//! Every connection is in one [`Phase`]; its age in that phase decides, or for how long we have
//! waited for the client. Nothing is timed while requests flow: what looks the same in two sweeps
//! has lasted from the one to the other.

use std::time::Duration;

use tidegate_control::Timestamp;

use super::phase::Phase;
use super::{Client, ConnectionCommand, Protocol};
use crate::config::Timeouts;

/// How long a refused client may go on sending, and one that was told to go may stay.
const LINGER: Duration = Duration::from_secs(2);

/// What the sweep sees of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Phase(Phase),
    /// We wait for the client to read or to send, since this much progress.
    Stalled(u32),
}

impl Sight {
    fn of(client: &Client) -> Self {
        let waiting = client.write_blocked.get() || client.uploads_waiting.get() > 0;
        match client.phase.get() {
            phase @ (Phase::Lingering | Phase::Handshake) => Self::Phase(phase),
            _ if waiting => Self::Stalled(client.progress.get()),
            phase => Self::Phase(phase),
        }
    }
}

/// The sweep's memory of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionTimeouts {
    sight: Sight,
    since: Timestamp,
    /// When it was found to have been told to go.
    told: Option<Timestamp>,
    /// Since when every sweep has found it waiting for the client, progress or not.
    waiting_since: Option<Timestamp>,
}

impl ConnectionTimeouts {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            sight: Sight::Phase(Phase::Opening),
            since: now,
            told: None,
            waiting_since: None,
        }
    }

    /// Looks at a connection; says what should happen to it, if anything.
    pub(crate) fn judge(
        &mut self,
        client: &Client,
        now: Timestamp,
        timeouts: &Timeouts,
    ) -> ConnectionCommand {
        self.look(Sight::of(client), now);
        if self.overstays(client, now) {
            return ConnectionCommand::Abort;
        }
        let (limit, command) = match self.sight {
            Sight::Stalled(_) => (*timeouts.body_idle, ConnectionCommand::Abort),
            Sight::Phase(Phase::Opening) => (*timeouts.head, ConnectionCommand::Close),
            Sight::Phase(Phase::Head(_)) if client.protocol() == Protocol::Http1 => {
                (*timeouts.head, ConnectionCommand::Timeout)
            }
            Sight::Phase(Phase::Head(_)) => (*timeouts.head, ConnectionCommand::Close),
            Sight::Phase(Phase::Idle(_)) => (*timeouts.client_idle, ConnectionCommand::Close),
            Sight::Phase(Phase::Lingering) => (LINGER, ConnectionCommand::Abort),
            // A handshake has a time limit of its own, and so has a tunnel.
            Sight::Phase(Phase::Serving { .. } | Phase::Handshake | Phase::Tunnel) => {
                return ConnectionCommand::None;
            }
        };
        if now.since(self.since) >= limit {
            command
        } else {
            ConnectionCommand::None
        }
    }

    /// Takes what is seen now, and since when.
    fn look(&mut self, sight: Sight, now: Timestamp) {
        // The first head is given its time from the start of the connection.
        let (opening, head) = (Phase::Opening, Phase::Head(0));
        let still_opening = self.sight == Sight::Phase(opening) && sight == Sight::Phase(head);
        if sight != self.sight && !still_opening {
            self.since = now;
        }
        self.sight = sight;
        self.waiting_since = match sight {
            Sight::Stalled(_) => self.waiting_since.or(Some(now)),
            Sight::Phase(_) => None,
        };
    }

    /// Whether it was told to go, has nothing in flight and stays all the same. An HTTP/2 client
    /// has to confirm that it read that, and one that means ill does not.
    fn overstays(&mut self, client: &Client, now: Timestamp) -> bool {
        if client.command() < ConnectionCommand::Close {
            return false;
        }
        let told = *self.told.get_or_insert(now);
        client.in_flight.get() == 0 && now.since(told) >= LINGER
    }

    /// Whether it has sent no whole head yet, or not the next one, and for how long.
    pub(crate) fn unfinished_for(&self, now: Timestamp) -> Option<Duration> {
        match self.sight {
            Sight::Phase(Phase::Handshake | Phase::Opening | Phase::Head(_)) => {
                Some(now.since(self.since))
            }
            _ => None,
        }
    }

    /// Whether a request of it waits for the client to send or to read, and for how long; that a
    /// byte passes now and then makes no difference.
    pub(crate) fn waiting_for(&self, now: Timestamp) -> Option<Duration> {
        self.waiting_since.map(|since| now.since(since))
    }

    /// Whether it is between requests, and for how long.
    pub(crate) fn idle_for(&self, now: Timestamp) -> Option<Duration> {
        match self.sight {
            Sight::Phase(Phase::Opening | Phase::Idle(_)) => Some(now.since(self.since)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Worker;

    fn client() -> Client {
        Client::of_nobody(&Worker::idle())
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn timeouts() -> Timeouts {
        Timeouts::default()
    }

    #[test]
    fn a_head_sent_byte_by_byte_is_late_all_the_same() {
        let (client, timeouts) = (client(), timeouts());
        let mut connection = ConnectionTimeouts::new(at(0));
        for second in 1..10 {
            client.head_begun();
            client.progressed();
            assert_eq!(
                connection.judge(&client, at(second), &timeouts),
                ConnectionCommand::None
            );
        }
        assert_eq!(
            connection.judge(&client, at(10), &timeouts),
            ConnectionCommand::Timeout
        );
    }

    #[test]
    fn every_request_starts_the_idle_time_again() {
        let (client, timeouts) = (client(), timeouts());
        let mut connection = ConnectionTimeouts::new(at(0));
        for minute in 1..5 {
            client.head_complete();
            client.begin_request();
            client.end_request(false);
            assert_eq!(
                connection.judge(&client, at(minute * 60), &timeouts),
                ConnectionCommand::None
            );
        }
        assert_eq!(
            connection.judge(&client, at(240 + 75), &timeouts),
            ConnectionCommand::Close
        );
    }

    #[test]
    fn a_request_in_service_takes_the_time_it_takes() {
        let (client, timeouts) = (client(), timeouts());
        let mut connection = ConnectionTimeouts::new(at(0));
        client.head_complete();
        client.begin_request();
        assert_eq!(
            connection.judge(&client, at(1), &timeouts),
            ConnectionCommand::None
        );
        assert_eq!(
            connection.judge(&client, at(100_000), &timeouts),
            ConnectionCommand::None
        );
    }

    #[test]
    fn a_client_that_does_not_read_is_cut_off_only_without_any_progress() {
        let (client, timeouts) = (client(), timeouts());
        let mut connection = ConnectionTimeouts::new(at(0));
        client.head_complete();
        client.begin_request();
        client.set_write_blocked(true);
        for minutes in 1..10 {
            client.progressed();
            assert_eq!(
                connection.judge(&client, at(minutes * 200), &timeouts),
                ConnectionCommand::None
            );
        }
        assert_eq!(
            connection.judge(&client, at(9 * 200 + 300), &timeouts),
            ConnectionCommand::Abort
        );
    }

    #[test]
    fn who_was_told_to_go_may_finish_but_not_stay() {
        let (client, timeouts) = (client(), timeouts());
        client.set_protocol(Protocol::Http2);
        let mut connection = ConnectionTimeouts::new(at(0));
        client.begin_request();
        client.give(ConnectionCommand::Close);
        assert_eq!(
            connection.judge(&client, at(1), &timeouts),
            ConnectionCommand::None
        );
        assert_eq!(
            connection.judge(&client, at(100), &timeouts),
            ConnectionCommand::None
        );
        client.end_request(false);
        assert_eq!(
            connection.judge(&client, at(101), &timeouts),
            ConnectionCommand::Abort
        );
    }

    #[test]
    fn waiting_for_a_client_lasts_although_a_byte_passes_now_and_then() {
        let (client, timeouts) = (client(), timeouts());
        let mut connection = ConnectionTimeouts::new(at(0));
        client.begin_request();
        client.upload_waits(true);
        for second in 1..=20 {
            client.progressed();
            connection.judge(&client, at(second), &timeouts);
        }
        let waited = connection.waiting_for(at(20));
        assert_eq!(waited, Some(Duration::from_secs(19)));
        client.upload_waits(false);
        connection.judge(&client, at(21), &timeouts);
        assert_eq!(connection.waiting_for(at(21)), None);
    }

    #[test]
    fn handshake_counts_as_unfinished_and_has_its_own_limit() {
        let (client, timeouts) = (client(), timeouts());
        let mut connection = ConnectionTimeouts::new(at(0));
        client.begin_handshake();
        assert_eq!(
            connection.judge(&client, at(1), &timeouts),
            ConnectionCommand::None
        );
        assert_eq!(
            connection.judge(&client, at(60), &timeouts),
            ConnectionCommand::None
        );
        let unfinished = connection.unfinished_for(at(60));
        assert_eq!(unfinished, Some(Duration::from_secs(59)));
        assert_eq!(connection.idle_for(at(60)), None);
    }

    #[test]
    fn a_connection_without_a_request_is_closed_silently() {
        let mut connection = ConnectionTimeouts::new(at(0));
        assert_eq!(
            connection.judge(&client(), at(10), &timeouts()),
            ConnectionCommand::Close
        );
        assert_eq!(connection.idle_for(at(10)), Some(Duration::from_secs(10)));
    }
}
