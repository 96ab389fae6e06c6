//! Which class requests get over real sockets, and that nobody talks himself into a better one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tidegate_proxy::Running;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::*;

const CLASSES: &str = r#"
protect.classes = [{ name = "gold" }, { name = "silver" }, { name = "bronze" }]
[[classify]]
class = "gold"
headers = { x-plan = "gold" }
[[classify]]
class = "gold"
cookies = { plan = "gold" }
[[classify]]
class = "gold"
claims = { plan = "gold" }
[[classify]]
class = "silver"
host = "partner.example"
[[classify]]
class = "silver"
path = "/shop"
[token]
secret = "a secret of thirty-two characters"
"#;

/// The class that the service was told, and every class that was mentioned beside it.
async fn class(proxy: &Running, target: &str, headers: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
    class_told(&ask(proxy.local_addr(), request).await)
}

fn class_told(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let told = text
        .lines()
        .filter(|line| line.starts_with("tidegate-class:"));
    let told: Vec<_> = told.map(|line| &line["tidegate-class: ".len()..]).collect();
    told.join(" and ")
}

#[tokio::test]
async fn the_service_is_told_the_class() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], CLASSES);
    assert_eq!(class(&proxy, "/shop/cart", "").await, "silver");
    assert_eq!(class(&proxy, "/other", "").await, "bronze");
}

#[tokio::test]
async fn a_trusted_proxy_says_the_class() {
    let service = Service::echo().await;
    let trusting = format!("forward.trust = ['127.0.0.0/8']\n{CLASSES}");
    let proxy = proxy(&[service.addr], &trusting);
    assert_eq!(class(&proxy, "/", "x-plan: gold\r\n").await, "gold");
    assert_eq!(class(&proxy, "/", "cookie: plan=gold\r\n").await, "gold");
    for doubtful in [
        "x-plan: gold\r\nx-plan: lead\r\n",
        "x-plan: lead\r\nX-Plan: gold\r\n",
        "x-plan: gold\r\nx_plan: lead\r\n",
        "x_plan: gold\r\n",
        "x-plan: gold\r\nconnection: x-plan\r\n",
        "cookie: plan=lead; plan=gold\r\n",
        "cookie: plan=gold\r\ncookie: plan=lead\r\n",
        "tidegate-class: gold\r\n",
    ] {
        assert_eq!(class(&proxy, "/", doubtful).await, "bronze", "{doubtful}");
    }
}

#[tokio::test]
async fn a_client_cannot_promote_itself() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], CLASSES);
    for attempt in [
        "tidegate-class: gold\r\n",
        "TIDEGATE-CLASS: gold\r\n",
        "tidegate_class: gold\r\n",
        "tidegate-class: gold\r\ntidegate-class: gold\r\n",
        "tidegate-class: gold\r\nconnection: tidegate-class\r\n",
        "x-plan: gold\r\n",
        "X-PLAN: gold\r\n",
        "x_plan: gold\r\n",
        "x-plan: gold\r\nx-plan: gold\r\n",
        "x-plan: gold\r\nconnection: x-plan\r\n",
        "connection: tidegate-class\r\n",
        "cookie: plan=gold\r\n",
        "cookie: plan=gold; plan=gold\r\n",
        "x-forwarded-for: 127.0.0.1\r\nx-plan: gold\r\n",
        "x-forwarded-host: partner.example\r\n",
        "authorization: Bearer gold\r\n",
    ] {
        assert_eq!(class(&proxy, "/", attempt).await, "bronze", "{attempt}");
    }
    for disguise in [
        "/%73hop",
        "//shop",
        "/./shop",
        "/a/../shop",
        "/a/..;/shop",
        "/a%2f..%2fshop",
    ] {
        assert_eq!(class(&proxy, disguise, "").await, "bronze", "{disguise}");
    }
}

#[tokio::test]
async fn a_host_said_in_two_ways_is_no_host() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], CLASSES);
    let partner = "GET http://partner.example/ HTTP/1.1\r\nhost: partner.example\r\n\r\n";
    assert_eq!(
        class_told(&ask(proxy.local_addr(), partner).await),
        "silver"
    );
    for attempt in [
        "GET http://partner.example/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nhost: partner.example\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: partner.example\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: partner.example, a\r\n\r\n",
    ] {
        assert_eq!(
            ask(proxy.local_addr(), attempt).await.status,
            400,
            "{attempt}"
        );
    }
    let beside = "GET / HTTP/1.1\r\nhost: a\r\nhost_: partner.example\r\n\r\n";
    assert_eq!(class_told(&ask(proxy.local_addr(), beside).await), "bronze");
    assert_eq!(service.count(), 2);
}

#[tokio::test]
async fn a_trailer_comes_too_late_to_matter() {
    let service = Service::start(|request| async move {
        let told = request.headers()["tidegate-class"]
            .to_str()
            .unwrap()
            .to_owned();
        let trailers = request
            .into_body()
            .collect()
            .await
            .unwrap()
            .trailers()
            .cloned();
        text(format!("tidegate-class: {told}\n{trailers:?}"))
    })
    .await;
    let trusting = format!("forward.trust = ['127.0.0.0/8']\n{CLASSES}");
    let proxy = proxy(&[service.addr], &trusting);
    let request = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-plan\r\n\r\n\
        1\r\nx\r\n0\r\nx-plan: gold\r\ntidegate-class: gold\r\ntidegate_class: gold\r\n\r\n";
    let answer = ask(proxy.local_addr(), request).await;
    assert_eq!(class_told(&answer), "bronze");
    assert!(
        !answer.text().contains("tidegate_class"),
        "{}",
        answer.text()
    );
    assert!(
        !answer.text().contains("\"tidegate-class\""),
        "{}",
        answer.text()
    );
}

