//! Applications and pools as an operator sees them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod operator;

use std::fs;

use http::Method;
use operator::Desk;
use serde_json::{Value, json};
use tidegate_proxy::SavedState;
use tidegate_proxy::config::{self, Config};

const TOP: &str = "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n";
const TWO: &str = "
[[application]]
name = 'shop'
hosts = ['shop.example']
upstream = ['http://127.0.0.1:1', 'http://127.0.0.1:2']

[[application]]
name = 'api'
hosts = ['api.example']
upstream = 'http://127.0.0.1:3'
protect.mode = 'off'
";

const POOL: &str = "/api/applications/shop/replicas";

async fn change(desk: &Desk, method: Method, body: &str) -> (u16, Value) {
    let answer = desk.call(desk.request(method, POOL, body)).await;
    (answer.status, answer.json())
}

/// URL, weight and state of every replica, in order.
fn members(pool: &Value) -> String {
    let mut members: Vec<_> = pool["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let url = it["url"]
                .as_str()
                .unwrap()
                .trim_start_matches("http://127.0.0.1:");
            format!("{url}/{}/{}", it["weight"], it["state"].as_str().unwrap())
        })
        .collect();
    members.sort();
    members.join(" ")
}

#[tokio::test]
async fn status_metrics_and_changes_name_the_application() {
    let desk = Desk::start(&format!("{TOP}{TWO}"));
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["applications"]["shop"]["mode"]["name"], "auto");
    assert_eq!(status["applications"]["api"]["mode"]["name"], "off");
    assert!(status.get("engine").is_none(), "there is no single engine");
    let metrics = desk.get("/metrics").await.body;
    assert!(metrics.contains("tidegate_mode_info{application=\"shop\",mode=\"auto\"} 1"));
    assert!(metrics.contains("tidegate_mode_info{application=\"api\",mode=\"off\"} 1"));
    assert_eq!(metrics.matches("# TYPE tidegate_mode_info").count(), 1);

    let refused = desk.post("/api/mode", r#"{"mode":"off"}"#).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    let to = r#"{"target":"300ms"}"#;
    let changed = desk.post("/api/applications/api/parameters", to).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let changed = desk
        .post("/api/applications/shop/mode", r#"{"mode":"off"}"#)
        .await;
    assert_eq!(changed.json()["mode"], "off", "{}", changed.body);
    assert!(
        changed.json()["target"].is_null(),
        "the other one was given it"
    );
    let api = desk.get("/api/config").await.json();
    assert_eq!(api["application"][1]["protect"]["target"], "300ms");
    assert_eq!(desk.get("/api/applications/none").await.status, 404);
    let list = desk.get("/api/applications").await.json();
    assert_eq!(list["applications"][0]["hosts"], json!(["shop.example"]));
}

#[tokio::test]
async fn single_application_is_called_default() {
    let desk = Desk::start(&format!("{TOP}upstream = 'http://127.0.0.1:1'"));
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["applications"]["default"]["mode"]["name"], "auto");
    assert_eq!(
        desk.get("/api/applications/default/replicas").await.status,
        200
    );
}

