//! HAProxy: `option httplog`.
//!
//! ```text
//! 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - -
//!   ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
//! ```
//!
//! The times are TR/Tw/Tc/Tr/Ta in milliseconds: reading the request, waiting in queues,
//! connecting, until the response's head, and all; -1 is a step that was not reached. The stamp is
//! when the request began, without a zone, and is taken for UTC.

use time::PrimitiveDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;

use super::Line;
use crate::request::{Decision, Ending, Request};

const TIME: &[FormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second].[subsecond digits:3]"
);

/// What helps against every other format of HAProxy's.
pub(super) const REMEDY: &str = "`option httplog`";

pub(super) fn parse(line: &str) -> Result<Line, String> {
    if !line.contains(" [") && line.contains("Connect from ") {
        return Err(format!("a connection and no request; set {REMEDY}"));
    }
    if is_clf(line) {
        return Err(format!("HAProxy's CLF form; set {REMEDY} without `clf`"));
    }
    let (_, rest) = line.split_once(" [").ok_or("no `[time]`")?;
    // Syslog's own `haproxy[123]:` stands before the client's address.
    let (stamp, rest) = rest.split_once("] ").ok_or("no end of the time")?;
    let at = PrimitiveDateTime::parse(stamp, &TIME).map_err(|error| format!("time: {error}"))?;
    let mut fields = rest.split_whitespace();
    let frontend = fields.next().ok_or("no frontend")?.trim_end_matches('~');
    let (backend, server) = fields
        .next()
        .and_then(|text| text.split_once('/'))
        .ok_or("no server")?;
    let times = fields.next().ok_or("no times")?;
    let times: Vec<i64> = times
        .split('/')
        .filter_map(|text| text.trim_start_matches('+').parse().ok())
        .collect();
    let &[reading, waiting, connecting, answering, all] = &times[..] else {
        return Err(format!("the times are not TR/Tw/Tc/Tr/Ta; set {REMEDY}"));
    };
    let status: i64 = fields
        .next()
        .and_then(|text| text.parse().ok())
        .ok_or("no status")?;
    let bytes = fields
        .next()
        .and_then(|text| text.trim_start_matches('+').parse().ok());
    let ended = fields.nth(2).ok_or("no termination state")?;
    let asked = rest.rsplit('"').nth(1).ok_or("no request at the end")?;
    let micros = |millis: i64| u64::try_from(millis).unwrap_or(0) * 1000;
    let sent = server != "<NOSRV>" && connecting >= 0;
    let waiting_us = micros(waiting);
    let service_us = if sent {
        micros(all).saturating_sub(micros(reading) + waiting_us)
    } else {
        0
    };
    let (decision, ending, reason) = outcome(ended, sent, waiting, answering);
    let at_us = u64::try_from(at.assume_utc().unix_timestamp_nanos() / 1000).unwrap_or(0);
    Ok(Line {
        at_us: at_us + micros(reading),
        resolution_us: 1000,
        target: asked.split(' ').nth(1).unwrap_or("-").to_owned(),
        application: if backend == frontend {
            String::new()
        } else {
            backend.to_owned()
        },
        replica: if sent {
            server.to_owned()
        } else {
            String::new()
        },
        reason: reason.to_owned(),
        request: Request {
            decision,
            ending,
            status: u16::try_from(status).unwrap_or(0),
            waiting_us,
            service_us,
            response_us: waiting_us + service_us,
            response_bytes: bytes.unwrap_or(0),
            ..Request::default()
        },
        ..Line::default()
    })
}

/// `option httplog clf`: what nginx and Apache write as `"-"` is empty there.
pub(super) fn is_clf(line: &str) -> bool {
    line.contains("] \"") && line.contains(" \"\" \"\" ")
}

/// By the first two letters of the termination state.
fn outcome(
    ended: &str,
    sent: bool,
    waiting: i64,
    answering: i64,
) -> (Decision, Ending, &'static str) {
    let mut letters = ended.chars();
    let (cause, stage) = (letters.next().unwrap_or('-'), letters.next().unwrap_or('-'));
    let admitted = if waiting > 0 {
        Decision::Waited
    } else {
        Decision::Admitted
    };
    match (cause, stage) {
        ('C' | 'c', _) if sent => (admitted, Ending::Abandoned, "abandoned"),
        ('C' | 'c', _) => (Decision::None, Ending::Abandoned, "abandoned"),
        ('s', 'Q') => (Decision::ShedWaiting, Ending::Unsent, "expired"),
        ('P', _) if !sent => (Decision::Rejected, Ending::Unsent, "rejected"),
        ('S' | 's', _) if sent && answering < 0 => (admitted, Ending::Failed, "failed"),
        _ if !sent => (Decision::Shed, Ending::Unsent, "no-server"),
        _ => (admitted, Ending::Served, ""),
    }
}
