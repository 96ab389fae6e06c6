//! The access log: ends of requests, and service times for quotas.

use std::sync::Arc;

use tidegate_sentry::Ending;
use tonic::Streaming;

use crate::doors::Doors;
use crate::proto::access_log::{Common, HttpLogEntry, LogMessage, LogsResponse};

/// Reads a log until Envoy closes it.
pub(crate) async fn read(doors: Arc<Doors>, mut log: Streaming<LogMessage>) -> LogsResponse {
    let open = doors.ends.opened();
    while let Ok(Some(message)) = log.message().await {
        for entry in message.http_logs.iter().flat_map(|logs| &logs.entries) {
            note(&doors, entry);
        }
    }
    drop(open);
    LogsResponse {}
}

fn note(doors: &Doors, entry: &HttpLogEntry) {
    let ending = ending(entry);
    if let Some(request) = &entry.request {
        doors.ends.end(&request.request_id, ending);
    }
    if let Some(seconds) = entry.common.as_ref().and_then(service_seconds)
        && ending != Ending::Dropped
    {
        let served = ending == Ending::Served;
        doors.rates.lock().on_completion(seconds, served);
    }
}

fn ending(entry: &HttpLogEntry) -> Ending {
    let flags = entry
        .common
        .as_ref()
        .and_then(|common| common.flags.as_ref());
    let left = |f: &crate::proto::access_log::ResponseFlags| {
        f.downstream_connection_termination || f.downstream_remote_reset
    };
    let code = entry
        .response
        .as_ref()
        .and_then(|response| response.response_code);
    if flags.is_some_and(left) {
        Ending::Abandoned
    } else if code.is_none_or(|code| code.value >= 500 || code.value == 0) {
        Ending::Dropped
    } else {
        Ending::Served
    }
}

/// Time in the service. Requests that were never sent there have none; those whose client left
/// have been there until then.
fn service_seconds(common: &Common) -> Option<f64> {
    let begin = common.first_upstream_tx?.as_seconds();
    let end = common.last_upstream_rx.or(common.duration)?.as_seconds();
    Some(end - begin)
}
