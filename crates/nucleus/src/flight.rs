//! One request in service, from its beginning to the one way in which it ends.

use std::sync::Arc;
use std::time::Duration;

use tidegate_control::Timestamp;

use crate::nucleus::{Answered, Nucleus};
use crate::wire::Measurements;

/// How a request left the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was answered, and the time that took is a sample.
    Served,
    /// It was answered with an error of the service: often quick, and no measure of service.
    Failed,
    /// It became a stream, which lasts as long as its reader likes.
    Stream,
}

/// A request in service. Dropping it without [`Flight::land`] is how an aborted request ends: it
/// is counted out and is no sample.
#[derive(Debug)]
pub struct Flight {
    nucleus: Arc<Nucleus>,
    began: Timestamp,
    full: bool,
    landed: bool,
    /// Time that the answer waited for its reader; no service.
    unread: Duration,
    handed_over: Option<Timestamp>,
    started: Option<Timestamp>,
}

impl Flight {
    pub(crate) fn new(nucleus: Arc<Nucleus>, began: Timestamp, full: bool) -> Self {
        Self {
            nucleus,
            began,
            full,
            landed: false,
            unread: Duration::ZERO,
            handed_over: None,
            started: None,
        }
    }

    /// Whether the application should include optional content.
    #[must_use]
    pub fn full(&self) -> bool {
        self.full
    }

    /// A worker of the application takes the request up: until now it waited in the application's
    /// own queue. Without this call nothing is said about that wait.
    pub fn start(&mut self) {
        self.started = Some(self.nucleus.now());
    }

    /// The request was answered: what to tell the proxy with the answer.
    #[must_use = "a demand that is not told is lost: see `land_untold`"]
    pub fn land(self, ending: Ending) -> Measurements {
        self.end(ending, true)
    }

    /// The request was answered, and the answer has no place for what would be told; the next
    /// answer that has one tells it too.
    pub fn land_untold(self, ending: Ending) {
        self.end(ending, false);
    }

    fn end(mut self, ending: Ending, told: bool) -> Measurements {
        self.landed = true;
        let now = self.nucleus.now();
        let service = now.since(self.began).saturating_sub(self.unread);
        let how = Answered {
            served: ending == Ending::Served,
            full: self.full,
        };
        let waited = |started: Timestamp| started.since(self.began).as_secs_f64();
        Measurements {
            queue_s: self.started.map(waited),
            ..self.nucleus.answered(now, service, how, told)
        }
    }

    /// Part of the answer is with the connection, which may take its time.
    pub(crate) fn hand_over(&mut self, now: Timestamp) {
        self.handed_over = Some(now);
    }

    /// The connection asks for the next part.
    pub(crate) fn asked_again(&mut self, now: Timestamp) {
        if let Some(since) = self.handed_over.take() {
            self.unread += now.since(since);
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.nucleus.now()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.landed {
            self.nucleus.aborted();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nucleus::NucleusConfig;
    use crate::wire::Instructions;

    const FULL: Instructions = Instructions {
        optional: Some(true),
        service_target_s: Some(0.1),
    };

    #[test]
    fn every_request_is_counted_out_once() {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let [aborted, served, failed, untold] = [(); 4].map(|()| nucleus.begin(FULL));
        assert_eq!(nucleus.reading().present, 4);
        drop(aborted);
        assert_eq!(nucleus.reading().present, 3);
        let told = served.land(Ending::Served);
        assert_eq!(told.demand, 1, "one ended, one more is wanted");
        let _ = failed.land(Ending::Failed);
        untold.land_untold(Ending::Stream);
        assert_eq!(nucleus.reading().present, 0);
        assert_eq!(nucleus.reading().answered, 3);
    }

    #[test]
    fn queueing_is_told_where_the_application_says_when_it_starts() {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let [mut started, other] = [(); 2].map(|()| nucleus.begin(FULL));
        started.start();
        let told = started.land(Ending::Served);
        assert_eq!(told.in_service, 2);
        assert!(told.queue_s.is_some());
        let told = other.land(Ending::Served);
        assert_eq!((told.in_service, told.queue_s), (1, None));
    }

    #[test]
    fn time_with_the_reader_is_not_service_time() {
        let nucleus = Nucleus::new(NucleusConfig::default(), None);
        let mut flight = nucleus.begin(FULL);
        flight.hand_over(Timestamp::from_secs_f64(1.0));
        flight.asked_again(Timestamp::from_secs_f64(3601.0));
        flight.asked_again(Timestamp::from_secs_f64(3602.0));
        assert_eq!(flight.unread, Duration::from_secs(3600));
        assert_eq!(flight.land(Ending::Served).service_s, 0.0);
    }
}
