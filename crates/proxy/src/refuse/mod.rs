//! Turns every [`Fault`] into an answer; the one place that does.
//!
//! Refusing under overload must cost little and must not invite worse: the bodies are rendered
//! once per configuration, the headers are static, the connection stays open (closing it costs four
//! times as much, nearly all of it in the kernel), `retry-after` says when it makes sense to
//! come back, and the page for people ([`people`]) does so by itself.
//!
//! Decision: docs/decisions/0051-refusal-one-pass-no-task.md.

mod grpc;
mod page;
pub(crate) mod people;
pub(crate) mod rate_limit;

use std::rc::Rc;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use tidegate_channel::net::HELD_HEADER;
use tidegate_sentry::{Refusal, ShedReason};

use crate::channel::Held;
use crate::config::RefusalTexts;
use crate::edge;
use crate::fault::{Fault, Invalid};
use crate::http1::{Violation, write};
use crate::message::{Fields, Response};
use crate::metrics::{RequestId, UpstreamFailure};
use crate::response::body::Outbound;
use crate::settings::SettingsError;
use crate::worker::InForce;

/// The reason of a refusal, for programs.
pub(crate) const SHED: HeaderName = HeaderName::from_static("tidegate-shed");

/// Why an item was not passed on: no answer to the item.
const HELD: HeaderName = HeaderName::from_static(HELD_HEADER);
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The id under which `tidegate ctl why` finds a refusal.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of an id that was made here.
const ID_BYTES_USUAL: usize = 16;

/// Longest `retry-after` of the engine.
const RETRY_AFTER_MAX_S: usize = Refusal::RETRY_AFTER_MAX.as_secs() as usize;

/// Longest `retry-after` of a client that was told to wait: a day.
const HELD_MAX_S: f64 = 86_400.0;

/// In which form a client wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    Json,
    /// Problem details (RFC 9457).
    Problem,
    Text,
    /// As gRPC has it: in the headers alone.
    Grpc,
    /// HTML, for a request that must not be repeated unasked: one that sends a form.
    Form,
}

impl Format {
    const ALL: [Self; 6] = [
        Self::Html,
        Self::Json,
        Self::Problem,
        Self::Text,
        Self::Grpc,
        Self::Form,
    ];

    /// How to refuse a request of this method in this format.
    pub(crate) fn for_method(self, method: &Method) -> Self {
        match self {
            Self::Html if !method.is_safe() => Self::Form,
            format => format,
        }
    }

    /// The type of `Accept` that we have and that the client likes best, the first of equals;
    /// programs that name none get plain text.
    pub(crate) fn of(accept: Option<&HeaderValue>) -> Self {
        let accept = accept.map_or(&b""[..], HeaderValue::as_bytes);
        let mut best = (Self::Text, 0);
        for range in accept.split(|&byte| byte == b',') {
            let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let Some(format) = parts.next().and_then(Self::named) else {
                continue;
            };
            let weight = parts.find_map(weight).unwrap_or(WEIGHT_MAX);
            if weight > best.1 {
                best = (format, weight);
            }
            if weight == WEIGHT_MAX {
                break;
            }
        }
        best.0
    }

    fn named(media_type: &[u8]) -> Option<Self> {
        match media_type {
            b"text/html" | b"application/xhtml+xml" => Some(Self::Html),
            b"text/plain" => Some(Self::Text),
            b"application/problem+json" => Some(Self::Problem),
            kind if kind.ends_with(b"json") => Some(Self::Json),
            _ => None,
        }
    }

    /// The status of HTTP that carries a refusal: gRPC has its own beside it.
    fn carried(self, status: StatusCode) -> StatusCode {
        if self == Self::Grpc {
            StatusCode::OK
        } else {
            status
        }
    }

    const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Html | Self::Form => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::Problem => "application/problem+json",
            Self::Text => "text/plain; charset=utf-8",
            Self::Grpc => "application/grpc",
        })
    }
}

/// The weight of what is wanted most, in thousandths.
const WEIGHT_MAX: u16 = 1000;

