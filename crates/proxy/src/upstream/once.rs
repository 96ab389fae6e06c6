//! Sends a request once: no other replica, no second time. For copies of requests, whose loss
//! nobody notices.

use std::future::poll_fn;

use http::HeaderValue;

use super::Replica;
use super::download::Download;
use super::http1::{self, Failed};
use super::pool::Sender;
use super::send::{Answer, kind, open, shape};
use crate::message::{Request, Response};
use crate::metrics::UpstreamFailure;
use crate::request::upload::Upload;
use crate::settings::Settings;
use crate::worker::Worker;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// A pooled connection was closed meanwhile, which says nothing of the replica.
    Stale,
    /// The replica failed.
    Failed(UpstreamFailure),
}

/// Sends a request on a pooled connection, or on a new one. `host` is what the client asked for.
pub(crate) async fn send(
    worker: &Worker,
    settings: &Settings,
    replica: &Replica,
    mut request: Request<Upload>,
    host: Option<&HeaderValue>,
) -> Result<Answer, Lost> {
    let pooled = worker.pool.take(replica, worker.about_now());
    let reused = pooled.is_some();
    let sender = match pooled {
        Some(sender) => sender,
        None => open(worker, replica).await.map_err(|cause| {
            replica.note_unreachable(&cause);
            Lost::Failed(UpstreamFailure::Connect)
        })?,
    };
    shape(&mut request, host, settings, replica, &sender);
    match sender {
        Sender::Http1(connection) => {
            let answer = exchange(connection, replica.uid(), request).await;
            answer.map_err(|failed| lost(failed, reused))
        }
        Sender::Http2(mut sender) => {
            let response = sender.send_request(request.into()).await;
            let response = response.map_err(|error| Lost::Failed(kind(&error)))?;
            let mut body = Download::Over;
            let response = Response::from(response).map(|it| body = Download::Http2(it));
            Ok(Answer { response, body })
        }
    }
}

async fn exchange(
    mut connection: Box<http1::Connection>,
    uid: u64,
    mut request: Request<Upload>,
) -> Result<Answer, Failed> {
    connection.begin(&mut request);
    let response = poll_fn(|cx| connection.poll_head(cx, |_, _| {})).await?;
    let body = Download::Http1 { connection, uid };
    Ok(Answer { response, body })
}

fn lost(failed: Failed, reused: bool) -> Lost {
    match failed {
        Failed::Unsent | Failed::Closed | Failed::Declined if reused => Lost::Stale,
        Failed::Seen(failure) => Lost::Failed(failure),
        Failed::Unsent => Lost::Failed(UpstreamFailure::Connect),
        Failed::Closed | Failed::Declined => Lost::Failed(UpstreamFailure::Reset),
    }
}