fn token(claims: &str, secret: &str) -> String {
    let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
    let signed = format!(
        "{}.{}",
        part(r#"{"alg":"HS256","typ":"JWT"}"#),
        part(claims)
    );
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, signed.as_bytes()));
    format!("authorization: Bearer {signed}.{signature}\r\n")
}

#[tokio::test]
async fn a_signed_token_proves_the_class() {
    let service = Service::echo().await;
    let proxy = proxy(&[service.addr], CLASSES);
    let secret = "a secret of thirty-two characters";
    let good = token(r#"{"exp":99999999999,"plan":"gold"}"#, secret);
    assert_eq!(class(&proxy, "/", &good).await, "gold");
    assert_eq!(class(&proxy, "/shop", &good).await, "gold");
    for bad in [
        token(
            r#"{"exp":99999999999,"plan":"gold"}"#,
            "another secret of 32 characters..",
        ),
        token(r#"{"exp":1,"plan":"gold"}"#, secret),
        token(r#"{"plan":"gold"}"#, secret),
        token(r#"{"exp":99999999999,"plan":"lead"}"#, secret),
        format!("{good}{good}"),
    ] {
        assert_eq!(class(&proxy, "/", &bad).await, "bronze", "{bad}");
    }
}

/// Writes a certificate and its key as `file.crt` and `file.key`, issued by `issuer` if given.
fn issue(
    dir: &Path,
    file: &str,
    name: &str,
    issuer: Option<&Issuer<'_, KeyPair>>,
) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, file);
    if issuer.is_none() {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer).unwrap(),
        None => params.self_signed(&key).unwrap(),
    };
    std::fs::write(dir.join(format!("{file}.crt")), certificate.pem()).unwrap();
    std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    (params, key)
}

/// The class of a request under TLS with the certificate `file`, or why there was no answer.
async fn class_with(proxy: &Running, dir: &Path, file: Option<&str>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(dir.join("ca.crt")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match file {
        None => config.with_no_client_auth(),
        Some(file) => {
            let chain = CertificateDer::from_pem_file(dir.join(format!("{file}.crt"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(dir.join(format!("{file}.key"))).unwrap();
            config.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    let name = ServerName::try_from("server.example").unwrap();
    let stream = TcpStream::connect(proxy.local_addr()).await?;
    let stream = within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    let request = Request::get("/")
        .header("host", "a")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let answer = within(sender.send_request(request)).await;
    let answer = answer.map_err(std::io::Error::other)?;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    let told = text
        .lines()
        .find_map(|line| line.strip_prefix("tidegate-class: "));
    Ok(told.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_verified_certificate_proves_the_class() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    let (params, key) = issue(dir.path(), "ca", "ca.example", None);
    let ca = Issuer::new(params, key);
    issue(dir.path(), "server", "server.example", Some(&ca));
    issue(dir.path(), "partner", "a.partner.example", Some(&ca));
    issue(dir.path(), "other", "other.example", Some(&ca));
    issue(dir.path(), "forged", "a.partner.example", None);
    let config = |certificate: &str| {
        format!(
            "admin = 'off'\nthreads = 1\nprotect.mode = 'off'\nupstream = 'http://{}'\n\
             protect.classes = [{{ name = 'gold' }}, {{ name = 'bronze' }}]\n\
             listen = {{ addr = '127.0.0.1:0', tls = {{ cert = 'DIR/server.crt', key = 'DIR/server.key' }}, \
             client_ca = 'DIR/ca.crt', client_certificate = '{certificate}' }}\n\
             [[classify]]\nclass = 'gold'\ncertificate = {{ name = '*.partner.example' }}",
            service.addr
        )
        .replace("DIR", &dir.path().display().to_string())
    };
    let optional = proxy_from(&config("optional"));
    let class = |file| class_with(&optional, dir.path(), file);
    assert_eq!(class(Some("partner")).await.unwrap(), "gold");
    assert_eq!(class(Some("other")).await.unwrap(), "bronze");
    assert_eq!(class(None).await.unwrap(), "bronze");
    assert!(
        class(Some("forged")).await.is_err(),
        "issued by nobody we know"
    );
    let required = proxy_from(&config("required"));
    let class = |file| class_with(&required, dir.path(), file);
    assert_eq!(class(Some("partner")).await.unwrap(), "gold");
    assert!(class(None).await.is_err());
}

#[tokio::test]
async fn what_a_replica_says_a_request_costs_is_learnt_by_class() {
    // No time is believed beyond what the request took.
    let service = Service::start(|_| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut reply = text("ok");
        for (name, value) in [("tidegate-cpu-ms", "40"), ("tidegate-io-ms", "10")] {
            reply.headers_mut().insert(name, value.parse().unwrap());
        }
        reply
    })
    .await;
    let extra = "protect.mode = 'sentry'\nprotect.target = '1s'\n\
        protect.classes = [{ name = 'gold' }, { name = 'bronze' }]\n\
        classify = [{ class = 'gold', path = '/gold' }]";
    let proxy = proxy(&[service.addr], extra);
    let mut client = Client::connect(proxy.local_addr()).await;
    let cost = |class: usize| {
        let state = proxy.state();
        state.first().sentry().status(state.now()).classes[class].service_seconds
    };
    let untouched = cost(1);
    for _ in 0..60 {
        let answer = client.ask("GET /gold HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(answer.status, 200);
    }
    let learnt = cost(0).expect("the mode measures it");
    assert!((learnt - 0.05).abs() < 0.005, "{learnt}");
    assert_eq!(cost(1), untouched);
}