/// How much a client likes a type, in thousandths: the parameter `q` of `Accept` (RFC 9110 section
/// 12.4.2). One that is not valid is as good as none.
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else {
        return None;
    };
    let value: f32 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (0.0..=1.0)
        .contains(&value)
        .then_some((value * f32::from(WEIGHT_MAX)) as u16)
}

/// Answers that are in use. Applications with the same texts share them: rendered, they are the
/// largest part of an application that has no requests.
static RENDERED: Mutex<Vec<Weak<Refusals>>> = Mutex::new(Vec::new());

/// Answers to overload, rendered.
#[derive(Debug)]
pub(crate) struct Refusals {
    custom: page::Custom,
    /// By reason and format.
    shed: Vec<[Template; Format::ALL.len()]>,
    /// `retry-after` in seconds, by seconds.
    seconds: Vec<HeaderValue>,
}

/// An answer that lacks only the time to come back, and the time of day.
#[derive(Debug)]
struct Template {
    status: StatusCode,
    headers: Fields,
    body: Bytes,
    /// The whole of it for HTTP/1.1, up to where the time to come back stands.
    http1: Vec<u8>,
    /// The headers for HTTP/2.
    http2: HeaderMap,
}

/// A refusal for want of capacity. It is made many times a second when there is no time to
/// spare, so everything in it is ready.
#[derive(Debug)]
pub(crate) struct Shed {
    settings: InForce,
    words: Words,
    id: RequestId,
}

/// Which of the answers to overload is meant.
#[derive(Debug, Clone, Copy)]
struct Words {
    reason: ShedReason,
    format: Format,
    retry_after_s: usize,
}

impl Words {
    fn new(refusal: &Refusal, format: Format) -> Self {
        // Whole seconds, at least one: 0 would invite the client back at once.
        let seconds = refusal.retry_after.as_secs_f64().ceil().max(1.0);
        Self {
            reason: refusal.reason,
            format,
            retry_after_s: (seconds as usize).min(RETRY_AFTER_MAX_S),
        }
    }
}

impl Shed {
    pub(crate) fn new(
        settings: &InForce,
        refusal: &Refusal,
        format: Format,
        id: RequestId,
    ) -> Self {
        Self {
            settings: Rc::clone(settings),
            words: Words::new(refusal, format),
            id,
        }
    }

    fn refusals(&self) -> &Refusals {
        &self.settings.refusals
    }

    fn template(&self) -> &Template {
        self.settings.refusals.template(self.words)
    }

    fn retry_after(&self) -> &HeaderValue {
        self.settings.refusals.retry_after(self.words)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.template().status
    }

    pub(crate) fn body(&self) -> Bytes {
        self.refusals().body(self.words, self.id.number())
    }

    /// Writes it for a client that speaks HTTP/1.1 and reads bodies.
    pub(crate) fn write_http1(&self, out: &mut Vec<u8>, date: &HeaderValue, keep_alive: bool) {
        let template = self.template();
        let end: &[u8] = if keep_alive {
            b"\r\n\r\n"
        } else {
            b"\r\nconnection: close\r\n\r\n"
        };
        let body = self.body();
        let before: [&[u8]; 5] = [
            &template.http1,
            self.retry_after().as_bytes(),
            b"\r\ndate: ",
            date.as_bytes(),
            b"\r\nx-request-id: ",
        ];
        let length: usize = before.iter().map(|part| part.len()).sum();
        out.reserve(length + ID_BYTES_USUAL + end.len() + body.len());
        before.iter().for_each(|part| out.extend_from_slice(part));
        self.id.write(out);
        out.extend_from_slice(end);
        out.extend_from_slice(&body);
    }

    /// Its head for a client that speaks HTTP/2.
    pub(crate) fn http2(&self, date: HeaderValue) -> http::Response<()> {
        let mut head = http::Response::new(());
        *head.status_mut() = self.status();
        let headers = head.headers_mut();
        *headers = self.template().http2.clone();
        // They are there, and only said anew: to insert would first make the map larger.
        for (name, value) in [
            (RETRY_AFTER, self.retry_after().clone()),
            (DATE, date),
            (REQUEST_ID, self.id.header()),
        ] {
            if let Some(said) = headers.get_mut(name) {
                *said = value;
            }
        }
        head
    }
}

