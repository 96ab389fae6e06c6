//! Configuration files as people write them: what is accepted, and what the refusals say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use tidegate_proxy::config::{self, Config, Http2, LogTarget, reference};

const SHORTEST: &str = r#"
listen = ":8080"
upstream = "http://127.0.0.1:3000"
protect.target = "500ms"
"#;

/// The messages that refuse a file, without the file's name.
fn refusals(text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    refusals_in(dir.path(), text)
}

fn refusals_in(dir: &Path, text: &str) -> Vec<String> {
    match config::check("f.toml", text, dir) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .iter()
            .map(|error| error.to_string().replace("f.toml:", ""))
            .collect(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    let loaded = config::check("f.toml", text, Path::new("")).unwrap();
    loaded.warnings.iter().map(ToString::to_string).collect()
}

/// The shortest file with more lines at its end.
fn with(more: &str) -> String {
    format!("{SHORTEST}{more}")
}

#[track_caller]
fn refused(more: &str, place: &str, words: &str) {
    let refusals = refusals(&with(more));
    assert!(
        refusals
            .iter()
            .any(|r| r.starts_with(place) && r.contains(words)),
        "wanted {place} {words}, got {refusals:?}"
    );
}

#[test]
fn three_lines_are_enough() {
    let loaded = config::check("f.toml", SHORTEST, Path::new("")).unwrap();
    assert!(loaded.warnings.is_empty());
    assert_eq!(loaded.config.listen[0].addr.to_string(), "0.0.0.0:8080");
    assert_eq!(loaded.config.upstream.replicas.len(), 1);
    let summary = loaded.config.summary().join("\n");
    assert!(
        summary.contains("mode auto with a target of 500ms"),
        "{summary}"
    );
}

#[test]
fn tables_may_be_abbreviated_or_written_out() {
    let long = r#"
        threads = 2
        access_log = "access.log"
        admin = "off"
        [[listen]]
        addr = "127.0.0.1:1"
        [[listen]]
        addr = "127.0.0.1:2"
        proxy_protocol = true
        [upstream]
        replicas = ["http://a:1", { url = "http://b:2" }]
        http2 = "always"
        [sticky]
        cookie = "session"
    "#;
    let config = Config::from_text("f.toml", long).unwrap();
    assert!(config.listen[1].proxy_protocol);
    assert_eq!(config.upstream.replicas[1].url.to_string(), "http://b:2");
    assert_eq!(config.upstream.http2, Http2::Always);
    assert_eq!(config.access_log.to, LogTarget::File("access.log".into()));
    assert!(!config.admin.enabled);
}

#[test]
fn misspelt_keys_are_refused_with_the_nearest() {
    refused(
        "[timeouts]\nconect = '1s'",
        "6:1: ",
        "did you mean `connect`?",
    );
    refused("[[classify]]\npath = '/'", "5:1: ", "missing field `class`");
    let nested = "[[listen]]\naddres = ':1'\nupstream = 'http://a:1'";
    assert!(refusals(nested)[0].starts_with("2:1: unknown key `addres`; did you mean `addr`?"));
    let protect = "listen = ':1'\nupstream = 'http://a:1'\nprotect.mode = 'atuo'";
    assert!(refusals(protect)[0].starts_with("3:16: unknown value `atuo`; did you mean `auto`?"));
}

#[test]
fn values_are_refused_at_their_place() {
    for port in ["'8080'", "8080"] {
        let text = format!("listen = {port}\nupstream = 'http://a:1'");
        assert!(refusals(&text)[0].starts_with("1:10: `8080` is not an address"));
    }
    let text = "listen = ':1'\nupstream = ['http://a:1', 'b:2']";
    assert!(refusals(text)[0].starts_with("2:27: `b:2` is not a replica's URL"));
    refused("[timeouts]\nconnect = 5", "6:11: ", "with a unit");
}

#[test]
fn an_empty_file_is_told_what_it_needs() {
    let refusals = refusals("");
    assert!(
        refusals
            .iter()
            .any(|r| r.contains("add `listen = \":8080\"`"))
    );
    assert!(refusals.iter().any(|r| r.contains("add `upstream = ")));
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    refused("[sticky]", "5:2: ", "give `cookie` or `header`");
    refused("[sticky]\ncookie = 'a'\nheader = 'b'", "5:2: ", "keep one");
    refused("[[classify]]\nclass = 'gold'", "6:9: ", "no class `gold`");
    refused("[timeouts]\nhead = '0'", "6:8: ", "zero would expire");
    refused("[limits]\nheaders = 0", "6:11: ", "at least 1");
    refused(
        "[health.active]\npath = 'healthz'",
        "6:8: ",
        "begins with `/`",
    );
    for path in ["/a b", "/a\\r\\nx: y", "/a#b"] {
        let file = format!("[health.active]\npath = \"{path}\"");
        refused(&file, "6:8: ", "no request can ask for it");
    }
    refused("[health.active]\nhost = 'a b'", "6:8: ", "it is not a host");
    refused(
        "[health.passive]\neject = '2m'",
        "6:9: ",
        "raise `eject_max`",
    );
    refused("[protect.limits]\nwindow_min = 0", "", "window");
    for mode in ["pi", "pid"] {
        let file = format!("protect.mode = '{mode}'\nprotect.{mode}.gain = nan");
        refused(&file, "", "gain must be finite");
    }
}

#[test]
fn an_admin_listener_others_can_reach_needs_a_token() {
    refused(
        "admin = '0.0.0.0:9'",
        "5:9: ",
        "give `token`, or listen on 127.0.0.1",
    );
    let short = with("[admin]\naddr = '0.0.0.0:9'\ntoken = 'short'");
    assert_eq!(refusals(&short), Vec::<String>::new());
    assert!(warnings(&short)[0].contains("guessed"));
    refused(
        "[admin]\ntoken = 'a'\ntoken_file = 'b'",
        "7:14: ",
        "keep one",
    );
    refused("admin = ':8080'", "5:9: ", "choose another port");
    for token in ["", " ", " a", "schlüssel", "a\tb"] {
        let file = format!("[admin]\naddr = '0.0.0.0:9'\ntoken = '{token}'");
        refused(&file, "7:9: ", "at least one character");
    }
}

#[test]
fn a_proxy_that_forwards_to_itself_is_refused() {
    let text = "listen = ':3000'\nupstream = 'http://localhost:3000'";
    assert!(refusals(text)[0].contains("circle"));
    let twice = "listen = ':1'\nupstream = ['http://a:1', 'http://a:1']";
    assert!(refusals(twice)[0].starts_with("2:27: this replica is listed twice"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("empty.pem"), "").unwrap();
    fs::write(dir.path().join("page.json"), "{").unwrap();
    let text = r#"
upstream = "http://a:1"
[[listen]]
addr = ":1"
tls = { cert = "missing.pem", key = "empty.pem" }
[[listen]]
addr = ":2"
tls = { cert = "empty.pem", key = "empty.pem" }
[refusal]
json = "page.json"
"#;
    let refusals = refusals_in(dir.path(), text).join("\n");
    assert!(refusals.contains("5:16: cannot read"), "{refusals}");
    assert!(refusals.contains("8:16: "), "{refusals}");
    assert!(
        refusals.contains("does not hold a certificate"),
        "{refusals}"
    );
    assert!(
        refusals.contains("10:8: ") && refusals.contains("is not JSON"),
        "{refusals}"
    );
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        fs::write(dir.path().join(format!("{name}.crt")), made.cert.pem()).unwrap();
        fs::write(
            dir.path().join(format!("{name}.key")),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
    };
    make("one");
    make("two");
    let text = |key: &str| {
        format!(
            "upstream = 'http://a:1'\n[[listen]]\naddr = ':1'\n\
             tls = {{ cert = 'one.crt', key = '{key}.key', sni = ['shop.example'] }}"
        )
    };
    assert_eq!(refusals_in(dir.path(), &text("one")), Vec::<String>::new());
    assert!(refusals_in(dir.path(), &text("two"))[0].contains("do not fit together"));
}

#[test]
fn what_is_odd_is_a_warning() {
    let unreachable = with("[[classify]]\nclass = 'default'\n[[classify]]\nclass = 'default'");
    assert!(warnings(&unreachable)[0].contains("never reached"));
    assert!(warnings(&with("[timeouts]\nconnect = '1m'"))[0].contains("shorten it"));
    let borrowed = &warnings(&with("protect.mode = 'lqr'"))[0];
    assert!(borrowed.contains("tidegate characterize"), "{borrowed}");
}

/// Three classes, and rules that come after them.
fn classes(rules: &str) -> String {
    format!(
        "{SHORTEST}protect.classes = [{{ name = 'gold' }}, {{ name = 'silver' }}, {{ name = 'bronze' }}]\n{rules}"
    )
}

const SILVER_AND_GOLD: &str = "[[classify]]\nclass = 'gold'\npath = '/checkout'\n\
    [[classify]]\nclass = 'silver'\npath = '/shop'\n";

#[track_caller]
fn warned(rules: &str, words: &str) {
    let warnings = warnings(&classes(rules));
    assert!(
        warnings.iter().any(|warning| warning.contains(words)),
        "wanted {words}, got {warnings:?}"
    );
}

#[test]
fn sound_classes_are_accepted_without_a_word() {
    let text = classes(SILVER_AND_GOLD);
    assert_eq!(refusals(&text), Vec::<String>::new());
    assert_eq!(warnings(&text), Vec::<String>::new());
}

#[test]
fn a_class_that_nobody_is_in_is_pointed_out() {
    let rules = "[[classify]]\nclass = 'gold'\npath = '/checkout'";
    warned(rules, "no request is ever in class `silver`");
    warned("", "which is `bronze`; add a rule under [[classify]]");
    let text = classes(rules).replace(
        "protect.classes",
        "default_class = 'silver'\nprotect.classes",
    );
    let warnings = warnings(&text);
    assert!(warnings[0].contains("class `bronze`"), "{warnings:?}");
}

#[test]
fn unknown_classes_are_refused() {
    let rules = |rules: &str| refusals(&classes(rules));
    let unknown = rules("[[classify]]\nclass = 'lead'");
    assert!(
        unknown[0].contains("or use one of gold, silver, bronze"),
        "{unknown:?}"
    );
    let text = classes("").replace("protect.classes", "default_class = 'lead'\nprotect.classes");
    assert!(refusals(&text)[0].contains("no class `lead`"));
}

#[test]
fn shadowed_and_overlapping_rules_are_pointed_out() {
    let shadowed =
        format!("{SILVER_AND_GOLD}[[classify]]\nclass = 'bronze'\npath_exact = '/shop/x'");
    warned(&shadowed, "never reached: rule 2 (class `silver`)");
    let cut = format!("[[classify]]\nclass = 'bronze'\nmethods = ['POST']\n{SILVER_AND_GOLD}");
    warned(&cut, "fit this rule and rule 1 (class `bronze`) as well");
}

#[test]
fn rules_that_believe_too_much_or_too_little_are_pointed_out() {
    let header = "[[classify]]\nclass = 'gold'\nheaders = { x-plan = 'gold' }\n";
    warned(header, "the client's own word");
    let trusting = classes(header).replace(
        "protect.classes",
        "forward.trust = ['10.0.0.0/8']\nprotect.classes",
    );
    let warnings = warnings(&trusting);
    assert!(
        !warnings.iter().any(|w| w.contains("own word")),
        "{warnings:?}"
    );
    let any = "[[classify]]\nclass = 'gold'\nheaders = { x-plan = '*' }\nbelieve = 'anybody'\n";
    warned(any, "every client can send this");
    let worse = "[[classify]]\nclass = 'bronze'\nheaders = { user-agent = 'bot' }\n";
    let text = classes(&format!("{worse}{SILVER_AND_GOLD}"));
    assert_eq!(self::warnings(&text), Vec::<String>::new());
}

#[test]
fn conditions_that_make_no_sense_are_refused() {
    let rule = |condition: &str| {
        let refusals = refusals(&classes(&format!(
            "[[classify]]\nclass = 'gold'\n{condition}"
        )));
        refusals.join("\n")
    };
    for (condition, words) in [
        ("path = 'shop'", "begins with `/`"),
        ("path = '/shop?x=1'", "leave the query out"),
        ("path = '/shop/*.html'", "one whole segment"),
        ("path_regex = '('", "not a regular expression"),
        ("path = '/a'\npath_exact = '/b'", "keep one of `path`"),
        ("host = 'a:80'", "without a port"),
        ("host = '*'", "this is no host"),
        ("methods = ['G T']", "not a method"),
        ("headers = { 'x plan' = 'a' }", "not a header's name"),
        ("headers = { Tidegate_Class = 'a' }", "the proxy's own"),
        ("headers = { cookie = 'a=b' }", "write `cookies"),
        ("cookies = { 'a b' = 'a' }", "not a cookie's name"),
        ("claims = { plan = 'gold' }", "say under [token]"),
        ("certificate = {}", "give a listener `client_ca`"),
        (
            "certificate = { fingerprint = '00' }",
            "64 hexadecimal digits",
        ),
        ("believe = 'everybody'", "unknown value `everybody`"),
    ] {
        let refusal = rule(condition);
        assert!(refusal.contains(words), "{condition}: {refusal}");
    }
}

#[test]
fn tokens_need_one_sound_key() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("no.pem"), "nothing").unwrap();
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    fs::write(dir.path().join("p384.pem"), p384.public_key_pem()).unwrap();
    let p256 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(dir.path().join("p256.pem"), p256.public_key_pem()).unwrap();
    let rule = "[[classify]]\nclass = 'gold'\nclaims = { plan = 'gold' }\n[token]\n";
    let check =
        |token: &str| refusals_in(dir.path(), &classes(&format!("{rule}{token}"))).join("\n");
    for (token, words) in [
        ("", "give `secret` or `public_key`"),
        ("secret = 'short'", "at least 32 characters"),
        (
            "public_key = 'missing.pem'",
            "cannot read a public key from",
        ),
        ("public_key = 'no.pem'", "BEGIN PUBLIC KEY"),
        ("public_key = 'p384.pem'", "use Ed25519, P-256 or RSA"),
        (
            "public_key = 'p256.pem'\nheader = 'a'\ncookie = 'b'",
            "keep one of them",
        ),
        (
            "public_key = 'p256.pem'\nsecret = '0123456789abcdef0123456789abcdef'",
            "keep one of them",
        ),
    ] {
        let refusal = check(token);
        assert!(refusal.contains(words), "{token}: {refusal}");
    }
    assert_eq!(check("public_key = 'p256.pem'"), "");
}

