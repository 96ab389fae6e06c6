//! Our own access log in JSON.

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Line;
use crate::request::{Decision, Ending, Request};

/// The keys of a line that matter here. A log of something else in JSON lacks some of the first.
#[derive(Deserialize)]
struct Logged {
    time: String,
    target: String,
    status: u16,
    ms: f64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    waited_ms: Option<f64>,
    #[serde(default)]
    class: String,
    #[serde(default)]
    replica: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    application: String,
}

pub(super) fn parse(line: &str) -> Result<Line, String> {
    let logged: Logged = serde_json::from_str(line).map_err(|error| format!("JSON: {error}"))?;
    let at = OffsetDateTime::parse(&logged.time, &Rfc3339)
        .map_err(|error| format!("`time`: {error}"))?;
    let micros = |millis: f64| (millis.clamp(0.0, 1e12) * 1e3).round() as u64;
    let (response_us, waiting_us) = (micros(logged.ms), micros(logged.waited_ms.unwrap_or(0.0)));
    let sent = !logged.replica.is_empty();
    let (decision, ending) = outcome(&logged, sent);
    let service_us = if sent {
        response_us.saturating_sub(waiting_us)
    } else {
        0
    };
    Ok(Line {
        at_us: u64::try_from(at.unix_timestamp_nanos() / 1000).unwrap_or(0),
        resolution_us: 1000,
        target: logged.target,
        application: logged.application,
        class: logged.class,
        replica: logged.replica,
        reason: logged.reason,
        untimed: false,
        request: Request {
            decision,
            ending,
            status: logged.status,
            waiting_us,
            service_us,
            response_us,
            response_bytes: logged.bytes,
            ..Request::default()
        },
    })
}

fn outcome(logged: &Logged, sent: bool) -> (Decision, Ending) {
    let waited = logged.waited_ms.is_some_and(|waited| waited > 0.0);
    let admitted = if waited {
        Decision::Waited
    } else {
        Decision::Admitted
    };
    match logged.reason.as_str() {
        "departed" | "abandoned" if sent => (admitted, Ending::Abandoned),
        "departed" | "abandoned" => (Decision::None, Ending::Abandoned),
        "" => (admitted, Ending::Served),
        _ if sent => (admitted, Ending::Failed),
        _ if matches!(logged.status, 429 | 503) => (Decision::Shed, Ending::Unsent),
        _ => (Decision::Rejected, Ending::Unsent),
    }
}
