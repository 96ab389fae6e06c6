//! Status, events, metrics, the kill switch and the exchange of proxies' reports over HTTP.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::json;
use subtle::ConstantTimeEq as _;
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
        (&Method::POST, "/api/kill-switch") => kill_switch(request, board).await,
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
    let refuse = |status, error: &str, remedy| {
        json_answer(status, &json!({ "error": error, "remedy": remedy }))
    };
    let given = request.headers().get(http::header::AUTHORIZATION);
    let shown = given.and_then(|it| it.as_bytes().strip_prefix(b"Bearer "));
    if let Some(token) = &api.token
        && !bool::from(shown.unwrap_or_default().ct_eq(token.as_bytes()))
    {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong",
            "give the proxies' `fleet.token` what is in this daemon's `token_file`",
        );
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

fn status(api: &Api) -> serde_json::Value {
    let fleets = json!(api.reports().proxies(Instant::now()));
    let shared = lock(&api.board);
    let mut status = json!({
        "mode": shared.mode,
        "kill_switch": shared.kill_switch,
        "applications": shared.applications,
        "warnings": shared.warnings,
        "fleets": fleets,
    });
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

async fn kill_switch(request: Request<Incoming>, board: &Board) -> Answer {
    let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    match serde_json::from_slice(&body) {
        Ok(Switch { enabled }) => {
            lock(board).kill_switch = enabled;
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
                text += &format!("{name}{{application=\"{}\"}} {value}\n", application.name);
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
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    answer
}
