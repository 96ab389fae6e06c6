//! The shop's pages, and the shop as people start it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::thread;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use tidegate_example_shop::{Shop, ShopConfig, router};
use tidegate_nucleus::{Nucleus, NucleusConfig};
use tidegate_testing::blocking;
use tidegate_testing::process::Process;
use tower::ServiceExt as _;

const NOTE: &str = "Recommendations are taking a break";

fn open(past_orders: u32) -> Router {
    let config = ShopConfig {
        past_orders,
        ..ShopConfig::default()
    };
    let nucleus = Nucleus::new(NucleusConfig::default(), None);
    router(Shop::open(&config).unwrap(), nucleus)
}

struct Page {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Page {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// How many products it links to.
    fn cards(&self) -> usize {
        self.text.matches("<li class=\"card\">").count()
    }

    /// The cookie that a browser would send from here on.
    fn cookie(&self) -> String {
        let set = self.header(header::SET_COOKIE);
        set.split(';').next().unwrap().to_owned()
    }
}

async fn send(shop: &Router, request: Request<Body>) -> Page {
    let response = shop.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Page {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

async fn get(shop: &Router, path: &str) -> Page {
    send(shop, Request::get(path).body(Body::empty()).unwrap()).await
}

async fn get_with(shop: &Router, path: &str, name: &str, value: &str) -> Page {
    let request = Request::get(path).header(name, value);
    send(shop, request.body(Body::empty()).unwrap()).await
}

async fn post(shop: &Router, path: &str, cookie: &str, form: &'static str) -> Page {
    let request = Request::post(path)
        .header("cookie", cookie)
        .header("content-type", "application/x-www-form-urlencoded");
    send(shop, request.body(Body::from(form)).unwrap()).await
}

#[tokio::test]
async fn products_are_listed_by_page_and_department() {
    let shop = open(100);
    let first = get(&shop, "/").await;
    assert_eq!((first.status, first.cards()), (StatusCode::OK, 24));
    let last = get(&shop, "/?page=5").await;
    assert_eq!(last.cards(), 24);
    let galley = get(&shop, "/?department=galley").await;
    assert_eq!(galley.cards(), 20);
    assert!(galley.text.contains("aria-current=\"true\">Galley<"));
    for nowhere in [
        "/?page=6",
        "/?department=attic",
        "/products/121",
        "/products/x",
        "/a",
    ] {
        let page = get(&shop, nowhere).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{nowhere}");
        assert!(page.text.contains("Back to the shop"), "{nowhere}");
    }
}

#[tokio::test]
async fn recommendations_are_left_out_when_asked() {
    let shop = open(500);
    let full = get(&shop, "/products/1").await;
    assert!(full.text.contains("Skagen lantern"));
    assert_eq!(full.cards(), 4);
    assert!(!full.text.contains(NOTE));

    let reduced = get_with(&shop, "/products/1", "tidegate-optional", "0").await;
    assert!(
        reduced.text.contains("Skagen lantern"),
        "the product is not optional"
    );
    assert_eq!(reduced.cards(), 0);
    assert!(reduced.text.contains(NOTE));
    assert_eq!(reduced.headers["tidegate-demand"], "1");
}

#[tokio::test]
async fn a_purchase_becomes_a_recommendation() {
    let shop = open(0);
    assert!(
        get(&shop, "/products/7")
            .await
            .text
            .contains("Nobody has bought this")
    );
    let ordered = post(&shop, "/checkout", "basket=7:1.31:1", "name=Ada").await;
    assert_eq!(ordered.status, StatusCode::SEE_OTHER);
    let page = get(&shop, "/products/7").await;
    assert_eq!(page.cards(), 1);
    assert!(page.text.contains("href=\"/products/31\""));
}

#[tokio::test]
async fn things_are_bought_from_the_basket() {
    let shop = open(0);
    let added = post(&shop, "/basket/add", "", "product=1&quantity=2").await;
    assert_eq!(added.header(header::LOCATION), "/basket");
    let added = post(
        &shop,
        "/basket/add",
        &added.cookie(),
        "product=2&quantity=1",
    )
    .await;
    let changed = post(
        &shop,
        "/basket/set",
        &added.cookie(),
        "product=2&quantity=0",
    )
    .await;
    let cookie = changed.cookie();
    let basket = get_with(&shop, "/basket", "cookie", &cookie).await;
    assert!(basket.text.contains("Skagen lantern"));
    assert!(!basket.text.contains("Skagen mooring line"));
    // Two lanterns at 69 Euro and ten percent.
    assert!(
        basket.text.contains("<strong>€\u{a0}151.00</strong>"),
        "{}",
        basket.text
    );

    let nameless = post(&shop, "/checkout", &cookie, "name=+").await;
    assert_eq!(nameless.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(nameless.text.contains("aria-invalid=\"true\""));

    let placed = post(&shop, "/checkout", &cookie, "name=%3Cb%3EAda%3C%2Fb%3E").await;
    assert!(placed.header(header::SET_COOKIE).contains("Max-Age=0"));
    let order = get(&shop, placed.header(header::LOCATION)).await;
    assert!(
        order.text.contains("Thank you, &#60;b&#62;Ada"),
        "{}",
        order.text
    );
    assert!(order.text.contains("€\u{a0}151.00"));
}

#[tokio::test]
async fn an_empty_basket_cannot_be_bought() {
    let shop = open(0);
    for cookie in ["", "basket=4000:1", "basket=1:0"] {
        let page = post(&shop, "/checkout", cookie, "name=Ada").await;
        assert_eq!(page.header(header::LOCATION), "/basket", "{cookie}");
    }
    assert!(
        get(&shop, "/basket")
            .await
            .text
            .contains("nothing in it yet")
    );
}

#[tokio::test]
async fn only_pages_are_measured() {
    let shop = open(0);
    for path in ["/", "/products/1", "/basket", "/nowhere"] {
        let page = get(&shop, path).await;
        assert!(page.headers.contains_key("tidegate-service-ms"), "{path}");
    }
    for path in ["/assets/shop.css", "/assets/pictures.svg", "/health"] {
        let page = get(&shop, path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(!page.headers.contains_key("tidegate-service-ms"), "{path}");
    }
}

#[tokio::test]
async fn every_picture_is_drawn() {
    let shop = open(0);
    let pictures = get(&shop, "/assets/pictures.svg").await.text;
    for id in 1..=12 {
        let page = get(&shop, &format!("/products/{id}")).await.text;
        let name = page.split("pictures.svg#").nth(1).unwrap();
        let name = name.split('"').next().unwrap();
        assert!(pictures.contains(&format!("id=\"{name}\"")), "{name}");
    }
}

#[test]
fn replicas_that_start_together_share_one_database() {
    let folder = tempfile::tempdir().unwrap();
    let config = ShopConfig {
        database: Some(folder.path().join("shop.sqlite")),
        past_orders: 200,
        ..ShopConfig::default()
    };
    thread::scope(|scope| {
        let replicas: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| Shop::open(&config).map(drop)))
            .collect();
        for replica in replicas {
            replica.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_cost_is_reached_by_repetition() {
    let config = |cost_ms| ShopConfig {
        past_orders: 300,
        recommendation_cost: Some(std::time::Duration::from_millis(cost_ms)),
        ..ShopConfig::default()
    };
    assert_eq!(Shop::open(&config(0)).unwrap().passes(), 1);
    assert!(Shop::open(&config(2_000)).unwrap().passes() > 10);
}

#[test]
fn the_shop_opens_and_closes() {
    let shop = Process::start(
        env!("CARGO_BIN_EXE_tidegate-example-shop"),
        &["--listen", "127.0.0.1:0", "--past-orders", "10", "--json"],
    );
    let answer = blocking::get(shop.addr("listen"), "/products/1");
    assert_eq!(answer.status, 200, "{answer:?}");
    shop.finish();
}

#[test]
fn a_database_that_cannot_be_is_refused() {
    let config = ShopConfig {
        database: Some(Path::new("/nowhere/shop.sqlite").to_owned()),
        ..ShopConfig::default()
    };
    let error = Shop::open(&config).unwrap_err().to_string();
    assert!(error.contains("unable to open database"), "{error}");
}
