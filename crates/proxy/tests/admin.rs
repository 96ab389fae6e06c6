//! The admin API over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod operator;

use std::io::Read as _;
use std::net::SocketAddr;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};
use operator::{Desk, exposition, soon};
use serde_json::{Value, json};
use tidegate_proxy::Proxy;
use tidegate_proxy::admin::Operations;
use tidegate_proxy::config::{self, Config};
use tidegate_proxy::metrics::{self, RequestId, UpstreamFailure};
use tidegate_proxy::reload::Source;
use tidegate_proxy::state::State;
use tidegate_proxy::trace::TraceId;
use tidegate_sentry::{Arrival, ClassId, Ending, ReplicaId, Verdict};
use tidegate_testing::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PLAIN: &str = r#"
    listen = "127.0.0.1:0"
    upstream = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    admin = "127.0.0.1:0"
    protect.target = "500ms"
    protect.classes = [{ name = "gold" }, { name = "le\"ad" }]
"#;

#[tokio::test]
async fn status_tells_what_the_proxy_does() {
    let desk = Desk::start(PLAIN);
    let answered = desk.get("/api/status").await;
    assert_eq!(answered.status, 200);
    assert_eq!(answered.head.headers["content-type"], "application/json");
    let status = answered.json();
    let application = &status["applications"]["default"];
    assert_eq!(application["mode"]["name"], "auto");
    assert_eq!(application["classes"]["gold"]["rank"], 0);
    assert!(application["classes"]["gold"]["shed"]["predicted"].is_u64());
    assert_eq!(application["replicas"][1]["url"], "http://127.0.0.1:2");
    assert_eq!(application["replicas"][1]["state"], "up");
    for since in [
        &status["started"],
        &application["mode"]["since"],
        &application["overload"]["since"],
        &application["kill_switch"]["since"],
        &application["replicas"][0]["since"],
    ] {
        let since = since.as_str().unwrap();
        assert!(since.len() == 24 && since.ends_with('Z'), "{since}");
    }
    let headline = application["headline"].as_str().unwrap();
    assert!(headline.starts_with("Idle"), "{headline}");
    assert_eq!(status["reload"]["file"], Value::Null);
}

#[tokio::test]
async fn the_config_in_force_is_served_without_its_secrets() {
    let text = format!("{PLAIN}\nsticky = {{ cookie = 'c', secret = 'do not tell anybody' }}");
    let answered = Desk::start(&text).get("/api/config").await;
    assert_eq!(answered.json()["protect"]["target"], "500ms");
    assert_eq!(answered.json()["sticky"]["secret"], "redacted");
    assert!(!answered.body.contains("do not tell"));
}

#[tokio::test]
async fn mode_and_parameters_change_live() {
    let desk = Desk::start(PLAIN);
    let mut events = desk.events().await;
    let answered = desk.post("/api/mode", r#"{ "mode": "off" }"#).await;
    assert_eq!(
        (answered.status, &answered.json()["mode"]),
        (200, &json!("off"))
    );
    let event = events.wait_for("mode", |event| event["to"] == "off").await;
    assert_eq!(event["from"], "auto");

    let patch = r#"{ "target": "300ms", "limits": { "window_max": 64 } }"#;
    let protect = desk.post("/api/parameters", patch).await.json();
    assert_eq!(protect["target"], "300ms");
    assert_eq!(protect["mode"], "off", "other live changes stay");
    let told = |event: &Value| event["line"].to_string().contains("window_max");
    events.wait_for("notice", told).await;
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["reload"]["changed_live"], true);
    assert_eq!(desk.state.config().protect.limits.window_max, 64);
}

