//! Status, events, metrics, the kill switch and the exchange of proxies' reports over HTTP.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use tidegate_plane::Need;
use tokio::net::TcpListener;

use crate::daemon::{Board, lock};
use crate::reports::{self, Reports};

/// Longest body that is read.
const BODY_MAX: usize = 4096;

/// What calls read and change.
#[derive(Debug)]
pub(crate) struct Api {
    board: Board,
    reports: Mutex<Reports>,
    /// What proxies have to show.
    token: Option<String>,
}

impl Api {
    pub(crate) fn new(board: Board, token: Option<String>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // Nanoseconds fit for 500 years.
        let version = since.map_or(0, |since| since.as_nanos() as u64);
        Self {
            board,
            reports: Mutex::new(Reports::new(version)),
            token,
        }
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) async fn serve(listener: TcpListener, api: Arc<Api>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: those that end make room.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        // A report and its answer are many small packets.
        let _ = stream.set_nodelay(true);
        let api = Arc::clone(&api);
        tokio::spawn(async move {
            let answer = |request| answer(request, Arc::clone(&api));
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(request: Request<Incoming>, api: Arc<Api>) -> Result<Answer, Infallible> {
    let board = &api.board;
    let path = request.uri().path().to_owned();
    Ok(match (request.method(), path.as_str()) {
        (&Method::GET, "/api/status") => json_answer(StatusCode::OK, &status(&api)),
        (&Method::GET, "/api/events") => {
            json_answer(StatusCode::OK, &json!({ "events": lock(board).events }))
        }
        (&Method::GET, "/metrics") => text(StatusCode::OK, metrics(board)),
        (&Method::POST, "/api/kill-switch") => kill_switch(request, &api).await,
        (&Method::POST, "/api/fleet/exchange") => exchange(request, &api).await,
        _ => json_answer(
            StatusCode::NOT_FOUND,
            &json!({
                "error": format!("no {} {path}", request.method()),
                "remedy": "GET /api/status, /api/events, /metrics; POST /api/kill-switch, /api/fleet/exchange",
            }),
        ),
    })
}

/// A proxy leaves its report and takes those of the others.
async fn exchange(request: Request<Incoming>, api: &Api) -> Answer {
    let remedy = "give the proxies' `fleet.token` what is in this daemon's `token_file`";
    if let Err(answer) = check_caller(&request, api, remedy) {
        return *answer;
    }
    let Ok(body) = Limited::new(request.into_body(), reports::BODY_MAX)
        .collect()
        .await
    else {
        return refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the report is too long or broke off",
            "reports have at most 4 MiB: let the proxies share fewer applications and replicas",
        );
    };
    let answer = api.reports().exchange(Instant::now(), &body.to_bytes());
    match answer {
        Ok(answer) => respond(StatusCode::OK, "text/plain; charset=utf-8", answer),
        Err(error) => refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            &error,
            "this call is for proxies, see docs/fleet.md",
        ),
    }
}

fn refuse(status: StatusCode, error: &str, remedy: &str) -> Answer {
    json_answer(status, &json!({ "error": error, "remedy": remedy }))
}

/// Who may change something: those who show the token, where there is one, and no web page of
/// another origin. Browsers send `Origin` with every POST, programs do not.
fn check_caller(request: &Request<Incoming>, api: &Api, remedy: &str) -> Result<(), Box<Answer>> {
    let header = |name| request.headers().get(name);
    if header(ORIGIN).is_some() {
        return Err(Box::new(refuse(
            StatusCode::FORBIDDEN,
            "the call comes from a web page",
            "call this from a program, like curl",
        )));
    }
    let shown = header(AUTHORIZATION).and_then(|it| it.as_bytes().strip_prefix(b"Bearer "));
    match &api.token {
        Some(token) if !bool::from(shown.unwrap_or_default().ct_eq(token.as_bytes())) => {
            let error = "the token is missing or wrong";
            Err(Box::new(refuse(StatusCode::UNAUTHORIZED, error, remedy)))
        }
        _ => Ok(()),
    }
}

/// JSON is a content type that a web page cannot send elsewhere without asking first.
fn is_json(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn status(api: &Api) -> serde_json::Value {
    let fleets = json!(api.reports().proxies(Instant::now()));
    let shared = lock(&api.board);
    let mut status = json!({
        "mode": shared.mode,
        "kill_switch": shared.kill_switch,
        "applications": shared.applications,
        "proxies": shared.proxies,
        "warnings": shared.warnings,
        "fleets": fleets,
    });
    if let Some(pool) = &shared.pool {
        status["pool"] = json!(pool);
    }
    if let Some(leader) = &shared.leader {
        status["leadership"] = json!(leader);
    }
    status
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    enabled: bool,
}

async fn kill_switch(request: Request<Incoming>, api: &Api) -> Answer {
    let remedy = "send `Authorization: Bearer TOKEN` with what is in `daemon.token_file`";
    if let Err(answer) = check_caller(&request, api, remedy) {
        return *answer;
    }
    if !is_json(&request) {
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body is not declared as JSON",
            "send `Content-Type: application/json`",
        );
    }
    let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    match serde_json::from_slice(&body) {
        Ok(Switch { enabled }) => {
            lock(&api.board).kill_switch = enabled;
            json_answer(StatusCode::OK, &json!({ "kill_switch": enabled }))
        }
        Err(error) => json_answer(
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!({
                "error": error.to_string(),
                "remedy": "send { \"enabled\": true } to stop acting, false to act again",
            }),
        ),
    }
}

fn metrics(board: &Board) -> String {
    let shared = lock(board);
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: &dyn Fn(usize) -> Option<f64>| {
        text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (index, application) in shared.applications.iter().enumerate() {
            if let Some(value) = value(index) {
                let application = escaped(&application.name);
                text += &format!("{name}{{application=\"{application}\"}} {value}\n");
            }
        }
    };
    let apps = &shared.applications;
    gauge("tidegate_plane_servers", "Servers that are set.", &|i| {
        Some(apps[i].servers.into())
    });
    gauge(
        "tidegate_plane_servers_ready",
        "Servers that serve.",
        &|i| Some(apps[i].ready.into()),
    );
    gauge(
        "tidegate_plane_servers_stuck",
        "Servers that do not get ready.",
        &|i| Some(apps[i].stuck.into()),
    );
    gauge(
        "tidegate_plane_rate",
        "Requests per second, shed ones included.",
        &|i| apps[i].rate,
    );
    gauge(
        "tidegate_plane_rate_predicted",
        "Predicted requests per second.",
        &|i| apps[i].predicted.map(|predicted| predicted.rate),
    );
    gauge(
        "tidegate_plane_capacity",
        "Requests per second of one server.",
        &|i| apps[i].capacity,
    );
    gauge("tidegate_plane_target_seconds", "Target in force.", &|i| {
        Some(apps[i].target_seconds)
    });
    gauge(
        "tidegate_plane_start_seconds",
        "Time a server takes to start.",
        &|i| Some(apps[i].start_seconds),
    );
    gauge(
        "tidegate_plane_servers_needed",
        "Servers that the last plan asks for.",
        &|i| apps[i].needed.map(f64::from),
    );
    for (name, help, model) in [
        (
            "tidegate_plane_servers_by_bound",
            "Servers for the present rate by the bound of G/G/1.",
            by_bound as fn(&Need) -> u32,
        ),
        (
            "tidegate_plane_servers_by_mgc",
            "Servers for the present rate by M/G/c.",
            by_mgc,
        ),
    ] {
        gauge(name, help, &|i| {
            apps[i].need.as_ref().map(|need| model(need).into())
        });
    }
    text += "# HELP tidegate_plane_prediction_error Mean relative error of a method of prediction.\n\
             # TYPE tidegate_plane_prediction_error gauge\n";
    for application in apps {
        let name = escaped(&application.name);
        for (method, error) in &application.prediction_errors {
            let method = method.as_str().replace(' ', "_");
            text += &format!(
                "tidegate_plane_prediction_error{{application=\"{name}\",method=\"{method}\"}} {error}\n"
            );
        }
    }
    if let Some(pool) = &shared.pool {
        for (name, help, value) in [
            (
                "tidegate_plane_pool_revenue",
                "Expected revenue per second of the pool as it is divided.",
                pool.revenue_per_second,
            ),
            (
                "tidegate_plane_pool_revenue_bound",
                "Revenue per second that no division of the pool exceeds.",
                pool.bound_per_second,
            ),
        ] {
            text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
        }
    }
    if let Some(leader) = &shared.leader {
        text += &format!(
            "# HELP tidegate_plane_leader Whether this daemon is the one that acts.\n\
             # TYPE tidegate_plane_leader gauge\ntidegate_plane_leader {}\n",
            u8::from(leader.leads)
        );
    }
    text += "# HELP tidegate_plane_decisions_total Decisions by cause.\n\
             # TYPE tidegate_plane_decisions_total counter\n";
    for ((application, cause), count) in &shared.decisions {
        let application = escaped(application);
        text += &format!(
            "tidegate_plane_decisions_total{{application=\"{application}\",cause=\"{cause}\"}} {count}\n"
        );
    }
    text += &format!(
        "# HELP tidegate_plane_problems_total What went wrong.\n\
         # TYPE tidegate_plane_problems_total counter\n\
         tidegate_plane_problems_total {}\n",
        shared.problems
    );
    text
}

const fn by_bound(need: &Need) -> u32 {
    need.by_bound
}

const fn by_mgc(need: &Need) -> u32 {
    need.by_mgc
}

/// As the exposition format wants label values.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

fn json_answer(status: StatusCode, body: &serde_json::Value) -> Answer {
    respond(status, "application/json", format!("{body}\n"))
}

fn text(status: StatusCode, body: String) -> Answer {
    respond(status, "text/plain; version=0.0.4", body)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
