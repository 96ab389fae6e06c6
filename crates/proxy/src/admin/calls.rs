//! What each call does.

use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HeaderValue, VARY,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Incoming};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_fleet::MESSAGE_BYTES_MAX;
use tidegate_http1::event_stream;
use tidegate_sentry::SentryConfig;

use super::applications::{self, PoolView, Replicas};
use super::error::ApiError;
use super::events::{Filter, Subscription, percent_decoded};
use super::guard::{self, Access};
use super::history::HistoryView;
use super::routes::{Endpoint, ModeChange, ROUTES, Route, Switch, Verb};
use super::status::{ApplicationStatus, RequestView, StatusView};
use super::{Operator, exposition, openapi};
use crate::application::Application;
use crate::channel::{Channel, ChannelCommand};
use crate::config::patched as patched_config;
use crate::metrics::family::Format;
use crate::pool::PoolCommand;
use crate::record::{RecordCommand, RecordingError};
use crate::reload::{ReloadError, Trigger};
use crate::settings::SettingsError;

/// Longest body of a call: a configuration's worth of parameters many times over.
const BODY_MAX: usize = 64 << 10;

/// A call's body must be complete within this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A whole answer, or the stream of events.
pub(super) type Answer = Response<Either<Full<Bytes>, Subscription>>;

/// Answers a call.
pub(super) async fn answer(operator: Arc<Operator>, request: Request<Incoming>) -> Answer {
    match call(&operator, request).await {
        Ok(answer) => answer,
        Err(error) => refusal(&error),
    }
}

async fn call(operator: &Arc<Operator>, request: Request<Incoming>) -> Result<Answer, ApiError> {
    let (parts, body) = request.into_parts();
    let (route, name) = find(&parts.method, parts.uri.path())?;
    let name = (!name.is_empty()).then_some(name);
    let access = if route.guarded {
        let config = operator.state.config();
        guard::check(&parts, operator.token().as_ref(), &config.admin)?
    } else {
        Access::Full
    };
    let most = match route.endpoint {
        Endpoint::FleetReport => MESSAGE_BYTES_MAX,
        _ => BODY_MAX,
    };
    let body = match route.verb {
        // Health checks are answered whatever comes behind their heads.
        Verb::Get => Bytes::new(),
        _ => read(body, most, BODY_TIMEOUT).await?,
    };
    match route.endpoint {
        Endpoint::Page => Ok(page(&parts)),
        Endpoint::Requests => find_request(operator, &parts),
        Endpoint::History => history(operator, &parts),
        Endpoint::Status => json(&StatusView::of(operator, access)),
        Endpoint::Fleet => json(&operator.fleet_status()),
        Endpoint::FleetReport => fleet_report(operator, &body),
        Endpoint::Config => json(&*operator.state.config()),
        Endpoint::Events => events(operator, &parts),
        Endpoint::OpenApi => json(&openapi::document()),
        Endpoint::Metrics => Ok(metrics(operator, &parts)),
        Endpoint::Alive => Ok(whole("text/plain", "alive\n")),
        Endpoint::Ready => ready(operator),
        Endpoint::Applications => json(&applications::List::of(operator)),
        Endpoint::Application => {
            let application = applications::find(operator, name)?;
            json(&ApplicationStatus::of(operator, &application))
        }
        Endpoint::Replicas => {
            let application = applications::find(operator, name)?;
            json(&PoolView::of(&operator.state, &application))
        }
        Endpoint::PutReplicas => {
            let Replicas { replicas } = parse(&body)?;
            change_pool(operator, name, PoolCommand::Put(replicas)).await
        }
        Endpoint::PatchReplicas => {
            change_pool(operator, name, PoolCommand::Patch(parse(&body)?)).await
        }
        Endpoint::ResetReplicas => change_pool(operator, name, PoolCommand::Reset).await,
        Endpoint::Drain | Endpoint::DrainOf => drain(operator, name, parse(&body)?),
        Endpoint::KillSwitch | Endpoint::KillSwitchOf => kill_switch(operator, name, parse(&body)?),
        Endpoint::Maintenance | Endpoint::MaintenanceOf => {
            maintenance(operator, name, parse(&body)?).await
        }
        Endpoint::Mode | Endpoint::ModeOf => change_mode(operator, name, parse(&body)?).await,
        Endpoint::DryRun | Endpoint::DryRunOf => dry_run(operator, name, parse(&body)?).await,
        Endpoint::Parameters | Endpoint::ParametersOf => {
            change_parameters(operator, name, parse(&body)?).await
        }
        Endpoint::Reload | Endpoint::ReloadOf => reload(operator, name).await,
        Endpoint::Channel => channel(operator),
        Endpoint::Recording => json(&operator.state.recording()),
        Endpoint::Record => record(operator, parse(&body)?).await,
        Endpoint::CommandChannel => command_channel(operator, &parse(&body)?),
    }
}