#[tokio::test]
async fn pool_is_read_replaced_and_patched_whole_or_not_at_all() {
    let desk = Desk::start(&format!("{TOP}{TWO}"));
    let pool = desk.get(POOL).await.json();
    assert_eq!(
        (&pool["application"], &pool["source"]),
        (&json!("shop"), &json!("file"))
    );
    assert_eq!(members(&pool), "1/1/active 2/1/active");

    let put = r#"{"replicas":[{"url":"http://127.0.0.1:2","weight":3},
                              {"url":"http://127.0.0.1:9","state":"draining"}]}"#;
    let (status, pool) = change(&desk, Method::PUT, put).await;
    assert_eq!(
        (status, members(&pool)),
        (200, "2/3/active 9/1/draining".to_owned())
    );
    assert_eq!(pool["source"], "api");

    let patch = r#"{"add":[{"url":"http://127.0.0.1:7","weight":2}],"undrain":["http://127.0.0.1:9"],
                    "drain":["http://127.0.0.1:2"],"weight":{"http://127.0.0.1:9":5}}"#;
    let (status, pool) = change(&desk, Method::PATCH, patch).await;
    let expected = "2/3/draining 7/2/active 9/5/active";
    assert_eq!((status, members(&pool)), (200, expected.to_owned()));
    let engine = desk.get("/api/applications/shop").await.json();
    let up: Vec<_> = engine["replicas"].as_array().unwrap().iter().collect();
    let up = up.iter().filter(|it| it["up"] == true).count();
    assert_eq!(up, 2, "{engine}");

    for (method, wrong) in [
        (
            Method::PATCH,
            r#"{"remove":["http://127.0.0.1:7"],"drain":["http://127.0.0.1:8"]}"#,
        ),
        (Method::PATCH, r#"{"add":[{"url":"http://127.0.0.1:7"}]}"#),
        (
            Method::PUT,
            r#"{"replicas":[{"url":"http://127.0.0.1:4"},{"url":"http://127.0.0.1:4"}]}"#,
        ),
    ] {
        let (status, error) = change(&desk, method, wrong).await;
        assert_eq!(status, 422, "{error}");
        assert_eq!(members(&desk.get(POOL).await.json()), expected, "{wrong}");
    }
    let (status, _) = change(&desk, Method::PUT, r#"{"replicas":[{"url":"nonsense"}]}"#).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn pool_outlives_a_reload_that_does_not_concern_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, format!("{TOP}{TWO}")).unwrap();
    let desk = Desk::start_from(&path);
    let put = r#"{"replicas":[{"url":"http://127.0.0.1:9"}]}"#;
    assert_eq!(change(&desk, Method::PUT, put).await.0, 200);
    fs::write(&path, format!("protect.target = '2s'\n{TOP}{TWO}")).unwrap();
    assert_eq!(desk.post("/api/reload", "").await.status, 200);
    assert_eq!(members(&desk.get(POOL).await.json()), "9/1/active");
    let other = TWO.replace("127.0.0.1:2'", "127.0.0.1:4'");
    fs::write(&path, format!("{TOP}{other}")).unwrap();
    assert_eq!(desk.post("/api/reload", "").await.status, 200);
    let pool = desk.get(POOL).await.json();
    assert_eq!(
        (members(&pool), &pool["source"]),
        ("1/1/active 4/1/active".into(), &json!("file"))
    );
}

#[tokio::test]
async fn pool_is_part_of_the_saved_state() {
    let dir = tempfile::tempdir().unwrap();
    let state_file = dir.path().join("state.json");
    let text = format!("state_file = '{}'\n{TOP}{TWO}", state_file.display());
    let desk = Desk::start(&text);
    let patch = r#"{"remove":["http://127.0.0.1:1"],"drain":["http://127.0.0.1:2"]}"#;
    assert_eq!(change(&desk, Method::PATCH, patch).await.0, 200);
    let saved = SavedState::of(&desk.state).to_string();
    fs::write(&state_file, saved).unwrap();
    let config = Config::from_text("t.toml", &text).unwrap();
    let next = tidegate_proxy::Proxy::bind(config).unwrap();
    let shop = next.state().application("shop").unwrap();
    let settings = shop.settings();
    let pool = settings.pool();
    assert_eq!(pool.members.len(), 1);
    assert!(pool.members[0].is_draining());
    let status = shop.sentry().status(shop.now());
    assert!(!status.replicas[0].up, "it is still drained");
    // Another file names other replicas: they hold.
    let other = text.replace("127.0.0.1:2'", "127.0.0.1:4'");
    let config = Config::from_text("t.toml", &other).unwrap();
    let next = tidegate_proxy::Proxy::bind(config).unwrap();
    let shop = next.state().application("shop").unwrap();
    assert_eq!(shop.settings().pool().members.len(), 2);
}

/// The mode of each of the two in force.
fn modes(desk: &Desk) -> [&'static str; 2] {
    ["shop", "api"].map(|name| {
        let application = desk.state.application(name).unwrap();
        application.config().protect.mode.as_str()
    })
}

async fn post(desk: &Desk, path: &str, body: &str) {
    let answer = desk.post(path, body).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
}

#[tokio::test]
async fn change_of_one_application_in_the_file_leaves_live_changes_of_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, format!("{TOP}{TWO}")).unwrap();
    let desk = Desk::start_from(&path);
    post(&desk, "/api/applications/shop/mode", r#"{"mode":"off"}"#).await;
    post(
        &desk,
        "/api/applications/shop/maintenance",
        r#"{"enabled":true}"#,
    )
    .await;
    post(&desk, "/api/applications/api/mode", r#"{"mode":"auto"}"#).await;
    assert_eq!(modes(&desk), ["off", "auto"]);

    let put = |line: &Value| line["line"].as_str().unwrap().contains("put in force");
    let mut events = desk.events().await;
    fs::write(&path, format!("{TOP}{TWO}retry.budget = '1%'\n")).unwrap();
    events.wait_for("notice", put).await;
    assert_eq!(modes(&desk), ["off", "off"]);
    let shop = desk.state.application("shop").unwrap();
    assert!(shop.config().edge.maintenance.enabled);
    let status = desk.get("/api/status").await.json();
    assert_eq!(
        status["reload"]["changed_live"], true,
        "{}",
        status["reload"]
    );

    // What both inherit from the top is a change of both.
    let top = format!("timeouts.request = '20s'\n{TOP}");
    let mut events = desk.events().await;
    fs::write(&path, format!("{top}{TWO}")).unwrap();
    events.wait_for("notice", put).await;
    assert_eq!(modes(&desk), ["auto", "off"]);
    assert!(!shop.config().edge.maintenance.enabled);
}

#[tokio::test]
async fn reload_of_one_application_drops_its_live_changes_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, format!("{TOP}{TWO}")).unwrap();
    let desk = Desk::start_from(&path);
    for (name, mode) in [("shop", "off"), ("api", "auto")] {
        let path = format!("/api/applications/{name}/mode");
        post(&desk, &path, &json!({ "mode": mode }).to_string()).await;
    }
    assert_eq!(modes(&desk), ["off", "auto"]);
    post(&desk, "/api/applications/api/reload", "").await;
    assert_eq!(modes(&desk), ["off", "off"]);
    post(&desk, "/api/reload", "").await;
    assert_eq!(modes(&desk), ["auto", "off"]);
    let answer = desk.post("/api/applications/none/reload", "").await;
    assert_eq!(answer.status, 404, "{}", answer.body);
    post(&desk, "/api/applications/shop/mode", r#"{"mode":"off"}"#).await;
    fs::write(&path, format!("{TOP}{TWO}protect.mode = 'none'\n")).unwrap();
    let answer = desk.post("/api/applications/api/reload", "").await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert_eq!(modes(&desk), ["off", "off"], "nothing has changed");
}

