//! nginx: the combined format, with times behind it.
//!
//! ```text
//! log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status '
//!                  '$body_bytes_sent "$http_referer" "$http_user_agent" '
//!                  '$request_time $upstream_response_time';
//! ```
//!
//! A line is written when the request ends; it arrived `$request_time` before. Several upstream
//! times (`0.1, 0.2`) are those of several attempts, and their sum is the time in replicas.

use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;

use super::{Line, seconds};
use crate::request::{Decision, Ending, Request};

const TIME: &[FormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

pub(super) fn parse(line: &str) -> Result<Line, String> {
    if super::haproxy::is_clf(line) {
        return Err("HAProxy's CLF form".to_owned());
    }
    let (before, rest) = line.split_once('[').ok_or("no `[time]`")?;
    if before.split_whitespace().count() < 3 {
        return Err("no address and user before the time".to_owned());
    }
    let (stamp, rest) = rest
        .split_once("] \"")
        .ok_or("no `\"request\"` behind the time")?;
    let ended = OffsetDateTime::parse(stamp, &TIME).map_err(|error| format!("time: {error}"))?;
    let (asked, rest) = rest.split_once('"').ok_or("no end of the request")?;
    let mut numbers = rest.split_whitespace();
    let status = numbers
        .next()
        .and_then(|text| text.parse().ok())
        .ok_or("no status")?;
    let bytes = numbers
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let tail = rest.rsplit_once('"').map_or("", |(_, tail)| tail);
    let mut times = tail.split([' ', ',', ':']).filter(|text| !text.is_empty());
    let response = times.next().and_then(seconds);
    let response_us = response.unwrap_or(0);
    let upstream: Vec<&str> = times.collect();
    // nginx writes `-` where it asked no upstream.
    let unsent = !upstream.is_empty() && upstream.iter().all(|&text| text == "-");
    let inside: Vec<u64> = upstream.into_iter().filter_map(seconds).collect();
    let service_us = if inside.is_empty() {
        response_us
    } else {
        inside.iter().sum::<u64>().min(response_us)
    };
    let ended_us = u64::try_from(ended.unix_timestamp_nanos() / 1000).unwrap_or(0);
    let target = asked.split(' ').nth(1).unwrap_or("-").to_owned();
    Ok(Line {
        at_us: ended_us.saturating_sub(response_us),
        resolution_us: 1_000_000,
        target,
        untimed: response.is_none(),
        request: Request {
            status,
            service_us,
            response_us,
            response_bytes: bytes,
            ..outcome(status, unsent)
        },
        ..Line::default()
    })
}

/// By its status: nginx answers 499 for a client that left, 502 to 504 for a replica that failed,
/// and 503 without a replica where `limit_req` or `limit_conn` refused.
fn outcome(status: u16, unsent: bool) -> Request {
    let (decision, ending) = match status {
        503 if unsent => (Decision::Shed, Ending::Unsent),
        499 => (Decision::Admitted, Ending::Abandoned),
        502..=504 => (Decision::Admitted, Ending::Failed),
        429 => (Decision::Shed, Ending::Unsent),
        400 | 408 | 413 | 414 | 431 => (Decision::Rejected, Ending::Unsent),
        _ => (Decision::Admitted, Ending::Served),
    };
    Request {
        decision,
        ending,
        ..Request::default()
    }
}
