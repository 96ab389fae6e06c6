//! TLS on either side: names, renewal, protocols.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tidegate_proxy::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::*;

/// Writes a certificate for `name` as `file.crt` and `file.key`.
fn certify(dir: &Path, file: &str, name: &str) {
    let certified = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    std::fs::write(dir.join(format!("{file}.crt")), certified.cert.pem()).unwrap();
    std::fs::write(
        dir.join(format!("{file}.key")),
        certified.signing_key.serialize_pem(),
    )
    .unwrap();
}

fn roots(dir: &Path, files: &[&str]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for file in files {
        let path = dir.join(format!("{file}.crt"));
        roots
            .add(CertificateDer::from_pem_file(path).unwrap())
            .unwrap();
    }
    roots
}

async fn handshake(
    addr: SocketAddr,
    name: &str,
    roots: RootCertStore,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TcpStream::connect(addr).await?;
    within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

fn with_tls(service: SocketAddr, dir: &TempDir, tls: &str) -> String {
    let dir = dir.path().display();
    format!(
        "admin = 'off'\nthreads = 1\nprotect.mode = 'off'\nupstream = 'http://{service}'\n\
         listen = {{ addr = '127.0.0.1:0', tls = [{}] }}",
        tls.replace("DIR", &dir.to_string())
    )
}

const ONE: &str = "{ cert = 'DIR/a.crt', key = 'DIR/a.key' }";

#[tokio::test]
async fn clients_speak_the_protocol_they_agree_on() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path(), "a", "a.example");
    let proxy = proxy_from(&with_tls(service.addr, &dir, ONE));
    let request = || {
        Request::get("https://a.example/")
            .header("host", "a.example")
            .body(Empty::<bytes::Bytes>::new())
            .unwrap()
    };

    let stream = handshake(
        proxy.local_addr(),
        "a.example",
        roots(dir.path(), &["a"]),
        &[b"h2", b"http/1.1"],
    )
    .await
    .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let body = within(sender.send_request(request()))
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("x-forwarded-proto: https\n"));

    let stream = handshake(
        proxy.local_addr(),
        "a.example",
        roots(dir.path(), &["a"]),
        &[],
    )
    .await
    .unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = request();
    *request.uri_mut() = "/".parse().unwrap();
    assert_eq!(
        within(sender.send_request(request)).await.unwrap().status(),
        200
    );
}

#[tokio::test]
async fn every_name_gets_its_own_certificate() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path(), "a", "a.example");
    certify(dir.path(), "b", "*.b.example");
    let tls = "{ cert = 'DIR/a.crt', key = 'DIR/a.key' }, { cert = 'DIR/b.crt', key = 'DIR/b.key', sni = ['*.b.example'] }";
    let proxy = proxy_from(&with_tls(service.addr, &dir, tls));
    for (name, file) in [("a.example", "a"), ("x.b.example", "b")] {
        assert!(
            handshake(proxy.local_addr(), name, roots(dir.path(), &[file]), &[])
                .await
                .is_ok(),
            "{name}"
        );
    }
    let wrong = handshake(
        proxy.local_addr(),
        "x.y.b.example",
        roots(dir.path(), &["a", "b"]),
        &[],
    )
    .await;
    assert!(wrong.is_err(), "a wildcard stands for one label");
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_after_a_reload_and_open_connections_stay() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path(), "a", "a.example");
    let proxy = proxy_from(&with_tls(service.addr, &dir, ONE));
    let stream = handshake(
        proxy.local_addr(),
        "a.example",
        roots(dir.path(), &["a"]),
        &[],
    )
    .await
    .unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);

    certify(dir.path(), "a", "a.example");
    assert!(
        handshake(
            proxy.local_addr(),
            "a.example",
            roots(dir.path(), &["a"]),
            &[]
        )
        .await
        .is_err()
    );
    proxy
        .state()
        .apply((*proxy.state().config()).clone())
        .unwrap();
    assert!(
        handshake(
            proxy.local_addr(),
            "a.example",
            roots(dir.path(), &["a"]),
            &[]
        )
        .await
        .is_ok()
    );

    std::fs::write(dir.path().join("a.key"), "not a key").unwrap();
    let refused = proxy
        .state()
        .apply((*proxy.state().config()).clone())
        .unwrap_err();
    assert!(refused.to_string().contains("a.key"), "{refused}");
    let request = Request::get("/")
        .header("host", "a.example")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    assert_eq!(
        within(sender.send_request(request)).await.unwrap().status(),
        200
    );
}