#[tokio::test]
async fn maintenance_that_was_switched_is_passed_on_until_the_file_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, format!("{TOP}{TWO}")).unwrap();
    let desk = Desk::start_from(&path);
    post(
        &desk,
        "/api/applications/shop/maintenance",
        r#"{"enabled":true}"#,
    )
    .await;
    let passed = SavedState::for_successor(&desk.state).to_string();
    let mut inherited = tidegate_proxy::Inherited {
        saved_state: Some(SavedState::parse(&passed).unwrap()),
        ..Default::default()
    };
    let config = config::load(&path).unwrap().config;
    let next = tidegate_proxy::Proxy::take_over(config, &mut inherited).unwrap();
    let on = |name: &str| {
        let application = next.state().application(name).unwrap();
        application.config().edge.maintenance.enabled
    };
    assert_eq!((on("shop"), on("api")), (true, false));
    let desk = Desk::beside(&next, &path);
    let status = desk.get("/api/status").await.json();
    assert_eq!(status["reload"]["changed_live"], true);
    post(&desk, "/api/reload", "").await;
    assert!(!on("shop"));
    // It is no part of the state file: that of a crash hours ago must not close a shop.
    assert!(
        !SavedState::of(&desk.state)
            .to_string()
            .contains("maintenance")
    );
}

fn problems(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    match config::check("t.toml", text, dir.path()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn same_host_in_two_applications_is_refused_with_both_places() {
    let text = format!("{TOP}{}", TWO.replace("api.example", "Shop.Example"));
    let problems = problems(&text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("t.toml:11:"), "{problems:?}");
    assert!(
        problems[0].ends_with("the other is at t.toml:6:10"),
        "{problems:?}"
    );
}

#[test]
fn problem_of_an_application_is_placed_in_it() {
    let text = format!("{TOP}{TWO}timeouts.request = '0s'\n");
    let found = problems(&text);
    assert!(found[0].starts_with("t.toml:14:"), "{found:?}");
    let inherited = format!("timeouts.request = '0s'\n{TOP}{TWO}");
    let found = problems(&inherited);
    assert!(found[0].starts_with("t.toml:1:"), "{found:?}");
    assert_eq!(found.len(), 1, "said once for both applications: {found:?}");
    for (wrong, said) in [
        ("upstream = 'http://127.0.0.1:8'", "move it into one"),
        (
            "default_application = 'none'",
            "no application of this name",
        ),
    ] {
        let found = problems(&format!("{wrong}\n{TOP}{TWO}"));
        assert!(found[0].contains(said), "{found:?}");
    }
    let twice = format!("{TOP}{}", TWO.replace("'api'", "'shop'"));
    assert!(
        problems(&twice)[0].contains("this name"),
        "{:?}",
        problems(&twice)
    );
}

/// As many as one proxy is meant for. Start, idle CPU and memory: bench/applications/run.
#[test]
fn thousand_applications_of_ten_replicas_are_made_and_changed() {
    let file = |replicas: usize| {
        let mut text = TOP.to_owned();
        for number in 0..1000 {
            let url =
                |it: usize| format!("'http://10.0.{}.{it}:{}'", number % 250, 80 + number / 250);
            let urls: Vec<_> = (0..replicas).map(url).collect();
            text += &format!(
                "[[application]]\nname = 'a{number}'\nhosts = ['a{number}.example']\nupstream = [{}]\n",
                urls.join(", ")
            );
        }
        Config::from_text("many.toml", &text).unwrap()
    };
    let state = tidegate_proxy::state::State::new(file(10)).unwrap();
    assert_eq!(state.applications().len(), 1000);
    let last = state.application("a999").unwrap();
    assert_eq!(last.settings().replica_ids().len(), 10);
    state.apply(file(9)).unwrap();
    assert_eq!(
        last.settings().replica_ids().len(),
        9,
        "the same application goes on"
    );
}
