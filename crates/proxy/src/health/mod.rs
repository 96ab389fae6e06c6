//! Health of replicas: who gets requests, who is out, and who is asked whether it is back.
//!
//! Three parts. The [`Board`] is written by the request path. The [`Machine`] holds the rules and
//! is pure: time comes in, actions come out. The driver ([`run`]) carries them out: it sends the
//! probes and tells the engine.

mod driver;
mod load_reports;
mod machine;
mod probe;
mod vitals;

use tidegate_sentry::ReplicaId;

use crate::application::Application;
use crate::metrics::UpstreamFailure;

pub use driver::run;
pub use machine::{Action, Machine};
pub use vitals::{Board, Outcome, Trip};

/// Why a replica is ill, with what is known of the last failure: what the system or TLS said, what
/// requests met with, what a check was answered.
fn explain(application: &Application, id: ReplicaId, cause: &str) -> String {
    let settings = application.settings();
    let replica = settings.replica(id);
    let known = match cause {
        _ if cause == Trip::Unreachable.as_str() => replica.and_then(|it| it.unreachable()),
        _ if cause == Trip::Faulty.as_str() => {
            let http2 = replica.is_some_and(|it| it.is_http2());
            let error = application.board().last_error(id);
            error.map(|error| in_words(error, http2))
        }
        CHECKS_FAIL => replica.and_then(|it| it.failed_check()),
        _ => None,
    };
    match known {
        Some(known) => format!("{cause} ({known})"),
        None => cause.to_owned(),
    }
}

/// What is wrong with a replica that is `up` or not, if anything is.
pub(crate) fn ailment(application: &Application, id: ReplicaId, up: bool) -> Option<String> {
    let settings = application.settings();
    let replica = settings.replica(id)?;
    let cause = match (application.board().trip(id), replica.failed_check()) {
        (Some(trip), _) => explain(application, id, trip.as_str()),
        (None, _) if up => return None,
        (None, Some(check)) => format!("it gets no requests, the last check failed ({check})"),
        (None, None) => "it gets no requests".to_owned(),
    };
    Some(format!("replica {}: {cause}", replica.origin()))
}

/// The cause of a replica that fails its checks.
const CHECKS_FAIL: &str = "its health checks fail";

/// What a request met with; `http2` if it was sent without asking what the replica speaks.
fn in_words(error: Outcome, http2: bool) -> String {
    let words = match error {
        Outcome::Answered(status) => return format!("it answered {status}"),
        Outcome::Failed(UpstreamFailure::Connect) => "no connection",
        Outcome::Failed(UpstreamFailure::Reset) if http2 => {
            "the connection broke before the answer's end; does it speak HTTP/2? `upstream.http2` is \"always\""
        }
        Outcome::Failed(UpstreamFailure::Reset) => "the connection broke before the answer's end",
        Outcome::Failed(UpstreamFailure::Timeout) => "no answer in time",
        Outcome::Failed(UpstreamFailure::Malformed) => "the answer was not valid HTTP",
    };
    words.to_owned()
}
