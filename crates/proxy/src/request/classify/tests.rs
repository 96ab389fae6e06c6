//! Who gets into which class, and all the ways that do not lead into a better one.

use http::{HeaderName, HeaderValue};

use super::*;

const RULES: &str = r#"
    protect.classes = [{ name = "gold" }, { name = "silver" }, { name = "bronze" }, { name = "bots" }]
    default_class = "bronze"
    [[classify]]
    class = "gold"
    headers = { x-plan = "gold" }
    [[classify]]
    class = "gold"
    headers = { x-api-key = "5f3a-secret" }
    believe = "anybody"
    [[classify]]
    class = "gold"
    cookies = { plan = "gold" }
    [[classify]]
    class = "bots"
    headers = { user-agent = "crawler" }
    [[classify]]
    class = "bots"
    path = "/export"
    [[classify]]
    class = "silver"
    host = "Partner.example"
    [[classify]]
    class = "silver"
    path = "/shop/"
    methods = ["GET"]
"#;

const TRUSTED: bool = true;
const STRANGER: bool = false;

struct Ask<'a> {
    method: &'a str,
    path: &'a str,
    host: &'a str,
    headers: &'a [(&'a str, &'a str)],
    trusted: bool,
}

const PLAIN: Ask<'static> = Ask {
    method: "GET",
    path: "/",
    host: "a",
    headers: &[],
    trusted: STRANGER,
};

fn class(ask: &Ask<'_>) -> String {
    let config = Config::from_text("t.toml", RULES).unwrap();
    let mut headers = Fields::new();
    for (name, value) in ask.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let method = ask.method.parse().unwrap();
    let asked = Asked::new(&method, ask.host, ask.path, &headers).from(ask.trusted, None);
    let class = Classifier::new(&config).class(&asked);
    config.protect.class_name(class).to_owned()
}

fn by_path(path: &str) -> String {
    class(&Ask { path, ..PLAIN })
}

fn by_headers(headers: &[(&str, &str)], trusted: bool) -> String {
    class(&Ask {
        headers,
        trusted,
        ..PLAIN
    })
}

#[test]
fn the_first_rule_that_fits_decides() {
    assert_eq!(by_path("/shop/cart"), "silver");
    assert_eq!(by_path("/shopping"), "bronze");
    assert_eq!(by_path("/export/all"), "bots");
    let post = Ask {
        method: "POST",
        path: "/shop",
        ..PLAIN
    };
    assert_eq!(class(&post), "bronze");
    let partner = Ask {
        host: "partner.example:8443",
        ..PLAIN
    };
    assert_eq!(class(&partner), "silver");
    let earlier = Ask {
        host: "partner.example",
        path: "/export",
        ..PLAIN
    };
    assert_eq!(class(&earlier), "bots");
}

#[test]
fn what_no_rule_fits_is_least_important_unless_told_otherwise() {
    let text = "protect.classes = [{ name = 'a' }, { name = 'b' }]";
    let config = Config::from_text("t.toml", text).unwrap();
    let (method, headers) = (Method::GET, Fields::new());
    let asked = Asked::new(&method, "a", "/", &headers);
    assert_eq!(Classifier::new(&config).class(&asked), ClassId(1));
}

#[test]
fn a_proxy_that_is_trusted_says_the_class() {
    assert_eq!(by_headers(&[("x-plan", "gold")], TRUSTED), "gold");
    assert_eq!(by_headers(&[("cookie", "a=1; plan=gold")], TRUSTED), "gold");
    assert_eq!(by_headers(&[("x-plan", "lead")], TRUSTED), "bronze");
}

/// The class by `Priority`, under a rule for urgencies up to 1.
fn by_priority(headers: &[(&str, &str)], trusted: bool) -> String {
    let text = "protect.classes = [{ name = 'gold' }, { name = 'rest' }]\n\
                classify = [{ class = 'gold', urgency = 1 }]";
    let config = Config::from_text("t.toml", text).unwrap();
    let headers = headers.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    let (method, headers) = (Method::GET, Fields::from_iter(headers));
    let asked = Asked::new(&method, "a", "/", &headers).from(trusted, None);
    let class = Classifier::new(&config).class(&asked);
    config.protect.class_name(class).to_owned()
}

