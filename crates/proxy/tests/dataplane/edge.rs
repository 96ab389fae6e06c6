//! What a proxy at the edge does beside protecting.

use tidegate_proxy::Running;
use tokio::io::AsyncWriteExt;

use crate::support::{
    Client, Service, ask, eventually, proxy, proxy_from, raw_service, read_head, text,
};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\n\r\n")
}

/// A service that answers with the target and the headers that it got.
async fn mirror() -> Service {
    Service::start(|request| async move {
        let mut said = request.uri().to_string();
        for (name, value) in request.headers() {
            said += &format!("\n{name}: {}", value.to_str().unwrap());
        }
        let mut reply = text(said);
        reply
            .headers_mut()
            .insert("server", "secret/1.0".parse().unwrap());
        reply
    })
    .await
}

fn reconfigured(proxy: &Running, change: impl FnOnce(&mut tidegate_proxy::config::Config)) {
    let mut config = (*proxy.state().config()).clone();
    change(&mut config);
    proxy.state().apply(config).unwrap();
}

#[tokio::test]
async fn rate_quota_answers_429_apart_from_load_shedding() {
    let service = Service::echo().await;
    let quota = "[[edge.quotas]]\nname = 'login'\npath = '/login'\nrate = '1/h'\nburst = 2\nmethods = ['get']";
    let proxy = proxy(&[service.addr], quota);
    let mut client = Client::connect(proxy.local_addr()).await;
    let unconcerned = client.ask(get("/other")).await;
    assert_eq!(unconcerned.header("ratelimit"), None);
    for left in [r#""login";r=1"#, r#""login";r=0;t=3600"#] {
        let admitted = client.ask(get("/login/now")).await;
        assert_eq!(admitted.status, 200);
        let policy = r#""login";q=2;w=7200"#;
        assert_eq!(admitted.header("ratelimit-policy"), Some(policy));
        assert_eq!(admitted.header("ratelimit"), Some(left));
    }
    let refused = client.ask(get("/login")).await;
    assert_eq!(
        (refused.status, refused.header("tidegate-shed")),
        (429, Some("quota"))
    );
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&seconds), "{seconds}");
    let policy = r#""login";q=2;w=7200"#;
    assert_eq!(refused.header("ratelimit-policy"), Some(policy));
    let left = format!(r#""login";r=0;t={seconds}"#);
    assert_eq!(refused.header("ratelimit"), Some(left.as_str()));
    let problem = "GET /login HTTP/1.1\r\nhost: a\r\naccept: application/problem+json\r\n\r\n";
    let problem = client.ask(problem).await.text();
    assert!(
        problem.contains(r#""violated-policies":["login"]"#),
        "{problem}"
    );
    assert!(problem.contains("#quota-exceeded"), "{problem}");
    assert_eq!(
        client.ask(get("/other")).await.status,
        200,
        "no other path is concerned"
    );
    let post = "POST /login HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(
        client.ask(post).await.status,
        200,
        "no other method is concerned"
    );
    let status = proxy
        .state()
        .application("default")
        .unwrap()
        .sentry()
        .status(proxy.state().now());
    let shed: u64 = status
        .classes
        .iter()
        .flat_map(|class| class.shed.iter())
        .map(|(_, count)| *count)
        .sum();
    assert_eq!(shed, 0, "a quota is not load");
    // A reload keeps what was used.
    reconfigured(&proxy, |config| config.edge.quotas[0].burst = Some(3));
    assert_eq!(client.ask(get("/login")).await.status, 200);
    assert_eq!(client.ask(get("/login")).await.status, 429);
}