/// Classes with contracts.
fn contracts(gold: &str, more: &str) -> String {
    format!(
        "{SHORTEST}default_class = 'gold'\nprotect.classes = [{{ name = 'gold', {gold} }}]\n{more}"
    )
}

#[test]
fn contracts_that_cannot_be_meant_are_pointed_out() {
    let bands = |rows: &str| contracts(&format!("targets = [{rows}]"), "");
    let one = "{ above = '100/s', target = '1s' }";
    assert_eq!(refusals(&bands(one)), Vec::<String>::new());
    assert_eq!(warnings(&bands(one)), Vec::<String>::new());
    let back = refusals(&bands(&format!(
        "{one}, {{ above = '50/s', target = '2s' }}"
    )));
    assert!(back[0].contains("more than in the row before"), "{back:?}");
    let gap = bands(one).replace("protect.target = \"500ms\"", "");
    assert!(refusals(&gap)[0].contains("gold"), "{:?}", refusals(&gap));
    let stricter = warnings(&bands(&format!(
        "{one}, {{ above = '200/s', target = '200ms' }}"
    )));
    assert!(stricter[0].contains("becomes shorter"), "{stricter:?}");
    let mode = "protect.mode = 'static'\nprotect.static.rate = '50/s'";
    let promised = refusals(&contracts("guarantee = '60/s'", mode));
    assert!(
        promised[0].contains("60/s, more than the 50/s"),
        "{promised:?}"
    );
    assert_eq!(
        refusals(&contracts("guarantee = '40/s'", mode)),
        Vec::<String>::new()
    );
    let negative = refusals(&contracts("revenue = -1.0", ""));
    assert!(negative[0].contains("zero or more"), "{negative:?}");
}