/// The web page, as the build put it into the binary.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/dashboard.html"));

/// The page loads nothing from elsewhere, talks to this listener only, and is in no other's frame.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

fn page(parts: &Parts) -> Answer {
    let mut response = compressed(parts, "text/html; charset=utf-8", PAGE.as_bytes());
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, PAGE_POLICY);
    response
}

/// The call, and the application that its path names.
fn find<'a>(method: &Method, path: &'a str) -> Result<(&'static Route, &'a str), ApiError> {
    let verb = match *method {
        Method::HEAD => Verb::Get.as_str(),
        _ => method.as_str(),
    };
    let at_path = || {
        let routes = ROUTES.iter();
        routes.filter_map(|route| Some((route, route.matches(path)?)))
    };
    if let Some(found) = at_path().find(|(route, _)| route.verb.as_str() == verb) {
        return Ok(found);
    }
    match at_path().next() {
        Some((route, _)) => Err(ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{path} cannot be called with {method}"),
            format!("use {}", route.verb.as_str()),
        )
        .with_header(ALLOW, route.verb.as_str())),
        None => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            format!("there is nothing at {path}"),
            "see /openapi.json for what there is",
        )),
    }
}

/// A report of another proxy of the fleet.
fn fleet_report(operator: &Operator, body: &[u8]) -> Result<Answer, ApiError> {
    let Some(node) = &operator.fleet else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "this proxy is in no fleet",
            "give it a section `[fleet]`, or take its address out of the other's `fleet.peers`",
        ));
    };
    let answer = node.on_report(&operator.state, body)?;
    let mut response = Response::new(Either::Left(Full::new(answer)));
    set_type(&mut response, "application/json");
    Ok(response)
}

async fn read<B>(body: B, most: usize, within: Duration) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let whole = Limited::new(body, most).collect();
    match tokio::time::timeout(within, whole).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
            format!("send it within {} s", within.as_secs()),
        )),
        Ok(Err(_)) => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too long or broke off",
            format!("send at most {most} bytes"),
        )),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("the body is not what the call takes: {error}"),
            "see /openapi.json for the body",
        )
    })
}

fn events(operator: &Operator, parts: &Parts) -> Result<Answer, ApiError> {
    let query = parts.uri.query().unwrap_or_default();
    let refused = |message: String| ApiError::from_message(StatusCode::BAD_REQUEST, &message);
    let filter = Filter::parse(query, SystemTime::now()).map_err(refused)?;
    if filter.is_past_only() {
        return Ok(whole("application/json", operator.events.past(&filter)));
    }
    let subscription = operator.events.subscribe(filter).ok_or_else(|| {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are too many readers of the event stream",
            "close another reader",
        )
    })?;
    let mut response = Response::new(Either::Right(subscription));
    set_type(&mut response, event_stream::MEDIA_TYPE);
    Ok(response)
}

/// All metrics, in the format that the scraper likes best.
fn metrics(operator: &Operator, parts: &Parts) -> Answer {
    let accept = parts.headers.get_all(ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
    let format = Format::of(&accept.join(","));
    let page = format.write(&exposition::families(operator));
    whole(format.content_type(), page)
}

/// The history of the application that `application=NAME` names, or of the only one; with
/// `since=SECONDS` only what is later.
fn history(operator: &Operator, parts: &Parts) -> Result<Answer, ApiError> {
    let query = parts.uri.query().unwrap_or_default();
    let name = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("application="));
    let application = applications::find(operator, name.filter(|name| !name.is_empty()))?;
    let since = query.split('&').find_map(|it| it.strip_prefix("since="));
    let since = since.map_or(Ok(0.0), str::parse).map_err(|_| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "`since` is no number",
            "send the time of the last point that is known, in seconds since 1970",
        )
    })?;
    let view = operator.watch(application.name(), |watch| HistoryView::of(watch, since));
    let bytes = serde_json::to_vec(&view).map_err(|error| unwritable(&error))?;
    Ok(compressed(parts, "application/json", &bytes))
}

