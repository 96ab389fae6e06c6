//! What a connection is doing: one phase at a time, which is stored, and changes here alone.
//!
//! ```text
//! Handshake ──► Opening ──► Head ──► Serving ──► Idle
//!                  │          ▲        ▲ │        ││
//!                  │          └────────┼─┼────────┘│
//!                  └───────────────────┴─┼─────────┘
//!                                        └──► Tunnel       any ──► Lingering
//! ```
//!
//! HTTP/2 goes from Opening and Idle to Serving: its heads are h2's. That we wait for the client is
//! no phase: it happens in several of them, and to several requests at once.

/// What a connection is doing. The number tells one turn of the same phase from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// TLS is being agreed on.
    Handshake,
    /// No request has come yet.
    Opening,
    /// Part of a head has come, after this many that were complete.
    Head(u32),
    /// Between requests, after this many.
    Idle(u32),
    /// A request is in service. Part of the next head may have come: a request can outlive its
    /// response.
    Serving { head_begun: bool },
    /// The connection has another protocol by now.
    Tunnel,
    /// Closed on our side.
    Lingering,
}

/// What changes the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    HandshakeBegun,
    HandshakeEnded,
    HeadBegun,
    HeadComplete,
    RequestBegun,
    /// None is in service any longer.
    RequestsEnded,
    Upgraded,
    Closed,
}

/// Heads that were complete and requests that reached the service, since the connection was opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    pub(super) heads: u32,
    pub(super) requests: u32,
}

impl Phase {
    /// The phase after a change; `turns` includes it.
    pub(super) fn after(self, change: Change, turns: Turns) -> Self {
        match (self, change) {
            (_, Change::Closed) => Self::Lingering,
            (Self::Tunnel | Self::Lingering, _) => self,
            (_, Change::Upgraded) => Self::Tunnel,
            (_, Change::HandshakeBegun) => Self::Handshake,
            (_, Change::HandshakeEnded) => Self::between(turns),
            (Self::Serving { .. }, Change::HeadBegun) => Self::Serving { head_begun: true },
            (Self::Serving { .. }, Change::HeadComplete) => Self::Serving { head_begun: false },
            (_, Change::HeadBegun) => Self::Head(turns.heads),
            (_, Change::HeadComplete) => Self::between(turns),
            (_, Change::RequestBegun) => Self::Serving {
                head_begun: self.has_begun_head(),
            },
            (_, Change::RequestsEnded) if self.has_begun_head() => Self::Head(turns.heads),
            (_, Change::RequestsEnded) => Self::between(turns),
        }
    }

    fn has_begun_head(self) -> bool {
        matches!(self, Self::Head(_) | Self::Serving { head_begun: true })
    }

    fn between(turns: Turns) -> Self {
        match turns.requests {
            0 => Self::Opening,
            requests => Self::Idle(requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phases that these changes lead to, with the counts that a connection would keep.
    fn phases(changes: &[Change]) -> Vec<Phase> {
        let (mut phase, mut turns) = (
            Phase::Opening,
            Turns {
                heads: 0,
                requests: 0,
            },
        );
        let step = |change: &Change| {
            turns.heads += u32::from(*change == Change::HeadComplete);
            turns.requests += u32::from(*change == Change::RequestBegun);
            phase = phase.after(*change, turns);
            phase
        };
        changes.iter().map(step).collect()
    }

    const SERVING: Phase = Phase::Serving { head_begun: false };

    #[test]
    fn requests_of_http1_take_turns() {
        use Change::{HandshakeBegun, HandshakeEnded, HeadBegun, HeadComplete};
        use Change::{RequestBegun, RequestsEnded};
        assert_eq!(
            phases(&[
                HandshakeBegun,
                HandshakeEnded,
                HeadBegun,
                HeadComplete,
                RequestBegun,
                RequestsEnded,
                HeadBegun
            ]),
            [
                Phase::Handshake,
                Phase::Opening,
                Phase::Head(0),
                Phase::Opening,
                SERVING,
                Phase::Idle(1),
                Phase::Head(1)
            ]
        );
    }

    #[test]
    fn head_that_came_while_a_request_was_in_service_is_not_forgotten() {
        use Change::{HeadBegun, HeadComplete, RequestBegun, RequestsEnded};
        assert_eq!(
            phases(&[HeadComplete, RequestBegun, HeadBegun, RequestsEnded])[2..],
            [Phase::Serving { head_begun: true }, Phase::Head(1)]
        );
    }

    #[test]
    fn closed_connection_stays_closed_and_a_tunnel_can_be_closed() {
        use Change::{Closed, HeadBegun, RequestBegun, RequestsEnded, Upgraded};
        assert_eq!(
            phases(&[RequestBegun, Upgraded, RequestsEnded, Closed, HeadBegun])[1..],
            [
                Phase::Tunnel,
                Phase::Tunnel,
                Phase::Lingering,
                Phase::Lingering
            ]
        );
    }
}
