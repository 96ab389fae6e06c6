//! What is decided per request: protection, timeouts, limits, sticky sessions.

use http::HeaderName;
use tidegate_config::{Dur, Size};
use tidegate_sentry::SentryError;

use super::super::{Config, Limits, Secret, Sticky, Timeouts};
use super::{Report, SECRET_CHARS_MIN};

/// Less than this cannot hold the headers a browser sends.
const HEAD_BYTES_MIN: Size = Size(1 << 10);

pub(super) fn protect(config: &Config, report: &mut Report) {
    if let Err(error) = config.protect.validate() {
        let path = match &error {
            SentryError::OutOfRange { key, .. } => format!("protect.{key}"),
            SentryError::DuplicateClass(_) | SentryError::TargetGap { .. } => {
                "protect.classes".to_owned()
            }
            _ => format!("protect.{}", config.protect.mode.as_str()),
        };
        report.error(path, error.to_string());
    }
    if let Some(borrowed) = config.protect.borrowed() {
        report.warn("protect.mode", borrowed.message());
    }
}

pub(super) fn header_name(name: &str) -> Result<(), String> {
    HeaderName::try_from(name)
        .map(|_| ())
        .map_err(|_| format!("`{name}` is not a header's name; write one like \"x-customer\""))
}

pub(super) fn timeouts(timeouts: &Timeouts, report: &mut Report) {
    let Timeouts {
        request,
        connect,
        head,
        handshake,
        upload,
        body_idle,
        client_idle,
        upstream_idle,
        grace: _, // zero is a choice: do not wait at shutdown
    } = timeouts;
    let named = [
        ("request", request),
        ("connect", connect),
        ("head", head),
        ("handshake", handshake),
        ("upload", upload),
        ("body_idle", body_idle),
        ("client_idle", client_idle),
        ("upstream_idle", upstream_idle),
    ];
    for (name, value) in named {
        positive(format_args!("timeouts.{name}"), *value, report);
    }
    report.warn_if(
        connect >= request,
        "timeouts.connect",
        "`timeouts.connect` is not shorter than `timeouts.request`, so an unreachable replica costs \
         the whole request; shorten it",
    );
}

pub(super) fn positive(path: impl std::fmt::Display, value: Dur, report: &mut Report) {
    report.error_if(
        value.is_zero(),
        path,
        "zero would expire at once; give a time such as \"5s\"",
    );
}

pub(super) fn limits(limits: &Limits, report: &mut Report) {
    let counts = [
        ("connections", limits.connections),
        ("headers", limits.headers),
        ("streams", limits.streams as usize),
        ("early_resets", limits.early_resets as usize),
    ];
    for (name, count) in counts {
        report.error_if(
            count == 0,
            format_args!("limits.{name}"),
            "zero would refuse everything; give at least 1",
        );
    }
    report.error_if(
        limits.connections_per_address.0 == 0.0,
        "limits.connections_per_address",
        "zero would refuse everything; give a share such as \"50%\"",
    );
    report.error_if(
        limits.head_bytes < HEAD_BYTES_MIN,
        "limits.head_bytes",
        "browsers send more than that; give at least \"1KiB\"",
    );
}

pub(super) fn sticky(sticky: &Sticky, report: &mut Report) {
    match (&sticky.cookie, &sticky.header) {
        (Some(_), Some(_)) => report.error(
            "sticky",
            "`cookie` and `header` are both given; keep one of them",
        ),
        (None, None) => report.error("sticky", "give `cookie` or `header`, or remove [sticky]"),
        (Some(cookie), None) => report.check("sticky.cookie", cookie_name(cookie)),
        (None, Some(header)) => report.check("sticky.header", header_name(header)),
    }
    let short = |secret: &Secret| secret.expose().len() < SECRET_CHARS_MIN;
    report.warn_if(
        sticky.secret.as_ref().is_some_and(short),
        "sticky.secret",
        "it is short enough to be guessed; give at least 16 characters",
    );
}

/// A cookie's name is a token (RFC 6265 4.1.1), as a header's name is.
pub(super) fn cookie_name(name: &str) -> Result<(), String> {
    HeaderName::try_from(name)
        .map(|_| ())
        .map_err(|_| format!("`{name}` is not a cookie's name; use letters, digits, - and _"))
}