/// How the next connection of a client comes about. Reads an answer: tickets come with it.
async fn handshake_of(addr: SocketAddr, client: &Arc<ClientConfig>) -> HandshakeKind {
    let name = ServerName::try_from("a.example").unwrap();
    let stream = TcpStream::connect(addr).await.unwrap();
    let connector = TlsConnector::from(Arc::clone(client));
    let mut stream = within(connector.connect(name, stream)).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    within(stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    stream.get_ref().1.handshake_kind().unwrap()
}

#[tokio::test]
async fn sessions_are_resumed_after_a_reload_unless_other_authorities_vouch_for_clients() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    for file in ["a", "ca"] {
        certify(dir.path(), file, "a.example");
    }
    let with_authorities = |keys: &str| {
        let text = with_tls(service.addr, &dir, ONE).replace("tls = [", &format!("{keys}tls = ["));
        Config::from_text("t.toml", &text).unwrap()
    };
    for versions in [
        &[&rustls::version::TLS13][..],
        &[&rustls::version::TLS12][..],
    ] {
        let proxy = proxy_from(&with_tls(service.addr, &dir, ONE));
        let (addr, state) = (proxy.local_addr(), proxy.state());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots(dir.path(), &["a"]))
            .with_no_client_auth();
        let client = Arc::new(client);
        assert_eq!(handshake_of(addr, &client).await, HandshakeKind::Full);
        assert_eq!(handshake_of(addr, &client).await, HandshakeKind::Resumed);
        state.apply((*state.config()).clone()).unwrap();
        assert_eq!(handshake_of(addr, &client).await, HandshakeKind::Resumed);

        let authorities = format!(
            "client_ca = '{}/ca.crt', client_certificate = 'optional', ",
            dir.path().display()
        );
        state.apply(with_authorities(&authorities)).unwrap();
        assert_eq!(handshake_of(addr, &client).await, HandshakeKind::Full);
        state.apply(with_authorities(&authorities)).unwrap();
        assert_eq!(handshake_of(addr, &client).await, HandshakeKind::Resumed);
        certify(dir.path(), "ca", "another authority");
        state.apply(with_authorities(&authorities)).unwrap();
        assert_eq!(handshake_of(addr, &client).await, HandshakeKind::Full);
    }
}

#[tokio::test]
async fn suite_of_a_connection_hashes_by_sha256_whatever_the_client_prefers() {
    let service = Service::echo().await;
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path(), "a", "a.example");
    let proxy = proxy_from(&with_tls(service.addr, &dir, ONE));
    // The client's first choice is TLS13_AES_256_GCM_SHA384.
    let roots = roots(dir.path(), &["a"]);
    let stream = handshake(proxy.local_addr(), "a.example", roots, &[]).await;
    let agreed = stream.unwrap().get_ref().1.negotiated_cipher_suite();
    let agreed = agreed.unwrap().suite();
    assert_eq!(agreed, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
}

/// A service that speaks TLS, HTTP/2 preferred.
async fn tls_service(dir: &Path) -> SocketAddr {
    let chain = vec![CertificateDer::from_pem_file(dir.join("s.crt")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join("s.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    Ok::<_, std::convert::Infallible>(text(format!("{:?}", request.version())))
                });
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    addr
}

#[tokio::test]
async fn replicas_are_verified_and_spoken_to_as_agreed() {
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path(), "s", "service.internal");
    certify(dir.path(), "other", "service.internal");
    let addr = tls_service(dir.path()).await;
    let tls = |ca: &str, http2: &str| {
        let dir = dir.path().display();
        proxy_from(&format!(
            "{PLAIN}\n[upstream]\nreplicas = ['https://{addr}']\nhttp2 = '{http2}'\n\
             tls = {{ ca = '{dir}/{ca}.crt', server_name = 'service.internal' }}"
        ))
    };
    assert_eq!(
        ask(tls("s", "auto").local_addr(), GET).await.text(),
        "HTTP/2.0"
    );
    assert_eq!(
        ask(tls("s", "never").local_addr(), GET).await.text(),
        "HTTP/1.1"
    );
    let distrusted = ask(tls("other", "auto").local_addr(), GET).await;
    assert_eq!(distrusted.status, 503, "{}", distrusted.text());
}

/// As `openssl req -x509` does: a certificate that signs itself and says that it is an authority.
fn certify_as_authority(dir: &Path, file: &str, name: &str, years: std::ops::Range<i32>) {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(dir.join(format!("{file}.crt")), certificate.pem()).unwrap();
    std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn a_replica_that_is_its_own_authority_is_trusted_by_name_within_its_dates() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    certify_as_authority(at, "other", "service.internal", 2020..2200);
    let ask_by = async |addr: SocketAddr, ca: &str, name: &str| {
        let dir = at.display();
        let proxy = proxy_from(&format!(
            "{PLAIN}\n[upstream]\nreplicas = ['https://{addr}']\n\
             tls = {{ ca = '{dir}/{ca}.crt', server_name = '{name}' }}"
        ));
        ask(proxy.local_addr(), GET).await.status
    };
    certify_as_authority(at, "s", "service.internal", 2020..2200);
    let service = tls_service(at).await;
    assert_eq!(ask_by(service, "s", "service.internal").await, 200);
    assert_eq!(ask_by(service, "s", "another.internal").await, 503);
    assert_eq!(ask_by(service, "other", "service.internal").await, 503);
    for years in [2020..2021, 2199..2200] {
        certify_as_authority(at, "s", "service.internal", years.clone());
        let service = tls_service(at).await;
        assert_eq!(
            ask_by(service, "s", "service.internal").await,
            503,
            "{years:?}"
        );
    }
}
