//! What the control plane says about the applications, where `admin.plane` names one: servers
//! wanted, forecast and reason. It is asked now and then: the page may connect to the admin
//! listener only.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Operator;
use crate::wall_clock::rfc3339;

/// Time between two questions: a plane decides every ten seconds at most.
const EVERY: Duration = Duration::from_secs(5);

/// A plane that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest answer that is read: a thousand applications have half of it.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The control plane as it was asked last.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct PlaneView {
    /// Where it is.
    url: String,
    /// When it was asked last: time of day.
    asked: String,
    /// Why its last answer is not known, and what to do; what is shown is older then.
    trouble: Option<String>,
    /// What it may do: `act`, `advise` and so on, in its own word.
    mode: Option<String>,
    /// Its kill switch is on: it changes nothing.
    kill_switch: bool,
    /// By the names that the plane gives them.
    applications: BTreeMap<String, PlaneApplication>,
}

/// An application as the control plane sees it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
struct PlaneApplication {
    /// Servers that are set.
    servers: u32,
    /// Servers that serve.
    ready: u32,
    /// Servers that start.
    starting: u32,
    /// Servers that it should have by the last plan.
    wanted: Option<u32>,
    /// Requests per second of one server.
    capacity_per_second: Option<f64>,
    /// What is predicted one start of a server ahead, in requests per second.
    forecast: Option<Forecast>,
    /// Why the number of servers is what it is, in words.
    reason: String,
}

/// A predicted rate with its band of one standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
struct Forecast {
    /// What is expected.
    rate_per_second: f64,
    /// One standard deviation below.
    low_per_second: f64,
    /// One standard deviation above.
    high_per_second: f64,
}

/// The plane's own answer, as far as it is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    mode: Option<String>,
    kill_switch: bool,
    applications: Vec<AnsweredApplication>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnsweredApplication {
    name: String,
    servers: u32,
    ready: u32,
    starting: u32,
    needed: Option<u32>,
    capacity: Option<f64>,
    predicted: Option<Predicted>,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Predicted {
    rate: f64,
    error: f64,
}

impl From<AnsweredApplication> for PlaneApplication {
    fn from(of: AnsweredApplication) -> Self {
        let forecast = of.predicted.map(|Predicted { rate, error }| Forecast {
            rate_per_second: rate,
            low_per_second: (rate - error).max(0.0),
            high_per_second: rate + error,
        });
        Self {
            servers: of.servers,
            ready: of.ready,
            starting: of.starting,
            wanted: of.needed,
            capacity_per_second: of.capacity,
            forecast,
            reason: of.reason,
        }
    }
}

impl PlaneView {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            asked: rfc3339(SystemTime::now()),
            trouble: None,
            mode: None,
            kill_switch: false,
            applications: BTreeMap::new(),
        }
    }

    /// Takes an answer in. What is known stays where there is none.
    fn take(&mut self, now: SystemTime, answered: Result<Answer, String>) {
        self.asked = rfc3339(now);
        match answered {
            Ok(answer) => {
                let all = answer.applications.into_iter();
                self.applications = all.map(|of| (of.name.clone(), of.into())).collect();
                self.mode = answer.mode;
                self.kill_switch = answer.kill_switch;
                self.trouble = None;
            }
            Err(cause) => {
                self.trouble = Some(format!(
                    "the control plane at {} does not say what it does: {cause}; start it, or \
                     correct `admin.plane`",
                    self.url
                ));
            }
        }
    }
}

/// Asks the plane that the configuration names, until it is dropped.
pub(super) async fn run(operator: Arc<Operator>) {
    loop {
        let url = operator.state.config().admin.plane.clone();
        match url {
            None => *operator.plane.lock() = None,
            Some(url) => {
                let answered = timeout(PATIENCE, ask(&url)).await;
                let answered = answered.unwrap_or_else(|_| Err("it does not answer".to_owned()));
                let mut plane = operator.plane.lock();
                let mut view = plane.take().filter(|view| view.url == url);
                let known = view.get_or_insert_with(|| PlaneView::new(&url));
                known.take(SystemTime::now(), answered);
                *plane = view;
            }
        }
        sleep(EVERY).await;
    }
}

/// A task that ends with the question.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn ask(url: &str) -> Result<Answer, String> {
    let uri: Uri = url.parse().map_err(|_| "this is no address".to_owned())?;
    let authority = uri.authority().map_or("", |it| it.as_str());
    let address = match uri.port() {
        Some(_) => authority.to_owned(),
        None => format!("{authority}:80"),
    };
    let body = fetch(&address, authority).await?;
    serde_json::from_slice(&body).map_err(|error| format!("its answer is no status: {error}"))
}

async fn fetch(address: &str, authority: &str) -> Result<Bytes, String> {
    let unreachable = |error: io::Error| error.to_string();
    let broken = |error: hyper::Error| error.to_string();
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    let task = tokio::spawn(async move {
        // How it ends shows in the answer.
        let _ = connection.await;
    });
    let _ends = AbortOnDrop(task.abort_handle());
    let request = Request::get("/api/status").header(HOST, authority);
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(|error| error.to_string())?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plane_that_goes_away_leaves_what_it_said_last_and_why_there_is_no_more() {
        let mut view = PlaneView::new("http://127.0.0.1:9191");
        let answer = r#"{
            "mode": "act", "kill_switch": false, "fleets": [],
            "applications": [{
                "name": "shop", "servers": 3, "ready": 2, "starting": 1, "stuck": 0, "needed": 4,
                "target_seconds": 0.3, "rate": 150.0, "capacity": 60.0,
                "predicted": { "at": 1, "rate": 210.0, "error": 30.0, "method": "trend" },
                "prediction_errors": [], "reason": "210/s are predicted"
            }]
        }"#;
        view.take(SystemTime::now(), Ok(serde_json::from_str(answer).unwrap()));
        let shop = view.applications["shop"].clone();
        assert_eq!((shop.wanted, shop.ready), (Some(4), 2));
        let band = shop
            .forecast
            .map(|it| (it.low_per_second, it.high_per_second));
        assert_eq!(band, Some((180.0, 240.0)));
        view.take(SystemTime::now(), Err("it does not answer".to_owned()));
        assert_eq!(view.applications["shop"], shop);
        assert!(view.trouble.unwrap().contains("correct `admin.plane`"));
    }
}