/// What became of a request that was not served.
fn find_request(operator: &Operator, parts: &Parts) -> Result<Answer, ApiError> {
    let query = parts.uri.query().unwrap_or_default();
    let given = query.split('&').find_map(|pair| pair.strip_prefix("id="));
    let id = given.filter(|id| !id.is_empty()).map(percent_decoded);
    let id = id.ok_or_else(|| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "this is no id of a request",
            "send ?id= with what its answer had as x-request-id",
        )
    })?;
    let state = &operator.state;
    let found = state.metrics().find_request(&id).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            format!("no request {id} that was not served is remembered"),
            "it was served, or is older than the last hundred thousand; see the access log",
        )
    })?;
    let applications = state.applications();
    let its = applications.iter().find(|it| it.key() == found.application);
    let time = state.clock().time_of_day(found.at);
    json(&RequestView::of(its.map(|it| &**it), time, &id, &found))
}

/// The application whose channel is meant: the first that has one.
fn with_channel(operator: &Operator) -> Result<Arc<Application>, ApiError> {
    let applications = operator.state.applications();
    let mut with_channel = applications.iter().filter(|it| it.channel().is_some());
    with_channel.next().cloned().ok_or_else(|| {
        ApiError::new(
            StatusCode::CONFLICT,
            "there is no channel",
            "add a [channel] section to the configuration and start again",
        )
    })
}

fn channel(operator: &Operator) -> Result<Answer, ApiError> {
    let application = with_channel(operator)?;
    json(&application.channel().map(Channel::status))
}

fn command_channel(operator: &Operator, command: &ChannelCommand) -> Result<Answer, ApiError> {
    let application = with_channel(operator)?;
    let done = application
        .channel()
        .map(|channel| channel.command(command));
    done.unwrap_or(Ok(())).map_err(|cause| {
        let remedy = "see /openapi.json for what can be done, /api/channel for who is known";
        ApiError::new(StatusCode::BAD_REQUEST, cause, remedy)
    })?;
    operator.changed(Some(application.name()), &format!("channel: {command:?}"));
    channel(operator)
}

fn ready(operator: &Operator) -> Result<Answer, ApiError> {
    match operator.not_ready() {
        None => Ok(whole("text/plain", "ready\n")),
        Some((why, remedy)) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(ApiError::new(status, why, remedy))
        }
    }
}

/// The application that a call names, or all of them.
fn named_or_all(
    operator: &Operator,
    name: Option<&str>,
) -> Result<Vec<Arc<Application>>, ApiError> {
    match name {
        Some(_) => Ok(vec![applications::find(operator, name)?]),
        None => Ok(operator.state.applications().iter().cloned().collect()),
    }
}

fn drain(operator: &Operator, name: Option<&str>, switch: Switch) -> Result<Answer, ApiError> {
    for application in named_or_all(operator, name)? {
        let now = application.now();
        application.sentry().set_draining(now, switch.enabled);
    }
    let said = if switch.enabled {
        "draining: new requests are refused"
    } else {
        "taking requests again"
    };
    operator.changed(name, said);
    json(&switch)
}