#[test]
fn keys_of_tenants_and_sessions_are_checked() {
    for (key, words) in [
        ("tenant = 'claim:sub'", "say under [token]"),
        ("tenant = 'certificate'", "give a listener `client_ca`"),
        ("tenant = 'header:x y'", "not a header's name"),
        ("tenant = 'ip'", "write \"address\""),
        ("session = { key = 'address' }", "half a town"),
        (
            "session = { key = 'cookie:a', entry_path = 'x' }",
            "begins with `/`",
        ),
    ] {
        let refusals = refusals(&with(key)).join("\n");
        assert!(refusals.contains(words), "{key}: {refusals}");
    }
    assert!(warnings(&with("tenant = 'header:x-customer'"))[0].contains("told by address"));
    assert_eq!(warnings(&with("tenant = 'address'")), Vec::<String>::new());
}

#[test]
fn listeners_ask_for_certificates_under_tls_only() {
    let listener = |key: &str| {
        let text = format!("upstream = 'http://a:1'\n[[listen]]\naddr = ':1'\n{key}");
        refusals(&text).join("\n")
    };
    assert!(listener("client_ca = 'a.pem'").contains("give `tls` as well"));
    let required = listener("client_certificate = 'required'");
    assert!(
        required.contains("4:22: ") && required.contains("give `client_ca`"),
        "{required}"
    );
}