#[tokio::test]
async fn concurrency_quota_frees_its_places() {
    let (service, gate) = Service::held().await;
    let quota = "[[edge.quotas]]\nname = 'few'\nkey = 'all'\nconcurrency = 1";
    let proxy = proxy(&[service.addr], quota);
    let mut first = Client::connect(proxy.local_addr()).await;
    first.send(get("/")).await;
    eventually("the first is inside", || service.count() == 1).await;
    assert_eq!(ask(proxy.local_addr(), get("/")).await.status, 429);
    gate.add_permits(10);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(
        first.ask(get("/")).await.status,
        200,
        "its place is free again"
    );
    // A client that leaves gives its place back as well.
    let (service, gate) = Service::held().await;
    let proxy = crate::support::proxy(&[service.addr], quota);
    let mut left = Client::connect(proxy.local_addr()).await;
    left.send(get("/")).await;
    eventually("it is inside", || service.count() == 1).await;
    drop(left);
    gate.add_permits(10);
    let mut next = Client::connect(proxy.local_addr()).await;
    loop {
        if next.ask(get("/")).await.status == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn plain_text_is_redirected_to_https() {
    let service = Service::echo().await;
    let proxy = proxy(
        &[service.addr],
        "edge = { https_redirect = true, https_port = 8443 }\nforward.trust = ['127.0.0.1/32']",
    );
    let answer = ask(
        proxy.local_addr(),
        "GET /a?b=1 HTTP/1.1\r\nhost: shop.example:8080\r\n\r\n",
    )
    .await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (308, Some("https://shop.example:8443/a?b=1"))
    );
    let trusted = "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-proto: https\r\n\r\n";
    assert_eq!(ask(proxy.local_addr(), trusted).await.status, 200);
    assert_eq!(service.count(), 1);
}

#[tokio::test]
async fn headers_and_prefix_are_changed_on_the_way() {
    let service = mirror().await;
    let edge = "[edge]\nstrip_prefix = '/api'\n[edge.to_replica]\nremove = ['x-debug']\nset = { x-env = 'prod' }\n\
                [edge.to_client]\nremove = ['server']\nset = { x-frame-options = 'DENY' }\nadd = { vary = 'a' }";
    let proxy = proxy(&[service.addr], edge);
    let request = "GET /api/users?x=1 HTTP/1.1\r\nhost: a\r\nx-debug: 1\r\nx-env: test\r\n\
                   X_Env: test\r\nx_debug: 1\r\nx_other: kept\r\n\r\n";
    let answer = ask(proxy.local_addr(), request).await;
    let said = answer.text();
    assert!(said.starts_with("/users?x=1\n"), "{said}");
    assert!(
        said.contains("x-env: prod") && said.contains("x_other: kept"),
        "{said}"
    );
    assert!(
        !said.contains("test") && !said.contains("x-debug") && !said.contains("x_debug"),
        "{said}"
    );
    assert_eq!(answer.header("server"), None);
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    assert_eq!(answer.header("vary"), Some("a"));
}

#[tokio::test]
async fn networks_are_allowed_and_denied() {
    let service = Service::echo().await;
    let edge = "forward.trust = ['127.0.0.1/32']\n[edge]\ndeny = ['192.0.2.0/24']\n\
                [[edge.paths]]\npath = '/admin'\nallow = ['10.0.0.0/8']";
    let proxy = proxy(&[service.addr], edge);
    for (path, from, status) in [
        ("/", "198.51.100.1", 200),
        ("/", "192.0.2.7", 403),
        ("/admin/users", "198.51.100.1", 403),
        ("//%61dmin/users", "198.51.100.1", 403),
        ("/admin/users", "10.1.2.3", 200),
        ("/administrators", "198.51.100.1", 200),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {from}\r\n\r\n");
        assert_eq!(
            ask(proxy.local_addr(), request).await.status,
            status,
            "{path} from {from}"
        );
    }
}

/// The replica sees `/admin` for `/v1/admin`: rules hold for both names.
#[tokio::test]
async fn path_rules_and_quotas_hold_for_what_is_left_of_a_stripped_path() {
    let service = Service::echo().await;
    let edge = "[edge]\nstrip_prefix = '/v1'\n[[edge.paths]]\npath = '/admin'\n\
                allow = ['10.0.0.0/8']\n[[edge.quotas]]\nname = 'login'\npath = '/login'\n\
                rate = '1/h'\nburst = 1";
    let proxy = proxy(&[service.addr], edge);
    for (path, status) in [
        ("/admin", 403),
        ("/v1/admin", 403),
        ("/v1/%61dmin", 403),
        ("/v1//admin/x", 403),
        ("/admin/../x", 403),
        ("/v1/administrators", 200),
        ("/v1/login", 200),
        ("/login", 429),
        ("/v1/login", 429),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = ask(proxy.local_addr(), request).await;
        assert_eq!(answer.status, status, "{path}");
    }
}

/// Two applications with one service behind them, of which one is closed.
#[tokio::test]
async fn path_that_can_be_read_as_one_of_another_application_belongs_to_none() {
    let service = Service::echo().await;
    let file = format!(
        "admin = 'off'\nlisten = '127.0.0.1:0'\n\
         [[application]]\nname = 'shop'\nupstream = 'http://{0}'\n\
         [[application]]\nname = 'admin'\npaths = ['/admin']\nupstream = 'http://{0}'\n\
         edge.allow = ['10.0.0.0/8']\n",
        service.addr
    );
    let proxy = proxy_from(&file);
    for (path, status) in [
        ("/", 200),
        ("/a%20b//c", 200),
        ("/administrators", 200),
        ("/admin", 403),
        ("/admin//x", 403),
        ("/%61dmin", 404),
        ("//admin", 404),
        ("/x/../admin", 404),
        ("/admin/..%2fpublic", 404),
        ("/x;y/..;/admin", 404),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let answer = ask(proxy.local_addr(), request).await;
        assert_eq!(answer.status, status, "{path}");
    }
}

#[tokio::test]
async fn maintenance_closes_one_application_and_opens_it_again() {
    let service = Service::echo().await;
    let file = format!(
        "admin = 'off'\nlisten = '127.0.0.1:0'\n\
         [[application]]\nname = 'a'\nhosts = ['a.example']\nupstream = 'http://{0}'\n\
         [application.edge.maintenance]\nenabled = true\nmessage = 'Back at eight.'\nretry_after = '10m'\n\
         [[application]]\nname = 'b'\nhosts = ['b.example']\nupstream = 'http://{0}'\n",
        service.addr
    );
    let proxy = proxy_from(&file);
    let asked = |host: &str| {
        ask(
            proxy.local_addr(),
            format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"),
        )
    };
    let closed = asked("a.example").await;
    assert_eq!(
        (closed.status, closed.header("retry-after")),
        (503, Some("600"))
    );
    assert!(closed.text().contains("Back at eight."));
    assert_eq!(asked("b.example").await.status, 200);
    reconfigured(&proxy, |config| {
        config.edge_mut("a").unwrap().maintenance.enabled = false;
    });
    assert_eq!(asked("a.example").await.status, 200);
}

#[tokio::test]
async fn paths_have_timeouts_and_sizes_of_their_own() {
    let (service, _gate) = Service::held().await;
    let edge = "[[edge.paths]]\npath = '/slow'\ntimeout = '50ms'\n[[edge.paths]]\npath = '/small'\nbody_bytes = 3";
    let slow = proxy(&[service.addr], edge);
    assert_eq!(ask(slow.local_addr(), get("/slow/x")).await.status, 504);
    let post =
        |path: &str| format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nfour");
    assert_eq!(ask(slow.local_addr(), post("/small")).await.status, 413);
    let echo = Service::echo().await;
    let small = proxy(&[echo.addr], edge);
    assert_eq!(ask(small.local_addr(), post("/other")).await.status, 200);
}

#[tokio::test]
async fn answers_that_are_too_large_are_stopped() {
    let announced = Service::start(|_| async { text("0123456789") }).await;
    let edge = "edge.response_bytes = 9";
    let one = proxy(&[announced.addr], edge);
    assert_eq!(ask(one.local_addr(), get("/")).await.status, 502);
    let exact = proxy(&[announced.addr], "edge.response_bytes = 10");
    assert_eq!(ask(exact.local_addr(), get("/")).await.text(), "0123456789");
    let chunked = raw_service(|mut stream, _| async move {
        read_head(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..100 {
            if stream.write_all(b"5\r\nhello\r\n").await.is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"0\r\n\r\n").await;
    })
    .await;
    let two = proxy(&[chunked], edge);
    let mut client = Client::connect(two.local_addr()).await;
    client.send(get("/")).await;
    let answer = client.try_answer(false).await;
    assert!(
        answer.is_none_or(|it| it.status == 502),
        "it must not look whole"
    );
}