async fn record(operator: &Arc<Operator>, command: RecordCommand) -> Result<Answer, ApiError> {
    let its = Arc::clone(operator);
    let done = blocking(move || its.state.record(&command)).await?;
    let status = done.map_err(|error| {
        let status = match error {
            RecordingError::Running(_) => StatusCode::CONFLICT,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        ApiError::from_message(status, &error.to_string())
    })?;
    operator.notice(if status.enabled {
        "recording begins"
    } else {
        "recording ends"
    });
    json(&status)
}

fn kill_switch(
    operator: &Operator,
    name: Option<&str>,
    switch: Switch,
) -> Result<Answer, ApiError> {
    for application in named_or_all(operator, name)? {
        let now = application.now();
        let sentry = application.sentry();
        application.pass_on(sentry.set_kill_switch(now, switch.enabled));
    }
    let said = if switch.enabled {
        "kill switch on: everything is admitted"
    } else {
        "kill switch off"
    };
    operator.changed(name, said);
    json(&switch)
}

async fn maintenance(
    operator: &Arc<Operator>,
    name: Option<&str>,
    switch: Switch,
) -> Result<Answer, ApiError> {
    let applications = named_or_all(operator, name)?;
    let names: Vec<_> = applications.iter().map(|it| it.name().to_owned()).collect();
    let (its, enabled) = (Arc::clone(operator), switch.enabled);
    blocking(move || its.reloader.set_maintenance(&names, enabled)).await??;
    let said = if switch.enabled {
        "maintenance on: everything is answered with the maintenance page"
    } else {
        "maintenance off"
    };
    operator.changed(name, said);
    json(&switch)
}

impl From<SettingsError> for ApiError {
    fn from(error: SettingsError) -> Self {
        Self::from_message(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string())
    }
}

async fn change_mode(
    operator: &Arc<Operator>,
    name: Option<&str>,
    to: ModeChange,
) -> Result<Answer, ApiError> {
    let set = move |protect: &mut SentryConfig| {
        protect.mode = to.mode;
        Ok(())
    };
    let mode = to.mode.as_str();
    let application = applications::find(operator, name)?;
    let said = format!("mode {mode} from now on");
    change(operator, &application, name, set, &said).await?;
    json(&application.config().protect)
}

async fn dry_run(
    operator: &Arc<Operator>,
    name: Option<&str>,
    switch: Switch,
) -> Result<Answer, ApiError> {
    let application = applications::find(operator, name)?;
    let set = move |protect: &mut SentryConfig| {
        protect.dry_run = switch.enabled;
        Ok(())
    };
    let said = if switch.enabled {
        "dry run on: everything is admitted, and what would be refused is counted"
    } else {
        "dry run off"
    };
    change(operator, &application, name, set, said).await?;
    json(&switch)
}

async fn change_parameters(
    operator: &Arc<Operator>,
    name: Option<&str>,
    patch: Value,
) -> Result<Answer, ApiError> {
    let application = applications::find(operator, name)?;
    let said = format!("parameters were changed: {patch}");
    let set = move |protect: &mut SentryConfig| {
        *protect = patched(protect, &patch)?;
        Ok(())
    };
    change(operator, &application, name, set, &said).await?;
    json(&application.config().protect)
}

/// Changes the protection, away from the thread that drives the engine: files are read again.
async fn change(
    operator: &Arc<Operator>,
    application: &Arc<Application>,
    name: Option<&str>,
    change: impl FnOnce(&mut SentryConfig) -> Result<(), ApiError> + Send + 'static,
    said: &str,
) -> Result<(), ApiError> {
    let its = Arc::clone(operator);
    let its_name = application.name().to_owned();
    blocking(move || its.reloader.change_protection(&its_name, change)).await??;
    operator.changed(name, said);
    Ok(())
}

async fn change_pool(
    operator: &Arc<Operator>,
    name: Option<&str>,
    command: PoolCommand,
) -> Result<Answer, ApiError> {
    let its = Arc::clone(operator);
    let name = name.unwrap_or_default().to_owned();
    json(&blocking(move || applications::change_pool(&its, &name, &command)).await??)
}

async fn reload(operator: &Arc<Operator>, name: Option<&str>) -> Result<Answer, ApiError> {
    let trigger = match name {
        Some(_) => Trigger::AskedOf(applications::find(operator, name)?.name().to_owned()),
        None => Trigger::Asked,
    };
    let its = Arc::clone(operator);
    match blocking(move || its.reload(&trigger)).await? {
        Ok(()) => json(&operator.reloader.status()),
        Err(error) => {
            let status = match error {
                ReloadError::NoFile | ReloadError::NeedsRestart(_) => StatusCode::CONFLICT,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            Err(ApiError::from_message(status, &error.to_string()))
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the call failed inside",
            "see the log",
        )
    })
}

/// A JSON merge patch (RFC 7396) over the protection in force. What comes out is read like a
/// file, so a misspelt key is answered with the nearest.
fn patched(protect: &SentryConfig, patch: &Value) -> Result<SentryConfig, ApiError> {
    let refused = |message: &str| ApiError::from_message(StatusCode::UNPROCESSABLE_ENTITY, message);
    if !patch.is_object() {
        return Err(refused(
            "the body is not an object; send { \"target\": \"300ms\" }",
        ));
    }
    patched_config(protect, patch).map_err(|message| refused(&message))
}

fn json(value: &impl Serialize) -> Result<Answer, ApiError> {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(whole("application/json", bytes)),
        Err(error) => Err(unwritable(&error)),
    }
}