/// For those who have something to add, or want less than all of it.
impl From<Shed> for Response<Outbound> {
    fn from(shed: Shed) -> Self {
        let number = shed.id.number();
        let mut response = shed.refusals().response(shed.words, number);
        response.headers.insert(REQUEST_ID, shed.id.header());
        response
    }
}

impl Template {
    fn new(custom: &page::Custom, reason: ShedReason, format: Format) -> Self {
        let mut headers = common_headers(format);
        headers.insert(SHED, HeaderValue::from_static(reason.as_str()));
        if format == Format::Grpc {
            headers.insert(GRPC_STATUS, grpc::UNAVAILABLE);
        }
        let status = format.carried(shed_status(reason));
        let body = custom.overload(format, status, reason.as_str());
        let mut http2 = HeaderMap::from(headers.clone());
        http2.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        // To be said anew each time.
        http2.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        http2.insert(DATE, HeaderValue::from_static(""));
        http2.insert(REQUEST_ID, HeaderValue::from_static(""));
        Self {
            http1: write::start(status, &headers, body.len(), &RETRY_AFTER),
            http2,
            status,
            headers,
            body,
        }
    }
}

/// What every answer of ours says.
fn common_headers(format: Format) -> Fields {
    let no_store = HeaderValue::from_static("no-store");
    Fields::from_iter([
        (CONTENT_TYPE, format.content_type()),
        (CACHE_CONTROL, no_store),
    ])
}

impl Refusals {
    /// The answers with these texts, whose files are read.
    pub(crate) fn of(texts: &RefusalTexts) -> Result<Arc<Self>, SettingsError> {
        let custom = page::Custom::read(texts)?;
        let mut rendered = RENDERED.lock();
        rendered.retain(|it| it.strong_count() > 0);
        let mut known = rendered.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|it| it.custom == custom) {
            return Ok(known);
        }
        let made = Arc::new(Self::render(custom));
        rendered.push(Arc::downgrade(&made));
        Ok(made)
    }

    fn render(custom: page::Custom) -> Self {
        let templates = ShedReason::ALL
            .map(|reason| Format::ALL.map(|format| Template::new(&custom, reason, format)));
        Self {
            shed: templates.into(),
            seconds: (0..=RETRY_AFTER_MAX_S).map(seconds).collect(),
            custom,
        }
    }

    /// The answer to a request that is not passed on.
    pub(crate) fn answer(
        &self,
        fault: &Fault,
        format: Format,
        id: &RequestId,
    ) -> Response<Outbound> {
        let mut response = match fault {
            Fault::Shed(refusal) => self.response(Words::new(refusal, format), id.number()),
            fault => explain(fault, format),
        };
        response.headers.insert(REQUEST_ID, id.header());
        response
    }

    /// The answer to a request that there is no room for.
    fn response(&self, words: Words, salt: u64) -> Response<Outbound> {
        let template = self.template(words);
        let body = Outbound::full(self.body(words, salt));
        let mut response = Response::new(template.status, body);
        response.headers = template.headers.clone();
        let retry_after = self.retry_after(words).clone();
        response.headers.insert(RETRY_AFTER, retry_after);
        response
    }

    /// What a client reads; `salt` differs by request.
    fn body(&self, words: Words, salt: u64) -> Bytes {
        let counting = self
            .custom
            .counting(words.format, words.retry_after_s, salt);
        counting.unwrap_or_else(|| self.template(words).body.clone())
    }

    fn template(&self, words: Words) -> &Template {
        &self.shed[words.reason.index()][words.format as usize]
    }

    fn retry_after(&self, words: Words) -> &HeaderValue {
        &self.seconds[words.retry_after_s]
    }
}

