//! An admitted request whose replica waits for the client.
//!
//! A slot says that a replica is at work. While a request's body is still coming in, or its
//! response waits for a client that does not read, the replica waits, and the slot would be held
//! by the client: a few slow clients could hold all of them. So the slot is given back meanwhile,
//! and taken again when the replica can go on. The time in between is no part of the service time.
//!
//! The slot is taken again whether there is one or not: the replica has the request already. So
//! what comes back may exceed the window by as many requests as are paused; a driver bounds the
//! uploads among them by [`Sentry::upload_places`].
//!
//! What breaks it: a replica that works on the part of a body it has got.
//!
//! Decision: docs/decisions/0286-streams-that-are-work.md.

use tidegate_control::Timestamp;

use super::{Resolutions, Sentry};
use crate::api::Permit;
use crate::gate::Passed;

impl<T> Sentry<T> {
    /// The replica waits for the client: the request gives its slot back until
    /// [`Sentry::on_resume`]. A no-op for one that holds none.
    pub fn on_pause(&self, now: Timestamp, permit: &mut Permit) -> Resolutions<'_, T> {
        if permit.streaming {
            return self.no_resolutions(now);
        }
        let counted = permit.counted;
        let resolutions = self.on_stream(now, permit);
        permit.paused = Some((now, counted));
        resolutions
    }

    /// The replica goes on with a paused request. A no-op for one that is not paused.
    pub fn on_resume(&self, now: Timestamp, permit: &mut Permit) {
        let Some((since, counted)) = permit.paused.take() else {
            return;
        };
        let plan = self.plan.load();
        let replica = &plan.replicas[usize::from(permit.replica.0)];
        permit.generation = replica.retake(now);
        permit.place = replica.admit(now, permit.place.bound);
        self.gate.return_to(Passed { counted });
        self.content.enter(permit.content);
        permit.streaming = false;
        permit.admitted += now - since;
    }

    /// How many uploads may be on their way into replicas at a time, if they may take `share` of
    /// the slots: at least one per healthy replica.
    pub fn upload_places(&self, share: f64) -> u32 {
        let plan = self.plan.load();
        let healthy = plan.replicas.iter().filter(|replica| replica.is_up());
        let places = healthy.map(|replica| ((f64::from(replica.limit()) * share) as u32).max(1));
        places.fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Arrival, Ending, Verdict};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn sentry(text: &str) -> Sentry<u32> {
        let config = tidegate_config::parse("test.toml", text).unwrap();
        Sentry::new(&config, 1, at(0), 1).unwrap()
    }

    fn admitted(sentry: &Sentry<u32>) -> Permit {
        match sentry.on_arrival(at(0), &Arrival::default(), || 0) {
            Verdict::Admit(permit) => permit,
            other => panic!("there is room, not {other:?}"),
        }
    }

    const ONE_SLOT: &str = "mode = 'static'\nstatic.window = 100\nlimits.slots = 1";

    #[test]
    fn paused_request_leaves_its_slot_to_others_and_takes_one_again() {
        let sentry = sentry(ONE_SLOT);
        let mut first = admitted(&sentry);
        sentry.on_pause(at(1), &mut first).for_each(drop);
        let second = admitted(&sentry);
        sentry.on_resume(at(5), &mut first);
        let replica = &sentry.status(at(5)).replicas[0];
        assert_eq!((replica.in_flight, replica.streams), (2, 0));
        assert_eq!(first.admitted(), at(4), "the pause is no service time");
        for permit in [first, second] {
            sentry.on_end(at(6), permit, Ending::Served).for_each(drop);
        }
        let status = sentry.status(at(6));
        let replica = &status.replicas[0];
        assert_eq!(
            (replica.in_flight, replica.streams, replica.served),
            (0, 0, 2)
        );
    }

    #[test]
    fn paused_request_that_becomes_a_stream_or_ends_takes_no_slot() {
        let sentry = sentry(ONE_SLOT);
        let mut stream = admitted(&sentry);
        sentry.on_pause(at(1), &mut stream).for_each(drop);
        sentry.on_stream(at(2), &mut stream).for_each(drop);
        sentry.on_resume(at(3), &mut stream);
        let mut other = admitted(&sentry);
        sentry.on_pause(at(4), &mut other).for_each(drop);
        for permit in [stream, other] {
            sentry
                .on_end(at(5), permit, Ending::Abandoned)
                .for_each(drop);
        }
        let replica = &sentry.status(at(5)).replicas[0];
        assert_eq!((replica.in_flight, replica.streams), (0, 0));
    }

    #[test]
    fn window_at_the_entrance_is_left_and_entered_again() {
        let sentry = sentry("mode = 'static'\nstatic.window = 1\nlimits.slots = 9");
        let mut first = admitted(&sentry);
        sentry.on_pause(at(1), &mut first).for_each(drop);
        let second = admitted(&sentry);
        sentry.on_end(at(2), second, Ending::Served).for_each(drop);
        sentry.on_resume(at(3), &mut first);
        let refused = sentry.on_arrival(at(3), &Arrival::default(), || 0);
        assert!(matches!(refused, Verdict::Shed(_)), "{refused:?}");
        sentry.on_end(at(4), first, Ending::Served).for_each(drop);
        let last = admitted(&sentry);
        sentry.on_end(at(5), last, Ending::Served).for_each(drop);
    }

    #[test]
    fn every_healthy_replica_has_a_place_for_an_upload() {
        let sentry = sentry(ONE_SLOT);
        assert_eq!(sentry.upload_places(0.5), 1);
        let down = sentry.set_health(at(0), crate::ReplicaId(0), false);
        assert_eq!(down.count(), 0);
        assert_eq!(sentry.upload_places(0.5), 0);
    }
}