#[test]
fn priority_of_a_trusted_caller_says_the_class() {
    for urgent in ["u=0", "u=1", "i, u=1", "u=1;x, a=b", "u=5, u=1"] {
        assert_eq!(
            by_priority(&[("priority", urgent)], TRUSTED),
            "gold",
            "{urgent}"
        );
    }
    for other in [
        "u=2", "i", "", "u=-1", "u=8", "u=1.0", "u=\"1\"", "u=(1)", "u=1,,", "U=1",
    ] {
        assert_eq!(
            by_priority(&[("priority", other)], TRUSTED),
            "rest",
            "{other}"
        );
    }
    assert_eq!(by_priority(&[], TRUSTED), "rest");
    let twice = [("priority", "u=1"), ("priority", "u=1")];
    assert_eq!(by_priority(&twice, TRUSTED), "rest");
    assert_eq!(by_priority(&[("priority", "u=0")], !TRUSTED), "rest");
}

#[test]
fn nobody_is_believed_about_himself() {
    for headers in [
        &[("x-plan", "gold")][..],
        &[("X-Plan", "gold")],
        &[("x_plan", "gold")],
        &[("X_PLAN", "gold"), ("x-plan", "gold")],
        &[("x-plan", "gold"), ("x-plan", "gold")],
        &[("x-plan", "gold"), ("connection", "x-plan")],
        &[("cookie", "plan=gold")],
        &[("cookie", "plan=gold; plan=gold")],
        &[("tidegate-class", "gold")],
        &[("Tidegate-Class", "gold"), ("tidegate_class", "gold")],
    ] {
        assert_eq!(by_headers(headers, STRANGER), "bronze", "{headers:?}");
    }
}

#[test]
fn a_secret_is_as_good_as_a_trusted_proxy() {
    assert_eq!(
        by_headers(&[("x-api-key", "5f3a-secret")], STRANGER),
        "gold"
    );
    assert_eq!(by_headers(&[("x-api-key", "5f3a")], STRANGER), "bronze");
}

#[test]
fn doubt_about_a_believed_header_never_promotes() {
    for headers in [
        &[("x-plan", "gold"), ("x-plan", "lead")][..],
        &[("x-plan", "lead"), ("x-plan", "gold")],
        &[("x-plan", "gold"), ("x_plan", "lead")],
        &[("x_plan", "gold")],
        &[("x-plan", "gold"), ("connection", "close, X-Plan")],
        &[("cookie", "plan=lead; plan=gold")],
        &[("cookie", "plan=gold"), ("cookie", "plan=lead")],
    ] {
        assert_eq!(by_headers(headers, TRUSTED), "bronze", "{headers:?}");
    }
}

#[test]
fn what_makes_a_request_less_important_is_believed_of_anybody() {
    assert_eq!(by_headers(&[("user-agent", "crawler")], STRANGER), "bots");
    for dodge in [
        &[("user-agent", "crawler"), ("user-agent", "browser")][..],
        &[("user-agent", "crawler"), ("connection", "user-agent")],
        &[("user-agent", "crawler"), ("x-plan", "gold")],
    ] {
        assert_eq!(by_headers(dodge, STRANGER), "bots", "{dodge:?}");
    }
}

#[test]
fn a_disguised_path_neither_wins_a_class_nor_dodges_one() {
    for dodge in [
        "/%65xport",
        "//export",
        "/./export",
        "/shop/../export",
        "/shop/%2e%2e/export",
        "/shop/..;/export",
        "/shop%2F..%2Fexport",
        "/export;x=1/all",
        "/shop\\..\\export",
    ] {
        assert_eq!(by_path(dodge), "bots", "{dodge}");
    }
    for win in [
        "/%73hop",
        "//shop",
        "/x/../shop",
        "/x%2f..%2fshop",
        "/shop;/a",
    ] {
        assert_eq!(by_path(win), "bronze", "{win}");
    }
    assert_eq!(
        by_path("/shop/caf%C3%A9"),
        "silver",
        "a necessary escape is no disguise"
    );
}
