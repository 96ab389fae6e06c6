//! Health checks, refusal texts, the admin listener and the access log.

use std::fs;
use std::path::Path;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

use super::super::{
    AccessLog, ActiveHealth, Config, Health, Listener, LogTarget, PassiveHealth, RefusalTexts,
};
use crate::refuse::people::names_seconds;

use super::{Report, SECRET_CHARS_MIN, policy};

pub(super) fn health(health: &Health, report: &mut Report) {
    active(&health.active, report);
    passive(&health.passive, report);
}

fn active(active: &ActiveHealth, report: &mut Report) {
    report.error_if(
        active.path.as_ref().is_some_and(|p| !p.starts_with('/')),
        "health.active.path",
        "a path begins with `/`; add it",
    );
    let unsendable = |path: &&String| path.starts_with('/') && !is_target(path);
    report.error_if(
        active.path.as_ref().filter(unsendable).is_some(),
        "health.active.path",
        "no request can ask for it, so every check would fail; write spaces and the like as %20",
    );
    let host = active.host.as_ref();
    report.error_if(
        host.is_some_and(|host| host.parse::<Authority>().is_err()),
        "health.active.host",
        "it is not a host; write \"shop.example\" or \"shop.example:8080\"",
    );
    policy::positive("health.active.interval", active.interval, report);
    policy::positive("health.active.timeout", active.timeout, report);
    let counts = [
        ("unhealthy_after", active.unhealthy_after),
        ("healthy_after", active.healthy_after),
    ];
    for (name, count) in counts {
        report.error_if(
            count == 0,
            format_args!("health.active.{name}"),
            "zero checks decide nothing; give at least 1",
        );
    }
}

/// Whether it can stand in a request line as it is written.
fn is_target(path: &str) -> bool {
    path.parse::<PathAndQuery>()
        .is_ok_and(|target| target == path)
}

fn passive(passive: &PassiveHealth, report: &mut Report) {
    report.error_if(
        passive.window == 0,
        "health.passive.window",
        "a share of no answers means nothing; give at least 1",
    );
    report.error_if(
        passive.errors.is_some_and(|share| *share == 0.0),
        "health.passive.errors",
        "every replica would be ejected at once; give a share such as \"50%\"",
    );
    policy::positive("health.passive.eject", passive.eject, report);
    report.error_if(
        passive.eject > passive.eject_max,
        "health.passive.eject",
        "the first ejection is longer than the longest; shorten it or raise `eject_max`",
    );
}

pub(super) fn refusal(texts: &RefusalTexts, report: &mut Report) {
    let countdown = texts.countdown.as_deref();
    report.error_if(
        countdown.is_some_and(|text| !names_seconds(text)),
        "refusal.countdown",
        "it does not say how long; write `{seconds}` where the seconds left are to stand",
    );
    let files = [
        ("html", &texts.html),
        ("json", &texts.json),
        ("text", &texts.text),
    ];
    for (format, path) in files {
        let Some(path) = path else { continue };
        let key = format!("refusal.{format}");
        match read(path) {
            Ok(text) if format == "json" => report.check(key, json(path, &text)),
            outcome => report.check(key, outcome),
        }
    }
}

fn json(path: &Path, text: &str) -> Result<(), String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(|_| ())
        .map_err(|error| format!("{} is not JSON: {error}; mend the file", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        format!("cannot read {path}: {error}; check the name and who may read it")
    })
}

pub(super) fn admin(config: &Config, report: &mut Report) {
    let admin = &config.admin;
    if !admin.enabled {
        return;
    }
    let taken = |l: &Listener| l.addr == admin.addr && admin.addr.port() != 0;
    report.error_if(
        config.listen.iter().any(taken),
        "admin.addr",
        "clients are served at this address; choose another port",
    );
    report.error_if(
        admin.token.is_some() && admin.token_file.is_some(),
        "admin.token_file",
        "`token` is given as well; keep one of them",
    );
    match admin.read_token() {
        Err(message) => report.error("admin.token_file", message),
        Ok(None) => report.error_if(
            !admin.addr.ip().is_loopback(),
            "admin.addr",
            "anybody who reaches this address could switch the protection off; give `token`, or \
             listen on 127.0.0.1",
        ),
        Ok(Some(token)) => self::token(token.expose(), report),
    }
    report.error_if(
        admin.read_only_without_token && admin.token.is_none() && admin.token_file.is_none(),
        "admin.read_only_without_token",
        "there is no token, so nobody could change anything; give `token` or `token_file`",
    );
    let plane = admin.plane.as_deref();
    report.error_if(
        plane.is_some_and(|url| !is_plane(url)),
        "admin.plane",
        "it is not where a control plane listens; write its `daemon.listen` as \
         \"http://127.0.0.1:9191\"",
    );
}

/// Whether this can be the address of a control plane: plain HTTP, no path, no password.
pub(super) fn is_plane(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    uri.is_some_and(|uri| {
        let authority = uri.authority().is_some_and(|it| !it.as_str().contains('@'));
        uri.scheme_str() == Some("http") && authority && uri.path() == "/" && uri.query().is_none()
    })
}

/// A token that nobody has to know is none, and one that no header can carry locks everybody out.
fn token(token: &str, report: &mut Report) {
    let visible = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let carried = !token.is_empty() && token.trim() == token && token.bytes().all(visible);
    report.error_if(
        !carried,
        "admin.token",
        "a token is at least one character, of ASCII and without spaces around it; give one that is \
         hard to guess, or leave the key out",
    );
    report.warn_if(
        carried && token.len() < SECRET_CHARS_MIN,
        "admin.token",
        "it is short enough to be guessed; give at least 16 characters",
    );
}

pub(super) fn access_log(log: &AccessLog, report: &mut Report) {
    if let LogTarget::File(path) = &log.to {
        written("access_log", path, report);
    }
}

/// A file that the proxy writes.
pub(super) fn written(key: &str, path: &Path, report: &mut Report) {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty());
    let exists = directory.is_none_or(Path::is_dir);
    report.error_if(
        !exists,
        key,
        "the file's directory does not exist; create it",
    );
    report.error_if(
        path.is_dir(),
        key,
        "this is a directory; give a file's name",
    );
}