#[tokio::test]
async fn wrong_parameters_change_nothing_and_say_why() {
    let desk = Desk::start(PLAIN);
    let before = desk.state.config().protect.clone();
    let misspelt = desk.post("/api/parameters", r#"{ "traget": "1s" }"#).await;
    assert_eq!(misspelt.status, 422);
    assert_eq!(misspelt.json()["remedy"], "did you mean `target`?");
    let bounds = desk
        .post("/api/parameters", r#"{ "limits": { "window_min": 0 } }"#)
        .await;
    assert_eq!(bounds.status, 422);
    assert!(
        bounds.json()["cause"]
            .as_str()
            .unwrap()
            .contains("window_min")
    );
    let lacking = desk.post("/api/mode", r#"{ "mode": "static" }"#).await;
    assert_eq!(lacking.status, 422);
    let lacking = lacking.json();
    assert!(lacking["cause"].to_string().contains("mode `static`"));
    assert!(lacking["remedy"].to_string().contains("static.rate"));
    let mode = desk.post("/api/mode", r#"{ "mode": "fast" }"#).await;
    assert_eq!(mode.status, 400);
    let broken = desk.post("/api/drain", "{").await;
    assert_eq!(broken.status, 400);
    assert!(broken.json()["remedy"].is_string());
    assert_eq!(desk.state.config().protect, before);
}

#[tokio::test]
async fn maintenance_is_a_switch_and_a_warning() {
    let desk = Desk::start(PLAIN);
    for path in ["/api/maintenance", "/api/applications/default/maintenance"] {
        let answered = desk.post(path, r#"{ "enabled": true }"#).await;
        assert_eq!(answered.json(), json!({ "enabled": true }), "{path}");
        assert!(desk.state.config().edge.maintenance.enabled);
        let status = desk.get("/api/status").await.json();
        let warnings = status["applications"]["default"]["warnings"].to_string();
        assert!(warnings.contains("ctl maintenance off"), "{warnings}");
        desk.post(path, r#"{ "enabled": false }"#).await;
        assert!(!desk.state.config().edge.maintenance.enabled);
    }
    assert_eq!(
        desk.post(
            "/api/applications/none/maintenance",
            r#"{ "enabled": true }"#
        )
        .await
        .status,
        404
    );
}

#[tokio::test]
async fn switches_reach_the_engine() {
    let desk = Desk::start(PLAIN);
    let on = r#"{ "enabled": true }"#;
    for path in ["/api/drain", "/api/dry-run", "/api/kill-switch"] {
        assert_eq!(desk.post(path, on).await.json(), json!({ "enabled": true }));
    }
    let status = desk.get("/api/status").await.json();
    let warnings = status["applications"]["default"]["warnings"].to_string();
    for path in ["/api/drain", "/api/kill-switch"] {
        assert!(warnings.contains(path), "{warnings}");
    }
    let application = status["applications"]["default"].clone();
    for switch in ["draining", "dry_run", "kill_switch"] {
        assert_eq!(application[switch]["on"], true, "{switch}");
    }
    assert_eq!(desk.get("/readyz").await.status, 503);
    desk.post("/api/drain", r#"{ "enabled": false }"#).await;
    assert_eq!(desk.get("/readyz").await.status, 200);
}

/// What another process of the operator would ask after the fact.
#[tokio::test]
async fn events_of_the_past_are_chosen_by_type_and_time() {
    let desk = Desk::start(PLAIN);
    let mut events = desk.events().await;
    desk.post("/api/mode", r#"{ "mode": "off" }"#).await;
    events.wait_for("mode", |event| event["to"] == "off").await;
    let past = desk
        .get("/api/events?types=mode,switch&since=1m&follow=false")
        .await;
    let past = past.json();
    assert_eq!(past.as_array().unwrap().len(), 1, "{past}");
    assert_eq!(past[0]["type"], "mode");
    assert!(past[0]["time"].as_str().unwrap().ends_with('Z'));
    let later = desk
        .get("/api/events?since=2999-01-01T00:00:00Z&follow=false")
        .await;
    assert_eq!(later.json(), json!([]));
    let wrong = desk.get("/api/events?types=nonsense").await;
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("overload")
    );
}

#[tokio::test]
async fn a_proxy_without_a_file_has_nothing_to_reload() {
    let answered = Desk::start(PLAIN).post("/api/reload", "").await;
    assert_eq!(answered.status, 409);
    assert!(
        answered.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("-c FILE")
    );
}

#[tokio::test]
async fn a_token_guards_all_but_the_probes() {
    let desk = Desk::start(&format!(
        "{}\nadmin.addr = '127.0.0.1:0'\nadmin.token = 'open sesame'",
        PLAIN.replace("admin = \"127.0.0.1:0\"", "")
    ));
    for path in ["/api/status", "/metrics", "/openapi.json", "/api/events"] {
        let answered = desk.get(path).await;
        assert_eq!(answered.status, 401, "{path}");
        assert_eq!(answered.head.headers["www-authenticate"], "Bearer");
    }
    assert_eq!(
        desk.post("/api/kill-switch", r#"{ "enabled": true }"#)
            .await
            .status,
        401
    );
    assert_eq!(desk.get("/healthz").await.status, 200);
    let mut request = desk.request(Method::GET, "/api/status", "");
    let bearer = "Bearer open sesame".parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    assert_eq!(desk.call(request).await.status, 200);
}

/// As many as the listener takes at a time, and the older ones are closed for the newer ones.
const UNFINISHED: usize = 150;

#[tokio::test]
async fn unfinished_bodies_keep_neither_probes_nor_the_operator_out() {
    let desk = Desk::start(PLAIN);
    let mut events = desk.events().await;
    let get = "GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhalf";
    let mut prober = Client::connect(desk.addr).await;
    assert_eq!(prober.ask(get).await.status, 200, "whatever follows");
    let post = "POST /api/kill-switch HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let mut crowd = Vec::new();
    for number in 0..UNFINISHED {
        let mut client = Client::connect(desk.addr).await;
        client.send(if number % 2 == 0 { get } else { post }).await;
        crowd.push(client);
    }
    assert_eq!(desk.get("/healthz").await.status, 200);
    let switched = desk.post("/api/kill-switch", r#"{ "enabled": true }"#);
    assert_eq!(switched.await.status, 200);
    let on = |line: &Value| line["line"].as_str().unwrap().contains("kill switch on");
    events.wait_for("notice", on).await;
    drop(crowd);
}

#[tokio::test]
async fn pages_of_the_web_are_kept_out() {
    let desk = Desk::start(PLAIN);
    let mut rebound = desk.request(Method::GET, "/api/config", "");
    rebound
        .headers_mut()
        .insert("host", "evil.example".parse().unwrap());
    assert_eq!(desk.call(rebound).await.status, 403);
    let mut crossing = desk.request(Method::POST, "/api/kill-switch", r#"{ "enabled": true }"#);
    let origin = "https://evil.example".parse().unwrap();
    crossing.headers_mut().insert("origin", origin);
    assert_eq!(desk.call(crossing).await.status, 403);
    let form = Request::post("/api/kill-switch")
        .header("host", desk.addr.to_string())
        .header("content-type", "text/plain")
        .body(Full::from(r#"{ "enabled": true }"#))
        .unwrap();
    assert_eq!(desk.call(form).await.status, 415);
    assert_eq!(
        desk.get("/api/status").await.json()["applications"]["default"]["kill_switch"]["on"],
        false
    );
}

#[tokio::test]
async fn bodies_are_bounded() {
    let desk = Desk::start(PLAIN);
    let long = format!("{{ \"target\": \"{}\" }}", "1".repeat(100_000));
    assert_eq!(desk.post("/api/parameters", &long).await.status, 413);
}

#[tokio::test]
async fn every_documented_call_is_served_and_every_served_one_documented() {
    let desk = Desk::start(PLAIN);
    let document = desk.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut documented = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            documented.push(format!("{} {path}", method.to_uppercase()));
            let method = method.to_uppercase().parse().unwrap();
            let called = path.replace("{name}", "default");
            let response = desk.send(desk.request(method, &called, "{}")).await;
            assert!(![404, 405].contains(&response.status().as_u16()), "{path}");
        }
    }
    documented.sort();
    let served = [
        "DELETE /api/applications/{name}/replicas",
        "GET /",
        "GET /api/applications",
        "GET /api/applications/{name}",
        "GET /api/applications/{name}/replicas",
        "GET /api/channel",
        "GET /api/config",
        "GET /api/events",
        "GET /api/fleet",
        "GET /api/history",
        "GET /api/record",
        "GET /api/requests",
        "GET /api/status",
        "GET /healthz",
        "GET /metrics",
        "GET /openapi.json",
        "GET /readyz",
        "PATCH /api/applications/{name}/replicas",
        "POST /api/applications/{name}/drain",
        "POST /api/applications/{name}/dry-run",
        "POST /api/applications/{name}/kill-switch",
        "POST /api/applications/{name}/maintenance",
        "POST /api/applications/{name}/mode",
        "POST /api/applications/{name}/parameters",
        "POST /api/applications/{name}/reload",
        "POST /api/channel",
        "POST /api/drain",
        "POST /api/dry-run",
        "POST /api/fleet/report",
        "POST /api/kill-switch",
        "POST /api/maintenance",
        "POST /api/mode",
        "POST /api/parameters",
        "POST /api/record",
        "POST /api/reload",
        "PUT /api/applications/{name}/replicas",
    ];
    assert_eq!(documented, served);
}

/// Every `$ref` in the document leads somewhere, and every default is one that its schema allows.
#[tokio::test]
async fn the_document_is_whole() {
    fn refs<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                if let Some(default) = map.get("default").and_then(Value::as_array) {
                    let least = map.get("minItems").and_then(Value::as_u64);
                    assert!(least.unwrap_or(0) <= default.len() as u64, "{map:?}");
                }
                map.values().for_each(|inner| refs(inner, found));
            }
            Value::Array(items) => items.iter().for_each(|inner| refs(inner, found)),
            _ => {}
        }
    }
    let document = Desk::start(PLAIN).get("/openapi.json").await.json();
    let mut found = Vec::new();
    refs(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[tokio::test]
async fn unknown_calls_are_told_where_to_look() {
    let desk = Desk::start(PLAIN);
    let nothing = desk.get("/api/nothing").await;
    assert_eq!(nothing.status, 404);
    assert!(
        nothing.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("/openapi.json")
    );
    let wrong = desk.get("/api/mode").await;
    assert_eq!(
        (wrong.status, &wrong.head.headers["allow"]),
        (405, &"POST".parse().unwrap())
    );
}

#[tokio::test]
async fn samples_of_refusals_are_in_the_stream() {
    let desk = Desk::start(PLAIN);
    let mut events = desk.events().await;
    desk.post("/api/drain", r#"{ "enabled": true }"#).await;
    let mut refusal = None;
    let search = events.wait_for("shed", |event| event["reason"] == "draining");
    let keep_refusing = async {
        loop {
            let arrival = Arrival::default();
            let verdict =
                desk.state
                    .first()
                    .sentry()
                    .on_arrival(desk.state.now(), &arrival, || panic!());
            if let Verdict::Shed(shed) = verdict {
                desk.state.first().metrics().core(0).record_shed(&shed);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        event = search => refusal = Some(event),
        () = keep_refusing => {}
    }
    let refusal = refusal.unwrap();
    assert_eq!(refusal["class"], "gold");
    assert!(refusal["limit"].is_number() && refusal["measured"].is_number());
}

#[tokio::test]
async fn refused_request_is_looked_up_by_its_id() {
    let desk = Desk::start(PLAIN);
    let state = desk.state.first();
    state.sentry().set_draining(state.now(), true);
    let arrival = Arrival::default();
    let verdict = state
        .sentry()
        .on_arrival(state.now(), &arrival, || panic!());
    let Verdict::Shed(refusal) = verdict else {
        panic!("{verdict:?}");
    };
    let given = HeaderValue::from_static("edge:7/a+b");
    let id = RequestId::given(&given).expect("it can stand in a log");
    let core = desk.state.metrics().core(0);
    core.remember(metrics::Remembered {
        number: id.number(),
        at: state.now(),
        application: state.key(),
        ending: metrics::Ending::Shed(refusal),
        trace: TraceId::new(0xabc),
    });
    let found = desk.get("/api/requests?id=edge%3A7%2Fa%2Bb").await.json();
    assert_eq!(found["id"], "edge:7/a+b");
    assert_eq!(
        (&found["ending"], &found["application"]),
        (&json!("shed"), &json!("default"))
    );
    assert_eq!(
        (&found["class"], &found["reason"]),
        (&json!("gold"), &json!("draining"))
    );
    assert!(
        found["words"]
            .as_str()
            .unwrap()
            .contains("The operator drains"),
        "{found}"
    );
    assert_eq!(found["trace_id"], "00000000000000000000000000000abc");
    assert!(
        found["words"].as_str().unwrap().ends_with("0abc."),
        "{found}"
    );
    assert_eq!(
        desk.get("/api/requests?id=0000000000000000").await.status,
        404
    );
    assert_eq!(desk.get("/api/requests?id=").await.status, 400);
}

#[tokio::test]
async fn failed_request_is_looked_up_in_words() {
    let desk = Desk::start(PLAIN);
    let application = desk.state.first();
    let given = HeaderValue::from_static("edge-8");
    let id = RequestId::given(&given).unwrap();
    desk.state.metrics().core(0).remember(metrics::Remembered {
        number: id.number(),
        at: desk.state.now(),
        application: application.key(),
        ending: metrics::Ending::Other(metrics::Failing {
            outcome: metrics::Outcome::Failed,
            reason: UpstreamFailure::Reset.as_str(),
            class: Some(ClassId(0)),
            replica: Some(ReplicaId(0)),
            status: 502,
            took: Duration::from_millis(812),
            quota: None,
        }),
        trace: None,
    });
    let found = desk.get("/api/requests?id=edge-8").await.json();
    assert_eq!(
        (&found["ending"], &found["status"]),
        (&json!("failed"), &json!(502))
    );
    let words = found["words"].as_str().unwrap();
    for part in [
        "Failed at ",
        "in class gold",
        "812 ms, answered with 502",
        "sent to http://",
    ] {
        assert!(words.contains(part), "{part} in {words}");
    }
}

#[tokio::test]
async fn history_has_what_an_operator_did_and_comes_compressed_and_in_parts() {
    let desk = Desk::start(PLAIN);
    let dry = desk.post("/api/dry-run", r#"{"enabled":true}"#).await;
    assert_eq!(dry.status, 200);
    let history = desk.get("/api/history").await.json();
    let mark = &history["marks"][0];
    assert_eq!(mark["kind"], "operator");
    assert!(
        mark["words"].as_str().unwrap().starts_with("dry run on"),
        "{mark}"
    );
    let later = mark["time"].as_f64().unwrap() + 1.0;
    let rest = desk
        .get(&format!("/api/history?since={later}"))
        .await
        .json();
    assert_eq!(rest["marks"], json!([]));
    assert_eq!(desk.get("/api/history?since=soon").await.status, 400);
    let mut request = desk.request(Method::GET, "/api/history", "");
    let headers = request.headers_mut();
    headers.insert(
        "accept-encoding",
        HeaderValue::from_static("br, gzip;q=0.5"),
    );
    let packed = desk.send(request).await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let body = packed.into_body().collect().await.unwrap().to_bytes();
    let mut text = String::new();
    GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
    assert!(serde_json::from_str::<Value>(&text).unwrap()["rings"].is_array());
}

#[tokio::test]
async fn callers_without_the_token_look_and_do_not_steer() {
    let text = PLAIN.replace(
        r#"admin = "127.0.0.1:0""#,
        "admin = { addr = '127.0.0.1:0', token = 'open sesame, I say', \
         read_only_without_token = true }",
    );
    assert_ne!(text, PLAIN);
    let desk = Desk::start(&text);
    let status = desk.get("/api/status").await;
    assert_eq!(
        (status.status, &status.json()["read_only"]),
        (200, &json!(true))
    );
    let refused = desk.post("/api/dry-run", r#"{"enabled":true}"#).await;
    assert_eq!(refused.status, 401);
    let switches = desk.state.first().sentry().status(desk.state.now());
    assert!(!switches.dry_run);
    let mut known = desk.request(Method::GET, "/api/status", "");
    let token = HeaderValue::from_static("Bearer open sesame, I say");
    known.headers_mut().insert("authorization", token);
    let body = desk.send(known).await.into_body().collect().await.unwrap();
    let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    assert_eq!(status["read_only"], false);
}

#[tokio::test]
async fn plane_is_asked_and_shown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plane = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await.unwrap();
            assert!(head[..read].starts_with(b"GET /api/status HTTP/1.1\r\n"));
            let body = r#"{"mode":"act","applications":[{"name":"shop","servers":3,"needed":5,
                "predicted":{"rate":90.0,"error":10.0},"reason":"more will arrive"}]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let own = format!("admin = {{ addr = '127.0.0.1:0', plane = 'http://{plane}' }}");
    let desk = Desk::start(&PLAIN.replace(r#"admin = "127.0.0.1:0""#, &own));
    let shown = soon(async {
        loop {
            let status = desk.get("/api/status").await.json();
            if status["plane"]["applications"]["shop"].is_object() {
                break status["plane"].clone();
            }
            tokio::task::yield_now().await;
        }
    });
    let shown = shown.await;
    let shop = &shown["applications"]["shop"];
    assert_eq!(
        (&shop["wanted"], &shown["trouble"]),
        (&json!(5), &Value::Null)
    );
    assert_eq!(shop["forecast"]["low_per_second"], 80.0);
    assert_eq!(shop["reason"], "more will arrive");
}

#[tokio::test]
async fn metrics_are_in_the_format_that_the_scraper_likes_best() {
    let desk = Desk::start(PLAIN);
    let ask = async |accept: &'static str| {
        let mut request = desk.request(Method::GET, "/metrics", "");
        let value = HeaderValue::from_static(accept);
        request.headers_mut().insert("accept", value);
        desk.send(request).await
    };
    for (accept, kind) in [
        ("*/*", "text/plain; version=0.0.4"),
        (
            "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
            "application/openmetrics-text",
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited,text/plain;q=0.3",
            "application/vnd.google.protobuf",
        ),
    ] {
        let answered = ask(accept).await;
        let found = answered.headers()["content-type"].to_str().unwrap();
        assert!(found.starts_with(kind), "{found}");
    }
}

#[tokio::test]
async fn what_classes_earn_is_told_everywhere() {
    let text = PLAIN.replace(
        r#"{ name = "gold" }"#,
        r#"{ name = "gold", revenue = 5.0, guarantee = "2/s" }"#,
    );
    let desk = Desk::start(&text);
    let state = &desk.state;
    let gold = Arrival::default();
    let verdict = state
        .first()
        .sentry()
        .on_arrival(state.now(), &gold, || panic!("there is room"));
    let Verdict::Admit(permit) = verdict else {
        panic!("{verdict:?}");
    };
    let application = state.first();
    let sentry = application.sentry();
    application.pass_on(sentry.on_end(state.now(), permit, Ending::Served));

    let status = desk.get("/api/status").await.json();
    let class = &status["applications"]["default"]["classes"]["gold"];
    assert_eq!(class["revenue_earned"], 5.0, "{class}");
    assert_eq!(class["guarantee"]["rate"], 2.0);
    assert_eq!(status["warnings"], json!([]));
    assert_eq!(status["applications"]["default"]["warnings"], json!([]));
    let page = desk.get("/metrics").await.body;
    for line in [
        "tidegate_revenue_earned_total{application=\"default\",class=\"gold\"} 5",
        "tidegate_revenue_lost_total{application=\"default\",class=\"gold\",reason=\"late\"} 0",
        "tidegate_guarantee_rate{application=\"default\",class=\"gold\"} 2",
        "tidegate_guarantee_admitted_total{application=\"default\",class=\"gold\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
    let mut events = desk.events().await;
    let event = events
        .wait_for("classes", |event| event["classes"]["gold"].is_object())
        .await;
    assert!(event["classes"]["gold"]["revenue_earned_per_second"].is_number());

    let document = desk.get("/openapi.json").await.json();
    let class = &document["components"]["schemas"]["ClassView"]["properties"];
    for field in [
        "revenue_earned",
        "revenue_lost",
        "guarantee",
        "band",
        "target_seconds",
    ] {
        assert!(class[field].is_object(), "{field} in {class}");
    }
}

#[tokio::test]
async fn the_way_of_policing_is_told() {
    let text = format!("{PLAIN}protect.mode = 'sentry'\nprotect.sentry.policing = 'threshold'");
    let desk = Desk::start(&text);
    let status = desk.get("/api/status").await.json();
    let policing = status["applications"]["default"]["policing"].clone();
    assert_eq!(policing["kind"], "threshold", "{policing}");
    let page = desk.get("/metrics").await.body;
    assert!(
        page.contains("tidegate_policing_info{application=\"default\",kind=\"threshold\""),
        "{page}"
    );
}

#[tokio::test]
async fn an_address_in_use_is_refused_with_a_remedy() {
    let desk = Desk::start(PLAIN);
    let text = PLAIN.replace(
        "admin = \"127.0.0.1:0\"",
        &format!("admin = \"{}\"", desk.addr),
    );
    let state = State::new(Config::from_text("f.toml", &text).unwrap()).unwrap();
    let refused = Operations::bind(state, Source::default())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&desk.addr.to_string()) && refused.contains("--admin"),
        "{refused}"
    );
}

#[tokio::test]
async fn metrics_are_valid_and_complete() {
    let desk = Desk::start(PLAIN);
    let application = desk.state.first();
    let core = application.metrics().core(1);
    for micros in [50, 1_000, 1_000_000, 500_000_000] {
        core.record_waiting(ClassId(1), Duration::from_micros(micros));
        let took = Duration::from_micros(micros);
        core.record_served(ClassId(0), ReplicaId(0), took, took);
    }
    core.record_upstream_failure(UpstreamFailure::Timeout);
    core.record_response(200);
    let answered = desk.get("/metrics").await;
    assert!(
        answered.head.headers["content-type"]
            .to_str()
            .unwrap()
            .contains("version=0.0.4")
    );
    let page = exposition::parse(&answered.body);
    let value = |series: &str| *page.get(series).unwrap_or_else(|| panic!("{series}"));
    assert_eq!(
        value(r#"tidegate_waiting_seconds_count{application="default",class="le\"ad"}"#),
        4.0
    );
    assert_eq!(
        value(r#"tidegate_service_seconds_bucket{application="default",class="gold",le="+Inf"}"#),
        4.0
    );
    assert_eq!(
        value(r#"tidegate_upstream_failures_total{application="default",kind="timeout"}"#),
        1.0
    );
    assert_eq!(
        value(r#"tidegate_responses_total{application="default",code="2xx"}"#),
        1.0
    );
    assert_eq!(
        value(r#"tidegate_replica_up{application="default",replica="http://127.0.0.1:2"}"#),
        1.0
    );
    assert_eq!(
        value(r#"tidegate_mode_info{application="default",mode="auto"}"#),
        1.0
    );
    assert_eq!(value("tidegate_config_in_force"), 1.0);
    assert_eq!(
        value(r#"tidegate_target_seconds{application="default",class="gold"}"#),
        0.5
    );
    for family in [
        "tidegate_requests_admitted_total",
        "tidegate_requests_shed_total",
    ] {
        let has = page.keys().any(|series| series.starts_with(family));
        assert!(has, "{family}");
    }
}

/// Answers of 20 ms within the target: power is fifty times the goodput.
#[tokio::test]
async fn power_is_goodput_over_mean_response_time() {
    let desk = Desk::start(PLAIN);
    let application = desk.state.first();
    let took = Duration::from_millis(20);
    let answer_one = || {
        let (now, sentry) = (application.now(), application.sentry());
        let waiter = || unreachable!("there is room");
        if let Verdict::Admit(permit) = sentry.on_arrival(now, &Arrival::default(), waiter) {
            let class = permit.class();
            application.pass_on(sentry.on_end(now, permit, Ending::Served));
            let core = application.metrics().core(1);
            core.record_served(class, ReplicaId(0), took, took);
        }
    };
    let recent = soon(async {
        loop {
            answer_one();
            let status = desk.get("/api/status").await.json();
            let recent = status["applications"]["default"]["recent"].clone();
            if recent["power"].is_number() {
                return recent;
            }
        }
    })
    .await;
    let goodput = recent["in_target_per_second"].as_f64().unwrap();
    let power = recent["power"].as_f64().unwrap();
    assert!(goodput > 0.0);
    assert!((power / goodput - 50.0).abs() < 0.1, "{recent}");
    let page = exposition::parse(&desk.get("/metrics").await.body);
    assert!(page.contains_key(r#"tidegate_power{application="default"}"#));
}

#[tokio::test]
async fn controllers_show_their_terms() {
    let text = format!("{PLAIN}\nprotect.mode = 'pi'");
    let desk = Desk::start(&text);
    let page = exposition::parse(&desk.get("/metrics").await.body);
    for term in ["p", "i", "d"] {
        let series = format!(
            r#"tidegate_controller_term{{application="default",controller="pi",term="{term}"}}"#
        );
        assert!(page.contains_key(&series), "{series}");
    }
    assert!(
        page.contains_key(r#"tidegate_controller_setpoint{application="default",controller="pi"}"#)
    );
}

/// Sends this many requests over one connection, each with a long target.
async fn ask_at_length(addr: SocketAddr, requests: usize) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(8000));
    stream
        .write_all(request.repeat(requests).as_bytes())
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut answers = Vec::new();
    soon(stream.read_to_end(&mut answers)).await.unwrap();
}

#[tokio::test]
async fn cpu_use_of_the_proxy_is_in_the_status_of_every_mode() {
    for mode in ["auto", "off"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tidegate.toml");
        std::fs::write(&file, format!("{PLAIN}\nprotect.mode = '{mode}'")).unwrap();
        let proxy = Proxy::bind(config::load(&file).unwrap().config).unwrap();
        let desk = Desk::beside(&proxy, &file);
        let _running = proxy.start().unwrap();
        let measured = async || {
            let status = desk.get("/api/status").await.json();
            let application = desk.get("/api/applications/default").await.json();
            let shares = [&status["cpu_share"], &application["proxy_cpu_share"]];
            shares.map(Value::as_f64)
        };
        soon(async {
            while measured().await.contains(&None) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let known = measured().await.into_iter().flatten();
        assert!(
            known.clone().count() == 2 && known.clone().all(|share| (0.0..=1.0).contains(&share))
        );
    }
}

#[tokio::test]
async fn lines_that_the_disk_refuses_are_in_metrics_and_status() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tidegate.toml");
    std::fs::write(&file, format!("{PLAIN}\naccess_log = '/dev/full'")).unwrap();
    let proxy = Proxy::bind(config::load(&file).unwrap().config).unwrap();
    let desk = Desk::beside(&proxy, &file);
    let running = proxy.start().unwrap();
    let lost = async || {
        let page = desk.get("/metrics").await.body;
        exposition::parse(&page)[r#"tidegate_access_log_lines_lost_total{cause="refused"}"#]
    };
    assert_eq!(lost().await, 0.0);
    ask_at_length(running.local_addr(), 40).await;
    // The writer is another thread.
    soon(async {
        while lost().await < 20.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let status = desk.get("/api/status").await.json();
    assert!(status["access_log_lines_lost"].as_u64().unwrap() >= 20);
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("access log"), "{warnings}");
}