fn unwritable(error: &serde_json::Error) -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the answer cannot be written: {error}"),
        "report this",
    )
}

/// An answer that is worth compressing, in gzip where the caller takes that.
fn compressed(parts: &Parts, kind: &'static str, body: &[u8]) -> Answer {
    let accepted = parts.headers.get_all(ACCEPT_ENCODING).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    let takes_gzip = accepted.any(|value| value.split(',').any(is_gzip));
    let packed = takes_gzip.then(|| gzipped(body)).and_then(Result::ok);
    let is_packed = packed.is_some();
    let body = packed.unwrap_or_else(|| body.to_vec());
    let mut response = whole(kind, body);
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Whether a part of `Accept-Encoding` takes gzip.
fn is_gzip(part: &str) -> bool {
    let mut part = part.split(';').map(str::trim);
    let named = part
        .next()
        .is_some_and(|it| it.eq_ignore_ascii_case("gzip"));
    named && !part.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
}

fn gzipped(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

fn whole(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    set_type(&mut response, kind);
    response
}

fn set_type<B>(response: &mut Response<B>, kind: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

fn refusal(error: &ApiError) -> Answer {
    let body = serde_json::to_vec(error).unwrap_or_default();
    let mut response = whole("application/json", body);
    *response.status_mut() = error.status;
    if let Some((name, value)) = &error.header {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name.clone(), value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_read_like_a_file() {
        let protect = SentryConfig::default();
        let with = |patch: Value| patched(&protect, &patch);
        let changed = with(json!({ "target": "300ms", "limits": { "window_max": 50 } })).unwrap();
        assert_eq!(changed.target.unwrap().as_millis(), 300);
        assert_eq!(changed.limits.window_max, 50);
        assert_eq!(changed.queue, protect.queue);
        let back = patched(&changed, &json!({ "target": null, "limits": null })).unwrap();
        assert_eq!(back, protect);
        let misspelt = with(json!({ "traget": "1s" })).unwrap_err();
        assert_eq!(misspelt.remedy, "did you mean `target`?");
        let wrong = with(json!({ "target": "soon" })).unwrap_err();
        assert!(wrong.remedy.starts_with("write a number with a unit"));
        assert_eq!(with(json!([])).unwrap_err().status, 422);
    }

    #[test]
    fn page_is_small_and_gzip_is_for_those_who_take_it() {
        assert!(gzipped(PAGE.as_bytes()).unwrap().len() <= 300_000);
        for (part, takes) in [
            ("gzip", true),
            (" GZIP;q=0.5", true),
            ("gzip; q=0", false),
            ("br", false),
            ("x-gzip", false),
        ] {
            assert_eq!(is_gzip(part.trim()), takes, "{part}");
        }
    }

    #[test]
    fn what_is_not_there_says_what_is() {
        let status = |method: &Method, path: &str| {
            find(method, path).map_or_else(|error| error.status.as_u16(), |_| 200)
        };
        assert_eq!(status(&Method::GET, "/api/status"), 200);
        assert_eq!(status(&Method::HEAD, "/api/status"), 200);
        assert_eq!(status(&Method::GET, "/api/mode"), 405);
        assert_eq!(status(&Method::GET, "/nothing"), 404);
        assert_eq!(status(&Method::GET, "/api/applications/shop"), 200);
        assert_eq!(
            status(&Method::PATCH, "/api/applications/shop/replicas"),
            200
        );
        assert_eq!(
            status(&Method::DELETE, "/api/applications/shop/replicas"),
            200
        );
        assert_eq!(status(&Method::DELETE, "/api/applications/shop"), 405);
        assert_eq!(status(&Method::GET, "/api/applications//replicas"), 404);
        assert_eq!(status(&Method::GET, "/api/applications/a/b"), 404);
    }

    /// A body of which nothing comes.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Pending
        }
    }

    #[tokio::test]
    async fn body_that_does_not_come_is_given_up() {
        let error = read(Silent, 10, Duration::ZERO).await.unwrap_err();
        assert_eq!(refusal(&error).status(), StatusCode::REQUEST_TIMEOUT);
        let read = read(Full::new(Bytes::from("all")), 10, BODY_TIMEOUT).await;
        assert_eq!(read.unwrap(), "all");
    }
}