/// A number of seconds. One digit, as most are, is text that no core counts the copies of.
fn seconds(number: usize) -> HeaderValue {
    match "0123456789".get(number..=number) {
        Some(digit) => HeaderValue::from_static(digit),
        None => HeaderValue::from(number),
    }
}

/// 503 says that the service is overloaded; 429 is kept for a client's own quota.
const fn shed_status(_: ShedReason) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

/// An answer that says what is wrong.
fn explain(fault: &Fault, format: Format) -> Response<Outbound> {
    let status = status(fault);
    let body = match (format, fault) {
        (Format::Problem, Fault::Quota(overdrawn)) => {
            page::quota_exceeded(&overdrawn.quota, &detail(fault))
        }
        _ => page::render(format, status, &detail(fault)),
    };
    let mut response = Response::new(format.carried(status), Outbound::full(body));
    response.headers = common_headers(format);
    if format == Format::Grpc {
        response.headers.insert(GRPC_STATUS, grpc::status(status));
        if let Ok(message) = HeaderValue::try_from(detail(fault)) {
            response.headers.insert(GRPC_MESSAGE, message);
        }
    }
    if fault.closes() {
        let close = HeaderValue::from_static("close");
        response.headers.insert(CONNECTION, close);
    }
    if matches!(fault, Fault::Invalid(Invalid::Method) | Fault::LastHop) {
        let methods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        response
            .headers
            .insert(ALLOW, HeaderValue::from_static(methods));
    }
    if matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    ) {
        response
            .headers
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    of_the_edge(fault, &mut response.headers);
    if let Fault::Held(held) = fault {
        let reason = HeaderValue::from_static(held.as_str());
        response.headers.insert(SHED, reason.clone());
        response.headers.insert(HELD, reason);
        if let Some(wait) = held.wait() {
            let seconds = wait.as_secs_f64().ceil().clamp(1.0, HELD_MAX_S) as u64;
            response
                .headers
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
    response
}

/// What the edge adds: where to go, when to come back, and that a quota was it.
fn of_the_edge(fault: &Fault, headers: &mut Fields) {
    match fault {
        Fault::Redirect(target) => {
            headers.insert(LOCATION, (**target).clone());
        }
        Fault::Quota(overdrawn) => {
            headers.insert(SHED, HeaderValue::from_static(fault.as_str()));
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from(edge::retry_after(overdrawn.wait)),
            );
            rate_limit::insert(overdrawn, headers);
        }
        Fault::Maintenance(closed) => {
            let seconds = closed.retry_after.as_secs().max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        _ => {}
    }
}

/// The status of a fault.
pub(crate) fn status(fault: &Fault) -> StatusCode {
    match fault {
        Fault::Malformed(violation) => match violation {
            Violation::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Violation::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            Violation::TargetTooLong => StatusCode::URI_TOO_LONG,
            Violation::HeadTooLarge | Violation::TooManyHeaders => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Violation::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        },
        Fault::Invalid(invalid) => match invalid {
            Invalid::Method => StatusCode::METHOD_NOT_ALLOWED,
            Invalid::Expectation => StatusCode::EXPECTATION_FAILED,
            Invalid::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Invalid::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Invalid::Host
            | Invalid::HostSyntax
            | Invalid::HostMismatch
            | Invalid::FieldValue
            | Invalid::Target
            | Invalid::Body => StatusCode::BAD_REQUEST,
        },
        Fault::Unrouted => StatusCode::NOT_FOUND,
        Fault::Forbidden => StatusCode::FORBIDDEN,
        Fault::Redirect(_) => StatusCode::PERMANENT_REDIRECT,
        Fault::Maintenance(_) => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Quota(_) => StatusCode::TOO_MANY_REQUESTS,
        Fault::ResponseTooLarge => StatusCode::BAD_GATEWAY,
        Fault::LastHop => StatusCode::OK,
        Fault::Shed(refusal) => shed_status(refusal.reason),
        Fault::Held(held) => held_status(*held),
        Fault::TooManyUploads | Fault::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
        Fault::TooManyResets => StatusCode::TOO_MANY_REQUESTS,
        // Nobody has seen the request: it is safe to come back.
        Fault::Upstream(UpstreamFailure::Connect) => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Upstream(_) => StatusCode::BAD_GATEWAY,
        Fault::Deadline => StatusCode::GATEWAY_TIMEOUT,
        Fault::Departed => StatusCode::BAD_REQUEST,
    }
}

fn held_status(held: Held) -> StatusCode {
    match held {
        Held::Throttled(_) | Held::Banned(_) | Held::Again(_) => StatusCode::TOO_MANY_REQUESTS,
        Held::Ahead(_) => StatusCode::TOO_EARLY,
        Held::Stranger | Held::Unproven => StatusCode::FORBIDDEN,
        Held::Conflict => StatusCode::CONFLICT,
        Held::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Held::Late(_) => StatusCode::GONE,
    }
}

/// One sentence for people; nothing about the inside of the service.
fn detail(fault: &Fault) -> String {
    match fault {
        Fault::Malformed(violation) => format!("The request is not valid HTTP: {violation}."),
        Fault::Invalid(invalid) => format!("The request cannot be served: {invalid}."),
        Fault::Unrouted => "There is no application for this host and path.".to_owned(),
        Fault::Forbidden => "Requests from your network are not served here.".to_owned(),
        Fault::Redirect(_) => "The service is reached by https.".to_owned(),
        Fault::Maintenance(closed) => match &closed.message {
            Some(message) => message.to_string(),
            None => "The service is being maintained. Please come back later.".to_owned(),
        },
        Fault::Quota(_) => "You have made too many requests. Please come back later.".to_owned(),
        Fault::ResponseTooLarge => "The service's answer is too large.".to_owned(),
        Fault::LastHop => "The request was to go no further than this proxy.".to_owned(),
        Fault::Shed(_) => "The service is busy.".to_owned(),
        Fault::Held(held) => format!("The request is refused: {held}."),
        Fault::TooManyUploads => "Too many large uploads are under way.".to_owned(),
        Fault::TooManyConnections => "Too many requests of this service are under way.".to_owned(),
        Fault::TooManyResets => "Too many requests were cancelled on this connection.".to_owned(),
        Fault::Upstream(UpstreamFailure::Connect) => "The service cannot be reached.".to_owned(),
        Fault::Upstream(_) => "The service failed to answer.".to_owned(),
        Fault::Deadline => "The service did not answer in time.".to_owned(),
        Fault::Departed => "The request broke off.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use tidegate_sentry::ClassId;

    use super::*;
    use crate::metrics::RequestIds;

    fn accept(value: &str) -> Format {
        Format::of(Some(&value.parse().unwrap()))
    }

    #[test]
    fn applications_with_the_same_texts_share_their_answers() {
        let of = |message: &str| {
            let message = Some(message.to_owned());
            Refusals::of(&RefusalTexts {
                message,
                ..RefusalTexts::default()
            })
            .unwrap()
        };
        let (one, same, other) = (of("shared"), of("shared"), of("another"));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn the_type_that_is_liked_best_decides_and_the_first_of_equals() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert_eq!(accept(browser), Format::Html);
        assert_eq!(accept("application/json, text/plain, */*"), Format::Json);
        assert_eq!(accept("application/problem+json"), Format::Problem);
        assert_eq!(accept("image/png, text/html;q=0.1"), Format::Html);
        let weighed = "text/html; q=0.5, text/plain;q=0.05, application/json;charset=utf-8;q=0.9";
        assert_eq!(accept(weighed), Format::Json);
        assert_eq!(accept("text/html;q=0, application/json"), Format::Json);
        assert_eq!(accept("text/html;q=0.000, */*"), Format::Text);
        assert_eq!(accept("text/html;q=most"), Format::Html);
        assert_eq!(accept("*/*"), Format::Text);
        assert_eq!(Format::of(None), Format::Text);
    }

    fn refusal(retry_after: Duration) -> Fault {
        Fault::Shed(Refusal {
            reason: ShedReason::Predicted,
            class: ClassId(0),
            retry_after,
            measured: 1.0,
            limit: 0.5,
        })
    }

    #[test]
    fn retry_after_is_whole_seconds_within_reason() {
        let refusals = Refusals::of(&RefusalTexts::default()).unwrap();
        for (wait, header) in [
            (Duration::ZERO, "1"),
            (Duration::from_millis(1001), "2"),
            (Duration::from_secs(9999), "60"),
        ] {
            let response = answer(&refusals, &refusal(wait), Format::Text);
            assert_eq!(response.headers[RETRY_AFTER], header);
            assert_eq!(response.headers[SHED], "predicted");
            assert_eq!(response.status, 503);
            assert!(!response.headers.contains(CONNECTION));
        }
    }

    fn answer(refusals: &Refusals, fault: &Fault, format: Format) -> Response<Outbound> {
        refusals.answer(fault, format, &RequestIds::default().make())
    }

    fn body(response: Response<Outbound>) -> String {
        let body = futures_lite(response.body.collect());
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }

    fn futures_lite<F: Future<Output = Result<T, E>>, T, E: std::fmt::Debug>(future: F) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(future).unwrap()
    }

    #[test]
    fn formats_for_programs_ask_for_a_pause_and_give_no_lecture() {
        let refusals = Refusals::of(&RefusalTexts::default()).unwrap();
        for format in [Format::Json, Format::Problem, Format::Text] {
            let text = body(answer(&refusals, &refusal(Duration::ZERO), format));
            assert!(text.contains("wait a moment"), "{format:?}: {text}");
            assert!(!text.contains("everybody"), "{format:?}: {text}");
        }
        let json = body(answer(&refusals, &refusal(Duration::ZERO), Format::Json));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (json["status"].as_u64(), json["reason"].as_str()),
            (Some(503), Some("predicted"))
        );
    }

    #[test]
    fn problem_details_have_the_registered_type() {
        let refusals = Refusals::of(&RefusalTexts::default()).unwrap();
        let problem = |fault: &Fault| {
            let response = answer(&refusals, fault, Format::Problem);
            assert_eq!(response.headers[CONTENT_TYPE], "application/problem+json");
            let text = body(response);
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        };
        let shed = problem(&refusal(Duration::ZERO));
        let registered = "https://iana.org/assignments/http-problem-types#";
        assert_eq!(
            shed["type"],
            format!("{registered}temporary-reduced-capacity")
        );
        assert_eq!(
            (shed["status"].as_u64(), shed["reason"].as_str()),
            (Some(503), Some("predicted"))
        );
        let invalid = problem(&Fault::Malformed(Violation::Framing));
        assert_eq!(
            (invalid["type"].as_str(), invalid["status"].as_u64()),
            (Some("about:blank"), Some(400))
        );
        let resets = problem(&Fault::TooManyResets);
        assert_eq!(
            resets["type"],
            format!("{registered}abnormal-usage-detected")
        );
    }

    #[test]
    fn a_message_of_the_operator_is_escaped_where_it_stands() {
        let texts = RefusalTexts {
            message: Some("<b>\"Back\" soon</b>".into()),
            ..RefusalTexts::default()
        };
        let refusals = Refusals::of(&texts).unwrap();
        let html = body(answer(&refusals, &refusal(Duration::ZERO), Format::Html));
        assert!(html.contains("&lt;b&gt;"), "{html}");
        let json = body(answer(&refusals, &refusal(Duration::ZERO), Format::Json));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["message"], "<b>\"Back\" soon</b>");
    }

    #[test]
    fn faults_of_the_framing_close_the_connection() {
        let refusals = Refusals::of(&RefusalTexts::default()).unwrap();
        let response = answer(
            &refusals,
            &Fault::Malformed(Violation::Framing),
            Format::Text,
        );
        assert_eq!(response.headers[CONNECTION], "close");
        assert_eq!(response.status, 400);
    }
}