#[test]
fn what_is_served_holds_no_secret() {
    let text =
        with("[admin]\ntoken = 'correct horse battery'\n[sticky]\ncookie = 'c'\nsecret = 'staple'");
    let config = Config::from_text("f.toml", &text).unwrap();
    let served = serde_json::to_string(&config).unwrap();
    assert!(
        !served.contains("horse") && !served.contains("staple"),
        "{served}"
    );
}

/// What is written after `#` without a space can be uncommented.
fn uncommented(reference: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(code) if !code.starts_with(' ') && !code.is_empty() => code.to_owned() + "\n",
        _ => String::new(),
    };
    reference.lines().map(line).collect()
}

#[test]
fn the_reference_can_be_uncommented_and_parsed() {
    let text = uncommented(&reference::toml());
    let config = Config::from_text("reference.toml", &text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let default = Config::default();
    assert_eq!(config.timeouts, default.timeouts);
    assert_eq!(config.protect.mode, default.protect.mode);
    assert_eq!(config.admin.addr, default.admin.addr);
}

#[test]
fn the_reference_has_every_key() {
    fn keys(schema: &serde_json::Value, found: &mut Vec<String>) {
        match schema {
            serde_json::Value::Object(map) => {
                if let Some(properties) = map.get("properties").and_then(|p| p.as_object()) {
                    found.extend(properties.keys().cloned());
                }
                map.values().for_each(|inner| keys(inner, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|inner| keys(inner, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    keys(schemars::schema_for!(Config).as_value(), &mut found);
    assert!(found.len() > 80, "{}", found.len());
    let reference = reference::toml();
    for key in found {
        let plain = reference.contains(&format!("\n#{key} = "));
        let table = reference.contains(&format!("{key}]"));
        assert!(plain || table, "{key} is missing");
    }
}

#[test]
fn the_example_with_classes_is_accepted_without_a_word() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/classes.toml");
    let loaded = config::load(&path).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.config.protect.class_count(), 3);
}

#[test]
fn the_committed_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
        fs::write(&path, reference::markdown()).unwrap();
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == reference::markdown(),
        "docs/config.md is stale: run this test with TIDEGATE_WRITE_DOCS=1, or \
         `cargo run -p tidegate -- reference --markdown > docs/config.md`"
    );
}

proptest::proptest! {
    /// No file makes the reader panic, and every refusal names its place.
    #[test]
    fn fuzz_files(at: proptest::sample::Index, cut in 0..40_usize, piece in "[ -~\n]{0,20}") {
        let more = "timeouts = { request = '2s' }\nlimits.headers = 10\n[[protect.classes]]\nname = 'gold'\n";
        let mut chars: Vec<char> = with(more).chars().collect();
        let start = at.index(chars.len());
        let end = (start + cut).min(chars.len());
        chars.splice(start..end, piece.chars());
        let text: String = chars.into_iter().collect();
        if let Err(errors) = config::check("f.toml", &text, Path::new("")) {
            proptest::prop_assert!(errors.iter().all(|e| e.to_string().contains("f.toml")));
        }
    }
}

/// A directory with these files, of which the first is loaded.
fn load_files(files: &[(&str, &str)]) -> Result<config::Loaded, String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let shown = |errors: Vec<tidegate_config::ConfigError>| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let prefix = format!("{}/", dir.path().display());
        lines.join("\n").replace(&prefix, "")
    };
    config::load(&dir.path().join(files[0].0)).map_err(shown)
}

const SHOP: &str =
    "[[application]]\nname = 'shop'\nhosts = ['shop.example']\nupstream = 'http://a:1'\n";

#[test]
fn included_files_add_applications() {
    let main = "listen = ':1'\ninclude = ['apps/*.toml', 'limits.toml']";
    let api = SHOP.replace("shop", "api");
    let files = [
        ("main.toml", main),
        ("apps/b.toml", SHOP),
        ("apps/a.toml", api.as_str()),
        ("apps/readme.txt", "= not toml"),
        (
            "limits.toml",
            "include = 'nested.toml'\n[limits]\nheaders = 7",
        ),
        ("nested.toml", "threads = 2"),
    ];
    let config = load_files(&files).unwrap().config;
    let names: Vec<_> = config.application_names().collect();
    assert_eq!(names, ["api", "shop"]);
    assert_eq!((config.limits.headers, config.threads), (7, Some(2)));
    let watched = config.included.iter().map(|it| it.file_name().unwrap());
    assert!(
        watched.into_iter().any(|name| name == "apps"),
        "new files count"
    );
}

#[test]
fn two_files_with_the_same_host_are_refused_with_both_places() {
    let other = SHOP.replace("'shop'", "'other'");
    let files = [
        ("main.toml", "listen = ':1'\ninclude = 'apps/*.toml'"),
        ("apps/a.toml", SHOP),
        ("apps/b.toml", other.as_str()),
    ];
    let refused = load_files(&files).unwrap_err();
    assert!(
        refused.starts_with("apps/b.toml:3:10: shop.example with every path"),
        "{refused}"
    );
    assert!(
        refused.ends_with("the other is at apps/a.toml:3:10"),
        "{refused}"
    );
}

#[test]
fn includes_that_cannot_be_are_refused_where_they_stand() {
    let refused = |main: &str, other: &str| {
        load_files(&[("main.toml", main), ("other.toml", other)]).unwrap_err()
    };
    let missing = refused("include = 'none.toml'", "");
    assert!(
        missing.starts_with("main.toml:1:11: none.toml: cannot be read"),
        "{missing}"
    );
    let circle = refused("include = 'other.toml'", "include = 'main.toml'");
    assert!(
        circle.contains("other.toml:1:11: main.toml: it is included twice"),
        "{circle}"
    );
    let twice = refused("threads = 1\ninclude = 'other.toml'", "threads = 2");
    assert!(
        twice.starts_with("other.toml:1:1: `threads` is given in two files"),
        "{twice}"
    );
    assert!(twice.contains("main.toml:1:1 first"), "{twice}");
}

#[test]
fn environment_variables_have_defaults() {
    let text = "threads = ${TIDEGATE_TEST_NONE:-3}\nlisten = ':${TIDEGATE_TEST_NONE:-81}'\n\
                upstream = 'http://a:1'";
    let config = config::check("f.toml", text, Path::new("")).unwrap().config;
    assert_eq!(config.threads, Some(3));
    assert_eq!(config.listen[0].addr.port(), 81);
    let missing = refusals("listen = ':1'\nupstream = 'http://${TIDEGATE_TEST_NONE}:1'");
    assert!(
        missing[0].starts_with("2:20: the environment variable `TIDEGATE_TEST_NONE`"),
        "{missing:?}"
    );
}

#[test]
fn every_error_is_told_the_first_one_first() {
    let text = "listen = ':1'\nthread = 2\nupstream = 'http://a:1'\n[timeouts]\nrequest = 5\n\
                [limits]\nheaders = 0\n[route]\n";
    let lines: Vec<_> = refusals(text).iter().map(|it| it[..2].to_owned()).collect();
    assert_eq!(lines, ["2:", "5:", "7:", "8:"]);
}

#[test]
fn what_was_left_out_causes_no_further_errors() {
    let text = "listen = ':1'\nupstream = 'a:1'\ndefault_class = 'gold'\n\
                [[protect.classes]]\nname = 'gold'\nrevenu = 3\n";
    let refusals = refusals(text);
    assert_eq!(refusals.len(), 2, "{refusals:?}");
}

#[test]
fn sections_of_other_proxies_name_ours() {
    for (section, ours) in [
        ("[[route]]\nx = 1", "[[application]]"),
        ("[headers]", "[edge.to_replica]"),
        ("[server]", "[[application]]"),
        ("[backend]", "upstream = "),
        ("[frontend]", "[[listen]]"),
    ] {
        refused(section, "5:", ours);
    }
}

#[test]
fn secrets_stand_in_files() {
    let files = [
        (
            "main.toml",
            "listen = ':1'\nupstream = 'http://a:1'\n[token]\nsecret_file = 't'\n\
                       [sticky]\ncookie = 'c'\nsecret_file = 's'",
        ),
        ("t", "a key of thirty-two characters, ok\n"),
        ("s", "another key of some length"),
    ];
    let config = load_files(&files).unwrap().config;
    assert_eq!(
        config
            .token
            .as_ref()
            .unwrap()
            .secret
            .as_ref()
            .unwrap()
            .expose(),
        "a key of thirty-two characters, ok"
    );
    assert_eq!(
        config
            .sticky
            .as_ref()
            .unwrap()
            .secret
            .as_ref()
            .unwrap()
            .expose(),
        "another key of some length"
    );
    assert_eq!(
        config
            .files()
            .filter(|it| it.ends_with("t") || it.ends_with("s"))
            .count(),
        2
    );
    let missing = load_files(&files[..1]).unwrap_err();
    assert!(missing.starts_with("main.toml:4:15: "), "{missing}");
    assert_eq!(missing.lines().count(), 2, "{missing}");
    refused(
        "[sticky]\ncookie = 'c'\nsecret = 'x'\nsecret_file = 'y'",
        "8:",
        "keep one",
    );
}

#[test]
fn what_is_hardly_meant_is_a_warning() {
    let long = warnings("listen = ':1'\nupstream = 'http://a:1'\nprotect.target = '31s'");
    assert!(
        long[0].contains("f.toml:3:18: ") && long[0].contains("504"),
        "{long:?}"
    );
    let classes = "protect.mode = 'static'\nprotect.static = { setpoint = '80%', service_time = '100ms' }\n\
        [[protect.classes]]\nname = 'gold'\nguarantee = '8/s'\n\
        [[protect.classes]]\nname = 'lead'\nguarantee = '3/s'\nrevenue = 2.0\n\
        [[classify]]\nclass = 'gold'\npath = '/a'";
    let odd = warnings(&with(classes)).join("\n");
    assert!(odd.contains("add up to 11/s"), "{odd}");
    assert!(odd.contains("class `lead` is worth more (2)"), "{odd}");
}

#[test]
fn timeout_of_a_path_below_every_target_is_a_warning() {
    let text = |timeout: &str| {
        with(&format!(
            "[[edge.paths]]\npath = '/search'\ntimeout = '{timeout}'"
        ))
    };
    let odd = warnings(&text("400ms")).join("\n");
    assert!(odd.contains("f.toml:7:11: "), "{odd}");
    assert!(odd.contains("for /search is answered with 504"), "{odd}");
    assert_eq!(warnings(&text("500ms")), Vec::<String>::new());
}

#[test]
fn methods_in_small_letters_mean_the_same() {
    let rules = "[[classify]]\nclass = 'default'\nmethods = ['post']\n\
                 [[classify]]\nclass = 'default'\nmethods = ['POST']";
    assert!(warnings(&with(rules))[0].contains("never reached"));
}

#[test]
fn sources_of_replicas_are_checked() {
    let wrong = |source: &str| {
        refusals(&format!(
            "listen = ':1'\nupstream.discover = [{{ {source} }}]"
        ))
    };
    assert_eq!(wrong("dns = 'http://app.test:1'"), Vec::<String>::new());
    for (source, why) in [
        ("", "give one of `dns`, `srv`, `file` and `kubernetes`"),
        ("dns = 'http://a:1', file = 'x'", "give one of"),
        ("dns = 'https://a:1'", "upstream.tls.server_name"),
        (
            "file = 'x', nameserver = '127.0.0.1:53'",
            "only names of the DNS need one",
        ),
        (
            "dns = 'http://a:1', ttl_min = '2m'",
            "longer than `ttl_max`",
        ),
        ("dns = 'unix:/a'", "no name to look up"),
        (
            "kubernetes = { service = 'a', port = '70000' }",
            "`70000` is no port",
        ),
    ] {
        let refusals = wrong(source);
        assert!(
            refusals.iter().any(|it| it.contains(why)),
            "{source}: {refusals:?}"
        );
    }
    let socket = refusals("listen = ':1'\nupstream = 'unix:app.sock'");
    assert!(socket[0].contains("write the whole path"), "{socket:?}");
}

/// A canary or a mirror that cannot be is refused, each with its cause.
#[test]
fn companions_that_cannot_be_are_refused() {
    let file = |top: &str, keys: &str| {
        let shop =
            "[[application]]\nname = 'shop'\nhosts = ['a']\nupstream = 'http://127.0.0.1:2001'";
        let next = "[[application]]\nname = 'next'\nupstream = 'http://127.0.0.1:2002'";
        let text = format!("{top}\nlisten = ':1'\n{shop}\n{next}\n{keys}\n");
        let config = Config::from_text("t.toml", &text).unwrap();
        let problems = config.problems().into_iter();
        problems.map(|it| it.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(file("", "canary = { of = 'shop', share = '5%' }"), [""; 0]);
    assert!(file("", "mirror = { of = 'shop' }").is_empty());
    for (top, keys, path, cause) in [
        (
            "",
            "canary = { of = 'x', share = 1 }",
            "canary.of",
            "no application `x`",
        ),
        (
            "",
            "canary = { of = 'next', share = 1 }",
            "canary.of",
            "itself",
        ),
        ("", "canary = { of = 'shop' }", "canary", "gets no requests"),
        (
            "",
            "canary = { of = 'shop', header_value = '1', share = 1 }",
            "header_value",
            "`header`",
        ),
        (
            "",
            "canary = { of = 'shop', header = 'a b' }",
            "canary.header",
            "header",
        ),
        (
            "",
            "hosts = ['b']\nmirror = { of = 'shop' }",
            "hosts",
            "remove this",
        ),
        (
            "",
            "mirror = { of = 'shop', concurrency = 0 }",
            "concurrency",
            "at least 1",
        ),
        (
            "",
            "mirror = { of = 'shop', share = 0 }",
            "mirror.share",
            "zero",
        ),
        (
            "",
            "mirror = { of = 'shop', body_bytes = '1GiB' }",
            "body_bytes",
            "upload_buffer",
        ),
        (
            "",
            "canary = { of = 'shop', share = 1 }\nmirror = { of = 'shop' }",
            "mirror",
            "already",
        ),
        (
            "",
            "canary = { of = 'shop', share = 1 }\nprotect.classes = [{ name = 'gold' }]",
            "protect",
            "same names",
        ),
        (
            "",
            "canary = { of = 'shop', share = 1 }\n[[application]]\nname = 'more'\n\
             upstream = 'http://127.0.0.1:2003'\ncanary = { of = 'shop', share = 1 }",
            "application.2.canary.of",
            "another canary",
        ),
        (
            "default_application = 'next'",
            "mirror = { of = 'shop' }",
            "default_application",
            "hosts or paths",
        ),
    ] {
        let problems = file(top, keys);
        let found = problems.iter().find(|it| it.contains(cause));
        let found = found.unwrap_or_else(|| panic!("{keys}: {problems:?}"));
        let at = found.split(':').next().unwrap_or("");
        assert!(at.ends_with(path), "{found}");
    }
}

#[test]
fn canary_takes_what_it_leaves_out_from_its_application() {
    let text = "listen = ':1'\ntimeouts.request = '9s'\n\
                [[application]]\nname = 'shop'\nhosts = ['a']\nupstream = 'http://127.0.0.1:2001'\n\
                timeouts.request = '3s'\nedge.deny = ['192.0.2.0/24']\n\
                [[application]]\nname = 'next'\nupstream = 'http://127.0.0.1:2002'\n\
                canary = { of = 'shop', share = '5%' }";
    let config = Config::from_text("t.toml", text).unwrap();
    let (shop, next) = (config.of_application("shop"), config.of_application("next"));
    let (shop, next) = (shop.unwrap(), next.unwrap());
    assert_eq!((shop.timeouts, shop.edge), (next.timeouts, next.edge));
    assert_ne!(shop.upstream, next.upstream);
    let summary = config.summary().join("\n");
    assert!(
        summary.contains("requests of shop: 5% of the rest"),
        "{summary}"
    );
}
