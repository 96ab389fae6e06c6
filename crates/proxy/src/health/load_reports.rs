//! Load reports out of band: ORCA's gRPC service `OpenRcaService`, which sends a report every so
//! often, whether requests come or not.
//!
//! One stream of one method: `StreamCoreMetrics` takes an `OrcaLoadReportRequest` with the interval
//! and answers with a stream of `OrcaLoadReport`. A replica may send less often than it was asked
//! to. A stream that ends, or stays silent, is opened anew after a pause that doubles.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue, TE, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_sentry::{ReplicaId, Report};
use tokio::task::JoinSet;

use super::probe::AGENT;
use crate::application::Application;
use crate::operator_log::notice;
use crate::response::orca;
use crate::upstream::{Replica, connect};

const METHOD: PathAndQuery =
    PathAndQuery::from_static("/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// A flag and a length stand before each message.
const PREFIX_BYTES: usize = 5;

/// A report has a few numbers; what announces more is none.
const REPORT_BYTES_MAX: usize = 64 << 10;

/// The pause before a stream is opened anew, and how long it may become. Chosen: a replica that
/// starts is followed at once, one that has no such service is seldom asked.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A stream is silent after this many intervals without a report, and at least [`SILENCE_MIN`].
const SILENT_INTERVALS: u32 = 10;
const SILENCE_MIN: Duration = Duration::from_secs(10);

/// Reads the reports of a replica and passes them on, until it is dropped.
pub(super) async fn follow(
    application: Arc<Application>,
    replica: Arc<Replica>,
    id: ReplicaId,
    interval: Duration,
) {
    let mut pause = PAUSE;
    let mut known = String::new();
    loop {
        let mut reported = false;
        let pass_on = |utilization| {
            reported = true;
            let report = Report {
                utilization: Some(utilization),
                ..Report::default()
            };
            let now = application.now();
            application.sentry().on_report(now, id, &report);
        };
        let ended = read(&replica, interval, pass_on).await;
        let Err(cause) = ended;
        if cause != known {
            let origin = replica.origin();
            notice(format_args!(
                "replica {origin} sends no load reports: {cause}"
            ));
            known = cause;
        }
        pause = if reported {
            PAUSE
        } else {
            (2 * pause).min(PAUSE_MAX)
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reads one stream to its end.
async fn read(
    replica: &Replica,
    interval: Duration,
    mut pass_on: impl FnMut(f64),
) -> Result<Infallible, String> {
    let silence = (SILENT_INTERVALS * interval).max(SILENCE_MIN);
    let within = |what: &str| format!("{what} within {silence:?}");
    let open = tokio::time::timeout(silence, connect::open(replica)).await;
    let stream = open.map_err(|_| within("no connection"))?;
    let stream = stream.map_err(|error| error.to_string())?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let request = request(replica, interval).ok_or("its name is no host")?;
    let answer = tokio::time::timeout(silence, sender.send_request(request)).await;
    let answer = answer.map_err(|_| within("no answer"))?;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.headers().get("grpc-status");
    if !answer.status().is_success() || status.is_some() {
        let status = status.and_then(|status| status.to_str().ok());
        let (http, grpc) = (answer.status(), status.unwrap_or("none"));
        return Err(format!("it answers {http}, gRPC status {grpc}"));
    }
    let mut body = answer.into_body();
    let mut read = BytesMut::new();
    loop {
        while let Some(message) = message(&mut read)? {
            let report = orca::decode(&message).ok_or("a report is malformed")?;
            report.utilization().into_iter().for_each(&mut pass_on);
        }
        let frame = tokio::time::timeout(silence, body.frame()).await;
        let frame = frame.map_err(|_| within("no report"))?;
        let frame = frame.ok_or("it ended the stream")?;
        let frame = frame.map_err(|error| error.to_string())?;
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data);
        }
    }
}

/// Takes one message out of what was read, once it is whole.
fn message(read: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some((&flag, length)) = read.split_first() else {
        return Ok(None);
    };
    let Some(length) = length.first_chunk() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if flag != 0 || length > REPORT_BYTES_MAX {
        return Err("a report is compressed or too long".to_owned());
    }
    if read.len() < PREFIX_BYTES + length {
        return Ok(None);
    }
    read.advance(PREFIX_BYTES);
    Ok(Some(read.split_to(length).freeze()))
}

fn request(replica: &Replica, interval: Duration) -> Option<Request<Full<Bytes>>> {
    let uri = Uri::builder()
        .scheme(replica.scheme())
        .authority(replica.host().as_bytes())
        .path_and_query(METHOD);
    Request::builder()
        .method(Method::POST)
        .uri(uri.build().ok()?)
        .header(CONTENT_TYPE, GRPC)
        .header(TE, TRAILERS)
        .header(USER_AGENT, AGENT)
        .body(Full::new(ask_for(interval)))
        .ok()
}

/// An `OrcaLoadReportRequest` as a message of gRPC: field 1 is a `google.protobuf.Duration`.
fn ask_for(interval: Duration) -> Bytes {
    let mut duration = BytesMut::new();
    let nanos = u64::from(interval.subsec_nanos());
    for (field, value) in [(1, interval.as_secs()), (2, nanos)] {
        if value > 0 {
            varint(&mut duration, field << 3);
            varint(&mut duration, value);
        }
    }
    let mut message = BytesMut::new();
    varint(&mut message, 1 << 3 | 2);
    varint(&mut message, duration.len() as u64);
    message.extend_from_slice(&duration);
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.extend_from_slice(&message);
    framed.freeze()
}

fn varint(into: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        into.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    into.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_asks_for_the_interval() {
        let asked = ask_for(Duration::from_millis(1500));
        // 1 s and 500 000 000 ns, whose varint has five bytes.
        let expected = [
            0, 0, 0, 0, 10, 0x0a, 8, 0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01,
        ];
        assert_eq!(&asked[..], &expected);
    }

    #[test]
    fn messages_are_taken_out_when_they_are_whole() {
        let mut read = BytesMut::new();
        let sent = [0, 0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 1, 9, 0];
        let mut found = Vec::new();
        for byte in sent {
            read.put_u8(byte);
            found.extend(message(&mut read).unwrap());
        }
        assert_eq!(
            found,
            [Bytes::from_static(&[7, 8]), Bytes::from_static(&[9])]
        );
        let mut compressed = BytesMut::from(&[1, 0, 0, 0, 0][..]);
        assert!(message(&mut compressed).is_err());
        let mut endless = BytesMut::from(&[0, 255, 255, 255, 255][..]);
        assert!(message(&mut endless).is_err());
    }
}
